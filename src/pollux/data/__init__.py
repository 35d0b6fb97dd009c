"""Samples in memory or in files: their moments, scaling and encoding, and streams of those that memory cannot hold."""

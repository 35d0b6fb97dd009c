"""Samples: files, tables, arrays, streams; what is done to them before a model sees them."""

"""Inspection of a fitted clustering: structure, confidence, outliers, and a hierarchy of its clusters."""

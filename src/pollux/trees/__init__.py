"""Clusters that explain themselves: unsupervised trees, and rules for any clustering."""

from pollux.trees.tree import GeminiTree

__all__ = ["GeminiTree"]

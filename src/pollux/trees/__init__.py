"""Clusters that explain themselves: unsupervised trees, and rules for any clustering."""

from pollux.trees.explanation import Explanation, Rule, explain
from pollux.trees.tree import GeminiTree, hard_rules

__all__ = ["Explanation", "GeminiTree", "Rule", "explain", "hard_rules"]

"""Explainable clusters: unsupervised trees, and rules for any clustering."""

import typing

from pollux.trees.explanation import Explanation, Rule, explain

if typing.TYPE_CHECKING:
    from pollux.trees.tree import GeminiTree, hard_rules

__all__ = ["Explanation", "GeminiTree", "Rule", "explain", "hard_rules"]

if not typing.TYPE_CHECKING:

    def __getattr__(name):
        # Imported on demand: these import torch, which rules and reports do not need.
        if name in ("GeminiTree", "hard_rules"):
            from pollux.trees import tree

            return getattr(tree, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

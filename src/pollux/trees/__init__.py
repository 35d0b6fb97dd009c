"""Clusters that explain themselves: unsupervised trees, and rules for any clustering."""

import typing

from pollux.trees.explanation import Explanation, Rule, explain

if typing.TYPE_CHECKING:
    from pollux.trees.tree import GeminiTree

__all__ = ["Explanation", "GeminiTree", "Rule", "explain"]

if not typing.TYPE_CHECKING:

    def __getattr__(name):
        # It brings torch, which rules and reports do not need.
        if name == "GeminiTree":
            from pollux.trees.tree import GeminiTree

            return GeminiTree
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

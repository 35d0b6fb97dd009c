"""Recipes for kinds of data, found on development sets: see docs/presets.md."""

from __future__ import annotations

import copy
from typing import Any, Self

TABLES: dict[str, Any] = {
    "scaling": "auto",
    "missing": "mean",
    "model": "mlp",
    "hidden": (100,),
    "objective": "mmd_ovo",
    "geometry": "mixtures",
    "init": "kmeans",
    "schedule": "cosine",
    "max_epochs": "auto",
    "batch_size": 512,
    "n_init": 3,
    "dtype": "float32",
}
"""Rows of numbers in any units."""

IMAGES: dict[str, Any] = {
    "scaling": "global",
    "n_components": 100,
    "model": "mlp",
    "hidden": (500, 500),
    "norm": "batch",
    "objective": "mi",
    "penalties": {"local_vat": 10.0, "balance": 3.0},
    "init": "graph",
    "n_init": 5,
    "trial_epochs": "auto",
    "max_epochs": "auto",
    "schedule": "cosine",
    "batch_size": 500,
    "learning_rate": 1e-3,
    "dtype": "float32",
}
"""Pixels, or other features of one kind."""


class Presets:
    """Clusterings that are ready for a kind of data."""

    @classmethod
    def for_tables(cls, n_clusters: int = 10, **overrides: Any) -> Self:
        """A clustering of raw table rows: in any units, with gaps (NaN).

        Parameters
        ----------
        n_clusters : int
            Most clusters to find.
        **overrides
            Parameters that are to differ from the recipe's.

        Examples
        --------
        >>> from sklearn.datasets import load_wine
        >>> from pollux import GeminiClustering
        >>> GeminiClustering.for_tables(3, random_state=0).fit(load_wine().data).n_clusters_
        3
        """
        recipe = copy.deepcopy(TABLES)
        if not str(overrides.get("objective", "mmd")).startswith("mmd"):
            # The kernel of the recipe is none for other objectives.
            del recipe["geometry"]
        return cls(n_clusters, **{**recipe, **overrides})  # type: ignore[call-arg]

    @classmethod
    def for_images(cls, n_clusters: int = 10, **overrides: Any) -> Self:
        """A clustering of raw images (n, C, H, W), or (n, d) of pixels, or of other features of one kind.

        Parameters
        ----------
        n_clusters : int
            Most clusters to find.
        **overrides
            Parameters that are to differ from the recipe's.
        """
        return cls(n_clusters, **{**copy.deepcopy(IMAGES), **overrides})  # type: ignore[call-arg]

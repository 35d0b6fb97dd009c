"""Recipes for kinds of data, found on development sets: see docs/presets.md. Names are those of parameters."""

from __future__ import annotations

from typing import Any

TABLES: dict[str, Any] = {
    "preprocessing__scaling": "auto",
    "preprocessing__missing": "mean",
    "model": "mlp",
    "model__hidden": (100,),
    "objective": "mmd_ovo",
    "geometry": "mixtures",
    "init": "kmeans",
    "n_init": 3,
    "max_epochs": "auto",
    "batch_size": 512,
    "training__schedule": "cosine",
    "training__max_samples": 20_000,
    "training__dtype": "float32",
}
"""Rows of numbers in any units."""

IMAGES: dict[str, Any] = {
    "preprocessing__scaling": "global",
    "preprocessing__n_components": 100,
    "model": "mlp",
    "model__hidden": (500, 500),
    "model__norm": "batch",
    "objective": "mi",
    "penalties": {"local_vat": 10.0, "balance": 3.0},
    "init": "graph",
    "n_init": 1,
    "max_epochs": "auto",
    "batch_size": 500,
    "learning_rate": 3e-3,
    "training__schedule": "cosine",
    "training__trial_epochs": "auto",
    "training__max_samples": 70_000,
    "training__dtype": "float32",
}
"""Pixels, or other features of one kind."""

RECIPES = {"tables": TABLES, "images": IMAGES}


def apply_recipe(recipe: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a recipe and, in their place, those that are to differ; a group as a whole, or a part of it."""
    kept = {
        name: value
        for name, value in recipe.items()
        # Another model or another preprocessing has parameters of its own.
        if name.partition("__")[0] not in overrides
    }
    return {**kept, **overrides}

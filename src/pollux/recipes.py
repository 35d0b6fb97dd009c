"""Values for "auto": recipes for kinds of data, found on development sets (docs/presets.md), or plain defaults.

Names are those of parameters. Nothing here imports torch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

METHOD = ("model", "objective", "geometry", "init", "penalties")
"""If one of these is set, no recipe is used: every other "auto" becomes its plain default."""

PLAIN: dict[str, Any] = {
    "preprocessing__scaling": "auto",
    "preprocessing__n_components": None,
    "preprocessing__missing": "mean",
    "model": "mlp",
    "model__hidden": (100,),
    "model__activation": "relu",
    "model__norm": None,
    "objective": "mmd_ova",
    "penalties": None,
    "learning_rate": 1e-2,
    "training__schedule": "constant",
    "training__trial_epochs": None,
    "training__max_samples": None,
}
"""Defaults without a recipe, and of all that a recipe does not name."""

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
"""Recipe for rows of numbers in any units."""

IMAGES: dict[str, Any] = {
    "preprocessing__scaling": "global",
    "preprocessing__n_components": 100,
    "preprocessing__missing": "mean",
    "model": "mlp",
    "model__hidden": "auto",
    "model__norm": "batch",
    "objective": "mi",
    "penalties": {"local_vat": 10.0, "balance": 3.0},
    "init": "graph",
    "n_init": 1,
    "max_epochs": "auto",
    "batch_size": 500,
    "learning_rate": 3e-3,
    "training__schedule": "cosine",
    "training__trial_epochs": 0.25,
    "training__max_samples": 70_000,
    "training__dtype": "float32",
}
"""Recipe for pixels, or other features of one kind."""

EMBEDDINGS: dict[str, Any] = {
    "preprocessing__scaling": "global",
    "preprocessing__missing": "mean",
    "model": "mlp",
    "model__hidden": (100,),
    "objective": "mmd_ova",
    "geometry": "cosine_graph",
    "init": "graph",
    "n_init": 1,
    "max_epochs": "auto",
    "batch_size": 500,
    "learning_rate": 1e-2,
    "training__schedule": "cosine",
    "training__max_samples": 10_000,
    "training__dtype": "float32",
}
"""Recipe for vectors of texts, photographs or other things by an encoder: only the angles between them count."""

RIM: dict[str, Any] = {"model": "linear", "objective": "mi", "penalties": {"weight_decay": 0.01}}
"""Regularised information maximisation: the mutual information of a linear model whose weights are kept small."""

RECIPES = {"tables": TABLES, "images": IMAGES, "embeddings": EMBEDDINGS}

VISION = ("lenet5", "resnet18")
"""Models that take images without scaling."""


class DataKind(NamedTuple):
    """The kind of data, which decides on "auto": the recipe or None, and the number of samples if known.

    ``is_fixed`` says that samples are streamed in the units that they are to keep.
    """

    recipe: str | None = "tables"
    n: int | None = None
    is_fixed: bool = False


UNKNOWN = DataKind()
"""The kind before any data is seen: tables are most common."""

_FEW_ROWS = 10_000
_MANY_ROWS = 1_000
_FEW_IMAGES = 8_000
WIDE = 64
"""Minimum length of a row that may be an image or the vector of an encoder."""


def recognise_kind(n: int | None, shape: tuple[int, ...], is_of_one_kind: bool, is_embedded: bool = False) -> str:
    """The recipe for n samples of a shape: that of images for images and for many wide rows of one kind.

    ``is_embedded`` says that wide rows have length one, as the vectors of an encoder.
    """
    is_wide = shape[0] >= WIDE and (n is None or n >= _MANY_ROWS)
    if len(shape) == 1 and shape[0] >= WIDE and is_embedded:
        return "embeddings"
    return "images" if len(shape) > 1 or (is_wide and is_of_one_kind) else "tables"


def choose_restarts(model: Any, n: int | None) -> int:
    """Number of restarts for n samples: five if training is cheap, else one."""
    return 5 if n is not None and n <= _FEW_ROWS and model in ("free", "linear", "mlp", "kernel", "soft_tree") else 1


def choose_hidden(n: int | None) -> tuple[int, ...]:
    """Widths of the hidden layers for n images: with few images, narrow layers learn as much in a third of the time."""
    return (200, 200) if n is not None and n <= _FEW_IMAGES else (500, 500)


def apply_recipe(recipe: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a recipe, with overrides in their place; an override may be a whole group or a part of it."""
    kept = {
        name: value
        for name, value in recipe.items()
        # If a group is replaced, the recipe's parameters of that group do not apply.
        if name.partition("__")[0] not in overrides
    }
    return {**kept, **overrides}

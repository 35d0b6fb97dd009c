"""Imports go one way: each part of the package knows only what lies below it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pollux

SOURCE = Path(pollux.__file__).parent

# From the lowest to the highest; a module belongs to the longest name that it begins with.
LAYERS = [
    *(
        "errors",
        "names",
        "threads",
        "io.atomic",
        "io.locks",
        "io.tensors",
        "ranks",
        "metrics",
        "models",
        "data",
        "geometry",
    ),
    *("transport", "objectives", "spec", "training", "fitted"),
    *("io.model_files", "recipes", "clustering", "io.onnx", "report", "selection", "app", "lab"),
    "__main__",
]
# Packages that only gather modules of several layers.
GATHERING = {"", "io", "app"}


def layer_of(module: str) -> str:
    """'pollux.objectives.gemini' → 'objectives'; the package itself is ''."""
    name = module.removeprefix("pollux").removeprefix(".")
    while name not in LAYERS and name not in GATHERING:
        shorter, _, _ = name.rpartition(".")
        assert shorter or name in LAYERS, f"{module} has no place among the layers: give it one in LAYERS"
        name = shorter
    return name


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(tree: ast.AST, path: Path) -> Iterator[str]:
    """Every module of the package that a file imports, anywhere in it, as an absolute name."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            # What is imported from a package may be a module of it.
            names = [
                f"{origin}.{alias.name}" if is_module(f"{origin}.{alias.name}") else origin for alias in node.names
            ]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "pollux")


def is_module(name: str) -> bool:
    path = SOURCE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


FILES = sorted(SOURCE.rglob("*.py"))


def identify(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_imports_go_one_way(path: Path) -> None:
    own = layer_of(module_name(path))
    if own in GATHERING:
        return
    above = set(LAYERS[LAYERS.index(own) + 1 :]) | {""}
    found = {name: layer_of(name) for name in imported_modules(ast.parse(path.read_text()), path)}
    forbidden = sorted(name for name, layer in found.items() if layer in above)
    assert not forbidden, f"{identify(path)} must not import {', '.join(forbidden)}"


def test_nothing_imports_the_lab() -> None:
    """Pollux without its experiments is whole; the command line finds their commands by name."""
    for path in FILES:
        if layer_of(module_name(path)) in ("lab", *GATHERING):
            continue
        assert not [
            name for name in imported_modules(ast.parse(path.read_text()), path) if name.startswith("pollux.lab")
        ], identify(path)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pollux.app.cli", {"pollux.app.cli"}),
        ("import torch, pollux.models as m", {"pollux.models"}),
        ("from pollux import training, geometry", {"pollux.training", "pollux.geometry"}),
        ("from pollux.models.registry import build", {"pollux.models.registry"}),
        ("def later():\n    from ..training import loop", {"pollux.training.loop"}),
        ("from . import gemini", {"pollux.objectives.gemini"}),
        ("from ..data import rows", {"pollux.data.rows"}),
        ("import polluxx, torch\nfrom torch import nn", set()),
    ],
)
def test_every_form_of_import_is_seen(source: str, expected: set[str]) -> None:
    path = SOURCE / "objectives" / "divergences.py"
    assert set(imported_modules(ast.parse(source), path)) == expected


def test_all_files_were_read() -> None:
    assert {"objectives", "geometry", "transport", "models", "training", "clustering"} <= {
        layer_of(module_name(path)) for path in FILES
    }

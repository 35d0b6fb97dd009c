"""Imports go one way: each part of the package imports only what lies below it."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import pollux

SOURCE = Path(pollux.__file__).parent
TESTS = Path(__file__).parent
ARCHITECTURE = TESTS.parent / "docs" / "architecture.md"

# From the lowest to the highest; a module belongs to the longest name that it begins with.
LAYERS = [
    *(
        "native",
        "progress",
        "errors",
        "names",
        "recipes",
        "threads",
        "io.atomic",
        "io.locks",
        "io.parsing",
        "io.tensors",
    ),
    *("ranks", "metrics"),
    *("data", "geometry", "models", "transport", "objectives", "spec", "embedding", "training", "inspection.outliers"),
    *(
        "inspection.hierarchy",
        "inspection.confidence",
        "inspection.structure",
        "fitted",
        "io.model_files",
        "trees",
        "clustering",
        "io.onnx_graph",
        "io.onnx",
        "report",
        "selection",
    ),
    *("app", "lab", "__main__"),
]
# Packages that only gather modules of several layers.
GATHERING = {"", "io", "inspection"}


def layer_of(module: str) -> str:
    """'pollux.objectives.gemini' → 'objectives'; the package itself is ''."""
    name = module.removeprefix("pollux").removeprefix(".")
    while name not in LAYERS and name not in GATHERING:
        shorter, _, _ = name.rpartition(".")
        assert shorter, f"{module} has no place among the layers: give it one in LAYERS"
        name = shorter
    return name


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(tree: ast.AST, path: Path) -> Iterator[str]:
    """Every module of the package that a file imports, anywhere in it but for type checkers, as an absolute name."""
    package = module_name(path).split(".")
    if path.name != "__init__.py":
        package = package[:-1]
    for node in _run_nodes(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            # What is imported from a package may be a module of it; its version is above nobody.
            names = [
                f"{origin}.{alias.name}" if is_module(f"{origin}.{alias.name}") else origin
                for alias in node.names
                if alias.name != "__version__"
            ]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "pollux")


def _run_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that are ever run: types are imported from above under TYPE_CHECKING."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            continue
        yield node
        # No expression holds an import.
        waiting += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]


def is_module(name: str) -> bool:
    path = SOURCE.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@pytest.fixture(scope="module")
def imports() -> dict[Path, set[str]]:
    """What each file of the package imports of it."""
    return {path: set(imported_modules(ast.parse(path.read_text()), path)) for path in SOURCE.rglob("*.py")}


def test_imports_go_one_way(imports: dict[Path, set[str]]) -> None:
    upward = []
    for path, imported in imports.items():
        own = layer_of(module_name(path))
        if own not in GATHERING:
            above = {*LAYERS[LAYERS.index(own) + 1 :], ""}
            upward += [f"{path.relative_to(SOURCE)}: {name}" for name in imported if layer_of(name) in above]
    assert not upward
    assert {layer_of(module_name(path)) for path in imports} == {*LAYERS, *GATHERING}


def test_nothing_imports_the_lab(imports: dict[Path, set[str]]) -> None:
    """Pollux without its experiments is whole."""
    outside = {path: imported for path, imported in imports.items() if layer_of(module_name(path)) != "lab"}
    assert not [path for path, imported in outside.items() if any(name.startswith("pollux.lab") for name in imported)]


def test_two_modules_are_imported_from_above_by_name() -> None:
    """Two conveniences of the estimator; commands and public names are listed by name elsewhere."""
    found = {
        (layer_of(module_name(path)), name)
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r'import_module\("(pollux[\w.]*)"\)', path.read_text())
    }
    assert found == {("clustering", "pollux.selection.search"), ("clustering", "pollux.report.notebook")}


def test_the_documentation_names_the_layers_in_this_order() -> None:
    (block,) = re.findall(r"lowest first:\n\n((?:    .+\n)+)", ARCHITECTURE.read_text())
    assert block.split() == LAYERS


def test_files_whose_order_is_set_exist() -> None:
    named = set(re.findall(r'"(test_\w+\.py)"', (TESTS / "conftest.py").read_text()))
    assert named - {path.name for path in TESTS.rglob("test_*.py")} == set()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pollux.app.cli", {"pollux.app.cli"}),
        ("import torch, pollux.models as m", {"pollux.models"}),
        ("from pollux import training, geometry", {"pollux.training", "pollux.geometry"}),
        ("from pollux.models.registry import build", {"pollux.models.registry"}),
        ("def later():\n    from ..training import loop", {"pollux.training.loop"}),
        ("from . import gemini", {"pollux.objectives.gemini"}),
        ("from pollux import __version__, names", {"pollux.names"}),
        ("from ..data import scaling", {"pollux.data.scaling"}),
        ("if TYPE_CHECKING:\n    from pollux.clustering import GeminiClustering", set()),
        ("import polluxx, torch\nfrom torch import nn", set()),
    ],
)
def test_every_form_of_import_is_seen(source: str, expected: set[str]) -> None:
    path = SOURCE / "objectives" / "divergences.py"
    assert set(imported_modules(ast.parse(source), path)) == expected

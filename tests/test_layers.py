"""Imports go one way: each part of the package knows only what lies below it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import pollux

SOURCE = Path(pollux.__file__).parent
MOST_LINES = 450

# What each part may import besides itself. A part that is not listed here has no place yet.
ALLOWED: dict[str, set[str]] = {
    "affinity": set(),
    "atomic": set(),
    "checked_tensors": {"atomic"},
    "errors": set(),
    "intervals": {"errors"},
    "locking": {"errors"},
    "ranks": {"errors"},
    "rows": set(),
    "statistics": {"rows"},
    "scaling": {"preprocessing", "rows", "statistics"},
    "threads": set(),
    "transport": {"affinity", "threads"},
    "models": set(),
    "metrics": set(),
    "datasets": {"atomic", "errors"},
    "objectives": {"affinity", "ranks", "transport"},
    "geometry": {"affinity", "ranks", "rows", "statistics"},
    "training": {"affinity", "checked_tensors", "errors", "intervals", "locking", "objectives", "ranks", "threads"},
    "report": {"atomic", "metrics"},
    "preprocessing": {"errors"},
    "files": {"errors", "preprocessing"},
    "streaming": {"errors", "files", "preprocessing"},
    "persistence": {"checked_tensors", "geometry", "models", "objectives", "parameters", "preprocessing", "scaling"},
    "starting": {"affinity", "geometry", "rows"},
    "presets": set(),
}
BELOW_FITTING = {"affinity", "ranks", "rows", "objectives", "geometry", "models", "training"}
ALLOWED["fitting"] = BELOW_FITTING
ALLOWED["memory"] = {"objectives", "training"}
ALLOWED["new_rows"] = {"assembly", "fitting", "training"}
ALLOWED["parameters"] = BELOW_FITTING | {"errors", "fitting", "scaling", "starting"}
ALLOWED["learning"] = BELOW_FITTING | {"fitting", "memory", "parameters", "scaling", "starting"}
ALLOWED["streamed"] = BELOW_FITTING | {"errors", "fitting", "preprocessing", "streaming"}
ALLOWED["assembly"] = BELOW_FITTING | {"fitting", "learning", "preprocessing", "scaling", "streamed"}
ALLOWED["estimators"] = (
    BELOW_FITTING
    | {"fitting", "learning", "new_rows", "parameters", "persistence", "streamed"}
    | {"metrics", "preprocessing", "presets", "scaling"}
)
ALLOWED["export"] = {"atomic", "errors", "estimators", "preprocessing", "scaling"}
ALLOWED["runs"] = {"atomic", "errors", "estimators", "files", "metrics", "preprocessing", "report", "training"} | {
    *("export", "fitting", "geometry", "models", "objectives", "parameters", "persistence", "threads"),
    *("intervals", "locking", "presets", "ranks", "streaming"),
}
ALLOWED["pretraining"] = {"checked_tensors", "datasets", "errors", "files", "models"} | {
    *("preprocessing", "threads", "training")
}
ALLOWED["experiments"] = {"atomic", "errors", "estimators", "datasets", "metrics", "geometry", "models", "training"} | {
    *("affinity", "objectives", "pretraining", "report")
}
ALLOWED["quality"] = {"atomic", "datasets", "errors", "estimators", "experiments", "metrics"} | {
    *("report", "scaling", "threads", "training"),
}
ALLOWED["selection"] = {"atomic", "errors", "estimators", "fitting", "metrics", "parameters", "report", "runs"} | {
    "scaling"
}
LIBRARY = set(ALLOWED)
ALLOWED["cli"] = LIBRARY
# The package itself names what is public, and ``python -m pollux`` is the one door to the command line.
ALLOWED["__init__"] = LIBRARY
ALLOWED["__main__"] = {"cli"}


def part_of(module: str) -> str:
    """'pollux.objectives.gemini' → 'objectives'; the package itself is '__init__'."""
    _, *below = module.split(".")
    return below[0] if below else "__init__"


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
            # What is imported from the package itself may be a part of it.
            names = [f"{origin}.{alias.name}" if origin == "pollux" else origin for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == "pollux")


def parts_imported(path: Path) -> set[str]:
    known = {part.stem for part in SOURCE.iterdir() if part.suffix == ".py" or part.is_dir()}
    parts = set()
    for name in imported_modules(ast.parse(path.read_text()), path):
        part = part_of(name)
        # ``from pollux import Gemini`` reads the package as a whole.
        parts.add(part if part in known else "__init__")
    return parts


FILES = sorted(SOURCE.rglob("*.py"))


def identify(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_imports_go_one_way(path: Path) -> None:
    part = part_of(module_name(path)) if path.stem != "__main__" else "__main__"
    assert part in ALLOWED, f"{part} has no place among the layers: give it one in ALLOWED"
    forbidden = parts_imported(path) - ALLOWED[part] - {part}
    assert not forbidden, f"{identify(path)} must not import {', '.join(sorted(forbidden))}"


@pytest.mark.parametrize("path", FILES, ids=identify)
def test_no_file_holds_more_than_a_few_ideas(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= MOST_LINES, f"{identify(path)} has {lines} lines"


def test_the_layers_have_no_cycle() -> None:
    """Parts can be put in an order in which each imports only those before it."""
    placed: set[str] = set()
    waiting = dict(ALLOWED)
    while waiting:
        ready = {part for part, below in waiting.items() if below <= placed}
        assert ready, f"in a cycle: {sorted(waiting)}"
        placed |= ready
        waiting = {part: below for part, below in waiting.items() if part not in ready}


def test_nobody_imports_the_command_line() -> None:
    assert {part for part, below in ALLOWED.items() if "cli" in below} == {"__main__"}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pollux.cli", {"pollux.cli"}),
        ("import torch, pollux.models as m", {"pollux.models"}),
        ("from pollux import training, geometry", {"pollux.training", "pollux.geometry"}),
        ("from pollux.models.registry import build", {"pollux.models.registry"}),
        ("def later():\n    from ..training import loop", {"pollux.training"}),
        ("from . import gemini", {"pollux.objectives"}),
        ("from .. import rows", {"pollux.rows"}),
        ("import polluxx, torch\nfrom torch import nn", set()),
    ],
)
def test_every_form_of_import_is_seen(source: str, expected: set[str]) -> None:
    path = SOURCE / "objectives" / "divergences.py"
    assert set(imported_modules(ast.parse(source), path)) == expected


def test_all_files_were_read() -> None:
    assert {"objectives", "geometry", "transport", "models", "training", "estimators"} <= {
        part_of(module_name(path)) for path in FILES
    }

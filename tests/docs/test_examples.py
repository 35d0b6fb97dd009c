"""The demo and every script of the gallery run to their end."""

import ast
import os
import re
import runpy
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from pollux.lab.datasets import archives

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
# Of those that would take minutes.
SMALL = {"mnist": ["--rows", "1500", "--epochs", "4"]}
# Those that take long and use nothing of the library that other tests do not.
LONG = {
    *("geometries", "graphs", "how_many_clusters", "how_sure", "images", "learning_curves", "more_rows_than_memory"),
    *("outliers", "own_divergence", "own_geometry", "penalties", "ship_as_onnx", "text_embeddings"),
    *("too_many_clusters", "find_outliers", "hierarchy", "hints", "sizes", "rim", "use_as_a_loss", "kernel_model"),
}
FULL = os.environ.get("POLLUX_FAULTS") == "full"
# Data sets that do not come with the library.
NEEDS = {"mnist": "mnist.npz"}


def test_there_are_examples() -> None:
    names = [path.stem for path in EXAMPLES]
    assert "demo" in names
    assert set(SMALL) | set(NEEDS) | LONG <= set(names)


def test_the_gallery_lists_each_example_by_its_topic() -> None:
    header = (Path(__file__).parents[2] / "examples" / "GALLERY_HEADER.rst").read_text(encoding="utf-8")
    assert sorted(re.findall(r":doc:`[^`<]*<(\w+)>`", header)) == [path.stem for path in EXAMPLES]


def test_what_builds_the_site_has_all_that_the_gallery_imports() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras, wanted = project["optional-dependencies"], [*project["dependencies"], "pollux[docs]"]
    installed = {"pollux"}
    for requirement in wanted:  # which grows by extras of our own
        name, _, chosen = re.fullmatch(r"([\w.-]+)(\[([\w,]+)\])?.*", requirement).groups()  # type: ignore[union-attr]
        installed.add(name.lower())
        for extra in chosen.split(",") if name == "pollux" else ():
            wanted += extras[extra]
    distributions = packages_distributions()
    for example in EXAMPLES:
        code = example.read_text(encoding="utf-8")
        names = {"pandas"} if "as_frame=True" in code else set()
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(str(node.module).partition(".")[0])
        for name in names - sys.stdlib_module_names:
            known = {found.lower() for found in distributions.get(name, [name])}
            assert known & installed, f"{example.name} imports {name}, which the extra docs does not have"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default", "error::DeprecationWarning:pollux")
def test_an_example_runs(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if example.stem in LONG and not FULL:
        pytest.skip("make test-faults runs it")
    needed = NEEDS.get(example.stem)
    if needed is not None and archives.find_file(needed) is None:
        pytest.skip(f"{needed} is not at hand")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    words = [str(example), *SMALL.get(example.stem, [])]
    if example.stem in {"demo", *LONG} and FULL:
        # As a user has it, which costs little beside what they do.
        command = [sys.executable, "-W", "error::DeprecationWarning:pollux", *words]
        run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        assert run.returncode == 0, run.stderr[-2000:]
        assert run.stdout
        return
    threads = torch.get_num_threads()
    monkeypatch.setattr(sys, "argv", words)
    try:
        if example.stem == "demo":
            run_quickly(runpy.run_path(str(example)))
        else:
            runpy.run_path(str(example), run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    assert capsys.readouterr().out


def run_quickly(demo: dict[str, Any]) -> None:
    """All that the demo does, but with few digits."""
    demo["main"].__globals__["load_digits"] = lambda: Bunch(
        **{name: value[:200] for name, value in load_digits().items() if name in ("data", "images", "target")}
    )
    demo["main"]()

"""The demo and every script of the gallery run to their end, as a user runs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pollux.datasets import places

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
# Of those that would take minutes.
SMALL = {"mnist": ["--rows", "1500", "--epochs", "4"]}
# Those that take long and use nothing of the library that other tests do not.
LONG = {"geometries", "graphs", "images", "own_divergence", "own_geometry", "text_embeddings"}
# Data sets that do not come with the library.
NEEDS = {"mnist": "mnist.npz"}


def test_there_are_examples() -> None:
    names = [path.stem for path in EXAMPLES]
    assert "demo" in names
    assert set(SMALL) | set(NEEDS) | LONG <= set(names)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    if example.stem in LONG and os.environ.get("POLLUX_FAULTS") != "full":
        pytest.skip("make test-faults runs it")
    needed = NEEDS.get(example.stem)
    if needed is not None and places.find(needed) is None:
        pytest.skip(f"{needed} is not at hand")
    run = subprocess.run(
        [sys.executable, "-W", "error::DeprecationWarning:pollux", str(example), *SMALL.get(example.stem, [])],
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout

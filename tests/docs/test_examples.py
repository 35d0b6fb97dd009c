"""The demo and every script of the gallery run to their end."""

import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

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
    """All that the demo does, but with few rows and a short training."""
    settings, load, functions = demo["settings"], demo["load"], demo["main"].__globals__
    functions["load"] = lambda: [values[:500] for values in load()]
    functions["settings"] = lambda *given, **named: settings(*given, **named).set_params(max_epochs=3, n_init=2)
    demo["main"]()

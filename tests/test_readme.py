"""Every example of the README runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib
import pytest

README = Path(__file__).parents[1] / "README.md"
FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,})python[^\n]*\n(?P<code>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)


def blocks() -> list[str]:
    """The Python blocks in their order, each moved down to its line, so that errors point into the README."""
    text = README.read_text(encoding="utf-8")
    return ["\n" * text.count("\n", 0, match.start("code")) + match["code"] for match in FENCE.finditer(text)]


def test_the_readme_shows_how_the_library_is_used() -> None:
    found = blocks()
    assert len(found) >= 2
    # A fence that is spelled otherwise (indented, or "py") would not be run.
    assert len(found) == len(re.findall(r"^\s*(?:`{3,}|~{3,})\s*(?:py|python|python3)\b", README.read_text(), re.M))
    assert any("GeminiClustering" in code for code in found)


def test_every_block_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In one folder and in their order, so that a block may read a file that an earlier one wrote.
    monkeypatch.chdir(tmp_path)
    backend = matplotlib.get_backend()
    matplotlib.use("Agg")
    try:
        for code in blocks():
            exec(compile(code, str(README), "exec"), {"__name__": "__main__"})
    finally:
        matplotlib.use(backend)

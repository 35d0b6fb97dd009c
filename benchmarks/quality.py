"""Puts what ``results/quality`` records of ``pollux bench quality`` into docs/benchmarks.md.

Run as ``python benchmarks/quality.py``; a test compares the page with the records. The records themselves are made by
the command that the page names.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pollux.experiments.rendering.account import Picture
from pollux.quality.comparing import Request, command, recorded
from pollux.quality.drawing import figures_of
from pollux.quality.rendering import Account, markdown_blocks
from pollux.quality.summary import board_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
RESULTS = ROOT / "results" / "quality"
BEGIN, END = "<!-- quality:begin -->", "<!-- quality:end -->"


def section(folder: Path = RESULTS) -> str:
    """The tables and figures of what is recorded in a folder, as Markdown; nothing where nothing is."""
    records = recorded(Request(out=folder))
    if not records:
        return ""
    board = board_of(records)
    pictures = [
        Picture(name, str(figure.get_label()), b"", f"figures/quality-{name}.png")
        for name, figure in figures_of(board).items()
        if (folder / "figures" / f"quality-{name}.png").exists()
    ]
    account = Account(board, records, command(Request()), pictures=pictures)
    return "\n\n".join(block for block in markdown_blocks(account, 3, "../results/quality/") if block)


def filled(text: str, folder: Path = RESULTS) -> str:
    """A page with the part between its marks made anew."""
    made = section(folder)
    part = f"{BEGIN}\n{made}\n{END}" if made else f"{BEGIN}\n{END}"
    return re.sub(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", lambda _: part, text, flags=re.DOTALL)


def main() -> int:
    """Write the page."""
    if not recorded(Request(out=RESULTS)):
        print(f"Nothing is recorded in {RESULTS}: run pollux bench quality first.", file=sys.stderr)
        return 2
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

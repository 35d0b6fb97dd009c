"""Put the records of ``pollux bench quality`` in ``results/quality`` into docs/benchmarks.md, in short into README.md.

Run as ``python benchmarks/quality.py``; a test compares the pages with the records. The records themselves are made by
the commands that the pages name.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from pollux.lab.quality.benchmark import Request, recorded_runs, report_on
from pollux.lab.quality.leaderboard import (
    Leaderboard,
    difference_to_reference,
    draw_leaderboard,
    number,
    signed,
    title_of,
)
from pollux.lab.quality.peers import REFERENCE
from pollux.lab.results import NOTHING, escape_markdown, markdown_blocks, markdown_list

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "quality"
HEADS = {
    "development": "development",
    "held out": "held out",
    "validation": "validation tables",
    "unseen": "unseen tables",
    "images": "MNIST test",
}
"""Columns of the short table, by groups of sets; other groups follow under their own names."""
BEGIN, END = "<!-- quality:begin -->", "<!-- quality:end -->"


def section(folder: Path = RESULTS) -> str:
    """Return tables and figures of the records of a folder as Markdown; empty if there are no records."""
    records = recorded_runs(Request(out=folder))
    if not records:
        return ""
    report = report_on(records, Request())
    blocks = [f"{escape_markdown(report.lead)}."]
    blocks += [block for table in report.tables for block in markdown_blocks(table, level=3)]
    for name, figure in draw_leaderboard(Leaderboard.of(records)).items():
        if (folder / "figures" / f"quality-{name}.png").exists():
            caption = escape_markdown(str(figure.get_label()))
            blocks.append(f"![{caption}](../results/quality/figures/quality-{name}.png)")
    return "\n\n".join(block for block in [*blocks, markdown_list(report.remarks)] if block)


def short(folder: Path = RESULTS) -> str:
    """Return a table of all methods: the mean ARI of K-Means over each group of sets, and differences of the others."""
    records = recorded_runs(Request(out=folder))
    if not records:
        return ""
    board = Leaderboard.of(records)
    groups = sorted(board.groups, key=[*HEADS, *board.groups].index)
    parts = [board.of_group(group) for group in groups]
    heads = [f"{HEADS.get(group, group)} ({len(part.sets)})" for group, part in zip(groups, parts, strict=True)]
    lines = [f"| | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(heads)}"]
    lines += [f"| {title_of(one)} | {' | '.join(_cell(part, one) for part in parts)} |" for one in board.methods]
    return "\n".join(lines)


def _cell(part: Leaderboard, method: str) -> str:
    """Return the mean of K-Means, or of a method without common sets; else the difference from K-Means on these."""
    aris, difference = part.aris(method), difference_to_reference(part, method)
    if not aris:
        return NOTHING
    if method == REFERENCE or difference is None:
        return number(sum(aris.values()) / len(aris))
    of = "" if difference.sets == len(part.sets) else f" ({difference.sets})"
    return f"{signed(difference.mean)}{of}"


PAGES: dict[str, Callable[[Path], str]] = {"docs/benchmarks.md": section, "README.md": short}


def filled(text: str, page: str = "docs/benchmarks.md", folder: Path = RESULTS) -> str:
    """Return a page with the part between its marks replaced."""
    made = PAGES[page](folder)
    part = f"{BEGIN}\n{made}\n{END}" if made else f"{BEGIN}\n{END}"
    return re.sub(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", lambda _: part, text, flags=re.DOTALL)


def main() -> int:
    """Write the pages."""
    if not recorded_runs(Request(out=RESULTS)):
        print(f"Nothing is recorded in {RESULTS}: run pollux bench quality first.", file=sys.stderr)
        return 2
    for page in PAGES:
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8"), page), encoding="utf-8")
        print(f"written: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

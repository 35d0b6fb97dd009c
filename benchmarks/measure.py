"""Fair timing, peak memory and the table of results: what every benchmark shares."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Work = Callable[[], object]
Run = Callable[[], float]  # does a work once and says how many seconds it took

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
HEADER = ("work", "ours", "peer", "ratio", "goal", "reached")


@dataclass(frozen=True)
class Row:
    """One comparison. The goal bounds peer / ours from below, or ours / peer from above."""

    work: str
    ours: float
    peer: float
    goal: float
    faster: bool = True
    unit: str = "s"
    note: str = ""

    @property
    def ratio(self) -> float:
        return self.peer / self.ours if self.faster else self.ours / self.peer

    @property
    def reached(self) -> bool:
        return self.ratio >= self.goal if self.faster else self.ratio <= self.goal

    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of HEADER."""
        return (
            self.work,
            f"{significant(self.ours)} {self.unit}",
            f"{significant(self.peer)} {self.unit}",
            f"{significant(self.ratio)}x",
            f"{'>=' if self.faster else '<='} {self.goal:.4g}x",
            "yes" if self.reached else "NO",
        )

    def record(self) -> dict[str, object]:
        """The row as plain data, for JSON."""
        return {
            "work": self.work,
            "ours": self.ours,
            "peer": self.peer,
            "unit": self.unit,
            "ratio": self.ratio,
            "goal": self.goal,
            "goal_is": "peer / ours at least" if self.faster else "ours / peer at most",
            "reached": self.reached,
            "note": self.note,
        }


def significant(value: float) -> str:
    """Three significant digits, never in scientific notation."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}" if value >= 1e-4 else f"{value:.6f}"


def limit_threads(count: int) -> None:
    """Give numpy's and torch's thread pools, here and in child processes, the same size."""
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(count)
    threadpool_limits(count)
    torch.set_num_threads(count)


def seconds(work: Work) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternate(works: Sequence[Work], *, turns: int, at_least: float = 0.0, pause: float = 0.1) -> list[float]:
    """Median wall-clock seconds of each work when they take turns."""
    return take_turns([partial(seconds, work) for work in works], turns=turns, at_least=at_least, pause=pause)


def take_turns(
    runs: Sequence[Run],
    *,
    turns: int,
    at_least: float = 0.0,
    pause: float = 0.1,
    summary: Callable[[list[float]], float] = statistics.median,
) -> list[float]:
    """Median of the seconds that each run reports when they take turns, so that noise of the machine hits all alike.

    In its turn a run is repeated for `at_least` seconds, or done once if it is slower. The pause lets the
    idle threads of the previous run, which spin for a while, go to sleep; the order is reversed at
    every other turn, so that no run always follows the same one.
    """
    times: list[list[float]] = [[] for _ in runs]
    for turn in range(turns):
        order = range(len(runs)) if turn % 2 == 0 else reversed(range(len(runs)))
        for which in order:
            time.sleep(pause)
            spent = [runs[which]()]
            while sum(spent) < at_least:
                spent.append(runs[which]())
            times[which] += spent
    return [summary(spent) for spent in times]


def resident_bytes(field: str = "VmRSS") -> int:
    """Memory of this process now (VmRSS) or at its peak (VmHWM).

    The field is read from Linux' own table, since `ru_maxrss` survives exec: a child of a large
    process would inherit its parent's peak.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def forget_peak() -> None:
    """Let VmHWM start again from what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def environment(threads: int) -> str:
    """One line on where the figures were taken."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "numpy", "scikit-learn", "gemclus"))
    cores = f"{os.cpu_count()} cores, {threads} thread{'s' * (threads > 1)}"
    return f"{platform.machine()}, {cores}; python {platform.python_version()}, {packages}"


def notes(rows: Iterable[Row]) -> list[str]:
    """What the rows have to add, one line each."""
    return [f"{row.work}: {row.note}" for row in rows if row.note]


def aligned(lines: Sequence[Sequence[str]], left: Iterable[int] = (0,)) -> str:
    """Cells in plain text, the first line being the header; columns stand to the right but for those in `left`."""
    left = set(left)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]
    return "\n".join([table[0], "  ".join("-" * width for width in widths), *table[1:]])


def piped(lines: Sequence[Sequence[str]], left: Iterable[int] = (0,)) -> str:
    """The same cells as a table in Markdown."""
    left = set(left)
    rule = ["---" if column in left else "---:" for column in range(len(lines[0]))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])


def text_table(rows: Sequence[Row]) -> str:
    """An aligned plain-text table, followed by the notes."""
    table = aligned([HEADER, *(row.cells() for row in rows)], left=(0, len(HEADER) - 1))
    return "\n".join([table, "", *notes(rows)]).rstrip()


def markdown_table(rows: Sequence[Row], where: str) -> str:
    """The same table in Markdown."""
    table = piped([HEADER, *(row.cells() for row in rows)], left=(0, len(HEADER) - 1))
    return "\n".join([table, "", where, "", *(f"- {note}" for note in notes(rows))]).rstrip() + "\n"


def json_text(rows: Sequence[Row], where: str) -> str:
    """The same table as JSON, with unrounded figures."""
    return json.dumps({"environment": where, "rows": [row.record() for row in rows]}, indent=2) + "\n"


def publish(rows: Sequence[Row], where: str, markdown: Path | None, json: Path | None) -> None:
    """Print the table, and write it where it was asked for."""
    print("\n" + text_table(rows))
    if markdown:
        markdown.write_text(markdown_table(rows, where))
    if json:
        json.write_text(json_text(rows, where))

"""Fair timing, peak memory, records and tables of results, shared by all benchmarks.

python benchmarks/measure.py prints one table of the records in results/speed, and puts it into the pages that show it.

Each part of a benchmark is recorded when it ends, with commit, date and machine, and replaces its earlier record; a
test compares the pages with the records.
"""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

Work = Callable[[], object]
Run = Callable[[], float]  # does the work once and returns its seconds

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "speed"
BENCHMARKS = ("speed", "core", "transport", "files", "scale")
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


def significant(value: float) -> str:
    """Format with three significant digits, never in scientific notation."""
    return f"{value:.0f}" if value >= 100 else f"{value:#.3g}" if value >= 1e-4 else f"{value:.6f}"


def limit_threads(count: int) -> None:
    """Set the size of numpy's and torch's thread pools, here and in child processes."""
    for variable in THREAD_VARIABLES:
        os.environ[variable] = str(count)
    threadpool_limits(count)
    torch.set_num_threads(count)


def seconds(work: Work) -> float:
    """Return the wall-clock time of one call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def alternate(works: Sequence[Work], *, turns: int, at_least: float = 0.0, pause: float = 0.1) -> list[float]:
    """Return the median wall-clock seconds of each work when they take turns."""
    return take_turns([partial(seconds, work) for work in works], turns=turns, at_least=at_least, pause=pause)


def take_turns(
    runs: Sequence[Run],
    *,
    turns: int,
    at_least: float = 0.0,
    pause: float = 0.1,
    summary: Callable[[list[float]], float] = statistics.median,
) -> list[float]:
    """Return the median of the seconds that each run reports when they take turns, so that noise affects all alike.

    In its turn a run is repeated for `at_least` seconds, or done once if it is slower. The pause lets the
    idle threads of the previous run, which spin for a while, go to sleep; the order is reversed in
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
    """Return the memory of this process now (VmRSS) or at its peak (VmHWM).

    It is read from /proc, since `ru_maxrss` survives exec: a child of a large process would inherit
    its parent's peak.
    """
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def forget_peak() -> None:
    """Reset VmHWM to what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def environment(threads: int) -> str:
    """Return a line about the machine and the versions that were measured."""
    names = ("torch", "numpy", "scikit-learn", *(["gemclus"] if find_spec("gemclus") else []))
    packages = ", ".join(f"{name} {version(name)}" for name in names)
    cores = f"{os.cpu_count()} cores, {threads} thread{'s' * (threads > 1)}"
    return f"{_processor()}, {cores}; python {platform.python_version()}, {packages}"


def _processor() -> str:
    """Return the name of the processor, if the system reports it."""
    table = Path("/proc/cpuinfo")
    lines = table.read_text(encoding="utf-8").splitlines() if table.exists() else []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def notes(rows: Iterable[Row]) -> list[str]:
    """Return the notes of the rows, one line each."""
    return [f"{row.work}: {row.note}" for row in rows if row.note]


def aligned(lines: Sequence[Sequence[str]], left: Iterable[int] = (0,)) -> str:
    """Align cells as plain text, with the header first; columns in `left` are aligned left, others right."""
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
    """Return the same cells as a Markdown table."""
    left = set(left)
    rule = ["---" if column in left else "---:" for column in range(len(lines[0]))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [lines[0], rule, *lines[1:]])


def text_table(rows: Sequence[Row]) -> str:
    """Return an aligned plain-text table, followed by the notes."""
    table = aligned([HEADER, *(row.cells() for row in rows)], left=(0, len(HEADER) - 1))
    return "\n".join([table, "", *notes(rows)]).rstrip()


def record(benchmark: str, part: str, rows: Sequence[Row], where: str) -> None:
    """Record the rows of a part of a benchmark, in place of its earlier record."""
    path, parts = RESULTS / f"{benchmark}.json", _parts(benchmark, RESULTS)
    day = datetime.now(UTC).date().isoformat()
    parts[part] = {"commit": _commit(), "day": day, "environment": where, "rows": [asdict(row) for row in rows]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(parts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _commit() -> str:
    """Return the commit that is checked out, with a + if files were changed."""
    commands = [["git", "rev-parse", "--short", "HEAD"], ["git", "status", "--porcelain", "--", "src"]]
    head, changed = (subprocess.run(one, cwd=ROOT, capture_output=True, text=True).stdout.strip() for one in commands)
    return head + "+" * bool(changed)


def recorded(benchmark: str, folder: Path = RESULTS) -> list[Row]:
    """Return all recorded rows of a benchmark."""
    return [Row(**row) for part in _parts(benchmark, folder).values() for row in part["rows"]]


def _parts(benchmark: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{benchmark}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def details(benchmark: str, folder: Path = RESULTS) -> str:
    """Return the table of a benchmark, and when and where each of its parts was measured, as Markdown."""
    table = piped([HEADER, *(row.cells() for row in recorded(benchmark, folder))], left=(0, len(HEADER) - 1))
    stamps: dict[str, list[str]] = {}
    for name, part in _parts(benchmark, folder).items():
        at = f" at commit {part['commit']}" if part["commit"] else ""
        stamps.setdefault(f"{part['day']}{at}: {part['environment']}", []).append(name)
    lines = [f"- {'all' if len(stamps) == 1 else ', '.join(names)}: {stamp}" for stamp, names in stamps.items()]
    return "\n".join([table, "", *lines])


def overview(folder: Path = RESULTS) -> str:
    """Return one table of all benchmarks, with the commit and the date of each row."""
    lines = [("benchmark", *HEADER, "commit", "day")]
    for name in BENCHMARKS:
        for part in _parts(name, folder).values():
            lines += [(name, *Row(**row).cells(), part["commit"] or "-", part["day"]) for row in part["rows"]]
    return aligned(lines, left=(0, 1, 6, 7, 8))


# The rows of README.md: their names there, the benchmark and the beginning of the row's own name, the peer.
SUMMARY = (
    ("value and gradient, MMD, 8,000 rows, dense kernel", "core", "value + gradient, mmd_ova, N=8000", "GemClus"),
    ("value and gradient, Wasserstein, mean of 72 problems", "transport", "value + gradient, cold, mean", "GemClus"),
    ("whole fit, 1,000,000 × 20, clusters apart", "speed", "for_tables, 1,000,000 × 20", "KMeans(n_init=10)"),
    ("one epoch, 40,000 rows, linear, MMD", "core", "one epoch, n=40000", "GemClus"),
    ("predict 5,000,000 × 20, Parquet to Parquet", "files", "predict, 5,000,000 × 20", ""),
)


def summary(folder: Path = RESULTS) -> str:
    """Return the table of README.md."""
    lines = [("Work", "Pollux", "Peer")]
    for title, benchmark, beginning, peer in SUMMARY:
        row = next(row for row in recorded(benchmark, folder) if row.work.startswith(beginning))
        _, ours, theirs, *_ = row.cells()
        lines.append((title, ours, f"{peer} {theirs}" if peer else ""))
    return piped(lines)


PAGES: dict[str, dict[str, Callable[[Path], str]]] = {
    "docs/speed.md": {name: partial(details, name) for name in BENCHMARKS},
    "README.md": {"speed": summary},
}


def fill(text: str, parts: Mapping[str, str]) -> str:
    """Return a page with the parts between its marks replaced; a part without marks is an error."""
    for name, part in parts.items():
        pattern = rf"<!-- {name}:begin -->\n.*?<!-- {name}:end -->"
        made = f"<!-- {name}:begin -->\n{part.rstrip()}\n<!-- {name}:end -->"
        text, count = re.subn(pattern, made.replace("\\", r"\\"), text, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page has {count} places between <!-- {name}:begin --> and <!-- {name}:end -->")
    return text


def filled(text: str, page: str, folder: Path = RESULTS) -> str:
    """Return a page with its recorded results."""
    return fill(text, {name: table(folder) for name, table in PAGES[page].items()})


def main() -> None:
    print(overview())
    for page in PAGES:
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8"), page), encoding="utf-8")
        print(f"written: {page}")


if __name__ == "__main__":
    main()

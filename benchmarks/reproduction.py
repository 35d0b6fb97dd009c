"""Puts what ``results/`` records of the paper's experiments into docs/reproduction.md and README.md.

Run as ``python benchmarks/reproduction.py``; a test compares the pages with the records. The records themselves are
made by the commands that the page names, in hours; with ``--show`` these only make the figures of what is recorded.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pollux.lab.experiments.choosing import choose
from pollux.lab.experiments.rendering import Account, account_of
from pollux.lab.experiments.rendering.cells import verdict
from pollux.lab.experiments.rendering.markdown import conclusion_lines, table_blocks
from pollux.lab.experiments.reproducing import Request
from pollux.lab.experiments.running import Outcome, recorded

ROOT = Path(__file__).parents[1]
PAGES = {"docs/reproduction.md": "../results", "README.md": "results"}

# What is recorded in results/: of the paper's protocol, as much as time allowed.
REQUESTS = {
    request.names[0]: request
    for request in (
        Request(["categorical"], "paper"),
        Request(["outliers"], "paper"),
        Request(["moons"], "paper"),
        Request(["mnist"], "paper", other=["epochs=50"]),
        Request(["cifar10"], "paper", other=["epochs=5"]),
        Request(["mi-boundaries"], "paper"),
        Request(["ova-vs-ovo"], "paper"),
        Request(["model-selection"], "paper", runs=3, other=["epochs=5"]),
        Request(["complexity"], "paper"),
    )
}


def account(name: str, folder: Path = ROOT / "results") -> Account:
    """What is recorded of an experiment."""
    request = REQUESTS[name]
    ((experiment, protocol),) = choose(request.names, request.profile, request.only, request.other, request.runs)
    outcome = Outcome(recorded(experiment, protocol.all_runs(name), folder))
    return account_of(experiment, protocol, outcome, request)


def section(name: str, results: str) -> str:
    """The command, what came of it, its tables and figures, as Markdown."""
    told = account(name)
    figures = sorted((ROOT / "results" / "figures").glob(f"{name}-*.png"))
    pictures = [f"![{told.experiment.title}]({results}/figures/{figure.name})" for figure in figures]
    tables = [block for table in told.tables for block in table_blocks(table, level=3)]
    lead = f"{told.lead}. {told.departure}." if told.departure else f"{told.lead}."
    return "\n\n".join([f"```sh\n{told.command}\n```", lead, conclusion_lines(told), *tables, *pictures])


def short(results: str) -> str:
    """One line for each experiment: what was concluded, or how many of its cells hold."""
    lines = ["| Experiment | In the paper | Runs | What was found |", "| --- | --- | ---: | --- |"]
    for name in REQUESTS:
        told = account(name)
        found = list(told.conclusion) or [line for table in told.tables if (line := verdict(table))]
        if told.departure:
            found.append(f"({told.departure}.)")
        where = f"[`{name}`](docs/reproduction.md#{name})"
        lines.append(f"| {where} | {told.experiment.place} | {len(told.records)} of {told.asked} | {' '.join(found)} |")
    return "\n".join(lines)


def filled(text: str, results: str) -> str:
    """A page with the parts between its marks made anew."""

    def part(mark: re.Match[str]) -> str:
        name = mark["name"]
        made = short(results) if name == "reproduction" else section(name, results)
        return f"<!-- {name}:begin -->\n{made}\n<!-- {name}:end -->"

    names = "|".join(map(re.escape, ["reproduction", *REQUESTS]))
    return re.sub(rf"<!-- (?P<name>{names}):begin -->\n.*?<!-- (?P=name):end -->", part, text, flags=re.DOTALL)


def main() -> int:
    """Write both pages."""
    for page, results in PAGES.items():
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8"), results), encoding="utf-8")
        print(f"written: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

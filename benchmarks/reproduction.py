"""Puts what ``results/`` records of the paper's experiments into docs/reproduction.md.

Run as ``python benchmarks/reproduction.py``; a test compares the page with the records. The records themselves are
made by the commands that the page names, in hours; with ``--show`` these only make the figures of what is recorded.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pollux.lab.paper.comparisons import ComparisonTable
from pollux.lab.paper.experiment import Experiment, Protocol
from pollux.lab.paper.reproduction import Request, choose, recorded_runs, report_on
from pollux.lab.results import Report, markdown_blocks, markdown_list

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reproduction.md"

# What is recorded in results/: of the paper's protocol, as much as time allowed.
REQUESTS = {
    request.names[0]: request
    for request in (
        Request(["categorical"], "paper"),
        Request(["outliers"], "paper"),
        Request(["moons"], "paper"),
        Request(["mnist"], "cpu"),
        Request(["cifar10"], "cpu"),
        Request(["mi-boundaries"], "paper"),
        Request(["ova-vs-ovo"], "paper"),
        Request(["model-selection"], "cpu"),
        Request(["complexity"], "paper"),
    )
}


def chosen(name: str) -> tuple[Experiment, Protocol]:
    """An experiment, and what is recorded of its protocol."""
    request = REQUESTS[name]
    ((experiment, protocol),) = choose(request.names, request.profile, request.only, request.other, request.runs)
    return experiment, protocol


def report(name: str, folder: Path = ROOT / "results") -> Report:
    """What is recorded of an experiment."""
    experiment, protocol = chosen(name)
    found = recorded_runs(experiment, protocol.all_runs(name), folder)
    return report_on(experiment, protocol, found, REQUESTS[name])


def section(name: str) -> str:
    """The command, what was found, its tables and figures, as Markdown."""
    made = report(name)
    captioned = re.findall(r"!\[(.+)\]\((figures/.+\.png)\)", (ROOT / "results" / f"{name}.md").read_text("utf-8"))
    pictures = [f"![{caption}](../results/{figure})\n\n*{caption}*" for caption, figure in captioned]
    tables = [block for table in made.tables for block in markdown_blocks(table, level=3)]
    lead = f"{made.lead}. {made.departure}." if made.departure else f"{made.lead}."
    found = [markdown_list(made.findings)] if made.findings else []
    return "\n\n".join([f"```sh\n{made.command}\n```", lead, *found, *tables, *pictures])


def short() -> str:
    """One line for each experiment: its conclusion, or how many of its cells hold."""
    lines = ["| Experiment | In the paper | Runs | What was found |", "| --- | --- | ---: | --- |"]
    for name in REQUESTS:
        made, (experiment, protocol) = report(name), chosen(name)
        tables: list[ComparisonTable] = list(experiment.tables(made.records))
        found = list(made.findings)
        if not found:
            judged = [table for table in tables if table.verdict]
            found = [f"*{each.title}.* {each.verdict}" if len(judged) > 1 else each.verdict for each in judged]
        if made.departure:
            found.append(f"({made.departure}.)")
        where, runs = f"[`{name}`](#{name})", len(protocol.all_runs(name))
        lines.append(f"| {where} | {experiment.place} | {len(made.records)} of {runs} | {' '.join(found)} |")
    return "\n".join(lines)


def filled(text: str) -> str:
    """The page with the parts between its marks made anew."""

    def part(mark: re.Match[str]) -> str:
        name = mark["name"]
        made = short() if name == "reproduction" else section(name)
        return f"<!-- {name}:begin -->\n{made}\n<!-- {name}:end -->"

    names = "|".join(map(re.escape, ["reproduction", *REQUESTS]))
    return re.sub(rf"<!-- (?P<name>{names}):begin -->\n.*?<!-- (?P=name):end -->", part, text, flags=re.DOTALL)


def main() -> int:
    """Write the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written: {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

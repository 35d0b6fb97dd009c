"""An account as Markdown, for repositories."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from pollux.lab.experiments.rendering.account import Account
from pollux.lab.experiments.rendering.cells import NOT_RUN, Told, legend, told_rows, verdict
from pollux.lab.experiments.tables import Table

_MEANS_SOMETHING = re.compile(r"([\\`*_\[\]|#~$])")


def markdown(account: Account) -> str:
    """The whole account, as the text of a file."""
    return "\n\n".join(block for block in _blocks(account) if block) + "\n"


def _blocks(account: Account) -> Iterator[str]:
    yield f"# {escaped(account.experiment.title)}"
    yield escaped(account.lead)
    if account.departure:
        yield f"**Not the full protocol** – {escaped(account.departure)}."
    yield conclusion_lines(account)
    if not account.records:
        yield "No run of this is recorded."
    for table in account.tables:
        yield from table_blocks(table)
    if account.pictures:
        yield "## Figures"
    for picture in account.pictures:
        yield f"![{escaped(picture.caption)}]({picture.link})"
        yield f"*{escaped(picture.caption)}*"
    yield escaped(account.without_pictures)
    yield from _settings(account)


def conclusion_lines(account: Account) -> str:
    """Whether what the paper found was found here, as a list."""
    return _list(account.conclusion)


def table_blocks(table: Table, level: int = 2) -> Iterator[str]:
    """A heading of a level, the table, and what is to be said of it."""
    if not table.rows or not table.columns:
        return
    yield f"{'#' * level} {escaped(table.title)}"
    lines = ["| | " + " | ".join(map(escaped, table.columns)) + " |"]
    lines.append("|---" + "|---:" * len(table.columns) + "|")
    lines += [f"| {escaped(name)} | " + " | ".join(map(_cell, cells)) + " |" for name, cells in told_rows(table)]
    yield "\n".join(lines)
    yield _list([line for line in (legend(table), verdict(table), *table.notes) if line])


def _cell(cell: Told) -> str:
    measured = cell.measured if cell.measured in ("", NOT_RUN) else f"**{escaped(cell.measured)}**"
    return "<br>".join(part for part in (escaped(cell.published), measured, escaped(cell.judged)) if part)


def _settings(account: Account) -> Iterator[str]:
    yield "## How it was run"
    # A fence longer than any run of backticks within it cannot end early.
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", account.command)), default=0))
    yield f"{fence}sh\n{account.command}\n{fence}"
    yield _pairs("setting", "values", account.settings)
    if account.versions:
        yield _pairs("package", "version", account.versions)
    yield _list([*(f"Failed: {text}" for text in account.failures), *(f"Warned: {text}" for text in account.warnings)])


def _pairs(left: str, right: str, pairs: Mapping[str, str]) -> str:
    rows = [f"| {escaped(name)} | {escaped(value)} |" for name, value in pairs.items()]
    return "\n".join([f"| {left} | {right} |", "|---|---|", *rows])


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escaped(line)}" for line in lines)


def escaped(text: str) -> str:
    """Text that Markdown and the HTML within it leave as it is, on one line."""
    text = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MEANS_SOMETHING.sub(r"\\\1", text)

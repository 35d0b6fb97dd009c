"""Tables of text, and how they are written: in the terminal, however narrow, and as Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

NOTHING, NOT_RUN = "–", "not run"
_MARKDOWN = re.compile(r"([\\`*_\[\]|#~$])")
_NARROWEST_NAME, _NARROWEST_COMPACT_NAME = 16, 8
_GAP = 2
_STYLES = {True: "green", False: "bold red", None: "dim"}


@dataclass(frozen=True)
class Cell:
    """A text, what stands beside it, a reference above and the difference to it below.

    ``emphasis`` is the part that is bold; ``holds`` says whether it is good, bad, or neither.
    """

    text: str = ""
    aside: str = ""
    reference: str = ""
    difference: str = ""
    emphasis: Literal["", "text", "whole"] = ""
    holds: bool | None = None

    @property
    def whole(self) -> str:
        """The text and what stands beside it."""
        return f"{self.text} {self.aside}".strip()

    @property
    def lines(self) -> list[str]:
        """All parts, one below the other."""
        return [line for line in (self.reference, self.whole, self.difference) if line]


@dataclass(frozen=True)
class Table:
    """Rows of cells under the names of their columns.

    ``reference`` is the name of what stands above the measured values. A compact table has narrow gaps, and where a
    terminal is narrow it is printed without what stands beside texts, then without its ``optional`` columns.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Cell]]]
    notes: Sequence[str] = ()
    reference: str = ""
    optional: Sequence[str] = ()
    is_compact: bool = False

    @property
    def is_empty(self) -> bool:
        return not self.rows or not self.columns


def typeset(number: str) -> str:
    """A number as text with a true minus sign, and with none before zero."""
    is_zero = not any(digit in "123456789" for digit in number)
    return number.removeprefix("-") if is_zero else number.replace("-", "−")


def with_sign(number: str) -> str:
    """A number as text with its sign; zero has none."""
    is_zero = not any(digit in "123456789" for digit in number)
    return number if number.startswith("−") or is_zero else f"+{number}"


# Markdown.


def escape_markdown(text: str) -> str:
    """Text that Markdown and the HTML within it leave as it is, on one line."""
    text = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\1", text)


def markdown_list(lines: Iterable[str]) -> str:
    """A list of lines."""
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)


def markdown_blocks(table: Table, level: int = 2) -> Iterator[str]:
    """A heading of a level, the table, and its notes."""
    if table.is_empty:
        return
    yield f"{'#' * level} {escape_markdown(table.title)}"
    lines = ["| | " + " | ".join(map(escape_markdown, table.columns)) + " |"]
    lines.append("|---" + "|---:" * len(table.columns) + "|")
    lines += [
        f"| {escape_markdown(name)} | " + " | ".join(map(_in_markdown, cells)) + " |" for name, cells in table.rows
    ]
    yield "\n".join(lines)
    yield markdown_list(table.notes)


def _in_markdown(cell: Cell) -> str:
    text = escape_markdown(cell.whole)
    if cell.emphasis == "whole":
        text = f"**{text}**"
    elif cell.emphasis == "text":
        text = f"**{escape_markdown(cell.text)}** {escape_markdown(cell.aside)}".strip()
    return "<br>".join(
        part for part in (escape_markdown(cell.reference), text, escape_markdown(cell.difference)) if part
    )


# The terminal.


def print_line(console: Console, text: str, style: str = "") -> None:
    """Print text that is no markup."""
    console.print(Text(text, style=style))


def print_table(table: Table, console: Console) -> None:
    """Print a table; where the terminal is too narrow, without what is optional, and at last a line for each cell."""
    if table.is_empty:
        return
    print_line(console, f"\n{table.title}", "bold")
    for form, is_broken in _forms(table):
        # What each column needs, with its heading broken at spaces or not.
        widths = [
            max(
                *(cell_len(part) for part in (column.split() if is_broken else [column])),
                *(cell_len(line) for _, cells in form.rows for line in cells[at].lines),
                1,
            )
            for at, column in enumerate(form.columns)
        ]
        # Rich adds one space more between columns, where other boxes have a line.
        gap = _GAP - form.is_compact
        room = console.width - sum(width + gap + 1 for width in widths)
        longest = max(cell_len(name) for name, _ in form.rows)
        # Names may be broken at spaces, and in compact tables anywhere.
        least = min(_NARROWEST_COMPACT_NAME if form.is_compact else _NARROWEST_NAME, longest)
        if not form.is_compact:
            least = max(least, *(cell_len(word) for name, _ in form.rows for word in name.split()))
        if room >= least:
            grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_lines=False, padding=(0, 0, 0, gap))
            # All widths are given: what rich makes narrower by itself it may cut off.
            grid.add_column("", width=min(room, longest), overflow="fold")
            for column, width in zip(form.columns, widths, strict=True):
                grid.add_column(Text(column), justify="right", width=width)
            for name, cells in form.rows:
                grid.add_row(Text(name), *map(_styled, cells))
                if form.reference:
                    grid.add_row()
            console.print(grid)
            break
    else:
        _print_stacked(table, console)
    for note in table.notes:
        print_line(console, note)


def _forms(table: Table) -> Iterator[tuple[Table, bool]]:
    """From the widest to the narrowest, and whether headings are broken at spaces."""
    yield table, False
    yield table, True
    if table.is_compact:
        rows = [(name, [replace(cell, aside="") for cell in cells]) for name, cells in table.rows]
        yield replace(table, rows=rows), True
        shown = [at for at, column in enumerate(table.columns) if column not in table.optional]
        rows = [(name, [cells[at] for at in shown]) for name, cells in rows]
        yield replace(table, columns=[table.columns[at] for at in shown], rows=rows), True


def _styled(cell: Cell) -> Text:
    text = Text(no_wrap=True)
    style = "dim" if not cell.emphasis and cell.reference else "bold" if cell.emphasis else ""
    if cell.holds and not cell.difference:
        style = "bold green"
    for line, look in ((cell.reference, "dim"), (cell.whole, style), (cell.difference, _STYLES[cell.holds])):
        if line:
            text.append(("\n" if text else "") + line, look)
    return text


def _print_stacked(table: Table, console: Console) -> None:
    """A block for each row, a line for each of its cells: under headings where there is room, else as sentences."""
    headings = ["", table.reference, "measured", "difference"] if table.reference else ["", "measured"]

    def parts_of(column: str, cell: Cell) -> list[str]:
        parts = [cell.reference, cell.whole, cell.difference] if cell.reference else [cell.whole, "", ""]
        return [column, *parts][: len(headings)]

    def align(parts: Sequence[str]) -> str:
        padded = (part + " " * (width + _GAP - cell_len(part)) for part, width in zip(parts, widths, strict=True))
        return ("  " + "".join(padded)).rstrip()

    def as_sentence(parts: Sequence[str]) -> str:
        pairs = zip(headings[1:], parts[1:], strict=True)
        named = [part if part == NOT_RUN else f"{heading} {part}" for heading, part in pairs if part]
        line = f"{parts[0]}: {', '.join(named)}"
        return textwrap.fill(line, console.width, initial_indent="  ", subsequent_indent="    ")

    rows = [
        (
            name,
            [
                (parts_of(column, cell), cell.holds)
                for column, cell in zip(table.columns, cells, strict=True)
                if cell.lines
            ],
        )
        for name, cells in table.rows
    ]
    lines = [parts for _, cells in rows for parts, _ in cells]
    widths = [max(map(cell_len, parts)) for parts in zip(headings, *lines, strict=True)]
    fits = sum(width + _GAP for width in widths) <= console.width
    if fits:
        print_line(console, align(headings), "dim")
    for name, cells in rows:
        print_line(console, name, "bold")
        for parts, holds in cells:
            print_line(console, align(parts) if fits else as_sentence(parts), _STYLES[False] if holds is False else "")

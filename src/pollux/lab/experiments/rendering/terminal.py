"""Tables in the terminal; where it is too narrow for one, a line for each cell."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pollux.lab.experiments.rendering.account import Account
from pollux.lab.experiments.rendering.cells import NOT_RUN, Told, has_published, legend, told_rows, verdict
from pollux.lab.experiments.tables import Table

_NARROWEST_NAME = 16
_GAP = 2
# Between two columns rich puts one more space, where other boxes have a line.
_BETWEEN = _GAP + 1
_STYLES = {True: "green", False: "bold red", None: "dim"}


def show(account: Account, console: Console) -> None:
    """Print all of an account but its settings."""
    _say(console, f"\n{account.experiment.name}: {account.experiment.title}", "bold")
    _say(console, account.lead, "dim")
    if account.departure:
        _say(console, f"Not the full protocol – {account.departure}.", "yellow")
    for line in account.conclusion:
        _say(console, line)
    for table in account.tables:
        _show_table(table, console)
    if not account.records:
        _say(console, "No run of this is recorded.", "yellow")
    for failure in account.failures:
        _say(console, f"Failed: {failure}", "red")
    for warning in account.warnings:
        _say(console, f"Warned: {warning}", "yellow")
    if account.without_pictures:
        _say(console, account.without_pictures, "yellow")


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style))


def _show_table(table: Table, console: Console) -> None:
    if not table.rows or not table.columns:
        return
    _say(console, f"\n{table.title}", "bold")
    # Headings on one line if there is room, else broken at spaces; no table if not even that helps.
    for widths in (_column_widths(table, broken=False), _column_widths(table, broken=True)):
        room = console.width - sum(width + _BETWEEN for width in widths)
        if room >= _least_name(table):
            console.print(_as_table(table, widths, room))
            break
    else:
        _print_stacked(table, console)
    for line in filter(None, (legend(table), verdict(table), *table.notes)):
        _say(console, line)


def _as_table(table: Table, widths: Sequence[int], room: int) -> Grid:
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_lines=False, padding=(0, 0, 0, _GAP))
    # All widths are given: what rich makes narrower by itself it may cut off.
    grid.add_column("", width=min(room, max(cell_len(row.name) for row in table.rows)))
    for column, width in zip(table.columns, widths, strict=True):
        grid.add_column(Text(column), justify="right", width=width)
    tall = has_published(table)
    for name, cells in told_rows(table):
        grid.add_row(Text(name), *(_styled(cell) for cell in cells))
        if tall:
            grid.add_row()
    return grid


def _styled(cell: Told) -> Text:
    text = Text(no_wrap=True)
    parts = [(cell.published, "dim"), (cell.measured, "dim" if cell.measured == NOT_RUN else "bold")]
    parts.append((cell.judged, _STYLES[cell.holds]))
    for line, style in parts:
        if line:
            text.append(("\n" if text else "") + line, style)
    return text


def _least_name(table: Table) -> int:
    """How narrow the column of names may be: those, too, may be broken at spaces."""
    words = max(cell_len(word) for row in table.rows for word in row.name.split())
    return max(words, min(_NARROWEST_NAME, max(cell_len(row.name) for row in table.rows)))


def _column_widths(table: Table, *, broken: bool) -> list[int]:
    """What each column needs, with its heading broken at spaces or not."""
    rows = [cells for _, cells in told_rows(table)]
    return [
        max(
            *(cell_len(part) for part in (column.split() if broken else [column])),
            *(cell_len(line) for cells in rows for line in cells[at].lines),
            1,
        )
        for at, column in enumerate(table.columns)
    ]


def _print_stacked(table: Table, console: Console) -> None:
    """A block for each row, a line for each of its cells: under headings where there is room, else as sentences."""
    rows = [
        (name, [(column, cell) for column, cell in zip(table.columns, cells, strict=True) if cell.lines])
        for name, cells in told_rows(table)
    ]
    headings = ["", table.reference, "measured", "difference"] if has_published(table) else ["", "measured"]
    lines = [_parts(column, cell)[: len(headings)] for _, cells in rows for column, cell in cells]
    widths = [max(map(cell_len, parts)) for parts in zip(headings, *lines, strict=True)]
    fits = sum(width + _GAP for width in widths) <= console.width
    if fits:
        _say(console, _aligned(headings, widths), "dim")
    for name, cells in rows:
        _say(console, name, "bold")
        for column, cell in cells:
            parts = _parts(column, cell)[: len(headings)]
            line = _aligned(parts, widths) if fits else _sentence(parts, headings, console.width)
            _say(console, line, _STYLES[False] if cell.holds is False else "")


def _parts(column: str, cell: Told) -> list[str]:
    if cell.published:
        return [column, cell.published, cell.measured, cell.judged]
    return [column, cell.measured, "", ""]


def _aligned(parts: Sequence[str], widths: Sequence[int]) -> str:
    padded = (part + " " * (width + _GAP - cell_len(part)) for part, width in zip(parts, widths, strict=True))
    return ("  " + "".join(padded)).rstrip()


def _sentence(parts: Sequence[str], headings: Sequence[str], width: int) -> str:
    named = [
        part if part == NOT_RUN else f"{heading} {part}"
        for part, heading in zip(parts[1:], headings[1:], strict=True)
        if part
    ]
    line = f"{parts[0]}: {', '.join(named)}"
    return textwrap.fill(line, width, initial_indent="  ", subsequent_indent="    ")

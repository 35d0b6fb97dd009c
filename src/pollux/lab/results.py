"""Tables of results, printed in a terminal of any width, as Markdown or as HTML, and the report that contains them
with its figures. Files are written atomically.
"""

from __future__ import annotations

import base64
import io
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pollux.errors import InputError
from pollux.io.atomic import in_place, write_text
from pollux.lab.records import Record
from pollux.report.markup import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING, NOT_RUN = "–", "not run"
_MARKDOWN = re.compile(r"([\\`*_\[\]|#~$])")
_NARROWEST_NAME, _NARROWEST_COMPACT_NAME = 16, 8
_GAP = 2
_STYLES = {True: "green", False: "bold red", None: "dim"}


@dataclass(frozen=True)
class Cell:
    """A text, an optional remark beside it, a reference value above and the difference from it below.

    ``emphasis`` is the part that is bold; ``holds`` is True for a good result, False for a bad one, None for neither.
    """

    text: str = ""
    aside: str = ""
    reference: str = ""
    difference: str = ""
    emphasis: Literal["", "text", "whole"] = ""
    holds: bool | None = None

    @property
    def whole(self) -> str:
        """The text and the remark beside it."""
        return f"{self.text} {self.aside}".strip()

    @property
    def lines(self) -> list[str]:
        """All parts, from top to bottom."""
        return [line for line in (self.reference, self.whole, self.difference) if line]


@dataclass(frozen=True)
class Table:
    """Rows of cells under column names.

    ``reference`` names the values above the measured ones. A compact table has narrow gaps; in a narrow terminal it is
    printed without the remarks beside its texts, then without its ``optional`` columns.
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
    """Return a number as text with a true minus sign; zero has no sign."""
    is_zero = not any(digit in "123456789" for digit in number)
    return number.removeprefix("-") if is_zero else number.replace("-", "−")


def with_sign(number: str) -> str:
    """Return a number as text with an explicit sign; zero has none."""
    is_zero = not any(digit in "123456789" for digit in number)
    return number if number.startswith("−") or is_zero else f"+{number}"


# Markdown.


def escape_markdown(text: str) -> str:
    """Escape text for Markdown and the HTML within it, and join its lines."""
    text = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MARKDOWN.sub(r"\\\1", text)


def markdown_list(lines: Iterable[str]) -> str:
    """Return the lines as a Markdown list."""
    return "\n".join(f"- {escape_markdown(line)}" for line in lines)


def markdown_blocks(table: Table, level: int = 2) -> Iterator[str]:
    """Yield a heading of the given level, the table, and its notes."""
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
    """Print text literally, without interpreting markup."""
    console.print(Text(text, style=style))


def print_table(table: Table, console: Console) -> None:
    """Print a table. In a narrow terminal optional parts are left out; if it still does not fit, one line per cell."""
    if table.is_empty:
        return
    print_line(console, f"\n{table.title}", "bold")
    for form, is_broken in _forms(table):
        # The width that each column needs, with its heading broken at spaces or not.
        widths = [
            max(
                *(cell_len(part) for part in (column.split() if is_broken else [column])),
                *(cell_len(line) for _, cells in form.rows for line in cells[at].lines),
                1,
            )
            for at, column in enumerate(form.columns)
        ]
        # This box of rich has one space more between columns, where other boxes have a line.
        gap = _GAP - form.is_compact
        room = console.width - sum(width + gap + 1 for width in widths)
        longest = max(cell_len(name) for name, _ in form.rows)
        # Names may be broken at spaces, and in compact tables anywhere.
        least = min(_NARROWEST_COMPACT_NAME if form.is_compact else _NARROWEST_NAME, longest)
        if not form.is_compact:
            least = max(least, *(cell_len(word) for name, _ in form.rows for word in name.split()))
        if room >= least:
            grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_lines=False, padding=0)
            # Set all widths explicitly: rich may truncate columns that it narrows itself. The gap is part of the width,
            # because releases before 15 also count padding at the edge, although there is none.
            grid.add_column("", width=min(room, longest), overflow="fold")
            for column, width in zip(form.columns, widths, strict=True):
                heading = textwrap.fill(column, width, break_on_hyphens=False)
                grid.add_column(Text(heading), justify="right", width=gap + width)
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
    """Yield forms of the table from the widest to the narrowest, each with whether headings are broken at spaces."""
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
    """Print a block for each row and a line for each cell: in columns if there is room, else as sentences."""
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


# The report.

FIGURES = "figures"
DOTS_PER_INCH = 150
WITHOUT_FIGURES = "figures need: pip install 'pollux[report]'"


class Picture(NamedTuple):
    """A figure that was drawn: its caption, its PNG, and its path relative to the Markdown file."""

    caption: str
    png: bytes
    link: str

    @property
    def base64(self) -> str:
        """The PNG, encoded in base64."""
        return base64.b64encode(self.png).decode()


@dataclass(frozen=True)
class Report:
    """A report on a set of runs: tables, findings, figures, and how the runs were made."""

    name: str  # the file name without its suffix
    title: str
    lead: str  # how much was run
    tables: Sequence[Table]
    records: Sequence[Record]  # from which the tables are made
    command: str  # that shows or repeats the runs
    departure: str = ""  # how the runs differ from the full protocol
    findings: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()  # runs that were left out or failed, and warnings
    pictures: Sequence[Picture] = ()

    @property
    def notices(self) -> list[str]:
        """Remarks to be shown before the tables."""
        notices = [f"Not the full protocol – {self.departure}."] if self.departure else []
        return notices if self.records else [*notices, "No run of this is recorded."]

    @property
    def versions(self) -> dict[str, str]:
        """For each package, all versions that the runs were made with."""
        names = {name: None for record in self.records for name in record.versions}
        found = {name: sorted({r.versions[name] for r in self.records if name in r.versions}) for name in names}
        return {name: ", ".join(filter(None, versions)) for name, versions in found.items() if any(versions)}


def duration(seconds: float) -> str:
    """Format a duration in seconds, and from two minutes on also in hours and minutes."""
    if seconds < 120:
        return f"{seconds:,.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{seconds:,.0f} s ({f'{hours} h ' if hours else ''}{minutes} min)"


def results_folder(out: str | Path) -> Path:
    """Return the folder given by ``--out``; raise an InputError if results cannot be written into it."""
    if not str(out):
        raise InputError("--out names no folder.")
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is not a folder: name another by --out.")
    nearest = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise InputError(f"{nearest} is a file, so there can be no folder {folder}: name another by --out.")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise InputError(f"Nothing can be written into {nearest}: name another folder by --out.")
    return folder


def check_records(path: Path) -> None:
    """Raise an InputError if records cannot be appended to the file."""
    if path.exists() and not (path.is_file() and os.access(path, os.W_OK)):
        raise InputError(f"Nothing can be recorded in {path}: name another folder by --out.")


# The formats.


def render_markdown(report: Report) -> str:
    """Return the report as Markdown."""
    blocks = [f"# {escape_markdown(report.title)}", escape_markdown(report.lead)]
    if report.departure:
        blocks.append(f"**Not the full protocol** – {escape_markdown(report.departure)}.")
    blocks.append(markdown_list(report.findings))
    if not report.records:
        blocks.append("No run of this is recorded.")
    for table in report.tables:
        blocks += markdown_blocks(table)
    if report.pictures:
        blocks.append("## Figures")
    for picture in report.pictures:
        caption = escape_markdown(picture.caption)
        blocks += [f"![{caption}]({picture.link})", f"*{caption}*"]
    # A fence longer than any run of backticks within it cannot end early.
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", report.command)), default=0))
    blocks += ["## How it was run", f"{fence}sh\n{report.command}\n{fence}"]
    for head, pairs in (("| setting | values |", report.settings), ("| package | version |", report.versions)):
        rows = [f"| {escape_markdown(name)} | {escape_markdown(value)} |" for name, value in pairs.items()]
        blocks.append("\n".join([head, "|---|---|", *rows]) if rows else "")
    blocks.append(markdown_list(report.remarks))
    return "\n\n".join(filter(None, blocks)) + "\n"


def render_page(report: Report) -> str:
    """Return the report as a self-contained HTML page."""
    return render("results.html", {"report": report}, "pollux.lab")


def print_report(report: Report, console: Console) -> None:
    """Print the report without its settings."""
    print_line(console, f"\n{report.name}: {report.title}", "bold")
    print_line(console, report.lead, "dim")
    for notice in report.notices:
        print_line(console, notice, "yellow")
    for line in report.findings:
        print_line(console, line)
    for table in report.tables:
        print_table(table, console)
    for remark in report.remarks:
        print_line(console, remark, "red" if remark.startswith("Failed") else "yellow")


# Files.


def with_figures(report: Report, folder: Path, draw: Callable[[], Mapping[str, Figure]]) -> Report:
    """Draw the figures, write them into the folder and add them to the report; if that fails, add the reason."""
    try:
        figures = draw()
    except ImportError:
        return replace(report, remarks=[*report.remarks, WITHOUT_FIGURES])
    except Exception as error:
        # An unreadable model file, or settings without a figure, must not prevent the tables.
        reason = f"no figures: {type(error).__name__}: {error}"
        return replace(report, remarks=[*report.remarks, reason])
    pictures = [_write_figure(figure, folder, f"{report.name}-{name}") for name, figure in figures.items()]
    return replace(report, pictures=pictures)


def _write_figure(figure: Figure, folder: Path, name: str) -> Picture:
    """Write a figure as PNG and SVG; the caption is its label."""
    from matplotlib import rc_context

    (folder / FIGURES).mkdir(parents=True, exist_ok=True)
    image = io.BytesIO()
    # Equal figures give equal files: no dates, no random identifiers.
    with rc_context({"svg.hashsalt": name}):
        figure.savefig(image, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        with in_place(folder / FIGURES / f"{name}.svg") as path:
            figure.savefig(path, format="svg", dpi=DOTS_PER_INCH, metadata={"Date": None})
    with in_place(folder / FIGURES / f"{name}.png") as path:
        path.write_bytes(image.getvalue())
    return Picture(str(figure.get_label()), image.getvalue(), f"{FIGURES}/{name}.png")


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write the report as Markdown and HTML, and return the paths."""
    texts = {"md": render_markdown(report), "html": render_page(report)}
    for ending, text in texts.items():
        write_text(folder / f"{report.name}.{ending}", text)
    return [folder / f"{report.name}.{ending}" for ending in texts]


def publish(report: Report, folder: Path, shown: Report | None = None) -> None:
    """Write the report's files if there are records, and print the report, or ``shown`` instead if it is given."""
    # Write before printing: the files then exist even if the reader of our output closes the pipe.
    written = write_report(report, folder) if report.records else []
    print_report(report if shown is None else shown, Console(highlight=False))
    for path in written:
        print(f"written: {path}", file=sys.stderr)

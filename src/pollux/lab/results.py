"""Results of a grid as a report: printed, written as Markdown and as a page, with figures; each file whole or not."""

from __future__ import annotations

import base64
import dataclasses
import io
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from pollux.errors import InputError
from pollux.io.atomic import in_place, write_text
from pollux.lab.records import Record
from pollux.lab.tables import Table, escape_markdown, markdown_blocks, markdown_list, print_line, print_table
from pollux.report.markup import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = "figures"
DOTS_PER_INCH = 150
WITHOUT_FIGURES = "figures need: pip install 'pollux[report]'"


class Picture(NamedTuple):
    """A figure that was drawn: what it shows, its PNG, and its path beside the Markdown."""

    caption: str
    png: bytes
    link: str

    @property
    def base64(self) -> str:
        """The PNG as text."""
        return base64.b64encode(self.png).decode()


@dataclass(frozen=True)
class Report:
    """What was run, and what was found."""

    name: str  # the stem of its files
    title: str
    lead: str  # how much was run
    tables: Sequence[Table]
    records: Sequence[Record]  # what the tables are made of
    command: str  # that shows or runs the same
    departure: str = ""  # how the runs differ from the full protocol
    findings: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    remarks: Sequence[str] = ()  # what was left out, failed, or warned
    pictures: Sequence[Picture] = ()

    @property
    def notices(self) -> list[str]:
        """What a reader must know before the tables."""
        notices = [f"Not the full protocol – {self.departure}."] if self.departure else []
        return notices if self.records else [*notices, "No run of this is recorded."]

    @property
    def versions(self) -> dict[str, str]:
        """All versions of each package that the runs were done with."""
        names = {name: None for record in self.records for name in record.versions}
        found = {name: sorted({r.versions[name] for r in self.records if name in r.versions}) for name in names}
        return {name: ", ".join(filter(None, versions)) for name, versions in found.items() if any(versions)}


def duration(seconds: float) -> str:
    """Seconds, and minutes or hours where there are many."""
    if seconds < 120:
        return f"{seconds:,.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{seconds:,.0f} s ({f'{hours} h ' if hours else ''}{minutes} min)"


def results_folder(out: str | Path) -> Path:
    """The folder that ``--out`` names, or an InputError where results cannot be written into it."""
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
    """Raise an InputError where records cannot be appended to a file."""
    if path.exists() and not (path.is_file() and os.access(path, os.W_OK)):
        raise InputError(f"Nothing can be recorded in {path}: name another folder by --out.")


# The formats.


def render_markdown(report: Report) -> str:
    """The report as the text of a Markdown file."""
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
    """The report as a page that needs no other file."""
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
    """The report with the figures that ``draw`` returns, written into the folder; where that fails, the reason."""
    try:
        figures = draw()
    except ImportError:
        return dataclasses.replace(report, remarks=[*report.remarks, WITHOUT_FIGURES])
    except Exception as error:
        # A model file that cannot be read, or settings without a figure, cost the figures, not the tables.
        reason = f"no figures: {type(error).__name__}: {error}"
        return dataclasses.replace(report, remarks=[*report.remarks, reason])
    pictures = [_write_figure(figure, folder, f"{report.name}-{name}") for name, figure in figures.items()]
    return dataclasses.replace(report, pictures=pictures)


def _write_figure(figure: Figure, folder: Path, name: str) -> Picture:
    """Write a figure as PNG and SVG; its label is the caption."""
    from matplotlib import rc_context

    (folder / FIGURES).mkdir(parents=True, exist_ok=True)
    image = io.BytesIO()
    # The same figure is the same file: no dates, no random names.
    with rc_context({"svg.hashsalt": name}):
        figure.savefig(image, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        with in_place(folder / FIGURES / f"{name}.svg") as path:
            figure.savefig(path, format="svg", dpi=DOTS_PER_INCH, metadata={"Date": None})
    with in_place(folder / FIGURES / f"{name}.png") as path:
        path.write_bytes(image.getvalue())
    return Picture(str(figure.get_label()), image.getvalue(), f"{FIGURES}/{name}.png")


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write the Markdown and the page; their paths."""
    texts = {"md": render_markdown(report), "html": render_page(report)}
    for ending, text in texts.items():
        write_text(folder / f"{report.name}.{ending}", text)
    return [folder / f"{report.name}.{ending}" for ending in texts]


def publish(report: Report, folder: Path, shown: Report | None = None) -> None:
    """Write the files, where there are records, and print the report, or the one that is to be shown instead."""
    # Files first: they are there even if the program that reads our output stops reading.
    written = write_report(report, folder) if report.records else []
    print_report(report if shown is None else shown, Console(highlight=False))
    for path in written:
        print(f"written: {path}", file=sys.stderr)

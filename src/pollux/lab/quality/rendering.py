"""A comparison for people: in the terminal, as Markdown and as a page that is complete in itself."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from string import Template

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from pollux.lab.experiments.experiment import Record
from pollux.lab.experiments.rendering.account import Picture, duration, versions_of
from pollux.lab.experiments.rendering.markdown import escaped as escaped_markdown
from pollux.lab.quality.summary import Board
from pollux.lab.quality.tables import SIZES, Cell, Table, set_tables, standing_tables
from pollux.report.markup import counted, escaped, made_by

TITLE = "Quality of clusterings, side by side"
_GAP = 1


@dataclass(frozen=True)
class Account:
    """What was compared, and what came of it; ``notes`` say what was left out."""

    board: Board
    records: Sequence[Record]
    command: str
    notes: Sequence[str] = ()
    failures: Sequence[str] = ()
    pictures: Sequence[Picture] = ()

    @property
    def lead(self) -> str:
        """How much was done."""
        sets, methods = len(self.board.places), len(self.board.methods)
        spent = duration(sum(record.seconds for record in self.records))
        return " · ".join(
            [counted(sets, "set"), counted(methods, "method"), counted(len(self.records), "run"), f"{spent} of runs"]
        )

    @property
    def tables(self) -> list[Table]:
        """Standings first, then each set."""
        return [*standing_tables(self.board), *set_tables(self.board)]

    @property
    def versions(self) -> dict[str, str]:
        """Of each package, all versions that the runs were done with."""
        return versions_of(self.records)

    @property
    def remarks(self) -> list[str]:
        """What was left out, what failed, and what runs warned of."""
        counts = Counter(
            (record.run.settings["method"], warning) for record in self.records for warning in record.warnings
        )
        warned = [f"{method} warned in {counted(n, 'run')}: {text}" for (method, text), n in counts.most_common()]
        return [*self.notes, *(f"Failed: {text}" for text in self.failures), *warned]


# Markdown.


def markdown(account: Account) -> str:
    """The whole account, as the text of a file."""
    parts = [f"# {TITLE}", *markdown_blocks(account, level=2), "## How it was run", f"```sh\n{account.command}\n```"]
    versions = [f"{name} {version}" for name, version in account.versions.items() if version]
    parts.append(escaped_markdown(", ".join(versions)))
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown_blocks(account: Account, level: int, pictures: str = "") -> Iterator[str]:
    """Tables and figures under headings of a level; ``pictures`` is the way to their folder."""
    yield escaped_markdown(account.lead) + "."
    tables = account.tables
    for table in tables:
        yield f"{'#' * level} {escaped_markdown(table.title)}"
        yield _markdown_table(table)
        yield _markdown_list(table.notes)
    for picture in account.pictures:
        yield f"![{escaped_markdown(picture.caption)}]({pictures}{picture.link})"
    yield _markdown_list(account.remarks)


def _markdown_table(table: Table) -> str:
    lines = [
        "| | " + " | ".join(map(escaped_markdown, table.columns)) + " |",
        "|---" + "|---:" * len(table.columns) + "|",
    ]
    for name, cells in table.rows:
        texts = [
            f"**{escaped_markdown(cell.text)}** {escaped_markdown(cell.aside)}".strip()
            if cell.is_best
            else escaped_markdown(cell.whole)
            for cell in cells
        ]
        lines.append(f"| {escaped_markdown(name)} | {' | '.join(texts)} |")
    return "\n".join(lines)


def _markdown_list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {escaped_markdown(line)}" for line in lines)


# The page.


def page(account: Account) -> str:
    """The whole account, as the text of a file that needs no other."""
    pictures = "".join(map(_picture, account.pictures))
    parts = [_section("Figures", pictures) if pictures else "", *map(_html_table, account.tables), _settings(account)]
    return Template(_asset("experiment.html")).substitute(
        title=TITLE,
        style=_asset("page.css") + _asset("experiment.css"),
        lead=escaped(account.lead),
        remarks=_html_list(account.notes),
        parts="\n".join(filter(None, parts)),
        made_by=made_by(),
    )


def _asset(name: str) -> str:
    return (files("pollux.report") / "assets" / name).read_text(encoding="utf-8")


def _section(heading: str, content: str) -> str:
    return f'<section><div class="head"><h2>{escaped(heading)}</h2></div>\n{content}</section>'


def _html_table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escaped(column)}</th>' for column in table.columns)
    rows = []
    for name, cells in table.rows:
        rows.append(f'<tr><th scope="row">{escaped(name)}</th>{"".join(map(_html_cell, cells))}</tr>')
    body = "\n".join(rows)
    grid = f'<table class="results"><thead><tr><th></th>{head}</tr></thead>\n<tbody>{body}</tbody></table>'
    return _section(table.title, f'<div class="scroll" tabindex="0">{grid}</div>{_html_list(table.notes)}')


def _html_cell(cell: Cell) -> str:
    text = f"<strong>{escaped(cell.text)}</strong>" if cell.is_best else escaped(cell.text)
    aside = f" <span class=aside>{escaped(cell.aside)}</span>" if cell.aside else ""
    return f"<td{' class=holds' if cell.is_best else ''}>{text}{aside}</td>"


def _html_list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _picture(picture: Picture) -> str:
    data, caption = base64.b64encode(picture.png).decode(), escaped(picture.caption)
    image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
    return f'<figure class="drawn"><div class="scroll">{image}</div><figcaption>{caption}</figcaption></figure>'


def _settings(account: Account) -> str:
    content = f'<div class="command"><pre>{escaped(account.command)}</pre></div>{_pairs(account.versions)}'
    return _section("How it was run", content + _html_list(account.remarks))


def _pairs(pairs: Mapping[str, str]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escaped(name)}</th><td>{escaped(value)}</td></tr>' for name, value in pairs.items()
    )
    return f'<table class="settings"><tbody>{rows}</tbody></table>' if rows else ""


# The terminal.


def show(account: Account, console: Console) -> None:
    """Print the ARI of each set, the standings, and what there is to say of them."""
    console.print(Text(f"\n{TITLE}", style="bold"))
    console.print(Text(account.lead, style="dim"))
    for table in [*set_tables(account.board)[:1], *standing_tables(account.board)]:
        console.print(Text(f"\n{table.title}", style="bold"))
        console.print(_terminal_table(table, console.width))
        for note in table.notes:
            console.print(Text(note, style="dim"))
    for remark in account.remarks:
        console.print(Text(remark, style="yellow"))


def _terminal_table(table: Table, width: int) -> Grid:
    """The table with all that there is room for: figures matter more than deviations, and these than sizes."""
    forms = [table, _without_asides(table), _without_sizes(_without_asides(table))]
    chosen = next((form for form in forms if _needed(form) <= width), forms[-1])
    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP, 0, 0))
    grid.add_column("", overflow="fold")
    for column in chosen.columns:
        grid.add_column(Text(column), justify="right", overflow="fold")
    for name, cells in chosen.rows:
        grid.add_row(Text(name), *(Text(cell.whole, style="bold green" if cell.is_best else "") for cell in cells))
    return grid


def _without_asides(table: Table) -> Table:
    rows = [(name, [cell._replace(aside="") for cell in cells]) for name, cells in table.rows]
    return replace(table, rows=rows)


def _without_sizes(table: Table) -> Table:
    kept = [at for at, column in enumerate(table.columns) if column not in SIZES]
    rows = [(name, [cells[at] for at in kept]) for name, cells in table.rows]
    return replace(table, columns=[table.columns[at] for at in kept], rows=rows)


def _needed(table: Table) -> int:
    """The width of a table on one line each."""
    widths = [max(cell_len(cells[at].whole) for _, cells in table.rows) for at in range(len(table.columns))]
    # Headings may be broken at spaces.
    words = [max(map(cell_len, column.split())) for column in table.columns]
    names = max(cell_len(name) for name, _ in table.rows)
    return names + sum(max(pair) + _GAP + 1 for pair in zip(widths, words, strict=True))

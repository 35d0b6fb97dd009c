"""An account as a page that is complete in itself."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from importlib.resources import files
from string import Template

from pollux.lab.experiments.rendering.account import Account, Picture
from pollux.lab.experiments.rendering.cells import NOT_RUN, Told, legend, told_rows, verdict
from pollux.lab.experiments.tables import Table
from pollux.report.markup import escaped, made_by

_CLASSES = {True: ' class="holds"', False: ' class="falls"', None: ""}


def page(account: Account) -> str:
    """The whole account, as the text of a file."""
    parts = [*map(_table, account.tables), _pictures(account), _settings(account)]
    return Template(_asset("experiment.html")).substitute(
        title=escaped(account.experiment.title),
        style=_asset("page.css") + _asset("experiment.css"),
        lead=escaped(account.lead),
        remarks=_remarks(account),
        parts="\n".join(filter(None, parts)),
        made_by=made_by(),
    )


def _asset(name: str) -> str:
    return (files("pollux.report") / "assets" / name).read_text(encoding="utf-8")


def _remarks(account: Account) -> str:
    notices = [f"Not the full protocol – {account.departure}."] if account.departure else []
    if not account.records:
        notices.append("No run of this is recorded.")
    return "".join(f'<p class="notice">{escaped(notice)}</p>' for notice in notices) + _list(account.conclusion)


def _list(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escaped(line)}</li>" for line in lines if line)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _section(heading: str, content: str) -> str:
    return f'<section><div class="head"><h2>{escaped(heading)}</h2></div>\n{content}</section>'


def _table(table: Table) -> str:
    if not table.rows or not table.columns:
        return ""
    head = "".join(f'<th scope="col">{escaped(column)}</th>' for column in table.columns)
    rows = "\n".join(
        f'<tr><th scope="row">{escaped(name)}</th>{"".join(map(_cell, cells))}</tr>' for name, cells in told_rows(table)
    )
    grid = f'<table class="results"><thead><tr><th></th>{head}</tr></thead>\n<tbody>{rows}</tbody></table>'
    notes = _list([legend(table), verdict(table), *table.notes])
    return _section(table.title, f'<div class="scroll" tabindex="0">{grid}</div>{notes}')


def _cell(cell: Told) -> str:
    parts = [f'<span class="published">{escaped(cell.published)}</span>'] if cell.published else []
    if cell.measured == NOT_RUN:
        parts.append(f'<span class="none">{NOT_RUN}</span>')
    elif cell.measured:
        mean, space, aside = cell.measured.partition(" ")
        parts.append(f"<b>{escaped(mean)}{space}<span class=aside>{escaped(aside)}</span></b>")
    if cell.judged:
        parts.append(f'<span class="difference">{escaped(cell.judged)}</span>')
    return f"<td{_CLASSES[cell.holds]}>{''.join(parts)}</td>"


def _pictures(account: Account) -> str:
    drawn = "".join(map(_picture, account.pictures))
    note = f'<p class="aside">{escaped(account.without_pictures)}</p>' if account.without_pictures else ""
    return _section("Figures", drawn + note) if drawn or note else ""


def _picture(picture: Picture) -> str:
    data, caption = base64.b64encode(picture.png).decode(), escaped(picture.caption)
    image = f'<img alt="{caption}" src="data:image/png;base64,{data}">'
    return f'<figure class="drawn"><div class="scroll">{image}</div><figcaption>{caption}</figcaption></figure>'


def _settings(account: Account) -> str:
    troubles = [*(f"Failed: {text}" for text in account.failures), *(f"Warned: {text}" for text in account.warnings)]
    content = f'<div class="command"><pre>{escaped(account.command)}</pre></div>'
    content += f'<div class="columns">{_pairs(account.settings)}{_pairs(account.versions)}</div>'
    return _section("How it was run", content + _list(troubles))


def _pairs(pairs: Mapping[str, str]) -> str:
    rows = "".join(
        f'<tr><th scope="row">{escaped(name)}</th><td>{escaped(value)}</td></tr>' for name, value in pairs.items()
    )
    return f'<table class="settings"><tbody>{rows}</tbody></table>' if rows else ""

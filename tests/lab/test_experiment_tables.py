"""What is told of an experiment: every published figure, what was measured, and how far apart they are."""

import functools
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from experiment_records import made_up_records
from pollux.lab.experiments import EXPERIMENTS
from pollux.lab.experiments.experiment import Experiment, Protocol, Record, Run
from pollux.lab.experiments.rendering import Account, account_of, markdown, page, show, write
from pollux.lab.experiments.rendering.cells import amount, figure, signed, told, verdict
from pollux.lab.experiments.reproducing import Request
from pollux.lab.experiments.running import Failure, Outcome
from pollux.lab.experiments.tables import Cell, Figure, Row, Table

every_experiment = pytest.mark.parametrize("name", EXPERIMENTS)


@functools.cache
def account(name: str, profile: str = "paper", runs: int = 2) -> Account:
    experiment = EXPERIMENTS[name]
    records = made_up_records(name, profile, runs)
    return account_of(experiment, experiment.protocols[profile], Outcome(records), Request([name], profile=profile))


def with_tables(tables: list[Table], title: str = "A title", **changes: Any) -> Account:
    """An account of an experiment that has these tables."""
    protocol = Protocol([{"epochs": 3}], 1)
    run = Run("made-up", {"epochs": 3}, 0)
    experiment = Experiment(
        "made-up", title, "section 0", {"paper": protocol, "quick": protocol}, lambda *_: {}, lambda records: tables
    )
    outcome = Outcome([Record(run, {}, 1.0, {"python": "3"})], [])
    return replace(account_of(experiment, protocol, outcome, Request(["made-up"])), **changes)


def in_terminal(account: Account, width: int = 80) -> str:
    output = io.StringIO()
    show(account, Console(file=output, width=width, highlight=False))
    return output.getvalue()


def cell_table(cell: Cell, unit: str = "ARI") -> Table:
    return Table("A table", ["a column"], [Row("a row", [cell])], unit)


BELOW = Cell(Figure(0.9, 0.01, 20), Figure(0.8, 0.01, 20))
ABOVE = Cell(Figure(0.8, 0.01, 20), Figure(0.9, 0.01, 20))
UNKNOWN = Cell(Figure(0.9), Figure(0.8))


@every_experiment
def test_every_published_figure_is_told_in_every_format(name: str) -> None:
    told_of = account(name)
    texts = [markdown(told_of), page(told_of), in_terminal(told_of, 80), in_terminal(told_of, 200)]
    tables = [(table, row) for table in told_of.tables for row in table.rows]
    assert tables
    for table, row in tables:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell.published is not None:
                written = amount(cell.published.mean, table.unit or column)
                assert all(written in text for text in texts)
    assert all(told_of.experiment.title in text for text in texts)


@every_experiment
def test_a_row_of_markdown_has_the_published_figures_of_its_cells(name: str) -> None:
    told_of = account(name)
    lines = markdown(told_of).splitlines()
    for table in told_of.tables:
        start = next(at for at, line in enumerate(lines) if line.startswith("| |") and lines[at - 2].startswith("## "))
        rows = lines[start + 2 : start + 2 + len(table.rows)]
        del lines[: start + 2]
        for row, line in zip(table.rows, rows, strict=True):
            parts = re.split(r"(?<!\\)\|", line)[2:-1]
            for cell, part, column in zip(row.cells, parts, table.columns, strict=True):
                if cell.published is not None:
                    assert part.strip().startswith(figure(cell.published, table.unit or column))
                if cell.measured is not None:
                    assert f"**{figure(cell.measured, table.unit or column)}**" in part


@every_experiment
@pytest.mark.parametrize("width", [30, 80, 200])
def test_nothing_is_wider_than_the_terminal_and_no_figure_is_cut(name: str, width: int) -> None:
    told_of = account(name)
    text = in_terminal(told_of, width)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    for table in told_of.tables:
        for row in table.rows:
            for cell, column in zip(row.cells, table.columns, strict=True):
                if cell.measured is not None:
                    assert figure(cell.measured, table.unit or column) in flat


@every_experiment
def test_without_records_everything_is_still_told(name: str) -> None:
    experiment = EXPERIMENTS[name]
    empty = account_of(experiment, experiment.protocols["quick"], Outcome([]), Request([name]))
    for text in (markdown(empty), page(empty), in_terminal(empty), in_terminal(empty, 30)):
        assert experiment.title in " ".join(text.split())
        assert "No run of this is recorded" in " ".join(text.split())


def test_what_falls_short_is_marked_and_nothing_else_is() -> None:
    for cell, marked in ((BELOW, True), (ABOVE, False), (UNKNOWN, False)):
        told_of = with_tables([replace(cell_table(cell), title="t")])
        assert (told(cell, "ARI").judged.endswith("below")) is marked
        assert ("−0.100 below" in markdown(told_of)) is marked
        assert ('class="falls"' in page(told_of)) is marked
        assert ("−0.100 below" in in_terminal(told_of)) is marked
    assert 'class="holds"' in page(with_tables([cell_table(ABOVE)]))
    assert 'class="holds"' not in page(with_tables([cell_table(UNKNOWN)]))


def test_the_verdict_counts_cells() -> None:
    both = Table("t", ["a", "b", "c"], [Row("r", [BELOW, ABOVE, UNKNOWN])])
    assert "1 of 2 cells at most two standard errors below the paper’s or above." in verdict(both)
    assert "0 of 1 cell without standard deviations" in verdict(both)
    assert verdict(cell_table(Cell(None, Figure(0.5)))) == ""
    assert verdict(cell_table(Cell(Figure(2), Figure(3)), "clusters")) == "Largest difference: 1 clusters."


def test_figures_in_words() -> None:
    assert figure(Figure(0.9, 0.1, 20, 4), "ARI") == "0.900 (0.100; K=4)"
    assert figure(Figure(0.9, clusters=9.75), "ARI") == "0.900 (K=9.8)"
    assert figure(Figure(2.0, 0.5, 3, clusters=2.0), "clusters seen") == "2 (0.5)"
    assert figure(Figure(0.75), "ms") == "0.750"
    assert figure(Figure(1370.2), "ms") == "1,370"
    assert amount(-0.0001, "ARI") == "0.000"
    assert [signed(value, "ARI") for value in (0.1, -0.1, 0.0001, -0.0001)] == ["+0.100", "−0.100", "0.000", "0.000"]


def test_text_of_others_cannot_become_markup() -> None:
    evil = '<script>alert("x")</script> | *a* _b_ [c](d) `e` & \\'
    table = Table(evil, [evil], [Row(evil, [BELOW])], notes=[evil])
    told_of = with_tables([table], evil, command=evil, departure=evil, failures=[evil], settings={evil: evil})
    html = page(told_of)
    assert "<script>" not in html
    assert 'alert("x")' not in html
    text = markdown(told_of).replace(f"```sh\n{evil}\n```", "")
    # Only the command, in a longer fence, stands as it is.
    fenced = re.sub(r"(`{3,}).*?\1", "", text, flags=re.S)
    assert "<script>" not in fenced
    assert not re.search(r"(?<!\\)\*a\*", fenced)
    row = next(line for line in fenced.splitlines() if "−0.100" in line)
    assert len(re.split(r"(?<!\\)\|", row)) == 4
    assert "[bold]" in in_terminal(with_tables([replace(table, title="[bold]a[/bold]")]), 120)


def test_the_page_is_complete_in_itself() -> None:
    html = page(account("mnist"))
    assert "default-src 'none'" in html
    assert not re.search(r"(?:src|href)=[\"']?(?!data:)|url\(|@import|https?://", html)


def test_a_protocol_that_is_not_the_papers_is_said_to_be_so() -> None:
    paper, quick = account("outliers"), account("outliers", "quick")
    assert paper.departure == ""
    assert quick.departure == "quick: 20 epochs instead of 100, one run instead of 20"
    for text in (markdown(quick), page(quick), in_terminal(quick)):
        assert "20 epochs instead of 100, one run instead of 20" in " ".join(text.split())
    assert all("Not the paper" not in text for text in (markdown(paper), page(paper), in_terminal(paper)))


def test_options_are_told_instead_of_a_remark_that_they_made_untrue() -> None:
    experiment = EXPERIMENTS["outliers"]
    quick = experiment.protocols["quick"]
    changed = Protocol([{**settings, "epochs": 50} for settings in quick.grid if "epochs" in settings], 3, quick.remark)
    request = Request(["outliers"], runs=3, other=["epochs=50"], out="my results")
    told_of = account_of(experiment, changed, Outcome([]), request)
    assert told_of.departure.startswith("quick, changed by options: epochs 50 instead of 100, ")
    assert told_of.departure.endswith("3 runs of each instead of 20")
    assert told_of.settings["epochs"] == "50 (full: 100)"
    assert told_of.command == ("pollux reproduce outliers --profile quick --runs 3 --set epochs=50 --out 'my results'")
    assert told_of.command in markdown(told_of)


def test_failures_warnings_versions_and_time_are_told() -> None:
    experiment = EXPERIMENTS["moons"]
    records = [replace(record, warnings=["UserWarning: odd"]) for record in made_up_records("moons", "quick")]
    failure = Failure(records[0].run, "ValueError: no luck")
    told_of = account_of(experiment, experiment.protocols["quick"], Outcome(records, [failure]), Request(["moons"]))
    for text in (markdown(told_of), page(told_of), in_terminal(told_of, 300)):
        plain = text.replace("\\", "")
        assert "seed=0: ValueError: no luck" in plain
        assert "UserWarning: odd (12 runs)" in plain
        assert "12 of 12 runs recorded · 18.0 s" in plain
    assert "| pollux | 0.1.0 |" in markdown(told_of)


def test_pictures_are_linked_from_markdown_and_within_the_page(tmp_path: Path) -> None:
    from pollux.lab.experiments.rendering import Picture

    told_of = replace(account("moons"), pictures=[Picture("moons-a", "What <it> shows", b"png", "figures/moons-a.png")])
    assert "](figures/moons-a.png)" in markdown(told_of)
    assert "data:image/png;base64,cG5n" in page(told_of)
    assert "What &lt;it&gt; shows" in page(told_of)


def test_files_are_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write(account("categorical"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["categorical.html", "categorical.md"]
    before = paths[0].read_text()

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="full"):
        write(account("categorical", "quick"), tmp_path)
    assert paths[0].read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["categorical.html", "categorical.md"]

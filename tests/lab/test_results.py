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
from pollux.lab.grid import Failure
from pollux.lab.paper import EXPERIMENTS
from pollux.lab.paper.comparisons import Comparison, ComparisonRow, ComparisonTable, Estimate, amount, signed
from pollux.lab.paper.experiment import Experiment, Protocol
from pollux.lab.paper.reproduction import ExperimentTask, Request, report_on
from pollux.lab.records import Record, Run
from pollux.lab.results import Picture, Report, print_report, render_markdown, render_page, write_report

every_experiment = pytest.mark.parametrize("name", EXPERIMENTS)


@functools.cache
def report(name: str, profile: str = "paper", runs: int = 2) -> Report:
    experiment, records = EXPERIMENTS[name], made_up_records(name, profile, runs)
    return report_on(experiment, experiment.protocols[profile], records, Request([name], profile=profile))


def comparisons(name: str) -> list[ComparisonTable]:
    return list(EXPERIMENTS[name].tables(report(name).records))


def with_tables(tables: list[ComparisonTable], title: str = "A title", **changes: Any) -> Report:
    """The report on an experiment that has these tables."""
    protocol = Protocol([{"epochs": 3}], 1)
    experiment = Experiment(
        "made-up", title, "section 0", {"paper": protocol, "quick": protocol}, lambda *_: {}, lambda records: tables
    )
    records = [Record(Run("made-up", {"epochs": 3}, 0), {}, 1.0, {"python": "3"})]
    return replace(report_on(experiment, protocol, records, Request(["made-up"])), **changes)


def in_terminal(made: Report, width: int = 80) -> str:
    output = io.StringIO()
    print_report(made, Console(file=output, width=width, highlight=False))
    return output.getvalue()


def in_words(estimate: Estimate, unit: str) -> str:
    return " ".join(filter(None, estimate.in_words(unit)))


def cell_table(cell: Comparison, unit: str = "ARI") -> ComparisonTable:
    return ComparisonTable("A table", ["a column"], [ComparisonRow("a row", [cell])], unit)


BELOW = Comparison(Estimate(0.9, 0.01, 20), Estimate(0.8, 0.01, 20))
ABOVE = Comparison(Estimate(0.8, 0.01, 20), Estimate(0.9, 0.01, 20))
UNKNOWN = Comparison(Estimate(0.9), Estimate(0.8))


@every_experiment
def test_every_published_figure_is_told_in_every_format(name: str) -> None:
    made = report(name)
    texts = [render_markdown(made), render_page(made), in_terminal(made, 80), in_terminal(made, 200)]
    tables = [(table, row) for table in comparisons(name) for row in table.rows]
    assert tables
    for table, row in tables:
        for column, cell in zip(table.columns, row.cells, strict=True):
            if cell.published is not None:
                written = amount(cell.published.mean, table.unit or column)
                assert all(written in text for text in texts)
    assert all(made.title in text for text in texts)


@every_experiment
def test_a_row_of_markdown_has_the_published_figures_of_its_cells(name: str) -> None:
    made = report(name)
    lines = render_markdown(made).splitlines()
    for table in comparisons(name):
        start = next(at for at, line in enumerate(lines) if line.startswith("| |") and lines[at - 2].startswith("## "))
        rows = lines[start + 2 : start + 2 + len(table.rows)]
        del lines[: start + 2]
        for row, line in zip(table.rows, rows, strict=True):
            parts = re.split(r"(?<!\\)\|", line)[2:-1]
            for cell, part, column in zip(row.cells, parts, table.columns, strict=True):
                if cell.published is not None:
                    assert part.strip().startswith(in_words(cell.published, table.unit or column))
                if cell.measured is not None:
                    assert f"**{in_words(cell.measured, table.unit or column)}**" in part


@every_experiment
@pytest.mark.parametrize("width", [30, 80, 200])
def test_nothing_is_wider_than_the_terminal_and_no_figure_is_cut(name: str, width: int) -> None:
    made = report(name)
    text = in_terminal(made, width)
    assert max(map(len, text.splitlines())) <= width
    flat = " ".join(text.split())
    for table in comparisons(name):
        for row in table.rows:
            for cell, column in zip(row.cells, table.columns, strict=True):
                if cell.measured is not None:
                    assert in_words(cell.measured, table.unit or column) in flat


@every_experiment
def test_without_records_everything_is_still_told(name: str) -> None:
    experiment = EXPERIMENTS[name]
    empty = report_on(experiment, experiment.protocols["quick"], [], Request([name]))
    for text in (render_markdown(empty), render_page(empty), in_terminal(empty), in_terminal(empty, 30)):
        assert experiment.title in " ".join(text.split())
        assert "No run of this is recorded" in " ".join(text.split())


def test_what_falls_short_is_marked_and_nothing_else_is() -> None:
    for cell, marked in ((BELOW, True), (ABOVE, False), (UNKNOWN, False)):
        made = with_tables([replace(cell_table(cell), title="t")])
        assert (cell.as_cell("ARI", True).difference.endswith("below")) is marked
        assert ("−0.100 below" in render_markdown(made)) is marked
        assert ('class="falls"' in render_page(made)) is marked
        assert ("−0.100 below" in in_terminal(made)) is marked
    assert 'class="holds"' in render_page(with_tables([cell_table(ABOVE)]))
    assert 'class="holds"' not in render_page(with_tables([cell_table(UNKNOWN)]))


def test_a_single_run_is_judged_by_the_spread_of_the_published_ones() -> None:
    published = Estimate(0.9, 0.1, runs=20)
    assert Comparison(published, Estimate(0.7)).holds is True
    assert Comparison(published, Estimate(0.69)).holds is False
    assert Comparison(published, Estimate(0.8, 0.1, runs=20)).holds is False
    assert Comparison(Estimate(0.9), Estimate(0.7, 0.1, runs=20)).holds is None


def test_the_verdict_counts_cells() -> None:
    both = ComparisonTable("t", ["a", "b", "c"], [ComparisonRow("r", [BELOW, ABOVE, UNKNOWN])])
    assert "1 of 2 cells at most two standard errors below the paper’s or above." in both.verdict
    assert "0 of 1 cell without standard deviations" in both.verdict
    assert cell_table(Comparison(None, Estimate(0.5))).verdict == ""
    assert cell_table(Comparison(Estimate(2), Estimate(3)), "clusters").verdict == "Largest difference: 1 clusters."


def test_figures_in_words() -> None:
    assert in_words(Estimate(0.9, 0.1, 20, 4), "ARI") == "0.900 (0.100; K=4)"
    assert in_words(Estimate(0.9, clusters=9.75), "ARI") == "0.900 (K=9.8)"
    assert in_words(Estimate(2.0, 0.5, 3, clusters=2.0), "clusters seen") == "2 (0.5)"
    assert in_words(Estimate(0.75), "ms") == "0.750"
    assert in_words(Estimate(1370.2), "ms") == "1,370"
    assert amount(-0.0001, "ARI") == "0.000"
    assert [signed(value, "ARI") for value in (0.1, -0.1, 0.0001, -0.0001)] == ["+0.100", "−0.100", "0.000", "0.000"]


def test_text_of_others_cannot_become_markup() -> None:
    evil = '<script>alert("x")</script> | *a* _b_ [c](d) `e` & \\'
    table = ComparisonTable(evil, [evil], [ComparisonRow(evil, [BELOW])], notes=[evil])
    made = with_tables([table], evil, command=evil, departure=evil, remarks=[evil], settings={evil: evil})
    html = render_page(made)
    assert "<script>" not in html
    assert 'alert("x")' not in html
    text = render_markdown(made).replace(f"```sh\n{evil}\n```", "")
    # Only the command, in a longer fence, stands as it is.
    fenced = re.sub(r"(`{3,}).*?\1", "", text, flags=re.S)
    assert "<script>" not in fenced
    assert not re.search(r"(?<!\\)\*a\*", fenced)
    row = next(line for line in fenced.splitlines() if "−0.100" in line)
    assert len(re.split(r"(?<!\\)\|", row)) == 4
    assert "[bold]" in in_terminal(with_tables([replace(table, title="[bold]a[/bold]")]), 120)


def test_the_page_is_complete_in_itself() -> None:
    html = render_page(report("mnist"))
    assert "default-src 'none'" in html
    assert not re.search(r"(?:src|href)=[\"']?(?!data:)|url\(|@import|https?://", html)


def test_a_protocol_that_is_not_the_papers_is_said_to_be_so() -> None:
    paper, quick = report("outliers"), report("outliers", "quick")
    assert paper.departure == ""
    assert quick.departure == "quick: 20 epochs instead of 100, one run instead of 60"
    for text in (render_markdown(quick), render_page(quick), in_terminal(quick)):
        assert "20 epochs instead of 100, one run instead of 60" in " ".join(text.split())
    assert all("Not the paper" not in text for text in (render_markdown(paper), render_page(paper), in_terminal(paper)))


def test_options_are_told_instead_of_a_remark_that_they_made_untrue() -> None:
    experiment = EXPERIMENTS["outliers"]
    quick = experiment.protocols["quick"]
    changed = Protocol([{**settings, "epochs": 50} for settings in quick.grid if "epochs" in settings], 3, quick.remark)
    request = Request(["outliers"], runs=3, other=["epochs=50"], out="my results")
    made = report_on(experiment, changed, [], request)
    assert made.departure.startswith("quick, changed by options: epochs 50 instead of 100, ")
    assert made.departure.endswith("3 runs of each instead of 60")
    assert made.settings["epochs"] == "50 (full: 100)"
    assert made.command == ("pollux reproduce outliers --profile quick --runs 3 --set epochs=50 --out 'my results'")
    assert made.command in render_markdown(made)


def test_failures_warnings_versions_and_time_are_told() -> None:
    experiment = EXPERIMENTS["moons"]
    records = [replace(record, warnings=["UserWarning: odd"]) for record in made_up_records("moons", "quick")]
    failure = Failure(ExperimentTask(records[0].run), "ValueError: no luck")
    made = report_on(experiment, experiment.protocols["quick"], records, Request(["moons"]), [failure])
    for text in (render_markdown(made), render_page(made), in_terminal(made, 300)):
        plain = text.replace("\\", "")
        assert "seed=0: ValueError: no luck" in plain
        assert "UserWarning: odd (12 runs)" in plain
        assert "12 of 12 runs recorded · 18.0 s" in plain
    assert "| pollux | 0.1.0 |" in render_markdown(made)


def test_pictures_are_linked_from_markdown_and_within_the_page(tmp_path: Path) -> None:
    made = replace(report("moons"), pictures=[Picture("What <it> shows", b"png", "figures/moons-a.png")])
    assert "](figures/moons-a.png)" in render_markdown(made)
    assert "data:image/png;base64,cG5n" in render_page(made)
    assert "What &lt;it&gt; shows" in render_page(made)


def test_files_are_replaced_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_report(report("categorical"), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["categorical.html", "categorical.md"]
    before = paths[0].read_text()

    def fails(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="full"):
        write_report(report("categorical", "quick"), tmp_path)
    assert paths[0].read_text() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["categorical.html", "categorical.md"]

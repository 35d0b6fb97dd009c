"""Stages of long work: what they say, where, and that nobody pays for what nobody sees."""

import io
import sys
import time

import numpy as np
import pytest

from pollux import GeminiClustering, progress
from pollux.progress import Stage, annotate, listen, show_progress, track


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that pass when a test says so; nothing is drawn meanwhile."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress._Display, "_tick", lambda self: None)
    return now


def shown_in(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_terminal_shows_what_is_done_how_far_it_is_and_how_long_it_will_take(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = shown_in(Terminal(), monkeypatch)
    with show_progress(), Stage("comparing", 4) as stage:
        clock[0] += 2
        stage.update(1, detail="so far so good")
    first, kept = terminal.getvalue().split("\r")[1], terminal.getvalue().splitlines()[-1]
    assert first.startswith("comparing 1/4  ━━━━━───────────────  so far so good  0:06 left")
    assert kept.endswith("comparing 1/4  so far so good  2.0 s")


def test_of_stages_within_stages_the_outermost_and_the_innermost_are_shown(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = shown_in(Terminal(), monkeypatch)
    with show_progress(), Stage("geometry"), Stage("between"), Stage("neighbours") as inner:
        clock[0] += 3
        inner.update(1)
    assert "\rgeometry  0:03 · neighbours  0:03" in terminal.getvalue()
    assert "between" not in terminal.getvalue()


def test_what_is_short_leaves_nothing(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = shown_in(Terminal(), monkeypatch)
    with show_progress():
        for _ in track([1, 2], "short"):
            clock[0] += 0.01
    assert terminal.getvalue() == ""


def test_a_file_has_whole_lines_and_few(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    file = shown_in(io.StringIO(), monkeypatch)
    with show_progress():
        for _ in track(range(20), "reading"):
            clock[0] += 1
    lines = file.getvalue().splitlines()
    assert "\r" not in file.getvalue()
    assert len(lines) <= 5
    assert lines[-1] == "reading 20/20  20.0 s"


def test_lines_are_no_wider_than_the_terminal(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = shown_in(Terminal(), monkeypatch)
    monkeypatch.setattr(progress, "_columns", lambda stream: 30)
    with show_progress(), Stage("a" * 100) as stage:
        clock[0] += 1
        stage.update(1)
    assert terminal.getvalue().split("\r")[1] == "a" * 29


def test_a_stage_that_was_resumed_is_timed_from_there(clock: list[float]) -> None:
    with listen(lambda stages: None), Stage("training", 10) as stage:
        stage.first = 6
        stage.update(8)
        assert "0:05 left" in stage.describe(clock[0] + 5)


def test_a_loop_that_was_left_ends_with_its_stage(clock: list[float]) -> None:
    seen: list[list[str]] = []
    with listen(lambda stages: seen.append([stage.title for stage in stages])):
        with Stage("outer"):
            left = track([1, 2], "inner")
            next(left)
        assert seen[-1] == []
        left.close()  # type: ignore[attr-defined]
        assert seen[-1] == []


def test_a_log_has_a_line_a_minute_and_none_of_what_is_short(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = shown_in(io.StringIO(), monkeypatch)
    with show_progress(every=60.0):
        with Stage("training, epoch", 10, is_kept=True) as stage:
            clock[0] += 59
            stage.update(1)
        assert not log.getvalue()
        with Stage("training, epoch", 10, is_kept=True) as stage:
            for done in range(1, 5):
                clock[0] += 30
                stage.update(done, detail="objective 0.5")
    lines = log.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == [f"training, epoch {done}/10" for done in (1, 3, 4)]
    assert "left" in lines[0]
    assert lines[-1].endswith("objective 0.5  120.0 s")
    assert log.getvalue().isprintable() or "\r" not in log.getvalue()


def test_without_anybody_looking_nothing_happens() -> None:
    with Stage("unseen", 3) as stage:
        stage.update(2)
        annotate("nothing")
        assert stage.done == 0
        assert not stage.is_shown


def test_a_live_line_moves_while_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = shown_in(Terminal(), monkeypatch)
    monkeypatch.setattr(progress, "_SHOWN_AFTER", 0.0)
    monkeypatch.setattr(progress, "_REDRAW", 0.01)
    with show_progress(), Stage("one long call"):
        while terminal.getvalue().count("\r") < 3:
            time.sleep(0.01)
    assert "one long call" in terminal.getvalue()


def test_a_stream_that_was_closed_ends_no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = shown_in(Terminal(), monkeypatch)
    with show_progress(), Stage("going on", is_kept=True):
        terminal.close()


def test_every_stage_of_a_fit_shows_itself() -> None:
    totals: dict[str, set[float | None]] = {}

    def note(stages: list[Stage]) -> None:
        for stage in stages:
            totals.setdefault(stage.title, set()).add(stage.total)

    X = np.random.default_rng(0).normal(size=(60, 3)) + np.repeat([[0, 0, 0], [9, 0, 0]], 30, axis=0)
    with listen(note):
        GeminiClustering.for_tables(2, max_epochs=2, random_state=0).fit(X)
    assert totals.keys() >= {
        *("reading samples", "scaling", "where mixtures start", "neighbours of 60 rows", "fitting mixture"),
        *("2 eigenvectors of the graph of 60 rows", "learning the start, epoch", "training, epoch", "evaluating, part"),
    }
    # How long it will be is known from the first.
    assert totals["training, epoch"] == {2}


def test_without_a_console_nothing_is_shown_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with show_progress(), Stage("unseen", is_kept=True) as stage:
        stage.update(1)
    assert not stage.is_shown

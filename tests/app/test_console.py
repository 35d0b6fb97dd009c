"""What is printed, and what happens where it cannot be: to a reader that has left, a closed stream, a full disk."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import good
from data_files import FAST, frame, pollux, write_table
from pollux.app import cli
from pollux.app.console import Console, printable

full = pytest.mark.skipif(os.environ.get("POLLUX_FAULTS") != "full", reason="make test-faults runs it")
COMMAND = Path(sys.executable).with_name("pollux")


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command of bash, whose exit code is that of pollux; what is not redirected is captured."""
    return subprocess.run(
        ["bash", "-c", command.replace("pollux ", f"{COMMAND} ") + "; exit ${PIPESTATUS[0]}"],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )


def without_reader() -> Any:
    """A stream into a pipe that nobody reads."""
    theirs, ours = os.pipe()
    os.close(theirs)
    return open(ours, "w", buffering=1)


LOST: dict[str, Callable[[], Any]] = {
    "left": without_reader,
    "closed": lambda: None,
    "full": lambda: open("/dev/full", "w", buffering=1),  # noqa: SIM115
}


def run_with(out: str, err: str, *words: object) -> int:
    """The command line in this process, with streams of these kinds; its exit code."""
    streams = LOST[out](), LOST[err]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        code = cli.main([str(word) for word in words])
    for stream in filter(None, streams):
        stream.close()
    return code


# Output that cannot be written


@pytest.mark.parametrize("out", LOST)
@pytest.mark.parametrize("err", LOST)
def test_a_training_is_not_ended_by_its_output(run: Path, out: str, err: str) -> None:
    code = run_with(out, err, "fit", run.parent / "plain.csv", *FAST, "--label", "class", "--out", "new")
    # A full disk loses something that somebody waits for.
    assert code == (2 if out == "full" else 0)
    assert json.loads(Path("new/summary.json").read_text())["epochs"] == 2
    assert Path("new/clusters.csv").read_bytes() == (run / "clusters.csv").read_bytes()


def test_rows_that_cannot_be_printed_are_not_said_to_be(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are the result: a closed or full output loses it; whoever has left has seen enough."""
    for out, code in (("closed", 2), ("full", 2), ("left", 0)):
        assert run_with(out, "closed", "predict", run, run.parent / "plain.csv") == code
        assert run_with(out, "closed", "fit", "nowhere.csv") == 2


@pytest.mark.parametrize("words", ["--version", "fit --help"])
@pytest.mark.parametrize("way", ["| true", ">&-", "<&- >&- 2>&-"])
def test_no_command_fails_because_nobody_reads(words: str, way: str) -> None:
    done = shell(f"pollux {words} {way}", PYTHONUNBUFFERED="1" if way == "| true" else "")
    assert (done.returncode, done.stderr) == (0, ""), done


def test_bad_input_has_its_exit_code_though_nobody_reads_why() -> None:
    for way in ("2>&1 | true", ">&- 2>&-"):
        assert shell(f"pollux fit nowhere.csv {way}", PYTHONUNBUFFERED="1").returncode == 2


@full
@pytest.mark.parametrize(("way", "code"), [("| true", 0), (">&- 2>&-", 0), ("> /dev/full", 2)])
def test_a_process_that_trains_is_not_ended_by_its_output(run: Path, way: str, code: int) -> None:
    options = " ".join(FAST) + " --label class"
    done = shell(f"pollux fit {run.parent / 'plain.csv'} {options} --out new {way}", PYTHONUNBUFFERED="1")
    assert done.returncode == code, done
    assert "fault" not in done.stderr
    assert Path("new/clusters.csv").read_bytes() == (run / "clusters.csv").read_bytes()


@full
def test_a_closed_output_is_not_taken_for_a_file_that_is_written(run: Path) -> None:
    """What is opened next would be given its number."""
    done = shell(f"pollux predict {run} {run.parent / 'plain.csv'} --out new.csv <&- >&- 2>&-")
    assert done.returncode == 0
    assert Path("new.csv").read_bytes() == (run / "clusters.csv").read_bytes()


# What a machine lacks


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="memory cannot be limited here")
@pytest.mark.parametrize(
    "kilobytes", [300_000, *(pytest.param(size, marks=full) for size in range(600_000, 2_400_000, 200_000))]
)
def test_too_little_memory_to_begin_is_the_limit_of_the_machine(run: Path, kilobytes: int) -> None:
    """Libraries that lack it abort the process, or raise; how much they need is not ours to know."""
    done = shell(f"ulimit -v {kilobytes}; pollux fit {run.parent / 'plain.csv'} {' '.join(FAST)} --out new")
    if done.returncode == 0 and kilobytes > 300_000:
        assert Path("new/clusters.csv").exists()
        return
    assert done.returncode == 2, done
    assert "not enough memory" in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("new").exists()


# What is printed


def test_nothing_that_is_printed_is_obeyed_by_a_terminal() -> None:
    assert printable("plain ä 中 σ\ttab") == "plain ä 中 σ\ttab"
    assert printable("\x1b]0;title\x07 \x9b2J \x7f \u202e \ud800\r\n") == (
        r"\u001b]0;title\u0007 \u009b2J \u007f \u202e \ud800\u000d\u000a"
    )


def test_no_cell_floods_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    long = "\0" * 5_000_000
    Console().echo(long)
    Console().note(long)
    printed = capfd.readouterr()
    assert max(map(len, printed)) < 200_000
    assert printed.out.endswith("…\n")


def test_names_and_values_are_printed_without_control_characters() -> None:
    data = frame().rename(columns={"size": "si\x1b[2Jze", "unit": "u\x9bnit\nnote: all is well", "colour": "co\x07l"})
    data["class"] = data["class"].map({0: "a\x1b[31m", 1: "b", 2: "c"})
    write_table(Path(), "plain.csv", data)
    answer = good("fit", "plain.csv", *FAST, "--label", "class", "--out", "new")
    assert r"si\u001b[2Jze" in answer.out
    assert r"u\u009bnit note: all is well" in answer.out
    for words in (
        ["fit", "plain.csv", *FAST, "--label", "class", "--json", "--out", "other"],
        ["fit", "plain.csv", "--columns", "si\x1b[2Jz"],
        ["fit", "pl\x1b[2Jain.csv"],
        ["report", "new", "--map", "si\x1b[2Jze,co\x07l"],
        ["fit", "plain.csv", "--no\x1b[2Jthing"],
    ):
        answer = pollux(*words)
        if answer.code == 0:
            assert json.loads(answer.out)["left_out"]["u\x9bnit\nnote: all is well"]
        for text in (answer.out, answer.err):
            assert not {"\x1b", "\x9b", "\x07"} & set(text), words
        assert answer.code in (0, 2)


def test_rows_are_printed_as_they_are_unless_a_terminal_shows_them(run: Path) -> None:
    data = frame()
    data["name"] = [f"\x1b[{row}m" for row in range(len(data))]
    write_table(Path(), "plain.csv", data)
    answer = good("predict", run, "plain.csv")
    assert "\x1b[7m" in answer.out
    ours, theirs = pty.openpty()
    with pytest.MonkeyPatch.context() as patch, open(theirs, "w") as terminal:
        patch.setattr(sys, "stdout", terminal)
        assert cli.main(["predict", str(run), "plain.csv"]) == 0
        terminal.flush()
        shown = b""
        while shown.count(b"\n") < 31:
            shown += os.read(ours, 100_000)
    os.close(ours)
    assert b"\x1b[" not in shown
    assert rb"\u001b[7m" in shown

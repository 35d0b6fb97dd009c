"""The grid runner: what is recorded is not run again, and whatever ends a grid costs little."""

from __future__ import annotations

import contextlib
import json
import multiprocessing.forkserver
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from coverings import in_full
from experiment_records import Spy, grid_of, perform_run, write_encoder
from pollux.app import cli
from pollux.lab import grid, progress
from pollux.lab.grid import Limits, Task, model_path, unfinished_path
from pollux.lab.paper import (
    EXPERIMENTS,
    cifar10,
    reproduction,
)
from pollux.lab.paper.experiment import Experiment
from pollux.lab.paper.reproduction import ExperimentTask, choose, missing_runs, recorded_runs, run_experiment
from pollux.lab.records import Record, Run
from pollux.training import Checkpoints


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def execute(experiment: Experiment, runs: Sequence[Run], folder: Path, jobs: int = 1) -> tuple[list[Record], list[Any]]:
    """What is recorded in the end, and what failed."""
    failures = run_experiment(experiment, runs, folder, Limits(jobs, 1))
    return recorded_runs(experiment, runs, folder), failures


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """In place of the progress display."""
    display = Spy()
    monkeypatch.setattr(reproduction, "progress_display", lambda name, total: contextlib.nullcontext(display))
    return display


def test_what_is_recorded_is_not_run_again(toys: Callable[..., Experiment], spy: Spy, tmp_path: Path) -> None:
    experiment, runs = toys(), grid_of("good", "other", seeds=2)
    first, _ = execute(experiment, runs[:2], tmp_path / "new", 3)
    assert [one.run for one in first] == runs[:2]
    found, failures = execute(experiment, runs, tmp_path / "new", 3)
    assert [one.run for one in found] == runs
    assert failures == []
    assert len(spy.records) == 4
    assert execute(experiment, runs, tmp_path / "new", 3) == (found, [])
    assert len((tmp_path / "new" / "toy.jsonl").read_text().splitlines()) == len(spy.records) == 4
    assert [kind for kind, _ in spy.events] == ["began", "epoch", "done"] * 4


def test_a_run_whose_model_is_gone_is_done_again(toys: Callable[..., Experiment], tmp_path: Path) -> None:
    experiment = toys(saves_model=lambda run: run.settings["kind"] == "good")
    runs = grid_of("good", "other")
    execute(experiment, runs, tmp_path)
    assert missing_runs(experiment, runs, tmp_path) == []
    assert [model_path(tmp_path, run).exists() for run in runs] == [True, False]
    model_path(tmp_path, runs[0]).unlink()
    assert missing_runs(experiment, runs, tmp_path) == runs[:1]
    found, _ = execute(experiment, runs, tmp_path)
    assert [one.run for one in found] == runs
    assert model_path(tmp_path, runs[0]).exists()


def test_runs_that_fail_stop_no_others_and_are_not_recorded(
    toys: Callable[..., Experiment], spy: Spy, tmp_path: Path
) -> None:
    experiment, runs = toys(), grid_of("bad", "good", "odd", "other")
    found, failures = execute(experiment, runs, tmp_path, 2)
    assert [one.run.settings["kind"] for one in found] == ["good", "other"]
    assert failures == spy.failures
    assert [failure.task.run for failure in failures] == [runs[0], runs[2]]
    assert failures[0].reason == "ValueError: out of [/range] ε"
    assert "in toy_measure" in failures[0].trace
    assert "TypeError" in failures[1].reason
    assert missing_runs(experiment, runs, tmp_path) == [runs[0], runs[2]]


def test_warnings_of_a_run_are_recorded(toys: Callable[..., Experiment], tmp_path: Path) -> None:
    toys()
    found = perform_run(grid_of("warns")[0], tmp_path)
    assert found.warnings == ["CollapseWarning: 2 clusters of 3"]
    assert "2 clusters of 3" in progress.describe_result(ExperimentTask(found.run), found)


@pytest.mark.parametrize("fresh", [False, True])
def test_no_more_runs_are_handed_out_than_there_are_workers(
    fresh: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    busy: set[Any] = set()
    most: list[int] = []

    class Worker:
        is_alive = True
        task: Task

        def __init__(self, *_: Any) -> None:
            self.pipe, self._far_end = multiprocessing.Pipe()
            made.append(self)

        def assign(self, task: Task) -> None:
            self.task = task
            busy.add(self)
            most.append(len(busy))
            self._far_end.send("an answer")

        def poll(self, display: Any) -> Record:
            self.pipe.recv()
            busy.remove(self)
            return Record(self.task.run, {}, 0.0)

        def end(self) -> None:
            self.pipe.close()
            self._far_end.close()

    monkeypatch.setattr(grid, "_Worker", Worker)
    tasks = [ExperimentTask(run) for run in grid_of("good", seeds=5)]
    ended = list(grid._results(tasks, tmp_path, Limits(2, 1, fresh=fresh), Spy()))
    assert sorted(record.run.seed for _, record in ended if isinstance(record, Record)) == list(range(5))
    assert max(most) == 2
    assert len(made) == (5 if fresh else 2)
    assert all(worker.pipe.closed for worker in made)


def test_what_was_made_with_something_that_is_gone_is_done_again(
    toys: Callable[..., Experiment], tmp_path: Path
) -> None:
    runs = grid_of("good", "other")
    execute(toys(), runs, tmp_path)
    experiment = toys(outdated=lambda record, folder: record.run.settings["kind"] == "other")
    assert missing_runs(experiment, runs, tmp_path) == runs[1:]
    assert [one.run for one in recorded_runs(experiment, runs, tmp_path)] == runs[:1]


def test_what_is_left_of_recorded_runs_is_removed(toys: Callable[..., Experiment], tmp_path: Path) -> None:
    runs = grid_of("good", "other", "bad")
    execute(toys(), runs[:1], tmp_path)
    left = [unfinished_path(tmp_path, run.key) for run in runs]
    for path in left:
        path.mkdir(parents=True, exist_ok=True)
    execute(toys(), runs, tmp_path)
    # A run that failed may have learned something.
    assert [path.exists() for path in left] == [False, False, True]


def test_features_of_another_encoder_are_outdated(tmp_path: Path) -> None:
    path = write_encoder(tmp_path)
    run = Run("cifar10", {"baseline": "kmeans", "geometry": "simclr"}, 0)
    now_there = Record(run, {"encoder": cifar10._digest(path)}, 1.0)
    other = Record(run, {"encoder": "another"}, 1.0)
    assert not cifar10.outdated(now_there, tmp_path)
    assert cifar10.outdated(other, tmp_path)
    assert not cifar10.outdated(Record(run, {}, 1.0), tmp_path)
    # Where there is no encoder, what was measured with one stays.
    path.unlink()
    assert not cifar10.outdated(other, tmp_path)


def test_timed_experiments_run_one_at_a_time(toys: Callable[..., Experiment], jobs: list[int], tmp_path: Path) -> None:
    runs = grid_of("good", seeds=4)
    execute(toys(timed=True), runs, tmp_path / "a", 3)
    execute(toys(), runs, tmp_path / "b", 3)
    execute(toys(), runs[:2], tmp_path / "c", 3)
    assert jobs == [1, 3, 2]
    assert EXPERIMENTS["complexity"].timed


def test_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [grid.threads_each(jobs) for jobs in (1, 2, 3, 8, 20)] == [8, 4, 2, 1, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert [grid.threads_each(jobs) for jobs in (1, 2, 8)] == [2, 2, 1]


def test_memory_is_shared_between_runs() -> None:
    assert grid.memory_each(1) == pytest.approx(2 * grid.memory_each(2))
    assert grid.memory_each(1) > 1e8


# Real processes: few, because each of them imports torch.

GRID = ("reproduce", "ova-vs-ovo", "--runs", "5", "--set", "epochs=40", "--out", "results")
RECORDS = Path("results", "ova-vs-ovo.jsonl")
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def children(parent: int) -> set[int]:
    """The processes below a process, those below these too."""
    found: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            number, _, rest = stat.read_text().partition(" (")
            state, above = rest.rpartition(") ")[2].split()[:2]
            if state not in "ZX":
                found[int(number)] = int(above)
    below = {number for number, above in found.items() if above == parent}
    return below.union(*(children(number) for number in below))


def alive(number: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{number}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    return False


def wait_until(condition: Callable[[], object], seconds: float = 300) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.02)


def recorded_keys() -> list[str]:
    """The runs of all whole lines, in the order of the file."""
    if not RECORDS.exists():
        return []
    lines = [line for line in RECORDS.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    return [Run(fields["experiment"], fields["settings"], fields["seed"]).key for fields in map(json.loads, lines)]


class Started:
    """The command in a process and a group of its own, as in a terminal; a copy of this one, which has torch."""

    def __init__(self, *words: str) -> None:
        with warnings.catch_warnings():
            # Python warns of threads, which a copy has not: this one starts processes, and computes nothing.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            code = 99
            try:
                os.setsid()
                # What it computes once all is done would wait for the threads that it has not.
                torch.set_num_threads(1)
                # The server that forks workers is this process's own.
                multiprocessing.forkserver._forkserver._forkserver_pid = None  # type: ignore[attr-defined]
                with Path("said").open("w", encoding="utf-8") as file:
                    sys.stderr = sys.stdout = file
                    for handle in (1, 2):
                        os.dup2(file.fileno(), handle)
                    code = cli.main(words)
            finally:
                os._exit(code)

    def __enter__(self) -> Started:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None:
            # The test has failed; its workers notice.
            with contextlib.suppress(OSError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)

    def ended(self) -> tuple[int, list[str]]:
        """The exit code, or minus the signal, and the lines that were said."""
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status), Path("said").read_text(encoding="utf-8").splitlines()


def command_of(number: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{number}/cmdline").read_bytes()
    return b""


def workers_of(parent: int) -> set[int]:
    """Below the server that forks them, which is a child of the program itself; libraries may start other programs."""
    below = {number for server in children(parent) for number in children(server)}
    return {number for number in below if b"multiprocessing.forkserver" in command_of(number)}


def begun_since(start: float) -> bool:
    """Whether a worker has begun a run."""
    for path in Path("results", "unfinished").glob("*/run.json"):
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            if path.stat().st_mtime > start:
                return True
    return False


@in_full
@needs_proc
def test_whatever_ends_a_grid_what_was_done_is_kept_and_the_rest_is_done_later(
    request: pytest.FixtureRequest,
) -> None:
    """Kill -9; then a worker that dies at once, and Ctrl-C; then a run to the end."""
    experiment = EXPERIMENTS["ova-vs-ovo"]
    runs = choose(["ova-vs-ovo"], "quick", [], ["epochs=40"], 5)[0][1].all_runs("ova-vs-ovo")
    with Started(*GRID, "--jobs", "2") as killed:
        wait_until(lambda: len(recorded_keys()) >= 1 or not alive(killed.pid))
        below = children(killed.pid)
        assert len(workers_of(killed.pid)) == 2
        # The program alone, not its group: whoever is left has to notice.
        os.kill(killed.pid, signal.SIGKILL)
    assert killed.ended()[0] == -signal.SIGKILL
    wait_until(lambda: not any(map(alive, below)))
    first = recorded_keys()
    assert 1 <= len(first) < len(runs)

    start = time.time()
    with Started(*GRID, "--jobs", "1") as stopped:
        # Before a worker has begun, what libraries start on import may be taken for it.
        wait_until(lambda: begun_since(start) or not alive(stopped.pid))
        (doomed,) = workers_of(stopped.pid)
        os.kill(doomed, signal.SIGKILL)
        # Another one takes its place.
        wait_until(lambda: len(recorded_keys()) > len(first) or not alive(stopped.pid))
        below = children(stopped.pid)
        assert len(workers_of(stopped.pid)) == 1
        os.killpg(stopped.pid, signal.SIGINT)
    code, lines = stopped.ended()
    assert code == 130, lines
    wait_until(lambda: not any(map(alive, below)))
    assert not any("Traceback" in line for line in lines)
    assert lines[0] == f"ova-vs-ovo: {len(runs) - len(first)} runs to do"
    (failed,) = (line for line in lines if "FAILED, its process was killed" in line)
    (lost,) = (run for run in runs if f"{run}:" in failed)
    assert all(": ARI " in line for line in lines[1:-1] if line != failed)
    assert lines[-1] == "Stopped. What has ended is recorded in results; the same command goes on from there."
    second = recorded_keys()
    assert second[: len(first)] == first
    assert len(first) < len(second) < len(runs)
    assert lost.key not in second

    request.getfixturevalue("jobs")
    spy: Spy = request.getfixturevalue("spy")
    found, _ = execute(experiment, runs, Path("results"))
    assert [one.run for one in found] == runs
    assert [one.run.key for one in spy.records] == [run.key for run in runs if run.key not in second]
    third = recorded_keys()
    assert third[: len(second)] == second
    assert len(third) == len(set(third)) == len(runs)
    # A run is the same, wherever it is done.
    one = found[runs.index(next(run for run in runs if run.key in first))]
    assert perform_run(one.run, Path("elsewhere")).metrics == one.metrics


@in_full
@needs_proc
def test_a_run_that_is_killed_goes_on_from_its_checkpoint_to_the_same_record(request: pytest.FixtureRequest) -> None:
    """Kill -9 in the middle of a run: what is left of it is done, not all, and no bit of the metrics differs."""
    words = ["ova-vs-ovo", "--runs", "1", "--set", "epochs=1000", "--only", "objective=mmd_ovo"]
    command = ["reproduce", *words, "--jobs", "1", "--checkpoint-every", "20 epochs"]
    (run,) = choose(["ova-vs-ovo"], "quick", ["objective=mmd_ovo"], ["epochs=1000"], 1)[0][1].all_runs("ova-vs-ovo")
    folder = unfinished_path(Path("results"), run.key)
    with Started(*command) as killed:
        wait_until(lambda: len(list(folder.glob("fit/checkpoint-*[1-9]?.safetensors"))) or not alive(killed.pid))
        below = children(killed.pid)
        os.kill(killed.pid, signal.SIGKILL)
    assert killed.ended()[0] == -signal.SIGKILL
    wait_until(lambda: not any(map(alive, below)))
    assert not recorded_keys()
    done = Checkpoints(folder / "fit").epochs_done()
    assert 100 < done < 1000
    before = json.loads((folder / "run.json").read_text())

    request.getfixturevalue("jobs")
    request.getfixturevalue("monkeypatch").setattr(grid, "_SECONDS_BETWEEN_NEWS", -1.0)
    spy: Spy = request.getfixturevalue("spy")
    (found,), _ = execute(EXPERIMENTS["ova-vs-ovo"], [run], Path("results"))
    assert spy.epochs == list(range(done + 1, 1001))
    assert found.seconds > before["seconds"]
    assert not Path("results", "unfinished").exists()
    assert perform_run(run, Path("elsewhere")).metrics == found.metrics

"""From a request to tables and figures: choose sets and methods, do the runs that lack, show them all."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pollux.errors import InputError
from pollux.io.atomic import write_text
from pollux.lab.experiments import records
from pollux.lab.experiments.experiment import Record
from pollux.lab.experiments.rendering.account import Picture
from pollux.lab.experiments.rendering.writing import WITHOUT_PICTURES, write_figure
from pollux.lab.experiments.reproducing import check_folder
from pollux.lab.experiments.running import cores, threads_each
from pollux.lab.quality.choosing import choose_methods, choose_sets
from pollux.lab.quality.drawing import figures_of
from pollux.lab.quality.measuring import NAME, Task, recorded_as
from pollux.lab.quality.methods import METHODS, Method
from pollux.lab.quality.progress import display
from pollux.lab.quality.rendering import Account, markdown, page, show
from pollux.lab.quality.running import Failure, Limits, execute, is_done, memory_each
from pollux.lab.quality.sets import DataSet
from pollux.lab.quality.summary import Board, board_of

SEEDS, TIMEOUT, OUT = 5, 1200.0, "results/quality"


@dataclass(frozen=True)
class Request:
    """What the command line asks for.

    Parameters
    ----------
    folders : sequence of path
        Folders of .npz sets; none: the sets on this machine.
    sets, methods : sequence of str
        Names; none: all.
    seeds : int
        0 … seeds − 1 are run of each method that has randomness.
    jobs : int, optional
        Runs at a time; by default one a core.
    timeout : float
        Seconds after which a run is given up.
    out : path
        The folder of the results.
    show : bool
        Run nothing, show what is recorded.
    anew : sequence of str
        Methods whose runs are done again though they are recorded.
    """

    folders: Sequence[str | Path] = ()
    sets: Sequence[str] = ()
    methods: Sequence[str] = ()
    seeds: int = SEEDS
    jobs: int | None = None
    timeout: float = TIMEOUT
    out: str | Path = OUT
    show: bool = False
    anew: Sequence[str] = ()


def compare(request: Request) -> list[Failure]:
    """Run and show the comparison; the runs that failed."""
    _check(request)
    folder = Path(request.out)
    if request.show:
        found = recorded(request)
        if not found:
            raise InputError(f"Nothing of this is recorded in {folder}. To run it, leave --show out.")
        publish(Account(board_of(found), found, command(request)), folder)
        return []
    methods, notes = choose_methods(request.methods)
    sets, further = choose_sets(request.folders, request.sets)
    tasks = all_tasks(sets, methods, request.seeds)
    path = record_path(folder)
    known = records.read(path)
    limits = _limits(request)
    folder.mkdir(parents=True, exist_ok=True)
    waiting = _waiting(tasks, known, path, limits, request.anew)
    failures: list[Failure] = []
    if waiting:
        with display(len(waiting)) as watcher:
            failures = execute(waiting, path, limits, watcher)
    known = records.read(path)
    found = [known[task.run.key] for task in tasks if task.run.key in known]
    told = [f"{failure.task}: {failure.reason}" for failure in failures]
    if found:
        publish(Account(board_of(found), found, command(request), [*notes, *further], told), folder)
    return failures


def _check(request: Request) -> None:
    """Complain of what is wrong before anything is run or written."""
    for option, number in (("--seeds", request.seeds), ("--jobs", request.jobs), ("--timeout", request.timeout)):
        if number is not None and not (number > 0 and math.isfinite(number)):
            raise InputError(f"{option} is a positive number, not {number}.")
    if not str(request.out):
        raise InputError("--out names no folder.")
    check_folder(Path(request.out))
    path = record_path(Path(request.out))
    if path.exists() and not (path.is_file() and os.access(path, os.W_OK)):
        raise InputError(f"Nothing can be recorded in {path}: name another folder by --out.")
    choose_methods(request.anew)


def record_path(folder: Path) -> Path:
    """Where the runs are recorded."""
    return folder / f"{NAME}.jsonl"


def all_tasks(sets: Sequence[DataSet], methods: Sequence[Method], seeds: int) -> list[Task]:
    """All runs: the first seed of each first, and small sets before large ones, so that much is soon seen."""
    by_size = sorted(sets, key=lambda data: data.rows * data.columns)
    return [
        Task(data, method, seed)
        for seed in range(seeds)
        for data in by_size
        for method in methods
        if seed == 0 or method.is_random
    ]


def _limits(request: Request) -> Limits:
    jobs = request.jobs or cores()
    return Limits(jobs, threads_each(jobs), request.timeout)


def _waiting(
    tasks: Sequence[Task], known: dict[str, Record], path: Path, limits: Limits, anew: Sequence[str]
) -> list[Task]:
    """The runs that are to be done; why others cannot be done is recorded."""
    memory = memory_each(limits.jobs)
    waiting = []
    for task in tasks:
        refusal = task.method.refuses(task.data, memory)
        record = known.get(task.run.key)
        if is_done(record, refusal, limits.timeout) and task.method.name not in anew:
            continue
        if not refusal:
            waiting.append(task)
        elif record is None:
            records.append(path, recorded_as(task, {"skipped": refusal}))
    return waiting


def recorded(request: Request) -> list[Record]:
    """What is recorded of the sets and methods that are asked for; of all, where none are named."""
    names = [*request.sets]
    if request.folders:
        names = [data.name for data in choose_sets(request.folders, request.sets)[0]]
    for name in request.methods:
        if name not in METHODS:
            choose_methods([name])
    return [
        record
        for record in records.read(record_path(Path(request.out))).values()
        if (not names or record.run.settings["set"] in names)
        and (not request.methods or record.run.settings["method"] in request.methods)
    ]


def command(request: Request) -> str:
    """The command line that shows or does the same."""
    words = ["pollux", "bench", "quality", *map(str, request.folders)]
    for option, names in (("--sets", request.sets), ("--methods", request.methods)):
        words += [option, *names] if names else []
    words += [] if request.seeds == SEEDS else ["--seeds", str(request.seeds)]
    words += [] if request.timeout == TIMEOUT else ["--timeout", f"{request.timeout:g}"]
    words += [] if str(request.out) == OUT else ["--out", str(request.out)]
    words += ["--show"] if request.show else []
    return shlex.join(words)


def publish(account: Account, folder: Path) -> None:
    """Draw and write all that the folder records, and print what was asked for."""
    whole = with_the_rest(account, folder)
    pictures, notes = drawn(whole.board, folder)
    whole = dataclasses.replace(whole, pictures=pictures, notes=[*whole.notes, *notes])
    texts = {folder / f"{NAME}.md": markdown(whole), folder / f"{NAME}.html": page(whole)}
    # Files first: they are there even if what the terminal is piped into stops reading.
    for path, text in texts.items():
        write_text(path, text)
    show(dataclasses.replace(account, notes=[*account.notes, *notes]), Console(highlight=False))
    for path in texts:
        print(f"written: {path}", file=sys.stderr)


def with_the_rest(account: Account, folder: Path) -> Account:
    """The same of all that the folder records, so that a narrow question makes no page narrower."""
    asked = {record.run.key for record in account.records}
    others = [record for key, record in records.read(record_path(folder)).items() if key not in asked]
    if not others:
        return account
    # Of files and versions the last counts: those that were asked for.
    found = [*others, *account.records]
    return Account(board_of(found), found, command(Request(out=folder, show=True)), failures=account.failures)


def drawn(board: Board, folder: Path) -> tuple[list[Picture], list[str]]:
    """The figures, drawn into the folder of the results; where they cannot be drawn, a note says why."""
    try:
        return [write_figure(figure, folder, f"{NAME}-{name}") for name, figure in figures_of(board).items()], []
    except ImportError:
        return [], [WITHOUT_PICTURES]

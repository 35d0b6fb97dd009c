"""What an experiment is: a grid of settings, how one of its runs is done, and what the paper says of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pollux.clustering import GeminiClustering
from pollux.lab.experiments.tables import Table
from pollux.lab.unfinished import UnfinishedRun
from pollux.training import Callback

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Settings: TypeAlias = Mapping[str, Any]
"""What tells the runs of a grid apart, apart from their seeds: names, numbers and booleans."""


@dataclass(frozen=True)
class Run:
    """One run of an experiment: its settings and the seed of its randomness."""

    experiment: str
    settings: Settings
    seed: int

    @property
    def key(self) -> str:
        """A short name, the same for the same run."""
        text = json.dumps([self.experiment, dict(self.settings), self.seed], sort_keys=True)
        return f"{self.experiment}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    def __str__(self) -> str:
        told = " ".join(f"{name}={value}" for name, value in self.settings.items())
        return f"{self.experiment} {told} seed={self.seed}"


@dataclass(frozen=True)
class Record:
    """A run that was done, and what was measured."""

    run: Run
    metrics: Mapping[str, Any]
    seconds: float
    versions: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    finished: str = ""


@dataclass(frozen=True)
class RunContext:
    """What a run may use: the folder of the results, a place for a model that figures will need, callbacks, and
    checkpoints from which it is continued after a kill."""

    folder: Path
    model_path: Path | None = None
    callbacks: Sequence[Callback] = ()
    unfinished: UnfinishedRun | None = None

    def training(self, name: str = "fit") -> dict[str, Any]:
        """Parameters of each estimator that the run fits: its callbacks, and checkpoints under a name of their own."""
        checkpoint = None if self.unfinished is None else self.unfinished.checkpoint(name)
        return {"callbacks": list(self.callbacks), "checkpoint": checkpoint}

    def keep(self, clustering: GeminiClustering) -> None:
        """Keep the model, if figures need it."""
        if self.model_path is not None:
            self.model_path.parent.mkdir(parents=True, exist_ok=True)
            clustering.save(self.model_path)


Measure: TypeAlias = Callable[[Settings, int, RunContext], Mapping[str, Any]]
"""Do the run of these settings and seed, and return its metrics."""


@dataclass(frozen=True)
class Protocol:
    """A grid of settings and how often each is run; ``remark`` says how it differs from the paper's."""

    grid: Sequence[Settings]
    runs: int
    remark: str = ""

    def restricted(
        self, only: Mapping[str, Sequence[Any]], other: Settings | None = None, runs: int | None = None
    ) -> Protocol:
        """The part of the grid that has one of the values of each setting in ``only``; with other values and runs."""
        grid = [
            # What a setting does not have, such as the epochs of k-means, it does not get.
            {name: (other or {}).get(name, value) for name, value in settings.items()}
            for settings in self.grid
            if all(name in settings and settings[name] in values for name, values in only.items())
        ]
        # Settings that only differed in what has another value now are the same.
        distinct = {json.dumps(settings, sort_keys=True): settings for settings in grid}
        return Protocol(list(distinct.values()), self.runs if runs is None else runs, self.remark)

    def all_runs(self, experiment: str) -> list[Run]:
        """All runs of the grid, the first seed of each setting first, so that each cell is soon seen."""
        return [
            Run(experiment, settings, seed)
            for seed in range(self.runs)
            for settings in self.grid
            # What has no randomness is run once.
            if seed == 0 or not settings.get("deterministic", False)
        ]


@dataclass(frozen=True)
class Experiment:
    """An experiment of the paper.

    Parameters
    ----------
    name, title, place : str
        Its name on the command line, what it is about, and where in the paper it is.
    protocols : mapping
        ``"quick"`` and ``"paper"``: what is run.
    measure : callable
        Does one run.
    tables : callable
        From the records to the tables that stand beside the paper's.
    figures : callable, optional
        From the records, and the folder of the models that they kept, to figures by name.
    keeps_model : callable
        Whether a run keeps its model: then it is done again where the file is gone.
    outdated : callable
        Whether a record, in the folder of the results, was made with something that is no longer there.
    data : sequence of str
        Image data sets that it needs.
    check : callable
        Raises an InputError if runs that are to be done lack something else, which the folder of the results ought to
        hold.
    timed : bool
        Whether it measures time: then runs are done one at a time.
    conclusion : callable, optional
        From the records to lines that say whether what the paper found was found here.
    """

    name: str
    title: str
    place: str
    protocols: Mapping[str, Protocol]
    measure: Measure
    tables: Callable[[Sequence[Record]], Sequence[Table]]
    figures: Callable[[Sequence[Record], Path], Mapping[str, Figure]] | None = None
    keeps_model: Callable[[Run], bool] = lambda run: False
    outdated: Callable[[Record, Path], bool] = lambda record, folder: False
    data: Sequence[str] = ()
    check: Callable[[Sequence[Run], Path], None] = lambda runs, folder: None
    timed: bool = False
    conclusion: Callable[[Sequence[Record]], Sequence[str]] | None = None


def is_first_run(run: Run) -> bool:
    """Whether it is the run that figures show, of the many of its settings."""
    return run.seed == 0


def model_path(folder: Path, run: Run) -> Path:
    """Where the model of a run is kept."""
    return folder / "models" / f"{run.key}.safetensors"

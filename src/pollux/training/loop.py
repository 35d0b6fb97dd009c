"""The training loop: epochs of steps, their metrics, and when to stop.

It knows nothing of clustering: a step is anything that returns an objective to be maximised, and outputs from which
metrics are computed. Clustering, pretraining on labels and self-supervised pretraining all use it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from pollux.errors import InputError, warn
from pollux.progress import Stage
from pollux.ranks import Ranks
from pollux.threads import Contention, DrawFrom, threads_for
from pollux.training.batches import Batches
from pollux.training.callbacks import Callback, Epoch, describe_metrics
from pollux.training.checkpoints import Checkpoints, CheckpointSchedule
from pollux.training.session import load_random_states, random_states
from pollux.training.steps import NotFiniteError, Step
from pollux.training.trainable import Trainable

# The objective is checked to be finite after this many steps, if an epoch has more.
_CHECKED_EVERY = 1_000
# Maximum number of epochs of a single step that run in one call; early calls have fewer, so that little is lost if
# they fail.
_EPOCHS_AT_ONCE = 20
# Every so many epochs, a training with checkpoints drops what an objective has cached about batches, since one that is
# resumed does not have it.
_REMEMBERED_EPOCHS = 50

Schedule: TypeAlias = Callable[[int, float], float]
SCHEDULES: dict[str, Schedule] = {
    "constant": lambda max_epochs, epochs: 1.0,
    # Decays slowly at both ends.
    "cosine": lambda max_epochs, epochs: (1 + math.cos(math.pi * min(epochs / max_epochs, 1.0))) / 2,
}
"""Factors of the learning rate after ``epochs`` of ``max_epochs``; ``epochs`` need not be whole."""


class NumericalWarning(RuntimeWarning):
    """Training stopped because the objective was no longer finite; the last good weights were kept."""


def warn_not_finite() -> None:
    """Warn that the last good weights of a training were restored."""
    warn(
        "The objective or the weights were no longer finite: training stopped, and the last good weights were kept. A "
        "smaller learning rate or scaled data may help.",
        NumericalWarning,
    )


class TrainingResult(NamedTuple):
    """The outcome of a training.

    Attributes
    ----------
    history : History
        The metrics of its epochs.
    restore : callable
        Restores the last good weights.
    interrupted : bool
        Whether a callback suppressed an exception, such as Ctrl-C.
    stopped : bool
        Whether it was asked to stop; it can be resumed from its checkpoint.
    diverged : bool
        Whether the objective became NaN or infinite.
    ended_by_callback : bool
        Whether a callback returned True.
    """

    history: History
    restore: Callable[[], None]
    interrupted: bool = False
    stopped: bool = False
    diverged: bool = False
    ended_by_callback: bool = False


def train(
    model: Trainable,
    step: Step,
    batches: Batches,
    *,
    max_epochs: int,
    tol: float = 1e-4,
    patience: int | None = None,
    callbacks: Sequence[Callback] = (),
    generator: torch.Generator | None = None,
    noise: torch.Generator | None = None,
    default_generator: torch.Generator | None = None,
    ranks: Ranks | None = None,
    checkpoints: Checkpoints | None = None,
    schedule: str | Schedule = "constant",
    before: int = 0,
    title: str = "training",
) -> TrainingResult:
    """Train the model by steps on batches, for at most ``max_epochs``.

    Parameters
    ----------
    model, step, batches
        The model, its training step, and its data.
    max_epochs : int
        Maximum number of epochs.
    tol, patience
        With ``patience``, training ends after so many epochs in which no objective rose by the relative amount ``tol``.
    callbacks : sequence of callable
        Called after each epoch, see :mod:`pollux.training.callbacks`. One that suppresses an exception, such as Ctrl-C,
        ends the training with the weights of the last whole epoch.
    generator, noise : torch.Generator, optional
        For the order of batches, and for random numbers that differ between processes.
    default_generator : torch.Generator, optional
        Replaces torch's global generator in layers that draw random numbers, such as dropout.
    ranks : Ranks, optional
        The processes that train together.
    checkpoints : Checkpoints, optional
        The training resumes from the last checkpoint, and writes more.
    schedule : str or callable
        Name or function of the schedule of the learning rate, see :data:`SCHEDULES`.
    before : int
        Epochs of earlier rounds, which callbacks see counted.
    title : str
        Title of the progress display, before the number of the epoch.
    """
    generators = {"generator": generator, "noise": noise, "torch": default_generator}
    state = TrainingState(model, step, batches, tol, patience, generators, ranks, before)
    saving = None if checkpoints is None else CheckpointSchedule(state, checkpoints, ranks)
    if state.epochs > max_epochs:
        raise InputError(
            f"The training in the checkpoints has had {before + state.epochs} epochs already, more than "
            f"{before + max_epochs}: ask for at least as many, or name another folder."
        )
    if state.epochs == max_epochs and state.position:
        # The checkpoint is beyond max_epochs; a longer training can still be resumed from it.
        state.to_last_epoch()
        saving = None
    factor = None if schedule == "constant" else SCHEDULES[schedule] if isinstance(schedule, str) else schedule
    watchers = [callback.after_step for callback in callbacks if hasattr(callback, "after_step")]
    draws = contextlib.nullcontext() if default_generator is None else DrawFrom(default_generator)
    model.train()
    interrupted, stopped, diverged, ended = True, False, False, False
    with contextlib.ExitStack() as stack:
        stack.enter_context(threads_for(model.modules[0], len(model.modules) * batches.batch_size))
        contention = Contention(model.modules[0])
        for callback in callbacks:
            if isinstance(callback, contextlib.AbstractContextManager):
                stack.enter_context(callback)
        shown = stack.enter_context(Stage(f"{title}, epoch", before + max_epochs, is_kept=True))
        shown.first = before + state.epochs
        is_watched = bool(callbacks) or shown.is_shown or saving is not None or ranks is not None
        while state.epochs < max_epochs and not (state.is_over or diverged or stopped or ended):
            at_once = 1 if is_watched else min(state.epochs_at_once(), max_epochs - state.epochs)
            if at_once > 1:
                diverged = _run_epochs(state, draws, max_epochs, factor, at_once)
                continue
            diverged, stopped = _run_epoch(state, draws, max_epochs, generator, saving, factor, watchers, shown)
            if diverged or stopped:
                break
            contention.check()
            answers = []
            if callbacks or shown.is_shown:
                epoch = Epoch(before + state.epochs, before + max_epochs, state.history.best_of_last())
                shown.update(epoch.number, detail=describe_metrics(epoch))
                # Call all of them, even if an earlier one asks to stop.
                answers = [bool(callback(epoch)) for callback in callbacks]
            # If one process ends, all do.
            ended = any(answers) if ranks is None else bool(ranks.maximum(torch.tensor(int(any(answers)))))
            stopped = saving is not None and saving.after_epoch(is_last=state.epochs == max_epochs)
        interrupted = False
    if interrupted and ranks is not None:
        raise InputError(
            "An exception that one of several processes has swallowed would leave the others waiting: use checkpoints, "
            "and set their stop_requested."
        )
    if interrupted:
        state.to_last_epoch()
    elif saving is not None and not (stopped or diverged):
        saving.end()
    model.train(False)
    model.sync()
    return TrainingResult(state.history, state.guard.restore, interrupted, stopped, diverged, ended)


def _run_epoch(
    state: TrainingState,
    draws: contextlib.AbstractContextManager[None],
    max_epochs: int,
    generator: torch.Generator | None,
    saving: CheckpointSchedule | None,
    factor: Schedule | None,
    watchers: Sequence[Callable[[float, int], None]],
    shown: Stage,
) -> tuple[bool, bool]:
    """Run the rest of an epoch; returns whether it diverged, and whether it was asked to stop."""
    step, metrics, n_batches = state.step, state.metrics, state.batches.n_batches
    most = step.steps_at_once(state.batches.batch_size)
    if saving is not None:
        # A checkpoint may be due after any step, so steps are taken one by one.
        most = min(most, 1)
    for batch, steps in state.batches.groups(generator, state.position, most):
        if factor is not None:
            done = [state.epochs + (0 if n_batches is None else (state.position + i) / n_batches) for i in range(steps)]
            step.scale_learning_rate(*(factor(max_epochs, each) for each in done))
        with draws:
            result = step(batch)
        metrics.update(*result)
        state.position += steps
        if n_batches is not None and (watchers or shown.is_shown):
            epochs = state.before + state.epochs + state.position / n_batches
            shown.update(epochs)
            for watcher in watchers:
                watcher(epochs, state.before + max_epochs)
        if state.position % _CHECKED_EVERY == 0 and not state.guard.passes(metrics.mean_since_last()):
            return state.give_up(), False
        if saving is not None and saving.after_step():
            return False, True
    if not state.end_epoch():
        return state.give_up(), False
    if saving is not None and state.epochs % _REMEMBERED_EPOCHS == 0:
        state.batches.forget()
    return False, False


def _run_epochs(
    state: TrainingState,
    draws: contextlib.AbstractContextManager[None],
    max_epochs: int,
    factor: Schedule | None,
    epochs: int,
) -> bool:
    """Run several epochs of a single step each in one call; returns whether they diverged."""
    if factor is not None:
        state.step.scale_learning_rate(*(factor(max_epochs, state.epochs + i) for i in range(epochs)))
    with draws:
        result = state.step(state.batches.repeat(epochs))
    return not state.end_epochs(state.metrics.of_epochs(*result)) and state.give_up()


class TrainingState:
    """All that changes during a training, which is what a checkpoint holds.

    Parameters
    ----------
    model, step, batches, tol, patience, ranks, before
        See :func:`train`.
    generators : mapping
        Its random generators, by name.
    """

    def __init__(
        self,
        model: Trainable,
        step: Step,
        batches: Batches,
        tol: float,
        patience: int | None,
        generators: Mapping[str, torch.Generator | None],
        ranks: Ranks | None,
        before: int = 0,
    ) -> None:
        self.model, self.step, self.batches, self.before = model, step, batches, before
        self.metrics = step.new_metrics()
        self.history, self.guard = History(self.metrics.names), NanGuard(model)
        self.epochs = self.position = 0
        self._tol, self._patience = tol, patience
        # The best objectives so far, and the epochs since any of them rose by the relative amount ``tol``.
        self._best: Tensor | None = None
        self._waited = 0
        self._generators, self._ranks = generators, ranks

    def end_epoch(self) -> bool:
        """Record the metrics of an epoch; returns whether its objective was finite."""
        metrics = self.metrics.compute(self._ranks)
        values = metrics["objective"]
        if self._ranks is not None:
            # Different machines may round differently: broadcasting keeps the weights of all processes equal.
            for tensor in (values, *self.model.state()):
                self._ranks.broadcast(tensor)
        if not self.guard.passes(values):
            return False
        self._count_epoch(metrics)
        self.metrics, self.position = self.step.new_metrics(), 0
        return True

    def end_epochs(self, metrics: Mapping[str, Tensor]) -> bool:
        """Record several epochs, whose metrics are (S, R); returns whether their objectives were finite."""
        values = metrics["objective"]
        if not bool(values.isfinite().any(1).all()) or not self.guard.passes(values[-1]):
            return False
        for each in zip(*metrics.values(), strict=True):
            self._count_epoch(dict(zip(metrics, each, strict=True)))
        return True

    def _count_epoch(self, metrics: Mapping[str, Tensor]) -> None:
        values = metrics["objective"]
        for name, rows in self.history.metrics.items():
            rows.append(metrics[name])
        self.epochs += 1
        if self._best is None or bool((values > self._best + self._tol * self._best.abs()).any()):
            self._best, self._waited = values if self._best is None else torch.fmax(values, self._best), 0
        else:
            self._waited += 1

    def epochs_at_once(self) -> int:
        """Number of epochs of a single step that can run in one call, within the patience."""
        if self.batches.n_batches != 1 or self.position or not self.batches.repeats:
            return 1
        most = min(self.step.steps_at_once(self.batches.batch_size), _EPOCHS_AT_ONCE, 1 + self.epochs)
        return most if self._patience is None else min(most, self._patience - self._waited)

    @property
    def is_over(self) -> bool:
        """Whether the patience is exhausted: no objective has risen for so many epochs."""
        return self._patience is not None and self._waited >= self._patience

    def give_up(self) -> bool:
        """Restore the last good weights, with a warning, or raise an error if there are none; returns True."""
        self.guard.restore(warn=self.guard.has_good)
        if not self.guard.has_good:
            raise NotFiniteError(float(self.metrics.mean()[0]))
        return True

    def to_last_epoch(self) -> None:
        """Restore the end of the last epoch, or of the last steps that were checked."""
        self.guard.to_last_checked()
        self.history.truncate(self.epochs)

    def can_be_saved(self) -> bool:
        """Whether the weights of at least one model are finite."""
        if len(self.model.modules) > 1:
            return any(
                all(bool(part.isfinite().all()) for part in parts) for parts in zip(*self.model.state(), strict=True)
            )
        return all(bool(tensor.isfinite().all()) for tensor in self.model.state() if tensor.is_floating_point())

    @property
    def remembers(self) -> bool:
        """Whether the next step depends on what an objective has cached about its batch, which no checkpoint holds."""
        return self.batches.remembers

    def state(self) -> dict[str, Any]:
        """The state as plain data and tensors, for a checkpoint."""
        metrics = self.metrics.state()
        if self._ranks is not None:
            # On the CPU, because the first process, which writes, may not have the device of this one.
            metrics = {name: value.cpu() if isinstance(value, Tensor) else value for name, value in metrics.items()}
        random = random_states(self._generators, self.model.state()[0].device)
        own = {"random": random, "metrics": metrics, "batches": self.batches.state()}
        return {
            "model": self.model.state(),
            "step": self.step.state(),
            "before": self.before,
            "epochs": self.epochs,
            "position": self.position,
            "history": self.history.state(),
            "guard": self.guard.state(),
            "patience": {"best": self._best, "waited": self._waited},
            "processes": [own] if self._ranks is None else self._ranks.gather_objects(own),
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a :meth:`state`."""
        for tensor, saved in zip(self.model.state(), state["model"], strict=True):
            tensor.copy_(saved)
        self.step.load_state(state["step"])
        self.epochs, self.position = state["epochs"], state["position"]
        device = self.model.state()[0].device
        self.history.load_state(state["history"], device)
        self.guard.load_state(state["guard"])
        best, self._waited = state["patience"]["best"], state["patience"]["waited"]
        self._best = None if best is None else best.to(device)
        own = state["processes"][0 if self._ranks is None else self._ranks.rank]
        self.batches.load_state(own["batches"])
        self.metrics.load_state(own["metrics"], device)
        rows = [row for rows in self.history.metrics.values() for row in rows] + ([] if best is None else [best])
        if ({row.numel() for row in rows} | self.metrics.widths()) - {len(self.model.modules)}:
            raise ValueError("metrics are of another number of models")
        load_random_states(own["random"], self._generators, device)


class History:
    """Metrics by name, one row per epoch and one column per model: (epochs, R)."""

    def __init__(self, names: Iterable[str]) -> None:
        self.metrics: dict[str, list[Tensor]] = {name: [] for name in names}

    def __len__(self) -> int:
        return min(map(len, self.metrics.values()))

    def truncate(self, epochs: int) -> None:
        """Drop all but the first ``epochs``."""
        for rows in self.metrics.values():
            del rows[epochs:]

    def best_of_last(self) -> dict[str, float]:
        """The metrics of the last epoch, for the model with the highest objective in it."""
        best = int(self.metrics["objective"][-1].nan_to_num(-float("inf")).argmax())
        return {name: rows[-1][best].item() for name, rows in self.metrics.items()}

    def of_model(self, r: int) -> dict[str, list[float]]:
        """The metrics of model r, by name."""
        return {name: torch.stack(rows)[:, r].tolist() if rows else [] for name, rows in self.metrics.items()}

    def state(self) -> dict[str, Tensor | None]:
        """The state for a checkpoint."""
        return {name: torch.stack(rows) if rows else None for name, rows in self.metrics.items()}

    def load_state(self, state: Mapping[str, Tensor | None], device: torch.device | str = "cpu") -> None:
        """Restore a :meth:`state`."""
        for name, rows in state.items():
            self.metrics[name] = [] if rows is None else list(rows.to(device).unbind(0))


class NanGuard:
    """Keeps the last good weights, in case the objective becomes NaN or infinite.

    Weights are good once steps that began with them had a finite objective.
    """

    def __init__(self, model: Trainable) -> None:
        self._model = model
        self._candidate = self._good = self._copy()
        self.has_good = False

    def _copy(self) -> list[Tensor]:
        return [tensor.detach().clone() for tensor in self._model.state()]

    def passes(self, values: Tensor) -> bool:
        """Whether the steps since the last call had a finite objective (R,) for at least one model."""
        if not bool(values.isfinite().any()):
            return False
        self._good, self._candidate, self.has_good = self._candidate, self._copy(), True
        return True

    def to_last_checked(self) -> None:
        """Restore the weights of the last call of :meth:`passes` that was successful."""
        self._load(self._candidate)

    def restore(self, warn: bool = True) -> None:
        """Restore the last good weights."""
        self._load(self._good)
        if warn:
            warn_not_finite()

    @torch.no_grad()
    def _load(self, weights: list[Tensor]) -> None:
        for tensor, saved in zip(self._model.state(), weights, strict=True):
            tensor.copy_(saved)
        self._model.sync()

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint; weights that equal those of the model are not stored twice."""
        same = all(torch.equal(*pair) for pair in zip(self._candidate, self._model.state(), strict=True))
        alike = all(torch.equal(*pair) for pair in zip(self._candidate, self._good, strict=True))
        return {
            "good": None if alike else self._good,
            "candidate": None if same else self._candidate,
            "has_good": self.has_good,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restore a :meth:`state`; the model must have its weights already."""
        own = self._copy()
        candidate, good = (
            None if state[name] is None else [saved.to(now.device) for saved, now in zip(state[name], own, strict=True)]
            for name in ("candidate", "good")
        )
        for weights in filter(None, (candidate, good)):
            if [tensor.shape for tensor in weights] != [tensor.shape for tensor in own]:
                raise ValueError("good weights are of other shapes")
        self._candidate = candidate or own
        self._good = good or self._candidate
        self.has_good = state["has_good"]

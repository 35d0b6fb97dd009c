"""The training loop: epochs of steps, their metrics, and when to stop.

It knows nothing of clustering: a step is anything that returns an objective to be raised, and what metrics are computed
from. Clustering, the start at labels and self-supervised pretraining use it alike.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pollux.errors import InputError
from pollux.ranks import Ranks
from pollux.threads import threads_for
from pollux.training.batches import Batches
from pollux.training.callbacks import Callback, Epoch
from pollux.training.checkpoints import Checkpoints, CheckpointSchedule, load_random_states, random_states
from pollux.training.steps import Step
from pollux.training.trainable import Trainable

# Steps after which the objective is checked to be finite, where an epoch has more.
_CHECKED_EVERY = 1_000
# Epochs after which a training with checkpoints forgets what an objective has learned about batches, as one that is
# resumed does.
_REMEMBERED_EPOCHS = 50
_PENDING_ROWS = 10_000

Schedule = Callable[[float], float]
SCHEDULES: dict[str, Schedule] = {
    "constant": lambda done: 1.0,
    # Slow at both ends.
    "cosine": lambda done: (1 + math.cos(math.pi * min(done, 1.0))) / 2,
}
"""The share of the learning rate at a time between 0, the beginning of the training, and 1, its end."""


class NumericalWarning(RuntimeWarning):
    """Training stopped because the objective was no longer finite; the last good weights were kept."""


class NotFiniteError(ValueError):
    """The objective is NaN or infinite, and there are no good weights to go back to."""

    def __init__(self, value: float) -> None:
        self.value = value
        super().__init__(
            f"The objective is {value}: nothing can be learned. Either X holds values too large for this arithmetic "
            f"(scale them, for instance with StandardScaler), or the learning rate is far too large, or the kernel or "
            f"distance holds NaN, or the model itself returns NaN."
        )


def warn_not_finite() -> None:
    """Warn that a training went back to its last good weights."""
    warnings.warn(
        "The objective or the weights were no longer finite: training stopped, and the last good weights were kept. A "
        "smaller learning rate or scaled data may help.",
        NumericalWarning,
        stacklevel=3,
    )


class TrainingResult(NamedTuple):
    """How a training went.

    Attributes
    ----------
    history : History
        The metrics of its epochs.
    restore : callable
        Goes back to the last good weights.
    interrupted : bool
        Whether a callback has swallowed an exception, such as Ctrl-C.
    stopped : bool
        Whether it was asked to stop, and can be resumed from its checkpoint.
    diverged : bool
        Whether the objective was no longer finite.
    ended_by_callback : bool
        Whether a callback has returned True.
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
    ranks: Ranks | None = None,
    checkpoints: Checkpoints | None = None,
    schedule: str | Schedule = "constant",
    before: int = 0,
) -> TrainingResult:
    """Train the model by steps on batches, for at most ``max_epochs``.

    Parameters
    ----------
    model, step, batches
        What is trained, how, and on what.
    max_epochs : int
        Epochs, unless something ends the training earlier.
    tol, patience
        With ``patience``, training ends after so many epochs in which no objective has risen by the share ``tol``.
    callbacks : sequence of callable
        Called after each epoch. One that is a context manager may swallow an exception, such as Ctrl-C: the weights are
        then those of the last whole epoch.
    generator, noise : torch.Generator, optional
        Draw the order of batches, and what each process draws for itself.
    ranks : Ranks, optional
        The processes that train together.
    checkpoints : Checkpoints, optional
        The training resumes from the last one, and writes more.
    schedule : str or callable
        The share of the learning rate, see :data:`SCHEDULES`.
    before : int
        Epochs that the model has had in earlier rounds; callbacks are told their sum.
    """
    state = TrainingState(model, step, batches, tol, patience, {"generator": generator, "noise": noise}, ranks, before)
    saving = None if checkpoints is None else CheckpointSchedule(state, checkpoints, ranks)
    if state.epochs > max_epochs:
        raise InputError(
            f"The training in the checkpoints has had {before + state.epochs} epochs already, more than "
            f"{before + max_epochs}: ask for at least as many, or name another folder."
        )
    factor = None if schedule == "constant" else SCHEDULES[schedule] if isinstance(schedule, str) else schedule
    model.train()
    interrupted, stopped, diverged, ended = True, False, False, False
    with contextlib.ExitStack() as stack:
        stack.enter_context(threads_for(model.modules[0], len(model.modules) * batches.batch_size))
        for callback in callbacks:
            if isinstance(callback, contextlib.AbstractContextManager):
                stack.enter_context(callback)
        while state.epochs < max_epochs and not (state.patience.is_over or diverged or stopped or ended):
            diverged, stopped = _run_epoch(state, max_epochs, generator, saving, factor)
            if diverged or stopped:
                break
            epoch = Epoch(before + state.epochs, before + max_epochs, state.history.best_of_last())
            # Each callback is told of each epoch, also when an earlier one asks to stop.
            answers = [bool(callback(epoch)) for callback in callbacks]
            # What ends one process ends all.
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
    max_epochs: int,
    generator: torch.Generator | None,
    saving: CheckpointSchedule | None,
    factor: Schedule | None,
) -> tuple[bool, bool]:
    """The rest of an epoch; whether it has diverged, and whether it was asked to stop."""
    step, metrics, n_batches = state.step, state.metrics, state.batches.n_batches
    for batch in state.batches.epoch(generator, state.position):
        if factor is not None:
            done = state.epochs if n_batches is None else state.epochs + state.position / n_batches
            step.scale_learning_rate(factor(done / max_epochs))
        metrics.update(*step(batch))
        state.position += 1
        if state.position % _CHECKED_EVERY == 0 and not state.guard.passes(metrics.mean_since_last()):
            return state.give_up(), False
        if saving is not None and saving.after_step():
            return False, True
    if not state.end_epoch():
        return state.give_up(), False
    if saving is not None and state.epochs % _REMEMBERED_EPOCHS == 0:
        state.batches.forget()
    return False, False


class TrainingState:
    """All that changes in a training: what a checkpoint holds.

    Parameters
    ----------
    model, step, batches, tol, patience, ranks, before
        See :func:`train`.
    generators : mapping
        The sources of its random numbers, by name.
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
        self.history, self.guard, self.patience = History(step.metric_names), NanGuard(model), Patience(tol, patience)
        self.metrics = EpochMetrics()
        self.epochs = self.position = 0
        self._generators, self._ranks = generators, ranks

    def end_epoch(self) -> bool:
        """Take the metrics of an epoch whose steps are done; whether its objective was finite."""
        metrics = self.metrics.compute(self._ranks)
        values = metrics["objective"]
        if self._ranks is not None:
            # Unlike machines may differ in the last digits, and must not drift apart.
            for tensor in (values, *self.model.state()):
                self._ranks.broadcast(tensor)
        if not self.guard.passes(values):
            return False
        self.history.append(metrics)
        self.epochs += 1
        self.patience.update(values)
        self.metrics, self.position = EpochMetrics(), 0
        return True

    def give_up(self) -> bool:
        """Go back to the last good weights, with a warning, or raise an error where there are none; True."""
        self.guard.restore(warn=self.guard.has_good)
        if not self.guard.has_good:
            raise NotFiniteError(float(self.metrics.mean()[0]))
        return True

    def to_last_epoch(self) -> None:
        """Go back to the end of the last epoch, or of the last steps that were checked."""
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
        """Whether the next step depends on what an objective has learned about its batch, which no checkpoint holds."""
        return self.batches.remembers

    def state(self) -> dict[str, Any]:
        """Plain data and tensors, for a checkpoint."""
        own = {
            "random": random_states(self._generators, self.model.state()[0].device),
            # The first of several processes, which writes, may not have the device that this one is on.
            "metrics": self.metrics.state() if self._ranks is None else _on_cpu(self.metrics.state()),
            "batches": self.batches.state(),
        }
        return {
            "model": self.model.state(),
            "step": self.step.state(),
            "before": self.before,
            "epochs": self.epochs,
            "position": self.position,
            "history": self.history.state(),
            "guard": self.guard.state(),
            "patience": self.patience.state(),
            "processes": [own] if self._ranks is None else self._ranks.gather_objects(own),
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a :meth:`state`."""
        for tensor, saved in zip(self.model.state(), state["model"], strict=True):
            tensor.copy_(saved)
        self.step.load_state(state["step"])
        self.epochs, self.position = state["epochs"], state["position"]
        device = self.model.state()[0].device
        self.history.load_state(state["history"], device)
        self.guard.load_state(state["guard"])
        self.patience.load_state(state["patience"], device)
        own = state["processes"][0 if self._ranks is None else self._ranks.rank]
        self.batches.load_state(own["batches"])
        self.metrics = EpochMetrics.from_state(own["metrics"], device)
        load_random_states(own["random"], self._generators, device)


class History:
    """Metrics of each epoch by name, a row an epoch and a column a model: (epochs, R)."""

    def __init__(self, names: Iterable[str]) -> None:
        self._metrics: dict[str, list[Tensor]] = {name: [] for name in names}

    def __len__(self) -> int:
        return min(map(len, self._metrics.values()))

    def append(self, metrics: Mapping[str, Tensor]) -> None:
        """One more epoch, with the metrics (R,) of each model."""
        for name, rows in self._metrics.items():
            rows.append(metrics[name])

    def truncate(self, epochs: int) -> None:
        """Back to so many epochs."""
        for rows in self._metrics.values():
            del rows[epochs:]

    def best_of_last(self) -> dict[str, float]:
        """The metrics of the last epoch, of the model with the highest objective in it."""
        best = int(self._metrics["objective"][-1].nan_to_num(-float("inf")).argmax())
        return {name: rows[-1][best].item() for name, rows in self._metrics.items()}

    def of_model(self, r: int) -> dict[str, list[float]]:
        """The metrics of model r, by name."""
        return {name: [row[r].item() for row in rows] for name, rows in self._metrics.items()}

    def state(self) -> dict[str, Tensor | None]:
        """For a checkpoint."""
        return {name: torch.stack(rows) if rows else None for name, rows in self._metrics.items()}

    def load_state(self, state: Mapping[str, Tensor | None], device: torch.device | str = "cpu") -> None:
        """Continue from a :meth:`state`."""
        for name, rows in state.items():
            self._metrics[name] = [] if rows is None else list(rows.to(device).unbind(0))


class EpochMetrics:
    """The metrics of an epoch, gathered from its batches.

    Predictions wait until there are many: their metrics then cost a few operations, not a few a batch.
    """

    def __init__(self) -> None:
        self._values: list[Tensor] = []
        self._earlier: Tensor | None = None
        self._n_earlier = 0
        self._sums: dict[str, Tensor] = {}
        self._pending: list[Tensor] = []
        self._n_pending = self._n_seen = 0
        self._counts: Tensor | None = None
        self._entropy: Tensor | None = None

    def update(self, values: Tensor, outputs: Tensor | Mapping[str, Tensor]) -> None:
        """Objectives (…) of a batch, and predictions (…, n, K) or other metrics by name."""
        self._values.append(values)
        if not isinstance(outputs, Tensor):
            for name, value in outputs.items():
                self._sums[name] = self._sums[name] + value if name in self._sums else value
            return
        self._pending.append(outputs)
        self._n_pending += outputs.shape[-2]
        if self._n_pending >= _PENDING_ROWS:
            self._flush()

    def _flush(self) -> None:
        log_p = torch.cat(self._pending, -2).log_softmax(-1)
        log_p = log_p.reshape(-1, *log_p.shape[-2:])
        R, n, K = log_p.shape
        offsets = torch.arange(0, R * K, K, device=log_p.device)[:, None]
        counts = torch.bincount((log_p.argmax(-1) + offsets).flatten(), minlength=R * K).reshape(R, K)
        entropy = -(log_p.exp() * log_p).sum((-2, -1))
        self._counts = counts if self._counts is None else self._counts + counts
        self._entropy = entropy if self._entropy is None else self._entropy + entropy
        self._n_seen += n
        self._pending, self._n_pending = [], 0

    def mean_since_last(self) -> Tensor:
        """Mean objective (R,) of the batches since the last call, of which only the sum is kept."""
        values = torch.stack(self._values)
        total = values.sum(0)
        self._earlier = total if self._earlier is None else self._earlier + total
        self._n_earlier += len(values)
        self._values = []
        return values.mean(0).reshape(-1)

    def mean(self) -> Tensor:
        """Mean objective (R,) of all batches."""
        if self._earlier is None:
            return torch.stack(self._values).mean(0).reshape(-1)
        total = self._earlier + torch.stack(self._values).sum(0) if self._values else self._earlier
        return (total / (self._n_earlier + len(self._values))).reshape(-1)

    def compute(self, ranks: Ranks | None = None) -> dict[str, Tensor]:
        """The metrics (R,): means over batches; of predictions, the clusters in use and their mean entropy."""
        metrics = {"objective": self.mean()}
        for name, value in self._sums.items():
            mean = value / (self._n_earlier + len(self._values))
            metrics[name] = (mean if ranks is None else ranks.sum(mean) / ranks.size).reshape(-1)
        if self._pending:
            self._flush()
        if self._counts is not None and self._entropy is not None:
            counts, entropy, seen = self._counts, self._entropy, self._n_seen
            if ranks is not None:
                counts, entropy, seen = ranks.sum(counts), ranks.sum(entropy), int(ranks.sum(torch.tensor(seen)))
            metrics |= {"clusters": (counts > 0).sum(-1), "entropy": entropy / seen}
        return metrics

    def state(self) -> dict[str, Any]:
        """For a checkpoint. What waits is kept waiting: sums in another order would differ in their last digits."""
        return {
            "values": torch.stack(self._values) if self._values else None,
            "earlier": self._earlier,
            "n_earlier": self._n_earlier,
            "sums": dict(self._sums),
            "pending": torch.cat(self._pending, -2) if self._pending else None,
            "counts": self._counts,
            "entropy": self._entropy,
            "n_seen": self._n_seen,
        }

    @staticmethod
    def from_state(state: Mapping[str, Any], device: torch.device) -> EpochMetrics:
        metrics = EpochMetrics()
        there = {name: value.to(device) for name, value in state.items() if isinstance(value, Tensor)}
        metrics._values = list(there["values"].unbind(0)) if "values" in there else []
        metrics._earlier, metrics._n_earlier = there.get("earlier"), state["n_earlier"]
        metrics._sums = {name: value.to(device) for name, value in state["sums"].items()}
        if "pending" in there:
            metrics._pending, metrics._n_pending = [there["pending"]], there["pending"].shape[-2]
        metrics._counts, metrics._entropy, metrics._n_seen = there.get("counts"), there.get("entropy"), state["n_seen"]
        return metrics


class NanGuard:
    """Keeps the last good weights, for a training whose objective is no longer finite.

    Weights are good once some steps that began with them had a finite objective.
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
        """Go back to the weights of the last call that passed."""
        self._load(self._candidate)

    def restore(self, warn: bool = True) -> None:
        """Go back to the last good weights."""
        self._load(self._good)
        if warn:
            warn_not_finite()

    @torch.no_grad()
    def _load(self, weights: list[Tensor]) -> None:
        for tensor, saved in zip(self._model.state(), weights, strict=True):
            tensor.copy_(saved)
        self._model.sync()

    def state(self) -> dict[str, Any]:
        """For a checkpoint; weights that are those of the model are not stored twice."""
        same = all(torch.equal(*pair) for pair in zip(self._candidate, self._model.state(), strict=True))
        alike = all(torch.equal(*pair) for pair in zip(self._candidate, self._good, strict=True))
        return {
            "good": None if alike else self._good,
            "candidate": None if same else self._candidate,
            "has_good": self.has_good,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continue from a :meth:`state`, with a model that has its weights already."""
        own = self._copy()
        self._candidate = own if state["candidate"] is None else _like(state["candidate"], own)
        self._good = self._candidate if state["good"] is None else _like(state["good"], own)
        self.has_good = state["has_good"]


class Patience:
    """Ends a training when no model has risen by the share ``tol`` for ``patience`` epochs; None: never."""

    def __init__(self, tol: float, patience: int | None) -> None:
        self._tol, self._patience = tol, patience
        self._best: Tensor | None = None
        self._waited = 0

    @property
    def is_over(self) -> bool:
        """Whether the training ends here."""
        return self._patience is not None and self._waited >= self._patience

    def update(self, values: Tensor) -> None:
        """One more epoch, with these objectives (R,)."""
        if self._best is None or bool((values > self._best + self._tol * self._best.abs()).any()):
            self._best = values if self._best is None else torch.fmax(values, self._best)
            self._waited = 0
        else:
            self._waited += 1

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"best": self._best, "waited": self._waited}

    def load_state(self, state: Mapping[str, Any], device: torch.device | str = "cpu") -> None:
        """Continue from a :meth:`state`."""
        self._best = None if state["best"] is None else state["best"].to(device)
        self._waited = state["waited"]


def _on_cpu(state: Any) -> Any:
    if isinstance(state, Mapping):
        return {name: _on_cpu(value) for name, value in state.items()}
    return state.cpu() if isinstance(state, Tensor) else state


def _like(tensors: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    return [tensor.to(other.device) for tensor, other in zip(tensors, others, strict=True)]

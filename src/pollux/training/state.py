"""The state of a training: where it stands, its metrics so far, and its last good weights."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from pollux.ranks import Ranks
from pollux.training.batches import Batches
from pollux.training.checkpoints import load_random_states, random_states
from pollux.training.steps import Step, Trainable


class NumericalWarning(RuntimeWarning):
    """Training stopped because its numbers were no longer finite; the last good weights were kept."""


def warn_not_finite() -> None:
    """Tell that a training went back to its last good weights."""
    warnings.warn(
        "The objective or the weights were no longer finite: training stopped, and the last good weights were kept. A "
        "smaller learning rate or scaled data may help.",
        NumericalWarning,
        stacklevel=3,
    )


class NotFiniteError(ValueError):
    """The objective is NaN or infinite, and there are no good weights to go back to."""

    def __init__(self, value: float) -> None:
        self.value = value
        super().__init__(
            f"The objective is {value}: nothing can be learned. Either X holds values too large for this arithmetic "
            f"(scale them, for instance with StandardScaler), or the learning rate is far too large, or the kernel or "
            f"distance holds NaN, or the model itself returns NaN."
        )


class History:
    """Metrics of each epoch by name, a row an epoch and a column a model: (epochs, R)."""

    def __init__(self, names: Iterable[str]) -> None:
        self.metrics: dict[str, list[Tensor]] = {name: [] for name in names}

    def __len__(self) -> int:
        """Whole epochs."""
        return min(map(len, self.metrics.values()))

    def add(self, metrics: Mapping[str, Tensor]) -> None:
        """One more epoch."""
        for name, rows in self.metrics.items():
            rows.append(metrics[name])

    def cut(self, epochs: int) -> None:
        """Back to so many epochs, all of them whole."""
        epochs = min(epochs, len(self))
        for rows in self.metrics.values():
            del rows[epochs:]

    def of_model(self, r: int) -> dict[str, list[float]]:
        """The metrics of model r, by name."""
        return {name: [row[r].item() for row in rows] for name, rows in self.metrics.items()}

    def state(self) -> dict[str, Tensor | None]:
        """For a checkpoint."""
        return {name: torch.stack(rows) if rows else None for name, rows in self.metrics.items()}

    @staticmethod
    def from_state(state: Mapping[str, Tensor | None], device: torch.device | str = "cpu") -> History:
        """From a checkpoint."""
        history = History(state)
        for name, rows in state.items():
            history.metrics[name] = [] if rows is None else list(rows.to(device).unbind(0))
        return history


class TrainingState:
    """A training under way: all of it that changes, for its checkpoints.

    Parameters
    ----------
    model, step, batches
        What is trained, how, and on what.
    tol, patience
        When it is over, see :class:`Patience`.
    generators : mapping
        The sources of its random numbers, by name.
    ranks : Ranks, optional
        The processes that train together.
    before : int
        Epochs that the model has had in earlier rounds.
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
        self.history, self.guard, self.patient = History(self.metrics.names), NanGuard(model), Patience(tol, patience)
        self.position = 0
        self._generators, self._ranks = generators, ranks

    @property
    def epochs(self) -> int:
        """Whole epochs done, without those before."""
        return len(self.history)

    def is_sound(self) -> bool:
        """Whether the steps since the last call had finite objectives; the weights they began with are good then."""
        return self.guard.passes(self.metrics.stretch())

    def end_epoch(self) -> bool:
        """Take the metrics of an epoch whose steps are done; whether these were sound."""
        metrics = self.metrics.compute(self._ranks)
        values = metrics["objective"]
        if self._ranks is not None:
            # Unlike machines may differ in the last digits, and must not drift apart.
            for tensor in (values, *self.model.state()):
                self._ranks.broadcast(tensor)
        if not self.guard.passes(values):
            return False
        self.history.add(metrics)
        self.guard.epochs += 1
        self.patient.see(values)
        self.metrics, self.position = self.step.new_metrics(), 0
        return True

    def give_up(self) -> bool:
        """Go back to the last good weights, with a warning, or raise an error where there are none; True."""
        self.guard.restore(warn=self.guard.has_good)
        if not self.guard.has_good:
            raise NotFiniteError(float(self.metrics.objective()[0]))
        return True

    def to_last_epoch(self) -> None:
        """Go back to the last place where all was well."""
        self.guard.to_last_sound()
        self.history.cut(self.guard.epochs)

    def is_finite(self) -> bool:
        """Whether the weights are numbers, of at least one model."""
        if len(self.model.modules) > 1:
            return any(
                all(bool(part.isfinite().all()) for part in parts) for parts in zip(*self.model.state(), strict=True)
            )
        return all(bool(tensor.isfinite().all()) for tensor in self.model.state() if tensor.is_floating_point())

    def state(self) -> dict[str, Any]:
        """For a checkpoint: plain data and tensors."""
        # What each process has of its own.
        own = {
            "random": random_states(self._generators, self.model.state()[0].device),
            # Of several processes the first may not have the device that this one is on.
            "metrics": self.metrics.state() if self._ranks is None else _on_cpu(self.metrics.state()),
            "batches": self.batches.state(),
        }
        return {
            "model": self.model.state(),
            "step": self.step.state(),
            "before": self.before,
            "position": self.position,
            "history": self.history.state(),
            "guard": self.guard.state(),
            "patience": self.patient.state(),
            "processes": [own] if self._ranks is None else self._ranks.gather_objects(own),
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from here."""
        for tensor, kept in zip(self.model.state(), state["model"], strict=True):
            tensor.copy_(kept)
        self.step.load_state(state["step"])
        self.position = state["position"]
        device = self.model.state()[0].device
        self.history = History.from_state(state["history"], device)
        self.guard.load_state(state["guard"])
        self.patient.load_state(state["patience"], device)
        own = state["processes"][0 if self._ranks is None else self._ranks.rank]
        self.batches.load_state(own["batches"])
        self.metrics.load_state(own["metrics"], device)
        load_random_states(own["random"], self._generators, device)


class NanGuard:
    """Keeps the last good weights, for a training whose numbers are no longer finite.

    Weights are good once a stretch of steps that began with them had a finite objective.
    """

    def __init__(self, model: Trainable) -> None:
        self._model = model
        self._candidate = self._copy()
        self._good = self._candidate
        self.has_good = False
        self.epochs = 0

    def _copy(self) -> list[Tensor]:
        return [tensor.detach().clone() for tensor in self._model.state()]

    def passes(self, values: Tensor) -> bool:
        """Whether the stretch was sound for at least one model; called after each."""
        if not bool(values.isfinite().any()):
            return False
        self._good, self._candidate, self.has_good = self._candidate, self._copy(), True
        return True

    def to_last_sound(self) -> None:
        """Go back to the weights at the end of the last sound stretch."""
        self._put(self._candidate)

    @torch.no_grad()
    def _put(self, weights: list[Tensor]) -> None:
        for tensor, kept in zip(self._model.state(), weights, strict=True):
            tensor.copy_(kept)
        self._model.sync()

    def restore(self, warn: bool = True) -> None:
        """Go back to the last good weights."""
        self._put(self._good)
        if warn:
            warn_not_finite()

    def state(self) -> dict[str, Any]:
        """For a checkpoint; weights that are those of the model are not kept twice."""
        same = all(torch.equal(*pair) for pair in zip(self._candidate, self._model.state(), strict=True))
        alike = all(torch.equal(*pair) for pair in zip(self._candidate, self._good, strict=True))
        return {
            "good": None if alike else self._good,
            "candidate": None if same else self._candidate,
            "has_good": self.has_good,
            "epochs": self.epochs,
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Of a model that has its weights already."""
        own = self._copy()
        self._candidate = own if state["candidate"] is None else _like(state["candidate"], own)
        self._good = self._candidate if state["good"] is None else _like(state["good"], own)
        self.has_good, self.epochs = state["has_good"], state["epochs"]


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

    def see(self, values: Tensor) -> None:
        """One more epoch, with these objectives (R,)."""
        improved = self._best is None or bool((values > self._best + self._tol * self._best.abs()).any())
        if improved:
            self._best = values if self._best is None else torch.fmax(values, self._best)
            self._waited = 0
        else:
            self._waited += 1

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {"best": self._best, "waited": self._waited}

    def load_state(self, state: Mapping[str, Any], device: torch.device | str = "cpu") -> None:
        """As it was."""
        self._best = None if state["best"] is None else state["best"].to(device)
        self._waited = state["waited"]


def _on_cpu(state: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.cpu() if isinstance(value, Tensor) else value for name, value in state.items()}


def _like(tensors: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    return [tensor.to(other.device) for tensor, other in zip(tensors, others, strict=True)]

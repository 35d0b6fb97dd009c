"""The training loop: epochs of steps, their figures, and when to stop."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from pollux.threads import torch_on_one
from pollux.training.batches import Batches
from pollux.training.callbacks import Callback, Epoch
from pollux.training.steps import Step, Trainable

_PENDING_ROWS = 10_000
# Multiplications of a step that one core does in about a millisecond.
_SHORT_STEP = 4_000_000


class NumericalWarning(RuntimeWarning):
    """Training stopped because its numbers were no longer finite; the last good weights were kept."""


@dataclass
class History:
    """Figures of each epoch, a row an epoch and a column a model: (epochs, R)."""

    objective: list[Tensor] = field(default_factory=list)
    clusters: list[Tensor] = field(default_factory=list)
    entropy: list[Tensor] = field(default_factory=list)

    def add(self, objective: Tensor, clusters: Tensor, entropy: Tensor) -> None:
        """One more epoch."""
        self.objective.append(objective)
        self.clusters.append(clusters)
        self.entropy.append(entropy)

    def cut(self, epochs: int) -> None:
        """Back to so many epochs, all of them whole."""
        epochs = min(epochs, len(self.objective), len(self.clusters), len(self.entropy))
        for figures in (self.objective, self.clusters, self.entropy):
            del figures[epochs:]

    def of_model(self, r: int) -> dict[str, list[float]]:
        """The figures of model r, by name."""
        return {
            "objective": [float(row[r]) for row in self.objective],
            "clusters": [int(row[r]) for row in self.clusters],
            "entropy": [float(row[r]) for row in self.entropy],
        }


class Trained(NamedTuple):
    """What training leaves: its figures, the way back to the last good weights, and whether it was broken off."""

    history: History
    restore: Callable[[], None]
    broken_off: bool


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
) -> Trained:
    """Train the model by steps on batches, for at most ``max_epochs``.

    With ``patience``, training ends after that many epochs in which the objective has not risen by the
    share ``tol`` of its best value. A callback that is a context manager may swallow an exception, such as Ctrl-C: the
    weights are then those of the last whole epoch.
    """
    history = History()
    guard = Guard(model)
    patient = Patience(tol, patience)
    model.train()
    broken_off = True
    with contextlib.ExitStack() as stack:
        stack.enter_context(_threads_for(model, batches))
        for callback in callbacks:
            if isinstance(callback, contextlib.AbstractContextManager):
                stack.enter_context(callback)
        for number in range(1, max_epochs + 1):
            tally = Tally()
            for batch in batches.epoch(generator):
                tally.add(*step(batch))
            values, clusters, entropy = tally.objective(), tally.clusters(), tally.entropy()
            if not guard.passes(values):
                guard.restore(warn=bool(history.objective))
                if not history.objective:
                    raise NotFiniteError(float(values[0]))
                break
            history.add(values, clusters, entropy)
            epoch = _figures(history, number, max_epochs)
            # Each callback is told of each epoch, also when an earlier one asks to stop.
            stops = [bool(callback(epoch)) for callback in callbacks]
            if any(stops) or patient.ends(values):
                break
        broken_off = False
    if broken_off:
        guard.to_last_epoch()
        history.cut(guard.epochs)
    model.train(False)
    model.sync()
    return Trained(history, guard.restore, broken_off)


class Tally:
    """The figures of an epoch, gathered from its batches.

    Predictions wait until there are many: their figures then cost a few operations, not a few a batch.
    """

    def __init__(self) -> None:
        self._values: list[Tensor] = []
        self._pending: list[Tensor] = []
        self._rows = 0
        self._seen = 0
        self._counts: Tensor | None = None
        self._entropy: Tensor | None = None

    def add(self, logits: Tensor, values: Tensor) -> None:
        self._values.append(values)
        self._pending.append(logits)
        self._rows += logits.shape[-2]
        if self._rows >= _PENDING_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        log_p = torch.cat(self._pending, -2).log_softmax(-1)
        log_p = log_p.reshape(-1, *log_p.shape[-2:])
        R, n, K = log_p.shape
        offsets = torch.arange(0, R * K, K, device=log_p.device)[:, None]
        counts = torch.bincount((log_p.argmax(-1) + offsets).flatten(), minlength=R * K).reshape(R, K)
        entropy = -(log_p.exp() * log_p).sum((-2, -1))
        self._counts = counts if self._counts is None else self._counts + counts
        self._entropy = entropy if self._entropy is None else self._entropy + entropy
        self._seen += n
        self._pending, self._rows = [], 0

    def objective(self) -> Tensor:
        """Mean over the batches, (R,)."""
        return torch.stack(self._values).mean(0).reshape(-1)

    def clusters(self) -> Tensor:
        """Clusters that at least one sample prefers, (R,)."""
        self._flush()
        assert self._counts is not None
        return (self._counts > 0).sum(-1)

    def entropy(self) -> Tensor:
        """Mean entropy of the predictions, (R,)."""
        self._flush()
        assert self._entropy is not None
        return self._entropy / self._seen


class Guard:
    """Keeps the last good weights, for a training whose numbers are no longer finite.

    Weights are good once an epoch that began with them had a finite objective.
    """

    def __init__(self, model: Trainable) -> None:
        self._model = model
        self._candidate = self._copy()
        self._good = self._candidate
        self.epochs = 0

    def _copy(self) -> list[Tensor]:
        return [tensor.detach().clone() for tensor in self._model.state()]

    def passes(self, values: Tensor) -> bool:
        """Whether the epoch was sound for at least one model; called after each epoch."""
        if not bool(values.isfinite().any()):
            return False
        self._good, self._candidate, self.epochs = self._candidate, self._copy(), self.epochs + 1
        return True

    def to_last_epoch(self) -> None:
        """Go back to the weights at the end of the last whole epoch."""
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
            warnings.warn(
                "The objective or the weights were no longer finite: training stopped, and the last good weights "
                "were kept. A smaller learning rate or scaled data may help.",
                NumericalWarning,
                stacklevel=2,
            )


class NotFiniteError(ValueError):
    """The objective is NaN or infinite, and there are no good weights to go back to."""

    def __init__(self, value: float) -> None:
        super().__init__(
            f"The objective is {value}: nothing can be learned. Either X holds values too large for this arithmetic "
            f"(scale them, for instance with StandardScaler), or the kernel or distance holds NaN, or the model itself "
            f"returns NaN."
        )


class Patience:
    """Ends a training when no model has risen by the share ``tol`` for ``patience`` epochs; None: never."""

    def __init__(self, tol: float, patience: int | None) -> None:
        self._tol, self._patience = tol, patience
        self._best: Tensor | None = None
        self._waited = 0

    def ends(self, values: Tensor) -> bool:
        """Whether to end after an epoch with these objectives (R,)."""
        if self._patience is None:
            return False
        improved = self._best is None or bool((values > self._best + self._tol * self._best.abs()).any())
        if improved:
            self._best = values if self._best is None else torch.fmax(values, self._best)
            self._waited = 0
        else:
            self._waited += 1
        return self._waited >= self._patience


@contextlib.contextmanager
def _threads_for(model: Trainable, batches: Batches) -> Iterator[None]:
    """One thread for steps so short that sharing them out, and waiting for each other, takes longer."""
    work = sum(tensor.numel() for tensor in model.state()) * batches.batch_size
    # Weights of more than two dimensions are those of convolutions, which use each many times.
    reused = any(parameter.ndim > 2 for parameter in model.modules[0].parameters())
    with torch_on_one() if work <= _SHORT_STEP and not reused else contextlib.nullcontext():
        yield


def _figures(history: History, number: int, of: int) -> Epoch:
    values = history.objective[-1]
    best = int(values.nan_to_num(-float("inf")).argmax())
    return Epoch(
        number,
        of,
        float(values[best]),
        int(history.clusters[-1][best]),
        float(history.entropy[-1][best]),
    )

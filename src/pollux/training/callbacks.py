"""Callbacks: called after each epoch with its metrics; one that returns True ends the training.

A callback that is a context manager is entered before the first epoch and left after the last. If it swallows an
exception, training ends there with the weights of the last whole epoch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class Epoch(NamedTuple):
    """Figures of one epoch; of several restarts trained together, those of the best in that epoch."""

    number: int
    max_epochs: int
    objective: float
    clusters: int
    entropy: float


Callback = Callable[[Epoch], bool | None]


class ProgressBar:
    """A live line on the terminal: epochs, objective, clusters in use, mean entropy, time left."""

    def __enter__(self) -> ProgressBar:
        self._progress = Progress(
            TextColumn("epoch"),
            MofNCompleteColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[metrics]}"),
            TimeRemainingColumn(),
            console=Console(file=sys.stderr),
        )
        self._progress.start()
        self._task = self._progress.add_task("", total=None, metrics="")
        return self

    def __call__(self, epoch: Epoch) -> None:
        metrics = f"objective {epoch.objective:.4f}  clusters {epoch.clusters}  entropy {epoch.entropy:.3f}"
        self._progress.update(self._task, completed=epoch.number, total=epoch.max_epochs, metrics=metrics)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
        # Neither can be copied, and an estimator that is cloned copies its callbacks.
        del self._progress, self._task


class Interruptible:
    """Ctrl-C ends the training, and what was learned by then is kept; a second one is let through. Of use for one fit.

    Attributes
    ----------
    interrupted : bool
        Whether the training was ended.
    begun, in_training : bool
        Whether a training has begun, and whether one is under way.
    stop_requested : bool
        Set it to end the training after its epoch.
    """

    def __init__(self) -> None:
        self.interrupted = self.begun = self.in_training = self.stop_requested = False

    def __call__(self, epoch: Epoch) -> bool:
        """Whether to end the training here."""
        if self.stop_requested and epoch.number < epoch.max_epochs:
            self.interrupted = True
        return self.stop_requested

    def __enter__(self) -> Interruptible:
        self.begun = self.in_training = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.in_training = False
        if not isinstance(error, KeyboardInterrupt) or self.stop_requested:
            return False
        self.interrupted = self.stop_requested = True
        return True


class TensorBoard:
    """Writes the metrics of each epoch for TensorBoard (``pip install pollux[tensorboard]``).

    Parameters
    ----------
    log_dir : path
        Where the event files go.
    """

    def __init__(self, log_dir: str | Path) -> None:
        self.log_dir = log_dir

    def __enter__(self) -> TensorBoard:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError("TensorBoard is not installed: pip install 'pollux[tensorboard]'.") from error
        self._writer: Any = SummaryWriter(str(self.log_dir))
        return self

    def __call__(self, epoch: Epoch) -> None:
        for name in ("objective", "clusters", "entropy"):
            self._writer.add_scalar(name, getattr(epoch, name), epoch.number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        del self._writer

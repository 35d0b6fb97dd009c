"""Callbacks: called after each epoch with its metrics; one that returns True ends the training.

A callback with a method ``after_step(epochs, max_epochs)`` is also called after each step, or after a few that
are taken at once, with the epochs done so far.
A callback that is a context manager is entered before the first epoch and left after the last. If it swallows an
exception, training ends there with the weights of the last whole epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from pollux.progress import annotate, show_progress


class Epoch(NamedTuple):
    """Metrics of one epoch; of several restarts trained together, those of the best in that epoch."""

    number: int
    max_epochs: int
    metrics: Mapping[str, float]

    @property
    def objective(self) -> float:
        """Mean over the steps."""
        return self.metrics["objective"]

    @property
    def clusters(self) -> int:
        """Clusters that at least one sample prefers."""
        return int(self.metrics["clusters"])

    @property
    def entropy(self) -> float:
        """Mean entropy of the predictions."""
        return self.metrics["entropy"]


Callback = Callable[[Epoch], bool | None]


def describe_metrics(epoch: Epoch) -> str:
    """ "objective 0.1234  clusters 3  entropy 0.5000" and the like, on one line."""
    return "  ".join(
        f"{name} {value}" if isinstance(value, int) else f"{name} {value:.4f}" for name, value in epoch.metrics.items()
    )


class ProgressBar:
    """Shows a training on standard error: its epochs, their metrics, the time left.

    Parameters
    ----------
    describe : callable, optional
        From an :class:`Epoch` to the text that is shown; by default all metrics by name.
    """

    def __init__(self, describe: Callable[[Epoch], str] = describe_metrics) -> None:
        self._describe = describe

    def __enter__(self) -> ProgressBar:
        self._shown = ExitStack()
        self._shown.enter_context(show_progress())
        return self

    def __call__(self, epoch: Epoch) -> None:
        annotate(self._describe(epoch))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.close()
        # It cannot be copied, and an estimator that is cloned copies its callbacks.
        del self._shown


class Interruptible:
    """Ctrl-C ends the training and keeps what was learned by then; a second one is raised. Serves one fit.

    Attributes
    ----------
    interrupted : bool
        Whether the training was ended.
    stop_requested : bool
        Set it to end the training after its epoch.
    """

    def __init__(self) -> None:
        self.interrupted = self.stop_requested = False

    def __call__(self, epoch: Epoch) -> bool:
        """Whether to end the training here."""
        if self.stop_requested and epoch.number < epoch.max_epochs:
            self.interrupted = True
        return self.stop_requested

    def __enter__(self) -> Interruptible:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, KeyboardInterrupt) or self.stop_requested:
            return False
        self.interrupted = self.stop_requested = True
        return True


class TensorBoard:
    """Writes the metrics of each epoch to TensorBoard (``pip install pollux[tensorboard]``).

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
        for name, value in epoch.metrics.items():
            self._writer.add_scalar(name, value, epoch.number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        del self._writer

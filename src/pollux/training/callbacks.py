"""Callbacks: called after each epoch with its metrics; one that returns True ends the training.

A callback with a method ``after_step(epochs, max_epochs)`` is also called after each step, or after several steps
that run in one call, with the epochs done so far.
A callback that is a context manager is entered before the first epoch and left after the last. If it suppresses an
exception, training ends there with the weights of the last whole epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar, cast

from pollux.progress import annotate, show_progress


class Epoch(NamedTuple):
    """Metrics of one epoch; with several restarts trained together, those of the best in that epoch."""

    number: int
    max_epochs: int
    metrics: Mapping[str, float]

    @property
    def objective(self) -> float:
        """Mean over the steps."""
        return self.metrics["objective"]

    @property
    def clusters(self) -> int:
        """Number of clusters that are the most probable one of at least one sample."""
        return int(self.metrics["clusters"])

    @property
    def entropy(self) -> float:
        """Mean entropy of the predictions."""
        return self.metrics["entropy"]


Callback = Callable[[Epoch], bool | None]

# New in scikit-learn 1.9.
_sklearn: Any = import_module("sklearn.callback") if find_spec("sklearn.callback") else None
CallbackSupportMixin: Any = type("CallbackSupportMixin", (), {}) if _sklearn is None else _sklearn.CallbackSupportMixin
Method = TypeVar("Method", bound=Callable[..., Any])


def with_callbacks(method: Method) -> Method:
    """Decorate a fit so that scikit-learn's callbacks are ended even if it fails."""
    return method if _sklearn is None else cast(Method, _sklearn.with_callbacks(method))


class TaskCallbacks:
    """Adapter for scikit-learn callbacks that were set on an estimator: each epoch is a subtask of the fit."""

    def __init__(self, estimator: Any) -> None:
        self._estimator = estimator
        # The number of epochs is not known: restarts and patience decide.
        self._fit = estimator._init_callback_context(max_subtasks=None)
        self._fit.call_on_fit_task_begin(estimator=estimator)

    @staticmethod
    def of(estimator: Any) -> tuple[TaskCallbacks, ...]:
        """The callbacks of an estimator; empty if none were set."""
        return (TaskCallbacks(estimator),) if hasattr(estimator, "_skl_callbacks") else ()

    def __call__(self, epoch: Epoch) -> bool:
        task = self._fit.subcontext(task_name="epoch")
        task.call_on_fit_task_begin(estimator=self._estimator)
        return bool(task.call_on_fit_task_end(estimator=self._estimator))

    def end(self, X: Any, y: Any) -> None:
        """End the task of the fit to these samples."""
        self._fit.call_on_fit_task_end(estimator=self._estimator, X=X, y=y, reconstruction_attributes=dict)


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
        Function from an :class:`Epoch` to the text that is shown; by default all metrics by name.
    """

    def __init__(self, describe: Callable[[Epoch], str] = describe_metrics) -> None:
        self._describe = describe

    def __enter__(self) -> ProgressBar:
        self._shown = ExitStack()
        self._shown.enter_context(show_progress())
        return self

    def __call__(self, epoch: Epoch) -> None:
        """Show the metrics of an epoch."""
        annotate(self._describe(epoch))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.close()
        # A stage cannot be copied, and cloning an estimator copies its callbacks.
        del self._shown


class Interruptible:
    """Ctrl-C ends the training and keeps what was learned; a second one raises KeyboardInterrupt. For a single fit.

    Attributes
    ----------
    interrupted : bool
        Whether the training was ended.
    stop_requested : bool
        Set it to end the training after the current epoch.
    """

    def __init__(self) -> None:
        self.interrupted = self.stop_requested = False

    def __call__(self, epoch: Epoch) -> bool:
        """Whether to end the training after this epoch."""
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
        The folder of the event files.
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
        """Write the metrics of an epoch."""
        for name, value in epoch.metrics.items():
            self._writer.add_scalar(name, value, epoch.number)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()
        del self._writer

"""What a pretraining says while it goes on: a live line on a terminal, or a line per epoch."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from types import TracebackType

from pollux.lab.pretraining.trainer import Step


class Pace:
    """Images per second, and the seconds that are left, by the steps since it was made."""

    def __init__(self) -> None:
        self._begun, self._images, self._steps = time.monotonic(), 0, 0

    def count(self, step: Step) -> tuple[float, float]:
        """Images per second and seconds left, after one more step."""
        self._steps += 1
        self._images += step.images
        seconds = max(time.monotonic() - self._begun, 1e-9)
        left = (step.epochs - step.epoch) * step.of + step.of - step.number
        return self._images / seconds, left * seconds / self._steps


class EpochLines:
    """Says a line after each epoch: mean loss, share of views that found their partner, speed, time left."""

    def __init__(self, tell: Callable[[str], object] | None = None) -> None:
        # At once, also into a file that someone watches.
        self._pace, self._tell = Pace(), tell or partial(print, flush=True)
        self._loss = self._matched = 0.0

    def __call__(self, step: Step) -> None:
        speed, left = self._pace.count(step)
        self._loss, self._matched = self._loss + step.loss, self._matched + step.matched
        if step.number == step.of:
            loss, matched = self._loss / step.of, self._matched / step.of
            self._loss = self._matched = 0.0
            self._tell(
                f"epoch {step.epoch}/{step.epochs}  loss {loss:.4f}  matched {matched:.1%}  {speed:,.0f} images/s  "
                f"{_clock(left)} left"
            )


class ProgressBar:
    """A live line on the terminal, for use in a ``with`` block: epochs, loss, matched views, images/s, time left."""

    def __enter__(self) -> ProgressBar:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._pace = Pace()
        self._progress = Progress(
            BarColumn(bar_width=24), TextColumn("{task.fields[figures]}"), console=Console(file=sys.stderr)
        )
        self._progress.start()
        self._task = self._progress.add_task("", total=None, figures="")
        return self

    def __call__(self, step: Step) -> None:
        speed, left = self._pace.count(step)
        figures = (
            f"epoch {step.epoch}/{step.epochs}  loss {step.loss:.3f}  matched {step.matched:.0%}  "
            f"{speed:,.0f} images/s  {_clock(left)} left"
        )
        done = (step.epoch - 1) * step.of + step.number
        self._progress.update(self._task, completed=done, total=step.epochs * step.of, figures=figures)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))

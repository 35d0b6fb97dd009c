"""The training loop: epochs of steps, their figures, and when to stop."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from pollux.errors import InputError
from pollux.ranks import Ranks, is_first
from pollux.threads import torch_on_one
from pollux.training.batches import Batches
from pollux.training.callbacks import Callback, Epoch
from pollux.training.checkpoints import Checkpoints
from pollux.training.course import Course, History
from pollux.training.steps import Step, Trainable

# Multiplications of a step that one core does in about a millisecond.
_SHORT_STEP = 4_000_000
# Steps after which numbers are looked at, where an epoch has more.
_STRETCH = 1_000
# How often several processes ask each other whether to stop.
_SECONDS_BETWEEN, _MOST_STEPS_BETWEEN = 0.1, 1_000
# Epochs after which a training with checkpoints forgets what an objective has learned about batches: one that goes on
# from a checkpoint has nothing to remember.
_REMEMBERED_EPOCHS = 50


class Trained(NamedTuple):
    """What training leaves: its figures, the way back to the last good weights, and how it ended.

    ``broken_off`` says that an exception was swallowed, ``stopped`` that it was asked to stop and can go on from a
    checkpoint, ``diverged`` that its numbers were no longer finite, ``ended`` that a callback has ended it.
    """

    history: History
    restore: Callable[[], None]
    broken_off: bool
    stopped: bool = False
    diverged: bool = False
    ended: bool = False


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
    schedule: str = "constant",
    before: int = 0,
) -> Trained:
    """Train the model by steps on batches, for at most ``max_epochs``.

    With ``patience``, training ends after that many epochs in which the objective has not risen by the
    share ``tol`` of its best value. A callback that is a context manager may swallow an exception, such as Ctrl-C: the
    weights are then those of the last whole epoch. With ``checkpoints`` it goes on where the last one was written. The
    learning rate follows the ``schedule``. The model has had ``before`` epochs in earlier rounds: they count on.
    """
    course = Course(model, step, batches, tol, patience, {"generator": generator, "noise": noise}, ranks, before)
    keeper = None if checkpoints is None else Keeper(course, checkpoints, ranks)
    if course.epochs > max_epochs:
        raise InputError(
            f"The training in the checkpoints has had {before + course.epochs} epochs already, more than "
            f"{before + max_epochs}: ask for at least as many, or name another folder."
        )
    model.train()
    broken_off, stopped, diverged, ended = True, False, False, False
    with contextlib.ExitStack() as stack:
        stack.enter_context(_threads_for(model, batches))
        for callback in callbacks:
            if isinstance(callback, contextlib.AbstractContextManager):
                stack.enter_context(callback)
        for number in range(course.epochs + 1, max_epochs + 1):
            if course.patient.is_over:
                break
            diverged, stopped = _epoch(course, generator, keeper, functools.partial(SCHEDULES[schedule], max_epochs))
            if diverged or stopped:
                break
            epoch = _figures(course.history, before + number, before + max_epochs)
            # Each callback is told of each epoch, also when an earlier one asks to stop.
            stops = [bool(callback(epoch)) for callback in callbacks]
            if ranks is not None:
                # What one process is told to end, all do.
                stops = [bool(ranks.maximum(torch.tensor(int(any(stops)))))]
            stopped = keeper is not None and keeper.after_epoch(number == max_epochs)
            ended = any(stops)
            if ended or stopped:
                break
        broken_off = False
    if broken_off and ranks is not None:
        raise InputError(
            "An exception that one of several processes has swallowed would leave the others waiting: use checkpoints, "
            "and set their asked_to_stop."
        )
    if broken_off:
        course.to_last_epoch()
    elif keeper is not None and not (stopped or diverged):
        keeper.end()
    model.train(False)
    model.sync()
    return Trained(course.history, course.guard.restore, broken_off, stopped, diverged, ended)


def _constant(max_epochs: int, epochs: float) -> float:
    return 1.0


def _cosine(max_epochs: int, epochs: float) -> float:
    """From one down to zero, slowly at both ends."""
    return (1 + math.cos(math.pi * min(epochs / max_epochs, 1.0))) / 2


SCHEDULES: dict[str, Callable[[int, float], float]] = {"constant": _constant, "cosine": _cosine}
"""The share of the learning rate after so many of all epochs, which need not be whole."""


def _epoch(
    course: Course, generator: torch.Generator | None, keeper: Keeper | None, pace: Callable[[float], float]
) -> tuple[bool, bool]:
    """The rest of an epoch; whether numbers were no longer finite, and whether it was asked to stop."""
    whole, steps = course.epochs, course.batches.n_batches
    for batch in course.batches.epoch(generator, course.position):
        course.step.set_pace(pace(whole if steps is None else whole + course.position / steps))
        course.tally.add(*course.step(batch))
        course.position += 1
        if course.position % _STRETCH == 0 and not course.is_sound():
            return course.give_up(), False
        if keeper is not None and keeper.after_step():
            return False, True
    if not course.end_epoch():
        return course.give_up(), False
    if keeper is not None and course.epochs % _REMEMBERED_EPOCHS == 0:
        course.batches.forget()
    return False, False


class Keeper:
    """Writes the checkpoints of a course, at places from which it can go on with the same bits."""

    def __init__(self, course: Course, checkpoints: Checkpoints, ranks: Ranks | None) -> None:
        self._course, self._checkpoints, self._ranks = course, checkpoints, ranks
        self._is_due, self._steps, self._steps_between, self._asked_at = False, 0, 1, time.monotonic()
        state = checkpoints.take_up()
        if state is not None:
            course.load_state(state)
        else:
            # From the beginning there is one: a training that is taken up again never starts anew unnoticed.
            state = course.state()
            if is_first(ranks):
                checkpoints.write(state)

    def after_step(self) -> bool:
        """Write one if it is time; whether the training was asked to stop."""
        return self._look(after_epoch=False)

    def after_epoch(self, is_last: bool = False) -> bool:
        """The same after an epoch; after the last one there is nothing to stop."""
        return self._look(after_epoch=True, is_last=is_last)

    def end(self) -> None:
        """Write the last one, from which a longer training can go on."""
        self._save()
        self._checkpoints.wait()

    def _look(self, after_epoch: bool, is_last: bool = False) -> bool:
        self._is_due |= self._checkpoints.is_due(after_epoch)
        due, asked = self._is_due, self._checkpoints.asked_to_stop
        if self._ranks is not None:
            self._steps += 1
            if self._steps < self._steps_between and not after_epoch:
                return False
            due, asked = self._ask(self._ranks)
        # What an objective remembers of its batches is in no checkpoint; the next place without it will do.
        asked = asked and not is_last
        if asked or (due and not self._course.batches.remembers):
            self._save()
            self._is_due = False
            self._checkpoints.seen_to()
        if asked:
            self._checkpoints.stopped = True
        return bool(asked)

    def _ask(self, ranks: Ranks) -> tuple[bool, bool]:
        """Whether it is time, or to stop, for any of the processes: clocks and signals differ, and they act together.

        They ask each other about every tenth of a second, not after each step.
        """
        now = time.monotonic()
        seconds = (now - self._asked_at) / self._steps
        flags = (self._is_due, self._checkpoints.asked_to_stop, self._checkpoints.at_once)
        due, asked, at_once, seconds = ranks.maximum(torch.tensor([*flags, seconds], dtype=torch.float64)).tolist()
        self._checkpoints.at_once = bool(at_once)
        self._steps_between = max(1, min(_MOST_STEPS_BETWEEN, int(_SECONDS_BETWEEN / max(seconds, 1e-9))))
        self._steps, self._asked_at = 0, now
        return bool(due), bool(asked)

    def _save(self) -> None:
        if not self._course.is_finite():
            return
        state = self._course.state()
        if is_first(self._ranks):
            self._checkpoints.save(state)


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

"""The training loop: epochs of steps, their metrics, and when to stop."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import torch

from pollux.errors import InputError
from pollux.ranks import Ranks, is_first
from pollux.threads import torch_on_one
from pollux.training.batches import Batches
from pollux.training.callbacks import Callback, Epoch
from pollux.training.checkpoints import Checkpoints
from pollux.training.state import History, TrainingState
from pollux.training.steps import Step, Trainable

Schedule: TypeAlias = Callable[[int, float], float]

# Multiplications of a step that one core does in about a millisecond.
_SHORT_STEP = 4_000_000
# Steps after which numbers are looked at, where an epoch has more.
_STRETCH = 1_000
# How often several processes ask each other whether to stop.
_SECONDS_BETWEEN, _MOST_STEPS_BETWEEN = 0.1, 1_000
# Epochs after which a training with checkpoints forgets what an objective has learned about batches: one that goes on
# from a checkpoint has nothing to remember.
_REMEMBERED_EPOCHS = 50


class TrainingResult(NamedTuple):
    """What training leaves: its metrics, the way back to the last good weights, and how it ended.

    ``interrupted`` says that an exception was swallowed, ``stopped`` that it was asked to stop and can go on from a
    checkpoint, ``diverged`` that its numbers were no longer finite, ``ended`` that a callback has ended it.
    """

    history: History
    restore: Callable[[], None]
    interrupted: bool
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
    schedule: str | Schedule = "constant",
    before: int = 0,
) -> TrainingResult:
    """Train the model by steps on batches, for at most ``max_epochs``.

    With ``patience``, training ends after that many epochs in which the objective has not risen by the
    share ``tol`` of its best value. A callback that is a context manager may swallow an exception, such as Ctrl-C: the
    weights are then those of the last whole epoch. With ``checkpoints`` it goes on where the last one was written. The
    learning rate follows the ``schedule``, a name or a function such as those of ``SCHEDULES``. The model has had
    ``before`` epochs in earlier rounds: they count on.
    """
    training = TrainingState(
        model, step, batches, tol, patience, {"generator": generator, "noise": noise}, ranks, before
    )
    saving = None if checkpoints is None else CheckpointSchedule(training, checkpoints, ranks)
    if training.epochs > max_epochs:
        raise InputError(
            f"The training in the checkpoints has had {before + training.epochs} epochs already, more than "
            f"{before + max_epochs}: ask for at least as many, or name another folder."
        )
    model.train()
    if training.epochs == max_epochs and training.position:
        # The checkpoint is of an epoch that is no longer asked for.
        training.to_last_epoch()
    share = SCHEDULES[schedule] if isinstance(schedule, str) else schedule
    watch = _step_watchers(callbacks, before, max_epochs)
    interrupted, stopped, diverged, ended = True, False, False, False
    with contextlib.ExitStack() as stack:
        stack.enter_context(_threads_for(model, batches))
        for callback in callbacks:
            if isinstance(callback, contextlib.AbstractContextManager):
                stack.enter_context(callback)
        for number in range(training.epochs + 1, max_epochs + 1):
            if training.patient.is_over:
                break
            diverged, stopped = _epoch(training, generator, saving, functools.partial(share, max_epochs), watch)
            if diverged or stopped:
                break
            epoch = _best_metrics(training.history, before + number, before + max_epochs)
            # Each callback is told of each epoch, also when an earlier one asks to stop.
            stops = [bool(callback(epoch)) for callback in callbacks]
            if ranks is not None:
                # What one process is told to end, all do.
                stops = [bool(ranks.maximum(torch.tensor(int(any(stops)))))]
            stopped = saving is not None and saving.after_epoch(number == max_epochs)
            ended = any(stops)
            if ended or stopped:
                break
        interrupted = False
    if interrupted and ranks is not None:
        raise InputError(
            "An exception that one of several processes has swallowed would leave the others waiting: use checkpoints, "
            "and set their stop_requested."
        )
    if interrupted:
        training.to_last_epoch()
    elif saving is not None and not (stopped or diverged):
        saving.end()
    model.train(False)
    model.sync()
    return TrainingResult(training.history, training.guard.restore, interrupted, stopped, diverged, ended)


def _constant(max_epochs: int, epochs: float) -> float:
    return 1.0


def _cosine(max_epochs: int, epochs: float) -> float:
    """From one down to zero, slowly at both ends."""
    return (1 + math.cos(math.pi * min(epochs / max_epochs, 1.0))) / 2


SCHEDULES: dict[str, Schedule] = {"constant": _constant, "cosine": _cosine}
"""The share of the learning rate after so many of all epochs, which need not be whole."""


def _epoch(
    training: TrainingState,
    generator: torch.Generator | None,
    saving: CheckpointSchedule | None,
    pace: Callable[[float], float],
    watch: Callable[[float], None] | None,
) -> tuple[bool, bool]:
    """The rest of an epoch; whether numbers were no longer finite, and whether it was asked to stop."""
    whole, steps = training.epochs, training.batches.n_batches
    for batch in training.batches.epoch(generator, training.position):
        training.step.scale_learning_rate(pace(whole if steps is None else whole + training.position / steps))
        training.metrics.update(*training.step(batch))
        training.position += 1
        if watch is not None and steps is not None:
            watch(whole + training.position / steps)
        if training.position % _STRETCH == 0 and not training.is_sound():
            return training.give_up(), False
        if saving is not None and saving.after_step():
            return False, True
    if not training.end_epoch():
        return training.give_up(), False
    if saving is not None and training.epochs % _REMEMBERED_EPOCHS == 0:
        training.batches.forget()
    return False, False


def _step_watchers(callbacks: Sequence[Callback], before: int, max_epochs: int) -> Callable[[float], None] | None:
    """Calls ``after_step`` of those callbacks that have it, or None where none has."""
    watchers = [callback.after_step for callback in callbacks if hasattr(callback, "after_step")]

    def watch(epochs: float) -> None:
        for watcher in watchers:
            watcher(before + epochs, before + max_epochs)

    return watch if watchers else None


class CheckpointSchedule:
    """Writes the checkpoints of a training, at places from which it can go on with the same bits."""

    def __init__(self, training: TrainingState, checkpoints: Checkpoints, ranks: Ranks | None) -> None:
        self._course, self._checkpoints, self._ranks = training, checkpoints, ranks
        self._is_due, self._steps, self._steps_between, self._asked_at = False, 0, 1, time.monotonic()
        state = checkpoints.take_up()
        if state is not None:
            training.load_state(state)
        else:
            # From the beginning there is one: a training that is taken up again never starts anew unnoticed.
            state = training.state()
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
        due, asked = self._is_due, self._checkpoints.stop_requested
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
        flags = (self._is_due, self._checkpoints.stop_requested, self._checkpoints.stop_immediately)
        due, asked, stop_immediately, seconds = ranks.maximum(
            torch.tensor([*flags, seconds], dtype=torch.float64)
        ).tolist()
        self._checkpoints.stop_immediately = bool(stop_immediately)
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


def _best_metrics(history: History, number: int, of: int) -> Epoch:
    best = int(history.metrics["objective"][-1].nan_to_num(-float("inf")).argmax())
    return Epoch(number, of, {name: rows[-1][best].item() for name, rows in history.metrics.items()})

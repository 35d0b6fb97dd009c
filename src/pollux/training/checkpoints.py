"""Checkpoints: the complete state of a training, in files from which it can be resumed however it ended."""

from __future__ import annotations

import re
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Protocol

import torch
from msgspec import Meta, Struct
from torch import Tensor

from pollux.errors import InputError, warn
from pollux.io import tensors as checked_tensors
from pollux.io.atomic import CHECKPOINT, checkpoint_files, checkpoint_path, leftovers
from pollux.io.locks import locked
from pollux.io.parsing import Count, parse
from pollux.ranks import Ranks, is_first

FORMAT, VERSION = "pollux-checkpoint", "2"

_KEPT = 2
# How often several processes exchange whether to stop.
_SECONDS_BETWEEN, _MOST_STEPS_BETWEEN = 0.1, 1_000
_EVERY = re.compile(r"(\d+(?:\.\d+)?)\s*(s|seconds?|m|minutes?|h|hours?|epochs?|steps?)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LEFTOVER_OF_SAFETENSORS = f".tmp{6 * '[A-Za-z0-9]'}"


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written, or could not be read and an older one was used."""


class Stopped(KeyboardInterrupt):
    """A training was asked to stop; it can be resumed from its checkpoint."""

    def __init__(self, epochs: int) -> None:
        super().__init__(f"stopped after {epochs} whole epochs")
        self.epochs = epochs


class _Share(Struct):
    """The state that differs between processes."""

    random: dict[str, Any]
    metrics: dict[str, Any]
    batches: dict[str, Any]


class _State(Struct):
    """The state of a training, see :class:`pollux.training.loop.TrainingState`."""

    model: list[Tensor]
    step: Any
    before: Count
    epochs: Count
    position: Count
    history: dict[str, Tensor | None]
    guard: dict[str, Any]
    patience: dict[str, Any]
    processes: Annotated[list[_Share], Meta(min_length=1)]

    def __post_init__(self) -> None:
        if any((0 if rows is None else len(rows)) != self.epochs for rows in self.history.values()):
            raise ValueError("metrics are of another number of epochs")


class _Contents(Struct, forbid_unknown_fields=True):
    """Contents of a checkpoint: the identity of the training, the results of its earlier stages, and its state."""

    identity: dict[str, Any]
    finished: list[dict[str, Any]]
    state: _State


class Checkpoints:
    """The checkpoints of one training, in a folder of its own; the last two are kept.

    A training with the same settings on the same data resumes from the last good checkpoint in the folder, and ends
    with the same bits as if it had not been interrupted. With another number of processes than before, the current
    epoch begins anew. Checkpoints of another training are refused.

    Parameters
    ----------
    folder : path
        The folder; it is created.
    every : str
        How often one is written: "60 s", "5 minutes", "1 epoch", "100 steps".

    Attributes
    ----------
    stop_requested : bool
        Set it, for instance in a signal handler, and the training writes a checkpoint after its step and ends.
    stop_immediately : bool
        Whether a training that was asked to stop raises ``Stopped``, without evaluating its data once more.
    stopped : bool
        Whether the training was stopped.
    is_training : bool
        Whether a training that writes these is running.
    has_begun : bool
        Whether a training has begun.
    finished : list
        The results of earlier stages, if restarts are trained one after the other.

    Examples
    --------
    >>> from pollux.training import Checkpoints
    >>> Checkpoints("runs/night/checkpoints", every="10 minutes").every
    '10 minutes'
    """

    def __init__(self, folder: str | Path, every: str = "60 s") -> None:
        self.folder, self.every = Path(folder), every
        self._count, self._unit = parse_every(every)
        self.stop_requested = self.stop_immediately = self.stopped = False
        self.is_training = self.has_begun = self._has_failed = False
        self._last = time.monotonic()
        self._steps = self._epochs = self._number = 0
        self._executor: ThreadPoolExecutor | None = None
        self._writing: Future[None] | None = None
        self._identity: dict[str, Any] = {}
        self.finished: list[Any] = []
        self._found: dict[str, Any] | None = None

    @contextmanager
    def open(self, identity: Mapping[str, Any], ranks: Ranks | None = None) -> Iterator[None]:
        """Lock the folder and read the last checkpoint; that of a training with another identity is refused.

        With several processes the first reads and writes.
        """
        self._identity = dict(identity)
        self.stopped = False
        leads = is_first(ranks)
        with ExitStack() as stack:
            if leads:
                self.folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.folder))
                self._remove_leftovers()
            found = self._read_last() if leads else None
            if ranks is not None:
                # Send what the first process has read to all.
                found = ranks.broadcast_object(found)
            self._number, self.finished, self._found = 0, [], None
            if found is not None:
                self._number, tree = found
                _check_same(tree["identity"], self._identity, self.folder)
                self.finished, self._found = tree["finished"], tree["state"]
                # Kept when one process continues: the format of the state is that of the processes that began it.
                self._identity["processes"] = tree["identity"].get("processes", 1)
            if leads:
                self._move_damaged(after=self._number)
            self.restart_timer()
            self.is_training = self.has_begun = True
            try:
                yield
            finally:
                self.wait()
                if self._executor is not None:
                    self._executor.shutdown()
                    self._executor = None
                self.finished, self._found = [], None
                self.stop_requested = self.is_training = False

    @property
    def begun_by(self) -> Any:
        """The number of processes that began the training."""
        return self._identity.get("processes", 1)

    def _remove_leftovers(self) -> None:
        """Remove temporary files, ours and those of safetensors, of a process that was killed while writing."""
        for path in [*leftovers(self.folder / CHECKPOINT), *self.folder.glob(_LEFTOVER_OF_SAFETENSORS)]:
            path.unlink(missing_ok=True)

    def epochs_done(self) -> int:
        """Number of whole epochs of the current stage in the last good checkpoint."""
        with warnings.catch_warnings():
            # Damaged files are warned about by the training that resumes.
            warnings.simplefilter("ignore", CheckpointWarning)
            found = self._read_last()
        return 0 if found is None else int(found[1]["state"]["before"]) + int(found[1]["state"]["epochs"])

    def exist(self) -> bool:
        """Whether the folder has checkpoints, good or damaged: a training resumes from them, or is refused."""
        return bool(checkpoint_files(self.folder))

    def remove(self) -> None:
        """Remove all checkpoints, and the folder if it is then empty; an error if another process writes there."""
        if not self.folder.is_dir():
            return
        with locked(self.folder):
            self._remove_leftovers()
            for path in self.folder.glob("checkpoint-*"):
                path.unlink(missing_ok=True)
        (self.folder / ".lock").unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()

    def pop_state(self) -> Any:
        """Return the state of the current stage, once; None if it has not begun."""
        found, self._found = self._found, None
        return found

    def is_due(self, after_epoch: bool) -> bool:
        """Whether a checkpoint is due, after a step or after an epoch; to be called once for each."""
        if after_epoch:
            self._epochs += 1
        else:
            self._steps += 1
        if self._unit == "epoch":
            return after_epoch and self._epochs % self._count == 0
        if self._unit == "step":
            return not after_epoch and self._steps % self._count == 0
        return time.monotonic() - self._last >= self._count

    def restart_timer(self) -> None:
        """Restart the interval until the next checkpoint; all processes must call it, though one writes."""
        self._last = time.monotonic()

    def save(self, state: Any) -> None:
        """Write a checkpoint in the background; a failure, such as a full disk, is only warned about."""
        self.wait()
        tensors, skeleton = self._pack(state)
        # Copies, because training continues meanwhile.
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        self._writing = self._thread().submit(self._write, copies, skeleton)

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is complete."""
        writing, self._writing = self._writing, None
        if writing is None:
            return
        try:
            writing.result()
            self._has_failed = False
        except OSError as error:
            if self._has_failed:
                # Warn only once.
                return
            self._has_failed = True
            warn(
                f"A checkpoint could not be written into {self.folder} ({error}). Training goes on; the last good one "
                f"is {max((path.name for path in checkpoint_files(self.folder).values()), default='none at all')}.",
                CheckpointWarning,
            )

    def write(self, state: Any) -> None:
        """Write a checkpoint at once; raises an OSError if that fails."""
        self._write(*self._pack(state))

    def _pack(self, state: Any) -> tuple[dict[str, Tensor], Any]:
        return pack({"identity": self._identity, "finished": self.finished, "state": state})

    def _write(self, tensors: Mapping[str, Tensor], skeleton: Any) -> None:
        """Write a checkpoint; older ones are removed only after it is complete."""
        path = checkpoint_path(self.folder, self._number + 1)
        checked_tensors.write(path, FORMAT, VERSION, tensors, skeleton)
        self._number += 1
        for old in list(checkpoint_files(self.folder).values())[:-_KEPT]:
            old.unlink(missing_ok=True)

    def _thread(self) -> ThreadPoolExecutor:
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="pollux-checkpoint")
        return self._executor

    def _read_last(self) -> tuple[int, dict[str, Any]] | None:
        """The number and the contents of the newest undamaged checkpoint; None if there are no checkpoints."""
        problems: list[str] = []
        for number, path in reversed(checkpoint_files(self.folder).items()):
            try:
                tree = unpack(*checked_tensors.read(path, FORMAT, [VERSION], "checkpoint"))
                parse(tree, _Contents, f"{path} is not a whole checkpoint")
            except InputError as error:
                problems.append(str(error))
            except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
                problems.append(f"{path} is not a whole checkpoint: {error}.")
            else:
                if problems:
                    warn(f"{problems[0]} The one before it, {path.name}, is good.", CheckpointWarning)
                return number, tree
        if problems:
            raise InputError(
                f"No checkpoint in {self.folder} can be read, so the training cannot go on: {' '.join(problems)} "
                "To start anew, remove that folder."
            )
        return None

    def _move_damaged(self, after: int) -> None:
        """Rename damaged checkpoints, so that they do not count among the two that are kept."""
        for number, damaged in checkpoint_files(self.folder).items():
            if number > after:
                aside = damaged.with_suffix(".damaged")
                if aside.is_dir():
                    shutil.rmtree(aside)
                else:
                    aside.unlink(missing_ok=True)
                damaged.replace(aside)


class Resumable(Protocol):
    """The interface of a training that a schedule uses."""

    def state(self) -> Any:
        """The complete state; all processes must call it."""

    def load_state(self, state: Any) -> None:
        """Restore a :meth:`state`."""

    def can_be_saved(self) -> bool:
        """Whether the state is worth resuming from."""

    @property
    def remembers(self) -> bool:
        """Whether the next step depends on something that is not in the state."""


class CheckpointSchedule:
    """Writes the checkpoints of a training, at steps from which it can be resumed with the same bits."""

    def __init__(self, training: Resumable, checkpoints: Checkpoints, ranks: Ranks | None) -> None:
        self._training, self._checkpoints, self._ranks = training, checkpoints, ranks
        self._is_due, self._steps, self._steps_between, self._asked_at = False, 0, 1, time.monotonic()
        found, state = checkpoints.pop_state(), training.state()
        if found is not None:
            _load(training, found, state, checkpoints.folder, ranks)
        elif training.can_be_saved() and is_first(ranks):
            # Written at the beginning, so that a training that is resumed never restarts unnoticed.
            checkpoints.write(state)

    def after_step(self) -> bool:
        """Write a checkpoint if it is due; returns whether the training was asked to stop."""
        return self._look(after_epoch=False)

    def after_epoch(self, is_last: bool = False) -> bool:
        """The same after an epoch; the last one cannot be stopped."""
        return self._look(after_epoch=True, is_last=is_last)

    def end(self) -> None:
        """Write the last checkpoint, from which a longer training can be resumed."""
        self._save()
        self._checkpoints.wait()

    def _look(self, after_epoch: bool, is_last: bool = False) -> bool:
        self._is_due |= self._checkpoints.is_due(after_epoch)
        due, stop = self._is_due, self._checkpoints.stop_requested
        if self._ranks is not None:
            self._steps += 1
            if self._steps < self._steps_between and not after_epoch:
                return False
            due, stop = self._ask(self._ranks)
        stop = stop and not is_last
        # If the next step depends on more than the state, wait for a later one.
        if stop or (due and not self._training.remembers):
            self._save()
            self._is_due = False
            self._checkpoints.restart_timer()
        if stop:
            self._checkpoints.stopped = True
        return bool(stop)

    def _ask(self, ranks: Ranks) -> tuple[bool, bool]:
        """Whether a checkpoint is due, or to stop, in any process: clocks and signals differ, but all act together.

        Processes communicate about every tenth of a second, not after each step.
        """
        now = time.monotonic()
        seconds = (now - self._asked_at) / self._steps
        flags = (self._is_due, self._checkpoints.stop_requested, self._checkpoints.stop_immediately)
        due, stop, immediately, seconds = ranks.maximum(torch.tensor([*flags, seconds], dtype=torch.float64)).tolist()
        self._checkpoints.stop_immediately = bool(immediately)
        self._steps_between = max(1, min(_MOST_STEPS_BETWEEN, int(_SECONDS_BETWEEN / max(seconds, 1e-9))))
        self._steps, self._asked_at = 0, now
        return bool(due), bool(stop)

    def _save(self) -> None:
        if not self._training.can_be_saved():
            return
        state = self._training.state()
        if is_first(self._ranks):
            self._checkpoints.save(state)


def as_checkpoints(checkpoint: str | Path | Checkpoints | None) -> Checkpoints | None:
    """The checkpoints of a folder; ``Checkpoints`` and None are returned as is."""
    return Checkpoints(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint


def parse_every(every: Any) -> tuple[float, str]:
    """(60, "second") from "60 s"; also "5 minutes", "1 epoch", "100 steps"."""
    match = _EVERY.fullmatch(every.strip()) if isinstance(every, str) else None
    if match is None:
        raise InputError(
            f"Checkpoints are written every '60 s', '5 minutes', '1 epoch', '100 steps' or the like; not {every!r}."
        )
    count, unit = float(match[1]), match[2]
    if unit.startswith(("epoch", "step")):
        if count < 1 or count % 1:
            raise InputError(f"Checkpoints are written every whole number of epochs or steps, not {every!r}.")
        return count, unit.removesuffix("s")
    return count * _SECONDS[unit[0]], "second"


def _check_same(found: Mapping[str, Any], own: Mapping[str, Any], folder: Path) -> None:
    # The number of processes may change.
    names = (found.keys() | own.keys()) - {"processes"}
    differing = sorted(name for name in names if found.get(name) != own.get(name))
    if differing:
        changes = [f"{name} was {_short(found.get(name))} and is {_short(own.get(name))}" for name in differing]
        trial = found.get("trial_epochs") if differing == ["trial_epochs"] else None
        # If the trial is a share of all epochs, another number of epochs changes it.
        named = "" if trial is None else f" To have another number of epochs, name the trial: trial_epochs={trial}."
        raise InputError(
            f"The checkpoints in {folder} are of another training ({'; '.join(changes)}).{named} Go on with the "
            "settings and the data that they were made with, or name another folder."
        )


def _load(training: Resumable, found: Any, fresh: Any, folder: Path, ranks: Ranks | None) -> None:
    """Resume the training from what was found; ``fresh`` is its current state, used for all that cannot be restored."""
    before, now = len(found["processes"]), len(fresh["processes"])
    alike = [[(tensor.shape, tensor.dtype) for tensor in state["model"]] for state in (found, fresh)]
    if alike[0] != alike[1] and before != now:
        raise InputError(
            f"The checkpoints in {folder} are of {before} processes, and {now} store this model in another way: go on "
            f"with {before} (torchrun --nproc-per-node {before})."
        )
    if before != now:
        # Generators and metrics of single processes cannot be used by another number of processes.
        first = found["processes"][0]
        shared = {"generator": first["random"].get("generator")}
        shares = [
            {**own, "random": {**own["random"], **shared}, "batches": first["batches"]} for own in fresh["processes"]
        ]
        found = {**found, "position": 0, "processes": shares}
        if is_first(ranks):
            warn(
                f"The checkpoints in {folder} are of {before} processes, and now there are {now}: the epoch that was "
                "under way begins anew, with all that was learned.",
                CheckpointWarning,
            )
    try:
        if alike[0] != alike[1]:
            raise ValueError("the weights are of other shapes")
        for name in fresh.keys() - {"step"}:
            # The structure of an optimiser's state is not checked.
            if not _is_like(found[name], fresh[name]):
                raise ValueError(f"{name} is not what it should be")
        training.load_state(found)
        if not training.can_be_saved():
            raise ValueError("the weights are not finite")
    except torch.OutOfMemoryError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RuntimeError) as error:
        raise InputError(
            f"The checkpoints in {folder} do not fit this training ({error}): name another folder, or remove that one."
        ) from error


def _is_like(found: Any, fresh: Any) -> bool:
    """Whether two trees have the same keys and types; None, a value that is not set, matches all but integers."""
    if found is None or fresh is None:
        return not isinstance(fresh, int)
    if isinstance(fresh, Tensor):
        return isinstance(found, Tensor) and found.dtype == fresh.dtype and found.ndim == fresh.ndim
    if type(found) is not type(fresh):
        return False
    if isinstance(fresh, dict):
        return found.keys() == fresh.keys() and all(_is_like(found[key], fresh[key]) for key in fresh)
    if isinstance(fresh, list | tuple):
        return all(_is_like(*pair) for pair in zip(found, fresh, strict=False))
    return True


def _short(value: Any) -> str:
    """A value for a message; digests are shortened."""
    text = repr(value)
    return text if len(text) <= 40 or not isinstance(value, str) else f"{text[:12]}…"


def pack(tree: Any) -> tuple[dict[str, Tensor], Any]:
    """A tree of dicts, lists, tuples, tensors and plain values as tensors by name, and JSON with their places."""
    tensors: dict[str, Tensor] = {}

    def skeleton(node: Any) -> Any:
        if isinstance(node, Tensor):
            name = str(len(tensors))
            # Shapes are kept, also those of scalars; safetensors stores contiguous tensors only.
            tensors[name] = node
            return {"tensor": name}
        if isinstance(node, Mapping):
            # As pairs, because optimisers use integer keys, and JSON has text keys only.
            return {"dict": [[key, skeleton(value)] for key, value in node.items()]}
        if isinstance(node, list | tuple):
            return {"list" if isinstance(node, list) else "tuple": [skeleton(item) for item in node]}
        if node is None or isinstance(node, bool | int | float | str):
            return node
        raise InputError(
            f"The state of the training holds a {type(node).__name__}, which a checkpoint cannot: use an optimiser "
            "whose state is numbers and tensors, or train without checkpoints."
        )

    return tensors, skeleton(tree)


def unpack(tensors: Mapping[str, Tensor], skeleton: Any) -> Any:
    """Rebuild the tree that was passed to :func:`pack`."""
    if not isinstance(skeleton, dict):
        return skeleton
    ((kind, value),) = skeleton.items()
    if kind == "tensor":
        # A copy in memory aligned as torch does it, because the last digits of some sums depend on alignment.
        return tensors[value].clone()
    if kind == "dict":
        return {key: unpack(tensors, item) for key, item in value}
    items = [unpack(tensors, item) for item in value]
    return tuple(items) if kind == "tuple" else items

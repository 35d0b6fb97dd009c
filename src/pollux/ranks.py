"""Several processes that train one model together, and the collectives between them.

Each process r has its own loss L_r, and the sum Σ_r L_r is minimised. Every differentiable collective has the exact
adjoint for this sum: a parameter's gradients, added over all processes, are the gradient of the sum. If all processes
hold the same value V, each takes V / size as its loss, so that V counts once. All processes must call the same
collectives in the same order, in the forward and in the backward pass: a tensor that requires a gradient in one process
must require it in all.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pollux.errors import InputError

__all__ = ["Ranks", "is_first", "is_lost", "joined", "joining"]

_LOST_MESSAGES = re.compile(r"connection (closed|reset)|broken pipe|gloo|nccl", re.IGNORECASE)
_LAUNCHER = "torchrun sets it: torchrun --nproc-per-node 4 your_program.py"


class Ranks:
    """The processes that train one model together: those of torch's default process group.

    Attributes
    ----------
    rank : int
        The number of this process, from zero.
    size : int
        How many processes there are.
    """

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        # Each backend sends tensors of its own device only; others are copied there first.
        on_cuda = "nccl" in str(dist.get_backend())
        self._device = torch.device("cuda", torch.cuda.current_device()) if on_cuda else torch.device("cpu")

    def __repr__(self) -> str:
        return f"Ranks(rank={self.rank}, size={self.size})"

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum tensors of equal shape over all processes; differentiable."""
        total: Tensor = _Sum.apply(tensor, self)  # type: ignore[no-untyped-call]
        return total

    def sum_in_place(self, tensor: Tensor) -> Tensor:
        """Sum in place, without a gradient; contiguous tensors on the device of the backend are not copied."""
        if tensor.device != self._device or not tensor.is_contiguous():
            return tensor.copy_(self._reduce(tensor, dist.ReduceOp.SUM))
        dist.all_reduce(tensor, dist.ReduceOp.SUM)
        return tensor

    def gather(self, rows: Tensor, dim: int = -2, *, sizes: Sequence[int] | None = None) -> Tensor:
        """Concatenate the rows of all processes, in the order of their ranks; differentiable.

        Parameters
        ----------
        rows : Tensor
            Of equal shape in all processes, except along dimension ``dim``.
        dim : int
            The dimension along which rows are concatenated.
        sizes : sequence of int, optional
            The size of that dimension in each process; gathered from all processes if not given.
        """
        sizes = self.sizes(rows.shape[dim]) if sizes is None else sizes
        gathered: Tensor = _Gather.apply(rows, self, dim, sizes)  # type: ignore[no-untyped-call]
        return gathered

    def sizes(self, size: int) -> list[int]:
        """The ``size`` of each process, in the order of their ranks."""
        return [int(number) for number in self._all(torch.tensor([size]), [1] * self.size)]

    def maximum(self, tensor: Tensor) -> Tensor:
        """Elementwise maximum over all processes, without a gradient."""
        return self._reduce(tensor, dist.ReduceOp.MAX)

    def minimum(self, tensor: Tensor) -> Tensor:
        """Elementwise minimum over all processes, without a gradient."""
        return self._reduce(tensor, dist.ReduceOp.MIN)

    def broadcast(self, tensor: Tensor, source: int = 0) -> Tensor:
        """Overwrite the tensors of all processes with that of process ``source``."""
        buffer = self._buffer(tensor)
        dist.broadcast(buffer, source)
        with torch.no_grad():
            return tensor.copy_(buffer)

    def gather_objects(self, thing: Any) -> list[Any]:
        """Picklable objects of all processes, in the order of their ranks."""
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, thing)
        return gathered

    def broadcast_object(self, thing: Any, source: int = 0) -> Any:
        """The picklable object of process ``source``, in all processes."""
        received = [thing]
        dist.broadcast_object_list(received, source)
        return received[0]

    def agree(self, digest: str | bytes, what: str) -> None:
        """Raise an InputError in all processes if any digest differs from that of process 0.

        ``what`` completes the sentence "The processes …", such as "start from different weights".
        """
        digests = self.gather_objects(digest)
        others = [str(rank) for rank, other in enumerate(digests) if other != digests[0]]
        if others:
            raise InputError(f"The processes {what}: process {', '.join(others)} does not agree with process 0.")

    def raise_together(self, error: Exception | None) -> None:
        """Raise in all processes if there is an error in any of them, so that none waits for one that has stopped."""
        messages = self.gather_objects(None if error is None else f"{error}")
        if error is not None:
            raise error
        for rank, message in enumerate(messages):
            if message is not None:
                raise InputError(f"Process {rank} could not go on: {message}")

    def _buffer(self, tensor: Tensor) -> Tensor:
        """A contiguous copy on the device of the backend, which the backend may overwrite."""
        return tensor.detach().to(self._device, copy=True, memory_format=torch.contiguous_format)

    def _reduce(self, tensor: Tensor, operation: Any) -> Tensor:
        buffer = self._buffer(tensor)
        dist.all_reduce(buffer, operation)
        return buffer.to(tensor.device)

    def _all(self, rows: Tensor, sizes: Sequence[int]) -> Tensor:
        """Gather the rows of all processes along the first dimension."""
        most = max(sizes)
        # all_gather needs tensors of equal size, so rows are padded.
        padded = torch.zeros((most, *rows.shape[1:]), dtype=rows.dtype, device=self._device)
        padded[: len(rows)] = rows.detach()
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)]).to(rows.device)


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return ranks._reduce(tensor, dist.ReduceOp.SUM)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.ranks.sum(gradient), None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, ranks: Ranks, dim: int, sizes: Sequence[int]) -> Tensor:
        if rows.shape[dim] != sizes[ranks.rank] or len(sizes) != ranks.size:
            raise ValueError(f"Process {ranks.rank} has {rows.shape[dim]} rows, but the sizes are {list(sizes)}.")
        ctx.ranks, ctx.dim, ctx.sizes = ranks, dim, sizes
        return ranks._all(rows.movedim(dim, 0), sizes).movedim(0, dim)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        total = ctx.ranks.sum(gradient)
        start = sum(ctx.sizes[: ctx.ranks.rank])
        return total.narrow(ctx.dim, start, ctx.sizes[ctx.ranks.rank]), None, None, None


def joined() -> Ranks | None:
    """The processes of torch's default process group; None if this is the only process."""
    if not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    return Ranks()


@contextmanager
def joining(device: str | torch.device = "cpu", *, timeout: float = 600) -> Iterator[Ranks | None]:
    """Join the processes that torchrun started, within this context; yields None if this is the only process.

    A process group that exists already is used as it is, and not destroyed.

    Parameters
    ----------
    device : str or torch.device
        The device of the training; with CUDA, each process gets one of the devices of its machine.
    timeout : float
        Seconds that a process waits for the others before it raises an error.
    """
    if not dist.is_available() or dist.is_initialized():
        yield joined()
        return
    size, rank = _number("WORLD_SIZE"), _number("RANK")
    if size == 1 or (size is None and rank is None):
        yield None
        return
    _join(torch.device(device), size, rank, timeout)
    try:
        ranks = Ranks()
        # A barrier: if a process left before all have joined, late ones would wait for it.
        ranks.sizes(0)
        yield ranks
    except BaseException:
        # Other processes may be waiting for this one, and with nccl destroy_process_group would wait for them.
        is_nccl = dist.get_backend() == "nccl"
        abort = getattr(dist.distributed_c10d, "_abort_process_group", None) if is_nccl else None
        (abort or dist.destroy_process_group)()
        raise
    dist.destroy_process_group()


def is_first(ranks: Ranks | None) -> bool:
    """Whether this process writes and prints: it is process 0, or the only one."""
    return ranks is None or ranks.rank == 0


def is_lost(error: BaseException) -> bool:
    """Whether an error says that another process stopped while this one was waiting for it."""
    return isinstance(error, dist.DistError) or _LOST_MESSAGES.search(str(error)) is not None


def _join(device: torch.device, size: int | None, rank: int | None, timeout: float) -> None:
    needed = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", *(["LOCAL_RANK"] if device.type == "cuda" else []))
    missing = [name for name in needed if not os.environ.get(name)]
    if missing or size is None or rank is None:
        raise InputError(f"To join other processes, the variable {', '.join(missing)} is needed ({_LAUNCHER}).")
    if not 0 <= rank < size:
        raise InputError(f"RANK={rank} is not a process of WORLD_SIZE={size}: they are numbered from 0 to {size - 1}.")
    _number("MASTER_PORT")
    own = None
    if device.type == "cuda":
        own = torch.device("cuda", _number("LOCAL_RANK") or 0)
        if own.index >= torch.cuda.device_count():
            raise InputError(f"LOCAL_RANK={own.index}, but this machine has {torch.cuda.device_count()} CUDA devices.")
        torch.cuda.set_device(own)
    backend, limit = "nccl" if device.type == "cuda" else "gloo", timedelta(seconds=timeout)
    place = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    try:
        shared_store = _rendezvous(place, rank, size, limit)
        # Each group and each restart by torchrun has its own prefix: it must not read keys of earlier groups, or the
        # addresses of processes that died.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        store = dist.PrefixStore(f"pollux {attempt} {next(_groups)}", shared_store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit, device_id=own)
    except dist.DistError as error:
        raise InputError(f"Process {rank} of {size} did not meet the others at {place}: {error}") from error


_groups = itertools.count()


@functools.cache
def _rendezvous(place: str, rank: int, size: int, limit: timedelta) -> Any:
    """The store in which processes publish their addresses.

    It is cached for later groups: process 0, which hosts it, may be the last one to join them.
    """
    return next(dist.rendezvous("env://", rank, size, timeout=limit))[0]  # type: ignore[attr-defined]


def _number(name: str) -> int | None:
    """The integer value of an environment variable; None if it is not set."""
    text = os.environ.get(name)
    if not text:
        return None
    if not text.isdecimal():
        raise InputError(f"The variable {name} must be a whole number, not {text!r} ({_LAUNCHER}).")
    return int(text)

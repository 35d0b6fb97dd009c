"""Thread limits for torch and NumPy, and random generators of torch that are local to a thread."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import torch
from threadpoolctl import ThreadpoolController, threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor, nn

from pollux.errors import advised, option, warn

# Multiplications that one core does in about a millisecond. On busy cores an operation on several threads waits about
# that long for the last of them.
_SMALL = 40_000_000
# Those of NumPy's products of samples with themselves, in some hundredths of a second: several threads would save few.
_SMALL_OF_NUMPY = 2_000_000_000

_allowed: ContextVar[int | None] = ContextVar("allowed", default=None)
_Item = TypeVar("_Item")


def allowed() -> int:
    """The number of threads that the user allows: what torch was set to outside ``torch_on_one``."""
    return _allowed.get() or torch.get_num_threads()


def threads_for(module: nn.Module, rows: int) -> AbstractContextManager[None]:
    """One thread if a pass of this many rows through the module takes no large matrix product, else all threads."""
    if allowed() == 1:
        return nullcontext()
    parameters = list(module.parameters())
    # Weights of more than two dimensions belong to convolutions, which use each of them many times.
    is_dense = all(each.ndim <= 2 for each in parameters)
    return threads_for_products(rows * sum(each.numel() for each in parameters) if is_dense else _SMALL + 1)


def threads_for_products(multiplications: int) -> AbstractContextManager[None]:
    """One thread if these multiplications take no longer than it takes to distribute them, else all threads."""
    return torch_on_one() if multiplications <= _SMALL else _torch_on_all()


@contextmanager
def _torch_on(count: int) -> Iterator[None]:
    """Limit tensor operations to this many threads, at most as many as the user allows.

    A thread that is started meanwhile inherits torch's setting from this one. So where one of several threads is found
    to have a single thread, it is assumed to have as many as the first of them had.
    """
    global _granted, _limiting
    with _counting:
        before = torch.get_num_threads()
        if not _limiting:
            _granted = before
        elif before == 1 and _allowed.get() is None:
            before = _granted
        _limiting += 1
    token = _allowed.set(_allowed.get() or before)
    torch.set_num_threads(min(count, allowed()))
    try:
        yield
    finally:
        _allowed.reset(token)
        with _counting:
            _limiting -= 1
        torch.set_num_threads(before)


_granted, _limiting, _counting = 1, 0, threading.Lock()


def _torch_on_all() -> AbstractContextManager[None]:
    """Run tensor operations on all threads that the user allows, also within :func:`torch_on_one`."""
    return _torch_on(allowed())


def torch_on_one() -> AbstractContextManager[None]:
    """Run tensor operations on one thread: small ones are slower on several, which wait for each other."""
    return _torch_on(1)


@contextmanager
def at_most(count: int) -> Iterator[None]:
    """Limit torch, and whoever asks :func:`allowed`, to at most ``count`` threads; 0 sets no limit."""
    before = torch.get_num_threads()
    torch.set_num_threads(min(count, before) or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def small_on_one(rows: int, columns: int) -> Iterator[None]:
    """One thread for NumPy and SciPy if products of samples of this size with themselves are small; if tiny, for torch.

    NumPy's threads spin while they wait for the next product and take cores from other programs. The limit applies to
    the whole process, so only the main thread sets it: otherwise one thread could lift a limit that another needs.
    """
    multiplications = rows * columns * columns
    if multiplications > _SMALL_OF_NUMPY or threading.current_thread() is not threading.main_thread():
        yield
        return
    of_torch = torch_on_one() if multiplications <= _SMALL else nullcontext()
    with of_torch, _product_libraries().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _product_libraries() -> Any:
    # Cached, because searching for the libraries takes 15 ms.
    return ThreadpoolController()


class ContentionWarning(RuntimeWarning):
    """Other processes use the processor, so that the threads of a training wait for each other."""


# A training on several threads is told of other programs after so many seconds, if it waited for this share of them.
_NOTICED_AFTER, _MUCH = 10.0, 0.2


class Contention:
    """Warns once if this thread, of several that train a module on the CPU, often waits for a processor."""

    def __init__(self, module: nn.Module) -> None:
        self._begun, self._before = monotonic(), _waited()
        is_elsewhere = any(each.device.type != "cpu" for each in module.parameters())
        self._is_over = self._before is None or torch.get_num_threads() == 1 or is_elsewhere

    def check(self) -> None:
        """Warn if it has waited for long."""
        elapsed = monotonic() - self._begun
        if self._is_over or elapsed < _NOTICED_AFTER:
            return
        waited = (_waited() or 0.0) - (self._before or 0.0)
        if waited > _MUCH * elapsed:
            self._is_over = True
            count, one = torch.get_num_threads(), advised("torch.set_num_threads(1)", option("threads", 1))
            warn(
                f"Other processes use the processor, and the {count} threads of this training wait for each other: it "
                f"may be several times faster on one thread, {one}.",
                ContentionWarning,
            )


def _waited() -> float | None:
    """Seconds that this thread has waited for a processor while it was ready to run; None where that is not known."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


_uses_many = False


def note_threads() -> None:
    """Note that work runs on as many threads as torch has, so that a process that is forked later is limited to one."""
    global _uses_many
    _uses_many = _uses_many or torch.get_num_threads() > 1


def _keep_to_one() -> None:
    # Threads of OpenMP are not copied by a fork: work that is given to them would never end.
    if _uses_many:
        torch.set_num_threads(1)
        threadpool_limits(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_to_one)


# A dispatch key that torch itself does not use: operators without a kernel for it skip it, at no cost. Torch has no
# public way to give dropout a generator: Python modes see every operator, which makes small steps several times
# slower, or do not see what is drawn within one. What this relies on is tested before it is used, see _is_redirected.
_KEY_NAME = "TESTING_ONLY_GenericMode"
_drawing, _lock = threading.local(), threading.RLock()


class DrawFrom(AbstractContextManager[None]):
    """In this context, and in this thread, operations without an explicit generator draw from this one.

    Initialisation of layers, dropout and shuffling loaders draw the numbers that they would draw from torch's global
    generator in the same state, and code that saves and sets its state, as ``torch.utils.checkpoint``, uses this one.
    The global generator is not changed: other threads may use it meanwhile. Other devices than the CPU are unaffected.
    """

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def __enter__(self) -> None:
        with _lock:
            self._way = (_Redirected if _is_redirected() else _Swapped)(self._generator)
        self._way.__enter__()

    def __exit__(self, *error: object) -> None:
        self._way.__exit__(*error)


class _Redirected(AbstractContextManager[None]):
    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def __enter__(self) -> None:
        self._before = _current()
        _drawing.generator = self._generator
        self._guard = torch._C._IncludeDispatchKeyGuard(_key())
        self._guard.__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: object) -> None:
        self._guard.__exit__(*error)
        _drawing.generator = self._before


class _Swapped(AbstractContextManager[None]):
    """Give torch's global generator our state meanwhile; a lock lets one thread at a time do so."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def __enter__(self) -> None:
        _lock.acquire()
        self._before = torch.default_generator.get_state()
        torch.default_generator.set_state(self._generator.get_state())

    def __exit__(self, *error: object) -> None:
        self._generator.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(self._before)
        _lock.release()


@functools.cache
def _key() -> Any:
    return torch._C._dispatch_key_parse(_KEY_NAME)


@functools.cache
def _is_redirected() -> bool:
    """Whether operators can be redirected to our generator; tested once, since torch does not document how."""
    own, ones = torch.Generator().manual_seed(1), torch.ones(99)
    before = torch.default_generator.get_state()
    try:
        expected = [torch.rand(9, generator=own), torch.empty(99).bernoulli_(0.5, generator=own)]
        _redirect()
        with _Redirected(own.manual_seed(1)):
            drawn = [torch.rand(9), nn.functional.dropout(ones, 0.5) / 2]
        if all(map(torch.equal, drawn, expected)) and torch.equal(torch.default_generator.get_state(), before):
            return True
    except (AttributeError, RuntimeError, TypeError, ValueError):
        torch.default_generator.set_state(before)
    warn(
        f"With torch {torch.__version__} a fit draws from torch's own generator, whose state it sets and restores: "
        "fits in several threads wait for each other, and what other threads draw meanwhile is no longer what their "
        "seed gives. Please report it.",
        RuntimeWarning,
    )
    return False


def _current() -> torch.Generator | None:
    return getattr(_drawing, "generator", None)


@functools.cache
def _redirect() -> list[Any]:
    """Register a kernel for all random operators that passes them the generator of the current context."""
    library: Any = torch.library.Library
    everything, operators = library("_", "IMPL"), library("aten", "IMPL")
    everything.m.fallback_fallthrough(_KEY_NAME)
    for schema in torch._C._jit_get_all_schemas():
        takes_generator = any(argument.name == "generator" for argument in schema.arguments)
        if not schema.name.startswith("aten::" if takes_generator else ("aten::rand", "aten::native_dropout")):
            continue
        packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"))
        operator = getattr(packet, schema.overload_name or "default")
        if takes_generator:
            operators.impl(operator, functools.partial(_draw, operator), _KEY_NAME)
        else:
            operators.impl(operator, functools.partial(_draw_within, operator), _KEY_NAME, with_keyset=True)
    get_own, set_own = torch.get_rng_state, torch.set_rng_state

    @functools.wraps(get_own)
    def get_rng_state() -> Tensor:
        generator = _current()
        return get_own() if generator is None else generator.get_state()

    @functools.wraps(set_own)
    def set_rng_state(new_state: Tensor) -> None:
        generator = _current()
        set_own(new_state) if generator is None else generator.set_state(new_state)

    # Layers that are recomputed in the backward pass restore their random state by these, which are not operators.
    torch.get_rng_state, torch.set_rng_state = get_rng_state, set_rng_state
    # Registrations last as long as these objects.
    return [everything, operators]


def _is_ours(args: Any, kwargs: Any) -> bool:
    """Whether an operator draws on the CPU, now: a compiler that traces records the operator, not its generator."""
    device = kwargs.get("device") or next((value.device for value in args if isinstance(value, Tensor)), "cpu")
    is_traced = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
    return _current() is not None and torch.device(device).type == "cpu" and not is_traced


def _draw(operator: Any, *args: Any, **kwargs: Any) -> Any:
    is_given = any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values()))
    if not is_given and _is_ours(args, kwargs):
        kwargs["generator"] = _current()
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_key())):
        return operator(*args, **kwargs)


def _draw_within(operator: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator that takes no generator: those that it calls draw from ours, unless a mode hides them."""
    generator, own = _current(), torch.default_generator
    if generator is None or not torch._C._len_torch_dispatch_stack() or not _is_ours(args, kwargs):
        return operator.redispatch(keys.remove(_key()), *args, **kwargs)
    with _lock:
        before = own.get_state()
        own.set_state(generator.get_state())
        try:
            return operator.redispatch(keys.remove(_key()), *args, **kwargs)
        finally:
            generator.set_state(own.get_state())
            own.set_state(before)


def iterate_drawing(items: Iterable[_Item], generator: torch.Generator) -> Iterator[_Item]:
    """Iterate over what draws random numbers as it is iterated, such as a loader that shuffles."""
    with DrawFrom(generator):
        iterator = iter(items)
    while True:
        # Only while an item is made: the code that receives it draws from elsewhere.
        with DrawFrom(generator):
            try:
                item = next(iterator)
            except StopIteration:
                return
        yield item

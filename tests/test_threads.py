"""How many threads small work has."""

import copy
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from threadpoolctl import ThreadpoolController, threadpool_limits  # type: ignore[import-untyped]
from torch.utils._python_dispatch import TorchDispatchMode

import pollux.geometry.mixtures
import pollux.threads
from pollux import GeminiClustering
from pollux.threads import (
    Contention,
    ContentionWarning,
    _waited,
    allowed,
    small_on_one,
    threads_for,
    torch_on_one,
)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with threadpool_limits(2, user_api="blas"):
        yield
    torch.set_num_threads(before)


def threads_of_numpy() -> set[int]:
    return {each["num_threads"] for each in ThreadpoolController().info() if each["user_api"] == "blas"}


def test_small_products_have_one_thread_and_large_ones_all() -> None:
    before = threads_of_numpy()
    with small_on_one(1_000, 20):
        assert threads_of_numpy() == {1}
        with small_on_one(100, 4):
            assert threads_of_numpy() == {1}
        assert threads_of_numpy() == {1}
    assert threads_of_numpy() == before
    with small_on_one(100_000, 100):
        assert (threads_of_numpy(), torch.get_num_threads()) == ({1}, 2)
    with small_on_one(100_000, 1_000):
        assert threads_of_numpy() == before


def test_other_threads_leave_the_limit_of_the_process_alone() -> None:
    before, seen = threads_of_numpy(), list[set[int]]()

    def look() -> None:
        with small_on_one(10, 2):
            seen.append(threads_of_numpy())

    other = threading.Thread(target=look)
    other.start()
    other.join()
    assert seen == [before]


X = np.random.default_rng(0).normal(size=(60, 4))
X[30:] += 1


@pytest.fixture(scope="module")
def clustering() -> GeminiClustering:
    return GeminiClustering(2, random_state=0).fit(X)


@pytest.mark.parametrize(
    "call",
    [
        lambda clustering: GeminiClustering(2, random_state=0).fit(X),
        lambda clustering: clustering.score(X),
        lambda clustering: clustering.hierarchy(X),
        lambda clustering: copy.deepcopy(clustering).partial_fit(X),
    ],
    ids=["fit", "score", "hierarchy", "partial_fit"],
)
def test_small_tables_are_computed_without_threads_that_wait(
    call: Callable[[GeminiClustering], object], clustering: GeminiClustering, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[int]] = []
    of_torch: list[int] = []
    fit_mixture = pollux.geometry.mixtures.Mixture.of

    def looked_at(*arguments: object) -> object:
        seen.append(threads_of_numpy())
        of_torch.append(torch.get_num_threads())
        return fit_mixture(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(pollux.geometry.mixtures.Mixture, "of", staticmethod(looked_at))
    call(clustering)
    assert seen
    assert all(each == {1} for each in seen)
    assert set(of_torch) == {1}
    assert torch.get_num_threads() == 2


class Threads(TorchDispatchMode):
    """Records the operators that torch distributes to threads, however small they are, where it has more than one."""

    DISTRIBUTED: ClassVar = {"exp", "log", "tanh", "mm", "addmm", "bmm", "baddbmm", "_euclidean_dist", "_log_softmax"}

    def __init__(self) -> None:
        super().__init__()
        self.seen, self.on_several = set[str](), set[str]()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if name in self.DISTRIBUTED:
            self.seen.add(name)
            if torch.get_num_threads() > 1:
                self.on_several.add(name)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("call", ["predict", "predict_proba", "transform", "score", "score_samples", "find_outliers"])
def test_calls_on_few_samples_leave_nothing_to_threads_that_wait(call: str, clustering: GeminiClustering) -> None:
    with Threads() as threads:
        getattr(clustering, call)(X)
    assert threads.seen
    assert not threads.on_several


@pytest.fixture
def slow_clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Seconds that have passed, and of them those without a processor."""
    clock = {"passed": 0.0, "waited": 0.0}
    monkeypatch.setattr(pollux.threads, "monotonic", lambda: clock["passed"])
    monkeypatch.setattr(pollux.threads, "_waited", lambda: clock["waited"])
    return clock


def test_a_training_that_waits_for_other_programs_says_so_once(slow_clock: dict[str, float]) -> None:
    contention = Contention(torch.nn.Linear(2, 2))
    slow_clock.update(passed=9, waited=9)
    contention.check()
    slow_clock.update(passed=20, waited=5)
    with pytest.warns(ContentionWarning, match=r"the 2 threads .* faster on one thread, torch\.set_num_threads\(1\)"):
        contention.check()
    slow_clock.update(passed=40, waited=30)
    contention.check()


def test_nothing_is_said_of_other_programs_that_do_not_matter(slow_clock: dict[str, float]) -> None:
    on_two = Contention(torch.nn.Linear(2, 2))
    torch.set_num_threads(1)
    on_one = Contention(torch.nn.Linear(2, 2))
    slow_clock.update(passed=100, waited=19)
    on_two.check()
    slow_clock.update(passed=100, waited=99)
    on_one.check()
    torch.set_num_threads(2)
    elsewhere = Contention(torch.nn.Linear(2, 2, device="meta"))
    slow_clock.update(passed=200, waited=199)
    elsewhere.check()


def test_time_without_a_processor_is_known_on_linux() -> None:
    waited = _waited()
    assert waited is None or 0 <= waited < time.monotonic()


def test_a_large_network_has_all_threads_for_few_samples_too() -> None:
    large, small = torch.nn.Linear(2_000, 2_000), torch.nn.Linear(2, 2)
    with torch_on_one():
        with threads_for(large, 100):
            assert torch.get_num_threads() == 2
        assert (torch.get_num_threads(), allowed()) == (1, 2)
    with threads_for(large, 100), threads_for(small, 100):
        assert torch.get_num_threads() == 1


def test_threads_that_begin_while_another_is_limited_get_what_is_granted() -> None:
    inside, begun, seen = threading.Event(), threading.Event(), list[int]()

    def first() -> None:
        with torch_on_one():
            inside.set()
            begun.wait(10)

    def second() -> None:
        inside.wait(10)
        with torch_on_one():
            begun.set()
            seen.append(allowed())
        seen.append(torch.get_num_threads())

    threads = [threading.Thread(target=each) for each in (first, second)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert seen == [2, 2]
    assert torch.get_num_threads() == 2

"""Shuffled batches: each row exactly once an epoch, whatever the chunks; and the thread that reads ahead."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunk_files import Numbered, read_all
from coverings import IS_FULL, examples
from pollux.data.shuffling import BatchSizes, in_order, shards, shuffled
from pollux.errors import InputError


def numbers(batches: Iterator[Any]) -> list[list[int]]:
    return [batch[:, 0].astype(int).tolist() for batch in batches]


def flat(batches: Sequence[Sequence[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


def reading_threads() -> int:
    return sum(thread.name.startswith("pollux-reading") for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    if reading_threads():
        gc.collect()
    assert not reading_threads()


# Batches

lengths_of_chunks = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@settings(max_examples=examples(150), deadline=None)
@given(
    lengths=lengths_of_chunks,
    n_batches=st.integers(1, 20),
    seed=st.integers(0, 2**40),
    window_rows=st.integers(0, 30),
    start=st.integers(0, 20),
)
def test_each_row_comes_exactly_once_an_epoch(
    lengths: list[int], n_batches: int, seed: int, window_rows: int, start: int
) -> None:
    n, start = sum(lengths), min(start, n_batches)
    sizes = BatchSizes(n, n_batches)
    batches = numbers(shuffled(Numbered(lengths), sizes, seed, window_bytes=8 * window_rows))
    assert [len(batch) for batch in batches] == [len(part) for part in np.array_split(np.arange(n), n_batches)]
    assert sorted(flat(batches)) == list(range(n))
    chunks = Numbered(lengths)
    assert numbers(shuffled(chunks, sizes, seed, window_bytes=8 * window_rows, start=start)) == batches[start:]
    assert list(sizes) == [len(batch) for batch in batches]
    assert sizes.before(start) == sum(sizes[:start])


def test_sizes_may_be_any_that_make_up_the_rows() -> None:
    chunks = Numbered([4, 3, 5])
    batches = numbers(shuffled(chunks, [1, 0, 7, 4], 3, window_bytes=40))
    assert [len(batch) for batch in batches] == [1, 0, 7, 4]
    assert sorted(flat(batches)) == list(range(12))
    for wrong in ([12, 1], [11], []):
        with pytest.raises(ValueError, match="12"):
            shuffled(chunks, wrong, 3)


def test_windows_before_the_start_are_not_read() -> None:
    whole, late = Numbered([10] * 20), Numbered([10] * 20)
    expected = numbers(shuffled(whole, BatchSizes(200, 40), 5, window_bytes=8 * 20))
    assert numbers(shuffled(late, BatchSizes(200, 40), 5, window_bytes=8 * 20, start=30)) == expected[30:]
    assert late.was_read == whole.was_read[14:]


def test_seeds_decide_about_the_order() -> None:
    orders = [flat(numbers(shuffled(Numbered([50] * 4), BatchSizes(200, 10), seed))) for seed in (0, 1, 2, 1)]
    assert orders[1] == orders[3]
    assert len({tuple(order) for order in orders}) == 3
    few = [flat(numbers(shuffled(Numbered([1] * 30), BatchSizes(30, 3), seed, window_bytes=1))) for seed in (0, 1)]
    assert few[0] != few[1]


SEEDS = 600 if IS_FULL else 150


def test_a_window_is_shuffled_evenly() -> None:
    """Over many seeds, each row is anywhere in the epoch equally often."""
    places = np.array([np.argsort(flat(numbers(shuffled(Numbered([2] * 5), [10], seed)))) for seed in range(SEEDS)])
    np.testing.assert_allclose(places.mean(0), 4.5, atol=4.5 * 2.9 / SEEDS**0.5)


@settings(max_examples=examples(100), deadline=None)
@given(lengths=lengths_of_chunks, parts=st.integers(1, 6), seed=st.integers(0, 99))
def test_shards_cover_all_rows_once(lengths: list[int], parts: int, seed: int) -> None:
    chunks = Numbered(lengths)
    found = shards(chunks.lengths, parts)
    assert sorted(np.concatenate(found).tolist()) == list(range(len(lengths)))
    loads = [int(chunks.lengths[own].sum()) for own in found]
    assert max(loads) - min(loads) <= max(lengths)
    rows = [
        flat(numbers(shuffled(chunks, BatchSizes(load, 3), seed, own=own, window_bytes=50)))
        for own, load in zip(found, loads, strict=True)
    ]
    assert sorted(flat(rows)) == list(range(sum(lengths)))


@settings(max_examples=examples(100), deadline=None)
@given(lengths=lengths_of_chunks.filter(any), parts=st.integers(1, 40))
def test_slices_hold_the_same_rows_in_enough_chunks(lengths: list[int], parts: int) -> None:
    chunks = Numbered(lengths)
    slices = chunks.subdivided(parts)
    assert len(slices.lengths) >= min(parts, sum(lengths))
    np.testing.assert_array_equal(read_all(slices), read_all(chunks))
    assert [len(slices.read(chunk)) for chunk in range(len(slices.lengths))] == slices.lengths.tolist()
    finer = slices.subdivided(2 * parts)
    np.testing.assert_array_equal(read_all(finer), read_all(chunks))


def test_chunks_come_in_order() -> None:
    assert [rows[0, 0] for rows in in_order(Numbered([3, 0, 2, 5]))] == [0, 3, 5]


# The thread


def test_what_goes_wrong_in_the_background_is_raised() -> None:
    for batches in (shuffled(Numbered([5] * 9, fail=4), BatchSizes(45, 9), 0, window_bytes=80),):
        with pytest.raises(InputError, match="chunk 4"):
            list(batches)
    with pytest.raises(InputError, match="chunk 1"):
        list(in_order(Numbered([5] * 9, fail=1)))


def test_the_thread_ends_with_the_iterator() -> None:
    def half() -> Iterator[Any]:
        batches = shuffled(Numbered([5] * 99), BatchSizes(495, 99), 0, window_bytes=80)
        next(batches)
        assert reading_threads() == 1
        return batches

    half().close()  # type: ignore[attr-defined]
    assert not reading_threads()
    batches: Any = half()
    del batches
    assert not reading_threads()

    def interrupted() -> None:
        for _ in half():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    gc.collect()
    assert not reading_threads()


def test_a_slow_window_is_left_as_soon_as_nobody_waits() -> None:
    class Slow(Numbered):
        def read(self, chunk: int) -> Any:
            # The second window would take half a minute.
            time.sleep(0.5 * (len(self.was_read) >= 60))
            return super().read(chunk)

    chunks = Slow([1] * 120)
    batches = shuffled(chunks, BatchSizes(120, 120), 0, window_bytes=8 * 60)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert 60 <= len(chunks.was_read) < 120


def test_the_next_window_is_read_meanwhile() -> None:
    chunks = Numbered([10] * 6)
    batches = shuffled(chunks, BatchSizes(60, 60), 0, window_bytes=8 * 10)
    next(batches)
    deadline = time.perf_counter() + 60
    while len(chunks.was_read) < 2 and time.perf_counter() < deadline:
        time.sleep(0.005)
    time.sleep(0.05)
    assert len(chunks.was_read) == 2

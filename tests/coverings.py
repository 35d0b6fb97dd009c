"""How much is tested: everything in ``make test-faults``, the most informative part in ``make test``."""

import os
from collections.abc import Iterable
from itertools import combinations, cycle, product
from typing import Any

import pytest

IS_FULL = os.environ.get("POLLUX_FAULTS") == "full"
in_full = pytest.mark.skipif(not IS_FULL, reason="make test-faults runs it")


def examples(count: int) -> int:
    """Return the number of random examples for hypothesis: a fifth of them in ``make test``."""
    return count if IS_FULL else max(1, count // 5)


def combinations_of(*choices: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return all combinations, or enough to combine every value with every other."""
    lists = [list(values) for values in choices]
    return list(product(*lists)) if IS_FULL else all_pairs(*lists)


def rotated(*choices: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return all combinations, or those of all choices but the last, with the values of the last in turn."""
    *first, last = [list(values) for values in choices]
    turns = zip(product(*first), cycle(last))
    return list(product(*first, last)) if IS_FULL else [(*values, value) for values, value in turns]


def every_other(values: Iterable[Any], first: int = 0) -> list[Any]:
    """Return all values, or every other one; with ``first=1`` the ones that are left out otherwise."""
    return list(values) if IS_FULL else list(values)[first::2]


def all_pairs(*choices: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return combinations that contain any two values of different choices together (a covering array of strength 2).

    The search is greedy and deterministic: it takes the first combination with the most missing pairs.
    """
    lists = [list(values) for values in choices]
    places = list(combinations(range(len(lists)), 2))

    def pairs(combination: tuple[int, ...]) -> set[tuple[int, ...]]:
        return {(a, b, combination[a], combination[b]) for a, b in places}

    remaining = {combination: pairs(combination) for combination in product(*(range(len(values)) for values in lists))}
    missing = set().union(*remaining.values())
    found = []
    while missing:
        best = max(remaining, key=lambda combination: len(remaining[combination] & missing))
        missing -= remaining.pop(best)
        found.append(tuple(values[index] for values, index in zip(lists, best, strict=True)))
    return found

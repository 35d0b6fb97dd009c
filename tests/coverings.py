"""Fewer combinations of parameters that still try every value with every other."""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any


def all_pairs(*choices: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Combinations such that any two values of different choices meet in one of them (a covering array of strength 2).

    Found greedily, and always the same: of all combinations the first with most pairs that are still missing.
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

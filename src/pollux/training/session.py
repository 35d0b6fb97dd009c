"""A session: the seed, the generators and the processes of one fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from sklearn.utils import check_random_state

from pollux.ranks import Ranks, joined
from pollux.threads import note_threads


@dataclass(frozen=True)
class Session:
    """The random generators of a fit, and the processes that train one model.

    ``generator`` is the same in all processes; ``noise``, if there are several, differs between them. Initial weights,
    dropout and loaders draw from ``default_generator``, which replaces torch's global one (see
    :class:`pollux.threads.DrawFrom`).
    """

    seed: int
    device: str
    generator: torch.Generator
    default_generator: torch.Generator
    noise: torch.Generator | None = None
    ranks: Ranks | None = None

    def diverge_ranks(self) -> None:
        """From here on each process draws different random numbers, for instance for dropout."""
        if self.ranks is not None:
            seed = self.seed + 1 + self.ranks.size + self.ranks.rank
            self.default_generator.manual_seed(seed)
            if torch.device(self.device).type == "cuda":
                with torch.cuda.device(self.device):
                    torch.cuda.manual_seed(seed)


@contextmanager
def session(random_state: Any, device: str, *, distributed: bool = True) -> Iterator[Session]:
    """Seed all randomness of a fit from random_state: initial weights, dropout, batches.

    Torch's global generator is not changed; that of a CUDA device is seeded, and restored afterwards. Several processes
    start from the same weights and draw the same batches, with the seed of the first of them.
    """
    note_threads()
    ranks = joined() if distributed else None
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    if ranks is not None:
        seed = int(ranks.broadcast_object(seed))
    generator, default = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed)
    noise = None if ranks is None else torch.Generator().manual_seed(seed + 1 + ranks.rank)
    run = Session(seed, device, generator, default, noise, ranks)
    if torch.device(device).type != "cuda":
        yield run
        return
    before = torch.cuda.get_rng_state(device)
    try:
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)
        yield run
    finally:
        torch.cuda.set_rng_state(before, device)


def random_states(generators: Mapping[str, torch.Generator | None], device: torch.device) -> dict[str, Any]:
    """The states of generators by name, and of the generator of the device."""
    states: dict[str, Any] = {name: generator.get_state() for name, generator in generators.items() if generator}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def load_random_states(
    states: Mapping[str, Any], generators: Mapping[str, torch.Generator | None], device: torch.device
) -> None:
    """Restore :func:`random_states`."""
    for name, generator in generators.items():
        if generator is not None and name in states:
            generator.set_state(states[name])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    elif device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])

"""Random numbers of a fit are its own: fits in threads and the caller do not disturb each other."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from coverings import every_other
from pollux import GeminiClustering, threads
from pollux.threads import DrawFrom, iterate_drawing
from pollux.training import starting

X = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)


class Dropping(nn.Module):
    """A network with dropout, whose layers may be computed anew in the backward pass, or begin to draw later."""

    def __init__(self, d: int, n_clusters: int, anew: bool = False, after: int = 0) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(d, 16), nn.ReLU(), nn.Dropout(0.5))
        self.last, self.anew, self.after = nn.Linear(16, n_clusters), anew, after
        self.register_buffer("passes", torch.tensor(0))

    def forward(self, inputs: Tensor) -> Tensor:
        self.passes += self.training
        if self.passes <= self.after:
            plain: Tensor = self.last(self.hidden[:2](inputs))
            return plain
        hidden = checkpoint(self.hidden, inputs, use_reentrant=False) if self.anew else self.hidden(inputs)
        logits: Tensor = self.last(functional.dropout(hidden, 0.2, self.training))
        return logits


WAYS: dict[str, tuple[dict[str, Any], Callable[[], Any]]] = {
    "closed form": ({"model": "mlp", "n_init": 1, "batch_size": 15}, lambda: X),
    "restarts": ({"batch_size": 10, "n_init": 2, "penalties": {"vat": 1.0}}, lambda: X),
    "a free table": ({"model": "free"}, lambda: X),
    "a start at labels": ({"init": "kmeans"}, lambda: X),
    "dropout": ({"model": Dropping, "batch_size": 10}, lambda: X),
    "dropout, computed anew": ({"model": lambda d, k: Dropping(d, k, anew=True), "batch_size": 10}, lambda: X),
    "dropout, begun later": ({"model": lambda d, k: Dropping(d, k, after=3), "batch_size": 10}, lambda: X),
    "a loader that shuffles": ({}, lambda: DataLoader(TensorDataset(torch.as_tensor(X)), batch_size=10, shuffle=True)),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_FEWEST_STEPS", 5)


every_way = pytest.mark.parametrize("way", WAYS)


def fit(way: str, seed: int = 0) -> list[Tensor]:
    options, samples = WAYS[way]
    clustering = GeminiClustering(3, max_epochs=2, random_state=seed, **options)
    return list(clustering.fit(samples()).module_.state_dict().values())


def same(one: list[Tensor], other: list[Tensor]) -> bool:
    return all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize(("way", "fits"), [(way, 8 if way == "closed form" else 1) for way in every_other(WAYS)])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_fits_in_threads_are_as_alone(way: str, fits: int) -> None:
    alone = [fit(way, seed) for seed in range(2)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: fit(way, number % 2), range(8 * fits)))
    assert all(same(weights, alone[number % 2]) for number, weights in enumerate(found))


@pytest.mark.parametrize("way", every_other(WAYS, 1))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_caller_draws_as_if_there_were_no_fit(way: str) -> None:
    torch.manual_seed(5)
    is_over, drawn = threading.Event(), []

    def fit_meanwhile() -> None:
        for _ in range(2):
            fit(way)
        is_over.set()

    thread = threading.Thread(target=fit_meanwhile)
    thread.start()
    while not is_over.is_set() and len(drawn) < 10_000:
        drawn.append(torch.rand(()))
    thread.join()
    # Drawn one by one, they are those that are drawn at once.
    torch.manual_seed(5)
    assert drawn == [torch.rand(()) for _ in drawn]


@every_way
def test_torch_s_own_generator_is_as_before(way: str) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    fit(way)
    assert torch.equal(torch.get_rng_state(), before)


def test_layers_that_are_computed_anew_drop_what_they_dropped() -> None:
    assert same(fit("dropout"), fit("dropout, computed anew"))


DRAWS: dict[str, Callable[[], Tensor]] = {
    "layers": lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3)(torch.ones(3, 2, 8)),
    "embedding": lambda: nn.Embedding(5, 3).weight.detach(),
    "convolution": lambda: nn.Conv2d(2, 3, 3).weight.detach(),
    "lstm": lambda: nn.LSTM(5, 6, 2, dropout=0.3)(torch.ones(4, 2, 5))[0],
    "randn": lambda: torch.randn(4),
    "rand_like": lambda: torch.rand_like(torch.ones(4)),
    "randint": lambda: torch.randint(3, 50, (4,)),
    "randperm": lambda: torch.randperm(9),
    "out": lambda: torch.rand(4, out=torch.empty(4)),
    "bernoulli": lambda: torch.bernoulli(torch.full((9,), 0.5)),
    "multinomial": lambda: torch.multinomial(torch.ones(9), 3),
    "rrelu": lambda: functional.rrelu(torch.randn(9), training=True),
    "gumbel": lambda: functional.gumbel_softmax(torch.ones(3, 4)),
    "attention": lambda: functional.scaled_dot_product_attention(*3 * [torch.ones(1, 2, 3, 4)], dropout_p=0.5),
    "truncated": lambda: nn.init.trunc_normal_(torch.empty(5)),
    "a distribution": lambda: torch.distributions.Beta(torch.ones(3), torch.ones(3)).sample(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_drawn_from_a_generator_is_what_torch_would_draw(name: str) -> None:
    torch.manual_seed(3)
    expected, after = DRAWS[name](), torch.get_rng_state()
    torch.manual_seed(4)
    before, generator = torch.get_rng_state(), torch.Generator().manual_seed(3)
    with DrawFrom(generator):
        found = DRAWS[name]()
    assert torch.equal(found, expected)
    assert torch.equal(generator.get_state(), after)
    assert torch.equal(torch.get_rng_state(), before)


def test_who_takes_items_draws_from_elsewhere() -> None:
    def items() -> Any:
        for _ in range(3):
            yield torch.rand(())

    torch.manual_seed(0)
    for item in iterate_drawing(items(), torch.Generator().manual_seed(1)):
        assert item != torch.rand(())
    torch.manual_seed(0)
    assert torch.equal(torch.get_rng_state(), torch.Generator().manual_seed(0).get_state())


@pytest.mark.parametrize("lost", ["_dispatch_key_parse", "_IncludeDispatchKeyGuard", "_jit_get_all_schemas"])
def test_a_torch_without_what_redirects_is_warned_of_and_gives_the_same(
    lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody promises these names; without them fits take turns at torch's own generator."""
    expected = fit("dropout")
    for cached in (threads._is_redirected, threads._redirect, threads._key):
        own = cached.__wrapped__
        monkeypatch.setattr(threads, own.__name__, functools.cache(own))
    monkeypatch.delattr(torch._C, lost)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with pytest.warns(RuntimeWarning, match="fits in several threads wait for each other"):
        found = fit("dropout")
    assert same(expected, found)
    assert torch.equal(torch.get_rng_state(), before)
    with ThreadPoolExecutor(2) as pool:
        assert all(same(expected, each) for each in pool.map(fit, ["dropout"] * 4))

"""RowBatches: every sample once an epoch, reshuffled as often as asked, and threads that are put back."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, TensorDataset

from pollux import GeminiClustering, Training, threads
from pollux.data.samples import LOADED_ROWS, Loader
from pollux.objectives import Gemini, sinkhorn
from pollux.spec import Spec
from pollux.training.batches import Batch, LoaderBatches, RowBatches
from pollux.training.problem import resolve_reshuffling


def batches(reshuffle_every: int, n: int = 25, batch_size: int = 10) -> RowBatches:
    rows = torch.arange(n)
    return RowBatches(n, batch_size, rows.__getitem__, lambda index: index[:, None] * index, None, reshuffle_every)


def members(batch: Batch) -> frozenset[int]:
    return frozenset(batch.inputs.tolist())


@pytest.mark.parametrize("reshuffle_every", [1, 3, 100])
def test_each_epoch_shows_every_sample_once(reshuffle_every: int) -> None:
    source = batches(reshuffle_every)
    for _ in range(7):
        seen = torch.cat([batch.inputs for batch in source.epoch(torch.Generator().manual_seed(0))])
        assert sorted(seen.tolist()) == list(range(25))


@pytest.mark.parametrize("reshuffle_every", [1, 2, 3])
def test_batches_keep_their_samples_for_as_many_epochs_as_asked(reshuffle_every: int) -> None:
    source, generator = batches(reshuffle_every), torch.Generator().manual_seed(0)
    partitions = [{members(batch) for batch in source.epoch(generator)} for _ in range(9)]
    for epoch, (before, after) in enumerate(pairwise(partitions), 1):
        assert (before == after) == (epoch % reshuffle_every != 0)


def test_batches_that_are_kept_come_in_another_order() -> None:
    source, generator = batches(100, n=100), torch.Generator().manual_seed(0)
    orders = {tuple(members(batch) for batch in source.epoch(generator)) for _ in range(6)}
    assert len(orders) > 1


def test_a_batch_that_is_kept_brings_the_very_same_affinity() -> None:
    """What an objective has learned about an affinity lives as long as that object."""
    source, generator = batches(4), torch.Generator().manual_seed(0)
    first = {members(batch): batch.affinity for batch in source.epoch(generator)}
    for batch in source.epoch(generator):
        assert batch.affinity is first[members(batch)]
        assert isinstance(batch.affinity, Tensor)
        torch.testing.assert_close(batch.affinity, batch.inputs[:, None] * batch.inputs)


@pytest.mark.parametrize(
    ("objective", "n", "kept"),
    [
        ("wasserstein_ova", 2_000, 10),
        ("wasserstein_ova", 200_000, 1),
        (Gemini("wasserstein_ovo"), 2_000, 10),
        ("mmd_ova", 2_000, 1),
        (sinkhorn(), 2_000, 1),
    ],
)
def test_automatic_reshuffling_keeps_batches_where_that_pays_and_fits(objective: Any, n: int, kept: int) -> None:
    transports = Spec.of(GeminiClustering(10, objective=objective, n_init=2)).n_transport_problems
    assert resolve_reshuffling("auto", n, 500, transports, dense=True) == kept


def test_trees_in_a_large_graph_count_too() -> None:
    assert resolve_reshuffling("auto", 20_000, 100, 10, dense=False) == 10
    assert resolve_reshuffling("auto", 20_000, 100, 100, dense=False) == 1


@pytest.mark.parametrize("objective", ["wasserstein_ova", "wasserstein_ovo", "mmd_ova"])
def test_keeping_batches_finds_the_same_clusters(objective: str) -> None:
    X, labels = make_blobs(120, 3, centers=3, center_box=(-20, 20), random_state=1)
    for every in ("auto", 1, 7):
        clustering = GeminiClustering(
            3,
            model="linear",
            objective=objective,
            batch_size=40,
            training=Training(reshuffle_every=every),
            max_epochs=40,
            random_state=0,
        ).fit(X)
        pairs = np.unique(np.stack([clustering.labels_, labels]), axis=1)
        assert pairs.shape[1] == clustering.n_clusters_


@pytest.mark.parametrize("own", [15, (3, 4), lambda: 15, None], ids=["number", "tuple", "method", "none"])
def test_samplers_of_ones_own_may_mean_anything_by_their_batch_size(own: Any) -> None:
    class Sampler(BatchSampler):
        batch_size = own

        def __init__(self) -> None:
            pass

        def __iter__(self) -> Any:
            return iter([list(range(15)), list(range(15, 30))])

        def __len__(self) -> int:
            return 2

    loader: Any = DataLoader(TensorDataset(torch.ones(30, 2)), batch_sampler=Sampler())
    found = LoaderBatches(Loader(loader, "float32"), lambda part, ranks: part)
    assert found.batch_size == (15 if own == 15 else LOADED_ROWS)
    assert [len(part) for part in found.epoch()] == [15, 15]


@pytest.mark.parametrize("value", [0, -1, 2.5, True, "never", None])
def test_reshuffle_every_is_a_number_of_epochs(value: object) -> None:
    with pytest.raises(ValueError, match="reshuffle_every must be a positive integer"):
        GeminiClustering(2, training=Training(reshuffle_every=value)).fit(np.zeros((4, 2)))  # type: ignore[arg-type]


def test_torch_on_one_thread_leaves_the_user_s_number_to_others() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with threads.torch_on_one(), threads.torch_on_one():
            assert torch.get_num_threads() == 1
            assert threads.allowed() == 3
        assert torch.get_num_threads() == threads.allowed() == 3
    finally:
        torch.set_num_threads(before)

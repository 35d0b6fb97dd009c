"""Initial models: random, or pretrained on clusters of k-means in features of the geometry or of a neighbour graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import pairwise_distances_argmin
from torch import Tensor, nn

from pollux.data.rows import Rows
from pollux.geometry import KERNELS, Geometry, NeighbourGraph
from pollux.geometry.affinity import Block, Features
from pollux.geometry.centres import ENOUGH, fit_k_means
from pollux.models import FreeTable, KernelNetwork
from pollux.spec import Spec
from pollux.threads import DrawFrom
from pollux.training.batches import RowBatches
from pollux.training.checkpoints import as_checkpoints
from pollux.training.hints import BoundHints
from pollux.training.loop import train
from pollux.training.problem import MemoryProblem, StreamProblem, resolve_batch_size
from pollux.training.session import Session
from pollux.training.steps import CompiledStep, LabelStep, NotFiniteError, Step, make_optimiser
from pollux.training.trainable import DenseModels, SingleModel, Trainable, has_compiled_steps

# Runs of k-means per restart.
_RUNS = 4
_FEWEST_STEPS = 100
_WIDE, _PROJECTED = 1_024, 256
# Labels of k-means are often wrong: a model that is certain of them has little left to learn.
_LABEL_SMOOTHING = 0.1


def start(
    spec: Spec,
    problem: MemoryProblem | StreamProblem,
    run: Session,
    count: int,
    *,
    resumes: bool = True,
    hints: BoundHints | None = None,
) -> list[nn.Module]:
    """Initialise ``count`` modules: at random, or trained towards the clusters that ``init`` names.

    If k-means finds the same clusters every time, the first module is returned for all. ``resumes`` says that the
    training continues from its checkpoints, if there are any; ``hints`` are known clusters and pairs of samples.
    """
    if isinstance(problem, StreamProblem):
        shape = tuple(problem.source.shape)
    else:
        shape = (problem.n,) if spec.is_free else problem.rows.shape
    with DrawFrom(run.default_generator):
        modules = spec.build(shape, problem.dtype, count)
    for kernel in (module for module in modules if isinstance(module, KernelNetwork)):
        m = len(kernel.landmarks)
        kernel.adapt(problem.sample(m) if isinstance(problem, StreamProblem) else problem.rows.sample(m))
    if not isinstance(spec.model, str):
        problem.try_integers(modules, spec.n_clusters, spec.torch_dtype(np.dtype(np.float32)))
    if isinstance(problem, StreamProblem):
        return modules
    rows = problem.rows
    if spec.is_free and spec.init in ("auto", "kmeans++"):
        random = np.random.RandomState(run.seed)
        labels = [_nearest_seeds(rows.flat(), spec.n_clusters, random) for _ in modules]
        for module, own in zip(modules, labels if hints is None else hints.adapt_start(labels, problem), strict=True):
            _favour_labels(module, own)
    if spec.init not in ("kmeans", "graph"):
        return modules
    checkpoints = as_checkpoints(spec.training.checkpoint) if resumes else None
    # A single restart that is resumed gets its weights from the checkpoint. Of several, some may not have begun; of
    # several processes, some may not see the folder. With hints the initial labels are needed for the penalty.
    is_resumed = hints is None and checkpoints is not None and count == 1 and run.ranks is None and checkpoints.exist()
    return modules if is_resumed else _start_at_labels(modules, spec, problem, run, hints)


def _start_at_labels(
    modules: list[nn.Module], spec: Spec, problem: MemoryProblem, run: Session, hints: BoundHints | None
) -> list[nn.Module]:
    """Train the modules on their labels; of several with the same labels the first is trained, and returned for all."""
    count = len(modules)
    labels = initial_labels(
        spec.init,
        problem.rows,
        problem.geometry,
        problem.block,
        spec.n_clusters,
        len(modules),
        run.seed,
        problem.sample_weight,
    )
    if hints is not None:
        labels = hints.adapt_start(labels, problem)
    if all(own is labels[0] for own in labels):
        del modules[1:], labels[1:]
    if spec.is_free:
        for module, own in zip(modules, labels, strict=True):
            _favour_labels(module, own)
    else:
        learn_labels(
            modules,
            spec.n_clusters,
            labels,
            problem.inputs,
            resolve_batch_size(spec.batch_size, problem.n),
            spec.learning_rate,
            problem.sample_weight,
            torch.Generator().manual_seed(run.seed),
            run.default_generator if spec.is_own else None,
            is_own_network=not isinstance(spec.model, str),
        )
    if run.ranks is not None:
        # Different machines may find other labels, or round differently when training on them.
        for tensor in (tensor for module in modules for tensor in module.state_dict().values()):
            run.ranks.broadcast(tensor)
    return modules if len(modules) == count else modules * count


def _nearest_seeds(X: Any, n_clusters: int, random: np.random.RandomState) -> Tensor:
    """The nearest k-means++ seed of each of the samples X (n, d)."""
    samples = X.astype(np.float64)
    # Scaled to unit size, so that squares do not overflow.
    samples = samples / (abs(samples).max() or 1.0)
    seeds, _ = kmeans_plusplus(samples, min(n_clusters, samples.shape[0]), random_state=random)
    return torch.from_numpy(np.asarray(pairwise_distances_argmin(samples, seeds), dtype=np.int64))


@torch.no_grad()
def _favour_labels(table: nn.Module, labels: Tensor) -> None:
    """Set each row of a free table to favour its label."""
    assert isinstance(table, FreeTable)
    table.logits.add_(torch.nn.functional.one_hot(labels, table.logits.shape[1]).to(table.logits.device))


def initial_labels(
    init: str,
    rows: Rows,
    geometry: Geometry | None,
    block: Block | None,
    n_clusters: int,
    count: int,
    seed: int,
    sample_weight: Tensor | None = None,
) -> list[Tensor]:
    """Initial labels (n,) for each of ``count`` restarts.

    Parameters
    ----------
    init : {"kmeans", "graph"}
        k-means in the features of the geometry, or in the samples if it has none; or in the leading eigenvectors of the
        neighbour graph, the best of several runs by their cut of the graph.
    rows : Rows
        The samples.
    geometry, block : Geometry, callable, optional
        The geometry, and its affinity function for these samples.
    n_clusters, count, seed : int
        Number of clusters, number of restarts, and the random seed.
    sample_weight : Tensor of shape (n,), optional
        The weights of samples in k-means; a graph ignores them.
    """
    # Scaled, since only ratios of weights matter.
    weight = None if sample_weight is None else (sample_weight / sample_weight.max()).cpu().numpy()
    if init == "graph":
        graph = geometry if isinstance(geometry, NeighbourGraph) else NeighbourGraph()
        return [torch.from_numpy(labels) for labels in graph.clusterings(rows, n_clusters, count, seed, weight)]
    if geometry is None or block is None or geometry == KERNELS["linear"] or not geometry.gives_features:
        # The features of the linear kernel are the samples themselves, which may be sparse: no copy is made.
        features = rows.flat()
    else:
        everything = block(torch.arange(len(rows)))
        assert isinstance(everything, Features)
        features = _narrow(everything.values.cpu().numpy())
    # Scaled to unit size, so that squares do not overflow.
    features = features / (max(float(features.max()), -float(features.min())) or 1.0)
    labels: list[Tensor] = []
    for restart in range(count):
        K, own_seed = min(n_clusters, features.shape[0]), (seed + restart) % 2**32
        found = fit_k_means(features, K, own_seed, weight, runs=_RUNS)
        labels.append(torch.from_numpy(found.labels))
        if not restart and found.runs == found.found == ENOUGH:
            # All runs found the same clusters, so further runs are not needed.
            return labels * count
    return labels


def _narrow(features: NDArray[Any]) -> NDArray[Any]:
    """Features (n, r) unchanged, or for hundreds of clusters a random projection, which keeps distances to a few
    percent: k-means in thousands of dimensions takes minutes."""
    r = features.shape[1]
    if r <= _WIDE:
        return features
    directions = np.random.default_rng(0).standard_normal((r, _PROJECTED)).astype(features.dtype)
    projected: NDArray[Any] = features @ directions / math.sqrt(_PROJECTED)
    return projected


def learn_labels(
    modules: Sequence[nn.Module],
    n_clusters: int,
    labels: Sequence[Tensor],
    inputs: Callable[[Tensor], Tensor],
    batch_size: int,
    learning_rate: float,
    sample_weight: Tensor | None = None,
    generator: torch.Generator | None = None,
    default_generator: torch.Generator | None = None,
    is_own_network: bool = True,
) -> None:
    """Train each module to predict its own labels (n,), by cross-entropy: an epoch, or 100 steps where it has fewer.

    A custom network, ``is_own_network``, may have hooks that must run.
    """
    plan: list[tuple[Trainable, Step, Tensor]] = []
    if not is_own_network and has_compiled_steps(modules[0], n_clusters):
        # All together, each with its own labels.
        dense = DenseModels(modules, learning_rate)
        plan.append((dense, CompiledStep(dense, label_smoothing=_LABEL_SMOOTHING), torch.stack(list(labels), 1)))
    else:
        for module, own in zip(modules, labels, strict=True):
            single = SingleModel(module, n_clusters)
            optimiser = make_optimiser("adam", single.parameters(), learning_rate)
            plan.append((single, LabelStep(single, optimiser, _LABEL_SMOOTHING), own))
    for model, step, targets in plan:
        batches = RowBatches(len(targets), batch_size, inputs, sample_weight=sample_weight, targets=targets)
        before = [tensor.detach().clone() for module in model.modules for tensor in module.parameters()]
        # A module whose loss is not finite keeps its weights: the training itself will report the problem.
        with suppress(NotFiniteError):
            train(
                model,
                step,
                batches,
                max_epochs=max(1, -(-_FEWEST_STEPS // batches.n_batches)),
                generator=generator,
                default_generator=default_generator,
                title="learning the start",
            )
        _restore_not_finite(model.modules, before)


@torch.no_grad()
def _restore_not_finite(modules: Sequence[nn.Module], before: Sequence[Tensor]) -> None:
    """Restore modules whose weights are not finite to the weights (of all modules) that they had before."""
    kept = iter(before)
    for module in modules:
        own = [(parameter, next(kept)) for parameter in module.parameters()]
        if not all(bool(parameter.isfinite().all()) for parameter, _ in own):
            for parameter, earlier in own:
                parameter.copy_(earlier)

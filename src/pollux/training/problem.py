"""A problem: samples and their geometry, as batches to train on and as a whole to evaluate on."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pollux.data.rows import Rows, Several, SeveralRows
from pollux.data.samples import ArraySamples, Loader, Samples, StreamSamples
from pollux.data.scaling import FittedScaling, FittedTransformer, prepared
from pollux.data.shuffling import BatchSizes, shuffled
from pollux.errors import InputError
from pollux.geometry import Geometry, Mixtures, NeighbourGraph, Pairwise, nearest
from pollux.geometry.affinity import Affinity, Block, Features
from pollux.geometry.spectral import block_of
from pollux.objectives import Gemini
from pollux.progress import track
from pollux.ranks import Ranks
from pollux.spec import Spec
from pollux.threads import iterate_drawing, threads_for
from pollux.training.batches import Batch, Batches, LoaderBatches, RowBatches, StreamBatches, shard
from pollux.training.trainable import logits_of

SPACING_NEIGHBOUR = 10
_WHOLE_UP_TO = 1_000
_AUTO_BATCH = 500
# Keeping batches for longer makes training hardly faster.
_KEPT_EPOCHS = 10
_KEPT_BYTES = 1_000_000_000
# Samples that are evaluated together: more if they have features, fewer if they need a matrix.
_EVALUATED_ROWS, _EVALUATED_MATRIX = 10_000, 1_000
_IMAGES_AT_ONCE = 500
# Geometries in which the features of a sample do not depend on its batch.
_OF_EACH_SAMPLE = (Pairwise, Mixtures, NeighbourGraph)


class Evaluation(NamedTuple):
    """The objective on all samples, the weight of each cluster (K,), and the cluster of each sample (n,).

    For streamed samples the last is None.
    """

    objective: float
    sizes: Tensor
    choice: Tensor | None


def resolve_batch_size(batch_size: int | str | None, n: int) -> int:
    """Samples per step: the given number; all n for None, and for "auto" if n is small."""
    if batch_size == "auto":
        batch_size = None if n <= _WHOLE_UP_TO else _AUTO_BATCH
    return n if batch_size is None else int(batch_size)


def resolve_reshuffling(reshuffle_every: int | str, n: int, batch_size: int, transports: int, dense: bool) -> int:
    """Epochs for which batches keep their samples.

    "auto" keeps them if the objective solves transport problems, which are faster to solve again, and if the memory for
    that suffices; ``dense`` says that distances are a matrix.
    """
    if reshuffle_every != "auto":
        return int(reshuffle_every)
    # Bytes: for each pair of a batch its distance and two copies, for each transport problem a tree of five bytes per
    # node; trees in a graph span all of its nodes.
    kept = 20 * n * batch_size + 5 * transports * (n if dense else n**2 // batch_size)
    return _KEPT_EPOCHS if transports and kept <= _KEPT_BYTES else 1


def pose_problem(
    spec: Spec,
    samples: Samples,
    scaling: FittedScaling | FittedTransformer | None,
    geometry: Geometry | None,
    ranks: Ranks | None = None,
    *,
    dtype: torch.dtype | None = None,
    adapt: bool = True,
    is_trained: bool = True,
    takes_integers: bool = False,
    default_generator: torch.Generator | None = None,
) -> MemoryProblem | StreamProblem:
    """Build the problem from samples: scaled, and with the geometry bound to them.

    Parameters
    ----------
    spec, samples, scaling, geometry, ranks
        The parameters, the samples, their scaling, their geometry, and the processes that share them.
    dtype : torch.dtype, optional
        The floating-point type, if it is known already.
    adapt : bool
        Whether to estimate data-dependent parameters of the geometry, such as a bandwidth, from these samples.
    is_trained : bool
        Whether a model is trained on them, so that penalties need their spacing.
    takes_integers : bool
        Whether a trained model takes samples as integers.
    default_generator : torch.Generator, optional
        Replaces torch's global generator for a loader that draws from it.
    """
    dtype = dtype or spec.torch_dtype(samples.dtype)
    if isinstance(samples, StreamSamples):
        problem = StreamProblem(samples, geometry, dtype, spec.device, ranks, default_generator, scaling)
        if geometry is not None and adapt and geometry.adapts:
            problem.geometry = geometry.adapt(Rows(problem.sample(), dtype, spec.device))
        return problem
    rows = prepared(samples.X, scaling, dtype, spec.device)
    rows.sample_weight = samples.sample_weight
    if geometry is not None and adapt:
        geometry = geometry.adapt(rows)
    # A custom network may take tokens; all others take floats.
    is_whole = scaling is None and not isinstance(spec.model, str) and samples.dtype.kind in "iu"
    integers = samples.X if is_whole or takes_integers else None
    uses_spacing = is_trained and spec.uses_spacing
    return MemoryProblem(samples, rows, geometry, ranks, spec.is_free, uses_spacing, integers, takes_integers)


class MemoryProblem:
    """n samples in memory."""

    def __init__(
        self,
        samples: ArraySamples,
        rows: Rows,
        geometry: Geometry | None,
        ranks: Ranks | None = None,
        free_table: bool = False,
        uses_spacing: bool = False,
        integers: Any = None,
        takes_integers: bool = False,
    ) -> None:
        self.samples, self.n, self.rows = samples, len(rows), rows
        self.dtype, self.device = rows.dtype, str(rows.device)
        self.sample_weight, self.geometry, self.ranks = samples.sample_weight, geometry, ranks
        self.free_table, self.uses_spacing = free_table, uses_spacing
        self.takes_integers = takes_integers
        self._integers = None if integers is None else Rows(integers, torch.int64, rows.device)

    def with_geometry(self, geometry: Geometry | None) -> MemoryProblem:
        """The same samples with another geometry; what was cached about them is kept."""
        other = copy.copy(self)
        vars(other).pop("block", None)
        other.geometry = None if geometry is None else geometry.adapt(self.rows)
        return other

    def inputs(self, index: Tensor) -> Any:
        """Inputs of the model for samples (b,)."""
        if self.free_table:
            return index.to(self.rows.device)
        if self.takes_integers and self._integers is not None:
            return self._integers[index]
        return self.rows[index]

    def try_integers(self, modules: list[nn.Module], n_clusters: int, dtype: torch.dtype) -> None:
        """Pass integers unchanged to networks that accept them, in this dtype; as floats they may lose digits."""
        if self._integers is None:
            return
        some = self._integers[torch.arange(min(2, self.n))]
        if takes(copy.deepcopy(modules[0]).to(dtype), some, n_clusters):
            self.takes_integers, self.dtype, self.rows = True, dtype, Rows(self.samples.X, dtype, self.device)
            for module in modules:
                module.to(dtype)

    @cached_property
    def block(self) -> Block | None:
        """The affinity of samples (b,). All processes use the features of the first: others may round differently."""
        if self.geometry is None:
            return None
        block = self.geometry.bind(self.rows)
        if self.ranks is None or not (self.geometry.needs_all_samples and self.geometry.gives_features):
            return block
        everything = block(torch.arange(self.n))
        assert isinstance(everything, Features)
        self.ranks.agree(f"{everything.values.dtype} {tuple(everything.values.shape)}", "have different rows")
        return block_of(self.ranks.broadcast(everything.values))

    def batches(self, batch_size: int | str | None, reshuffle_every: int | str = 1, transports: int = 0) -> Batches:
        """Batches of the samples, for an objective with ``transports`` transport problems per batch."""
        size = resolve_batch_size(batch_size, self.n)
        geometry, ranks, rows = self.geometry, self.ranks, self.rows
        own_features: Callable[[Tensor], Affinity] | None = None
        if ranks is not None and geometry is not None and geometry.gives_features and not geometry.needs_all_samples:
            # With several processes each needs the features of its own samples only.
            own_features = lambda index: geometry.of(rows[index], ranks)  # noqa: E731
        return RowBatches(
            self.n,
            size,
            self.inputs,
            self.block,
            self.sample_weight,
            resolve_reshuffling(
                reshuffle_every, self.n, size, transports, dense=geometry is None or not geometry.gives_paths
            ),
            ranks,
            own_features,
            measure_spacing(rows) if self.uses_spacing else None,
            # A custom geometry may compute features from the batch as a whole.
            selects=geometry is not None and geometry.gives_features and isinstance(geometry, _OF_EACH_SAMPLE),
        )

    def evaluate(self, module: nn.Module, n_clusters: int, objective: Gemini) -> Evaluation:
        """Evaluate a trained module on the samples, which several processes divide among them.

        The objective is exact up to 10,000 samples, or 1,000 that need a matrix; beyond that it is the mean over
        random batches of about that size, always the same ones, so that models can be compared.
        """
        at_once, order = _rows_at_once(self.geometry), torch.arange(self.n)
        if self.n > at_once:
            order = torch.randperm(self.n, generator=torch.Generator().manual_seed(0))
        parts = order.tensor_split(-(-self.n // at_once))
        if self.ranks is not None:
            parts = parts[self.ranks.rank :: self.ranks.size]
        weight = self.sample_weight
        shares = torch.ones(self.n) if weight is None else weight.cpu() / weight.max().cpu()

        def batch(index: Tensor) -> Batch:
            affinity = None if self.block is None else self.block(index)
            return Batch(self.inputs(index), affinity, None if weight is None else weight[index])

        batches = ((batch(index), float(shares[index].sum())) for index in track(parts, "evaluating, part"))
        value, choices = evaluate(module, n_clusters, objective, batches, self.ranks)
        choice = torch.zeros(self.n, dtype=torch.long)
        for index, chosen in zip(parts, choices, strict=True):
            choice[index] = chosen
        if self.ranks is not None:
            choice = self.ranks.sum(choice)
        return Evaluation(value, torch.bincount(choice, None if weight is None else weight.cpu(), n_clusters), choice)


class StreamProblem:
    """Streamed samples; the geometry sees one batch at a time."""

    def __init__(
        self,
        source: StreamSamples,
        geometry: Geometry | None,
        dtype: torch.dtype,
        device: str,
        ranks: Ranks | None = None,
        default_generator: torch.Generator | None = None,
        scaling: FittedScaling | FittedTransformer | None = None,
    ) -> None:
        self._default_generator, self.takes_integers, self._scaling = default_generator, False, scaling
        self.source, self.geometry, self.dtype, self.device, self.ranks = source, geometry, dtype, device, ranks

    def _scaled(self, rows: Any) -> Tensor:
        numbers = torch.as_tensor(rows).to(self.device, self.dtype)
        return numbers if self._scaling is None else self._scaling(numbers)

    def sample(self, most: int = 1_000) -> Tensor:
        """At most ``most`` samples, scaled, always the same ones."""
        return self._scaled(self.source.sample(most))

    @torch.no_grad()
    def batch(self, rows: NDArray[Any] | Tensor | Several, ranks: Ranks | None = None) -> Batch:
        """A batch of samples that were read, with their affinity."""
        if isinstance(rows, Several):
            # Objectives of models with several inputs need no affinity.
            return Batch(SeveralRows(rows, self.dtype, self.device)[torch.arange(len(rows))], None, None)
        numbers = self._scaled(rows)
        affinity = None if self.geometry is None else self.geometry.of(numbers, ranks)
        return Batch(torch.as_tensor(rows).to(self.device) if self.takes_integers else numbers, affinity, None)

    def try_integers(self, modules: list[nn.Module], n_clusters: int, dtype: torch.dtype) -> None:
        """Pass integers of a loader unchanged to networks that accept them."""
        if self.source.has_several_inputs:
            return
        some = torch.as_tensor(self.source.sample(2)).to(self.device)
        if not some.is_floating_point():
            self.takes_integers = takes(modules[0], some, n_clusters)

    def batches(self, batch_size: int | str | None, reshuffle_every: int | str = 1, transports: int = 0) -> Batches:
        """Batches of the samples, different ones in each epoch."""
        if isinstance(self.source, Loader):
            if self.ranks is not None and self.source.ordered is not None:
                raise InputError(
                    "Of a Dataset of several inputs each process would read all: give it a DataLoader with a "
                    "DistributedSampler."
                )
            return LoaderBatches(self.source, self.batch, self.ranks, self._default_generator)
        size = resolve_batch_size(batch_size, len(self.source))
        return StreamBatches(self.source, size, self.batch, self.ranks)

    def evaluate(self, module: nn.Module, n_clusters: int, objective: Gemini) -> Evaluation:
        """The mean objective over random batches, always the same ones; each process evaluates its own."""
        batches = ((batch, float(len(batch.inputs))) for batch in map(self.batch, self._evaluated()))
        value, choices = evaluate(module, n_clusters, objective, batches, self.ranks)
        sizes = sum((choice.bincount(minlength=n_clusters) for choice in choices), torch.zeros(n_clusters).long())
        return Evaluation(value, sizes if self.ranks is None else self.ranks.sum(sizes), None)

    def _evaluated(self) -> Iterator[NDArray[Any] | Tensor | Several]:
        if isinstance(self.source, Loader):
            # A shuffling loader draws the same numbers for each model.
            yield from iterate_drawing(self.source, torch.Generator().manual_seed(0))
            return
        chunks, own = shard(self.source, self.ranks)
        n = int(chunks.lengths[own].sum())
        sizes = BatchSizes(n, -(-n // _rows_at_once(self.geometry)))
        yield from shuffled(chunks, sizes, 0, own=own, window_bytes=self.source.window_bytes)


Problem = MemoryProblem | StreamProblem


@torch.no_grad()
def evaluate(
    module: nn.Module,
    n_clusters: int,
    objective: Gemini,
    batches: Iterable[tuple[Batch, float]],
    ranks: Ranks | None = None,
) -> tuple[float, list[Tensor]]:
    """The mean objective over batches, weighted, and the clusters (b,) of the samples of each batch.

    With several processes each has its own batches, and the mean is over those of all.
    """
    mean, seen, choices = 0.0, 0.0, []
    generator = torch.Generator().manual_seed(0)
    for batch, share in batches:
        with threads_for(module, len(batch.inputs)):
            log_p = log_probabilities(module, batch.inputs, n_clusters)
            value = objective(log_p, batch.affinity, sample_weight=batch.sample_weight, generator=generator)
        seen += share
        mean += (float(value) - mean) * (share / seen if share > 0 else 0)
        choices.append(log_p.argmax(-1).cpu())
    if ranks is not None:
        total, seen = ranks.sum(torch.tensor([mean * seen, seen], dtype=torch.float64)).tolist()
        mean = float(total / seen) if seen else 0.0
    return mean, choices


@torch.no_grad()
def log_probabilities(module: nn.Module, inputs: Tensor | Several, n_clusters: int) -> Tensor:
    """log p(y|x), (n, K), of the module in evaluation mode."""
    module.eval()
    # Activations of an image network hold many times as many numbers as its input.
    is_large = isinstance(inputs, Several) or inputs.ndim > 2
    parts = inputs.split(_IMAGES_AT_ONCE) if is_large else (inputs,)
    with threads_for(module, len(parts[0])):
        return torch.cat([logits_of(module, part, n_clusters) for part in parts]).log_softmax(-1)


def takes(module: nn.Module, inputs: Tensor, n_clusters: int) -> bool:
    """Whether a module accepts such inputs."""
    try:
        log_probabilities(module, inputs, n_clusters)
    except ValueError:
        return False
    return True


def _rows_at_once(geometry: Geometry | None) -> int:
    return _EVALUATED_ROWS if geometry is None or geometry.gives_features else _EVALUATED_MATRIX


def measure_spacing(rows: Rows) -> Tensor:
    """The distance (n,) of each sample to its 10th nearest neighbour, or to the farthest if there are fewer."""
    distances = nearest(rows, SPACING_NEIGHBOUR).distances
    if not distances.shape[1]:
        raise ValueError("The penalty 'local_vat' looks at neighbours, and there is one sample only: use 'vat'.")
    return torch.from_numpy(distances[:, -1].copy()).to(rows.device, rows.dtype)

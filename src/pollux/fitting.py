"""From an estimator's parameters and data to what is trained."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.cluster import kmeans_plusplus
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight
from torch import Tensor, nn

from pollux.data.rows import Rows
from pollux.geometry import Geometry, Kind, Precomputed, check_affinity, nearest
from pollux.geometry.affinity import Affinity, Block, Features
from pollux.geometry.spectral import block_of
from pollux.models import FreeTable
from pollux.objectives import DIVERGENCES, Gemini
from pollux.ranks import Ranks
from pollux.training import Batches, Evaluation, RandomStreams, RowBatches, evaluate

SPACING_NEIGHBOUR = 10
_WHOLE_UP_TO = 1_000
_AUTO_BATCH = 500
# Reshuffling less often is hardly faster.
_KEPT_EPOCHS = 10
_KEPT_BYTES = 1_000_000_000


class CollapseWarning(UserWarning):
    """All samples fell into one cluster."""


COLLAPSED = (
    "Everything fell into one cluster. Scale X (for instance with StandardScaler), try more starts (n_init=10), a "
    "smaller learning_rate or another objective; or the data hold no clusters that this model can see."
)


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """A call that fails leaves the estimator as it was."""
    before = dict(estimator.__dict__)
    try:
        yield
    except BaseException:
        estimator.__dict__.clear()
        estimator.__dict__.update(before)
        raise


@contextmanager
def seeded(random_state: Any, device: str, ranks: Ranks | None = None) -> Iterator[tuple[int, RandomStreams]]:
    """All random_streams from random_state: initial weights, dropout, batches; torch's own state is kept.

    Several processes start from the same weights and draw the same batches, with the seed of the first of them.
    """
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    if ranks is not None:
        seed = int(ranks.broadcast_object(seed))
    cuda = torch.device(device).type == "cuda"
    with torch.random.fork_rng(devices=[device] if cuda else []):
        # Not torch.manual_seed, which would seed every device there is.
        torch.default_generator.manual_seed(seed)
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        noise = None if ranks is None else torch.Generator().manual_seed(seed + 1 + ranks.rank)
        yield seed, RandomStreams(torch.Generator().manual_seed(seed), noise, ranks)


def apart(ranks: Ranks, device: str) -> None:
    """From here on each process draws random numbers of its own, for instance for dropout."""
    seed = torch.initial_seed() + 1 + ranks.size + ranks.rank
    torch.default_generator.manual_seed(seed)
    if torch.device(device).type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


def batch_rows(batch_size: int | str | None, n: int) -> int:
    """Rows of a step: those asked for; all n for None, and for "auto" where there are few."""
    if batch_size == "auto":
        batch_size = None if n <= _WHOLE_UP_TO else _AUTO_BATCH
    return n if batch_size is None else int(batch_size)


class Problem(Protocol):
    """Samples as the model, the objective and the weights see them."""

    def batches(self, batch_size: int | str | None, reshuffle_every: int | str = 1, problems: int = 0) -> Batches:
        """Batches of the samples, for an objective that poses so many transport problems."""

    def evaluate(self, module: nn.Module, n_clusters: int, objective: Gemini) -> Evaluation:
        """What a trained module says of the samples."""


class RowProblem(NamedTuple):
    """n samples at hand."""

    n: int
    inputs: Callable[[Tensor], Tensor]
    block: Block | None
    sample_weight: Tensor | None
    ranks: Ranks | None = None
    own_features: Callable[[Tensor], Affinity] | None = None
    spacing: Tensor | None = None

    def evaluate(self, module: nn.Module, n_clusters: int, objective: Gemini) -> Evaluation:
        return evaluate(module, n_clusters, self.n, self.inputs, objective, self.block, self.sample_weight, self.ranks)

    def batches(self, batch_size: int | str | None, reshuffle_every: int | str = 1, problems: int = 0) -> Batches:
        """Batches of the samples; all at once for None, and for "auto" where there are few.

        Reshuffling "auto" keeps batches where the objective has so many transport problems, which are solved faster
        the second time, and where what is kept for that has room.
        """
        size = batch_rows(batch_size, self.n)
        if reshuffle_every == "auto":
            # For each pair of a batch its distance and two copies, for each problem a tree of five bytes a node; trees
            # in a graph span all of its nodes.
            dense = self.block is None or isinstance(self.block(torch.arange(1)), Tensor)
            kept = 20 * self.n * size + 5 * problems * (self.n if dense else self.n**2 // size)
            reshuffle_every = _KEPT_EPOCHS if problems and kept <= _KEPT_BYTES else 1
        return RowBatches(
            self.n,
            size,
            self.inputs,
            self.block,
            self.sample_weight,
            int(reshuffle_every),
            self.ranks,
            self.own_features,
            self.spacing,
        )


def features_here(
    geometry: Geometry | None, block: Block | None, rows: Rows, ranks: Ranks | None
) -> Callable[[Tensor], Affinity] | None:
    """Of several processes, what gives each the features of its own samples, where these are all that is needed."""
    if ranks is None or geometry is None or block is None or geometry.spans_all:
        return None
    if not isinstance(block(torch.arange(min(len(rows), 2))), Features):
        return None
    return lambda index: geometry.of(rows[index], ranks)


def same_for_all(geometry: Geometry | None, block: Block | None, rows: Rows, ranks: Ranks | None) -> Block | None:
    """Of several processes, features of all samples as the first has them: others may round otherwise."""
    if ranks is None or geometry is None or block is None or not geometry.spans_all:
        return block
    if not isinstance(block(torch.arange(min(len(rows), 2))), Features):
        return block
    everything = block(torch.arange(len(rows)))
    assert isinstance(everything, Features)
    ranks.agree(f"{everything.values.dtype} {tuple(everything.values.shape)}", "have different rows")
    return block_of(ranks.broadcast(everything.values))


def spacing(rows: Rows) -> Tensor:
    """How far each sample (n,) is from its 10th nearest neighbour, or from the farthest where there are fewer."""
    distances = nearest(rows, SPACING_NEIGHBOUR).distances
    if not distances.shape[1]:
        raise ValueError("The penalty 'local_vat' looks at neighbours, and there is one sample only: use 'vat'.")
    return torch.from_numpy(distances[:, -1].copy()).to(rows.device, rows.dtype)


def transport_problems(objective: Gemini, n_clusters: int, n_init: int) -> int:
    """How many transport problems a batch poses: one for each cluster or pair of them, and each start."""
    if objective.divergence != DIVERGENCES["wasserstein"]:
        return 0
    return n_init * (n_clusters * (n_clusters - 1) // 2 if objective.one_vs_one else n_clusters)


class Numbering(NamedTuple):
    """Clusters by decreasing size, empty ones last."""

    order: Tensor
    in_use: int
    labels: NDArray[np.int64] | None


def number_clusters(evaluation: Evaluation) -> Numbering:
    sizes, choice = evaluation.sizes, evaluation.choice
    order = torch.argsort(sizes, descending=True, stable=True)
    labels = None if choice is None else torch.argsort(order)[choice].numpy()
    return Numbering(order, int((sizes > 0).sum()), labels)


def start_at_seeds(table: FreeTable, X: Any, random: np.random.RandomState) -> None:
    """Lean each row of a free table towards the nearest of k-means++ seeds among the samples X (n, d)."""
    samples = X.astype(np.float64)
    # Of unit size, their squares can be summed whatever the units of X.
    samples = samples / (abs(samples).max() or 1.0)
    n_clusters = table.logits.shape[1]
    seeds, _ = kmeans_plusplus(samples, min(n_clusters, samples.shape[0]), random_state=random)
    labels = torch.from_numpy(np.asarray(pairwise_distances_argmin(samples, seeds), dtype=np.int64))
    lean(table, labels)


@torch.no_grad()
def lean(table: FreeTable, labels: Tensor) -> None:
    """Lean each row of a free table towards its label."""
    table.logits.add_(torch.nn.functional.one_hot(labels, table.logits.shape[1]).to(table.logits.device))


def free_probabilities(table: FreeTable, order: Tensor, kept: NDArray[np.bool_]) -> NDArray[np.floating[Any]]:
    """p(y|x) (n, K) of a free table that has seen the rows of a mask (n,); even for the others."""
    seen = table.logits.detach().cpu().softmax(1)[:, order].numpy()
    probabilities = np.full((len(kept), seen.shape[1]), 1 / seen.shape[1], dtype=seen.dtype)
    probabilities[kept] = seen
    return probabilities


def check_predictions(probabilities: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    """The probabilities (n, K), or an error where they are none."""
    if not np.isfinite(probabilities).all():
        raise ValueError(
            "The model returned NaN for some rows: their values are too large for its arithmetic. "
            "Scale them as the training data were."
        )
    return probabilities


def check_columns(X: Any) -> None:
    """Name the columns of a data frame that do not hold numbers."""
    if not (hasattr(X, "dtypes") and hasattr(X, "columns")):
        return
    other = [str(name) for name, kind in zip(X.columns, X.dtypes, strict=True) if _is_no_number(kind)]
    if other:
        raise ValueError(f"The columns {', '.join(other)} do not hold numbers: encode them, or leave them out.")


def _is_no_number(dtype: Any) -> bool:
    # A column of Python objects may hold numbers all the same; that is seen when it is converted.
    return str(dtype) in ("category", "string", "str") or str(dtype).startswith(("datetime", "timedelta", "period"))


def take_part(X: Any, sample_weight: Any, device: str) -> tuple[Tensor | None, NDArray[np.bool_]]:
    """Weights of the rows that take part, or None; and which rows do."""
    if sample_weight is None:
        return None, np.ones(X.shape[0], dtype=bool)
    weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    kept = weight > 0
    if not kept.any():
        raise ValueError("Sample weights must contain at least one non-zero number: all are zero.")
    return torch.from_numpy(weight[kept]).to(device), kept


def rows_kept(X: Any, kept: NDArray[np.bool_]) -> Any:
    """The rows that take part; all of them need no copy."""
    return X if kept.all() else X[kept]


def for_new_rows(geometry: Geometry | None, needs: Kind | None) -> Geometry | None:
    """The geometry of a trained model, for rows it was not trained on."""
    if needs is None:
        return None
    if geometry is None or geometry.kind != needs or isinstance(geometry, Precomputed):
        raise ValueError(
            f"This model has no {needs} for other rows than those it was trained on (it was given an affinity, or a "
            f"geometry that a file cannot hold, or its objective was changed since): score takes their affinity=…, "
            f"and fit starts anew."
        )
    return geometry


def precomputed(affinity: Any, needs: Kind | None, kept: NDArray[np.bool_]) -> Precomputed | None:
    """What the user gave as the affinity of all rows, checked, for those that are kept."""
    if affinity is None:
        return None
    if needs is None:
        raise ValueError("The objective compares predictions only: it needs no affinity, so leave it out.")
    checked = check_affinity(affinity, needs)
    if len(checked) != len(kept):
        raise ValueError(
            f"The affinity is of {len(checked)} samples, but X has {len(kept)} rows; "
            f"row i of X must be row and column i of the affinity."
        )
    geometry = Precomputed(checked, needs)
    if kept.all():
        return geometry
    return Precomputed(geometry.select(torch.from_numpy(np.flatnonzero(kept))), needs)


def torch_dtype(name: str, of_data: np.dtype[Any]) -> torch.dtype:
    """The precision of weights and data, by its name; for "auto" that of the data, or the one that holds them."""
    if name != "auto":
        # Of bfloat16 there are too few digits for anything but the products of a network.
        return torch.float64 if name == "float64" else torch.float32
    return _arithmetic(of_data)


def fingerprint(X: Any, sample_weight: Any, geometry: Geometry | None = None) -> str:
    """What tells these samples from others: their bytes, types and shapes, and what the user gave as their affinity."""
    parts = [X.data, X.indices, X.indptr] if scipy.sparse.issparse(X) else [X]
    if sample_weight is not None:
        parts.append(np.asarray(sample_weight))
    if isinstance(geometry, Precomputed):
        affinity = geometry.affinity.values if isinstance(geometry.affinity, Features) else geometry.affinity
        parts.append(affinity.detach().cpu().numpy())
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{part.dtype} {part.shape} ".encode())
        digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()


def _arithmetic(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.float32 if dtype == np.float32 or dtype.itemsize <= 2 else torch.float64

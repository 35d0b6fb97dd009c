"""Scores of a clustering: labels (n,) against classes (n,), and the entropies of probabilities (n, K)."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import entr
from sklearn.metrics import normalized_mutual_info_score

__all__ = [
    "AGREED",
    "LABEL_METRICS",
    "RESTATED",
    "adjusted_rand_index",
    "agreement",
    "clusters_in_use",
    "conditional_entropy",
    "hungarian_accuracy",
    "match_clusters",
    "normalised_mutual_information",
    "pairwise_agreement",
    "purity",
    "renyi_entropy",
]

AGREED = 0.9
"""A lower :func:`agreement` of restarts gives a warning. A high one does not prove that clusters are there."""
RESTATED = 0.95
"""From this :func:`adjusted_rand_index` on, clusters are little more than the values of one column."""


def adjusted_rand_index(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Pairs on which (n,) and (n,) labels agree, corrected for chance: 1 is perfect, 0 is chance.

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Classes and clusters, of any type that can be sorted.

    Returns
    -------
    float
        At most 1; negative when the agreement is worse than chance.

    Examples
    --------
    >>> adjusted_rand_index(["cat", "cat", "dog", "dog"], [1, 1, 0, 0])
    1.0
    """
    # The same bits as scikit-learn's, without its input checks, which take longer than the sums.
    true_codes, pred_codes = _paired_codes(labels_true, labels_pred)
    pairs = true_codes.astype(np.int64) * (int(pred_codes.max()) + 1) + pred_codes
    both = _sum_of_squared_counts(np.unique(pairs, return_inverse=True)[1])
    in_true, in_pred = _sum_of_squared_counts(true_codes), _sum_of_squared_counts(pred_codes)
    alike, split, joined = both - len(pairs), in_true - both, in_pred - both
    if split == joined == 0:
        return 1.0
    apart = len(pairs) ** 2 - both - split - joined
    return (
        2.0
        * (alike * apart - split * joined)
        / ((alike + split) * (split + apart) + (alike + joined) * (joined + apart))
    )


def _sum_of_squared_counts(codes: NDArray[np.intp]) -> int:
    return int((np.bincount(codes) ** 2).sum())


def agreement(labelings: Sequence[ArrayLike]) -> float | None:
    """How alike several labelings (n,) of the same samples are: the mean adjusted Rand index of two of them.

    Parameters
    ----------
    labelings : sequence of array-like of shape (n,)
        The clusters that each of several trainings found.

    Returns
    -------
    float or None
        1 where all agree, near 0 where they have nothing in common or are a single cluster; None for fewer than two.

    Examples
    --------
    >>> agreement([[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1]])
    1.0
    """
    pairs = pairwise_agreement(labelings)
    return float(pairs.mean()) if len(pairs) else None


def pairwise_agreement(labelings: Sequence[ArrayLike] | NDArray[Any]) -> NDArray[np.float64]:
    """The adjusted Rand index of each pair of B labelings (n,): (B (B − 1) / 2,), in the order of ``combinations``.

    Parameters
    ----------
    labelings : sequence of array-like of shape (n,), or array of shape (B, n)
        The clusters that each of several trainings found.

    Returns
    -------
    ndarray of shape (B (B − 1) / 2,)
        0 for a pair of which one is a single cluster: they agree, but on nothing.

    Examples
    --------
    >>> pairwise_agreement([[0, 0, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0]]).tolist()
    [1.0, 0.0, 0.0]
    """
    codes = [_codes(labels, "labelings") for labels in labelings]
    return np.array([_agreement(first, second) for first, second in itertools.combinations(codes, 2)])


def _agreement(first: NDArray[np.intp], second: NDArray[np.intp]) -> float:
    """The adjusted Rand index of two labelings by numbers from 0."""
    # Two clusterings into a single cluster have an index of 1, but agree on nothing.
    if not (first.any() and second.any()):
        return 0.0
    width = int(second.max()) + 1
    table = np.bincount(first * width + second, minlength=(int(first.max()) + 1) * width).reshape(-1, width)
    together, of_first, of_second, pairs = (
        float((counts * (counts - 1.0)).sum()) / 2
        for counts in (table, table.sum(1), table.sum(0), np.array([len(first)]))
    )
    chance = of_first * of_second / pairs
    highest = (of_first + of_second) / 2
    return 1.0 if together == of_first == of_second else (together - chance) / (highest - chance)


def normalised_mutual_information(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """I(true; pred) / mean of H(true) and H(pred), for labels (n,) and (n,).

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Classes and clusters, of any type that can be sorted.

    Returns
    -------
    float
        Between 0 (independent) and 1 (the same partition).

    Examples
    --------
    >>> normalised_mutual_information([0, 0, 1, 1], [5, 5, 5, 5])
    0.0
    """
    return float(normalized_mutual_info_score(*_paired_codes(labels_true, labels_pred)))


def hungarian_accuracy(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Share of samples that are right under the best one-to-one matching of labels (n,) and (n,).

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Classes and clusters, of any type that can be sorted. Their numbers may differ: the clusters
        (or classes) left without a partner count as wrong.

    Returns
    -------
    float
        In (0, 1].

    Examples
    --------
    >>> hungarian_accuracy(["a", "a", "b", "b"], [1, 1, 0, 2])
    0.75
    """
    table = _contingency(labels_true, labels_pred)
    classes, clusters = linear_sum_assignment(table, maximize=True)
    return float(table[classes, clusters].sum() / table.sum())


def match_clusters(labels: NDArray[np.int64], others: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Match each cluster of other labels (n,) with a cluster of labels (n,), one to one.

    Parameters
    ----------
    labels, others : arrays of int of shape (n,)
        Clusters of the same samples, from 0.
    n_clusters : int
        Maximum number of clusters in either.

    Returns
    -------
    array of int of shape (n_clusters,)
        Such that ``found[others]`` renumbers the others like labels (Hungarian matching).

    Examples
    --------
    >>> import numpy as np
    >>> from pollux.metrics import match_clusters
    >>> match_clusters(np.array([0, 0, 1, 2]), np.array([2, 2, 0, 1]), 3)
    array([1, 2, 0])
    """
    table = np.zeros((n_clusters, n_clusters))
    np.add.at(table, (others, labels), 1)
    return np.asarray(linear_sum_assignment(table, maximize=True)[1])


def purity(labels_true: ArrayLike, labels_pred: ArrayLike) -> float:
    """Share of samples that belong to the commonest class of their cluster, for labels (n,) and (n,).

    Parameters
    ----------
    labels_true, labels_pred : array-like of shape (n,)
        Classes and clusters, of any type that can be sorted.

    Returns
    -------
    float
        In (0, 1]. More clusters never hurt it: one cluster for each sample scores 1.

    Examples
    --------
    >>> purity(["a", "a", "b", "b"], [1, 1, 0, 2])
    1.0
    """
    table = _contingency(labels_true, labels_pred)
    return float(table.max(axis=0).sum() / table.sum())


LABEL_METRICS: dict[str, Callable[[ArrayLike, ArrayLike], float]] = {
    "adjusted_rand_index": adjusted_rand_index,
    "normalised_mutual_information": normalised_mutual_information,
    "hungarian_accuracy": hungarian_accuracy,
    "purity": purity,
}


def clusters_in_use(probabilities: ArrayLike) -> int:
    """Number of clusters that are the most probable one for some row of (n, K).

    Parameters
    ----------
    probabilities : array-like of shape (n, K)
        Each row sums to 1.

    Returns
    -------
    int
        From 1 to K. A tie counts for the first of its clusters.

    Examples
    --------
    >>> clusters_in_use([[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.6, 0.2, 0.2]])
    2
    """
    return len(np.unique(_probability_rows(probabilities).argmax(axis=1)))


def conditional_entropy(probabilities: ArrayLike) -> float:
    """H(y|x) = mean over the rows of (n, K) of −Σ p log p, in nats.

    Parameters
    ----------
    probabilities : array-like of shape (n, K)
        Each row sums to 1; 0 log 0 is 0.

    Returns
    -------
    float
        From 0 (every assignment is certain) to log K (every assignment is uniform).

    Examples
    --------
    >>> round(conditional_entropy([[0.5, 0.5], [1.0, 0.0]]), 4)
    0.3466
    """
    return float(renyi_entropy(probabilities, order=1.0).mean())


def renyi_entropy(probabilities: ArrayLike, order: float = 2.0) -> NDArray[np.float64]:
    """log(Σ p^order) / (1 − order) of each row of (n, K): (n,), in nats.

    Parameters
    ----------
    probabilities : array-like of shape (n, K)
        Each row sums to 1.
    order : float, default=2.0
        From 0 to infinity. The limits are exact: 0 is the log of the number of clusters with any
        probability, 1 is Shannon's entropy, infinity is −log of the largest probability.

    Returns
    -------
    ndarray of shape (n,)
        Each from 0 to log K, decreasing in the order.

    Examples
    --------
    >>> renyi_entropy([[0.5, 0.5], [1.0, 0.0]]).round(4).tolist()
    [0.6931, 0.0]
    """
    if not order >= 0:
        raise ValueError(f"The order of a Rényi entropy is a number from 0 to infinity, but got {order}.")
    rows = _probability_rows(probabilities)
    if order == 0:
        entropy = np.log(np.count_nonzero(rows, axis=1))
    elif order == 1:
        entropy = entr(rows).sum(axis=1)
    elif math.isinf(order):
        entropy = -np.log(rows.max(axis=1))
    elif abs(order - 1) < 0.1:
        entropy = _renyi_entropy_near_one(rows, order)
    else:
        entropy = _renyi_entropy_far_from_one(rows, order)
    # Rounding can leave −1e-17 or a negative zero where the entropy is 0.
    clipped: NDArray[np.float64] = np.maximum(entropy, 0.0) + 0.0
    return clipped


def _renyi_entropy_near_one(rows: NDArray[np.float64], order: float) -> NDArray[np.float64]:
    """(n, K) to (n,): log(1 + Σ p (p^(order − 1) − 1)) / (1 − order).

    The plain formula divides two vanishing numbers here and loses all its digits.
    """
    log_rows = np.log(np.where(rows > 0, rows, 1.0))
    excess: NDArray[np.float64] = (rows * np.expm1((order - 1) * log_rows)).sum(axis=1)
    return np.log1p(excess) / (1 - order)


def _renyi_entropy_far_from_one(rows: NDArray[np.float64], order: float) -> NDArray[np.float64]:
    """(n, K) to (n,): the definition, with the largest probability m of each row taken out of the sum.

    Σ p^order underflows to 0 at large orders; Σ (p / m)^order is never below 1.
    """
    largest: NDArray[np.float64] = rows.max(axis=1)
    sums: NDArray[np.float64] = ((rows / largest[:, None]) ** order).sum(axis=1)
    return order / (1 - order) * np.log(largest) + np.log(sums) / (1 - order)


def _probability_rows(probabilities: ArrayLike) -> NDArray[np.float64]:
    """(n, K) probabilities in float64 whose rows sum to 1 to the last digits, or an error."""
    rows = np.asarray(probabilities, dtype=np.float64)
    if rows.ndim != 2 or rows.size == 0:
        raise ValueError(
            "The probabilities must be a table with one row per sample and one column per cluster, "
            f"with at least one of each, but got the shape {rows.shape}."
        )
    if not np.isfinite(rows).all():
        raise ValueError("The probabilities contain NaN or infinity: the model that gave them has diverged.")
    if rows.min() < 0:
        raise ValueError(
            f"The probabilities must not be negative, but the smallest is {rows.min():.6g}. "
            "Apply a softmax to logits, or exp to log-probabilities, first."
        )
    sums = rows.sum(axis=1, keepdims=True)
    worst = int(np.abs(sums - 1).argmax())
    if abs(sums[worst, 0] - 1) > 1e-4:
        raise ValueError(
            f"Each row of probabilities must sum to 1, but row {worst} sums to {sums[worst, 0]:.6g}. "
            "Apply a softmax to logits, or divide each row by its sum, first."
        )
    # A sum of 1.0001 would give negative entropies, and at orders near 1 arbitrarily wrong ones.
    normalised: NDArray[np.float64] = rows / sums
    return normalised


def _contingency(labels_true: ArrayLike, labels_pred: ArrayLike) -> NDArray[np.int64]:
    """(classes, clusters) counts of the samples with each pair of labels."""
    true_codes, pred_codes = _paired_codes(labels_true, labels_pred)
    shape = (int(true_codes.max()) + 1, int(pred_codes.max()) + 1)
    pairs = np.ravel_multi_index((true_codes, pred_codes), shape)
    return np.bincount(pairs, minlength=math.prod(shape)).reshape(shape)


def _paired_codes(labels_true: ArrayLike, labels_pred: ArrayLike) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Both labels (n,) as whole numbers 0, 1, … without holes."""
    true_codes = _codes(labels_true, "labels_true")
    pred_codes = _codes(labels_pred, "labels_pred")
    if len(true_codes) != len(pred_codes):
        raise ValueError(
            "labels_true and labels_pred must describe the same samples, but they have the lengths "
            f"{len(true_codes)} and {len(pred_codes)}."
        )
    return true_codes, pred_codes


def _codes(labels: ArrayLike, name: str) -> NDArray[np.intp]:
    """(n,) labels of any type that sorts, as their ranks among the distinct ones."""
    values = np.asarray(labels)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(
            f"{name} must be a list of labels, one per sample and at least one, but got the shape "
            f"{values.shape}. From probabilities, take the argmax of each row first."
        )
    try:
        # Only missing values differ from themselves: NaN, NaT.
        missing = bool(np.any(values != values))
        codes: NDArray[np.intp] = np.unique(values, return_inverse=True)[1]
    except TypeError:
        raise ValueError(
            f"{name} mixes labels that cannot be compared, such as text with numbers or with missing "
            "values. Drop the samples without a label and convert the rest to one type."
        ) from None
    if missing:
        raise ValueError(f"{name} contains missing values (NaN). Drop the samples without a label first.")
    return codes

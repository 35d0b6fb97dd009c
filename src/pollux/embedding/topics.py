"""Names for clusters of texts: the words that distinguish each from the others, and its most typical texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer

from pollux.embedding.encoders import by_position
from pollux.errors import InputError

# Words of at least three letters of any alphabet, without parts of words such as "don't"; maximum number of texts that
# are read; maximum size of the vocabulary of words and pairs.
_WORD, _MOST_TEXTS, _MOST_TERMS = r"(?u)\b[^\W\d_]{3,}\b(?!['’](?!s\b)\w)", 50_000, 50_000
# A term names a cluster only if it is at least so many times as frequent there as in the others.
_TIMES = 1.5


@dataclass(frozen=True)
class Topic:
    """The topic of a cluster of texts: its number, the terms that distinguish it, and typical texts."""

    cluster: int
    terms: tuple[str, ...]
    texts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The terms, joined by commas."""
        return ", ".join(self.terms)


def name_clusters(labels: Any, texts: Sequence[str], *, n_terms: int = 4, n_texts: int = 3) -> list[Topic]:
    """Find the topic of each cluster of texts: the words that are frequent in it and rare elsewhere.

    A term is a word or a pair of words; its weight in a cluster is tf · log(1 + A / f), where tf is its share of the
    terms of the cluster, f its frequency in all clusters, and A the mean number of terms of a cluster. Terms that are
    less than 1.5 times as frequent in the cluster as in the others do not name it. Typical texts are those whose words
    have the highest weights. At most 50,000 texts are read, drawn at random.

    Parameters
    ----------
    labels : array of shape (n,)
        The cluster of each text; texts with a negative label are ignored.
    texts : sequence of n str
        The texts.
    n_terms, n_texts : int
        Maximum number of terms, and of typical texts, of each cluster.

    Examples
    --------
    >>> import pollux
    >>> texts = ["the cat sat", "a cat and a dog", "rates of the bank", "the bank raised rates"]
    >>> [topic.name for topic in pollux.name_clusters([0, 0, 1, 1], texts, n_terms=1)]
    ['cat', 'bank']
    """
    found, texts = np.asarray(labels), by_position(texts)
    if found.shape != (len(texts),):
        raise InputError(f"labels is of shape {found.shape}, and there are {len(texts)} texts: one label for each.")
    every = np.sort(np.random.default_rng(0).permutation(len(found))[:_MOST_TEXTS])
    every = every[found[every] >= 0]
    clusters, member = np.unique(found[every], return_inverse=True)
    chosen = [texts[index] for index in every.tolist()]
    counts, terms = _count(chosen)
    n, K = len(chosen), len(clusters)
    of_cluster = scipy.sparse.csr_array((np.ones(n), (member, np.arange(n))), shape=(K, n))
    sums = np.asarray((of_cluster @ counts).todense(), dtype=np.float64)
    # Number of texts of the cluster with each term: a word that a single text repeats does not name a cluster.
    spread = np.asarray((of_cluster @ (counts > 0)).todense())
    total = sums.sum()
    own_total = np.maximum(sums.sum(1, keepdims=True), 1)
    weights = sums / own_total * np.log1p(total / max(K, 1) / np.maximum(sums.sum(0), 1))
    sizes = np.bincount(member, minlength=K)
    weights[spread < np.minimum(2, sizes)[:, None]] = 0
    # Terms that are common everywhere do not name a cluster, unless it has no others.
    is_distinctive = sums / own_total >= _TIMES * (sums.sum(0) - sums) / np.maximum(total - own_total, 1)
    is_distinctive |= ~(is_distinctive & (weights > 0)).any(1, keepdims=True)
    weights *= is_distinctive
    lengths = np.sqrt(np.maximum(np.asarray(counts.multiply(counts).sum(1)).ravel(), 1))
    topics = []
    for k, cluster in enumerate(clusters):
        own = np.flatnonzero(member == k)
        typical = np.argsort(-(counts[own] @ weights[k]) / lengths[own], kind="stable")
        distinct = dict.fromkeys(chosen[own[index]] for index in typical[: 10 * n_texts])
        topics.append(Topic(int(cluster), _choose_terms(terms, weights[k], n_terms), tuple(distinct)[:n_texts]))
    return topics


def _count(texts: Sequence[str]) -> tuple[scipy.sparse.csr_array, NDArray[Any]]:
    """Counts (n, t) of terms in texts, and the terms (t,)."""
    counter = CountVectorizer(
        token_pattern=_WORD, stop_words="english", ngram_range=(1, 2), max_features=_MOST_TERMS, dtype=np.float32
    )
    try:
        counts = counter.fit_transform(texts)
    except ValueError:
        # No text has a word that is not a stop word.
        return scipy.sparse.csr_array((len(texts), 0), dtype=np.float32), np.empty(0, dtype=object)
    return scipy.sparse.csr_array(counts), counter.get_feature_names_out()


def _choose_terms(terms: NDArray[Any], weights: NDArray[np.float64], most: int) -> tuple[str, ...]:
    """The terms of the highest weights, without terms that share a word or are forms of one another."""
    chosen: list[str] = []
    for index in np.argsort(-weights, kind="stable")[: 5 * most]:
        words = set(terms[index].split())
        if weights[index] <= 0 or len(chosen) == most:
            break
        if not any(words & set(other.split()) or _is_form(terms[index], other) for other in chosen):
            chosen.append(str(terms[index]))
    return tuple(chosen)


def _is_form(term: str, other: str) -> bool:
    """Whether one term is a prefix of the other, such as a singular of its plural."""
    short, long = sorted((term, other), key=len)
    return len(short) > 3 and long.startswith(short) and len(long) - len(short) <= 2

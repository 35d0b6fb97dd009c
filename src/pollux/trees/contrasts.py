"""Contrasts: how the columns of a cluster differ from all others and from the nearest cluster, in words."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier

from pollux.data.encoding import Feature
from pollux.metrics import RESTATED, adjusted_rand_index
from pollux.trees.words import percent, write_value

Array = NDArray[np.floating[Any]]

VALUES_AT_ONCE = 4_000_000
NOTABLE, _CLEAR, STRONG = 0.5, 0.9, 1.5
# Approximate range of a column in standard deviations, by which numbers are rounded.
_RANGE = 4
_MOST_SAID, _MOST_CANDIDATES, _MOST_PARTNERS = 3, 12, 3
# Columns with at least this correlation are described together.
_TOGETHER = 0.8
_MOST_ROWS, _MOST_SOURCES, _FEWEST_ROWS = 2_000, 64, 20
# From this adjusted Rand index on, a tree on the other columns predicts the clusters too: one column is not decisive.
_PREDICTED_BY_OTHERS, _FOLDS = 0.5, 3


@dataclass(frozen=True)
class Contrasts:
    """Means (K, d) of each cluster and of the rest, (cluster − rest) / deviation, and the share of missing values.

    ``mean`` and ``deviation`` (1, d) are those of all samples.
    """

    inside: Array
    outside: Array
    scaled: Array
    missing: Array
    mean: Array
    deviation: Array

    @property
    def from_mean(self) -> Array:
        """(mean of the cluster − mean of all) / deviation of all, (K, d); NaN where all values are missing."""
        return self.apart(self.mean)

    def apart(self, other: Array) -> Array:
        """(mean of the cluster − others (1, d)) / deviation of all, (K, d)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            away = (self.inside - other) / self.deviation
        return np.where(_varies(self.mean, self.deviation) | np.isnan(self.inside), away, 0.0)

    def ranked(self, cluster: int, most: int) -> list[int]:
        """The features that differ, largest standardised difference first."""
        sizes = np.abs(self.scaled[cluster])
        order = np.argsort(-sizes, kind="stable")[:most]
        return [int(feature) for feature in order if sizes[feature] > 0]


def compare_clusters(features: Array, labels: NDArray[np.int64], n_clusters: int) -> Contrasts:
    """Contrasts of features (n, d) between clusters 0 … K − 1; missing and infinite values are ignored."""
    n, d = features.shape
    members = csr_array((np.ones(n), (labels, np.arange(n))), shape=(n_clusters, n))
    width = min(64, max(1, VALUES_AT_ONCE // max(n, 1)))
    # Without columns there is one empty block.
    blocks = [_compare(features[:, at : at + width], members) for at in range(0, max(d, 1), width)]
    return Contrasts(*(np.concatenate(parts, axis=1) for parts in zip(*blocks, strict=True)))


def _compare(features: Array, members: csr_array) -> tuple[Array, ...]:
    """The fields of Contrasts for a few columns."""
    values = np.asarray(features, dtype=np.float64)
    known = np.isfinite(values)
    total = known.sum(0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        mean = np.where(known, values, 0.0).sum(0, keepdims=True) / total
        # Centred, so that a column of large numbers keeps the digits in which clusters differ.
        centred = np.where(known, values - mean, 0.0)
        deviation = np.sqrt((centred**2).sum(0, keepdims=True) / total)
        counts, sums = members @ known.astype(np.float64), members @ centred
        inside = mean + sums / counts
        outside = mean + (centred.sum(0) - sums) / (total - counts)
        scaled = np.where(_varies(mean, deviation), (inside - outside) / deviation, 0.0)
        missing = 1 - counts / np.asarray(members.sum(1)).reshape(-1, 1)
    return inside, outside, np.nan_to_num(scaled, nan=0.0, posinf=0.0, neginf=0.0), missing, mean, deviation


def _varies(mean: Array, deviation: Array) -> NDArray[np.bool_]:
    """Whether a feature varies among samples; rounding gives a constant one a small deviation too."""
    return np.asarray(deviation > 1e-12 * np.abs(mean))


def of_sources(features: Sequence[Feature]) -> dict[str, list[int]]:
    """The indices of the features of each column of the table."""
    found: dict[str, list[int]] = {}
    for at, feature in enumerate(features):
        found.setdefault(feature.source, []).append(at)
    return found


def opposites(features: Sequence[Feature]) -> dict[int, str]:
    """What a zero means, for features of columns with two values, by index."""
    found: dict[int, str] = {}
    for own in of_sources(features).values():
        values = [features[at].value for at in own]
        if len(own) == 2 and all(values):
            found |= {own[0]: values[1], own[1]: values[0]}
        elif values == ["1"]:
            found[own[0]] = "0"
    return found


def mark_shares(values: Array, features: tuple[Feature, ...]) -> tuple[Feature, ...]:
    """The features of columns (n, p); those that only hold zeros and ones get the value that a one stands for."""
    marked = []
    for feature, column in zip(features, values.T, strict=True):
        known = column[~np.isnan(column)]
        if not feature.value and not feature.is_date and {*np.unique(known[:100])} <= {0.0, 1.0}:
            found = np.unique(known)
            if len(found) == 2 and set(found) == {0.0, 1.0}:
                source, _, value = feature.name.partition("=")
                feature = Feature(source, value or "1")
        marked.append(feature)
    return tuple(marked)


def describe_clusters(
    contrasts: Contrasts, values: Array, features: Sequence[Feature], clusters: Sequence[int]
) -> dict[int, str]:
    """Describe each cluster, as in "petal length very high (5.6; elsewhere 2.9), mostly colour=red (80%; …)".

    A column is mentioned once, and correlated columns of values (n, d) together. If none of them separates
    a cluster from the one nearest to it, the column that does is added.
    """
    sources, other_value = of_sources(features), opposites(features)
    sizes = np.abs(contrasts.scaled)
    strength = np.stack([sizes[:, own].max(1) for own in sources.values()], axis=1)
    every = list(sources.values())
    descriptions: dict[int, str] = {}
    for cluster in clusters:
        said: list[str] = []
        taken: list[int] = []
        candidates = np.argsort(-strength[cluster], kind="stable")[:_MOST_CANDIDATES]
        notable = [_best(contrasts, cluster, every[at]) for at in candidates if strength[cluster, at] >= NOTABLE]
        for feature in notable:
            if len(said) == _MOST_SAID or feature in taken:
                continue
            partners = [
                other
                for other in notable
                if other not in taken
                and other != feature
                and not (features[feature].value or features[other].value)
                and contrasts.scaled[cluster, feature] * contrasts.scaled[cluster, other] > 0
                and move_together(values, feature, other)
            ]
            taken += [feature, *partners]
            words = _say(contrasts, cluster, feature, features[feature], other_value.get(feature, ""))
            if partners:
                names = [features[other].column or features[other].source for other in partners]
                shown = names[:_MOST_PARTNERS] + (["…"] if len(names) > _MOST_PARTNERS else [])
                words += f", and with it {', '.join(shown)}"
            said.append(words)
        nearest = _nearest(contrasts, cluster, clusters, every)
        if nearest is not None:
            apart = (contrasts.inside[cluster] - contrasts.inside[nearest]) / np.where(
                contrasts.deviation[0] > 0, contrasts.deviation[0], np.inf
            )
            apart = np.nan_to_num(apart)
            if not taken or np.abs(apart[taken]).max() < NOTABLE:
                feature = int(np.abs(apart).argmax())
                if abs(apart[feature]) > 0.1:
                    said.append(_say_unlike(contrasts, cluster, nearest, feature, features[feature]))
        descriptions[cluster] = "; ".join(said) or "close to the average in every column"
    return descriptions


def _best(contrasts: Contrasts, cluster: int, own: Sequence[int]) -> int:
    """The most informative feature of a column: a value that most samples have, or else the largest difference."""
    scaled, inside = contrasts.scaled[cluster], contrasts.inside[cluster]
    common = [at for at in own if len(own) > 1 and scaled[at] >= NOTABLE and inside[at] > 0.5]
    return max(common or own, key=lambda at: abs(scaled[at]))


def move_together(values: Array, one: int, other: int) -> bool:
    """Whether two columns of values (n, d) are so correlated that they are redundant."""
    some = values[_drawn(len(values))][:, [one, other]]
    some = some[np.isfinite(some).all(1)]
    if len(some) < 3 or (np.ptp(some, axis=0) == 0).any():
        return False
    with np.errstate(all="ignore"):
        return bool(abs(np.corrcoef(some[:, 0], some[:, 1])[0, 1]) >= _TOGETHER)


@lru_cache(maxsize=1)
def _drawn(n: int) -> NDArray[np.int64]:
    """The indices of a sample of n rows, in order, always the same ones; kept, as many pairs of columns need it."""
    return np.sort(np.random.default_rng(0).permutation(n)[:_MOST_ROWS])


def _nearest(contrasts: Contrasts, cluster: int, clusters: Sequence[int], every: Sequence[Sequence[int]]) -> int | None:
    """The cluster with the most similar means, each column counting once."""
    others = [other for other in clusters if other != cluster]
    if not others:
        return None
    apart = np.nan_to_num(contrasts.apart(contrasts.inside[cluster : cluster + 1]))[others] ** 2
    return others[int(sum(apart[:, own].max(1) for own in every).argmin())]


def _say(contrasts: Contrasts, cluster: int, at: int, feature: Feature, opposite: str) -> str:
    inside, outside, size = (
        float(part[cluster, at]) for part in (contrasts.inside, contrasts.outside, contrasts.scaled)
    )
    if not feature.value:
        extent = _RANGE * float(contrasts.deviation[0, at])
        here, there = (write_value(value, feature, extent) for value in (inside, outside))
        how = ("late" if size > 0 else "early") if feature.is_date else ("high" if size > 0 else "low")
        degree = "very " if abs(size) >= STRONG else "" if abs(size) >= _CLEAR else "rather "
        return f"{feature.name} {degree}{how} ({here}; elsewhere {there})"
    name = feature.name
    if size < 0 and opposite:
        # Of two values, less of one is more of the other, so the more frequent is described.
        inside, outside, size = 1 - inside, 1 - outside, -size
        name = Feature(feature.source, opposite, feature.column).name
    share, elsewhere = round(inside, 12), f"elsewhere {percent(outside)}"
    if share in (0, 1):
        return f"{'all' if share else 'no'} {name} ({elsewhere})"
    amount = ("mostly" if share > 0.5 else "more") if size > 0 else ("hardly any" if share <= 0.1 else "less")
    return f"{amount} {name} ({percent(inside)}; {elsewhere})"


def _say_unlike(contrasts: Contrasts, cluster: int, nearest: int, at: int, feature: Feature) -> str:
    here, there = float(contrasts.inside[cluster, at]), float(contrasts.inside[nearest, at])
    if feature.value:
        amounts, how = (percent(here), percent(there)), f"{'more' if here > there else 'less'} {feature.name}"
    else:
        extent = _RANGE * float(contrasts.deviation[0, at])
        amounts = write_value(here, feature, extent), write_value(there, feature, extent)
        higher = ("later", "earlier") if feature.is_date else ("higher", "lower")
        how = f"{feature.name} {higher[here < there]}"
    return f"unlike cluster {nearest}: {how} ({amounts[0]}; there {amounts[1]})"


@contextmanager
def clusters_of_few_rows() -> Iterator[None]:
    """Suppress scikit-learn's warning about trees in which most clusters have a single row."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes is greater than 50%")
        yield


@clusters_of_few_rows()
def restated_column(values: Array, labels: NDArray[np.int64], features: Sequence[Feature]) -> str:
    """The column whose values or ranges the clusters restate; "" if other columns predict the clusters too."""
    some = _drawn(len(labels))
    values, labels = values[some], labels[some]
    n_clusters = len(np.unique(labels))
    if n_clusters < 2 or len(labels) < _FEWEST_ROWS:
        return ""
    sources = of_sources(features)
    if len(sources) < 2:
        return ""
    best, column = RESTATED, ""
    for source, own in list(sources.items())[:_MOST_SOURCES]:
        tree = DecisionTreeClassifier(max_leaf_nodes=max(n_clusters, len(own)), random_state=0)
        agreement = adjusted_rand_index(labels, tree.fit(values[:, own], labels).predict(values[:, own]))
        if agreement >= best and (agreement > best or not column):
            best, column = agreement, source
    if not column or _predicts_clusters(np.delete(values, sources[column], axis=1), labels):
        return ""
    return column


def _predicts_clusters(values: Array, labels: NDArray[np.int64]) -> bool:
    """Whether a small tree on values (n, d) predicts the clusters (n,) of held-out rows."""
    tree = DecisionTreeClassifier(max_leaf_nodes=2 * len(np.unique(labels)), min_samples_leaf=2, random_state=0)
    # Shuffled, because files are often sorted.
    folds = KFold(_FOLDS, shuffle=True, random_state=0)
    return adjusted_rand_index(labels, cross_val_predict(tree, values, labels, cv=folds)) >= _PREDICTED_BY_OTHERS

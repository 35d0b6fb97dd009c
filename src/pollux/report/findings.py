"""``Findings``, the record from which a report is made, and summaries of its probabilities."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.arrow import are_sentences
from pollux.data.encoding import Decision, Feature
from pollux.metrics import renyi_entropy
from pollux.progress import Stage
from pollux.report.maps import Map, neighbour_map, principal_map
from pollux.trees.contrasts import Contrasts, compare_clusters, mark_shares
from pollux.trees.explanation import Explanation, explain_labels, name_clusters

if TYPE_CHECKING:
    from pollux.inspection.hierarchy import Hierarchy
    from pollux.inspection.structure import Structure
    from pollux.report.comparison import Comparison

Array = NDArray[np.floating[Any]]
MOST_CLASSES = 1_000
# Samples of at least this probability are never listed as uncertain.
CERTAIN = 0.99
# Number of typical, and of uncertain, samples of a cluster that are shown.
SHOWN = 10
ROWS_AT_ONCE = 100_000
# Fewer samples are only shown on their principal components.
FEWEST_ARRANGED = 50
# A certain sample is near a boundary if it lies within this share of the way from it to the centre.
NEAR = 0.3
# Fields that have one entry for every sample, if they are given.
OF_SAMPLES = ("points", "seen", "given_labels", "features", "images", "row_names", "classes", "scores", "outliers")


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """The results on n samples in at most K clusters, numbered by decreasing size.

    Parameters
    ----------
    title : str
        Title of the report.
    probabilities : array of shape (n, K)
        p(y|x) of each sample.
    points : array of shape (n, 2), optional
        Position of each sample on the map, if it is given.
    axes : pair of str
        Names of the two coordinates of ``points``.
    seen : array of shape (n, d), optional
        The samples as the model sees them, from which further maps are computed: :meth:`draw_maps`.
    given_labels : array of int of shape (n,), optional
        The cluster of each sample, if it need not be the most likely one: clusters of given sizes.
    features : array of shape (n, d), optional
        The samples in their own units, NaN for missing values. Text columns are one-hot encoded.
    feature_names : sequence of str
        Names of the d features; ``column=value`` for one-hot columns.
    shares : collection of str
        The names of features that are zeros and ones.
    dates : collection of str
        The names of features that are times, in years.
    images : array of shape (n, H, W) or (n, H, W, 3), uint8, optional
        The samples as images.
    row_names : sequence of str, optional
        A name for each sample, which may be a text; row numbers are used otherwise.
    classes : array of str of shape (n,), optional
        Known classes, at most 1,000 different ones; ``""`` if the class of a sample is not known. They were not used
        for training.
    places : Places, optional
        Positions of samples among the centres of clusters; without it typical samples are found by probability.
    scores : array of shape (n,), optional
        How well each sample fits in: −1 is typical, −2 is twice as far from similar samples.
    outliers : array of bool of shape (n,), optional
        Mask of the outliers.
    hierarchy : Hierarchy, optional
        The hierarchy of clusters.
    comparison : Comparison, optional
        A comparison with another clustering, or with other samples: :func:`compare`.
    structure : Structure, optional
        How clear it is that there are clusters at all.
    stability : float, optional
        The mean adjusted Rand index over pairs of restarts.
    agreement : array of shape (n,), optional
        The share of other trainings that would give each sample the same cluster, after ``assess``.
    totals : array of int of shape (K,), optional
        Number of samples of each cluster in all, if the n samples are drawn from more.
    cluster_names : mapping of int to str
        Short names of clusters; the others are derived from the features, or the texts.
    history : mapping
        ``objective``, ``clusters`` and ``entropy`` of each epoch.
    settings : mapping of str
        Settings of the training, as text.
    columns : sequence of Decision
        The decision about each column of the table, in order.
    notes : sequence of str
        Further notes for the reader: columns that were left out, an interrupted training.
    command : str
        The command that repeats the run; empty if there is none.
    """

    title: str
    probabilities: Array
    points: Array | None = None
    axes: tuple[str, str] = ("first coordinate", "second coordinate")
    seen: Array | None = field(default=None, repr=False)
    given_labels: NDArray[np.int64] | None = None
    features: Array | None = None
    feature_names: Sequence[str] = ()
    shares: frozenset[str] = frozenset()
    dates: frozenset[str] = frozenset()
    images: NDArray[np.uint8] | None = None
    row_names: Sequence[str] | None = None
    classes: NDArray[np.str_] | None = None
    places: Places | None = None
    scores: Array | None = None
    outliers: NDArray[np.bool_] | None = None
    hierarchy: Hierarchy | None = None
    comparison: Comparison | None = None
    structure: Structure | None = None
    stability: float | None = None
    agreement: Array | None = None
    totals: NDArray[np.int64] | None = None
    cluster_names: Mapping[int, str] = field(default_factory=dict)
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    columns: Sequence[Decision] = ()
    command: str = ""

    def __repr__(self) -> str:
        n, K = self.probabilities.shape
        columns = f", {len(self.feature_names):,} features" if self.features is not None else ""
        return f"Findings({self.title!r}: {n:,} samples{columns}, at most {K} clusters)"

    def __post_init__(self) -> None:
        n = len(self.probabilities)
        if self.points is None and self.seen is None:
            raise ValueError("A map needs points, or what samples are arranged by (seen).")
        for name in OF_SAMPLES:
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise ValueError(f"There are {n} rows of probabilities, but {len(value)} of {name}.")
        if self.features is not None and self.features.shape[1] != len(self.feature_names):
            raise ValueError(f"{self.features.shape[1]} features have {len(self.feature_names)} names.")
        different = 0 if self.classes is None else len(set(np.asarray(self.classes).tolist()) - {""})
        if different > MOST_CLASSES:
            raise ValueError(
                f"classes holds {different:,} different values for {n:,} samples, and at most {MOST_CLASSES:,} can be "
                "compared with: what differs from sample to sample is not a class."
            )

    @functools.cached_property
    def summary(self) -> Summary:
        """Cluster, confidence and entropy of all samples."""
        return Summary.of(self.probabilities, self.places, self.given_labels)

    def draw_maps(self, rows: NDArray[np.intp]) -> list[Map]:
        """Maps of some rows, the most useful first: given points, or neighbours; then principal components."""
        maps = [] if self.points is None else [Map("Given", np.asarray(self.points, float)[rows], self.axes)]
        if self.seen is not None:
            seen = self.seen[rows]
            # With two columns, or few rows, principal components show everything.
            if not maps and seen.shape[1] > 2 and len(seen) >= FEWEST_ARRANGED:
                with Stage(f"map of {len(seen):,} rows"):
                    maps.append(Map("Neighbours", neighbour_map(seen)))
            maps.append(Map("Principal components", *principal_map(seen)))
        return maps

    @functools.cached_property
    def read_features(self) -> tuple[Feature, ...]:
        """The features, with the columns that they come from."""
        if self.features is None:
            return ()
        given = tuple(
            Feature(name.partition("=")[0], name.partition("=")[2] or "yes")
            if name in self.shares
            else Feature(name, is_date=name in self.dates)
            for name in map(str, self.feature_names)
        )
        return mark_shares(np.asarray(self.features), given)

    @functools.cached_property
    def contrasts(self) -> Contrasts | None:
        """Contrasts of the features between clusters; None without features."""
        if self.features is None or not self.features.shape[1]:
            return None
        return compare_clusters(self.features, self.summary.labels, len(self.summary.sizes))

    @functools.cached_property
    def explanation(self) -> Explanation | None:
        """Names, rules and a tree of the clusters; None without features, or without two clusters."""
        if self.contrasts is None or len(self.summary.clusters) < 2:
            return None
        values = np.asarray(self.features, dtype=np.float64)
        return explain_labels(self.labels, values, self.read_features, self.cluster_names, self.contrasts)

    @functools.cached_property
    def has_texts(self) -> bool:
        """Whether samples are texts, which are used as names: there are neither features nor images."""
        if self.row_names is None or self.features is not None or self.images is not None:
            return False
        return are_sentences([str(name) for name in self.row_names[:1000]])

    def cluster_name(self, cluster: int) -> str:
        """The short name of a cluster; "" if it has none."""
        return self._names.get(cluster, "")

    @functools.cached_property
    def _names(self) -> Mapping[int, str]:
        if self.explanation is not None:
            return self.explanation.names
        return self.cluster_names or (self.name_groups(self.labels) if self.has_texts else {})

    def name_groups(self, labels: NDArray[np.int64]) -> dict[int, str]:
        """Short names of groups (n,) of the samples, from their columns or their words; {} if they have neither."""
        if self.explanation is not None:
            return name_clusters(labels, np.asarray(self.features, dtype=np.float64), self.read_features)
        if self.has_texts and self.row_names is not None:
            # Imported late, because it imports torch, which figures do not need.
            from pollux.embedding.topics import name_clusters as name_topics

            return {topic.cluster: topic.name for topic in name_topics(labels, self.row_names)}
        return {}

    @functools.cached_property
    def known_classes(self) -> Classes | None:
        """The classes of the samples; None if none is known."""
        return None if self.classes is None else Classes.of(self.classes)

    @property
    def labels(self) -> NDArray[np.int64]:
        """The cluster of each sample, (n,)."""
        return self.summary.labels

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of samples of each cluster in use, (in use,); empty clusters come last and are left out."""
        return self.summary.sizes

    @property
    def all_sizes(self) -> NDArray[np.int64]:
        """The sizes of these clusters among all samples, of which those here may be a part."""
        return self.sizes if self.totals is None else self.totals[: len(self.sizes)]

    @property
    def n_samples(self) -> int:
        """The number of all samples, of which those here may be a part."""
        return len(self.labels) if self.totals is None else int(self.totals.sum())

    def row_name(self, row: int) -> str:
        """A sample's name, or its row number from 0."""
        return f"Sample {row}" if self.row_names is None else str(self.row_names[row])


@dataclass(frozen=True, eq=False)
class Places:
    """Positions of n samples among the centres of K clusters, in the features of the geometry.

    Parameters
    ----------
    own : array of shape (n,)
        The squared distance to the centre of its own cluster; NaN if it was not computed.
    margin : array of shape (n,)
        Relative position between the nearest boundary (0) and the centre (1); negative beyond the boundary.
    other : array of int of shape (n,)
        The cluster beyond that boundary.
    between : array of shape (K, K)
        Distances between centres: maximum mean discrepancies.
    space : str
        Description of the features.
    """

    own: Array
    margin: Array
    other: NDArray[np.int64]
    between: Array
    space: str

    @staticmethod
    def of(features: Array, labels: NDArray[np.int64], rows: NDArray[np.intp], n: int, space: str) -> Places:
        """Compute places from features (m, r) of some rows, with their labels, among n samples."""
        K = int(labels.max()) + 1
        # Centred, because squares of numbers far from zero would lose the digits of distances.
        features = features - features.mean(0)
        counts = np.bincount(labels, minlength=K)
        sums = np.zeros((K, features.shape[1]))
        np.add.at(sums, labels, features)
        with np.errstate(invalid="ignore", divide="ignore"):
            centres = sums / counts[:, None]
        squared = (features**2).sum(1)[:, None] - 2 * features @ np.nan_to_num(centres).T + (centres**2).sum(1)
        squared = np.where(np.isnan(squared), np.inf, np.maximum(squared, 0.0))
        between = np.sqrt(((centres[:, None] - centres) ** 2).sum(2))
        own, margin = np.full(n, np.nan), np.full(n, np.nan)
        other = np.zeros(n, dtype=np.int64)
        every = np.arange(len(labels))
        own[rows] = squared[every, labels]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = (squared - squared[every, labels][:, None]) / between[labels] ** 2
        share[every, labels] = np.inf
        share = np.where(np.isnan(share), np.inf, share)
        other[rows], margin[rows] = share.argmin(1), share.min(1)
        return Places(own, margin, other, between, space)


@dataclass(frozen=True, eq=False)
class Summary:
    """Most likely and second cluster with their probabilities, and entropy in nats: (n,) each.

    ``sizes`` are those of clusters up to the last in use, ``clusters`` the numbers of those in use, and
    ``highest_entropy`` is log K, that of uniform probabilities.
    """

    n_allowed: int
    highest_entropy: float
    sizes: NDArray[np.int64]
    clusters: list[int]
    labels: NDArray[np.int64]
    following: NDArray[np.int64]
    confidence: NDArray[np.float64]
    following_probability: NDArray[np.float64]
    entropy: NDArray[np.float64]
    places: Places | None = None

    @staticmethod
    def of(probabilities: Array, places: Places | None = None, labels: NDArray[np.int64] | None = None) -> Summary:
        """Summarise probabilities (n, K) in parts of rows; labels are the most likely clusters by default."""
        n, n_allowed = probabilities.shape
        labels = np.asarray(probabilities.argmax(1) if labels is None else labels, dtype=np.int64)
        counts = np.bincount(labels, minlength=n_allowed)
        clusters = np.flatnonzero(counts).tolist()
        following = labels.copy()
        confidence, following_probability, entropy = (np.empty(n) for _ in range(3))
        for start in range(0, n, ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            rows = np.array(probabilities[part], dtype=np.float64)
            every, own = np.arange(len(rows)), labels[part]
            entropy[part] = renyi_entropy(rows, order=1.0)
            confidence[part] = rows[every, own]
            rows[every, own] = -1.0
            if n_allowed > 1:
                following[part] = rows.argmax(1)
            following_probability[part] = np.maximum(rows[every, following[part]], 0.0)
        if places is not None:
            # Where probabilities do not determine the second cluster, the nearest boundary does.
            unsaid = (following_probability < 1e-6) & np.isfinite(places.margin)
            following[unsaid] = places.other[unsaid]
        return Summary(
            n_allowed=n_allowed,
            highest_entropy=float(np.log(n_allowed)),
            sizes=counts[: clusters[-1] + 1],
            clusters=clusters,
            labels=labels,
            following=following,
            confidence=confidence,
            following_probability=following_probability,
            entropy=entropy,
            places=places,
        )

    def members(self, cluster: int) -> NDArray[np.intp]:
        """The rows of one cluster."""
        return np.flatnonzero(self.labels == cluster)

    def most_typical(self, cluster: int, most: int = SHOWN) -> NDArray[np.intp]:
        """Rows nearest to the centre, best first; half of a small cluster, if the others are uncertain.

        Without places they are those of the highest probability, which may be equal for nearly all.
        """
        members = self.members(cluster)
        certain = int((self.confidence[members] >= CERTAIN).sum())
        most = min(most, max(certain, -(-len(members) // 2)))
        # NaN, for rows without a place, is sorted last.
        order = -self.confidence[members] if self.places is None else self.places.own[members]
        return members[np.argsort(order, kind="stable")[:most]]

    def least_certain(self, rows: NDArray[np.intp], most: int | None = SHOWN) -> NDArray[np.intp]:
        """Those of the rows with the smallest margin in probability, worst first; then certain ones near a boundary.

        Without places the latter are left out.
        """
        certain = self.confidence[rows] >= CERTAIN
        unsure, sure = rows[~certain], rows[certain]
        margin = self.confidence[unsure] - self.following_probability[unsure]
        unsure = unsure[np.argsort(margin, kind="stable")]
        if self.places is None:
            return unsure[:most]
        sure = sure[self.places.margin[sure] < NEAR]
        return np.concatenate([unsure, sure[np.argsort(self.places.margin[sure], kind="stable")]])[:most]

    def shares(self, values: Array, highest: float, bins: int = 20) -> tuple[Array, dict[int, Array]]:
        """Histograms (bins,) of values (n,) from 0 to the highest: of all samples, and of those of each cluster."""
        codes = np.clip((values * (bins / highest)).astype(np.int64), 0, bins - 1)
        table = np.bincount(self.labels * bins + codes, minlength=len(self.sizes) * bins).reshape(-1, bins)
        own = {cluster: table[cluster] / self.sizes[cluster] for cluster in self.clusters}
        return table.sum(0) / len(values), own


@dataclass(frozen=True, eq=False)
class Classes:
    """Names of the known classes, integers in numeric order, and the class (n,) of each sample.

    The code of an unknown class is ``len(names)``, one beyond the last of them.
    """

    names: list[str]
    codes: NDArray[np.int64]
    known: NDArray[np.bool_]

    @staticmethod
    def of(classes: NDArray[np.str_]) -> Classes | None:
        """The classes from text (n,), "" for an unknown class; None if all are unknown."""
        given = np.asarray(classes).astype(str).tolist()
        names = sorted(set(given) - {""})
        if not names:
            return None
        if all(name.removeprefix("-").isdecimal() for name in names):
            names.sort(key=int)
        places = {name: code for code, name in enumerate([*names, ""])}
        codes = np.fromiter((places[name] for name in given), np.int64, len(given))
        return Classes(names, codes, codes < len(names))

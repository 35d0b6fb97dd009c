"""The record that a report is made from, ``Findings``; what its probabilities say; ``describe``, which makes one."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.decomposition import PCA
from sklearn.pipeline import Pipeline
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from pollux.data.encoding import Decision, Feature, UnseenWarning, readable_names
from pollux.errors import warn
from pollux.metrics import renyi_entropy
from pollux.progress import Stage
from pollux.report.tsne import neighbour_map
from pollux.trees.contrasts import Contrasts, compare_clusters
from pollux.trees.explanation import Explanation, explain_labels, named_clusters, read_columns
from pollux.trees.words import mark_shares

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering
    from pollux.fitted import Fitted
    from pollux.inspection.hierarchy import Hierarchy
    from pollux.inspection.structure import Structure
    from pollux.report.comparison import Comparison

Array = NDArray[np.floating[Any]]
MOST_CLASSES = 1_000
# From this probability on a sample is never listed as uncertain.
CERTAIN = 0.99
# Typical, and uncertain, samples of a cluster that are shown.
SHOWN = 10
ROWS_AT_ONCE = 100_000
MOST_ROWS_OF_PCA = 20_000
MOST_STREAMED_ROWS = 100_000
# Samples whose place among the centres of clusters is worked out.
MOST_PLACED = 20_000
# Fewer samples are shown on their principal components alone.
FEWEST_ARRANGED = 50
# A sample fits in nowhere that lies so many times as far from its like as is typical.
FAR = 3.0
# Clusters whose groups are looked for, and samples that decide where each pair of them is a transport problem.
MOST_GROUPED, SAMPLES_OF_TRANSPORT = 20, 100
# A certain sample is near a boundary where it lies less than this share of the way from it to the centre.
NEAR = 0.3
# Parameters that are shown by these names where they are not the defaults.
FURTHER_SETTINGS = {
    "scaling": "Scaling",
    "missing": "Missing values",
    "activation": "Activation",
    "norm": "Normalised by",
    "n_components": "Principal components",
    "init": "Initialisation",
    "optimiser": "Optimiser",
    "schedule": "Schedule",
    "trial_epochs": "Epochs of all restarts",
    "max_samples": "Most rows that are learned from",
    "reshuffle_every": "Epochs between reshuffles",
    "tol": "Tolerance",
    "patience": "Patience",
    "dtype": "Arithmetic",
    "device": "Device",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """n samples in at most K clusters, numbered by decreasing size.

    Parameters
    ----------
    title : str
        What was clustered.
    probabilities : array of shape (n, K)
        p(y|x) of each sample.
    points : array of shape (n, 2), optional
        Where each sample lies on the map, if it is not to be arranged.
    axes : pair of str
        What the two coordinates of ``points`` are.
    seen : array of shape (n, d), optional
        The samples as the model sees them, which further maps are made from: :meth:`draw_maps`.
    given_labels : array of int of shape (n,), optional
        The cluster of each sample, where it need not be the likeliest: clusters of given sizes.
    features : array of shape (n, d), optional
        The samples in their own units, NaN where a value is missing. Text columns come as one column of zeros and ones
        for each of their values.
    feature_names : sequence of str
        Names of the d features; ``column=value`` for the zeros and ones of text columns.
    shares : collection of str
        The names among them that are zeros and ones.
    dates : collection of str
        The names among them that are points in time, in years.
    images : array of shape (n, H, W) or (n, H, W, 3), uint8, optional
        The samples as pictures.
    row_names : sequence of str, optional
        A name for each sample; its number is used otherwise.
    classes : array of str of shape (n,), optional
        Known classes, at most 1,000 different ones; ``""`` where the class of a sample is not known. They were not used
        for training.
    places : Places, optional
        Where samples lie among the centres of clusters; without it the probabilities say which are typical.
    scores : array of shape (n,), optional
        How well each sample fits in: −1 is typical, −2 is twice as far from its like.
    outliers : array of bool of shape (n,), optional
        Which samples fit in nowhere.
    hierarchy : Hierarchy, optional
        How clusters group into larger ones.
    comparison : Comparison, optional
        The clusters beside those of another clustering, or of other samples: :func:`compare`.
    structure : Structure, optional
        How clear it is that clusters are there at all.
    agreement : array of shape (n,), optional
        The share of other trainings that would give each sample the same cluster, after ``assess``.
    totals : array of int of shape (K,), optional
        How many samples each cluster has in all, where the n samples are drawn from more.
    cluster_names : mapping of int to str
        Short names of clusters; :attr:`explanation` finds those that are not given.
    history : mapping
        ``objective``, ``clusters`` and ``entropy`` of each epoch.
    settings : mapping of str
        How the model was trained, for people.
    columns : sequence of Decision
        What became of each column of the table, in the order of the table.
    notes : sequence of str
        What else a reader must know: columns that were left out, an interrupted training.
    command : str
        The command that repeats the run; empty where there is none.
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
    agreement: Array | None = None
    totals: NDArray[np.int64] | None = None
    cluster_names: Mapping[int, str] = field(default_factory=dict)
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    columns: Sequence[Decision] = ()
    command: str = ""

    def __post_init__(self) -> None:
        n = len(self.probabilities)
        if self.points is None and self.seen is None:
            raise ValueError("A map needs points, or what samples are arranged by (seen).")
        for name in (
            "points",
            "seen",
            "given_labels",
            "features",
            "images",
            "row_names",
            "classes",
            "scores",
            "outliers",
        ):
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
        """Clusters, confidence and entropy of all samples."""
        return Summary.of(self.probabilities, self.places, self.given_labels)

    def draw_maps(self, rows: NDArray[np.intp]) -> list[Map]:
        """The maps of some rows, the one to look at first first: given points, or neighbours; principal components."""
        maps = [] if self.points is None else [Map("Given", np.asarray(self.points, float)[rows], self.axes)]
        if self.seen is not None:
            seen = self.seen[rows]
            # Of two columns, and of a few rows, everything is seen as it is.
            if not maps and seen.shape[1] > 2 and len(seen) >= FEWEST_ARRANGED:
                with Stage(f"map of {len(seen):,} rows"):
                    maps.append(Map("Neighbours", neighbour_map(seen)))
            maps.append(Map("Principal components", *principal_map(seen)))
        return maps

    @functools.cached_property
    def read_features(self) -> tuple[Feature, ...]:
        """What the features are, the columns that they stem from among it."""
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
        """How the features of clusters differ; None without features."""
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

    def cluster_name(self, cluster: int) -> str:
        """The short name of a cluster; "" where it has none."""
        names = self.explanation.names if self.explanation is not None else self.cluster_names
        return names.get(cluster, "")

    @functools.cached_property
    def known_classes(self) -> Classes | None:
        """The classes of the samples; None where not a single one is known."""
        return None if self.classes is None else Classes.of(self.classes)

    @property
    def labels(self) -> NDArray[np.int64]:
        """The cluster of each sample, (n,)."""
        return self.summary.labels

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Samples of each cluster in use, (in use,); clusters that no sample prefers come last and are left out."""
        return self.summary.sizes

    @property
    def all_sizes(self) -> NDArray[np.int64]:
        """The sizes of these clusters among all samples, of which those here may be drawn."""
        return self.sizes if self.totals is None else self.totals[: len(self.sizes)]

    @property
    def n_samples(self) -> int:
        """How many samples there are, of which those here may be drawn."""
        return len(self.labels) if self.totals is None else int(self.totals.sum())

    def row_name(self, row: int) -> str:
        """A sample's name, or its number from 0."""
        return f"Sample {row}" if self.row_names is None else str(self.row_names[row])


@dataclass(frozen=True, eq=False)
class Map:
    """Where samples lie, (n, 2), and what the axes are; None where only who lies near whom means something."""

    name: str
    points: Array
    axes: tuple[str, str] | None = None


@dataclass(frozen=True, eq=False)
class Places:
    """Where n samples lie among the centres of K clusters, in the features of the geometry.

    Parameters
    ----------
    own : array of shape (n,)
        The squared distance to the centre of the own cluster; NaN where it was not worked out.
    margin : array of shape (n,)
        How far a sample is from the nearest boundary, on the way from there (0) to its centre (1); negative beyond it.
    other : array of int of shape (n,)
        The cluster beyond that boundary.
    between : array of shape (K, K)
        Distances between centres: maximum mean discrepancies.
    space : str
        What the features are.
    """

    own: Array
    margin: Array
    other: NDArray[np.int64]
    between: Array
    space: str

    @staticmethod
    def of(features: Array, labels: NDArray[np.int64], rows: NDArray[np.intp], n: int, space: str) -> Places:
        """Of features (m, r) of some rows, with their labels, among n samples."""
        K = int(labels.max()) + 1
        # Squares of numbers far from zero would leave no digits for the distances.
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
    """Cluster, next cluster and their probabilities, entropy in nats: (n,) each.

    ``sizes`` are those of clusters up to the last in use, ``clusters`` the numbers of those in use, and
    ``highest_entropy`` is log K, that of a guess.
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
        """Read probabilities (n, K) once, some rows at a time; labels are the likeliest clusters if none are given."""
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
            # Where probabilities do not say which cluster is next.
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
        """Rows nearest to the centre, best first; of a small cluster half, if the others are uncertain.

        Without places they are those of the highest probability, which may be the same for nearly all.
        """
        members = self.members(cluster)
        certain = int((self.confidence[members] >= CERTAIN).sum())
        most = min(most, max(certain, -(-len(members) // 2)))
        # NaN, of what was not placed, comes last.
        order = -self.confidence[members] if self.places is None else self.places.own[members]
        return members[np.argsort(order, kind="stable")[:most]]

    def least_certain(self, rows: NDArray[np.intp], most: int | None = SHOWN) -> NDArray[np.intp]:
        """Those of the rows whose next cluster is nearest in probability, worst first; then certain ones at a boundary.

        Without places these are left out.
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
    """Names of the known classes, whole numbers in their own order, and the class (n,) of each sample.

    The code of a class that is not known is ``len(names)``, one beyond the last of them.
    """

    names: list[str]
    codes: NDArray[np.int64]
    known: NDArray[np.bool_]

    @staticmethod
    def of(classes: NDArray[np.str_]) -> Classes | None:
        """The classes of text (n,), "" where a class is not known; None where not a single one is."""
        given = np.asarray(classes).astype(str).tolist()
        names = sorted(set(given) - {""})
        if not names:
            return None
        if all(name.removeprefix("-").isdecimal() for name in names):
            names.sort(key=int)
        places = {name: code for code, name in enumerate([*names, ""])}
        codes = np.fromiter((places[name] for name in given), np.int64, len(given))
        return Classes(names, codes, codes < len(names))


def describe(
    clustering: GeminiClustering | Pipeline,
    X: Any,
    *,
    title: str = "Clusters",
    feature_names: Sequence[str] | None = None,
    classes: ArrayLike | None = None,
    images: NDArray[np.uint8] | None = None,
    points: ArrayLike | str | None = None,
    axes: tuple[str, str] = ("first coordinate", "second coordinate"),
    labels: ArrayLike | None = None,
    outliers: float = 0.0,
    row_names: Sequence[str] | None = None,
    settings: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    command: str = "",
) -> Findings:
    """What a fitted clustering says of X, for :func:`write_page`.

    Parameters
    ----------
    clustering : GeminiClustering or Pipeline
        A fitted one, or a fitted pipeline of scikit-learn that ends in one.
    X : whatever ``fit`` takes
        The samples: an array, a DataFrame or a sparse matrix (n, d), images (n, C, H, W), files, a stream or a loader.
        Of those that are streamed 100,000 at most are shown; of a free table, those that it was fitted on.
    title : str
        What was clustered.
    feature_names : sequence of str, optional
        Names of the d columns; those of a data frame are its own.
    classes : array of shape (n,), optional
        Known classes, to compare with; None, NaN or "" where the class of a sample is not known.
    images : array of shape (n, H, W) or (n, H, W, 3), uint8, optional
        The samples as pictures, where X holds their pixels as rows.
    points : array of shape (n, 2) or "components", optional
        Where the samples lie on the map; by default by the neighbours that they have in what the model sees
        (:func:`neighbour_map`), and the page has its principal components beside, or these alone. Where the model sees
        columns in units that differ widely, the maps show them standardised.
    axes : pair of str
        What the coordinates of ``points`` are.
    labels : array of int of shape (n,), optional
        The cluster of each sample, where it is not the likeliest: ``labels_`` of a fit to given sizes.
    outliers : float
        Flag samples that fit in less than this share of the training does; by default those that lie three times as
        far from their like as is typical.
    row_names : sequence of str, optional
        A name for each sample.
    settings : mapping of str, optional
        How it was trained; :func:`describe_training` by default.
    notes, command : sequence of str, str
        What else a reader must know, and the command that repeats the run.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pollux import GeminiClustering
    >>> X = load_iris().data
    >>> clustering = GeminiClustering(3, model="linear", max_epochs=5, random_state=0).fit(X)
    >>> describe(clustering, X, title="Iris").probabilities.shape
    (150, 3)
    """
    # Imported late, because they bring torch, which figures do not need.
    from pollux.clustering import GeminiClustering
    from pollux.data.samples import validate_samples
    from pollux.fitted import say_outside
    from pollux.geometry import CosineGraph, unit_rows

    given, steps = clustering, None
    if isinstance(clustering, Pipeline):
        steps, clustering = clustering[:-1], clustering[-1]
    if not isinstance(clustering, GeminiClustering):
        raise TypeError(f"describe takes a GeminiClustering or a pipeline that ends in one, not {clustering!r}.")
    check_is_fitted(clustering)
    fitted = clustering.fitted_
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UnseenWarning)
        X, samples = (X, steps.transform(X)) if steps else _read_streamed(clustering, X)
        if samples is None:
            samples = validate_samples(X, clustering, reset=False, missing=fitted.missing, encoding=fitted.encoding)
        elif steps:
            samples = validate_samples(samples, clustering, reset=False, missing=fitted.missing)
    unseen = [str(each.message) for each in caught if issubclass(each.category, UnseenWarning)]
    for other in caught:
        if not issubclass(other.category, UnseenWarning):
            warn(str(other.message), other.category)
    notes = [*notes, *unseen, *say_outside(*fitted.far_outside(samples), samples.shape[0])]
    if not fitted.is_free:
        probabilities = fitted.probabilities(samples)
    elif samples.shape[0] == len(fitted.labels):
        probabilities = fitted.free_probabilities()
    else:
        raise ValueError("A free table knows only the samples it was trained on, in their order: pass those.")
    seen = _as_seen(fitted, samples)
    # Of embeddings only angles count.
    drawn: NDArray[Any] | None = unit_rows(seen) if isinstance(fitted.geometry, CosineGraph) else seen
    if isinstance(points, str):
        if points != "components":
            raise ValueError(f"points is an array (n, 2) or 'components', not {points!r}.")
        (points, axes), drawn = principal_map(seen), None
    if images is None and len(fitted.shape) == 3:
        images = as_pictures(np.asarray(samples if steps else X))
    values: NDArray[np.float64] | None = None
    features: tuple[Feature, ...] = ()
    if images is None and samples is X:
        # What was streamed has been encoded already.
        values = np.asarray(_dense(samples), dtype=np.float64)
        own = fitted.feature_names or (() if fitted.encoding is None else fitted.encoding.feature_names)
        names = own or [str(index) for index in range(values.shape[1])]
        features = tuple(map(Feature, readable_names(list(names if feature_names is None else feature_names))))
    elif images is None:
        _, values, features = read_columns(given, X, feature_names)
        # Their names without the columns that they stem from, which figures do not know.
        features = mark_shares(values, features)
    if row_names is None and isinstance(X, list | np.ndarray) and all(isinstance(text, str) for text in X[:10]):
        # Texts are their own names.
        row_names = [" ".join(str(text).split()) for text in X]
    scores = far = None
    if fitted.prototypes is not None:
        scores = fitted.scores(samples)
        far = scores < (fitted.prototypes.threshold(outliers) if outliers else -FAR)
    return Findings(
        title=title,
        probabilities=probabilities,
        points=None if points is None else np.asarray(points, dtype=np.float64),
        axes=axes,
        seen=drawn,
        given_labels=None if labels is None else np.asarray(labels),
        features=values,
        feature_names=[feature.name for feature in features],
        shares=frozenset(feature.name for feature in features if feature.value),
        dates=frozenset(feature.name for feature in features if feature.is_date),
        images=images,
        row_names=row_names,
        classes=None if classes is None else _as_text(classes),
        places=_find_places(fitted, samples, seen, probabilities.argmax(1) if labels is None else np.asarray(labels)),
        structure=fitted.structure,
        agreement=None
        if fitted.confidence is None
        else fitted.confidence.predict(fitted.log_probabilities(samples).numpy()),
        scores=scores,
        outliers=far,
        # What was streamed is encoded already, and would be so twice.
        hierarchy=None
        if samples is X and fitted.encoding is not None
        else _find_hierarchy(clustering, samples if steps else X, probabilities.argmax(1)),
        cluster_names={k: name for k, name in named_clusters(clustering).items() if name},
        history=fitted.history,
        settings=describe_training(clustering) if settings is None else settings,
        notes=notes,
        columns=fitted.columns if any(each.reason for each in fitted.columns) else (),
        command=command,
    )


def _find_places(fitted: Fitted, samples: Any, seen: NDArray[Any], labels: NDArray[np.int64]) -> Places:
    """Where samples lie among the centres of clusters: in the features of a kernel, or else as the model sees them.

    A mixture knows no centre but its own: its features are nearly the same for all samples of a component.
    """
    import torch

    from pollux.data.scaling import prepared
    from pollux.geometry import Mixtures, Precomputed
    from pollux.geometry.landmarks import features_of

    n, geometry = len(labels), fitted.geometry
    rows = np.arange(n)
    if n > MOST_PLACED:
        rows = np.sort(np.random.default_rng(0).choice(n, MOST_PLACED, replace=False))
    if geometry is None or geometry.kind != "kernel" or isinstance(geometry, Mixtures | Precomputed):
        return Places.of(np.asarray(seen[rows], dtype=np.float64), labels[rows], rows, n, "what the model sees")
    some = prepared(samples[rows], fitted.scaling, torch.float64, "cpu")
    name = getattr(geometry, "name", "") or type(geometry).__name__
    return Places.of(features_of(geometry, some), labels[rows], rows, n, f"the features of the {name} kernel")


def _find_hierarchy(clustering: GeminiClustering, X: Any, labels: NDArray[np.int64]) -> Hierarchy | None:
    """How clusters group into larger ones, by some of the samples; None where this cannot be said, or not at once."""
    fitted, used = clustering.fitted_, len(np.unique(labels))
    if fitted.is_free or not 3 <= used <= len(fitted.order) <= MOST_GROUPED:
        return None
    most = SAMPLES_OF_TRANSPORT if fitted.geometry is not None and fitted.geometry.kind == "distance" else 500
    some = np.sort(np.random.default_rng(0).permutation(len(labels))[:most])
    # An affinity that was given knows no other samples; values that were not seen have been told of all samples.
    with contextlib.suppress(ValueError), warnings.catch_warnings():
        warnings.simplefilter("ignore", UnseenWarning)
        return replace(clustering.hierarchy(_safe_indexing(X, some)), labels=labels)
    return None


def _read_streamed(clustering: GeminiClustering, X: Any) -> tuple[Any, Any]:
    """Rows of what is streamed, in memory; and their samples, where these are not yet to be made of them."""
    from pollux.data.samples import draw_samples, is_streamed, open_samples
    from pollux.data.sources import gather, open_data

    if not is_streamed(X):
        return X, None
    encoding = clustering.fitted_.encoding
    if encoding is not None and isinstance(X, str | Path):
        return gather(open_data(X).stream(encoding, ())).rows, None
    dtype = str(clustering.fitted_.dtype).removeprefix("torch.")
    drawn: Any = draw_samples(open_samples(X, copy(clustering), fewest=1, dtype=dtype), MOST_STREAMED_ROWS)
    return drawn.X, drawn.X


def _as_seen(fitted: Fitted, samples: Any) -> NDArray[Any]:
    """Samples (n, …) as the network sees them, (n, d): scaled, without gaps.

    Where it sees columns as they are, they are scaled all the same: that of the largest numbers would be the map.
    """
    import torch

    from pollux.data.scaling import FittedScaling, prepared

    seen = prepared(samples, fitted.scaling, torch.float64, "cpu")
    # A scaling with values of its own for gaps fills these, and leaves the units.
    scales = fitted.scaling is not None and getattr(fitted.scaling, "fill", None) is None
    if not scales and fitted.encoding is None:
        seen = prepared(seen.flat(), FittedScaling.fit(seen.flat(), "auto"), torch.float64, "cpu")
    return _dense(seen.flat())


def _dense(samples: Any) -> NDArray[Any]:
    return np.asarray(samples.toarray() if issparse(samples) else samples)


def describe_training(clustering: GeminiClustering, n_samples: int | None = None) -> dict[str, str]:
    """How a fitted clustering was trained, in words: what is always of interest, and what is not the default.

    ``n_samples`` is the number of samples of the training, where the model does not know it: it was streamed, and
    loaded from a file.
    """
    # Imported late, because it brings torch, which figures do not need.
    from pollux.recipes import PLAIN
    from pollux.spec import flatten_params
    from pollux.training.problem import resolve_batch_size

    def name_of(value: Any) -> str:
        """A parameter for people: of functions and networks the name must do."""
        if isinstance(value, str | int | float | tuple | list) or value is None:
            return str(value)
        return str(getattr(value, "name", "") or getattr(value, "__name__", "") or type(value).__name__)

    fitted, given = clustering.fitted_, flatten_params(clustering)
    # Plain values go without saying, and so do values that are not scaled.
    default = flatten_params(type(clustering)(preprocessing=None))
    default |= {name.rpartition("__")[2]: value for name, value in PLAIN.items() if "preprocessing" not in name}
    if fitted.given_labels is not None:
        n_samples = len(fitted.given_labels)
    hidden = " + ".join(map(str, given["hidden"])) if given["model"] == "mlp" else ""
    limit = "" if given["max_epochs"] == "auto" else f" of {given['max_epochs']}"
    penalties = [f"{name_of(penalty)}={weight:g}" for penalty, weight in (given["penalties"] or {}).items()]
    geometry, size = "", given["batch_size"]
    if fitted.geometry is not None:
        is_auto = isinstance(given["geometry"], str) and given["geometry"] == "auto"
        kernel = getattr(fitted.geometry, "name", "") if is_auto else name_of(given["geometry"])
        geometry = f"{kernel} {fitted.geometry.kind}".strip()
    # That of the training, whatever samples the page shows.
    if n_samples is None and size in (None, "auto"):
        size = size or "all samples"
    else:
        size = f"{resolve_batch_size(size, n_samples or 0):,}"
    # A transformer of the user's own has neither scaling nor components.
    values = {name: given.get(name, default[name]) for name in FURTHER_SETTINGS}
    further = {label: values[name] for name, label in FURTHER_SETTINGS.items() if values[name] != default[name]}
    described = {
        "Clusters, at most": str(given["n_clusters"]),
        "Recipe": fitted.recipe or "",
        "Objective": name_of(given["objective"]),
        "Geometry": geometry,
        "Model": name_of(given["model"]) + (f", {hidden} hidden units" if hidden else ""),
        "Epochs": f"{len(fitted.history['objective'])}{limit}",
        "Batch size": size,
        "Learning rate": f"{given['learning_rate']:g}",
        "Restarts": str(given["n_init"]),
        "Agreement of the restarts": "" if fitted.stability is None else f"{fitted.stability:.2f}",
        "Penalties": ", ".join(penalties),
        "Seed": str(given["random_state"]),
        **{label: name_of(value) for label, value in further.items()},
        "Objective reached": f"{fitted.objective:.6g}",
    }
    return {name: value for name, value in described.items() if value}


def principal_map(X: NDArray[Any]) -> tuple[NDArray[np.float64], tuple[str, str]]:
    """The first two principal components of X (n, d): points (n, 2), and what their axes are.

    The components are those of at most 20,000 samples. Of a single feature, the second coordinate is zero.
    """
    X = np.asarray(X)
    count = min(2, *X.shape)
    rows = X
    if len(X) > MOST_ROWS_OF_PCA:
        rows = X[np.random.default_rng(0).choice(len(X), MOST_ROWS_OF_PCA, replace=False)]
    components = PCA(count, random_state=0).fit(rows)
    points = np.zeros((len(X), 2))
    points[:, :count] = components.transform(X)
    shares = [*np.nan_to_num(components.explained_variance_ratio_), 0.0][:2]
    first, second = (f"principal component {k} ({share:.0%} of the variance)" for k, share in enumerate(shares, 1))
    return points, (first, second)


def as_pictures(images: NDArray[Any]) -> NDArray[np.uint8]:
    """(n, C, H, W) of any numbers as bytes (n, H, W), or (n, H, W, 3) of three channels."""
    if images.dtype != np.uint8:
        low, high = float(np.nanmin(images)), float(np.nanmax(images))
        images = ((np.nan_to_num(images) - low) * (255 / (high - low or 1.0))).astype(np.uint8)
    return images[:, 0] if images.shape[1] not in (3, 4) else np.moveaxis(images[:, :3], 1, 3)


def _as_text(classes: ArrayLike) -> NDArray[np.str_]:
    """Classes (n,) as text, "" where there is none."""
    known = np.asarray(classes)
    if known.dtype.kind not in "fO":
        return known.astype(str)
    # Only missing values differ from themselves; that of pandas does not say whether it does.
    present = [value is not None and str(value) != "<NA>" and value == value for value in known.tolist()]
    whole = known.dtype.kind == "f" and bool(np.all(known[present] == np.round(known[present])))
    # Whole numbers with gaps among them come as 1.0, 2.0, …
    return np.array(
        [str(int(value) if whole else value) if has else "" for value, has in zip(known.tolist(), present, strict=True)]
    )

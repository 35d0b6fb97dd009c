"""The record that a report is made from, ``Findings``; what its probabilities say; ``describe``, which makes one."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import PCA

from pollux.metrics import renyi_entropy

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering
    from pollux.fitted import Fitted

Array = NDArray[np.floating[Any]]
MOST_CLASSES = 1_000
# From this probability on a sample is never listed as uncertain.
CERTAIN = 0.99
# Typical, and uncertain, samples of a cluster that are shown.
SHOWN = 10
ROWS_AT_ONCE = 100_000
MOST_ROWS_OF_PCA = 20_000
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
    points : array of shape (n, 2)
        Where each sample lies on the map.
    axes : pair of str
        What the two axes of the map are.
    features : array of shape (n, d), optional
        The samples in their own units, NaN where a value is missing. Text columns come as one column of zeros and ones
        for each of their values.
    feature_names : sequence of str
        Names of the d features; ``column=value`` for the zeros and ones of text columns.
    shares : collection of str
        The names among them that are zeros and ones.
    images : array of shape (n, H, W) or (n, H, W, 3), uint8, optional
        The samples as pictures.
    row_names : sequence of str, optional
        A name for each sample; its number is used otherwise.
    classes : array of str of shape (n,), optional
        Known classes, at most 1,000 different ones; ``""`` where the class of a sample is not known. They were not used
        for training.
    history : mapping
        ``objective``, ``clusters`` and ``entropy`` of each epoch.
    settings : mapping of str
        How the model was trained, for people.
    notes : sequence of str
        What else a reader must know: columns that were left out, an interrupted training.
    command : str
        The command that repeats the run; empty where there is none.
    """

    title: str
    probabilities: Array
    points: Array
    axes: tuple[str, str]
    features: Array | None = None
    feature_names: Sequence[str] = ()
    shares: frozenset[str] = frozenset()
    images: NDArray[np.uint8] | None = None
    row_names: Sequence[str] | None = None
    classes: NDArray[np.str_] | None = None
    history: Mapping[str, Sequence[float]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()
    command: str = ""

    def __post_init__(self) -> None:
        n = len(self.probabilities)
        for name in ("points", "features", "images", "row_names", "classes"):
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
        return Summary.of(self.probabilities)

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

    def row_name(self, row: int) -> str:
        """A sample's name, or its number from 0."""
        return f"Sample {row}" if self.row_names is None else str(self.row_names[row])


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

    @staticmethod
    def of(probabilities: Array) -> Summary:
        """Read probabilities (n, K) once, some rows at a time."""
        n, n_allowed = probabilities.shape
        labels = np.asarray(probabilities.argmax(1), dtype=np.int64)
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
        )

    def members(self, cluster: int) -> NDArray[np.intp]:
        """The rows of one cluster."""
        return np.flatnonzero(self.labels == cluster)

    def most_typical(self, cluster: int, most: int = SHOWN) -> NDArray[np.intp]:
        """Rows of the highest probability, best first; of a small cluster half, if the others are uncertain."""
        members = self.members(cluster)
        certain = int((self.confidence[members] >= CERTAIN).sum())
        most = min(most, max(certain, -(-len(members) // 2)))
        return members[np.argsort(-self.confidence[members], kind="stable")[:most]]

    def least_certain(self, rows: NDArray[np.intp], most: int | None = SHOWN) -> NDArray[np.intp]:
        """Those of the rows whose next cluster is nearest in probability, worst first; certain ones are left out."""
        rows = rows[self.confidence[rows] < CERTAIN]
        margin = self.confidence[rows] - self.following_probability[rows]
        return rows[np.argsort(margin, kind="stable")[:most]]

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
    clustering: GeminiClustering,
    X: Any,
    *,
    title: str = "Clusters",
    feature_names: Sequence[str] | None = None,
    classes: ArrayLike | None = None,
    images: NDArray[np.uint8] | None = None,
    points: ArrayLike | None = None,
    axes: tuple[str, str] = ("first coordinate", "second coordinate"),
    row_names: Sequence[str] | None = None,
    settings: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    command: str = "",
) -> Findings:
    """What a fitted clustering says of X (n, d), for :func:`write_page`.

    Parameters
    ----------
    clustering : GeminiClustering
        A fitted one.
    X : array or DataFrame of shape (n, d), or images (n, C, H, W)
        The samples; of a free table, those that it was fitted on.
    title : str
        What was clustered.
    feature_names : sequence of str, optional
        Names of the d columns; those of a data frame are its own.
    classes : array of shape (n,), optional
        Known classes, to compare with; None, NaN or "" where the class of a sample is not known.
    images : array of shape (n, H, W) or (n, H, W, 3), uint8, optional
        The samples as pictures, where X holds their pixels as rows.
    points : array of shape (n, 2), optional
        Where the samples lie on the map; otherwise the principal components of what the model sees.
    axes : pair of str
        What the coordinates of ``points`` are.
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
    fitted = clustering.fitted_
    encoding, is_image = fitted.encoding, len(fitted.shape) == 3
    samples = np.asarray(X) if encoding is None else encoding.encode(X)
    if fitted.is_free:
        if len(samples) != len(fitted.labels):
            raise ValueError("A free table knows only the samples it was trained on, in their order: pass those.")
        probabilities = fitted.free_probabilities()
    else:
        probabilities = clustering.predict_proba(X) if encoding is None else fitted.probabilities(samples)
    if points is None:
        points, axes = principal_map(_as_seen(fitted, samples))
    if images is None and is_image:
        images = as_pictures(np.asarray(X))
    features, names = (None, []) if images is not None else _features(fitted, X, feature_names)
    return Findings(
        title=title,
        probabilities=probabilities,
        points=np.asarray(points, dtype=np.float64),
        axes=axes,
        features=features,
        feature_names=names,
        shares=frozenset() if encoding is None else encoding.shares,
        images=images,
        row_names=row_names,
        classes=None if classes is None else _as_text(classes),
        history=fitted.history,
        settings=describe_training(clustering) if settings is None else settings,
        notes=notes,
        command=command,
    )


def describe_training(clustering: GeminiClustering, n_samples: int | None = None) -> dict[str, str]:
    """How a fitted clustering was trained, in words: what is always of interest, and what is not the default.

    ``n_samples`` is the number of samples of the training, where the model does not know it: it was streamed, and
    loaded from a file.
    """
    # Imported late, because it brings torch, which figures do not need.
    from pollux.spec import flatten_params

    fitted, given, default = clustering.fitted_, flatten_params(clustering), flatten_params(type(clustering)())
    if fitted.given_labels is not None:
        n_samples = len(fitted.given_labels)
    hidden = " + ".join(map(str, given["hidden"])) if given["model"] == "mlp" else ""
    limit = "" if given["max_epochs"] == "auto" else f" of {given['max_epochs']}"
    penalties = [f"{_name(penalty)}={weight:g}" for penalty, weight in (given["penalties"] or {}).items()]
    described = {
        "Clusters, at most": str(given["n_clusters"]),
        "Objective": _name(given["objective"]),
        "Geometry": _geometry(fitted, given["geometry"]),
        "Model": _name(given["model"]) + (f", {hidden} hidden units" if hidden else ""),
        "Epochs": f"{len(fitted.history['objective'])}{limit}",
        "Batch size": _batch_size(given["batch_size"], n_samples),
        "Learning rate": f"{given['learning_rate']:g}",
        "Restarts": str(given["n_init"]),
        "Agreement of the restarts": "" if fitted.stability is None else f"{fitted.stability:.2f}",
        "Penalties": ", ".join(penalties),
        "Seed": str(given["random_state"]),
        **{label: _name(given[name]) for name, label in FURTHER_SETTINGS.items() if given[name] != default[name]},
        "Objective reached": f"{fitted.objective:.6g}",
    }
    return {name: value for name, value in described.items() if value}


def _name(value: Any) -> str:
    """A parameter for people: of functions and networks the name must do."""
    if isinstance(value, str | int | float | tuple | list) or value is None:
        return str(value)
    return str(getattr(value, "name", "") or getattr(value, "__name__", "") or type(value).__name__)


def _geometry(fitted: Fitted, geometry: Any) -> str:
    """The kernel or distance, also where it is "auto"; '' for an objective that needs neither."""
    if fitted.geometry is None:
        return ""
    name = getattr(fitted.geometry, "name", "") if isinstance(geometry, str) and geometry == "auto" else _name(geometry)
    return f"{name} {fitted.geometry.kind}".strip()


def _batch_size(batch_size: int | str | None, n_samples: int | None) -> str:
    """Samples of a step of the training, whatever samples the page shows."""
    from pollux.training.problem import resolve_batch_size

    if n_samples is None and batch_size in (None, "auto"):
        return "all samples" if batch_size is None else "auto"
    return f"{resolve_batch_size(batch_size, n_samples or 0):,}"


def _as_seen(fitted: Fitted, samples: NDArray[Any]) -> NDArray[Any]:
    """Samples (n, …) as the network sees them, (n, d): scaled, without gaps."""
    if fitted.scaling is not None:
        import torch

        samples = fitted.scaling(torch.as_tensor(np.asarray(samples, dtype=np.float64))).numpy()
    return samples.reshape(len(samples), -1)


def _features(fitted: Fitted, X: Any, names: Sequence[str] | None) -> tuple[NDArray[np.float64], list[str]]:
    """Samples (n, d) in their own units, and names of the d features; of true and false, true is enough."""
    if fitted.encoding is None:
        features = np.asarray(X, dtype=np.float64)
        found = [str(name) for name in getattr(X, "columns", range(features.shape[1]))]
    else:
        features, found = fitted.encoding.raw(X), fitted.encoding.feature_names
    if names is not None:
        return features, list(names)
    opposites = set() if fitted.encoding is None else _opposites(fitted.encoding.shares)
    kept = [index for index, name in enumerate(found) if name not in opposites]
    named = [f"column {name}" if name.isdigit() else name for name in found]
    return features[:, kept], [named[index] for index in kept]


def _opposites(shares: Collection[str]) -> set[str]:
    """'a=false' of each column that holds true and false alone."""
    columns = {name.removesuffix("=true") for name in shares if name.endswith("=true")}
    values = {column: {name for name in shares if name.startswith(f"{column}=")} for column in columns}
    return {f"{column}=false" for column, own in values.items() if own == {f"{column}=true", f"{column}=false"}}


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

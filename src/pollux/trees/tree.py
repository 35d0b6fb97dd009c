"""GeminiTree: an unsupervised decision tree, whose clusters are defined by a few splits of single columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import msgspec
import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from pollux.data.encoding import Encoding, Feature, TableEncoding
from pollux.data.samples import ArraySamples, fill_masked, learn_from_table, table_to_encode
from pollux.data.scaling import FittedScaling, prepared
from pollux.data.survey import Choices
from pollux.errors import InputError
from pollux.geometry import Geometry, Precomputed, check_affinity, resolve
from pollux.geometry.affinity import Features
from pollux.geometry.landmarks import features_of, low_rank
from pollux.geometry.pairwise import is_whole
from pollux.io import tensors as tensor_files
from pollux.io.parsing import Finite, Size, parse
from pollux.models import SoftTreeNetwork
from pollux.spec import Scaling, Transformer, as_group
from pollux.trees.growth import NO_CHILD, Growth, Limits, Nodes
from pollux.trees.splits import Array, Index

FORMAT, VERSION = "pollux-tree", "1"


class GeminiTree(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """An unsupervised decision tree: binary splits of columns that raise the objective of kernel k-means (KAURI).

    A split divides the samples of a leaf by whether a column is at most a threshold, and sends one or both parts to
    other clusters, new or old. The split that raises Σ σ(C²) / n(C) most is made first, where σ(C²) is the sum of the
    kernel over all pairs of a cluster of n(C) samples; this is the squared MMD between clusters and data.
    Thresholds are in the units of X. A value may be missing (NaN): it goes to the better side.

    Clusters are numbered by decreasing size.

    Parameters
    ----------
    n_clusters : int
        Most clusters to find.
    kernel : str, callable or Geometry
        The kernel between samples, as for :func:`pollux.geometry.resolve`: ``"linear"``, ``"rbf"``, ``"graph"``, …
        One without features of its own is used through 256 features of Nyström's method.
    preprocessing : None, str, Scaling or transformer
        Preprocessing of X for the kernel, as for :class:`GeminiClustering`. The splits see X itself. None: no scaling,
        and the mean of a column for missing values.
    max_leaves, max_depth : int or None
        Maximum number of leaves, and of splits from the root to a leaf; None: as many as raise the objective.
    min_samples_split, min_samples_leaf : int
        Minimum number of samples of a leaf to be split, and of either side.
    max_features : int, float, "sqrt", "log2" or None
        Columns, or share of them, that are drawn for each leaf; None: all.
    random_state : int, RandomState or None
        Seed of the columns that are drawn, and of landmarks.

    Attributes
    ----------
    labels_ : array of shape (n,)
        Cluster of each sample.
    n_clusters_ : int
        Clusters in use.
    objective_ : float
        Σ σ(C²) / n(C), in features of mean zero.
    nodes_ : Nodes
        The tree.
    feature_importances_ : array of shape (d,)
        By how much the splits of each column raised the objective, as shares.
    encoding_ : TableEncoding or None
        How the columns of a data frame that holds more than numbers are read.

    References
    ----------
    L. Ohl, P.-A. Mattei, M. Leclercq, A. Droit, F. Precioso, "Kernel KMeans clustering splits for end-to-end
    unsupervised decision trees", 2024.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pollux import GeminiTree
    >>> iris = load_iris(as_frame=True)
    >>> tree = GeminiTree(3, max_leaves=3).fit(iris.data)
    >>> print(tree.export_text())
    petal length (cm) <= 3.4
    |   cluster 1
    petal length (cm) > 3.4
    |   petal length (cm) <= 5.15
    |   |   cluster 0
    |   petal length (cm) > 5.15
    |   |   cluster 2
    """

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        kernel: str | Geometry | Callable[..., torch.Tensor] = "linear",
        preprocessing: Any = None,
        max_leaves: int | None = None,
        max_depth: int | None = None,
        min_samples_split: int = 2,
        min_samples_leaf: int = 1,
        max_features: int | float | str | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.preprocessing = preprocessing
        self.max_leaves = max_leaves
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, affinity: Any = None) -> Self:
        """Grow the tree.

        Parameters
        ----------
        X : array or DataFrame of shape (n, d)
            The samples; they may hold NaN. A data frame may hold text, categories and dates, which are read as
            :class:`GeminiClustering` reads them: splits ask whether a row has a value, and of dates for years, seasons
            and days.
        y : ignored
        sample_weight : array of shape (n,), optional
            Weights of the samples; one of weight 2 counts as two, one of weight 0 is only predicted.
        affinity : array of shape (n, n) or Features, optional
            The kernel of the samples, if it is known already.
        """
        limits, fewest = self._limits(), max(2, self.n_clusters)
        table, encoding = table_to_encode(X), None
        if table is not None:
            if table.num_rows < fewest:
                raise ValueError(f"Found {table.num_rows} sample(s) while a minimum of {fewest} is required.")
            scaling = getattr(as_group("preprocessing", self.preprocessing), "scaling", "none")
            encoding = learn_from_table(table, sample_weight, Choices(missing="mean", scaling=scaling))
            self.feature_names_in_ = np.array(table.column_names, dtype=object)
            self.n_features_in_ = len(table.column_names)
        else:
            X = validate_data(
                self, fill_masked(X), dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=fewest
            )
        self.encoding_ = encoding
        X, seen = self._read(X if table is None else table)
        limits = replace(limits, max_features=self._count_features(X.shape[1]))
        seed = check_random_state(0 if self.random_state is None else self.random_state).randint(2**31)
        selected, weight, features = self._centred_features(seen, sample_weight, affinity, seed)
        growth = Growth(X[selected], features, weight, limits, np.random.default_rng(seed))
        nodes = growth.grow()
        order = np.argsort(-growth.sizes, kind="stable")
        self.nodes_ = replace(nodes, cluster=np.argsort(order)[nodes.cluster])
        self.n_clusters_ = int((growth.sizes > 0).sum())
        self.labels_ = self.nodes_.cluster[self.nodes_.apply(X)]
        used = growth.sizes > 0
        self.objective_ = float((growth.squares[used] / growth.sizes[used]).sum())
        return self

    def _limits(self) -> Limits:
        """Validate the limits."""
        counts = {"n_clusters": 1, "max_leaves": 1, "max_depth": 1, "min_samples_split": 2, "min_samples_leaf": 1}
        for name, least in counts.items():
            value = getattr(self, name)
            if value is None and name.startswith("max"):
                continue
            if not is_whole(value) or value < least:
                raise ValueError(f"{name} is a whole number, at least {least}; not {value!r}.")
        leaves = self.max_leaves
        if self.max_depth is not None:
            leaves = min(2 ** min(self.max_depth, 62), leaves or 2**62)
        if leaves is not None and leaves < self.n_clusters:
            raise ValueError(
                f"{self.n_clusters} clusters need as many leaves, and max_leaves={self.max_leaves}, "
                f"max_depth={self.max_depth} allow {leaves}: allow more, or ask for fewer clusters."
            )
        return Limits(**{name: getattr(self, name) for name in counts})

    def _count_features(self, d: int) -> int | None:
        given: Any = self.max_features
        named = {"sqrt": math.sqrt(d), "log2": math.log2(d)}
        if given is None:
            return None
        if isinstance(given, str) and given in named:
            return max(1, int(named[given]))
        if is_whole(given) and given >= 1:
            return min(d, int(given))
        if isinstance(given, float) and 0 < given <= 1:
            return max(1, int(given * d))
        raise ValueError(f"max_features is a number or a share of columns, 'sqrt', 'log2' or None; not {given!r}.")

    def _centred_features(
        self, X: Array, sample_weight: Any, affinity: Any, seed: int
    ) -> tuple[NDArray[np.bool_], Array, Array]:
        """The samples of positive weight (n,), their weights (m,), and their features (m, r) of mean zero."""
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if not weight.any():
            raise ValueError("Sample weights must contain at least one non-zero number: all are zero.")
        selected = weight > 0
        features = self._features(X, weight, affinity, seed)
        weight = weight[selected]
        features -= weight @ features / weight.sum()
        return selected, weight, features

    def _features(self, X: Array, weight: Array, affinity: Any, seed: int) -> Array:
        """Features (m, r) whose products are the kernel, for the m samples of positive weight."""
        selected = weight > 0
        if affinity is not None or (isinstance(self.kernel, str) and self.kernel == "precomputed"):
            given = check_affinity(affinity, "kernel")
            if len(given) != len(X):
                raise ValueError(f"The affinity is of {len(given)} samples, but X has {len(X)} rows.")
            if isinstance(given, Features):
                return given.values.double().cpu().numpy()[selected]
            matrix = given.double().cpu().numpy()
            matrix = matrix if selected.all() else matrix[np.ix_(selected, selected)]
            return low_rank(lambda index: matrix[:, index], matrix.diagonal(), len(matrix), seed)
        geometry = resolve(self.kernel, "kernel").for_clusters(self.n_clusters)
        if isinstance(geometry, Precomputed):
            return self._features(X, weight, geometry.affinity, seed)
        X, weight = X[selected], weight[selected]
        everything = np.ones(len(X), dtype=bool)
        samples = ArraySamples(X, everything, torch.from_numpy(weight), encoding=self.encoding_)
        preprocessing = as_group("preprocessing", self.preprocessing)
        is_scaling, has_gaps = isinstance(preprocessing, Scaling), bool(np.isnan(X).any())
        if not is_scaling and not hasattr(preprocessing, "transform"):
            raise TypeError(f"preprocessing is None, a name, Scaling(…) or a transformer, not {preprocessing!r}.")
        if has_gaps and not is_scaling:
            # Not every transformer fills missing values, which the kernel does not allow.
            filling = FittedScaling.fit(X, "none", sample_weight=samples.sample_weight)
            X = prepared(X, filling, torch.float64, "cpu").flat() + filling.centre.numpy()
            samples = replace(samples, X=X)
        scaling = (preprocessing if is_scaling else Transformer(preprocessing)).fit(samples)
        if scaling is None and has_gaps:
            scaling = FittedScaling.fit(X, "none", sample_weight=samples.sample_weight)
        return features_of(geometry, prepared(X, scaling, torch.float64, "cpu"), seed=seed)

    def _validate(self, X: Any) -> tuple[Array, Array]:
        """Validate samples such as those of the fit; returns what is split (n, p), and what the kernel sees."""
        check_is_fitted(self)
        if self.encoding_ is None:
            X = validate_data(self, fill_masked(X), reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        return self._read(X)

    def _read(self, X: Any) -> tuple[Array, Array]:
        if self.encoding_ is None:
            return X, X
        return self.encoding_.readable(X)[0], self.encoding_.encode(X).astype(np.float64)

    @property
    def _split_features(self) -> list[Feature]:
        """The features that are split: a column of numbers, or whether another column has a value."""
        names = getattr(self, "feature_names_in_", None)
        if self.encoding_ is None:
            return list(map(Feature, map(str, range(self.n_features_in_) if names is None else names)))
        return [feature for column in self.encoding_.columns for feature in column.readable_features]

    def predict(self, X: Any) -> Index:
        """The cluster of each sample, (n,)."""
        leaves = self.apply(X)
        return self.nodes_.cluster[leaves]

    def apply(self, X: Any) -> Index:
        """The leaf of each sample, (n,), as its index among the nodes."""
        values, _ = self._validate(X)
        return self.nodes_.apply(values)

    def score(self, X: Any, y: Any = None, *, sample_weight: Any = None, affinity: Any = None) -> float:
        """The objective of the clusters of X, in features of mean zero; higher is better."""
        X, seen = self._validate(X)
        selected, weight, features = self._centred_features(seen, sample_weight, affinity, 0)
        members = (self.nodes_.cluster[self.nodes_.apply(X[selected])] == np.arange(self.n_clusters_)[:, None]) * weight
        size = members.sum(1)
        sums = members @ features
        return float((np.einsum("ij,ij->i", sums, sums)[size > 0] / size[size > 0]).sum())

    @property
    def feature_importances_(self) -> Array:
        """By how much the splits of each column raised the objective, as shares (d,)."""
        check_is_fitted(self)
        column = self.nodes_.feature
        if self.encoding_ is not None:
            place = {name: at for at, name in enumerate(self.feature_names_in_)}
            column = np.array([place[feature.source] for feature in self._split_features])[column]
        gains = np.bincount(column, self.nodes_.gain, minlength=self.n_features_in_)
        shares: Array = gains / (gains.sum() or 1.0)
        return shares

    def rules(self, feature_names: Sequence[str] | None = None) -> dict[int, list[str]]:
        """The rules of each cluster: for each of its leaves, by decreasing weight, the conditions that lead to it.

        Examples
        --------
        >>> import numpy as np
        >>> GeminiTree(2).fit(np.array([[1.0], [2.0], [9.0]])).rules(["age"])
        {0: ['age <= 5.5'], 1: ['age > 5.5']}
        """
        check_is_fitted(self)
        names, nodes = self._names(feature_names), self.nodes_
        found: dict[int, list[str]] = {cluster: [] for cluster in range(self.n_clusters_)}
        paths = dict(self.paths())
        for leaf in sorted(paths, key=lambda leaf: (-nodes.weight[leaf], leaf)):
            found[int(nodes.cluster[leaf])].append(describe_path(nodes, paths[leaf], names))
        return found

    def paths(self) -> Iterator[tuple[int, list[tuple[int, bool]]]]:
        """Each leaf, from left to right, and the nodes above it with whether their left child leads to it."""
        stack: list[tuple[int, list[tuple[int, bool]]]] = [(0, [])]
        while stack:
            node, path = stack.pop()
            left, right = int(self.nodes_.left[node]), int(self.nodes_.right[node])
            if left == NO_CHILD:
                yield node, path
            else:
                stack += [(right, [*path, (node, False)]), (left, [*path, (node, True)])]

    def _names(self, feature_names: Sequence[str] | None) -> list[str]:
        if self.encoding_ is not None:
            if feature_names is not None:
                raise ValueError("The tree was fitted to a data frame with text, whose columns have names already.")
            return [feature.name for feature in self._split_features]
        given = getattr(self, "feature_names_in_", None) if feature_names is None else feature_names
        names = list(map(str, [f"x{column}" for column in range(self.n_features_in_)] if given is None else given))
        if len(names) != self.n_features_in_:
            raise ValueError(f"There are {self.n_features_in_} columns, and {len(names)} feature_names.")
        return names

    def export_text(self, feature_names: Sequence[str] | None = None) -> str:
        """The tree as text, a line for each side of a split and for each leaf."""
        check_is_fitted(self)
        names, nodes, lines = self._names(feature_names), self.nodes_, []
        stack: list[tuple[int, int, str]] = [(0, 0, "")]
        while stack:
            node, depth, line = stack.pop()
            lines += [line] if line else []
            if nodes.left[node] == NO_CHILD:
                lines.append("|   " * depth + f"cluster {nodes.cluster[node]}")
                continue
            sides = [(int(nodes.right[node]), False), (int(nodes.left[node]), True)]
            stack += [(to, depth + 1, "|   " * depth + describe_side(nodes, node, left, names)) for to, left in sides]
        return "\n".join(lines)

    def plot_tree(self, feature_names: Sequence[str] | None = None, ax: Any = None) -> Any:
        """Draw the tree with matplotlib; returns the axes.

        Parameters
        ----------
        feature_names : sequence of str, optional
            Names of the columns, those of the data frame by default.
        ax : Axes, optional
            The axes to draw on.
        """
        check_is_fitted(self)
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError("Drawing a tree needs matplotlib: pip install matplotlib.") from error
        names, nodes, depth = self._names(feature_names), self.nodes_, self.nodes_.depth
        leaves = [leaf for leaf, _ in self.paths()]
        if ax is None:
            _, ax = plt.subplots(figsize=(max(4.0, 1.6 * len(leaves)), 1.4 * (depth.max() + 1)))
        across = np.zeros(len(nodes))
        across[leaves] = np.arange(len(leaves))
        for node in range(len(nodes) - 1, -1, -1):
            if nodes.left[node] != NO_CHILD:
                across[node] = (across[nodes.left[node]] + across[nodes.right[node]]) / 2
        colours = plt.get_cmap("tab10")
        for node in range(len(nodes)):
            is_leaf = nodes.left[node] == NO_CHILD
            for child in () if is_leaf else (nodes.left[node], nodes.right[node]):
                ax.plot(across[[node, child]], -depth[[node, child]], color="0.6", zorder=1)
            text = f"cluster {nodes.cluster[node]}" if is_leaf else describe_side(nodes, node, True, names)
            face = colours(int(nodes.cluster[node]) % 10) if is_leaf else "white"
            box = {"boxstyle": "round", "facecolor": face, "alpha": 0.9, "edgecolor": "0.6"}
            label = f"{text}\n{nodes.weight[node]:,.4g} samples"
            ax.text(across[node], -depth[node], label, ha="center", va="center", fontsize=8, bbox=box, zorder=2)
        ax.set_xlim(-0.7, len(leaves) - 0.3)
        ax.set_ylim(-depth.max() - 0.5, 0.5)
        ax.set_axis_off()
        return ax

    def save(self, path: str | Path) -> None:
        """Write the tree to one file, for :func:`pollux.load`."""
        check_is_fitted(self)
        if hasattr(self.preprocessing, "transform"):
            raise InputError(
                "A model file cannot hold a transformer of scikit-learn: use Scaling(…), or transform what you pass as "
                "affinity=… yourself."
            )
        plain = _plain(self.get_params(deep=False))
        if isinstance(self.preprocessing, Scaling):
            plain |= {_SCALING + name: value for name, value in _plain(self.preprocessing.get_params()).items()}
        description = _Description(
            n_clusters=int(self.n_clusters),
            n_clusters_=self.n_clusters_,
            n_features=self.n_features_in_,
            objective=self.objective_,
            parameters={name: value for name, value in plain.items() if name != "n_clusters"},
            feature_names=tuple(map(str, getattr(self, "feature_names_in_", ()))),
            encoding=None if self.encoding_ is None else self.encoding_.as_json(),
        )
        tensors = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in vars(self.nodes_).items()}
        tensors["labels"] = torch.from_numpy(self.labels_)
        tensor_files.write(path, FORMAT, VERSION, tensors, msgspec.to_builtins(description))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a tree that :meth:`save` wrote, as :func:`pollux.load` does too; nothing in the file is executed."""
        path = Path(path)
        damaged = f"{path} is not a whole model file"
        tensors, data = tensor_files.read(path, FORMAT, [VERSION], "model file")
        description = parse(data, _Description, damaged)
        tree = cls(description.n_clusters)
        try:
            parameters = description.parameters
            scaling = {name: value for name, value in parameters.items() if name.startswith(_SCALING)}
            if scaling:
                tree.preprocessing = Scaling().set_params(
                    **{name.removeprefix(_SCALING): value for name, value in scaling.items()}
                )
            tree.set_params(**{name: value for name, value in parameters.items() if name not in scaling})
            tree._limits()
            labels = tensors.pop("labels").numpy().copy()
            nodes = Nodes(**{name: tensor.numpy().copy() for name, tensor in tensors.items()})
            tree.n_features_in_, tree.encoding_ = description.n_features, None
            if description.feature_names:
                tree.feature_names_in_ = np.array(description.feature_names, dtype=object)
            if description.encoding is not None:
                encoding = Encoding.from_json(description.encoding, damaged)
                if not isinstance(encoding, TableEncoding) or not set(encoding.names) <= set(description.feature_names):
                    raise ValueError("its columns are those of another table")
                tree.encoding_ = encoding
            _check_nodes(nodes, labels, description, len(tree._split_features))
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise InputError(f"{damaged}: {str(error).removesuffix('.')}.") from error
        tree.nodes_, tree.labels_, tree.n_clusters_ = nodes, labels, description.n_clusters_
        tree.objective_ = description.objective
        return tree

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


_SCALING = "preprocessing__"


def _plain(parameters: Mapping[str, Any]) -> dict[str, int | float | str | None]:
    """The parameters that are numbers or text."""
    values = {name: value.item() if isinstance(value, np.generic) else value for name, value in parameters.items()}
    return {name: value for name, value in values.items() if isinstance(value, int | float | str)}


class _Description(Struct):
    """The metadata in a file of a tree, beside its tensors; a kernel that is a function is left out."""

    n_clusters: Size
    n_clusters_: Size
    n_features: Size
    objective: Finite
    parameters: dict[str, int | float | str | None]
    feature_names: tuple[str, ...] = ()
    encoding: dict[str, Any] | None = None


_KINDS = {"feature": "i", "threshold": "f", "missing_left": "b", "left": "i", "right": "i", "cluster": "i"}


def _check_nodes(nodes: Nodes, labels: NDArray[np.int64], description: _Description, p: int) -> None:
    """Raise a ValueError if nodes are not a tree of the description, which splits p features."""
    count = len(nodes.feature)
    for name, kind in {**_KINDS, "weight": "f", "gain": "f"}.items():
        values = getattr(nodes, name)
        if values.ndim != 1 or len(values) != count or values.dtype.kind != kind:
            raise ValueError(f"the {name} of its nodes are of another number or kind")
    inner = nodes.left != NO_CHILD
    children = np.concatenate([nodes.left[inner], nodes.right[inner]])
    parents = np.tile(np.flatnonzero(inner), 2)
    if (nodes.right[~inner] != NO_CHILD).any() or sorted(children.tolist()) != list(range(1, count)):
        raise ValueError("its nodes are not a tree")
    if (children <= parents).any():
        raise ValueError("a child is before its parent")
    if labels.ndim != 1 or labels.dtype.kind != "i":
        raise ValueError("its labels are not whole numbers of rows")
    # A cluster that lost all of its samples to others occurs only at inner nodes.
    known = [
        (nodes.cluster, description.n_clusters),
        (np.append(nodes.cluster[~inner], labels), description.n_clusters_),
    ]
    is_outside = any(clusters.min() < 0 or clusters.max() >= most for clusters, most in known)
    if is_outside or description.n_clusters_ > description.n_clusters:
        raise ValueError("there are more clusters than clusters")
    if nodes.feature.min() < 0 or nodes.feature.max() >= p or np.isnan(nodes.threshold).any():
        raise ValueError("a split is of no column, or at no number")
    if description.feature_names and len(description.feature_names) != description.n_features:
        raise ValueError("there are other names than columns")


def describe_side(nodes: Nodes, node: int, is_left: bool, names: Sequence[str]) -> str:
    """The condition of the left or the right side of a split, in words."""
    name, threshold = names[int(nodes.feature[node])], float(nodes.threshold[node])
    column, _, value = name.rpartition("=")
    if math.isinf(threshold):
        # A split between missing and present values.
        return f"{column or name} is {'missing' if is_left == bool(nodes.missing_left[node]) else 'there'}"
    if column and threshold == 0.5:
        return f"{column} is {'not ' if is_left else ''}{value}"
    return f"{name} {'<=' if is_left else '>'} {threshold:.6g}"


def describe_path(nodes: Nodes, path: Sequence[tuple[int, bool]], names: Sequence[str]) -> str:
    """The conditions of a path in words, without those that a later one implies."""
    last: dict[tuple[int, bool, bool], str] = {}
    for node, is_left in path:
        # Conditions on presence and on size are kept apart.
        key = (int(nodes.feature[node]), is_left, math.isinf(nodes.threshold[node]))
        last.pop(key, None)
        last[key] = describe_side(nodes, node, is_left, names)
    return " and ".join(last.values()) or "all samples"


def hard_rules(clustering: Any, feature_names: Sequence[str] | None = None) -> dict[int, list[str]]:
    """The rules of a clustering by a soft tree at temperature zero: for each cluster in use its boxes, in units of X.

    Boxes beyond the range of the samples are left out.

    Parameters
    ----------
    clustering : GeminiClustering
        Fitted, with ``model="soft_tree"`` or :class:`pollux.SoftTree`, to numbers.
    feature_names : sequence of str, optional
        Names of the columns; those of the data frame by default.

    Examples
    --------
    >>> import numpy as np
    >>> from pollux import GeminiClustering
    >>> from pollux.trees import hard_rules
    >>> X = np.r_[np.random.default_rng(0).normal(0, 1, (50, 1)), np.random.default_rng(1).normal(9, 1, (50, 1))]
    >>> rules = hard_rules(GeminiClustering(2, model="soft_tree", random_state=0).fit(X), ["age"])
    >>> sorted(rule[:6] for own in rules.values() for rule in own)
    ['age <=', 'age > ']
    """
    check_is_fitted(clustering)
    fitted = clustering.fitted_
    module, scaling = fitted.module, fitted.scaling
    if not isinstance(module, SoftTreeNetwork):
        raise InputError("hard_rules are those of a soft tree: use model='soft_tree', or pollux.explain for any model.")
    if fitted.encoding is not None or not (
        scaling is None or (isinstance(scaling, FittedScaling) and scaling.axes is None)
    ):
        raise InputError(
            "The soft tree cuts what columns were made into, not columns: pollux.explain tells its clusters."
        )
    d = fitted.shape[0]
    given = (fitted.feature_names or [f"x{at}" for at in range(d)]) if feature_names is None else feature_names
    if len(given) != d:
        raise ValueError(f"There are {d} columns, and {len(given)} feature_names.")
    centre, scale = torch.zeros(d), torch.ones(d)
    if scaling is not None:
        centre, scale = scaling.centre.cpu(), scaling.scale.cpu().expand(d)
    cluster_of = torch.argsort(fitted.order.cpu()).tolist()
    # Known labels keep their numbers, so those in use may have holes; labels of streamed rows are not stored.
    labels = np.arange(len(cluster_of)) if fitted.given_labels is None else fitted.given_labels
    found: dict[int, list[str]] = {int(cluster): [] for cluster in np.unique(labels)}
    least, most = ([-math.inf] * d, [math.inf] * d) if fitted.range is None else fitted.range.tolist()
    for output, box in module.boxes():
        parts = []
        for feature, ends in zip(module.features, box, strict=True):
            low, high = (float(end * scale[feature] + centre[feature]) for end in ends)
            name, is_bounded_below, is_bounded_above = given[feature], low >= least[feature], high < most[feature]
            if low >= most[feature] or high < least[feature]:
                # No sample of the fit lies in this box.
                break
            if is_bounded_below and is_bounded_above:
                parts.append(f"{low:.4g} < {name} <= {high:.4g}")
            elif is_bounded_below or is_bounded_above:
                parts.append(f"{name} > {low:.4g}" if is_bounded_below else f"{name} <= {high:.4g}")
        else:
            if cluster_of[output] in found:
                found[cluster_of[output]].append(" and ".join(parts) or "all rows")
    return found if fitted.given_labels is not None else {cluster: own for cluster, own in found.items() if own}

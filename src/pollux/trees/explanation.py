"""Rules for any clustering: conditions for each cluster, in the units of the data, with their estimated accuracy."""

from __future__ import annotations

import html
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier

from pollux.data.arrow import as_arrow, as_numbers, kind_of, pyarrow_library
from pollux.data.encoding import Encoding, Feature, TableEncoding, readable_names
from pollux.data.sources import InMemory
from pollux.data.survey import Choices, learn_encoding
from pollux.errors import InputError, advised, option
from pollux.trees.contrasts import (
    Contrasts,
    clusters_of_few_rows,
    compare_clusters,
    describe_clusters,
    mark_shares,
    move_together,
    of_sources,
    opposites,
    restated_column,
)
from pollux.trees.words import as_date

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Features = tuple[Feature, ...]

MOST_ROWS, _MOST_CONDITIONS = 5_000, 3
# Tables have a row for each number up to the largest label.
_LARGEST_LABEL = 1_000_000
# Maximum number of columns for the tree, and for each rule: those that differ most between clusters are used.
_OF_TREE, _OF_RULES = 1_024, 64
# A further condition must raise the F1 score of a rule by this much.
_WORTH = 0.02
# Rules with a lower F1 score do not identify a cluster.
_ACCURATE = 0.7
# Bound on values: trees of scikit-learn use float32, and squares of columns are summed.
_LARGEST = 1e37
# From this agreement on, values of a column name a cluster, of which so many are listed.
_RESTATED, _MOST_SHOWN = 0.95, 3
# Differences of means, in standard deviations, below which a column is not mentioned.
_LEAST_CONTRAST = 0.2
# Conditions that a larger share of the rows of other clusters satisfies are not used in names.
_MOST_OTHERS = 0.8
# Numbered columns of one name, at least so many with at least this Cronbach's alpha, are treated as one family.
_NUMBERED = re.compile(r"(.*[^\W\d].*?)\d+(\D*)")
_FEWEST_ALIKE, _ALIKE = 3, 0.8
# Statements that hold for a smaller share of a cluster are qualified by "mostly".
_USUAL = 0.8


class Condition(NamedTuple):
    """``low`` < column ≤ ``high``, or ``missing``; for zeros and ones: whether the row has the value in the name."""

    column: int
    low: float = -math.inf
    high: float = math.inf
    missing: bool = False

    @property
    def is_bounded(self) -> bool:
        """Whether the condition bounds values, and is not only about missing ones."""
        return self.low < math.inf and (self.low > -math.inf or self.high < math.inf)


@dataclass(frozen=True)
class Rule:
    """The description of a cluster by conditions.

    Parameters
    ----------
    cluster, size : int
        The number of the cluster, and of its rows.
    name : str
        A short name, such as "high petal length, low sepal width".
    conditions : tuple of str
        Conditions in the units of the data; all of them hold.
    precision, coverage : float
        The share of rows satisfying them that is in the cluster, and the share of the cluster that satisfies them. Both
        are cross-validated: each row is judged by a rule like this one that was made without it.
    sentence : str
        The rule as a sentence, with both shares of the rule itself and cross-validated; or the statement that no short
        rule identifies the cluster.
    description : str
        The columns in which it differs most from all others, and from the cluster nearest to it.
    bounds : tuple of (str, float, float, bool)
        The conditions as numbers: column, low and high, low < value ≤ high, and whether a missing value satisfies it.
        Low and high may be infinite; if low is ∞, only a missing value satisfies it.
    """

    cluster: int
    size: int
    name: str
    conditions: tuple[str, ...]
    precision: float
    coverage: float
    sentence: str
    description: str = ""
    bounds: tuple[tuple[str, float, float, bool], ...] = ()


class Branch(NamedTuple):
    """A node of a tree: the condition that leads to it, its rows, the most common cluster and its share of the rows."""

    condition: str
    rows: int
    cluster: int
    share: float
    branches: tuple[Branch, ...]


@dataclass(frozen=True)
class Explanation:
    """Rules for all clusters, and a shallow tree that approximates the clustering.

    Parameters
    ----------
    rules : tuple of Rule
        One for each cluster.
    fidelity : float
        The share of held-out rows whose cluster the tree predicts.
    importances : dict
        The contribution of each column to the tree, as shares, the largest first.
    tree : DecisionTreeClassifier
        A tree of at most twice as many leaves as clusters.
    feature_names : tuple of str
        The columns that the tree uses.
    restates : str
        The column whose values or ranges the clusters restate; "" if there is none.
    branches : tuple of Branch
        The two halves of the tree, in words.
    """

    rules: tuple[Rule, ...]
    fidelity: float
    importances: dict[str, float]
    tree: DecisionTreeClassifier = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)
    restates: str = ""
    branches: tuple[Branch, ...] = field(repr=False, default=())

    @property
    def names(self) -> dict[int, str]:
        """The short name of each cluster."""
        return {rule.cluster: rule.name for rule in self.rules}

    def export_text(self) -> str:
        """The tree as text."""

        def lines(branches: tuple[Branch, ...], depth: int) -> Iterator[str]:
            for branch in branches:
                yield "|   " * depth + f"|--- {branch.condition}"
                if branch.branches:
                    yield from lines(branch.branches, depth + 1)
                else:
                    yield "|   " * (depth + 1) + f"|--- cluster {branch.cluster}"

        whole = [f"|--- cluster {self.rules[0].cluster}"] if len(self.rules) == 1 else ["|--- no column tells"]
        return "\n".join(lines(self.branches, 0) if self.branches else whole)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        rules: list[dict[str, Any]] = [{**vars(rule), "conditions": list(rule.conditions)} for rule in self.rules]
        for rule in rules:
            # JSON has no infinity, and the conditions contain the same.
            del rule["bounds"]
        of_all = {"fidelity": self.fidelity, "importances": self.importances, "restates": self.restates}
        return {"rules": rules, **of_all, "tree": self.export_text()}

    def __str__(self) -> str:
        lines = []
        for rule in self.rules:
            rows = "1 row" if rule.size == 1 else f"{rule.size:,} rows"
            lines += [f"cluster {rule.cluster} ({rows}): {rule.name}", f"    {rule.sentence}"]
            lines += [f"    {rule.description}"] if len(self.rules) > 1 else []
        leading = ", ".join(f"{name} {share:.0%}" for name, share in list(self.importances.items())[:5] if share > 0)
        leaves = int(self.tree.get_n_leaves())
        if leaves > 1 or self.fidelity < 1:
            counted = f"{leaves} leaves" if leaves > 1 else "1 leaf"
            lines.append(f"A tree of {counted} gives {self.fidelity:.0%} of the rows their cluster.")
        lines.append(f"Columns that matter: {leading}." if leading else "No column matters.")
        return "\n".join(lines + ([say_restated(self.restates)] if self.restates else []))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = (
            "<tr><th>cluster</th><th>rows</th><th>name</th><th>conditions</th><th>precision</th><th>coverage</th></tr>"
        )
        rows = "".join(
            f"<tr><td>{rule.cluster}</td><td>{rule.size:,}</td><td>{html.escape(rule.name)}</td>"
            f"<td>{html.escape(' and '.join(rule.conditions))}</td><td>{rule.precision:.0%}</td>"
            f"<td>{rule.coverage:.0%}</td></tr>"
            for rule in self.rules
        )
        return f"<table>{head}{rows}</table><p>fidelity of a shallow tree: {self.fidelity:.0%}</p>"


def explain(clustering: Any, X: Any, feature_names: Sequence[str] | None = None) -> Explanation:
    """Find rules that distinguish the clusters of X, in the units of X.

    Parameters
    ----------
    clustering : fitted clustering, Pipeline, or array of shape (n,)
        A clustering of Pollux or scikit-learn, a pipeline that ends in one, or the labels of the rows; −1: no cluster.
    X : array or DataFrame of shape (n, d)
        The rows as the clustering takes them; values may be missing. A data frame that the clustering reads by an
        encoding is explained in its columns; else text is read as one column for each value, and dates as days.
    feature_names : sequence of str, optional
        Names of the columns; those of the data frame by default.

    Examples
    --------
    >>> from sklearn.cluster import KMeans
    >>> from sklearn.datasets import load_iris
    >>> from pollux import explain
    >>> iris = load_iris(as_frame=True).data
    >>> explain(KMeans(3, random_state=0, n_init=10).fit(iris), iris).rules[1].name
    'low petal width (cm)'
    """
    X, values, features = read_columns(clustering, X, feature_names)
    return explain_labels(_labels_of(clustering, X, len(values)), values, features, named_clusters(clustering))


def named_clusters(clustering: Any) -> dict[int, str]:
    """The names that clusters were given in the fit, if any."""
    return dict(enumerate(getattr(getattr(_last_step(clustering), "fitted_", None), "cluster_names", ())))


def _last_step(clustering: Any) -> Any:
    """The clustering itself; of a pipeline, its last step."""
    return clustering[-1] if isinstance(clustering, Pipeline) else clustering


@clusters_of_few_rows()
def explain_labels(
    labels: Labels,
    values: Array,
    features: Features,
    given: Mapping[int, str] | None = None,
    contrasts: Contrasts | None = None,
    sizes: Mapping[int, int] | None = None,
) -> Explanation:
    """Find rules that distinguish clusters (n,) of rows of values (n, p); clusters may already have names.

    If the rows are a sample, ``sizes`` are the sizes of clusters in the whole data.
    """
    n = len(values)
    if n < 2 or not values.shape[1]:
        raise InputError("There is nothing to explain: X needs two rows and a column.")
    clusters = np.unique(labels[labels >= 0])
    if not len(clusters):
        raise InputError("There is nothing to explain: no row is in a cluster.")
    features = mark_shares(values, features)
    contrasts = _contrasts(values, labels) if contrasts is None else contrasts
    texts = describe_clusters(contrasts, values, features, clusters.tolist()) if len(clusters) > 1 else {}
    counts = {int(cluster): int((labels == cluster).sum()) for cluster in clusters}
    sizes = counts | {k: size for k, size in (sizes or {}).items() if k in counts}
    every = list(dict.fromkeys(feature.source for feature in features))
    columns, labels = _drawn(values, labels)
    restates = restated_column(columns, labels, features)
    # A small cluster may have no row in the sample.
    drawn = np.unique(labels[labels >= 0])
    kept = _columns_apart(columns, labels, drawn, _OF_TREE)
    columns, features = columns[:, kept], tuple(features[at] for at in kept)
    kept = _columns_apart(columns, labels, drawn, _OF_RULES)
    some, some_features = columns[:, kept], tuple(features[at] for at in kept)
    # Cross-validation: each row is predicted from the others.
    predicted = np.full(len(labels), -2)
    held = np.zeros((len(clusters), len(labels)), dtype=bool)
    # With few rows, as many folds as possible.
    folds = min(len(labels), max(5, min(10, 4 * MOST_ROWS // (len(labels) * len(clusters)))))
    for train, test in KFold(folds, shuffle=True, random_state=0).split(columns):
        predicted[test] = _surrogate(columns[train], labels[train], len(clusters)).predict(columns[test])
        for row, cluster in enumerate(clusters):
            inside = labels[train] == cluster
            held[row, test] = inside.any() and _holds(_find_rule(some[train], inside), some[test])
    tree = _surrogate(columns, labels, len(clusters))
    names = name_clusters(labels, columns, features) | dict(given or {})
    rules: list[Rule] = []
    for row, cluster in enumerate(clusters.tolist()):
        inside = labels == cluster
        found = _find_rule(some, inside)
        both = int((held[row] & inside).sum())
        precision, coverage = both / max(1, held[row].sum()), both / max(1, inside.sum())
        conditions = tuple(_in_words(condition, some_features) for condition in found) or ("all rows",)
        # Of the rule itself, which is made from these rows, besides the estimates.
        holds = _holds(found, some)
        own = int((holds & inside).sum())
        said = (
            f"{' and '.join(conditions)}: {own / max(1, holds.sum()):.0%} of such rows are in the cluster, and "
            f"{own / max(1, inside.sum()):.0%} of it are such rows (cross-validated: {precision:.0%} and "
            f"{coverage:.0%})."
        )
        if not found or _f1(held[row], inside) < _ACCURATE:
            said = f"No short rule tells this cluster.{f' The best is {said}' if found else ''}"
        if counts[cluster] == 1:
            said = f"{' and '.join(conditions)}: how far that holds of others, one row does not tell."
        said = "All rows are in this cluster." if counts[cluster] == n else said
        bounds = tuple((some_features[each.column].name, *each[1:]) for each in found)
        name = names.get(cluster, "few rows")
        rules.append(
            Rule(cluster, sizes[cluster], name, conditions, precision, coverage, said, texts.get(cluster, ""), bounds)
        )
    shares = dict.fromkeys(every, 0.0)
    for feature, share in zip(features, tree.feature_importances_, strict=True):
        shares[feature.source] += float(share)
    importances = dict(sorted(shares.items(), key=lambda item: -item[1]))
    fidelity, feature_names = float((predicted == labels).mean()), tuple(feature.name for feature in features)
    branches = _branches(tree, columns, features)
    return Explanation(tuple(rules), fidelity, importances, tree, feature_names, restates, branches)


def say_restated(column: str) -> str:
    """A sentence saying that the clusters are little more than one column, with advice."""
    instead = advised("leave it out", f"leave it out ({option('drop', column)})")
    return f"The clusters are little more than the column {column!r}: {instead} to see what else there is."


def name_clusters(labels: Labels, columns: Array, features: Features) -> dict[int, str]:
    """Short and unique names of the clusters of rows (n, p); no rows are held out."""
    found: dict[int, str] = {}
    features = mark_shares(columns, features)
    columns, labels = _drawn(columns, labels)
    clusters = np.unique(labels[labels >= 0])
    is_wide = columns.shape[1] > _OF_RULES
    families = _find_families(columns, features) if is_wide else {}
    kept = _columns_apart(columns, labels, clusters, _OF_RULES)
    columns = np.hstack([columns[:, kept], *(columns[:, own].mean(1, keepdims=True) for own in families.values())])
    features = (*(features[at] for at in kept), *map(Feature, families))
    makers: dict[int, Callable[..., str]] = {}
    scaled = _contrasts(columns, labels).scaled
    for cluster in clusters:
        inside = labels == cluster
        rule = _find_rule(columns, inside)
        how = {"is_accurate": _f1(_holds(rule, columns), inside) >= _ACCURATE, "is_wide": is_wide}
        makers[int(cluster)] = partial(_name, rule, columns, inside, features, scaled[cluster], **how)
    # Clusters whose names are equal in words such as medium get names with numbers.
    plain = {cluster: make(taken=set()) for cluster, make in makers.items()}
    times = Counter(plain.values())
    found |= {cluster: name for cluster, name in plain.items() if times[name] == 1}
    for cluster in [cluster for cluster in makers if cluster not in found]:
        found[cluster] = makers[cluster](taken=set(found.values()), is_exact=True)
    return dict(sorted(found.items()))


def _find_families(columns: Array, features: Features) -> dict[str, list[int]]:
    """Families of numbered columns that measure one thing, such as money_1 … money_15, by their common name."""
    numbered: dict[str, list[int]] = {}
    for at, feature in enumerate(features):
        match = _NUMBERED.fullmatch(feature.name)
        if match is not None and not feature.value and not feature.is_date and np.isfinite(columns[:, at]).all():
            numbered.setdefault(f"{match[1]}*{match[2]}", []).append(at)
    return {
        name: own for name, own in numbered.items() if len(own) >= _FEWEST_ALIKE and _alpha(columns[:, own]) >= _ALIKE
    }


def _alpha(values: Array) -> float:
    """Cronbach's alpha of columns (n, p): how consistently all of them measure the same."""
    total = float(values.sum(1).var())
    count = values.shape[1]
    return count / (count - 1) * (1 - float(values.var(0).sum()) / total) if total > 0 else 0.0


def _drawn(values: Array, labels: Labels) -> tuple[Array, Labels]:
    """A sample of at most 5,000 rows, always the same ones, without values that trees cannot handle."""
    if len(values) > MOST_ROWS:
        drawn = np.sort(np.random.default_rng(0).choice(len(values), MOST_ROWS, replace=False))
        values, labels = values[drawn], labels[drawn]
    return np.clip(values, -_LARGEST, _LARGEST), labels


def _columns_apart(columns: Array, labels: Labels, clusters: Labels, most: int) -> Labels:
    """The indices of at most ``most`` columns that differ most between clusters, in order."""
    if columns.shape[1] <= most:
        return np.arange(columns.shape[1])
    apart = np.abs(_contrasts(columns, labels).scaled[clusters]).max(0)
    return np.sort(np.argsort(-apart, kind="stable")[:most])


def _contrasts(columns: Array, labels: Labels) -> Contrasts:
    """Contrasts of the clusters; rows without one count among the others."""
    K = int(labels.max(initial=-1)) + 1
    return compare_clusters(columns, np.where(labels < 0, K, labels), K + 1)


def _labels_of(clustering: Any, X: Any, n: int) -> Labels:
    """The cluster of each of n rows."""
    last = _last_step(clustering)
    found = clustering.predict(X) if hasattr(clustering, "predict") else getattr(last, "labels_", last)
    labels = np.asarray(found)
    if labels.ndim != 1 or len(labels) != n or labels.dtype.kind not in "iu":
        raise InputError(
            f"explain needs the cluster of each of the {n:,} rows: a fitted clustering, or whole numbers (n,); "
            f"these are {labels.dtype} of shape {labels.shape}."
        )
    if n and (largest := int(labels.max())) > _LARGEST_LABEL:
        raise InputError(
            f"explain numbers clusters from 0, and here is one of number {largest:,}: pass "
            "numpy.unique(labels, return_inverse=True)[1]."
        )
    return labels.astype(np.int64)


def read_columns(clustering: Any, X: Any, feature_names: Sequence[str] | None = None) -> tuple[Any, Array, Features]:
    """The rows as the clustering takes them, their columns (n, p) in readable units, and the features of these.

    A data frame is read by the clustering's encoding, or else as the command line reads a file, unless it only holds
    numbers. Other input is transformed by the pipeline first.
    """
    encoding = getattr(clustering, "encoding_", None)
    if encoding is not None:
        return _read_encoded(X, encoding, feature_names)
    if hasattr(X, "columns") or hasattr(X, "column_names"):
        return X, *_read_frame(X, feature_names)
    given: Sequence[str] | None = feature_names
    values = X.toarray() if hasattr(X, "toarray") else X
    if isinstance(clustering, Pipeline) and np.asarray(values).ndim == 1:
        # Texts and other input that only the pipeline can transform.
        steps = clustering[:-1]
        values = steps.transform(X)
        values = values.toarray() if hasattr(values, "toarray") else values
        if given is None and hasattr(steps, "get_feature_names_out"):
            given = list(steps.get_feature_names_out())
    try:
        values = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"explain reads columns of a data frame, or numbers: {error}.") from error
    if values.ndim != 2:
        raise InputError(f"explain tells columns of a table apart; X has shape {values.shape}.")
    names = [str(column) for column in range(values.shape[1])] if given is None else list(map(str, given))
    return X, values, tuple(map(Feature, readable_names(_checked(names, values.shape[1]))))


def _checked(names: Sequence[str], count: int) -> Sequence[str]:
    if len(names) != count:
        raise InputError(f"There are {count} columns, and {len(names)} feature_names.")
    return names


def _read_encoded(X: Any, encoding: Encoding, feature_names: Sequence[str] | None) -> tuple[Any, Array, Features]:
    if len(encoding.encoded_shape) != 1:
        raise InputError("Rules are about columns of a table, and images have none.")
    called: dict[str, str] = {}
    if isinstance(encoding, TableEncoding):
        X = as_arrow(X, encoding.names)
        if feature_names is not None:
            names = _checked(list(map(str, feature_names)), X.num_columns)
            called = dict(zip(X.column_names, names, strict=True))
    X = encoding.select_rows(X)
    values, features = encoding.readable(X)
    return X, values, tuple(feature._replace(source=called.get(feature.source, feature.source)) for feature in features)


_UNITS = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0}


def _read_frame(X: Any, feature_names: Sequence[str] | None) -> tuple[Array, Features]:
    table = as_arrow(X)
    names = table.column_names if feature_names is None else list(map(str, feature_names))
    table = table.rename_columns(_checked(names, table.num_columns))
    kinds = {kind_of(kind) for kind in table.schema.types}
    if not kinds <= {"integer", "number", "boolean"}:
        encoding, _ = learn_encoding(InMemory(table), Choices(missing="mean"))
        return encoding.readable(table)
    columns, features = [], []
    for name, column in zip(names, table.columns, strict=True):
        values = as_numbers(name, column)
        if pyarrow_library().types.is_duration(column.type):
            usual = np.nanmedian(np.abs(values)) if np.isfinite(values).any() else 0.0
            unit, length = next(((unit, size) for unit, size in _UNITS.items() if usual >= size), ("seconds", 1.0))
            name, values = f"{name} ({unit})", values / length
        columns.append(values)
        features.append(Feature(readable_names([name])[0]))
    return np.stack(columns, axis=1) if columns else np.empty((len(table), 0)), tuple(features)


def _surrogate(columns: Array, labels: Labels, K: int) -> DecisionTreeClassifier:
    # Leaves of very few rows make the tree longer, and do not generalise.
    least = max(1, len(labels) // 200)
    made = DecisionTreeClassifier(max_leaf_nodes=max(2, 2 * K), min_samples_leaf=least, random_state=0)
    return made.fit(columns, labels)


def _find_rule(columns: Array, inside: NDArray[np.bool_]) -> list[Condition]:
    """At most three conditions that best separate the rows ``inside`` from the others: a path of a shallow tree."""
    if inside.all() or not inside.any():
        return []
    # Leaves of fewer rows do not generalise.
    least = max(1, min(10, int(inside.sum()) // 5))
    grown = DecisionTreeClassifier(
        max_depth=_MOST_CONDITIONS, min_samples_leaf=least, class_weight="balanced", random_state=0
    )
    tree = grown.fit(columns, inside).tree_
    paths: dict[int, list[Condition]] = {0: []}
    best, best_score = paths[0], 2 * inside.sum() / (len(inside) + inside.sum())
    for node in range(tree.node_count):
        path = paths[node]
        score = _f1(_holds(path, columns), inside) - _WORTH * len(path)
        if score > best_score:
            best, best_score = path, score
        if tree.children_left[node] >= 0:
            for child, condition in zip(
                (int(tree.children_left[node]), int(tree.children_right[node])),
                _parted(tree, node, columns),
                strict=True,
            ):
                paths[child] = [*path, condition]
    merged: dict[int, Condition] = {}
    for column, low, high, missing in best:
        old = merged.get(column, Condition(column, missing=True))
        merged[column] = Condition(column, max(old.low, low), min(old.high, high), old.missing and missing)
    found = list(merged.values())
    for at, condition in enumerate(found):
        # Missing values are mentioned only if that improves the rule.
        plain = [*found[:at], condition._replace(missing=False), *found[at + 1 :]]
        if condition.missing and _f1(_holds(plain, columns), inside) > _f1(_holds(found, columns), inside) - _WORTH:
            found = plain
    return found


def _parted(tree: Any, node: int, columns: Array) -> tuple[Condition, Condition]:
    """The conditions of the two children of a node, for a tree fitted to columns (n, p)."""
    column, threshold = int(tree.feature[node]), float(tree.threshold[node])
    if math.isinf(threshold):
        # A split between present and missing values.
        return Condition(column), Condition(column, math.inf, math.inf, missing=True)
    values, has_gaps = columns[:, column], bool(np.isnan(columns[:, column]).any())
    # Round to the fewest digits that separate the values on either side.
    threshold = _rounded(threshold, values[~np.isnan(values)])
    goes_left = bool(tree.missing_go_to_left[node])
    low = Condition(column, -math.inf, threshold, has_gaps and goes_left)
    return low, Condition(column, threshold, math.inf, has_gaps and not goes_left)


def _rounded(threshold: float, values: Array) -> float:
    """The threshold rounded to the fewest digits that keep all values on their side."""
    below = values <= threshold
    low, high = values[below].max(initial=-math.inf), values[~below].min(initial=math.inf)
    for digits in range(1, 17):
        # If the threshold is next to a value, the largest value below may have fewer digits.
        for number in (threshold, low):
            rounded = float(f"{number:.{digits}g}")
            if low <= rounded < high:
                return rounded
    return threshold


def _f1(holds: NDArray[np.bool_], inside: NDArray[np.bool_]) -> float:
    return float(2 * (holds & inside).sum() / max(1, holds.sum() + inside.sum()))


def _holds(conditions: Sequence[Condition], columns: Array) -> NDArray[np.bool_]:
    """Mask of the rows for which all conditions hold."""
    holds = np.ones(len(columns), dtype=bool)
    for column, low, high, missing in conditions:
        values = columns[:, column]
        holds &= ((values > low) & (values <= high)) | (missing & np.isnan(values))
    return holds


def _in_words(condition: Condition, features: Features) -> str:
    column, low, high, missing = condition
    feature = features[column]
    name = feature.column or feature.source
    if missing:
        rest = "" if low == math.inf else _in_words(condition._replace(missing=False), features)
        if rest.startswith(f"{name} is not "):
            return f"{name} is missing or {rest.removeprefix(f'{name} is ')}"
        return f"{rest} or missing" if rest else f"{name} is missing"
    if low == -math.inf and high == math.inf:
        return f"{name} is known"
    if feature.value:
        opposite = opposites(features).get(column, "")
        if low > -math.inf:
            return f"{name} is {feature.value}"
        return f"{name} is {opposite}" if opposite else f"{name} is not {feature.value}"
    if feature.is_date:
        after, until = (as_date(end) if math.isfinite(end) else "" for end in (low, high))
        return f"{name} " + " and ".join(filter(None, [after and f"after {after}", until and f"up to {until}"]))
    if low > -math.inf and high < math.inf:
        return f"{low:.12g} < {name} <= {high:.12g}"
    return f"{name} > {low:.12g}" if low > -math.inf else f"{name} <= {high:.12g}"


def _branches(tree: DecisionTreeClassifier, columns: Array, features: Features, node: int = 0) -> tuple[Branch, ...]:
    """The two branches below a node, for a tree fitted to columns (n, p); empty if both predict the same cluster."""
    nodes = tree.tree_
    if nodes.children_left[node] < 0:
        return ()
    said = [_in_words(end, features) for end in _parted(nodes, node, columns)]
    found = []
    for condition, child in zip(said, (nodes.children_left[node], nodes.children_right[node]), strict=True):
        shares = nodes.value[child, 0] / nodes.value[child, 0].sum()
        best = int(shares.argmax())
        below = _branches(tree, columns, features, int(child))
        rows = int(nodes.n_node_samples[child])
        found.append(Branch(condition, rows, int(tree.classes_[best]), float(shares[best]), below))
    if not any(branch.branches for branch in found) and len({branch.cluster for branch in found}) == 1:
        # The split does not change the predicted cluster.
        return ()
    return tuple(found)


def _in_numbers(condition: Condition, values: Array, feature: Feature) -> str:
    """The range of a condition on values (n,) as text: "year 1972 to 1982"; both ends are values if all are whole."""
    low, high = condition.low, condition.high
    known = values[~np.isnan(values)]
    is_whole = not feature.is_date and bool((known == np.round(known)).all())
    if is_whole:
        low = float(known[known > low].min(initial=math.inf)) if low > -math.inf else low
        high = float(known[known <= high].max(initial=-math.inf)) if high < math.inf else high
    start, end = (
        "" if math.isinf(bound) else as_date(bound) if feature.is_date else f"{bound:.12g}" for bound in (low, high)
    )
    if start and end:
        return f"{feature.name} {start}" if start == end else f"{feature.name} {start} to {end}"
    above = "from" if is_whole else "after" if feature.is_date else "above"
    return f"{feature.name} {above} {start}" if start else f"{feature.name} up to {end}"


def _level(condition: Condition, values: Array, inside: NDArray[np.bool_]) -> str:
    """Whether rows have high, medium or low values (n,), or merely no high or no low ones, relative to the others."""
    if condition.low > -math.inf and condition.high < math.inf:
        return "medium"
    known, is_high = ~np.isnan(values), condition.low > -math.inf
    others, own = values[~inside & known], values[inside & known]
    if not len(others) or not len(own):
        return "high" if is_high else "low"
    low, median, high = np.quantile(own, [0.1, 0.5, 0.9])
    # A condition may leave many of the others on its side: then the level is not distinctive.
    if np.mean(others > median if is_high else others < median) <= 1 / 4:
        return "high" if is_high else "low"
    is_between = min(np.mean(others < low), np.mean(others > high)) >= 1 / 5
    return "medium" if is_between else "not low" if is_high else "not high"


def _name_values(columns: Array, inside: NDArray[np.bool_], features: Features) -> str:
    """The values of one column that the rows have, if these separate them from nearly all others; else ""."""
    best, name = _RESTATED, ""
    for source, own in of_sources(features).items():
        if len(own) < 3 or not all(features[at].value for at in own):
            continue
        has = columns[:, own] == 1
        rows = has[inside].sum(0)
        chosen = rows > has.sum(0) / 2
        score = _f1(has[:, chosen].any(1), inside)
        if score >= best and chosen.sum() > 1:
            values = [features[own[at]].value for at in np.argsort(-rows, kind="stable") if chosen[at]]
            shown = values if len(values) <= _MOST_SHOWN else [*values[: _MOST_SHOWN - 1], ""]
            shown[-1] = shown[-1] or f"{len(values) - _MOST_SHOWN + 1} others"
            best, name = score, f"{features[own[0]].column or source} is {', '.join(shown[:-1])} or {shown[-1]}"
    return name


def _compare_value(feature: Feature, opposite: str, share: float, size: float) -> str:
    """A phrase about the share of a cluster that has a value, which is more or less than that of the others."""
    name, value = feature.column or feature.source, feature.value
    if size < 0 and opposite:
        value, share, size = opposite, 1 - share, -size
    if size < 0:
        return f"{name} less often {value}"
    return f"{name} {'is' if share >= _USUAL else 'is mostly' if share > 1 / 2 else 'more often'} {value}"


def _are_redundant(columns: Array, features: Features, one: int, other: int) -> bool:
    """Whether two columns of numbers are correlated, or belong to one family."""
    if one == other or features[one].value or features[other].value:
        return False
    families = {feature.name for feature in features if "*" in feature.name}
    names = [re.sub(_NUMBERED, r"\1*\2", features[at].name) for at in (one, other)]
    return (names[0] == names[1] and names[0] in families) or move_together(columns, one, other)


def _name(
    rule: Sequence[Condition],
    columns: Array,
    inside: NDArray[np.bool_],
    features: Features,
    contrast: Array,
    taken: set[str],
    is_accurate: bool,
    is_wide: bool,
    is_exact: bool = False,
) -> str:
    """A short name that no other cluster has: from the rule, then from the columns whose means differ most.

    Levels are given in words such as high and medium, or else exactly. If there are many columns, those that are
    redundant with an earlier one are skipped.
    """
    if inside.all():
        return "all rows"
    # The phrase for each column, which is mentioned once, and the conditions that it covers.
    phrases: dict[str, str] = {}
    about: dict[str, list[Condition]] = {}
    first: list[Condition] = []
    is_plain = is_accurate and len(rule) == 1 and " is not " not in _in_words(rule[0], features)
    values = "" if is_plain else _name_values(columns, inside, features)
    if values and values not in taken:
        return values
    for condition in rule if is_accurate else ():
        feature = features[condition.column]
        if _holds([condition], columns)[~inside].mean() > _MOST_OTHERS:
            # A condition that nearly all others satisfy too is not informative.
            continue
        if is_wide and any(_are_redundant(columns, features, condition.column, each.column) for each in first):
            continue
        said = _in_words(condition, features)
        if said.endswith(" is not other"):
            # "other" does not say which values it stands for.
            continue
        if condition.is_bounded and not feature.value:
            level = _level(condition, columns[:, condition.column], inside)
            if is_exact or (feature.is_date and level not in ("high", "low")):
                said = _in_numbers(condition, columns[:, condition.column], feature)
            else:
                level = level.replace("high", "late").replace("low", "early") if feature.is_date else level
                said = f"{level} {feature.name}"
        before = phrases.get(feature.source, "")
        if " is not " in before and " is " in said:
            # One value that rows have is more informative than values that they do not have.
            about[feature.source] = [*about[feature.source], condition] if " is not " in said else [condition]
            said = f"{before} or {feature.value}" if " is not " in said else said
            phrases[feature.source] = said
        first.append(condition)
        phrases.setdefault(feature.source, said)
        about.setdefault(feature.source, [condition])
    words, used = [], set(phrases)
    for source, said in phrases.items():
        is_usual = _holds(about[source], columns)[inside].mean() >= _USUAL
        name = features[about[source][0].column].column or source
        is_value = said.startswith(f"{name} is ")
        mostly = f"{name} is mostly {said.removeprefix(f'{name} is ')}" if is_value else f"mostly {said}"
        words.append(said if is_usual else mostly)
    if words and ", ".join(words) not in taken:
        return ", ".join(words)
    opposite = opposites(features)
    for at in np.argsort(-np.abs(contrast), kind="stable"):
        feature, size = features[at], contrast[at]
        # Each column is mentioned once.
        if feature.source in used or not size:
            continue
        share = (columns[inside, at] == 1).mean()
        if feature.value == "other" and (size < 0 or share <= 1 / 2):
            # That some rows have "other" values, or do not, is not informative.
            continue
        if words and abs(size) < _LEAST_CONTRAST and ", ".join(words) not in taken:
            break
        used.add(feature.source)
        if feature.value:
            words.append(_compare_value(feature, opposite.get(int(at), ""), share, size))
        else:
            levels = ("late", "early") if feature.is_date else ("high", "low")
            words.append(f"rather {levels[int(size < 0)]} {feature.name}")
        if len(words) > 1 and ", ".join(words) not in taken:
            break
    name = ", ".join(words) or "all rows"
    return name if name not in taken else f"{name} ({len(taken) + 1})"

"""Rules for any clustering: what tells each cluster, in the units of the data, and how far that is true."""

from __future__ import annotations

import datetime
import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier, export_text

from pollux.data.arrow import as_arrow
from pollux.data.encoding import Encoding, TableEncoding, readable_names
from pollux.errors import InputError

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

_MOST_ROWS, _MOST_CONDITIONS, _MOST_VALUES = 5_000, 3, 20
# Of more columns the tree, and each rule, looks at those that differ most between clusters.
_OF_TREE, _OF_RULES = 1_024, 64
# A further condition must raise the F1 score of a rule by this much.
_WORTH = 0.02
# Rules of a lower F1 score do not tell a cluster.
_TELLING = 0.7


# Trees of scikit-learn read float32, and squares of columns are added up.
_LARGEST = 1e37


class Condition(NamedTuple):
    """``low`` < column ≤ ``high``; of a column of zeros and ones: whether it has the value in its name."""

    column: int
    low: float
    high: float


@dataclass(frozen=True)
class Rule:
    """What tells a cluster.

    Parameters
    ----------
    cluster, size : int
        Its number and its rows.
    name : str
        A short name, such as "high petal length, low sepal width".
    conditions : tuple of str
        In the units of the data; all of them hold.
    precision, coverage : float
        Of the rows for which they hold, the share in the cluster; of the cluster, the share for which they hold. Both
        are estimated on rows that the rule was not made from.
    sentence : str
        The same in words, or that no short rule tells the cluster.
    bounds : tuple of (str, float, float)
        The conditions as numbers: column, low and high, low < value ≤ high. They may be infinite.
    """

    cluster: int
    size: int
    name: str
    conditions: tuple[str, ...]
    precision: float
    coverage: float
    sentence: str
    bounds: tuple[tuple[str, float, float], ...] = ()


@dataclass(frozen=True)
class Explanation:
    """Rules of all clusters, and a shallow tree that stands for the clustering.

    Parameters
    ----------
    rules : tuple of Rule
        One for each cluster.
    fidelity : float
        The share of rows, which it has not seen, to which the tree gives their cluster.
    importances : dict
        What each column contributes to the tree, as shares, the largest first.
    tree : DecisionTreeClassifier
        A tree of at most twice as many leaves as clusters.
    feature_names : tuple of str
        The columns that the tree reads.
    """

    rules: tuple[Rule, ...]
    fidelity: float
    importances: dict[str, float]
    tree: DecisionTreeClassifier = field(repr=False)
    feature_names: tuple[str, ...] = field(repr=False)

    @property
    def names(self) -> dict[int, str]:
        """The short name of each cluster."""
        return {rule.cluster: rule.name for rule in self.rules}

    def export_text(self) -> str:
        """The tree as text."""
        text: str = export_text(self.tree, feature_names=list(self.feature_names), decimals=4)
        # A split between missing values and all others is at infinity.
        text = re.sub(r" <= inf$", " is known", text, flags=re.MULTILINE)
        text = re.sub(r" > +inf$", " is missing", text, flags=re.MULTILINE)
        return text.replace("class: ", "cluster ")

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as JSON holds it."""
        rules: list[dict[str, Any]] = [{**vars(rule), "conditions": list(rule.conditions)} for rule in self.rules]
        for rule in rules:
            # JSON has no infinity: the conditions say the same.
            del rule["bounds"]
        return {"rules": rules, "fidelity": self.fidelity, "importances": self.importances, "tree": self.export_text()}

    def __str__(self) -> str:
        lines = []
        for rule in self.rules:
            lines += [f"cluster {rule.cluster} ({rule.size:,} rows): {rule.name}", f"    {rule.sentence}"]
        leading = ", ".join(f"{name} {share:.0%}" for name, share in list(self.importances.items())[:5] if share > 0)
        leaves = int(self.tree.get_n_leaves())
        if leaves > 1 or self.fidelity < 1:
            counted = f"{leaves} leaves" if leaves > 1 else "1 leaf"
            lines.append(f"A tree of {counted} gives {self.fidelity:.0%} of the rows their cluster.")
        return "\n".join([*lines, f"Columns that matter: {leading}." if leading else "No column matters."])

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
    """Rules that tell the clusters of X apart, in the units of X.

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
    encoding = getattr(clustering, "encoding_", None)
    if encoding is None:
        columns, names, groups = _as_columns(X, feature_names)
    else:
        X, columns, names, groups = _as_encoded(X, encoding, feature_names)
    columns = np.clip(columns, -_LARGEST, _LARGEST)
    labels = _labels_of(clustering, X, len(columns))
    n = len(columns)
    if n < 2 or not columns.shape[1]:
        raise InputError("There is nothing to explain: X needs two rows and a column.")
    clusters = np.unique(labels[labels >= 0])
    if not len(clusters):
        raise InputError("There is nothing to explain: no row is in a cluster.")
    sizes = {int(cluster): int((labels == cluster).sum()) for cluster in clusters}
    if n > _MOST_ROWS:
        drawn = np.sort(np.random.default_rng(0).choice(n, _MOST_ROWS, replace=False))
        columns, labels = columns[drawn], labels[drawn]
    every = list(dict.fromkeys(groups))
    kept = _columns_apart(columns, labels, clusters, _OF_TREE)
    columns, names, groups = columns[:, kept], [names[at] for at in kept], [groups[at] for at in kept]
    kept = _columns_apart(columns, labels, clusters, _OF_RULES)
    some, some_names = columns[:, kept], [names[at] for at in kept]
    # Each row is told by what was learned from the others.
    told = np.full(len(labels), -2)
    held = np.zeros((len(clusters), len(labels)), dtype=bool)
    # Of few rows as many as possible.
    folds = min(len(labels), max(5, min(20, _MOST_ROWS // len(labels))))
    for train, test in KFold(folds, shuffle=True, random_state=0).split(columns):
        told[test] = _surrogate(columns[train], labels[train], len(clusters)).predict(columns[test])
        for row, cluster in enumerate(clusters):
            held[row, test] = _holds(_find_rule(some[train], labels[train] == cluster), some[test])
    tree = _surrogate(columns, labels, len(clusters))
    rules: list[Rule] = []
    for row, cluster in enumerate(clusters):
        inside = labels == cluster
        found = _find_rule(some, inside)
        both = int((held[row] & inside).sum())
        precision, coverage = both / max(1, held[row].sum()), both / max(1, inside.sum())
        is_telling = _f1(held[row], inside) >= _TELLING
        conditions = tuple(_in_words(condition, some, some_names) for condition in found) or ("all rows",)
        name = _name(found, some, inside, some_names, {rule.name for rule in rules}, is_telling)
        said = (
            f"{' and '.join(conditions)}: an estimated {precision:.0%} of such rows are in the cluster, and an "
            f"estimated {coverage:.0%} of it are such rows."
        )
        said = said if is_telling else f"No short rule tells this cluster. The best is {said}"
        said = "All rows are in this cluster." if sizes[int(cluster)] == n else said
        bounds = tuple((some_names[column], low, high) for column, low, high in found)
        rules.append(Rule(int(cluster), sizes[int(cluster)], name, conditions, precision, coverage, said, bounds))
    shares = dict.fromkeys(every, 0.0)
    for group, share in zip(groups, tree.feature_importances_, strict=True):
        shares[group] += float(share)
    importances = dict(sorted(shares.items(), key=lambda item: -item[1]))
    return Explanation(tuple(rules), float((told == labels).mean()), importances, tree, tuple(names))


def name_clusters(labels: Labels, columns: Array, names: Sequence[str]) -> dict[int, str]:
    """Short names of the clusters of rows (n, d), as :func:`explain` gives them, and quickly: nothing is held back."""
    found: dict[int, str] = {}
    clusters, columns = np.unique(labels), np.clip(columns, -_LARGEST, _LARGEST)
    kept = _columns_apart(columns, labels, clusters, _OF_RULES)
    columns, names = columns[:, kept], [names[at] for at in kept]
    for cluster in clusters:
        inside = labels == cluster
        rule = _find_rule(columns, inside)
        is_telling = _f1(_holds(rule, columns), inside) >= _TELLING
        found[int(cluster)] = _name(rule, columns, inside, names, set(found.values()), is_telling)
    return found


def _columns_apart(columns: Array, labels: Labels, clusters: Labels, most: int) -> Labels:
    """Which columns differ most between clusters, at most so many, in their order."""
    apart = np.max([np.abs(_contrast(columns, labels == cluster)) for cluster in clusters], axis=0)
    return np.sort(np.argsort(-apart, kind="stable")[:most])


def _labels_of(clustering: Any, X: Any, n: int) -> Labels:
    """The cluster of each of n rows."""
    own = getattr(clustering, "labels_", None) if not isinstance(clustering, Pipeline) else None
    if hasattr(clustering, "predict"):
        found = clustering.predict(X)
    elif own is not None:
        found = own
    elif isinstance(clustering, Pipeline):
        found = clustering[-1].labels_
    else:
        found = np.asarray(clustering)
    labels = np.asarray(found)
    if labels.ndim != 1 or len(labels) != n or labels.dtype.kind not in "iu":
        raise InputError(
            f"explain needs the cluster of each of the {n:,} rows: a fitted clustering, or whole numbers (n,); "
            f"these are {labels.dtype} of shape {labels.shape}."
        )
    return labels.astype(np.int64)


def _as_encoded(
    X: Any, encoding: Encoding, feature_names: Sequence[str] | None
) -> tuple[Any, Array, list[str], list[str]]:
    """The rows that a clustering can read, and their columns as it reads them; see :func:`_as_columns`."""
    if len(encoding.encoded_shape) != 1:
        raise InputError("Rules are about columns of a table, and images have none.")
    given = encoding.feature_names
    if isinstance(encoding, TableEncoding):
        X = as_arrow(X, encoding.names)
        if feature_names is not None:
            if len(feature_names) != X.num_columns:
                raise InputError(f"There are {X.num_columns} columns, and {len(feature_names)} feature_names.")
            called = dict(zip(X.column_names, map(str, feature_names), strict=True))
            renamed = [msgspec.structs.replace(column, name=called[column.name]) for column in encoding.columns]
            given = [name for column in renamed for name in column.feature_names]
    if encoding.missing == "drop":
        complete = encoding.complete(X)
        X = X.filter(complete) if isinstance(encoding, TableEncoding) else X[complete]
    return X, *_as_columns(encoding.raw(X), readable_names(given) or None)


def _as_columns(X: Any, feature_names: Sequence[str] | None) -> tuple[Array, list[str], list[str]]:
    """Numbers (n, p), the names of their columns, and the columns of X that they stem from."""
    if not hasattr(X, "columns"):
        values = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
        if values.ndim != 2:
            raise InputError(f"explain tells columns of a table apart; X has shape {values.shape}.")
        names = [f"x{column}" for column in range(values.shape[1])] if feature_names is None else list(feature_names)
        if len(names) != values.shape[1]:
            raise InputError(f"There are {values.shape[1]} columns, and {len(names)} feature_names.")
        names = list(map(str, names))
        return (
            values,
            names,
            [
                name.partition("=")[0] if _is_share(column) else name
                for name, column in zip(names, values.T, strict=True)
            ],
        )
    given = list(map(str, X.columns if feature_names is None else feature_names))
    if len(given) != len(X.columns):
        raise InputError(f"There are {len(X.columns)} columns, and {len(given)} feature_names.")
    parts: list[Array] = []
    names, groups = [], []
    for name, column in zip(given, X.columns, strict=True):
        found = _read_column(X[column], name)
        parts += found.values()
        names += found
        groups += [name] * len(found)
    return np.stack(parts, axis=1) if parts else np.empty((len(X), 0)), names, groups


def _read_column(series: Any, name: str) -> dict[str, Array]:
    """A column of a data frame as columns of numbers, by name; NaN where a value is missing."""
    if getattr(getattr(series, "dtype", None), "tz", None) is not None:
        series = series.dt.tz_localize(None)
    values = np.asarray(series)
    absent = _is_missing(series, values)
    known = values[~absent]
    if len(known) and all(isinstance(value, datetime.date) for value in known):
        known = np.array([datetime.datetime(*value.timetuple()[:6]) for value in known], dtype="datetime64[us]")
    if known.dtype.kind == "M":
        # Trees of scikit-learn read float32: days since then keep the minutes.
        first = known.min().astype("datetime64[D]") if len(known) else np.datetime64("1970-01-01")
        return {f"{name}: days since {first}": _spread((known - first) / np.timedelta64(1, "D"), absent)}
    if known.dtype.kind == "m":
        seconds = known / np.timedelta64(1, "s")
        usual = np.median(np.abs(seconds)) if len(seconds) else 0.0
        unit, length = next(((unit, length) for unit, length in _UNITS.items() if usual >= length), ("seconds", 1.0))
        return {f"{name} ({unit})": _spread(seconds / length, absent)}
    try:
        return {name: _spread(known.astype(np.float64), absent)}
    except (TypeError, ValueError):
        texts = known.astype(str)
    found, counts = np.unique(texts, return_counts=True)
    frequent = found[np.argsort(-counts, kind="stable")[:_MOST_VALUES]]
    return {f"{name}={value}": _spread((texts == value).astype(np.float64), absent) for value in frequent}


_UNITS = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0}


def _spread(known: Array, absent: NDArray[np.bool_]) -> Array:
    """(n,) of the values that are known, NaN where one is absent."""
    column = np.full(len(absent), np.nan)
    column[~absent] = known
    return column


def _is_missing(series: Any, values: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype.kind == "O":
        # pandas has a value of its own for what is missing, which cannot be compared.
        own = series.isna() if hasattr(series, "isna") else [value is None or value != value for value in values]
        return np.asarray(own, dtype=bool)
    return np.asarray(np.isnat(values) if values.dtype.kind in "mM" else values != values, dtype=bool)


def _is_share(column: Array) -> bool:
    return bool((np.isin(column, (0.0, 1.0)) | np.isnan(column)).all())


def _surrogate(columns: Array, labels: Labels, K: int) -> DecisionTreeClassifier:
    return DecisionTreeClassifier(max_leaf_nodes=max(2, 2 * K), random_state=0).fit(columns, labels)


def _find_rule(columns: Array, inside: NDArray[np.bool_]) -> list[Condition]:
    """The conditions, at most three, that tell some rows from the others best: a path of a shallow tree."""
    if inside.all() or not inside.any():
        return []
    # Fewer rows than that say little of others.
    least = max(1, min(10, int(inside.sum()) // 5))
    grown = DecisionTreeClassifier(
        max_depth=_MOST_CONDITIONS, min_samples_leaf=least, class_weight="balanced", random_state=0
    )
    tree = grown.fit(columns, inside).tree_
    paths: dict[int, list[Condition]] = {0: []}
    best, best_score = paths[0], 2 * inside.sum() / (len(inside) + inside.sum())
    filled = np.where(np.isnan(columns), -np.inf, columns)
    for node in range(tree.node_count):
        path = paths[node]
        score = _f1(_holds(path, columns), inside) - _WORTH * len(path)
        if score > best_score:
            best, best_score = path, score
        if tree.children_left[node] >= 0:
            column, threshold = int(tree.feature[node]), float(tree.threshold[node])
            # As many digits as tell the values on either side apart.
            threshold = _rounded(threshold, filled[:, column])
            paths[int(tree.children_left[node])] = [*path, Condition(column, -math.inf, threshold)]
            paths[int(tree.children_right[node])] = [*path, Condition(column, threshold, math.inf)]
    merged: dict[int, Condition] = {}
    for condition in best:
        old = merged.get(condition.column, Condition(condition.column, -math.inf, math.inf))
        merged[condition.column] = Condition(
            condition.column, max(old.low, condition.low), min(old.high, condition.high)
        )
    return list(merged.values())


def _rounded(threshold: float, values: Array) -> float:
    """The threshold with the fewest digits that leaves all values on their side."""
    below = values <= threshold
    low, high = values[below].max(initial=-math.inf), values[~below].min(initial=math.inf)
    for digits in range(1, 17):
        rounded = float(f"{threshold:.{digits}g}")
        if low <= rounded < high:
            return rounded
    return threshold


def _f1(holds: NDArray[np.bool_], inside: NDArray[np.bool_]) -> float:
    return float(2 * (holds & inside).sum() / max(1, holds.sum() + inside.sum()))


def _holds(conditions: Sequence[Condition], columns: Array) -> NDArray[np.bool_]:
    """For which rows all conditions hold; none does where a value is missing."""
    holds = np.ones(len(columns), dtype=bool)
    for column, low, high in conditions:
        values = columns[:, column]
        holds &= (values > low) & (values <= high)
    return holds


def _in_words(condition: Condition, columns: Array, names: Sequence[str]) -> str:
    column, low, high = condition
    name, value = names[column].rpartition("=")[::2]
    is_share = bool(name) and _is_share(columns[:, column])
    if low == -math.inf and high == math.inf:
        return f"{name if is_share else names[column]} is known"
    if is_share:
        return f"{name} is {value}" if low > -math.inf else f"{name} is not {value}"
    if low > -math.inf and high < math.inf:
        return f"{low:.12g} < {names[column]} <= {high:.12g}"
    return f"{names[column]} > {low:.12g}" if low > -math.inf else f"{names[column]} <= {high:.12g}"


def _contrast(columns: Array, inside: NDArray[np.bool_]) -> Array:
    """(mean of some rows − mean of the others) / deviation, of each column (p,)."""
    known = ~np.isnan(columns)
    count = np.maximum(known.sum(0), 1)
    values = np.where(known, columns - np.where(known, columns, 0.0).sum(0) / count, 0.0)
    spread = np.sqrt((values**2).sum(0) / count)
    means = [values[part].sum(0) / np.maximum(known[part].sum(0), 1) for part in (inside, ~inside)]
    contrast: Array = np.where(spread > 0, (means[0] - means[1]) / np.where(spread > 0, spread, 1), 0)
    return contrast


def _level(condition: Condition, values: Array, inside: NDArray[np.bool_]) -> str:
    """Whether rows have high, medium or low values (n,): beside the others, since a condition parts them from some."""
    if condition.low > -math.inf and condition.high < math.inf:
        return "medium"
    known = ~np.isnan(values)
    others, own = values[~inside & known], values[inside & known]
    median = np.median(own) if len(own) else 0.0
    is_high = condition.low > -math.inf
    beyond = np.mean(others > median if is_high else others < median) if len(others) else 0.0
    return "medium" if beyond > 1 / 3 else "high" if is_high else "low"


def _name(
    rule: Sequence[Condition],
    columns: Array,
    inside: NDArray[np.bool_],
    names: Sequence[str],
    taken: set[str],
    is_telling: bool,
) -> str:
    """A short name that no other cluster has: by the rule, then by the columns whose means differ most."""
    if inside.all():
        return "all rows"
    words = []
    for condition in rule if is_telling else ():
        told = _in_words(condition, columns, names)
        if "<=" in told or ">" in told:
            told = f"{_level(condition, columns[:, condition.column], inside)} {names[condition.column]}"
        words.append(told)
    if words and ", ".join(words) not in taken:
        return ", ".join(words)
    contrast = _contrast(columns, inside)
    used = {condition.column for condition in rule} if words else set()
    for column in np.argsort(-np.abs(contrast), kind="stable"):
        if column in used or not contrast[column]:
            continue
        name, value = names[column].rpartition("=")[::2]
        if name and _is_share(columns[:, column]):
            words.append(f"{name} {'often' if contrast[column] > 0 else 'rarely'} {value}")
        else:
            words.append(f"rather {'high' if contrast[column] > 0 else 'low'} {names[column]}")
        if len(words) > 1 and ", ".join(words) not in taken:
            break
    name = ", ".join(words) or "all rows"
    return name if name not in taken else f"{name} ({len(taken) + 1})"

"""``select_features``: the columns that a clustering needs, by a regularisation path on which columns are dropped."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin, clone
from torch import Tensor, nn
from torch.func import functional_call

from pollux.clustering import GeminiClustering
from pollux.data.encoding import Encoding, TableEncoding
from pollux.data.rows import Rows
from pollux.data.samples import validate_samples
from pollux.data.scaling import FittedScaling, FittedTransformer, prepared
from pollux.errors import InputError, option
from pollux.geometry import Precomputed
from pollux.geometry.affinity import Affinity
from pollux.io.atomic import in_place
from pollux.metrics import adjusted_rand_index
from pollux.models import mlp
from pollux.objectives.gradients import value_and_gradient
from pollux.progress import Stage, show_progress
from pollux.recipes import DataKind
from pollux.report.canvas import GRID, QUIET, TITLE, clean_axes, new_figure
from pollux.selection.result import align
from pollux.spec import Spec
from pollux.threads import DrawFrom, threads_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Samples for the path; fewer if the geometry needs a matrix.
_MOST_ROWS, _MOST_OF_MATRIX = 5_000, 1_000
# The first penalty as a share of the objective, and its growth factor.
_FIRST, _GROWTH = 2e-3, 1.25
# At most this share of the columns is dropped at a time, or one: else the growth is halved, up to so many times.
_LEAVING, _HALVINGS = 0.2, 3
# If all would be dropped together, the least important of at most so many is found by trying each.
_TRIED, _HARDLY = 12, 0.005
# The penalty while learning the initial clusters, at which weights have about unit size.
_OF_LABELS = 1e-3
_ITERATIONS, _TOLERANCE, _QUIET_ITERATIONS = 100, 1e-4, 3
# Sufficient decrease of the value, in units of length² / step; and the longest step.
_FALL, _LONGEST = 1e-4, 1e4
# Bound on hidden weights of a column, relative to the norm of its direct ones (LassoNet's M).
_RATIO = 10.0

Smooth = Callable[[Tensor], tuple[Tensor, Tensor]]
"""A function from logits (n, K) to a value to be minimised, and its gradient (n, K)."""


@dataclass(frozen=True)
class FeatureStep:
    """A model on the path.

    Parameters
    ----------
    penalty : float
        The penalty at which the last of the other columns was dropped.
    objective : float
        The objective of the model on these columns alone, in the geometry of all columns.
    columns : tuple of int
        Remaining columns of X.
    n_clusters : int
        Clusters in use.
    adjusted_rand_index : float, optional
        Agreement with known classes.
    """

    penalty: float
    objective: float
    columns: tuple[int, ...]
    n_clusters: int
    adjusted_rand_index: float | None = None


@dataclass(frozen=True)
class FeaturePath:
    """Models of fewer and fewer columns, and the smallest that is good enough. ``print`` shows a table.

    Parameters
    ----------
    steps : tuple of FeatureStep
        From all columns to the fewest.
    chosen : FeatureStep
        The smallest that keeps enough of the objective; or all columns that are dropped late, if others go soon.
    names : tuple of str
        The columns of X by name.
    keep : float
        The share of the objective to keep.
    best : GeminiClustering
        The clustering, fitted to the selected columns of X.
    """

    steps: tuple[FeatureStep, ...]
    chosen: FeatureStep
    names: tuple[str, ...]
    keep: float
    best: GeminiClustering = field(repr=False)

    @property
    def selected(self) -> NDArray[np.int64]:
        """The indices of the selected columns."""
        return np.array(self.chosen.columns, dtype=np.int64)

    @property
    def selected_names(self) -> tuple[str, ...]:
        """The names of the selected columns."""
        return tuple(self.names[column] for column in self.chosen.columns)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        steps = [{**vars(step), "columns": [self.names[column] for column in step.columns]} for step in self.steps]
        return {"selected": list(self.selected_names), "keep": self.keep, "steps": steps}

    def __str__(self) -> str:
        scored = self.chosen.adjusted_rand_index is not None
        rows = [["columns", "penalty", "objective", "kept", "clusters", *(["ARI"] if scored else [])]]
        leaving = ["leaves next"]
        for step, after in zip(self.steps, [*self.steps[1:], None], strict=True):
            gone = [] if after is None else [self.names[at] for at in step.columns if at not in after.columns]
            leaving.append(", ".join(gone[:3]) + (f" and {len(gone) - 3} more" if len(gone) > 3 else ""))
            ari = [f"{step.adjusted_rand_index:.3f}"] if step.adjusted_rand_index is not None else []
            share = f"{step.objective / self.steps[0].objective:.1%}"
            cells = [str(len(step.columns)), f"{step.penalty:.3g}", f"{step.objective:.4g}", share]
            rows.append([*cells, str(step.n_clusters), *ari])
        marks = ["  ", *("→ " if step is self.chosen else "  " for step in self.steps)]
        parts = zip(marks, align(rows), leaving, strict=True)
        table = [f"{mark}{line}  {shown}".rstrip() for mark, line, shown in parts]
        kept = self.chosen.objective / self.steps[0].objective
        few = f"{len(self.selected)} of {len(self.steps[0].columns)} columns keep {kept:.1%} of the objective: "
        lines = [*table, few + ", ".join(self.selected_names) + "."]
        enough = self.smallest
        if len(enough.columns) < len(self.selected):
            lines.append(
                f"{len(enough.columns)} would keep {enough.objective / self.steps[0].objective:.1%}; but other columns "
                "leave soon and these late, so that all of these are kept: some may stand for others."
            )
        return "\n".join(lines)

    @property
    def smallest(self) -> FeatureStep:
        """The step of the fewest columns that keeps enough of the objective."""
        return _smallest(self.steps, self.keep)

    def plot(self, path: str | Path | None = None) -> Figure:
        """Draw the objective against the number of columns, with matplotlib (``pip install 'pollux[report]'``).

        Parameters
        ----------
        path : path, optional
            Where to write it: PNG, SVG or PDF, by its name.
        """
        figure = new_figure(7, 3.6)
        ax = clean_axes(figure.add_subplot())
        counts = [len(step.columns) for step in self.steps]
        shares = [step.objective / self.steps[0].objective for step in self.steps]
        ax.plot(counts, shares, color="#2b6cb0", linewidth=2.2, marker="o", markersize=4.5, label="objective")
        if self.chosen.adjusted_rand_index is not None:
            scores = [step.adjusted_rand_index or 0.0 for step in self.steps]
            ax.plot(counts, scores, color="#c05621", linewidth=1.6, marker="o", markersize=3.5, label="ARI")
            ax.legend(frameon=False)
        ax.axhline(self.keep, color=QUIET, linestyle="--", linewidth=1)
        ax.axvline(len(self.chosen.columns), color=QUIET, linestyle=":", linewidth=1)
        ax.set_title(f"{len(self.chosen.columns)} of {counts[0]} columns are kept", **TITLE)
        ax.set_xlabel("columns left", color=QUIET, fontsize=9)
        ax.set_xscale("log" if counts[0] > 30 else "linear")
        ax.invert_xaxis()
        ax.grid(axis="y", color=GRID)
        if path is not None:
            with in_place(path) as temporary:
                figure.savefig(temporary, dpi=160)
        return figure


def select_features(
    clustering: GeminiClustering,
    X: Any,
    *,
    groups: Mapping[Any, Sequence[Any]] | Iterable[Sequence[Any]] | None = None,
    min_features: int = 2,
    keep: float = 0.9,
    dynamic: bool = False,
    y: Any = None,
    verbose: bool = False,
) -> FeaturePath:
    """Select the columns of X that a clustering needs: the smallest model that keeps most of the objective.

    A penalty on the weights of each column grows until few columns are left. For a linear model it is the group lasso;
    a perceptron also gets direct weights, and hidden weights of a column must vanish with them (LassoNet). Weights are
    those of standardised columns. A column that was dropped does not come back. The objective of each set of columns is
    that of a model which is trained further on them without a growing penalty.

    Parameters
    ----------
    clustering : GeminiClustering
        The clustering, with a linear model or a perceptron. If it is fitted, the path begins with its clusters; else it
        is fitted first.
    X : array or DataFrame of shape (n, d)
        The samples; of more than 5,000 so many are drawn for the path, or 1,000 where the geometry needs a matrix.
    groups : mapping or sequence of sequences, optional
        Columns, by number or name, that are kept or dropped together. The features of one column of a data frame always
        are.
    min_features : int
        The path ends when so many columns or groups are left.
    keep : float
        Share of the objective of all columns that the selected ones must keep. If some columns are dropped soon and
        others late, all that are dropped late are kept.
    dynamic : bool
        Whether the geometry, too, uses only the remaining columns, from one model to the next. Models are still
        compared by the objective in the geometry of all columns.
    y : array of shape (n,), optional
        Known classes, to score the models by; they have no influence.
    verbose : bool
        Whether to show a progress bar.

    References
    ----------
    L. Ohl, P.-A. Mattei, M. Leclercq, A. Droit, F. Precioso, "Sparse and geometry-aware generalised mutual information
    for feature selection in clustering", 2023. I. Lemhadri, F. Ruan, L. Abraham, R. Tibshirani, "LassoNet: a neural
    network with feature sparsity", 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from pollux import GeminiClustering, select_features
    >>> X = np.random.default_rng(0).normal(size=(90, 6))
    >>> X[:, [1, 4]] += np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
    >>> clustering = GeminiClustering(3, model="linear", objective="mmd_ovo", random_state=0)
    >>> select_features(clustering, X).selected
    array([1, 4])
    """
    if not isinstance(clustering, GeminiClustering):
        raise TypeError(f"select_features takes a GeminiClustering, not {type(clustering).__name__}.")
    with show_progress(verbose):
        full = clustering if clustering.__sklearn_is_fitted__() else clone(clustering).fit(X)
        names, units = _units_of(full, X)
        units = _join_groups(groups, units, names)
        samples = validate_samples(X, full, reset=False, missing=full.fitted_.missing, encoding=full.fitted_.encoding)
        steps, chosen = find_path(full, samples, units, min_features, keep, dynamic, y)
        best = clone(clustering).fit(_take_columns(X, chosen.columns, names))
    return FeaturePath(steps, chosen, tuple(names), float(keep), best)


def find_path(
    clustering: GeminiClustering,
    samples: Any,
    units: Sequence[Unit],
    min_features: int,
    keep: float,
    dynamic: bool,
    y: Any,
) -> tuple[tuple[FeatureStep, ...], FeatureStep]:
    """All steps of the path, and the chosen one, for validated samples (n, d) of a fitted clustering."""
    if isinstance(min_features, bool) or not isinstance(min_features, int | np.integer) or min_features < 1:
        raise ValueError(f"{option('min_features')} is a positive number of columns, not {min_features!r}.")
    if not 0 < keep <= 1:
        raise ValueError(f"{option('keep')} is a share of the objective, above 0 and at most 1; not {keep!r}.")
    fitted = clustering.fitted_
    spec = Spec.of(clustering, DataKind(None), fitted.chosen)
    if spec.model not in ("linear", "mlp"):
        raise InputError(
            f"Columns are selected by the weights of a linear model or a perceptron, and {option('model', spec.model)} "
            f"is neither: use {option('model', 'linear')} or {option('model', 'mlp')}."
        )
    if isinstance(fitted.geometry, Precomputed):
        raise InputError("The clustering was given the affinity of its samples: no column decides on that.")
    n, classes = samples.shape[0], None if y is None else np.asarray(y)
    if classes is not None and classes.shape != (n,):
        raise ValueError(f"y must hold a class for each of the {n} rows; its shape is {classes.shape}.")
    most = _MOST_ROWS if fitted.geometry is None or fitted.geometry.gives_features else _MOST_OF_MATRIX
    if n > most:
        drawn = np.sort(np.random.default_rng(0).permutation(n)[:most])
        samples, classes = samples[drawn], None if classes is None else classes[drawn]
    values = torch.cat(list(prepared(samples, fitted.scaling, torch.float64, "cpu").parts()))
    labels = fitted.log_probabilities(samples).argmax(1)
    with threads_for(fitted.module, len(values)):
        steps, end = _Path(spec, values, labels, units, classes, dynamic).run(int(min_features))
    return tuple(steps), _choose(steps, end, keep)


def _choose(steps: Sequence[FeatureStep], end: float, keep: float) -> FeatureStep:
    """The smallest step that keeps enough; but if some columns are dropped soon and others late, all that are late.

    ``end`` is a penalty at which the columns of the last step are still kept.
    """
    # By how much the penalty rises until the next column is dropped.
    rises = [after - step.penalty for step, after in zip(steps, [*(s.penalty for s in steps[1:]), end], strict=True)]
    before = steps[int(np.argmax(rises))]
    # In the first step no column has been dropped.
    if before is not steps[0] and max(rises) > end / 2 and before.objective >= keep * steps[0].objective:
        return before
    return _smallest(steps, keep)


def _smallest(steps: Sequence[FeatureStep], keep: float) -> FeatureStep:
    enough = [step for step in steps if step.objective >= keep * steps[0].objective]
    return min(enough, key=lambda step: len(step.columns))


class Unit(NamedTuple):
    """Columns of X that are kept or dropped together, and the features that a network sees of them."""

    columns: tuple[int, ...]
    features: tuple[int, ...]


class _Network:
    """Direct weights of all features and, for a perceptron, hidden layers beside them: inputs (n, p) → logits (n, K).

    Its parameters are a list of tensors: direct weights (p, K), biases (K,), weights of the first hidden layer (p, h),
    and those of the further layers.
    """

    def __init__(self, hidden: nn.Module | None) -> None:
        self._hidden = hidden
        self._names = [] if hidden is None else [name for name, _ in hidden.named_parameters()]

    def start(self, n_features: int, n_clusters: int) -> list[Tensor]:
        """Initial parameters: direct weights of zero, and the hidden layers unchanged."""
        direct = [torch.zeros(n_features, n_clusters).double(), torch.zeros(n_clusters).double()]
        if self._hidden is None:
            return direct
        first, *further = [parameter.detach().double() for parameter in self._hidden.parameters()]
        return [*direct, first.T.contiguous(), *further]

    def __call__(self, tensors: Sequence[Tensor], inputs: Tensor) -> Tensor:
        """Logits (n, K)."""
        logits = torch.addmm(tensors[1], inputs, tensors[0])
        if self._hidden is None:
            return logits
        layers = dict(zip(self._names, (tensors[2].T, *tensors[3:]), strict=True))
        beside: Tensor = functional_call(self._hidden, layers, (inputs,))
        return logits + beside

    def evaluate(
        self, tensors: Sequence[Tensor], inputs: Tensor, smooth: Smooth
    ) -> tuple[float, Callable[[], Sequence[Tensor]]]:
        """A function of the logits, and a function that computes its gradient with respect to all tensors."""
        if self._hidden is None:
            value, by_logits = smooth(self(tensors, inputs))
            return float(value), lambda: [inputs.T @ by_logits, by_logits.sum(0)]
        with torch.enable_grad():
            leaves = [tensor.detach().requires_grad_() for tensor in tensors]
            logits = self(leaves, inputs)
        value, by_logits = smooth(logits.detach())
        return float(value), lambda: torch.autograd.grad(logits, leaves, by_logits)


class _Path:
    """The path of models on samples ``values`` (n, p), which begins with the clusters ``labels`` (n,)."""

    def __init__(
        self,
        spec: Spec,
        values: Tensor,
        labels: Tensor,
        units: Sequence[Unit],
        classes: NDArray[Any] | None,
        dynamic: bool,
    ) -> None:
        self._spec, self._values, self._classes, self._dynamic = spec, values, classes, dynamic
        centred = values - values.mean(0)
        variance = centred.square().mean(0)
        # Scale each unit to count as one standardised column, whatever its units and the number of its features.
        scales = [math.sqrt(float(variance[list(unit.features)].sum())) for unit in units]
        smallest = 1e-9 * max(scales, default=0.0)
        varying = [(unit, scale) for unit, scale in zip(units, scales, strict=True) if scale > smallest]
        if not varying:
            raise InputError("No column of X varies: there is nothing to select.")
        self._units = [unit for unit, _ in varying]
        self._inputs = torch.cat([centred[:, list(unit.features)] / scale for unit, scale in varying], 1)
        self._objective = self._negated(self._affinity_of(values))
        p, K, hidden = self._inputs.shape[1], spec.n_clusters, None
        with DrawFrom(torch.Generator().manual_seed(0)):
            if spec.model == "mlp" and len(spec.options["hidden"]):
                hidden = mlp(p, K, hidden=spec.options["hidden"], activation=spec.mlp.activation)
        self._network = _Network(hidden)
        # The network first learns the clusters of the fit.
        one_hot = nn.functional.one_hot(labels, K).double()

        def cross_entropy(logits: Tensor) -> tuple[Tensor, Tensor]:
            log_p = logits.log_softmax(-1)
            return -(one_hot * log_p).sum(-1).mean(), (log_p.exp() - one_hot) / len(one_hot)

        self._tensors = self._descend(self._network.start(p, K), cross_entropy, _OF_LABELS)[0]

    def _descend(
        self, tensors: list[Tensor], smooth: Smooth, penalty: float, kept: Tensor | None = None
    ) -> tuple[list[Tensor], float]:
        """Minimise a function of the logits plus the penalty; returns parameters for the features ``kept`` only."""
        inputs, groups = self._inputs, self._groups()
        if kept is not None:
            inputs, groups = inputs[:, kept], torch.unique_consecutive(groups[kept], return_inverse=True)[1]
        return descend(self._network, tensors, inputs, smooth, penalty, groups)

    def _affinity_of(self, values: Tensor) -> Affinity | None:
        geometry = self._spec.resolve_geometry()
        if geometry is None:
            return None
        rows = Rows(values)
        return geometry.adapt(rows).bind(rows)(torch.arange(len(rows)))

    def _negated(self, affinity: Affinity | None) -> Smooth:
        """The negated objective of logits (n, K), and its gradient."""
        objective = self._spec.objective

        def smooth(logits: Tensor) -> tuple[Tensor, Tensor]:
            # An objective that samples pairs of clusters always draws the same ones, so that values are comparable.
            generator = None if objective.sampled_pairs is None else torch.Generator().manual_seed(0)
            value, gradient = value_and_gradient(objective, logits, affinity, None, generator)
            return -value, -gradient

        return smooth

    def _groups(self) -> Tensor:
        return torch.repeat_interleave(torch.tensor([len(unit.features) for unit in self._units]))

    def run(self, min_features: int) -> tuple[list[FeatureStep], float]:
        """All steps until ``min_features`` units are left, and a penalty at which these are still kept."""
        if min_features > len(self._units):
            raise InputError(
                f"{option('min_features', min_features)} is more than the {len(self._units)} columns or groups of X "
                "that vary."
            )
        objective = -float(self._objective(self._network(self._tensors, self._inputs))[0])
        if not objective > 0:
            raise InputError("The clustering has found one cluster only: there is nothing that columns could keep.")
        self._first = penalty = _FIRST * objective / float(group_norms(self._tensors[0], self._groups()).sum())
        self._tensors, _ = self._descend(self._tensors, self._objective, penalty)
        self._relaxed = self._tensors
        steps = [self._measure(penalty)]
        smooth, factor, halvings = self._objective, _GROWTH, 0
        with Stage("columns that have left", len(self._units) - min_features) as shown:
            while len(self._units) > min_features:
                tensors, _ = self._descend(self._tensors, smooth, penalty * factor)
                stays = group_norms(tensors[0], self._groups()) > 0
                left, gone = int(stays.sum()), len(stays) - int(stays.sum())
                is_many = gone > max(1, _LEAVING * len(stays)) or left < min_features
                if is_many and halvings < _HALVINGS:
                    factor, halvings = math.sqrt(factor), halvings + 1
                    continue
                if is_many or (gone and self._clusters_of(tensors) < steps[0].n_clusters):
                    # Clusters merge before the last columns are dropped: the penalty then says when, but not which.
                    weakest = self._drop_weakest(len(stays) - min_features)
                    tensors = tensors if bool((weakest == stays).all()) else self._tensors
                    stays, left, gone = weakest, int(weakest.sum()), len(stays) - int(weakest.sum())
                self._tensors, penalty, factor, halvings = tensors, penalty * factor, _GROWTH, 0
                if not gone:
                    continue
                self._select(stays)
                if self._dynamic:
                    kept = [feature for unit in self._units for feature in unit.features]
                    smooth = self._negated(self._affinity_of(self._values[:, kept]))
                self._relaxed, _ = self._descend(self._relaxed, self._objective, self._first)
                steps.append(self._measure(penalty))
                share = f"{left} columns keep {steps[-1].objective / objective:.0%} of the objective"
                shown.update((shown.total or 0) - left + min_features, detail=share)
        while True:
            self._tensors, _ = self._descend(self._tensors, smooth, 2 * penalty)
            is_over = bool((group_norms(self._tensors[0], self._groups()) == 0).any())
            if is_over or self._clusters_of(self._tensors) < steps[0].n_clusters:
                return steps, penalty
            penalty *= 2

    def _drop_weakest(self, most: int) -> Tensor:
        """Mask of units to keep (G,), without the least important; of many units up to ``most`` are dropped at once."""
        groups, stays = self._groups(), torch.ones(len(self._units), dtype=torch.bool)
        norms = group_norms(self._relaxed[0], groups)
        if len(stays) > _TRIED:
            stays[norms.argsort()[: min(most, int(_LEAVING * len(stays)))]] = False
            return stays
        costs = []
        for unit in range(len(stays)):
            kept = torch.nonzero(groups != unit).flatten()
            costs.append(self._descend(_cut(self._relaxed, kept), self._objective, self._first, kept)[1])
        # Among those that hardly matter, drop the one with the smallest weights.
        hardly = torch.tensor(costs) <= min(costs) + _HARDLY * abs(min(costs))
        stays[int(torch.where(hardly, group_norms(self._tensors[0], groups), math.inf).argmin())] = False
        return stays

    def _clusters_of(self, tensors: Sequence[Tensor]) -> int:
        return int((self._network(tensors, self._inputs).argmax(1).bincount() > 0).sum())

    def _select(self, stays: Tensor) -> None:
        kept = torch.nonzero(stays[self._groups()]).flatten()
        self._tensors, self._relaxed = _cut(self._tensors, kept), _cut(self._relaxed, kept)
        self._inputs = self._inputs[:, kept].contiguous()
        self._units = [unit for unit, stay in zip(self._units, stays.tolist(), strict=True) if stay]

    def _measure(self, penalty: float) -> FeatureStep:
        """Train the model of the remaining columns at the first penalty."""
        logits = self._network(self._relaxed, self._inputs)
        labels = logits.argmax(1).numpy()
        ari = None if self._classes is None else float(adjusted_rand_index(self._classes, labels))
        columns = tuple(sorted(column for unit in self._units for column in unit.columns))
        return FeatureStep(penalty, -float(self._objective(logits)[0]), columns, len(np.unique(labels)), ari)


def _cut(tensors: Sequence[Tensor], kept: Tensor) -> list[Tensor]:
    """The parameters of a network with the features ``kept`` only."""
    return [tensor[kept] if at in (0, 2) else tensor for at, tensor in enumerate(tensors)]


@torch.no_grad()
def descend(
    network: _Network, here: list[Tensor], inputs: Tensor, smooth: Smooth, penalty: float, groups: Tensor
) -> tuple[list[Tensor], float]:
    """Minimise ``smooth`` of the logits plus the penalty by proximal gradient; returns the minimiser and the value.

    Step sizes follow the curvature along the last step (Barzilai and Borwein), and are reduced where the value would
    not fall.
    """
    shapes, sizes = [tensor.shape for tensor in here], [tensor.numel() for tensor in here]

    def views(point: Tensor) -> list[Tensor]:
        return [part.view(shape) for part, shape in zip(torch.split_with_sizes(point, sizes), shapes, strict=True)]

    def joined(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([tensor.flatten() for tensor in tensors])

    def proximal(point: Tensor, step: float) -> float:
        """Take a proximal step; returns the penalty at the new point."""
        direct, _, *further = views(point)
        shrunk, hidden, norms = shrink_groups(direct, groups, step * penalty, further[0] if further else None)
        direct.copy_(shrunk)
        if hidden is not None:
            further[0].copy_(hidden)
        return penalty * float(norms.sum())

    # All parameters as one vector. The initial point must satisfy the bound on hidden weights, too.
    point = joined(here)
    cost = proximal(point, 0.0)
    value, backward = network.evaluate(views(point), inputs, smooth)
    gradient, best, step, quiet = joined(backward()), value + cost, 1.0, 0
    for _ in range(_ITERATIONS):
        while True:
            there = torch.sub(point, gradient, alpha=step)
            cost = proximal(there, step)
            move = there - point
            length = float(move @ move)
            value, backward = network.evaluate(views(there), inputs, smooth)
            if value + cost <= best - _FALL * length / step or step < 1e-12:
                break
            step /= 2
        if not value + cost < best:
            break
        after = joined(backward())
        bent = float(move @ (after - gradient))
        step = length / bent if bent * _LONGEST > length else _LONGEST
        quiet = quiet + 1 if best - value - cost < _TOLERANCE * abs(best) else 0
        point, gradient, best = there, after, value + cost
        if quiet >= _QUIET_ITERATIONS:
            break
    return views(point), best


def group_norms(weights: Tensor, groups: Tensor) -> Tensor:
    """Euclidean norms (G,) of the rows of weights (p, K) in each group; ``groups`` (p,) numbers them from 0."""
    squares, G = weights.square().sum(1), int(groups[-1]) + 1
    # Usually each column is a group of its own.
    return (squares if len(squares) == G else squares.new_zeros(G).index_add(0, groups, squares)).sqrt()


def shrink_groups(
    direct: Tensor, groups: Tensor, threshold: float, hidden: Tensor | None = None, ratio: float = _RATIO
) -> tuple[Tensor, Tensor | None, Tensor]:
    """The proximal operator of threshold · Σ ‖direct of a group‖, hidden weights being at most ratio times the norm.

    Returns both results, and the norms (G,).

    It minimises ½‖θ − direct‖² + ½‖W − hidden‖² + threshold · Σ_g ‖θ_g‖ subject to |W| ≤ ratio · ‖θ_g‖ in each group.
    For a given norm b the best θ points along direct, and the best W is clipped at ratio · b: what remains is a convex
    function of b, quadratic between the sizes of hidden weights.

    Parameters
    ----------
    direct, hidden : Tensor of shape (p, K), (p, h)
        Rows of features.
    groups : Tensor of shape (p,)
        The group of each row, from 0, ascending.
    threshold, ratio : float
        See above; without hidden weights this is the group lasso.
    """
    norms = group_norms(direct, groups)
    if hidden is None:
        wanted = (norms - threshold).clamp_min(0)
        shares = wanted / norms.clamp_min(1e-300)
        return direct * (shares if len(shares) == len(groups) else shares[groups])[:, None], None, wanted
    counts = torch.bincount(groups)
    place = torch.arange(len(groups)) - (counts.cumsum(0) - counts)[groups]
    sizes = hidden.new_zeros(len(counts), int(counts.max()), hidden.shape[1])
    sizes[groups, place] = hidden.abs()
    falling = sizes.flatten(1).sort(1, descending=True).values
    none = falling.new_zeros(len(falling), 1)
    # The norm if the s largest hidden weights are clipped; s is right if no further one exceeds its bound.
    sums = torch.cat([none, falling.cumsum(1)], 1)
    numbers = torch.arange(sums.shape[1], dtype=sums.dtype)
    candidates = (norms[:, None] + ratio * sums - threshold).clamp_min(0) / (1 + numbers * ratio**2)
    fits = ratio * candidates >= torch.cat([falling, none], 1)
    wanted = candidates.gather(1, fits.to(torch.uint8).argmax(1, keepdim=True)).squeeze(1)
    bound = (ratio * wanted)[groups, None]
    hidden = hidden.clamp(-bound, bound)
    # If all direct weights are zero, any direction is as good.
    even = 1 / (counts.sqrt()[groups, None] * math.sqrt(direct.shape[1]))
    directions = torch.where(norms[groups, None] > 0, direct / norms.clamp_min(1e-300)[groups, None], even)
    return directions * wanted[groups, None], hidden, wanted


def _units_of(clustering: GeminiClustering, X: Any) -> tuple[list[str], list[Unit]]:
    """Names of the columns of X, and the units to select: each column with its features."""
    fitted = clustering.fitted_
    if len(fitted.shape) != 1 or not isinstance(fitted.shape[0], int):
        raise InputError(f"select_features takes rows of a table; samples of shape {fitted.shape} have no columns.")
    scaling = fitted.scaling
    mixes = isinstance(scaling, FittedScaling) and scaling.axes is not None
    if isinstance(scaling, FittedTransformer):
        steps = [step for _, step in getattr(scaling.transformer, "steps", [("", scaling.transformer)])]
        mixes = not all(isinstance(step, OneToOneFeatureMixin) for step in steps)
    if mixes:
        raise InputError(
            "The preprocessing mixes columns, so that none can be left out: use one that keeps them apart "
            f"({option('n_components', None, group='Scaling')})."
        )
    given = getattr(X, "column_names", None) or getattr(X, "columns", None)
    names = [f"x{at}" for at in range(fitted.shape[0])] if given is None else list(map(str, given))
    return names, units_of(fitted.encoding, names, fitted.shape[0])


def units_of(encoding: Encoding | None, names: Sequence[str], n_features: int) -> list[Unit]:
    """Each column as a unit of its own: the features that a table's encoding makes of it, or itself."""
    if not isinstance(encoding, TableEncoding):
        return [Unit((at,), (at,)) for at in range(n_features)]
    units, first = [], 0
    for column in encoding.columns:
        width = len(column.feature_names)
        units.append(Unit((names.index(column.name),), tuple(range(first, first + width))))
        first += width
    return units


def _join_groups(groups: Any, units: Sequence[Unit], names: Sequence[str]) -> list[Unit]:
    """The units, with those of each group joined."""
    if groups is None:
        return list(units)
    of_column = {unit.columns[0]: unit for unit in units}
    joined: list[Unit] = []
    named: set[int] = set()
    for group in groups.values() if isinstance(groups, Mapping) else groups:
        if isinstance(group, str) or not isinstance(group, Iterable):
            raise TypeError(f"groups holds sequences of columns, such as [[0, 1], [4, 5, 6]]; not {group!r}.")
        columns: list[int] = []
        for column in group:
            at = names.index(column) if isinstance(column, str) and column in names else column
            if isinstance(at, bool) or not isinstance(at, int | np.integer) or not 0 <= at < len(names):
                raise InputError(f"groups names {column!r}, and X has no such column.")
            number = int(at)
            if number in named:
                raise InputError(f"groups names the column {names[number]!r} twice: a column is in one group at most.")
            named.add(number)
            # Columns that the clustering does not use are ignored.
            columns += [number] if number in of_column else []
        if columns:
            features = tuple(feature for at in columns for feature in of_column[at].features)
            joined.append(Unit(tuple(columns), features))
    return joined + [unit for unit in units if unit.columns[0] not in named]


def _take_columns(X: Any, columns: Sequence[int], names: Sequence[str]) -> Any:
    """Some columns of an array, a sparse matrix or a data frame."""
    if hasattr(X, "iloc"):
        return X.iloc[:, list(columns)]
    if hasattr(X, "select") and hasattr(X, "columns"):
        return X.select([names[at] for at in columns])
    return (X if hasattr(X, "shape") else np.asarray(X))[:, list(columns)]

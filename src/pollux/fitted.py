"""The result of a fit, which model files, export, report and selection read."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from pollux.data.arrow import quoted
from pollux.data.encoding import Category, Decision, Decisions, Encoding, TableEncoding, warn_of_class
from pollux.data.rows import Rows, Several
from pollux.data.samples import ArraySamples, Loader, Samples, StreamSamples
from pollux.data.scaling import FittedScaling, FittedTransformer, prepared
from pollux.errors import InputError
from pollux.geometry import Geometry
from pollux.inspection.confidence import Confidence
from pollux.inspection.outliers import SAMPLED, Prototypes
from pollux.inspection.structure import LOOKED_AT, Structure, look_for_structure
from pollux.metrics import agreement
from pollux.models import FreeTable
from pollux.progress import track
from pollux.spec import Spec
from pollux.threads import iterate_drawing, small_on_one
from pollux.training.hints import BoundHints
from pollux.training.problem import Evaluation, MemoryProblem, StreamProblem, log_probabilities
from pollux.training.restarts import BestRestart
from pollux.transport.assignment import assign, resolve_sizes

_PREDICTED_ROWS = 10_000
# The range of fewer samples says little about where new samples may lie.
_FEWEST_OF_A_RANGE = 10
_MOST_OBSERVED = 4_000_000


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained model p(y|x), the order of its clusters, the preprocessing of samples, and the training history.

    Parameters
    ----------
    module : nn.Module
        The network, from samples as it sees them to logits (n, K).
    order : Tensor of shape (K,)
        The output of the network for each cluster k: by decreasing size, empty ones last; known clusters by number.
    shape, dtype, device : tuple, torch.dtype, str
        The shape of a sample before scaling, for several inputs that of each; the dtype and device of the network.
    history : dict of lists
        ``objective``, ``clusters`` and ``entropy`` of each epoch.
    objective, n_clusters : float, int
        The objective at the end, and the clusters in use.
    stability : float, optional
        The mean adjusted Rand index over pairs of restarts.
    diverged : bool
        Whether training ended because the objective became NaN or infinite.
    geometry : Geometry, optional
        The fitted geometry.
    scaling : FittedScaling, optional
        The fitted scaling of samples.
    encoding : Encoding, optional
        The encoding of the columns of a table.
    feature_names : tuple of str
        Names of the features, if they are known.
    missing : {"error", "mean"}
        Whether samples may hold NaN.
    takes_integers : bool
        Whether the network takes integers, such as tokens.
    batch_size : int, optional
        Maximum number of samples in a step of the training; model files of old versions lack it.
    given_labels : array of shape (n,), optional
        Clusters of the samples of the fit; −1 for those of weight zero that a free table has not seen.
    source : Stream or Loader, optional
        The samples of the fit, if they were streamed.
    recipe : str, optional
        The recipe that was used, None if the method was set explicitly.
    chosen : dict
        The values that replaced "auto", by the names of parameters.
    optimiser_state : dict, optional
        The state of the optimiser, from which ``partial_fit`` continues.
    cluster_names : tuple of str
        Short names of the clusters, if they have any: ``pollux fit`` gives them.
    given_range : Tensor of shape (2, d), optional
        Minimum and maximum of each feature of the training samples, if these are vectors in memory.
    given_prototypes : Prototypes, optional
        Prototypes of the training samples, by which new samples are scored; model files of old versions lack them.
    hint_violations : dict, optional
        Number of violated hints of each kind, if any were given.
    confidence : Confidence, optional
        How often other trainings agree, if that was assessed.
    given_structure : Structure, optional
        Whether clusters are there, if that was already computed.
    observed : Tensor of shape (m, …), optional
        Some of the samples as the network sees them, from which ``structure`` is computed. Neither files nor
        pickles hold them.
    """

    module: nn.Module
    order: Tensor
    shape: tuple[Any, ...]
    dtype: torch.dtype
    device: str
    history: dict[str, list[float]]
    objective: float
    n_clusters: int
    stability: float | None = None
    diverged: bool = False
    geometry: Geometry | None = None
    scaling: FittedScaling | FittedTransformer | None = None
    encoding: Encoding | None = None
    feature_names: tuple[str, ...] = ()
    missing: str = "error"
    takes_integers: bool = False
    batch_size: int | None = None
    given_labels: NDArray[np.int64] | None = None
    source: StreamSamples | None = field(default=None, repr=False)
    recipe: str | None = None
    chosen: Mapping[str, Any] = field(default_factory=dict)
    optimiser_state: dict[str, Any] | None = field(default=None, repr=False)
    cluster_names: tuple[str, ...] = ()
    given_range: Tensor | None = field(default=None, repr=False)
    given_prototypes: Prototypes | None = field(default=None, repr=False)
    hint_violations: dict[str, int] | None = None
    confidence: Confidence | None = None
    given_structure: Structure | None = None
    observed: Tensor | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        # Rows of the data are not saved with a model.
        return {**vars(self), "observed": None, "given_structure": self.known_structure}

    def __deepcopy__(self, memo: dict[int, Any]) -> Fitted:
        # Unlike a pickle, a copy in memory keeps the observed rows.
        copied = object.__new__(Fitted)
        memo[id(self)] = copied
        vars(copied).update(copy.deepcopy(vars(self), memo))
        return copied

    @staticmethod
    def of(
        spec: Spec,
        samples: Samples,
        scaling: FittedScaling | FittedTransformer | None,
        problem: MemoryProblem | StreamProblem,
        best: BestRestart,
        hints: BoundHints | None = None,
        prototypes: Prototypes | None = None,
    ) -> Fitted:
        """The best model of a fit, with clusters ordered by their sizes among all samples.

        The model may have been trained on a subsample.
        """
        evaluation = best.evaluation
        fitted = Fitted(
            module=best.module,
            order=torch.arange(len(evaluation.sizes)),
            shape=samples.shape,
            dtype=problem.dtype,
            device=problem.device,
            history=best.history,
            objective=evaluation.objective,
            n_clusters=0,
            diverged=best.diverged,
            geometry=problem.geometry,
            scaling=scaling,
            missing=spec.preprocessing.missing,
            takes_integers=problem.takes_integers,
            batch_size=best.batch_size,
            encoding=samples.encoding,
            feature_names=samples.feature_names,
            source=samples if isinstance(samples, StreamSamples) else None,
            recipe=spec.recipe,
            chosen=spec.chosen,
            given_range=_range_of(problem.samples if isinstance(problem, MemoryProblem) else samples),
            given_prototypes=_prototypes_of(problem, prototypes),
            observed=_some_of(problem),
        )
        if isinstance(problem, MemoryProblem) and problem.samples is not samples:
            evaluation = fitted._evaluate_all(samples)
        order = torch.argsort(evaluation.sizes, descending=True, stable=True)
        if hints is not None:
            order = hints.order(evaluation.sizes)
            fitted = replace(fitted, hint_violations=hints.violations(hints.predict(best.module)))
        fitted = replace(fitted, order=order, n_clusters=int((evaluation.sizes > 0).sum()))
        if len(best.choices) > 1 and len(order) > 1:
            # With n_clusters=1 all restarts agree, which says nothing.
            fitted = replace(fitted, stability=agreement([choice.numpy() for choice in best.choices]))
        if isinstance(samples, StreamSamples):
            return fitted
        assert evaluation.choice is not None
        labels = np.full(len(samples.selected), -1, dtype=np.int64)
        labels[samples.selected] = torch.argsort(order)[evaluation.choice].numpy()
        if samples.left_out is not None and not fitted.is_free:
            # Samples of weight zero were not trained on, so their clusters are predicted.
            labels[~samples.selected] = fitted.probabilities(samples.left_out).argmax(1)
        return replace(fitted, given_labels=labels)

    def _evaluate_all(self, samples: Samples) -> Evaluation:
        """The clusters of all samples and their sizes, for a model that was trained on a subsample."""
        K = len(self.order)
        if isinstance(samples, ArraySamples):
            choice = self.log_probabilities(samples.X).argmax(1)
            weight = None if samples.sample_weight is None else samples.sample_weight.cpu()
            return Evaluation(self.objective, torch.bincount(choice, weight, minlength=K), choice)
        sizes = torch.zeros(K, dtype=torch.long)
        # The order of a loader's samples does not matter here, and iterating must not use the caller's random numbers.
        parts: Iterable[Any]
        parts = iterate_drawing(samples, torch.Generator()) if isinstance(samples, Loader) else samples.in_order()
        for rows in track(
            parts, "labelling rows, part", None if isinstance(samples, Loader) else len(samples.chunks.lengths)
        ):
            sizes += torch.bincount(self.log_probabilities(rows).argmax(1), minlength=K)
        return Evaluation(self.objective, sizes, None)

    def after(self, earlier: Fitted) -> Fitted:
        """The result of a further epoch, with all that this epoch does not change taken from the earlier one."""
        return replace(
            self,
            history={name: values + self.history[name] for name, values in earlier.history.items()},
            stability=earlier.stability,
            geometry=earlier.geometry,
            encoding=earlier.encoding,
            feature_names=earlier.feature_names,
            missing=earlier.missing,
            recipe=earlier.recipe,
            chosen=earlier.chosen,
            given_range=earlier.given_range
            if self.given_range is None or earlier.given_range is None
            else torch.stack(
                [
                    torch.fmin(self.given_range[0], earlier.given_range[0]),
                    torch.fmax(self.given_range[1], earlier.given_range[1]),
                ]
            ),
        )

    @property
    def columns(self) -> Decisions:
        """How each column was used, if the samples have named columns."""
        if self.encoding is not None:
            return self.encoding.decisions
        names = [str(name) for name in self.feature_names]
        if self.given_range is None or self.given_range.shape[1] != len(names):
            return Decisions(Decision(name, "number", True) for name in names)
        ends = zip(names, self.given_range.T.tolist(), strict=True)
        return Decisions(Decision(name, "number", True, warn_of_class(name, *own)) for name, own in ends)

    def far_outside(self, X: Any) -> tuple[int, list[str]]:
        """Count the validated samples X (n, …) that are unlike the training samples, and name the features concerned.

        Such samples lie outside the range of a feature by more than its width; or at all, if most samples do, as when a
        column comes in another unit.
        """
        # Nothing is read from a stream just for this.
        ends = vars(self).get("_learned_from_some", (None, None))[1] if self.given_range is None else self.given_range
        if ends is None or not isinstance(X, np.ndarray) or not len(X):
            return 0, []
        low, high = ends.numpy()
        with np.errstate(invalid="ignore", over="ignore"):
            width = high - low
            outside = ((low - width > X) | (high + width < X)) & (width > 0)
            beyond = ((low > X) | (high < X)) & (width > 0)
        outside |= beyond & (len(X) >= _FEWEST_OF_A_RANGE) & (beyond.mean(0) > 0.5)
        names = self.feature_names if self.encoding is None else self.encoding.feature_names
        features = np.flatnonzero(outside.any(0)).tolist()
        return int(outside.any(1).sum()), [str(names[index]) if names else str(index) for index in features]

    @property
    def is_free(self) -> bool:
        """Whether the model is a free table of probabilities, which cannot predict new samples."""
        return isinstance(self.module, FreeTable)

    @property
    def network_shape(self) -> tuple[int, ...]:
        """The shape of a sample as the network sees it."""
        return self.shape if self.scaling is None else self.scaling.shape

    @property
    def temperature(self) -> float:
        """Divisor of log-probabilities that calibrates probabilities to the agreement with other trainings."""
        return 1.0 if self.confidence is None else float(self.confidence.temperature)

    def log_probabilities(self, X: Any) -> Tensor:
        """log p(y|x) (n, K) of samples X (n, …) at temperature 1; they differ even where probabilities are 0 or 1."""
        rows = prepared(X, self.scaling, torch.int64 if self.takes_integers else self.dtype, self.device)
        parts = [
            log_probabilities(self.module, rows[index], len(self.order)).cpu()[:, self.order]
            for index in track(torch.split(torch.arange(len(rows)), _PREDICTED_ROWS), "labelling rows, part")
        ]
        return torch.cat(parts)

    def probabilities(self, X: Any) -> NDArray[np.floating[Any]]:
        """p(y|x) (n, K) of validated samples X (n, …)."""
        log_p = self.log_probabilities(X)
        if self.temperature != 1:
            log_p = (log_p / self.temperature).log_softmax(1)
        # By NumPy, because torch computes exponentials on all its threads, however few there are.
        probabilities: NDArray[np.floating[Any]] = np.exp(log_p.numpy())
        if not np.isfinite(probabilities).all():
            raise ValueError(
                "The model returned NaN for some samples: their values are too large for its arithmetic. "
                "Scale them as the training data were."
            )
        return probabilities

    @property
    def prototypes(self) -> Prototypes | None:
        """Prototypes of the training samples, for scores; computed on first access for streamed samples."""
        return self._learned_from_some[0] if self.given_prototypes is None else self.given_prototypes

    @property
    def range(self) -> Tensor | None:
        """Minimum and maximum of each feature (2, d); computed on first access for streamed samples."""
        return self._learned_from_some[1] if self.given_range is None else self.given_range

    @cached_property
    def _learned_from_some(self) -> tuple[Prototypes | None, Tensor | None]:
        """Prototypes and ranges of a subsample of the streamed samples, if these can still be read."""
        if self.source is None or self.source.has_several_inputs:
            return None, None
        # The files may have been removed since.
        with contextlib.suppress(OSError, InputError):
            some = self.source.sample(SAMPLED)
            return Prototypes.learn(prepared(some, self.scaling, self.dtype, "cpu")), _range_of_rows(some)
        return None, None

    @cached_property
    def structure(self) -> Structure | None:
        """Whether clusters are there, judged from some of the samples; computed on first access."""
        if self.given_structure is not None or self.is_free or self.n_clusters < 2:
            return self.given_structure
        observed = self.observed
        if observed is None and self.source is not None and not isinstance(self.source, Loader):
            with contextlib.suppress(OSError, InputError):
                observed = prepared(self.source.sample(LOOKED_AT), self.scaling, self.dtype, "cpu").sample(LOOKED_AT)
        if observed is None:
            return None

        def log_p(points: NDArray[np.float64]) -> NDArray[np.float64]:
            seen = torch.from_numpy(points).to(self.device, self.dtype).reshape(len(points), *self.network_shape)
            return log_probabilities(self.module, seen, len(self.order)).cpu().double().numpy()

        X = observed.flatten(1).double().numpy()
        with small_on_one(*X.shape):
            return look_for_structure(X, log_p, self.n_clusters, self._columns_of_few_values(X))

    def _columns_of_few_values(self, X: NDArray[np.float64]) -> dict[str, list[int]]:
        """Features in X (n, d), as the network sees them, of categorical and two-valued columns, by column."""
        if len(self.shape) != 1 or isinstance(self.scaling, FittedTransformer) or self.network_shape != self.shape:
            return {}
        if self.scaling is not None and self.scaling.axes is not None:
            return {}
        encoding, first = self.encoding, 0
        if isinstance(encoding, TableEncoding):
            found: dict[str, list[int]] = {}
            for column in encoding.columns:
                width = len(column.feature_names)
                own = list(range(first, first + width))
                if isinstance(column, Category) or (width == 1 and _has_two_values(X[:, first])):
                    found[column.name] = own
                first += width
            return found
        names = self.feature_names or [str(index) for index in range(X.shape[1])]
        return {name: [at] for at, name in enumerate(names) if _has_two_values(X[:, at])}

    @property
    def known_structure(self) -> Structure | None:
        """The structure, if it was already computed."""
        found: Structure | None = vars(self).get("structure", self.given_structure)
        return found

    def scores(self, X: Any) -> NDArray[np.float64]:
        """How well validated samples X (n, …) fit in with the training samples, (n,): −1 is typical, lower is worse."""
        if self.prototypes is None:
            raise ValueError(
                "The model does not know how far its samples lay apart: it is from a file of an older version, or has "
                "several inputs. Fit it anew to score samples."
            )
        rows = prepared(X, self.scaling, self.dtype, self.device)
        return torch.cat([self.prototypes.score(part) for part in rows.parts()]).numpy()

    def find_outliers(self, X: Any, share: float) -> NDArray[np.bool_]:
        """Mask of the validated samples X (n, …) that fit in less well than this share of the training samples does."""
        scores = self.scores(X)
        assert self.prototypes is not None
        return scores < self.prototypes.threshold(share)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """Clusters of the samples of the fit; those of streamed samples are predicted on first access."""
        if self.given_labels is not None:
            return self.given_labels
        if self.source is None:
            raise AttributeError("The labels of streamed samples are not kept in files: predict those that you need.")
        return np.concatenate([self.probabilities(rows).argmax(1) for rows in self.source.in_order()])

    def with_sizes(self, samples: Samples, min_size: Any, max_size: Any, hints: BoundHints | None = None) -> Fitted:
        """A copy with the most likely labels for which the sizes of clusters lie within these bounds, if there are any.

        Samples whose cluster is known stay there, if sizes allow it. Clusters are numbered by these sizes, unless some
        are known by their numbers.
        """
        if not isinstance(samples, ArraySamples) or (min_size is None and max_size is None):
            return self
        n, K = int(samples.selected.sum()), len(self.order)
        if isinstance(self.module, FreeTable):
            log_p = self.module.logits.detach().cpu().log_softmax(1)[:, self.order]
        else:
            log_p = self.log_probabilities(samples.X)
        scores = log_p.double().numpy().copy()
        known = hints is not None and len(hints.hints.rows) > 0
        if hints is not None and known:
            place = (np.cumsum(samples.selected) - 1)[hints.hints.rows]
            # A high cost, but not an infinite one: sizes may require that a known sample changes its cluster.
            elsewhere = np.arange(K) != hints.hints.labels[:, None]
            scores[place] -= elsewhere * 1e3 * max(1.0, float(np.ptp(scores)))
        chosen = assign(scores, *resolve_sizes(min_size, max_size, n, K))
        sizes = np.bincount(chosen, minlength=K)
        order = np.arange(K) if known else np.argsort(-sizes, kind="stable")
        number = np.argsort(order)
        labels = np.full(len(samples.selected), -1, dtype=np.int64)
        labels[samples.selected] = number[chosen]
        if not self.is_free:
            # Samples of weight zero keep their predicted clusters.
            labels[~samples.selected] = number[self.labels[~samples.selected]]
        violations = None if hints is None else hints.violations(torch.from_numpy(labels[hints.used]))
        return replace(
            self,
            order=self.order[torch.from_numpy(order)],
            n_clusters=int((sizes > 0).sum()),
            given_labels=labels,
            hint_violations=violations,
        )

    def free_probabilities(self) -> NDArray[np.floating[Any]]:
        """p(y|x) (n, K) of the samples of a free table; uniform for samples of weight zero, which it has not seen."""
        assert isinstance(self.module, FreeTable)
        seen = self.module.logits.detach().cpu().softmax(1)[:, self.order].numpy()
        probabilities = np.full((len(self.labels), seen.shape[1]), 1 / seen.shape[1], dtype=seen.dtype)
        probabilities[self.labels >= 0] = seen
        return probabilities


def check_sizes(samples: Samples, n_clusters: int, min_size: Any, max_size: Any) -> None:
    """Raise an InputError if clusters of these samples cannot have such sizes."""
    if min_size is None and max_size is None:
        return
    if not isinstance(samples, ArraySamples):
        raise InputError("Sizes are those of rows in memory: fit without them, and assign rows afterwards.")
    if np.asarray(min_size).ndim or np.asarray(max_size).ndim:
        raise InputError("Before a fit clusters have no numbers: give one size for all; assign takes several.")
    resolve_sizes(min_size, max_size, int(samples.selected.sum()), n_clusters)


def say_outside(count: int, features: Sequence[str], n: int) -> list[str]:
    """Sentences about ``count`` of n samples that lie far outside the training data; none if there are few."""
    if count <= 0.01 * n:
        return []
    where = f"far outside the data of the training, in {quoted(features, 5)}"
    return [f"{count / n:.0%} of the samples lie {where}: their clusters are guesses"]


def _range_of(samples: Samples) -> Tensor | None:
    return _range_of_rows(samples.X) if isinstance(samples, ArraySamples) else None


def _range_of_rows(X: Any) -> Tensor | None:
    if not isinstance(X, np.ndarray) or X.ndim != 2 or len(X) < _FEWEST_OF_A_RANGE:
        return None
    ends = [end.reduce(X, axis=0) for end in (np.fmin, np.fmax)]
    return torch.from_numpy(np.stack(ends).astype(np.float64))


def _prototypes_of(problem: MemoryProblem | StreamProblem, earlier: Prototypes | None) -> Prototypes | None:
    """Prototypes of samples in memory, unless earlier ones are as good; a fit does not read a stream again for them."""
    if isinstance(problem, StreamProblem) or isinstance(problem.samples.X, Several):
        return None
    rows = _with_copies(problem)
    return Prototypes.learn(rows) if earlier is None or earlier.are_few_for(len(rows)) else earlier


def _with_copies(problem: MemoryProblem) -> Rows:
    """All samples, including the duplicates that were merged for training."""
    copies = problem.samples.copies
    return problem.rows if copies is None else problem.rows.part(torch.from_numpy(copies))


def _some_of(problem: MemoryProblem | StreamProblem) -> Tensor | None:
    if isinstance(problem, StreamProblem) or isinstance(problem.samples.X, Several) or problem.takes_integers:
        return None
    d = max(1, math.prod(problem.rows.shape))
    return _with_copies(problem).sample(max(1, min(LOOKED_AT, _MOST_OBSERVED // d))).cpu()


def _has_two_values(values: NDArray[np.float64]) -> bool:
    return bool(np.isin(values, (values.min(), values.max())).all())

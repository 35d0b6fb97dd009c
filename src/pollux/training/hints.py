"""Hints of the user: known clusters of some samples, and pairs that must or cannot be linked."""

from __future__ import annotations

import hashlib
import heapq
import math
import numbers
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from pollux.data.rows import Rows
from pollux.data.samples import ArraySamples, Samples
from pollux.data.scaling import FittedScaling, FittedTransformer, prepared
from pollux.data.streams import Stream
from pollux.errors import InputError, option
from pollux.geometry import NeighbourGraph
from pollux.geometry.mixtures import REGULARISATION, Mixture, Mixtures, learn_points, normalise, some_of, weight_of
from pollux.geometry.spectral import distinct
from pollux.metrics import match_clusters
from pollux.objectives.penalties import Model
from pollux.spec import Spec
from pollux.training.problem import MemoryProblem, Problem, log_probabilities

_AT_ONCE = 256
# Known samples, and pairs of each kind, that are drawn for a step.
_KNOWN_OF_A_STEP, _PAIRS_OF_A_STEP = 256, 128
# Maximum number of steps of the search whether there are enough clusters for all cannot-link pairs.
_MOST_STEPS = 5_000
# Weight of labels that were learned from known ones, relative to these.
_SHARE_OF_LEARNED = 0.5
_SPREADING, _SPREADING_STEPS = 0.9, 50
_SPREAD_NEIGHBOURS, _FOLDS, _ITERATIONS = 10, 5, 100
# A mixture constrained by hints: number of principal components, minimum and maximum number of samples, and maximum
# size of the data that components are learned from; iterations, which are fewer if there are many products, and the
# tolerance on the mean log-density, which is small because known samples move components slowly.
_MIXED_COMPONENTS, _FEWEST_MIXED, _MOST_MIXED, _MOST_NUMBERS = 20, 500, 5_000, 20_000_000
_FEWEST_STEPS, _MIXING_STEPS, _MOST_PRODUCTS, _MIXING_TOLERANCE = 5, 60, 1e10, 1e-5
# Rounds in which linked groups of samples choose their clusters, given the choices of the others.
_ROUNDS, _UNLIKELY = 10, 1e-100

Pairs = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Hints:
    """Hints on the n samples of a fit, by row number, checked for contradictions.

    Parameters
    ----------
    n_clusters : int
        Number of clusters.
    rows, labels : arrays of shape (m,)
        Samples whose cluster is known, and its number; also those that must be linked to such a sample.
    must_link, cannot_link : arrays of shapes (a, 2), (b, 2)
        Pairs of samples.
    given_rows, given_labels : arrays
        The known samples and labels as they were given.
    weight : float
        Weight of the hints relative to the objective.
    """

    n_clusters: int
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    must_link: Pairs
    cannot_link: Pairs
    given_rows: NDArray[np.int64]
    given_labels: NDArray[np.int64]
    weight: float = 10.0

    @staticmethod
    def gather(
        n: int, n_clusters: int, must_link: Any = None, cannot_link: Any = None, known: Any = None, weight: float = 10.0
    ) -> Hints:
        """Check the hints on n samples, and add what follows from them.

        Samples that must be linked, also indirectly, are in one cluster.
        """
        if not 0 < weight < np.inf:
            raise InputError(f"{option('hint_weight')} is a positive number, not {weight!r}.")
        must, cannot = (_check_pairs(must_link, n, "must_link"), _check_pairs(cannot_link, n, "cannot_link"))
        labels = np.full(n, -1) if known is None else _check_known(known, n, n_clusters)
        part = _linked_parts(must, n)
        given = np.flatnonzero(labels >= 0)
        # The first known sample of each group represents it in messages.
        of_part, speaker = np.full(n, -1), np.full(n, -1)
        for row in given[::-1]:
            of_part[part[row]], speaker[part[row]] = labels[row], row
        differing = given[of_part[part[given]] != labels[given]]
        if len(differing):
            one, other = int(speaker[part[differing[0]]]), int(differing[0])
            raise InputError(
                f"Rows {one} and {other} are known to be of clusters {labels[one]} and {labels[other]}, and must be "
                f"linked, perhaps by way of others ({option('must_link')}): take one of the two back."
            )
        first, second = part[cannot].T if len(cannot) else np.empty((2, 0), dtype=np.int64)
        clashing = np.flatnonzero((first == second) | ((of_part[first] == of_part[second]) & (of_part[first] >= 0)))
        if len(clashing):
            one, other = cannot[clashing[0]]
            because = "must be linked, perhaps by way of others" if part[one] == part[other] else "are of one cluster"
            raise InputError(
                f"Rows {one} and {other} cannot be linked ({option('cannot_link')}), but {because}: take one of the "
                "two back."
            )
        _check_room(part, of_part, np.unique(np.column_stack([first, second]), axis=0), n_clusters)
        rows = np.flatnonzero(of_part[part] >= 0)
        return Hints(n_clusters, rows, of_part[part[rows]], must, cannot, given, labels[given], weight)

    @staticmethod
    def of(
        samples: Samples, n_clusters: int, must_link: Any, cannot_link: Any, known: Any, weight: float
    ) -> Hints | None:
        """The hints on samples, which must have row numbers; None if there are none."""
        if must_link is None and cannot_link is None and known is None:
            return None
        if not isinstance(samples, ArraySamples | Stream):
            raise InputError(
                "Samples of a DataLoader have no numbers, so that nothing can be known of them: give a Dataset."
            )
        n = len(samples.selected) if isinstance(samples, ArraySamples) else len(samples)
        return Hints.gather(n, n_clusters, must_link, cannot_link, known, weight)

    def join(
        self, spec: Spec, samples: Samples, problem: Problem, scaling: FittedScaling | FittedTransformer | None
    ) -> tuple[Spec, BoundHints]:
        """Bind the hints to the samples; returns the spec with a penalty for them, and the bound hints."""
        hints = self
        if isinstance(samples, ArraySamples) and not samples.selected.all():
            hints = self._of_selected(samples.selected)
        used = np.unique(np.concatenate([hints.rows, hints.must_link.ravel(), hints.cannot_link.ravel()]))
        bound = BoundHints(hints, used, _inputs_of(used, samples, problem, scaling))
        digest = hashlib.sha256()
        for given in (self.rows, self.labels, self.must_link, self.cannot_link):
            digest.update(f"{given.shape} ".encode() + given.tobytes())
        names = (*spec.penalty_names, f"hints {digest.hexdigest()[:16]}")
        return replace(spec, penalties=(*spec.penalties, (bound, self.weight)), penalty_names=names), bound

    def _of_selected(self, selected: NDArray[np.bool_]) -> Hints:
        """Without samples of weight zero, which are not trained on; samples linked through these stay linked."""
        known, part = selected[self.rows], _linked_parts(self.must_link, len(selected))
        linked = np.unique(self.must_link)
        linked = linked[selected[linked]]
        linked = linked[np.argsort(part[linked], kind="stable")]
        pairs = np.column_stack([linked[:-1], linked[1:]])
        pairs = pairs[part[pairs[:, 0]] == part[pairs[:, 1]]]
        apart = self.cannot_link[selected[self.cannot_link].all(1)]
        return replace(self, rows=self.rows[known], labels=self.labels[known], must_link=pairs, cannot_link=apart)


class BoundHints:
    """Hints on samples in memory: a penalty, initial labels, the order of clusters, and the number of violations.

    Output k of a network is cluster k if that is known. ``used`` (u,) are row numbers of the samples with hints, and
    ``inputs`` returns the inputs of the model for some of them.
    """

    def __init__(self, hints: Hints, used: NDArray[np.int64], inputs: Callable[[Tensor], Any]) -> None:
        self.hints, self.used, self._inputs = hints, used, inputs
        self._known = torch.from_numpy(np.searchsorted(used, hints.rows))
        self._labels = torch.from_numpy(hints.labels)
        self._must, self._cannot = (
            torch.from_numpy(np.searchsorted(used, pairs[pairs[:, 0] != pairs[:, 1]]))
            for pairs in (hints.must_link, hints.cannot_link)
        )
        must, cannot = self._must.numpy(), self._cannot.numpy()
        # Groups of samples that must be linked; and for each group those that it must not be linked to.
        self._part, self._apart = _linked_parts(must, len(used)), dict[int, list[int]]()
        for one, other in self._part[cannot].tolist():
            self._apart.setdefault(one, []).append(other)
            self._apart.setdefault(other, []).append(one)
        # The inputs of the model for some samples, and the labels (n,) that were learned from the known ones.
        self._learned: tuple[Callable[[Tensor], Any], Tensor] | None = None

    def __call__(
        self,
        model: Model,
        inputs: Any,
        log_p: Tensor,
        sample_weight: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """The penalty (…) of each model, for hints drawn at random: the sum of a mean for each kind of hint."""
        known, must, cannot = (
            torch.randperm(len(each), generator=generator)[:most]
            for each, most in (
                (self._known, _KNOWN_OF_A_STEP),
                (self._must, _PAIRS_OF_A_STEP),
                (self._cannot, _PAIRS_OF_A_STEP),
            )
        )
        index = torch.cat([self._known[known], self._must[must].flatten(), self._cannot[cannot].flatten()])
        if not len(index):
            return log_p.new_zeros(log_p.shape[:-2])
        # Layers such as batch normalisation need at least two samples.
        found = model(self._inputs(index if len(index) > 1 else index.repeat(2)))[..., : len(index), :]
        total = found.new_zeros(found.shape[:-2])
        if len(known):
            labels = self._labels[known].to(found.device)
            total = total - found[..., torch.arange(len(known)), labels].mean(-1)
        if self._learned is not None:
            inputs_of, learned = self._learned
            some = torch.randint(len(learned), (_KNOWN_OF_A_STEP,), generator=generator)
            log_p_learned = model(inputs_of(some))[..., torch.arange(len(some)), learned[some].to(found.device)]
            total = total - _SHARE_OF_LEARNED * log_p_learned.mean(-1)
        start = len(known)
        if len(must):
            first, second = (found[..., start + side : start + 2 * len(must) : 2, :] for side in (0, 1))
            total = total - (first + second).logsumexp(-1).mean(-1)
            start += 2 * len(must)
        if len(cannot):
            first, second = (found[..., start + side :: 2, :] for side in (0, 1))
            # log(1 − Σ p q) as a sum over pairs of different clusters, which has a gradient even if both are certain.
            both = first[..., :, None] + second[..., None, :]
            same = torch.eye(both.shape[-1], dtype=torch.bool, device=both.device)
            total = total - both.masked_fill(same, -torch.inf).flatten(-2).logsumexp(-1).mean(-1)
        return total

    def adapt_start(self, initial: list[Tensor], problem: MemoryProblem) -> list[Tensor]:
        """Initial labels (n,) for each model, corrected by the hints.

        All models start from the clusters that agree best with the hints. With the geometry of mixtures, a mixture
        constrained by the hints corrects them. If several samples of every cluster are known, it is cross-validated on
        these; other labels are used if they are clearly more accurate: the clusters as they were, those of label
        spreading along the neighbour graph, or those of a logistic regression. Labels other than the clusters stay in
        the penalty: the objective by itself would return to the clusters.
        """
        K, known = self.hints.n_clusters, self._labels.numpy()
        if K < 2 or not len(self.used):
            return initial
        places = self._places(problem).numpy()
        at_known = places[self._known.numpy()]
        clusters = min((labels.numpy() for labels in initial), key=lambda each: self._cost_of(each, at_known, places))
        match = _matching(clusters, K)
        is_enough = len(known) >= _FOLDS * K and len(np.unique(known)) == K
        mixes = is_enough or (len(known) > 0 and isinstance(problem.geometry, Mixtures))
        learn = _mixing(problem.rows, match, self._apply_hints, places, K) if mixes else match
        if is_enough:
            best = _cross_validate(learn, at_known, known)
            for other in (match, _spreading(problem.rows, K), _regression(problem.rows)):
                right = _cross_validate(other, at_known, known)
                # By more than a standard error of the number of samples on which they differ.
                if right.sum() > best.sum() + math.sqrt((right != best).sum()):
                    learn, best = other, right
        found = learn(at_known, known)
        member = np.eye(K)[np.where(found >= 0, found, match(at_known, known))]
        self._apply_hints(member, at_known, known, places)
        labels = torch.from_numpy(member.argmax(1))
        if learn is not match:
            self._learned = problem.inputs, labels
        return [labels] * len(initial)

    def _cost_of(self, clusters: NDArray[np.int64], at_known: NDArray[np.int64], places: NDArray[np.int64]) -> int:
        """Number of hints that clusters (n,) violate."""
        matched = _matching(clusters, self.hints.n_clusters)(at_known, self._labels.numpy())
        return sum(self.violations(torch.from_numpy(matched[places])).values())

    def _apply_hints(
        self,
        member: NDArray[np.float64],
        at_known: NDArray[np.int64],
        known: NDArray[np.int64],
        places: NDArray[np.int64],
    ) -> None:
        """Set the memberships (n, K) of samples at places (u,), which have hints, to one cluster each, by the hints.

        Samples that must be linked choose the most likely cluster together; in a few rounds each group looks for a
        cluster that contains no sample to which it cannot be linked.
        """
        K, part = member.shape[1], self._part
        total = np.zeros((part.max() + 1, K))
        np.add.at(total, part, np.log(member[places].clip(min=_UNLIKELY)))
        labels = dict(zip(at_known.tolist(), known.tolist(), strict=True))
        fixed = {p: labels[place] for p, place in zip(part.tolist(), places.tolist(), strict=True) if place in labels}
        choice = total.argmax(1)
        choice[list(fixed)] = list(fixed.values())
        for _ in range(_ROUNDS):
            before = choice.copy()
            for p, others in self._apart.items():
                if p not in fixed:
                    # The cluster with the fewest violations, and among these the most likely one.
                    choice[p] = np.lexsort((-total[p], np.bincount(choice[others], minlength=K)))[0]
            if (choice == before).all():
                break
        member[places] = np.eye(K)[choice[part]]

    def _places(self, problem: MemoryProblem) -> Tensor:
        """Indices (u,) of the samples with hints in the problem; of the nearest ones if the problem is a subsample."""
        if isinstance(self._inputs, _Positions):
            return self._inputs.positions
        known = self._inputs(torch.arange(len(self.used))).flatten(1)
        rows = torch.from_numpy(np.asarray(problem.rows.flat())).to(known)
        # Centred, because squares lose digits far from the origin.
        centre = rows.mean(0)
        rows, known = rows - centre, known - centre
        squares, found = (rows**2).sum(1), torch.empty(len(known), dtype=torch.int64)
        # Allocated once: allocating large blocks between small ones that stay would fragment memory.
        products = rows.new_empty((_AT_ONCE, len(rows)))
        for first in range(0, len(known), _AT_ONCE):
            part = known[first : first + _AT_ONCE]
            near = torch.mm(part, rows.mT, out=products[: len(part)]).mul_(-2).add_(squares)
            found[first : first + len(part)] = near.argmin(1).cpu()
        return found

    def order(self, sizes: Tensor) -> Tensor:
        """The output of the network for each cluster k: known clusters keep their numbers, others follow by size."""
        taken = set(self._labels.tolist())
        others = iter([int(k) for k in torch.argsort(sizes, descending=True, stable=True) if int(k) not in taken])
        return torch.tensor([k if k in taken else next(others) for k in range(len(sizes))])

    def predict(self, module: nn.Module) -> Tensor:
        """The most probable output of the network (u,) for each sample."""
        parts, K = torch.split(torch.arange(len(self.used)), 1_000), self.hints.n_clusters
        return torch.cat([log_probabilities(module, self._inputs(part), K).argmax(-1).cpu() for part in parts])

    def violations(self, found: Tensor) -> dict[str, int]:
        """Number of violated hints of each kind in clusters (u,) of the samples."""
        must, cannot = found[self._must], found[self._cannot]
        return {
            "known": int((found[self._known] != self._labels).sum()),
            "must_link": int((must[:, 0] != must[:, 1]).sum()),
            "cannot_link": int((cannot[:, 0] == cannot[:, 1]).sum()),
        }


class _Positions:
    """Inputs of the model for samples of the problem itself."""

    def __init__(self, problem: MemoryProblem, positions: Tensor) -> None:
        self._problem, self.positions = problem, positions

    def __call__(self, index: Tensor) -> Any:
        return self._problem.inputs(self.positions[index])


def _inputs_of(
    used: NDArray[np.int64], samples: Samples, problem: Problem, scaling: FittedScaling | FittedTransformer | None
) -> Callable[[Tensor], Any]:
    if isinstance(samples, ArraySamples):
        positions = (np.cumsum(samples.selected) - 1)[used]
        if isinstance(problem, MemoryProblem) and problem.samples is samples:
            return _Positions(problem, torch.from_numpy(positions))
        X: Any = samples.X[positions]
    else:
        assert isinstance(samples, Stream)
        X = samples.take(used)
    if problem.takes_integers:
        return Rows(X, torch.int64, problem.device).__getitem__
    return prepared(X, scaling, problem.dtype, problem.device).__getitem__


def _linked_parts(pairs: Pairs, n: int) -> NDArray[np.int64]:
    """A group number (n,) that is the same for samples that pairs link, also indirectly."""
    graph = scipy.sparse.coo_array((np.ones(len(pairs)), pairs.T), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _check_room(part: NDArray[np.int64], of_part: NDArray[np.int64], apart: Pairs, n_clusters: int) -> None:
    """Raise an InputError if no assignment to ``n_clusters`` clusters satisfies all cannot-link pairs.

    This is graph colouring, which may take too long to decide: no error is raised then.
    """
    # Groups of one known cluster are merged, and cannot be linked to those of other known clusters.
    known = {int(k): int(np.flatnonzero(of_part == k)[0]) for k in np.unique(of_part[of_part >= 0])}
    one = np.arange(len(of_part))
    one[of_part >= 0] = [known[int(k)] for k in of_part[of_part >= 0]]
    others = [(a, b) for a in known.values() for b in known.values() if a < b]
    edges = np.concatenate([one[apart], np.array(others, dtype=np.int64).reshape(-1, 2)]) if len(apart) else apart
    edges = np.unique(np.sort(edges, axis=1), axis=0)
    if _is_colourable(edges, n_clusters):
        return
    # Reduce to a minimal set of groups that cannot be coloured, for the message.
    needed = np.unique(edges)
    size = len(needed)
    while size := size // 2:
        start = 0
        while start < len(needed):
            fewer = np.delete(needed, np.s_[start : start + size])
            if _is_colourable(edges[np.isin(edges, fewer).all(1)], n_clusters):
                start += size
            else:
                needed = fewer
    rows = sorted(int(np.flatnonzero(one[part] == each)[0]) for each in needed)
    listed = ", ".join(map(str, rows[:12])) + (" …" if len(rows) > 12 else "")
    enough = n_clusters + 1
    while not _is_colourable(edges, enough):
        enough += 1
    raise InputError(
        f"Rows {listed} cannot be kept apart as {option('cannot_link')} and what is known or must be linked ask, and "
        f"there are {n_clusters} clusters: ask for {enough} ({option('n_clusters', enough)}), or take a pair back."
    )


def _is_colourable(edges: Pairs, n_colours: int) -> bool:
    """Whether ``n_colours`` suffice for the ends of each edge (m, 2) to differ; True if that takes too long to decide.

    Vertices whose neighbours have the most colours come first (DSATUR).
    """
    while len(edges):
        # A vertex with fewer neighbours than colours can always be coloured, so it is removed.
        is_tight = np.bincount(edges.ravel()) >= n_colours
        kept = edges[is_tight[edges].all(1)]
        if len(kept) == len(edges):
            break
        edges = kept
    if not len(edges):
        return True
    places = np.unique(edges, return_inverse=True)[1].reshape(edges.shape)
    component = _linked_parts(places, int(places.max()) + 1)[places[:, 0]]
    return all(_colour(places[component == each], n_colours) for each in np.unique(component))


def _colour(edges: Pairs, n_colours: int) -> bool:
    """The same for connected edges, by backtracking."""
    beside: dict[int, list[int]] = {}
    for a, b in edges.tolist():
        beside.setdefault(a, []).append(b)
        beside.setdefault(b, []).append(a)
    colour: dict[int, int] = {}
    # For each vertex, how many of its neighbours have each colour.
    counts = {vertex: [0] * n_colours for vertex in beside}
    queue: list[tuple[int, int, int]] = []

    def push(vertex: int) -> None:
        heapq.heappush(queue, (counts[vertex].count(0), -len(beside[vertex]), vertex))

    def paint(vertex: int, own: int, change: int) -> None:
        for other in beside[vertex]:
            counts[other][own] += change
            if other not in colour:
                push(other)

    def pop() -> int | None:
        while queue:
            free, _, vertex = heapq.heappop(queue)
            if vertex not in colour and free == counts[vertex].count(0):
                return vertex
        return None

    push(next(iter(beside)))
    # The stack of coloured vertices, the colour to try next, and the number of colours in use before.
    tried: list[tuple[int, int, int]] = [(next(iter(beside)), 0, 0)]
    for _ in range(_MOST_STEPS + len(beside)):
        vertex, own, in_use = tried.pop()
        # Colours that are not yet in use are equivalent, so only the first of them is tried.
        while own < min(n_colours, in_use + 1) and counts[vertex][own]:
            own += 1
        if own < min(n_colours, in_use + 1):
            colour[vertex] = own
            paint(vertex, own, 1)
            tried.append((vertex, own, in_use))
            following = pop()
            if following is None:
                return True
            tried.append((following, 0, max(in_use, own + 1)))
            continue
        push(vertex)
        if not tried:
            return False
        vertex, own, in_use = tried.pop()
        del colour[vertex]
        paint(vertex, own, -1)
        tried.append((vertex, own + 1, in_use))
    return True


def _check_pairs(pairs: Any, n: int, name: str) -> Pairs:
    found = np.asarray([] if pairs is None else pairs)
    if not found.size:
        return np.empty((0, 2), dtype=np.int64)
    if found.ndim != 2 or found.shape[1] != 2 or found.dtype.kind not in "iu":
        raise InputError(f"{option(name)} is pairs (m, 2) of row numbers, from 0; not {found.dtype} {found.shape}.")
    if found.min() < 0 or found.max() >= n:
        bad = int(found.min() if found.min() < 0 else found.max())
        raise InputError(f"{option(name)} names row {bad}, and rows are numbered 0 to {n - 1}.")
    return found.astype(np.int64)


def read_known(known: Any) -> NDArray[Any]:
    """Known clusters as numbers, −1 for missing ones; an InputError if they are names."""
    found = np.asarray(known)
    if found.dtype.kind == "O" and str(getattr(known, "dtype", "")) != "category":
        missing = np.array([value is None for value in found.ravel()]).reshape(found.shape)
        if all(isinstance(value, numbers.Real) for value in found[~missing]):
            found = np.where(missing, np.nan, found).astype(np.float64)
    if found.dtype.kind in "OUS":
        raise InputError(
            f"{option('known')} holds names, and clusters have numbers: pandas.Categorical(…).codes gives them, and −1 "
            "for what is missing."
        )
    return np.where(np.isnan(found), -1, found) if found.dtype.kind == "f" else found


def _check_known(known: Any, n: int, n_clusters: int) -> NDArray[np.int64]:
    found = read_known(known)
    if found.shape != (n,) or found.dtype.kind not in "iuf" or not (np.round(found) == found).all():
        raise InputError(
            f"{option('known')} is the number of the cluster of each of the {n} rows, −1 where it is not known; not "
            f"{found.dtype} {found.shape}."
        )
    if found.min() < -1 or found.max() >= n_clusters:
        raise InputError(
            f"{option('known')} holds {found.max() if found.max() >= n_clusters else found.min():g}, and the "
            f"{n_clusters} clusters ({option('n_clusters')}) are numbered from 0; −1 stands for rows not known."
        )
    return found.astype(np.int64)


Learner = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.int64]]
"""A function from the places of known samples and their labels to labels of all (n,), −1 if none is found."""


def _cross_validate(learn: Learner, places: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Mask of the known labels (m,) that are predicted correctly from the others."""
    # Folds are stratified by cluster.
    order = np.random.default_rng(0).permutation(len(places))
    order = order[np.argsort(labels[order], kind="stable")]
    right = np.zeros(len(places), dtype=bool)
    for k in range(_FOLDS):
        own = np.isin(np.arange(len(places)), order[k::_FOLDS])
        right[own] = learn(places[~own], labels[~own])[places[own]] == labels[own]
    return right


def _matching(clusters: NDArray[np.int64], K: int) -> Learner:
    """Clusters (n,) renumbered by the most common known label in each."""
    return lambda places, labels: match_clusters(labels, clusters[places], K)[clusters]


def _mixing(rows: Rows, match: Learner, apply_hints: Callable[..., None], used: NDArray[np.int64], K: int) -> Learner:
    """Components of a Gaussian mixture, initialised by clusters and constrained by the hints on samples ``used``.

    It is fitted to a subsample that includes these.
    """
    to_points = learn_points(
        some_of(rows, max(_FEWEST_MIXED, _MOST_NUMBERS // math.prod(rows.shape))), _MIXED_COMPONENTS
    )
    points = np.concatenate([to_points(Rows(part)) for part in rows.parts()])
    drawn = np.random.default_rng(0).permutation(len(points))[:_MOST_MIXED]
    index, weight = np.union1d(drawn, used), weight_of(rows)
    fitted, weight = points[index], weight[index]
    steps = int(np.clip(_MOST_PRODUCTS / (fitted.size * fitted.shape[1] * K), _FEWEST_STEPS, _MIXING_STEPS))

    def learn(places: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
        member, before = np.eye(K)[match(places, labels)[index]], -math.inf
        for _ in range(steps):
            apply_hints(member, np.searchsorted(index, places), labels, np.searchsorted(index, used))
            mixture = Mixture.of(fitted, member * weight[:, None], REGULARISATION)
            member, densities = normalise(mixture.log_joint(fitted))
            value = float(weight @ densities / weight.sum())
            if abs(value - before) < _MIXING_TOLERANCE:
                break
            before = value
        return np.asarray(mixture.log_joint(points).argmax(1))

    return learn


def _spreading(rows: Rows, K: int) -> Learner:
    """Label spreading along the neighbour graph."""
    once, which = distinct(rows)
    graph = NeighbourGraph(_SPREAD_NEIGHBOURS).graph(once)
    degree = np.asarray(graph.sum(1)).ravel()
    root = scipy.sparse.diags_array(1 / np.sqrt(np.where(degree > 0, degree, 1)))
    graph = root @ graph @ root

    def learn(places: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
        source = np.zeros((len(once), K))
        np.add.at(source, (which[places], labels), 1)
        # Each cluster spreads the same total, however many of its samples are known.
        source /= np.maximum(source.sum(0), 1)
        found = source
        for _ in range(_SPREADING_STEPS):
            found = _SPREADING * (graph @ found) + (1 - _SPREADING) * source
        return np.where(found.max(1) > 0, found.argmax(1), -1)[which]

    return learn


def _regression(rows: Rows) -> Learner:
    """Labels by logistic regression."""
    X = rows.flat()

    def learn(places: NDArray[np.int64], labels: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(np.unique(labels)) == 1:
            return np.full(X.shape[0], labels[0])
        with warnings.catch_warnings():
            # This many iterations are enough, whether or not they converge.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = LogisticRegression(max_iter=_ITERATIONS).fit(X[places], labels).predict(X)
        return np.asarray(found, dtype=np.int64)

    return learn

"""From the figures of the candidates to an answer, and its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pollux.selection.selection import Candidate

CLEAR = 0.4
"""Scores from here on are clear: those of data without clusters were 0.3 at most, measured on 100 rows or more."""

_SHARE_OF_BEST = 0.6
"""Of the best score, which may be that of a coarser view: parts of a cluster have far less, clusters have more."""


class Decision(NamedTuple):
    """The answer."""

    n_clusters: int
    is_clear: bool
    reason: str


def score_of(stability: float, separation: float) -> float:
    """High only for clusters that come back in other subsamples and that have gaps between them."""
    return max(0.0, stability) * separation


def decide(candidates: Sequence[Candidate]) -> Decision:
    """The finest of the candidates that are clear and not much worse than the best, or one cluster where none is clear.

    Clusters that lie near one another are less apart than groups of them are, so the best score is often that of a
    coarse view. Splitting a cluster, though, leaves hardly a gap: the finest clear candidate tells most. A candidate
    whose clusterings leave clusters empty stands for a smaller number, and is passed over for one that fills its own.
    """
    filled = [candidate for candidate in candidates if candidate.in_use > candidate.n_clusters - 0.5] or candidates
    best = best_of(filled)
    clear = [candidate for candidate in filled if candidate.score >= max(CLEAR, _SHARE_OF_BEST * best.score)]
    if not clear:
        return Decision(1, False, f"No clear structure: {_doubt(best)}")
    chosen = max(clear, key=lambda candidate: candidate.n_clusters)
    n_clusters = max(2, round(chosen.in_use))
    return Decision(n_clusters, True, _support(chosen, n_clusters, candidates))


def best_of(candidates: Sequence[Candidate]) -> Candidate:
    """That of the highest score; where none has any, the most stable one."""
    return max(candidates, key=lambda candidate: (candidate.score, candidate.stability))


def _support(chosen: Candidate, n_clusters: int, candidates: Sequence[Candidate]) -> str:
    text = (
        f"{n_clusters} clusters: subsamples agree on them (adjusted Rand index {chosen.stability:.2f}), and there are "
        f"gaps between them (separation {chosen.separation:.2f} of 1)."
    )
    if chosen.n_clusters == max(candidate.n_clusters for candidate in candidates) and len(candidates) > 1:
        text += " It is the largest candidate, so there may be more: try larger ones."
    coarser = [
        candidate
        for candidate in candidates
        if candidate.n_clusters < n_clusters and candidate.score >= max(CLEAR, chosen.score)
    ]
    if coarser:
        clearest = sorted(coarser, key=lambda candidate: -candidate.score)[:2]
        names = " and ".join(str(number) for number in sorted(candidate.n_clusters for candidate in clearest))
        text += f" They also fall into {names} groups, as clear or clearer but coarser."
    return text


def _doubt(best: Candidate) -> str:
    if best.separation <= best.stability:
        return (
            f"even for the best candidate, {best.n_clusters} clusters, there is little room between them (separation "
            f"{best.separation:.2f} of 1; stability {best.stability:.2f})."
        )
    return (
        f"even for the best candidate, {best.n_clusters} clusters, subsamples agree on little (adjusted Rand index "
        f"{best.stability:.2f})."
    )

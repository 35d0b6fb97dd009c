"""From the figures of the candidates to an answer, and its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pollux.selection.selection import Candidate

CLEAR = 0.4
"""Scores from here on are clear: those of data without clusters stay below 0.3, measured up to 50 dimensions."""

_AS_GOOD = 0.05


class Decision(NamedTuple):
    """The answer."""

    n_clusters: int
    is_clear: bool
    reason: str


def separation_of(boundary: float, null_boundary: float) -> float:
    """1 where boundaries cut nothing, 0 where they cut as much as in data without clusters, or more."""
    return max(0.0, 1 - boundary / null_boundary) if null_boundary > 0 else 0.0


def score_of(stability: float, separation: float) -> float:
    """High only for clusters that come back in other subsamples and that have gaps between them."""
    return max(0.0, stability) * separation


def decide(candidates: Sequence[Candidate]) -> Decision:
    """The finest of the candidates that are as good as the best, or one cluster where none is clear.

    Merging whole clusters leaves gaps as they are, and may well be stable; splitting one does neither. So among
    candidates that are equally good the finest tells most. A candidate whose clusterings leave clusters empty stands
    for a smaller number, and is passed over for one that fills its own.
    """
    filled = [candidate for candidate in candidates if candidate.in_use > candidate.n_clusters - 0.5] or candidates
    best = max(filled, key=lambda candidate: candidate.score)
    as_good = [candidate for candidate in filled if candidate.score >= max(CLEAR, best.score - _AS_GOOD)]
    if not as_good:
        return Decision(1, False, f"No clear structure: {_doubt(best)}")
    chosen = max(as_good, key=lambda candidate: candidate.n_clusters)
    n_clusters = max(2, round(chosen.in_use))
    return Decision(n_clusters, True, _support(chosen, n_clusters, candidates))


def _support(chosen: Candidate, n_clusters: int, candidates: Sequence[Candidate]) -> str:
    text = (
        f"{n_clusters} clusters: subsamples agree on them (adjusted Rand index {chosen.stability:.2f}; "
        f"{chosen.null_stability:.2f} in data without clusters), and their boundaries cut {1 - chosen.separation:.0%} "
        "of the neighbours that boundaries in data without clusters do."
    )
    if chosen.n_clusters == max(candidate.n_clusters for candidate in candidates) and len(candidates) > 1:
        text += " It is the largest candidate, so there may be more: try larger ones."
    coarser = [
        candidate
        for candidate in candidates
        if candidate.n_clusters < n_clusters and candidate.score >= max(CLEAR, chosen.score - _AS_GOOD)
    ]
    if coarser:
        names = " and ".join(str(candidate.n_clusters) for candidate in coarser[:2])
        text += f" They also fall into {names} groups, as clear but coarser."
    return text


def _doubt(best: Candidate) -> str:
    if best.separation < CLEAR:
        return (
            f"the boundaries even of the best candidate, {best.n_clusters} clusters, cut {best.cut_ratio:.0%} of the "
            f"neighbours that boundaries in data without clusters do (stability {best.stability:.2f}; there "
            f"{best.null_stability:.2f})."
        )
    return (
        f"even for the best candidate, {best.n_clusters} clusters, subsamples agree on little (adjusted Rand index "
        f"{best.stability:.2f}; {best.null_stability:.2f} in data without clusters)."
    )

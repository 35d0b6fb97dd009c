"""Small drawings as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from pollux.report.findings import Array
from pollux.report.markup import count, escaped, number, percent
from pollux.report.profiles import Histogram

MOST_EPOCHS = 300
CURVES = {
    "objective": ("Objective", "higher is better"),
    "clusters": ("Clusters in use", ""),
    "entropy": ("Entropy", "nats; lower is more certain"),
}


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def steps(shares: Array, width: float, height: float, highest: float) -> str:
    """The outline of a histogram (B,). Its base, and bins of nothing, lie below the edge of the drawing."""
    wide, below = width / len(shares), _short(height + 3)
    tops = [_short(height * (1 - float(share) / highest)) if share > 0 else below for share in shares]
    along = "".join(f"V{top}H{_short((at + 1) * wide)}" for at, top in enumerate(tops))
    return f"M0 {below}{along}V{below}Z"


def _level(value: float, extent: float) -> str:
    """A number to as many digits as matter in a range of this extent."""
    if not 1e-3 <= extent < 1e6 or abs(value) >= 1e6:
        return number(value)
    return f"{value:,.{max(0, 2 - math.floor(math.log10(extent)))}f}".replace("-", "−")


def two_histograms(spread: Histogram, cluster: int) -> str:
    """A cluster in its colour over all samples in grey, each as shares of its own."""
    own = spread.clusters[cluster]
    highest = float(max(own.max(), spread.everyone.max(), 1e-9))
    paths = (
        f'<path class="{kind}" d="{steps(shares, 120, 36, highest)}"/>'
        for kind, shares in (("all", spread.everyone), ("own", own))
    )
    return f'<svg viewBox="0 0 120 36" preserveAspectRatio="none" aria-hidden="true">{"".join(paths)}</svg>'


def two_bars(inside: float, outside: float) -> str:
    """The share of a cluster over that of the rest."""
    parts = []
    for top, kind, share in ((4, "own-bar", inside), (21, "all", outside)):
        wide = _short(120 * float(np.nan_to_num(share)))
        parts.append(f'<path class="rail" d="M0 {top}H120v12H0Z"/><path class="{kind}" d="M0 {top}H{wide}v12H0Z"/>')
    return f'<svg viewBox="0 0 120 36" preserveAspectRatio="none" aria-hidden="true">{"".join(parts)}</svg>'


def sparkline(shares: Array) -> str:
    """A histogram the size of a word."""
    path = steps(shares, 60, 16, float(max(shares.max(), 1e-9)))
    return (
        '<svg class="spark" viewBox="0 0 60 16" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="own-bar" d="{path}"/></svg>'
    )


def distribution(name: str, everyone: Array, clusters: Mapping[int, Array], ends: tuple[str, str, str]) -> str:
    """All samples in grey, and the outline of each cluster, shown once it is picked."""
    highest = float(max(everyone.max(), *(own.max() for own in clusters.values())))
    outlines = "".join(
        f'<path class="own" data-of="{cluster}" style="--c:var(--k{cluster})" d="{steps(own, 200, 80, highest)}"/>'
        for cluster, own in clusters.items()
    )
    marks = "".join(f"<span>{escaped(end)}</span>" for end in ends)
    return (
        f'<figure class="spread"><figcaption>{escaped(name)}</figcaption>'
        f'<p class="top">{percent(highest)}</p>'
        '<svg viewBox="0 0 200 80" preserveAspectRatio="none" aria-hidden="true">'
        f'<path class="all" d="{steps(everyone, 200, 80, highest)}"/>{outlines}</svg>'
        f'<p class="ends">{marks}</p></figure>'
    )


def thinned(history: Mapping[str, Sequence[float]]) -> dict[str, list[tuple[int, float]]]:
    """(epoch, value) of each figure that has finite values, at most MOST_EPOCHS of them, the last among them."""
    found = {}
    for name, values in history.items():
        kept = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_EPOCHS)).round().astype(int))
        pairs = [(int(at) + 1, float(values[at])) for at in kept] if len(values) else []
        pairs = [(epoch, value) for epoch, value in pairs if np.isfinite(value)]
        if pairs:
            found[name] = pairs
    return found


def curve(name: str, pairs: Sequence[tuple[int, float]], last: int) -> str:
    """One figure over the epochs 1 … last."""
    title, unit = CURVES.get(name, (name, ""))
    values = [value for _, value in pairs]
    low, high = min(values), max(values)
    if name == "clusters":
        low = min(low, 0.0)
    room = 0.08 * (high - low) or 1.0
    base, extent = low - room, high - low + 2 * room
    spots = [
        f"{_short(300 * (epoch - 1) / max(last - 1, 1))} {_short(100 * (1 - (value - base) / extent))}"
        for epoch, value in pairs
    ]
    line = "M" + "L".join(spots)
    if len(spots) == 1:
        line = f"M0 {spots[0].split()[1]}H300"

    def shown(end: float) -> str:
        return count(end) if name == "clusters" else _level(end, high - low)

    zero = 8 / 1.16 if high > low else 50
    top, bottom = (f'<span style="top:{at:.1f}%">{shown(end)}</span>' for at, end in ((zero, high), (100 - zero, low)))
    unit_mark = f' <span class="unit">{escaped(unit)}</span>' if unit else ""
    return (
        f'<figure class="curve" data-curve="{escaped(name)}" data-base="{base!r}" data-extent="{extent!r}">'
        f'<figcaption><span class="name">{escaped(title)}</span>{unit_mark}'
        f"<output>{number(values[-1])}</output></figcaption>"
        f'<div class="axis" aria-hidden="true">{top}{bottom if high > low else ""}</div>'
        '<div class="plot"><svg viewBox="0 0 300 100" preserveAspectRatio="none" role="img" '
        f'aria-label="{escaped(title)}: {number(values[0])} at first, {number(values[-1])} at the end.">'
        f'<path class="line" d="{line}"/></svg></div>'
        f'<p class="ends"><span>epoch {pairs[0][0] if last > 1 else 1}</span><span>{count(last)}</span></p></figure>'
    )

"""All that the page shows, as one record: ``PageContent``. It is worked out here and laid out by the templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pollux.metrics import adjusted_rand_index, hungarian_accuracy, normalised_mutual_information, purity
from pollux.report.findings import CERTAIN, DOUBT, SHOWN, Array, Classes, Findings, Summary
from pollux.report.map_data import choose_rows, encode_samples
from pollux.report.markup import coordinate, counted, integer, level, number, percent, plain, score, shortened
from pollux.report.palette import both_colours
from pollux.report.profiles import Contrasts, Histogram, compare_clusters, describe_differences, make_histogram

if TYPE_CHECKING:
    from pollux.report.pictures import Gallery, Sheet

FEATURES_SHOWN = 8
MOST_EPOCHS = 300
SCORES = {
    "ARI": adjusted_rand_index,
    "NMI": normalised_mutual_information,
    "Accuracy": hungarian_accuracy,
    "Purity": purity,
}


class Metric(NamedTuple):
    """One of the numbers at the top of the page."""

    name: str
    value: str
    note: str = ""


class Feature(NamedTuple):
    """A feature in which a cluster differs: means inside and outside, and their difference in deviations.

    ``histogram`` is None for a share.
    """

    name: str
    inside: float
    outside: float
    scaled: float
    missing: float
    histogram: Histogram | None


class Strip(NamedTuple):
    """Images of a cluster side by side: tiles of the gallery, and what each is."""

    name: str
    tiles: Sequence[tuple[int, str]]


class Cluster(NamedTuple):
    """One cluster; ``doubtful`` is the share of its samples, ``confidence_shares`` a histogram (B,)."""

    number: int
    size: int
    share: float
    of_largest: float
    confidence: float
    confidence_shares: Array
    doubtful: float
    words: str
    features: Sequence[Feature]
    strips: Sequence[Strip]


class Distribution(NamedTuple):
    """Histograms (B,) of all samples and of each cluster, and the marks below them."""

    name: str
    everyone: Array
    clusters: Mapping[int, Array]
    marks: tuple[str, str, str]

    @property
    def highest(self) -> float:
        """The share at the top of the drawing."""
        return float(max(self.everyone.max(), *(own.max() for own in self.clusters.values())))


class UncertainSample(NamedTuple):
    """A sample between two clusters; ``overall`` is whether it is among the least certain of all."""

    name: str
    class_name: str | None
    tile: int | None
    cluster: int
    probability: float
    following: int
    following_probability: float
    overall: bool


class ConfusionRow(NamedTuple):
    """Samples of a class in each cluster in use; the class None is that of samples whose class is not known."""

    class_name: str | None
    counts: Sequence[int]

    @property
    def total(self) -> int:
        """Samples of the class."""
        return sum(self.counts)


class Curve(NamedTuple):
    """One metric over the epochs: an SVG path in a drawing of 300 × 100, with its scale and its ends in words."""

    name: str
    path: str
    base: float
    extent: float
    low: str
    high: str
    is_flat: bool
    first: float
    last: float
    first_epoch: int
    last_epoch: int


@dataclass(frozen=True, kw_only=True, eq=False)
class PageContent:
    """All that the page shows, made by :meth:`of` and laid out by the templates."""

    findings: Findings
    summary: Summary
    classes: Classes | None
    metrics: Sequence[Metric]
    scores: Mapping[str, float]
    n_drawn: int
    is_compared: bool
    clusters: Sequence[Cluster]
    distributions: Sequence[Distribution]
    n_doubtful: int
    uncertain: Sequence[UncertainSample]
    certain_clusters: Sequence[int]
    confusion: Sequence[ConfusionRow]
    curves: Sequence[Curve]
    gallery: Gallery | None
    thumbnails: Sheet | None
    colours: Mapping[str, Sequence[str]]
    data: Mapping[str, Any]
    doubt: float = DOUBT
    certain: float = CERTAIN

    @classmethod
    def of(cls, findings: Findings) -> PageContent:
        """Everything worked out, once."""
        summary, classes = findings.summary, findings.known_classes
        contrasts = None
        if findings.features is not None and findings.features.shape[1]:
            contrasts = compare_clusters(findings.features, summary.labels, len(summary.sizes))
        rows = choose_rows(findings)
        gallery, thumbnails = None, None
        if findings.images is not None:
            from pollux.report.pictures import MOST_THUMBNAILS, make_gallery, make_thumbnails

            gallery = make_gallery(findings.images, summary)
            thumbnails = make_thumbnails(findings.images[rows[:MOST_THUMBNAILS]])
        is_compared = contrasts is not None and len(summary.clusters) > 1
        scores = _scores(classes, summary)
        uncertain, certain_clusters = _uncertain(findings, gallery)
        history = _thinned(findings.history)
        colours = both_colours(len(summary.sizes))
        return cls(
            findings=findings,
            summary=summary,
            classes=classes,
            metrics=_metrics(findings, scores),
            scores=scores,
            n_drawn=len(rows),
            is_compared=is_compared,
            clusters=_clusters(findings, contrasts if is_compared else None, gallery),
            distributions=_distributions(summary),
            n_doubtful=int((summary.confidence < DOUBT).sum()),
            uncertain=uncertain,
            certain_clusters=certain_clusters,
            confusion=[] if classes is None else _confusion(classes, summary),
            curves=_curves(history, findings.history),
            gallery=gallery,
            thumbnails=thumbnails,
            colours=colours,
            data={
                "samples": encode_samples(findings, rows, contrasts),
                "sizes": summary.sizes.tolist(),
                "least": 1 / summary.n_allowed,
                "highest": summary.highest_entropy or 1.0,
                "colours": colours,
                "classes": [] if classes is None else [_class_colours(classes.names)],
                "history": {
                    plain(name): [(epoch, float(f"{value:.6g}")) for epoch, value in pairs]
                    for name, pairs in history.items()
                },
                "thumbs": thumbnails and thumbnails.layout,
            },
        )

    def shows(self, section: str) -> bool:
        """Whether there is something to show in a section."""
        found = self.findings
        return {
            "profiles": self.is_compared or self.gallery is not None,
            "classes": self.classes is not None,
            "training": bool(self.curves),
            "settings": bool(found.notes or found.settings or found.command),
        }.get(section, True)

    @property
    def lead(self) -> str:
        """'150 samples in 3 clusters, of at most 5.'"""
        n, used, allowed = len(self.summary.labels), len(self.summary.clusters), self.summary.n_allowed
        limit = f", of at most {integer(allowed)}" if allowed > used else ""
        return f"{counted(n, 'sample')} in {counted(used, 'cluster')}{limit}."

    @property
    def known(self) -> str:
        """'120 of 150 samples have a known class', where some have not; else ''."""
        if self.classes is None or self.classes.complete:
            return ""
        known, n = int(self.classes.known.sum()), len(self.classes.codes)
        return f"{integer(known)} of {counted(n, 'sample')} {'has' if known == 1 else 'have'} a known class"


def _metrics(findings: Findings, scores: Mapping[str, float]) -> list[Metric]:
    """The numbers a reader looks for first."""
    summary, classes = findings.summary, findings.known_classes
    metrics = [
        Metric("Samples", integer(len(summary.labels))),
        Metric("Clusters in use", integer(len(summary.clusters)), f"of at most {integer(summary.n_allowed)}"),
        Metric("Mean confidence", percent(float(summary.confidence.mean()), 1), "for the own cluster"),
        Metric(
            "Mean entropy", number(float(summary.entropy.mean())), f"nats; at most {number(summary.highest_entropy)}"
        ),
    ]
    objective = [value for value in findings.history.get("objective", ()) if np.isfinite(value)]
    if objective:
        epochs = counted(len(findings.history["objective"]), "epoch")
        metrics.append(Metric("Objective", number(float(objective[-1])), f"after {epochs}"))
    labelled = "" if classes is None or classes.complete else f"of {integer(classes.known.sum())} samples"
    return metrics + [Metric(name, score(value), labelled) for name, value in list(scores.items())[:3]]


def _scores(classes: Classes | None, summary: Summary) -> dict[str, float]:
    """Agreement of clusters and classes over the samples whose class is known; {} without classes."""
    if classes is None:
        return {}
    codes, labels = classes.codes[classes.known], summary.labels[classes.known]
    return {name: measure(codes, labels) for name, measure in SCORES.items()}


def _class_colours(names: Sequence[str]) -> dict[str, Any]:
    return {"names": [shortened(name, 60) for name in names], "colours": both_colours(len(names))}


def _clusters(findings: Findings, contrasts: Contrasts | None, gallery: Gallery | None) -> list[Cluster]:
    """Each cluster in use; ``contrasts`` is None where there is nothing to compare."""
    summary = findings.summary
    _, confidence_shares = summary.shares(summary.confidence, 1.0)
    features = {} if contrasts is None else _features(findings, contrasts)
    made = []
    for cluster in summary.clusters:
        confidence = summary.confidence[summary.members(cluster)]
        words = ""
        if contrasts is not None:
            words = describe_differences(contrasts, cluster, findings.feature_names, findings.shares)
        made.append(
            Cluster(
                number=cluster,
                size=len(confidence),
                share=len(confidence) / len(summary.labels),
                of_largest=len(confidence) / int(summary.sizes.max()),
                confidence=float(confidence.mean()),
                confidence_shares=confidence_shares[cluster],
                doubtful=float((confidence < DOUBT).mean()),
                words=words,
                features=features.get(cluster, []),
                strips=[] if gallery is None else _strips(findings, gallery, cluster),
            )
        )
    return made


def _features(findings: Findings, contrasts: Contrasts) -> dict[int, list[Feature]]:
    """The features in which each cluster differs most."""
    summary, names, features = findings.summary, findings.feature_names, np.asarray(findings.features)
    ranked = {cluster: contrasts.ranked(cluster, FEATURES_SHOWN) for cluster in summary.clusters}
    plotted = {feature for own in ranked.values() for feature in own if names[feature] not in findings.shares}
    histograms = {
        feature: make_histogram(features[:, feature], summary.labels, len(summary.sizes)) for feature in plotted
    }
    return {
        cluster: [
            Feature(
                name=names[feature],
                inside=float(contrasts.inside[cluster, feature]),
                outside=float(contrasts.outside[cluster, feature]),
                scaled=float(contrasts.scaled[cluster, feature]),
                missing=float(contrasts.missing[cluster, feature]),
                histogram=histograms.get(feature),
            )
            for feature in own
        ]
        for cluster, own in ranked.items()
    }


def _strips(findings: Findings, gallery: Gallery, cluster: int) -> list[Strip]:
    """The mean of a cluster, its most typical and its least certain images."""
    summary = findings.summary

    def strip(name: str, rows: Sequence[int]) -> Strip:
        labels = [f"{findings.row_name(row)}, {percent(float(summary.confidence[row]))}" for row in rows]
        return Strip(name, [(gallery.tile[row], label) for row, label in zip(rows, labels, strict=True)])

    strips = [Strip("Mean", [(gallery.mean[cluster], "Mean image")]), strip("Most typical", gallery.typical[cluster])]
    certain = bool((summary.confidence[summary.members(cluster)] >= CERTAIN).all())
    # Of a sample that is alone in its cluster there is nothing left to show.
    if gallery.uncertain[cluster] or certain:
        strips.append(strip("Least certain", gallery.uncertain[cluster]))
    return strips


def _distributions(summary: Summary) -> list[Distribution]:
    """Confidence and entropy of all samples and of each cluster."""
    most = summary.highest_entropy
    return [
        Distribution("Probability of the own cluster", *summary.shares(summary.confidence, 1.0), ("0", "50%", "100%")),
        Distribution(
            "Entropy, in nats",
            *summary.shares(summary.entropy, most or 1.0),
            ("0", number(most / 2), number(most)),
        ),
    ]


def _uncertain(findings: Findings, gallery: Gallery | None) -> tuple[list[UncertainSample], list[int]]:
    """The samples between two clusters, worst first, and the clusters that have none.

    Of pictures these are the samples that are not shown as typical, if there are any.
    """
    summary, classes = findings.summary, findings.known_classes
    if summary.n_allowed == 1:
        return [], []
    each: dict[int, NDArray[np.intp]] = {
        cluster: summary.least_certain(
            summary.members(cluster)
            if gallery is None
            else np.array(gallery.uncertain[cluster] or gallery.typical[cluster]),
            SHOWN,
        )
        for cluster in summary.clusters
    }
    candidates = np.sort(np.concatenate([*each.values(), np.zeros(0, dtype=np.intp)]).astype(np.intp))
    overall = set(summary.least_certain(candidates, SHOWN).tolist())
    samples = [
        UncertainSample(
            name=findings.row_name(row),
            class_name=None if classes is None else classes.name(row),
            tile=None if gallery is None else gallery.tile[row],
            cluster=int(summary.labels[row]),
            probability=float(summary.confidence[row]),
            following=int(summary.following[row]),
            following_probability=float(summary.following_probability[row]),
            overall=row in overall,
        )
        for row in summary.least_certain(candidates, len(candidates)).tolist()
    ]
    return samples, [cluster for cluster, rows in each.items() if not len(rows)]


def _confusion(classes: Classes, summary: Summary) -> list[ConfusionRow]:
    """A row for each class, in the order of the clusters that hold most of them: what agrees lies on a diagonal.

    The last row counts the samples whose class is not known.
    """
    width, height = len(summary.sizes), len(classes.names) + (not classes.complete)
    table = np.bincount(classes.codes * width + summary.labels, minlength=height * width).reshape(-1, width)
    table = table[:, summary.clusters]
    order = np.lexsort((-table.max(1), table.argmax(1), np.arange(height) == len(classes.names)))
    names = [*classes.names, None]
    return [ConfusionRow(names[code], table[code].tolist()) for code in order.tolist()]


def _thinned(history: Mapping[str, Sequence[float]]) -> dict[str, list[tuple[int, float]]]:
    """(epoch, value) of each metric that has finite values, at most MOST_EPOCHS of them, the last among them."""
    found = {}
    for name, values in history.items():
        kept = np.unique(np.linspace(0, len(values) - 1, min(len(values), MOST_EPOCHS)).round().astype(int))
        pairs = [(int(at) + 1, float(values[at])) for at in kept] if len(values) else []
        pairs = [(epoch, value) for epoch, value in pairs if np.isfinite(value)]
        if pairs:
            found[name] = pairs
    return found


def _curves(thinned: Mapping[str, Sequence[tuple[int, float]]], history: Mapping[str, Sequence[float]]) -> list[Curve]:
    last_epoch = max((len(history[name]) for name in thinned), default=0)
    return [_curve(name, pairs, last_epoch) for name, pairs in thinned.items()]


def _curve(name: str, pairs: Sequence[tuple[int, float]], last_epoch: int) -> Curve:
    """One metric over the epochs 1 … last_epoch."""
    values = [value for _, value in pairs]
    low, high = min(values), max(values)
    if name == "clusters":
        low = min(low, 0.0)
    room = 0.08 * (high - low) or 1.0
    base, extent = low - room, high - low + 2 * room
    spots = [
        (coordinate(300 * (epoch - 1) / max(last_epoch - 1, 1)), coordinate(100 * (1 - (value - base) / extent)))
        for epoch, value in pairs
    ]
    path = f"M0 {spots[0][1]}H300" if len(spots) == 1 else "M" + "L".join(f"{x} {y}" for x, y in spots)
    lowest, highest = (integer(end) if name == "clusters" else level(end, high - low) for end in (low, high))
    return Curve(
        name=name,
        path=path,
        base=base,
        extent=extent,
        low=lowest,
        high=highest,
        is_flat=not high > low,
        first=values[0],
        last=values[-1],
        first_epoch=pairs[0][0] if last_epoch > 1 else 1,
        last_epoch=last_epoch,
    )

"""The first screen of the page: the result in words and in a few numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from pollux.errors import counted
from pollux.metrics import AGREED
from pollux.report.findings import Findings
from pollux.report.markup import integer, shortened
from pollux.trees.words import percent

if TYPE_CHECKING:
    from pollux.inspection.structure import Structure

# A sample is doubtful if the probability of its cluster is lower than this.
DOUBT = 0.6


def write_lead(findings: Findings) -> str:
    """The result in one sentence or two."""
    summary = findings.summary
    n, sizes = findings.n_samples, findings.all_sizes if findings.totals is None else findings.totals
    clusters = np.flatnonzero(sizes).tolist()
    used = len(clusters)
    limit = f", of at most {integer(summary.n_allowed)}" if summary.n_allowed > used else ""
    drawn = "" if findings.totals is None else f"; {integer(len(summary.labels))} of them are shown"
    words = f"{counted(n, 'sample')} in {counted(used, 'group')}{limit}{drawn}."
    if used < 2:
        return words

    def describe(cluster: int) -> str:
        name = findings.cluster_name(cluster)
        called = f"“{shortened(name, 80)}”" if name else f"cluster {cluster}"
        return f"{share_in_words(sizes[cluster] / n)}, is {called}"

    smallest = f"; the smallest, {describe(clusters[-1])}" if used > 2 else ""
    return f"{words} The largest, {describe(clusters[0])}{smallest}."


def answer_questions(findings: Findings) -> list[tuple[str, str]]:
    """Common questions of a reader, with answers in words."""
    summary = findings.summary
    if len(summary.clusters) < 2:
        return []
    n_doubtful = int((summary.confidence < DOUBT).sum())
    sure = share_in_words(float((summary.confidence >= DOUBT).mean()))
    of_shown = "" if findings.totals is None else " of those shown"
    doubt = f"; {counted(n_doubtful, 'sample')}{of_shown} could as well be elsewhere" if n_doubtful else ""
    text = f"The model is sure of {sure} of the samples{doubt}. That does not tell whether its clusters are right."
    if findings.structure is not None and findings.structure.grade == "none":
        text = f"{sure.capitalize()} of the samples lie well inside one part{doubt}. That makes the division no truer."
    if findings.agreement is not None:
        changing = int((findings.agreement < 0.5).sum())
        doubt = f"; on {counted(changing, 'sample')}{of_shown} most of them do not" if changing else ""
        share = percent(float(findings.agreement.mean()))
        text = f"Other trainings, on parts of the data, agree on {share} of the samples{doubt}."
    if findings.stability is not None and findings.stability < AGREED:
        text = f"Restarts disagree (adjusted Rand index {findings.stability:.2f}): another seed may find others. {text}"
    answers = [("How sure", text)]
    if findings.structure is not None:
        answers.insert(0, ("Are they real?", say_evidence(findings.structure)))
    if findings.outliers is not None:
        count = int(findings.outliers.sum())
        ringed = "fits in nowhere: it is ringed" if count == 1 else "fit in nowhere: they are ringed"
        text = f"{counted(count, 'sample')}{of_shown} {ringed} on the map."
        text = text if count else "No sample lies far from all others."
        answers.append(("Outliers", text))
    if findings.explanation is not None:
        leading = [name for name, share in findings.explanation.importances.items() if share >= 0.1][:3]
        if leading:
            answers.append(("Set apart by", f"{', '.join(shortened(name, 40) for name in leading)}."))
    return answers


def say_evidence(structure: Structure) -> str:
    """A sentence on whether the groups are there, with the evidence."""
    if structure.is_unknown:
        return f"{structure.reason.capitalize()}."
    if structure.others is not None:
        by = f"by the values of “{shortened(structure.category, 40)}”"
        if structure.others.grade == "likely":
            return f"{structure.grade.capitalize()} {by}, a category; the other columns show groups too."
        shown = "in the other columns none are shown" if structure.others.is_open else "the other columns show none"
        return f"Only {by}, a category, which are what these groups are: {shown}."
    if structure.grade == "clear":
        return "Clearly: there are gaps between the groups, or far fewer samples than within."
    if structure.grade == "likely":
        return "Likely: they touch, but explain the data better than a single group does."
    if structure.is_open:
        return "It is not shown: they hardly explain the data better than a single group does."
    return "There is no sign of it: a single group explains the data as well. Take them as a way to divide it."


def list_metrics(findings: Findings, scores: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The most important numbers: name, value, note."""
    summary, classes, n = findings.summary, findings.known_classes, findings.n_samples
    first, last, sizes = summary.clusters[0], summary.clusters[-1], findings.all_sizes
    limit = f"of at most {integer(summary.n_allowed)}" if summary.n_allowed > len(summary.clusters) else ""
    metrics = [
        ("Samples", integer(n), "" if findings.totals is None else f"{integer(len(summary.labels))} are shown"),
        ("Clusters", integer(len(summary.clusters)), limit),
        ("Largest", percent(sizes[first] / n), f"cluster {first}"),
        ("Smallest", percent(sizes[last] / n), f"cluster {last}"),
        ("Sure of", percent(float((summary.confidence >= DOUBT).mean())), f"at a probability of {percent(DOUBT)}")
        if findings.structure is None
        else ("Structure", findings.structure.grade, "whether there are clusters"),
    ]
    labelled = ""
    if classes is not None and not classes.known.all():
        labelled = f"of {integer(classes.known.sum())} samples"
    return metrics + [(name, value, labelled) for name, value in list(scores.items())[:2]]


def share_in_words(share: float) -> str:
    return percent(share).replace("<", "less than ").replace(">", "more than ")

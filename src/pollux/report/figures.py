"""Figures of a clustering, without pyplot; matplotlib is imported by the first one only."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from pollux.metrics import renyi_entropy
from pollux.report.canvas import (
    GRID,
    INK,
    QUIET,
    TITLE,
    Predict,
    as_classes,
    as_images,
    as_labels,
    as_plane,
    as_probabilities,
    axes_for,
    clean_axes,
    colour_bar,
    colour_map,
    colours,
    confidence_of,
    groups_of,
    heat_map,
    new_figure,
    number_clusters,
    over_the_plane,
    predict_in_parts,
    scatter,
    shortened,
)
from pollux.trees.contrasts import compare_clusters

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TRAINING = {"objective": "Objective (is maximised)", "clusters": "Clusters in use", "entropy": "Entropy (nats)"}
# Blue and orange can be distinguished with all common kinds of colour vision.
DIFFERENCE = ("#23527c", "#7fa8cb", "#f7f7f5", "#e9ae79", "#a84f0a")
UNCERTAIN, SHARE = ("#fbfaf8", "#cfc4e0", "#8a68ad", "#46246b"), ("#ffffff", "#2f6fb2")


def plot_map(
    points: ArrayLike,
    labels: ArrayLike,
    *,
    probabilities: ArrayLike | None = None,
    axes_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Plot samples (n, 2) in the colours of their clusters (n,), each numbered where it is purest and densest.

    Parameters
    ----------
    points : array-like of shape (n, 2)
        Where each sample lies, for instance on two principal components.
    labels : array-like of int of shape (n,)
        The cluster of each sample; −1, for none, is drawn in grey.
    probabilities : array-like of shape (n, K), optional
        p(y|x): the less certain a sample, the paler its colour.
    axes_names : pair of str, optional
        Names of the two axes; without them, the axes are not shown.
    ax : Axes, optional
        The axes to draw on, without a title.
    """
    X = as_plane(points, "points")
    label = as_labels(labels, len(X))
    ax = axes_for(X, ax, f"The clusters of {len(X):,} samples")
    p = np.ones((len(X), 1)) if probabilities is None else as_probabilities(probabilities, len(X))
    scatter(ax, X, label, alpha=0.15 + 0.6 * confidence_of(p), linewidths=0)
    number_clusters(ax, X, label)
    if axes_names is None:
        ax.set_axis_off()
    else:
        ax.set_xlabel(shortened(axes_names[0], 60), color=QUIET)
        ax.set_ylabel(shortened(axes_names[1], 60), color=QUIET)
    return ax.figure.figure


def plot_training(history: Mapping[str, Sequence[float]], *, n_clusters: int | None = None) -> Figure:
    """Plot the objective, the clusters in use and the mean entropy of the predictions against the epoch.

    Parameters
    ----------
    history : mapping
        ``objective``, ``clusters`` and ``entropy`` of each epoch, or some of them: ``clustering.history_``.
    n_clusters : int, optional
        Number of clusters requested, as a dashed line.
    """
    curves = {name: np.asarray(history[name], dtype=float) for name in TRAINING if len(history.get(name, ()))}
    if not curves:
        raise ValueError("history has no epochs to draw: give the history_ of a clustering that was fitted.")
    figure = new_figure(3.4 * len(curves), 2.9)
    for (name, values), ax in zip(curves.items(), figure.subplots(1, len(curves), squeeze=False)[0], strict=True):
        asked = n_clusters if name == "clusters" else None
        colour, ends = colours(3)[list(TRAINING).index(name)], [0.0, asked or 0, *values[np.isfinite(values)]]
        ax.plot(range(1, len(values) + 1), values, color=colour, linewidth=2.2, marker="o" * (len(values) == 1))
        clean_axes(ax).set_title(TRAINING[name], **TITLE)
        ax.set_xlabel("epoch", color=QUIET)
        ax.set_ylim(1.08 * min(ends), 1.12 * max(ends) or (min(ends) == 0))
        ax.set_xlim(*((0.5, 1.5) if len(values) == 1 else (1, len(values))))
        ax.grid(axis="y", color=GRID)
        ax.locator_params(axis="y", nbins=4, steps=[1, 2, 5, 10], integer=name == "clusters")
        ax.locator_params(axis="x", nbins=6, integer=True, min_n_ticks=1)
        if asked is not None:
            ax.axhline(asked, color=QUIET, linestyle="--", linewidth=1)
            where = ax.get_yaxis_transform()
            ax.text(0.99, asked, "asked for", transform=where, color=QUIET, fontsize=8, ha="right", va="bottom")
    return figure


def plot_profiles(
    features: ArrayLike,
    labels: ArrayLike,
    names: Sequence[str],
    *,
    top: int = 8,
    shares: Collection[str] = (),
    ax: Axes | None = None,
) -> Figure:
    """Plot (mean of the cluster − mean of all) / standard deviation: features (n, d), labels (n,) → heat map (top, K).

    Parameters
    ----------
    features : array-like of shape (n, d)
        The samples in their own units. NaN and infinite values are ignored.
    labels : array-like of int of shape (n,)
        The cluster of each sample; −1 gets the last column.
    names : sequence of str
        Names of the d features.
    top : int, default=8
        Number of features to show: those with the largest absolute difference in any cluster, the largest first.
    shares : collection of str
        The names of features that are zeros and ones: their cells show the share within the cluster instead.
    ax : Axes, optional
        The axes to draw on, without a title.
    """
    X, names = np.asarray(features, dtype=float), list(map(str, names))
    if X.ndim != 2 or 0 in X.shape or len(names) != X.shape[1] or top < 1:
        raise ValueError(f"features must be (n, d) with d names and top ≥ 1: got {X.shape}, {len(names)} and {top}.")
    groups = groups_of(as_labels(labels, len(X)))
    contrasts = compare_clusters(X, np.argmax([members for _, _, members in groups], axis=0), len(groups))
    # Equal means may differ by a rounding error of either sign.
    differences, means = contrasts.from_mean.round(12) + 0.0, contrasts.inside
    strength = np.abs(np.nan_to_num(differences)).max(0)
    chosen = np.argsort(-strength, kind="stable")[:top]
    shown = [shortened(names[j], 30) + (" (share)" if names[j] in shares else "") for j in chosen]
    highest = float(np.clip(strength.max(), 1, 3))
    pairs, title = np.stack([means, differences.round(1) + 0.0], axis=2), "What sets the clusters apart"
    cells = [[f"{m:z.0%}" if names[j] in shares else f"{z:+.1f}" for m, z in pairs[:, j]] for j in chosen]
    ax = heat_map(ax, title, differences[:, chosen].T, (DIFFERENCE, -highest, highest), shown, groups, cells)
    colour_bar(ax, "deviations from the mean", extend="both" if strength.max() > highest else "neither")
    return ax.figure.figure


def plot_images(images: ArrayLike, labels: ArrayLike, *, classes: ArrayLike | None = None) -> Figure:
    """Plot the mean image of each cluster, with its size: images (n, H, W), (n, H, W, 3) or (n, C, H, W), labels (n,).

    Parameters
    ----------
    images : array-like
        Pixels from 0 to 255 if uint8, else from 0 to 1, else from the lowest to the highest of all. In grey images,
        high values are dark.
    labels : array-like of int of shape (n,)
        The cluster of each image; −1 comes last, in grey.
    classes : array-like of shape (n,), optional
        Known classes: the most common one of each cluster is named, with its share.
    """
    pictures, (low, high) = as_images(images)
    groups = groups_of(as_labels(labels, len(pictures)))
    known = None if classes is None else as_classes(classes, len(pictures))
    rows = -(-len(groups) // 6)
    columns = -(-len(groups) // rows)
    figure = new_figure(1.6 * max(columns, 2), (1.9 if known is None else 2.1) * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for ax in panels[len(groups) :]:
        ax.remove()
    for (name, colour, members), ax in zip(groups, panels, strict=False):
        mean = (pictures[members].mean(0, dtype=float) - low) / (high - low)
        ax.imshow(mean, cmap="Greys", vmin=0, vmax=1, interpolation="bicubic" if len(mean) < 100 else "antialiased")
        ax.set(xticks=[], yticks=[])
        ax.spines[:].set(visible=True, color=colour, linewidth=2)
        size = int(np.count_nonzero(members))
        ax.set_title(f"{name}: {size:,} image{'s' * (size != 1)}", color=colour, weight="bold", fontsize=9)
        if known is not None:
            found, counts = np.unique(known[members], return_counts=True)
            most = f"{counts.max() / size:.0%} are {shortened(found[counts.argmax()], 12)}"
            ax.set_xlabel(most, color=QUIET, fontsize=9)
    return figure


def plot_decision_regions(
    predict_proba: Predict,
    X: ArrayLike,
    labels: ArrayLike | None = None,
    *,
    resolution: int = 200,
    margin: float = 0.1,
    ax: Axes | None = None,
) -> Figure:
    """Plot argmax p(y|x) over the plane around X (n, 2), stronger where p is larger, with boundaries and the samples.

    Parameters
    ----------
    predict_proba : callable
        (m, 2) → (m, K): ``clustering.predict_proba``. It is called with up to 10,000 rows, in the dtype of X.
    X : array-like of shape (n, 2)
        The samples; if outliers would make the plane too wide, those to show.
    labels : array-like of int of shape (n,), optional
        Their clusters, −1 for none (grey); by default the predicted ones.
    resolution, margin : int, float
        Number of predictions along each axis, and the margin around the samples as a share of their spread.
    ax : Axes, optional
        The axes to draw on, without a title.
    """
    X = as_plane(X, "X")
    label = predict_in_parts(predict_proba, X).argmax(1) if labels is None else as_labels(labels, len(X))
    ax = axes_for(X, ax, "Regions of the clusters")
    place, p = over_the_plane(ax, predict_proba, X, resolution, margin)
    best, strength = p.argmax(2), 0.06 + 0.34 * confidence_of(p)[..., None]
    own = np.array([list(bytes.fromhex(colour[1:])) for colour in colours(p.shape[2])])[best] / 255
    ax.imshow(1 - strength * (1 - own), **place)
    # Two adjacent clusters share a boundary, so the first cluster need not draw its own.
    for k in np.unique(best)[1:]:
        lead = p[..., k] - np.delete(p, k, axis=2).max(2)
        ax.contour(lead, levels=[0.0], colors=INK, linewidths=0.9, extent=place["extent"], origin="lower")
    scatter(ax, X, label, edgecolors="white", linewidths=0.5)
    number_clusters(ax, X, label)
    return ax.figure.figure


def plot_entropy_map(
    predict_proba: Predict, X: ArrayLike, *, order: float = 2.0, resolution: int = 200, ax: Axes | None = None
) -> Figure:
    """Plot log(Σ p(y|x)^order) / (1 − order) over the plane around X (n, 2), in nats, from 0 (pale) to log K (dark).

    Parameters
    ----------
    predict_proba, X, resolution, ax
        As for :func:`plot_decision_regions`.
    order : float, default=2.0
        Order of Rényi's entropy: 1 is Shannon's, 0 and infinity are limits.
    """
    X = as_plane(X, "X")
    ax = axes_for(X, ax, "How uncertain the predictions are")
    place, p = over_the_plane(ax, predict_proba, X, resolution, 0.1)
    entropy = renyi_entropy(p.reshape(-1, p.shape[2]), order).reshape(p.shape[:2])
    ax.imshow(entropy, cmap=colour_map(UNCERTAIN), vmin=0, vmax=math.log(p.shape[2]) or 1.0, **place)
    scatter(ax, X, None, alpha=0.6, linewidths=0)
    colour_bar(ax, "Shannon entropy (nats)" if order == 1 else f"Rényi entropy of order {order:g} (nats)")
    return ax.figure.figure


def plot_confusion(classes: ArrayLike, labels: ArrayLike, ax: Axes | None = None) -> Figure:
    """Plot the samples of each class (row) in each cluster (column), shaded by their share of the class: (n,), (n,).

    Clusters are ordered by their most common classes, so that agreement lies along the diagonal.

    Parameters
    ----------
    classes : array-like of shape (n,)
        Known classes, numbers or text.
    labels : array-like of int of shape (n,)
        The cluster of each sample; −1 gets the last column.
    ax : Axes, optional
        The axes to draw on, without a title.
    """
    label = as_labels(labels)
    found, codes = np.unique(as_classes(classes, len(label)), return_inverse=True)
    columns = [(group, np.bincount(codes[group[2]], minlength=len(found))) for group in groups_of(label)]
    columns.sort(key=lambda column: (column[0][0] == "none", column[1].argmax(), -column[1].max()))
    groups, table = [group for group, _ in columns], np.array([counts for _, counts in columns]).T
    names = [shortened(name, 30) for name in found]
    cells = [[f"{count:,}" if count else "" for count in row] for row in table]
    title, share = "Samples of each class in each cluster", table / table.sum(1, keepdims=True)
    ax = heat_map(ax, title, share, (SHARE, 0, 1), names, groups, cells)
    return ax.figure.figure

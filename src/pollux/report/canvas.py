"""Colours of clusters, the same in the page and in the figures; and helpers to draw figures.

matplotlib is imported by the first figure.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import KDTree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

Array = NDArray[Any]
Group = tuple[str, str, NDArray[np.bool_]]
Ramp = tuple[Sequence[str], float, float]
Predict = Callable[[Any], ArrayLike]
INK, QUIET = "#1f2933", "#616e7c"
# The page's background in dark mode, and the minimum contrast of text on it.
ON_DARK, READABLE = "#14181d", 4.8
COLOURS = (
    *("#2f6fb2", "#d1495b", "#3b8f5a", "#e08e29", "#7b4fa3", "#17a2a2", "#8c5a3c", "#d65da8"),
    *("#7f8c1c", "#3d4fa8", "#b2381a", "#6aa2dc", "#4a4a55", "#b58a00", "#9b1b5a"),
)
GREY, GRID = "#a9b1ba", "#e4e7eb"
TITLE: dict[str, Any] = {"loc": "left", "color": INK, "fontsize": 10}
ROWS_AT_ONCE = 10_000


def colours(count: int) -> list[str]:
    """``count`` different colours for clusters, as ``#rrggbb``."""
    # Beyond those chosen by eye, hues are a golden angle apart: consecutive ones differ, however many there are.
    further = (colorsys.hls_to_rgb(0.618 * k % 1, 0.35 + 0.12 * (k % 3), 0.55) for k in range(count - len(COLOURS)))
    return [*COLOURS[:count], *map(_hex, further)]


def both_colours(count: int) -> dict[str, list[str]]:
    """Colours on a light and on a dark background."""
    light = colours(count)
    return {"light": light, "dark": [on_dark(colour) for colour in light]}


def on_dark(colour: str) -> str:
    """The same hue, lightened until it stands out from the dark background."""
    hue, lightness, saturation = colorsys.rgb_to_hls(*_rgb(colour))
    lighter = colour
    while contrast(lighter, ON_DARK) < READABLE:
        lightness += 0.02
        lighter = _hex(colorsys.hls_to_rgb(hue, lightness, saturation))
    return lighter


def contrast(colour: str, other: str) -> float:
    """Contrast ratio, from 1 for equal colours to 21 for black on white."""
    low, high = sorted((luminance(colour), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    """Relative luminance of ``#rrggbb``, from 0 to 1."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in _rgb(colour))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = bytes.fromhex(colour[1:])
    return red / 255, green / 255, blue / 255


def _hex(rgb: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


def new_figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise ImportError("Figures are drawn by matplotlib: pip install 'pollux[report]'") from error
    return Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08), facecolor="white")


def clean_axes(ax: Axes | None, width: float = 6, height: float = 4, title: str = "") -> Axes:
    """``ax``, or the only axes of a new figure, with a title; without frame and ticks."""
    if ax is None:
        ax = new_figure(width, height).add_subplot()
        ax.set_title(title, **TITLE)
    ax.spines[:].set_visible(False)
    ax.tick_params(which="both", colors=QUIET, length=0, labelsize=9)
    return ax


def axes_for(X: Array, ax: Axes | None, title: str) -> Axes:
    """Axes with equal scales, unless X (n, 2) is far longer in one direction."""
    width, height = np.ptp(X, axis=0).tolist()
    equal = 0.25 * width <= height <= 4 * width and width > 0
    ax = clean_axes(ax, 6.6, min(6.6 * height / width, 7) + 0.5 if equal else 5, title)
    ax.set_aspect("equal" if equal else "auto")
    return ax


def as_plane(points: ArrayLike, name: str) -> Array:
    X = np.asarray(points)
    X = X if X.dtype.kind == "f" else X.astype(float)
    if X.ndim != 2 or X.shape[1] != 2 or not len(X):
        raise ValueError(f"{name} must be (n, 2), but has shape {X.shape}: choose two columns, or project by PCA(2).")
    if not np.isfinite(X).all():
        raise ValueError(f"{name} has missing or infinite values: leave those samples out.")
    return X


def as_labels(labels: ArrayLike, n: int | None = None) -> NDArray[np.int64]:
    label = np.asarray(labels)
    if label.ndim != 1 or label.dtype.kind not in "iu" or not len(label) or label.min() < -1:
        raise ValueError(f"labels must be (n,) integers from 0, or −1 for none; got {label.dtype} {label.shape}.")
    if n is not None and len(label) != n:
        raise ValueError(f"There are {len(label)} labels for {n} samples: give one for each.")
    return label.astype(np.int64)


def as_classes(classes: ArrayLike, n: int) -> Array:
    known = np.asarray(classes)
    if known.shape != (n,):
        raise ValueError(f"classes must be (n,), one for each of {n} samples, but has shape {known.shape}.")
    return known.astype(str) if known.dtype.kind == "O" else known


def as_probabilities(probabilities: ArrayLike, n: int) -> Array:
    p = np.asarray(probabilities)
    if p.ndim != 2 or len(p) != n or not p.size or not np.isfinite(p).all():
        raise ValueError(f"Probabilities of {n} samples must be ({n}, K) and finite, but have shape {p.shape}.")
    return p


def as_images(images: ArrayLike) -> tuple[Array, tuple[float, float]]:
    """Images (n, H, W) or (n, H, W, 3), with the values of black and of white, or the reverse."""
    pictures = np.asarray(images)
    if pictures.ndim == 4 and pictures.shape[3] not in (1, 3) and pictures.shape[1] in (1, 3):
        pictures = np.moveaxis(pictures, 1, 3)
    if pictures.ndim == 4 and pictures.shape[3] == 1:
        pictures = pictures[..., 0]
    if not pictures.size or (pictures.ndim != 3 and pictures.shape[3:] != (3,)):
        raise ValueError(f"images must be (n, H, W), (n, H, W, 3) or (n, C, H, W), but have shape {pictures.shape}.")
    if pictures.dtype == np.uint8:
        return pictures, (0.0, 255.0)
    low, high = float(pictures.min()), float(pictures.max())
    return pictures, (0.0, 1.0) if low >= 0 and high <= 1 else (low, max(high, low + 1e-9))


def predict_in_parts(predict_proba: Predict, X: Array) -> Array:
    chunks = (X[start : start + ROWS_AT_ONCE] for start in range(0, len(X), ROWS_AT_ONCE))
    return np.concatenate([as_probabilities(predict_proba(rows), len(rows)) for rows in chunks])


def over_the_plane(ax: Axes, p_of: Predict, X: Array, resolution: int, margin: float) -> tuple[dict[str, Any], Array]:
    """Style of a picture of the plane, and p(y|x) at the centre of each of its pixels: (r, r, K)."""
    if resolution < 2 or margin < 0:
        raise ValueError(f"resolution must be at least 2 and margin at least 0, but got {resolution} and {margin}.")
    around = np.where(np.ptp(X, axis=0) > 0, margin * np.ptp(X, axis=0), 0.5)
    low, high = X.min(0) - around, X.max(0) + around
    grid = np.stack(np.meshgrid(*np.linspace(low, high, resolution, dtype=X.dtype).T), axis=-1)
    half = (high - low) / (resolution - 1) / 2
    extent = np.stack([low - half, high + half], axis=1).ravel().tolist()
    place = {"extent": extent, "origin": "lower", "interpolation": "bilinear", "aspect": ax.get_aspect()}
    return place, predict_in_parts(p_of, grid.reshape(-1, 2)).reshape(resolution, resolution, -1)


def confidence_of(p: Array) -> Array:
    """max p over the last axis, scaled from 0 (uniform) to 1 (certain)."""
    K = p.shape[-1]
    return np.clip((p.max(-1) * K - 1) / (K - 1), 0, 1) if K > 1 else np.ones(p.shape[:-1])


def groups_of(label: NDArray[np.int64]) -> list[Group]:
    """Name, colour and members (n,) of each cluster in use, and last those of samples without a cluster."""
    palette, found = [*colours(int(label.max()) + 1), GREY], np.unique(label)
    return [(str(k) if k >= 0 else "none", palette[k], label == k) for k in np.roll(found, -int(found[0] < 0))]


def scatter(ax: Axes, X: Array, label: NDArray[np.int64] | None, **style: Any) -> None:
    colour = INK if label is None else np.array([*colours(int(label.max()) + 1), GREY])[label]
    size = np.clip((250 if label is None else 600) / len(X) ** 0.5, 4, 42)
    ax.scatter(X[:, 0], X[:, 1], s=size, c=colour, rasterized=len(X) > 5000, **style)


def number_clusters(ax: Axes, X: Array, label: NDArray[np.int64]) -> None:
    """Write each cluster's number at one of its samples: away from other numbers, where it is purest, then densest."""
    groups = sorted((group for group in groups_of(label) if group[0] != "none"), key=lambda group: -group[2].sum())
    scaled = X / (np.ptp(X, axis=0).max() or 1)
    tree, placed = KDTree(scaled), np.empty((0, 2))
    near = np.arange(min(max(len(X) // (2 * max(len(groups), 1)), 1), 40)) + 1
    for name, colour, members in groups:
        spots = np.flatnonzero(members)[:: -(-np.count_nonzero(members) // 400)]
        distances, neighbours = tree.query(scaled[spots], near)
        purity = members[neighbours].mean(1)
        crowded = (np.linalg.norm(scaled[spots][:, None] - placed, axis=2) < 0.055).any(1)
        spot = spots[np.lexsort((distances[:, -1], purity < 0.97 * purity.max(), crowded))[0]]
        placed = np.vstack([placed, scaled[spot]])
        x, y = X[spot]
        ax.scatter(x, y, s=230, color=colour, edgecolors="white", linewidths=1.5, zorder=3)
        ax.text(x, y, name, color="white", weight="bold", size=10 - len(name), ha="center", va="center_baseline")


def heat_map(
    ax: Axes | None, title: str, values: Array, ramp: Ramp, rows: list[str], groups: list[Group], cells: list[list[str]]
) -> Axes:
    """Draw values (rows, K) as a heat map; cells show their values if there are few."""
    ax = clean_axes(ax, max(4.4, 1.5 + 0.08 * max(map(len, rows)) + 0.52 * len(groups)), 1.1 + 0.31 * len(rows), title)
    image = ax.imshow(values, cmap=colour_map(ramp[0]), vmin=ramp[1], vmax=ramp[2], aspect="auto")
    ax.tick_params(labeltop=True, labelbottom=False)
    ax.set_xticks(range(len(groups)), [f"{name}\n{np.count_nonzero(members):,}" for name, _, members in groups])
    ax.set_yticks(range(len(rows)), rows, color=INK)
    for tick, (_, colour, _) in zip(ax.get_xticklabels(), groups, strict=True):
        tick.set(color=colour, weight="bold", fontsize=8)
    ax.set_xticks(np.arange(1, len(groups)) - 0.5, minor=True)
    ax.set_yticks(np.arange(1, len(rows)) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=1.5)
    dark = image.to_rgba(values)[..., :3] @ (0.3, 0.59, 0.11) < 0.55
    if len(groups) <= 14 and len(rows) <= 30:
        for i, k in np.argwhere(~np.isnan(values)):
            ax.text(k, i, cells[i][k], color="white" if dark[i, k] else INK, fontsize=8, ha="center", va="center")
    return ax


def colour_bar(ax: Axes, label: str, **style: Any) -> None:
    bar = ax.figure.colorbar(ax.images[-1], cax=ax.inset_axes((1.02, 0, 0.025, 1)), **style)
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=QUIET, length=0, labelsize=8)
    bar.set_label(label, color=QUIET, fontsize=9)


def colour_map(ramp: Sequence[str]) -> Colormap:
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("pollux", list(ramp)).with_extremes(bad=GRID)


def shortened(name: object, most: int) -> str:
    """At most ``most`` characters on one line, cut in the middle: names that begin alike often differ at their ends."""
    text = " ".join(str(name).split())
    text = text if len(text) <= most else f"{text[: most - most // 3 - 1]}…{text[-(most // 3) :]}"
    return text.replace("$", r"\$")

"""Colours of clusters, the same in the page and in the figures."""

from __future__ import annotations

import colorsys

INK, QUIET = "#1f2933", "#616e7c"

COLOURS = (
    *("#2f6fb2", "#d1495b", "#3b8f5a", "#e08e29", "#7b4fa3", "#17a2a2", "#8c5a3c", "#d65da8"),
    *("#7f8c1c", "#3d4fa8", "#b2381a", "#6aa2dc", "#4a4a55", "#b58a00", "#9b1b5a"),
)


def colours(count: int) -> list[str]:
    """A colour for each of so many clusters, as ``#rrggbb``."""
    # Beyond those chosen by eye, hues a golden angle apart: neighbours differ however many there are.
    further = (colorsys.hls_to_rgb(0.618 * k % 1, 0.35 + 0.12 * (k % 3), 0.55) for k in range(count - len(COLOURS)))
    return [*COLOURS[:count], *("#" + "".join(f"{round(255 * part):02x}" for part in rgb) for rgb in further)]

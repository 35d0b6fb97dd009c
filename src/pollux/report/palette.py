"""Colours of clusters, the same in the page and in the figures."""

from __future__ import annotations

import colorsys

INK, QUIET = "#1f2933", "#616e7c"
# The page's background in dark mode, and the contrast that text needs on it.
ON_DARK, READABLE = "#14181d", 4.8

COLOURS = (
    *("#2f6fb2", "#d1495b", "#3b8f5a", "#e08e29", "#7b4fa3", "#17a2a2", "#8c5a3c", "#d65da8"),
    *("#7f8c1c", "#3d4fa8", "#b2381a", "#6aa2dc", "#4a4a55", "#b58a00", "#9b1b5a"),
)


def colours(count: int) -> list[str]:
    """``count`` different colours for clusters, as ``#rrggbb``."""
    # Beyond those chosen by eye, hues a golden angle apart: neighbours differ however many there are.
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
    """From 1, the same, to 21, black on white."""
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

"""Samples that are images: means, typical and uncertain ones, and thumbnails for the map, in a few sprite sheets."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.report.findings import Summary

LARGEST = 64
# Smaller images are enlarged without smoothing.
PIXELATED = 40
MOST_THUMBNAILS = 12_000
THUMBNAIL_BYTES = 1_150_000

Images = NDArray[np.uint8]


@dataclass(frozen=True)
class Sheet:
    """One picture of equal tiles, row by row; its layout is columns, rows, and the width and height of a tile."""

    address: str
    tiles: int
    layout: tuple[int, int, int, int]

    def position(self, tile: int) -> str:
        """The position of a tile as a CSS background position, at any size."""
        columns, rows = self.layout[:2]
        x = 100 * (tile % columns) / (columns - 1) if columns > 1 else 0
        y = 100 * (tile // columns) / (rows - 1) if rows > 1 else 0
        return f"{x:.4g}% {y:.4g}%"


@dataclass(frozen=True)
class Gallery:
    """Tiles on one sheet: the mean of each cluster, the image of a row. With typical and least certain rows."""

    sheet: Sheet
    sharp: bool
    mean: dict[int, int]
    tile: dict[int, int]
    typical: dict[int, list[int]]
    uncertain: dict[int, list[int]]


def make_gallery(images: Images, summary: Summary, further: Sequence[int] = ()) -> Gallery:
    """Collect the images (n, H, W[, 3]) that are shown for each cluster, and further rows."""
    sharp = max(images.shape[1:3]) <= PIXELATED
    members = {cluster: summary.members(cluster) for cluster in summary.clusters}
    typical = {cluster: summary.most_typical(cluster).tolist() for cluster in summary.clusters}
    uncertain = {
        cluster: summary.least_certain(np.setdiff1d(own, typical[cluster])).tolist() for cluster, own in members.items()
    }
    rows = sorted({row for own in (*typical.values(), *uncertain.values(), further) for row in own})
    means = np.stack([np.rint(images[own].mean(0, dtype=np.float64)).astype(np.uint8) for own in members.values()])
    tiles = np.concatenate([_shrink(means, LARGEST), _shrink(images[rows], LARGEST)])
    sheet, _ = (
        _encode_sheet(tiles, "PNG", optimize=True) if sharp else _encode_sheet(tiles, "JPEG", quality=82, subsampling=0)
    )
    return Gallery(
        sheet=sheet,
        sharp=sharp,
        mean={cluster: tile for tile, cluster in enumerate(summary.clusters)},
        tile={row: tile for tile, row in enumerate(rows, start=len(means))},
        typical=typical,
        uncertain=uncertain,
    )


def make_thumbnails(images: Images) -> Sheet:
    """As many of the first images (n, H, W[, 3]) as fit into the byte limit, as large as possible."""
    images = images[:MOST_THUMBNAILS]
    for side in (32, 24, 16):
        tiles = _shrink(images, side)
        height, width = tiles.shape[1:3]
        # Pad to multiples of 8, the block size of JPEG, so that tiles do not bleed into their neighbours.
        around = [(0, 0), (0, -height % 8), (0, -width % 8), *[(0, 0)] * (tiles.ndim - 3)]
        tiles = np.pad(tiles, around, mode="edge")
        sheet, written = _encode_sheet(tiles, "JPEG", quality=50, subsampling=0)
        if written <= THUMBNAIL_BYTES:
            return sheet
    while written > THUMBNAIL_BYTES:
        tiles = tiles[: max(1, int(0.9 * len(tiles) * THUMBNAIL_BYTES / written))]
        sheet, written = _encode_sheet(tiles, "JPEG", quality=50, subsampling=0)
    return sheet


def _shrink(images: Images, side: int) -> Images:
    """Images (n, H, W[, 3]) shrunk so that neither H nor W exceeds the side, in proportion."""
    height, width = images.shape[1:3]
    if max(height, width) <= side:
        return images
    scale, pillow = side / max(height, width), _pillow()
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    shrunk = [np.asarray(pillow.fromarray(image).resize(size, pillow.Resampling.BOX)) for image in images]
    return np.stack(shrunk).astype(np.uint8)


def _encode_sheet(images: Images, kind: str, **options: Any) -> tuple[Sheet, int]:
    """Encode images (n, H, W[, 3]) as a sheet with about as many columns as rows; returns its size in bytes too."""
    n, height, width, *depth = images.shape
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    padded = np.zeros((rows * columns, *images.shape[1:]), dtype=np.uint8)
    padded[:n] = images
    grid = padded.reshape(rows, columns, height, width, *depth).swapaxes(1, 2)
    picture = np.ascontiguousarray(grid).reshape(rows * height, columns * width, *depth)
    buffer = io.BytesIO()
    _pillow().fromarray(picture).save(buffer, kind, **options)
    written = buffer.getvalue()
    address = f"data:image/{kind.lower()};base64,{base64.b64encode(written).decode('ascii')}"
    return Sheet(address, n, (columns, rows, width, height)), len(written)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("A report with images needs Pillow: pip install 'pollux[files]'") from None
    return Image

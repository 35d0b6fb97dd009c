"""Samples that are images: means, typical and uncertain ones, and thumbnails for the map, in few large pictures."""

from __future__ import annotations

import base64
import io
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.report.findings import SHOWN, Summary

LARGEST = 64
# Smaller images are enlarged with their pixels left sharp.
PIXELATED = 40
MOST_THUMBNAILS = 12_000
THUMBNAIL_BYTES = 1_150_000

Images = NDArray[np.uint8]


@dataclass(frozen=True)
class Sheet:
    """One picture of equal tiles, row by row."""

    address: str
    columns: int
    rows: int
    width: int
    height: int
    tiles: int

    @property
    def layout(self) -> list[int]:
        """What the script knows of the sheet."""
        return [self.tiles, self.columns, self.rows, self.width, self.height]

    def style(self, tile: int) -> str:
        """CSS that shows one tile, at any size."""
        across, down = tile % self.columns, tile // self.columns
        x = 100 * across / (self.columns - 1) if self.columns > 1 else 0
        y = 100 * down / (self.rows - 1) if self.rows > 1 else 0
        return f"background-position:{x:.4g}% {y:.4g}%"


@dataclass(frozen=True)
class Gallery:
    """Tiles of one sheet: of each cluster the mean, of a row its image. Rows that are typical, and least certain."""

    sheet: Sheet
    sharp: bool
    mean: dict[int, int]
    tile: dict[int, int]
    typical: dict[int, list[int]]
    uncertain: dict[int, list[int]]


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("A report with images needs Pillow: pip install 'pollux[files]'") from None
    return Image


def _shrink(images: Images, side: int) -> Images:
    """(n, H, W[, 3]) with neither H nor W beyond the side, in their proportions."""
    height, width = images.shape[1:3]
    if max(height, width) <= side:
        return images
    scale = side / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    pillow = _pillow()
    shrunk = [np.asarray(pillow.fromarray(image).resize(size, pillow.Resampling.BOX)) for image in images]
    return np.stack(shrunk).astype(np.uint8)


def _tile(images: Images) -> tuple[Images, int, int]:
    """(n, H, W[, 3]) → one image of about as many columns as rows, and their numbers."""
    n, height, width = images.shape[:3]
    columns = math.ceil(math.sqrt(n))
    rows = math.ceil(n / columns)
    padded = np.zeros((rows * columns, *images.shape[1:]), dtype=np.uint8)
    padded[:n] = images
    depth = images.shape[3:]
    grid = padded.reshape(rows, columns, height, width, *depth).swapaxes(1, 2)
    return np.ascontiguousarray(grid).reshape(rows * height, columns * width, *depth), columns, rows


def _encode_sheet(images: Images, kind: str, **options: Any) -> tuple[Sheet, int]:
    """A sheet of all images, and how many bytes it takes."""
    picture, columns, rows = _tile(images)
    buffer = io.BytesIO()
    _pillow().fromarray(picture).save(buffer, kind, **options)
    written = buffer.getvalue()
    address = f"data:image/{kind.lower()};base64,{base64.b64encode(written).decode('ascii')}"
    return Sheet(address, columns, rows, images.shape[2], images.shape[1], len(images)), len(written)


def make_gallery(images: Images, summary: Summary) -> Gallery:
    """The images (n, H, W[, 3]) that are shown for each cluster."""
    sharp = max(images.shape[1:3]) <= PIXELATED
    typical = {cluster: summary.most_typical(cluster, SHOWN).tolist() for cluster in summary.clusters}
    uncertain = {
        cluster: summary.least_certain(np.setdiff1d(summary.members(cluster), typical[cluster]), SHOWN).tolist()
        for cluster in summary.clusters
    }
    rows = sorted({row for own in (*typical.values(), *uncertain.values()) for row in own})
    means = [
        np.rint(images[summary.members(cluster)].mean(0, dtype=np.float64)).astype(np.uint8)
        for cluster in summary.clusters
    ]
    tiles = np.concatenate([_shrink(np.stack(means), LARGEST), _shrink(images[rows], LARGEST)])
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
    """As many of the first images (n, H, W[, 3]) as fit into the bytes there are, as large as they can be."""
    kept = images[:MOST_THUMBNAILS]
    for side in (32, 24, 16):
        # Blocks of a JPEG are of 8 pixels: tiles that end where blocks do leave no trace in their neighbours.
        sheet, written = _encode_sheet(_pad_to_blocks(_shrink(kept, side)), "JPEG", quality=50, subsampling=0)
        if written <= THUMBNAIL_BYTES:
            return sheet
    least = _pad_to_blocks(_shrink(kept, 16))
    while written > THUMBNAIL_BYTES:
        least = least[: max(1, int(0.9 * len(least) * THUMBNAIL_BYTES / written))]
        sheet, written = _encode_sheet(least, "JPEG", quality=50, subsampling=0)
    return sheet


def _pad_to_blocks(images: Images) -> Images:
    """Edges repeated up to a multiple of 8 pixels."""
    height, width = images.shape[1:3]
    around = [(0, 0), (0, -height % 8), (0, -width % 8), *[(0, 0)] * (images.ndim - 3)]
    return np.pad(images, around, mode="edge")

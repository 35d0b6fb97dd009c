"""A folder of images, by Pillow."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.encoding import ArrayEncoding, Encoding
from pollux.data.sources import IMAGES, Blocks, Part, Source, at_once
from pollux.errors import InputError, option

ROWS_AT_ONCE = 1_024


@dataclass(frozen=True)
class ImageFolder(Source):
    """The images of a folder and those below it, by name: (n, C, H, W) of bytes, grey where all of them are.

    ``size`` is the side to which they are scaled; without it they must all have one size. Each has a ``file``, its name
    in the folder, and a ``folder``, the one that it lies in.
    """

    path: Path
    size: int | None = None

    def read(self) -> Part:
        files = self._files()
        arrays = [self._load(file, None) for file in files]
        channels = max(array.shape[0] for array in arrays)
        shapes = {array.shape[1:] for array in arrays}
        if len(shapes) > 1:
            some = ", ".join(sorted(f"{height}×{width}" for height, width in list(shapes)[:3]))
            raise InputError(
                f"The images of {self.path} have different sizes ({some} …): pass {option('image_size', 32)}, or so."
            )
        return self._part(files, [np.broadcast_to(array, (channels, *array.shape[1:])) for array in arrays], 0)

    def stream(self, encoding: Encoding, beside: Sequence[str]) -> Iterator[Part]:
        if not (isinstance(encoding, ArrayEncoding) and encoding.is_image):
            raise InputError(f"The model was not trained on images, but {self.path} is a folder.")
        files = self._files()
        rows = at_once(ROWS_AT_ONCE, math.prod(encoding.shape))
        for first in range(0, len(files), rows):
            some = files[first : first + rows]
            yield self._part(some, [self._load(file, encoding.shape) for file in some], first)

    def blocks(self) -> Blocks:
        raise InputError(
            f"{self.path} is a folder of images, which are not streamed: use a torch Dataset in Python, such as "
            f"torchvision.datasets.ImageFolder, or save them as one .npy file."
        )

    def _files(self) -> list[Path]:
        files = sorted(file for file in self.path.rglob("*") if file.suffix.lower() in IMAGES and file.is_file())
        if not files:
            raise InputError(f"There are no images in {self.path}; what can be read ends in {', '.join(IMAGES)}.")
        return files

    def _part(self, files: Sequence[Path], arrays: Sequence[NDArray[np.uint8]], first: int) -> Part:
        names = [file.relative_to(self.path) for file in files]
        beside = {
            "file": np.array([name.as_posix() for name in names]),
            "folder": np.array([name.parent.as_posix() for name in names]),
        }
        return Part(np.stack(arrays), first, beside)

    def _load(self, file: Path, shape: tuple[int, ...] | None) -> NDArray[np.uint8]:
        """(C, H, W) of bytes: of the given shape, or else as it is, or scaled to ``size``."""
        library = _pillow()
        try:
            with warnings.catch_warnings():
                # Large images are welcome; absurd ones are an error.
                warnings.simplefilter("ignore", library.DecompressionBombWarning)
                with library.open(file) as image:
                    return self._as_array(image, shape)
        except (OSError, ValueError, SyntaxError, library.DecompressionBombError) as error:
            raise InputError(f"{file} cannot be read as an image: {error}") from error

    def _as_array(self, image: Any, shape: tuple[int, ...] | None) -> NDArray[np.uint8]:
        is_grey = image.mode in ("1", "L", "LA", "I", "I;16") if shape is None else shape[0] == 1
        # Sixteen bits are brought to eight.
        if image.mode.startswith("I"):
            image = image.point(lambda value: value / 256).convert("L")
        converted = image.convert("L" if is_grey else "RGB")
        size = (shape[2], shape[1]) if shape is not None else (self.size, self.size) if self.size else None
        if size is not None and converted.size != size:
            converted = converted.resize(size, _pillow().Resampling.LANCZOS)
        array = np.asarray(converted, dtype=np.uint8)
        return array[None] if is_grey else np.moveaxis(array, 2, 0)


def _pillow() -> Any:
    try:
        import PIL.Image
    except ImportError as error:
        raise InputError("Images are read by Pillow: pip install 'pollux[files]'.") from error
    return PIL.Image

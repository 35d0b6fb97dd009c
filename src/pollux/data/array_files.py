"""Arrays and images in files: .npy and .npz, by numpy; folders of images, by Pillow.

Nothing in them is unpickled, and numbers are copied from files: accessing a page of a memory map beyond the end of a
file that was truncated meanwhile would crash the process.
"""

from __future__ import annotations

import math
import mmap
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.lib.format import MAGIC_PREFIX, read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

from pollux.data.encoding import ArrayEncoding, Encoding
from pollux.data.sources import IMAGES, Blocks, FileVersion, Part, Source, at_once, check_room, files_in, room_bytes
from pollux.errors import DAMAGE, InputError, option

ROWS_AT_ONCE = 65_536
IMAGES_AT_ONCE = 1_024
_CHANNELS = (1, 3, 4)
_GREY = ("1", "L", "LA", "I", "I;16")
_TRANSPARENT = ("LA", "PA", "RGBA")
_BLOCK_NUMBERS = 2**19
# Version 3 differs from version 2 only in the encoding of field names, which plain arrays do not have.
_READ_HEADER = {(1, 0): read_array_header_1_0, (2, 0): read_array_header_2_0, (3, 0): read_array_header_2_0}


class NpyArray(Source):
    """One array: rows (n, d), or images (n, H, W), (n, C, H, W) or (n, H, W, C)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._blocks: ArrayBlocks | None = None

    def read(self) -> Part:
        array = self._map()
        # An array in column order is the transpose of one in row order.
        stored = array if array.flags.c_contiguous else array.T
        found = _read_numbers(*_place(stored), stored.dtype, stored.shape)
        return Part(as_samples(found if stored is array else found.T, self.path))

    def stream(self, encoding: Encoding, beside: Sequence[str]) -> Iterator[Part]:
        array = self._map()
        if not isinstance(encoding, ArrayEncoding) or not array.flags.c_contiguous:
            return _parts(self.read(), encoding, self.path)
        # Once its blocks are listed, the file must not change any more.
        blocks = self._blocks or ArrayBlocks(array, at_once(ROWS_AT_ONCE, math.prod(array.shape[1:])))
        first = np.cumsum(blocks.lengths) - blocks.lengths
        return (Part(blocks.read_block(block), int(start)) for block, start in enumerate(first))

    def blocks(self) -> ArrayBlocks:
        self._blocks = self._blocks or ArrayBlocks(self._map())
        return self._blocks

    def size_in_memory(self) -> int:
        return 4 * int(self._map().size)

    def _map(self) -> NDArray[Any]:
        """The array as a memory map, checked against the size of the file; used for its dtype, shape and offset."""
        try:
            with warnings.catch_warnings():
                # NumPy warns of impossible sizes; the error that follows says so.
                warnings.simplefilter("ignore", RuntimeWarning)
                array: NDArray[Any] = np.asanyarray(np.load(self.path, mmap_mode="r", allow_pickle=False))
        except (*DAMAGE, OSError, MemoryError) as error:
            raise InputError(f"{self.path} is not an array of numbers: {error}") from error
        as_samples(array, self.path)
        return array


class ArrayBlocks(Blocks):
    """A ``np.memmap`` in blocks of ``rows`` consecutive rows, or of about half a million numbers.

    They are read from the file, not through the map, whose pages would count as memory of this process.
    """

    def __init__(self, array: Any, rows: int | None = None) -> None:
        self.path, self._offset = _place(array)
        self.version = FileVersion(self.path)
        self._dtype, self._stored_shape = array.dtype, array.shape[1:]
        self.shape = as_samples(array[:1], self.path).shape[1:]
        self._rows = rows or max(1, _BLOCK_NUMBERS // math.prod(self.shape))
        starts = np.append(np.arange(0, len(array), self._rows), len(array))
        self.lengths = np.diff(starts).astype(np.int64)

    def read_block(self, block: int, names: Sequence[str] = ()) -> NDArray[Any]:
        rows, numbers = int(self.lengths[block]), math.prod(self._stored_shape)
        start = self._offset + block * self._rows * numbers * self._dtype.itemsize
        self.version.check()
        found = _read_numbers(self.path, start, self._dtype, (rows, *self._stored_shape))
        self.version.check()
        return as_samples(found, self.path)

    def where(self, block: int, row: int | None = None) -> str:
        first = block * self._rows
        rows = f"rows {first} to {first + self.lengths[block] - 1}" if row is None else f"row {first + row}"
        return f"{self.path}, {rows}"

    def identity(self) -> Any:
        return [self.path.name, self.version.digest, self._offset, self._dtype.str]


@dataclass(frozen=True)
class NpzArrays(Source):
    """Several arrays: the samples, arrays (n,) such as labels beside them, and ``feature_names`` (d,) of the columns.

    ``array`` names the samples if there is more than one candidate.
    """

    path: Path
    array: str | None = None

    def read(self) -> Part:
        try:
            self._check_sizes()
            # Opened here, because NumPy does not close a file that it cannot read.
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                entries = {name: arrays[name] for name in arrays.files}
            return self._part({name: entry for name, entry in entries.items() if isinstance(entry, np.ndarray)})
        except InputError:
            raise
        except (*DAMAGE, OSError, MemoryError) as error:
            raise InputError(f"{self.path} is not a file of arrays: {error}") from error

    def _check_sizes(self) -> None:
        """Raise if the unpacked arrays do not have the sizes that they claim, or would not fit in memory."""
        needed = 0
        with zipfile.ZipFile(self.path) as packed:
            for member in packed.infolist():
                with packed.open(member) as file:
                    is_array = file.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX
                    file.seek(0)
                    if is_array:
                        shape, _, dtype = _READ_HEADER[read_magic(file)](file)
                        if not dtype.hasobject and file.tell() + math.prod(shape) * dtype.itemsize != member.file_size:
                            raise ValueError(f"{member.filename} is said to have the shape {shape}, and has another")
                needed += member.file_size
        check_room(f"{self.path}, unpacked,", needed, "save its array as an .npy file, which can be streamed")

    def stream(self, encoding: Encoding, beside: Sequence[str]) -> Iterator[Part]:
        return _parts(self.read(), encoding, self.path)

    def blocks(self) -> Blocks:
        raise InputError(f"{self.path} is one archive, which is not streamed: save its array as an .npy file.")

    def _part(self, arrays: dict[str, NDArray[Any]]) -> Part:
        if {"indptr", "indices", "data"} <= arrays.keys():
            raise InputError(f"{self.path} holds a sparse matrix: load it in Python and use GeminiClustering.")
        if not arrays:
            raise InputError(f"{self.path} holds no arrays.")
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        several = [name for name, array in arrays.items() if array.ndim > 1]
        if self.array is None and len(several) != 1:
            likely = [name for name in several if name in ("X", "x", "data", "images")]
            if len(likely) != 1:
                asked = option("array", "NAME")
                raise InputError(f"{self.path} holds the arrays {shapes}: say which to cluster, {asked}.")
            several = likely
        name = self.array or several[0]
        if name not in arrays:
            raise InputError(f"{self.path} has no array {name!r} ({option('array')}); it holds {shapes}.")
        samples = as_samples(arrays[name], self.path)
        lists = {other: array for other, array in arrays.items() if other != name and array.ndim == 1}
        beside = {other: array for other, array in lists.items() if len(array) == len(samples)}
        names = [str(name) for name in lists.get("feature_names", ())]
        # Valid as names of columns if there are as many different ones as columns.
        is_named = samples.ndim == 2 and len(set(names)) == samples.shape[1]
        return Part(samples, beside=beside, feature_names=names if is_named else None)


@dataclass(frozen=True)
class ImageFolder(Source):
    """The images of a folder and its subfolders, by name: (n, C, H, W) of bytes, grey if all of them are.

    ``size`` is the side to which they are scaled; without it, images of different sizes are scaled to ``SIDE``. Each
    has a ``file``, its name in the folder, and a ``folder``, the one that contains it.
    """

    BESIDE: ClassVar = ("file", "folder")
    SIDE: ClassVar = 32

    path: Path
    size: int | None = None
    strict: bool = False
    broken: list[str] = field(default_factory=list)
    coloured: list[str] = field(default_factory=list)
    sizes: list[str] = field(default_factory=list)

    def notes(self) -> list[str]:
        notes = []
        if self.broken:
            more = f" and {len(self.broken) - 5} more" if len(self.broken) > 5 else ""
            listed = ", ".join(self.broken[:5])
            were = "was" if len(self.broken) == 1 else "were"
            notes.append(f"{len(self.broken)} of the pictures cannot be read and {were} left out: {listed}{more}")
        if self.sizes:
            listed = ", ".join(self.sizes[:3]) + (" …" if len(self.sizes) > 3 else "")
            another = option("image_size", 2 * self.SIDE)
            notes.append(f"pictures of {listed} pixels are scaled to {self.SIDE}×{self.SIDE} ({another} to double it)")
        if self.coloured:
            listed = ", ".join(self.coloured[:3]) + (" …" if len(self.coloured) > 3 else "")
            are = "is" if len(self.coloured) == 1 else "are"
            notes.append(f"all pictures have three channels, since {len(self.coloured)} {are} in colour: {listed}")
        return notes

    def read(self) -> Part:
        files = self._files()
        if self.size is None:
            self.sizes[:] = self._find_sizes(files)
            if self.sizes:
                return replace(self, size=self.SIDE).read()
        self._check_size(files)
        found = self._load_all(files, None)
        if not found:
            raise self._nothing_read()
        files, arrays = [files[place] for place in found], list(found.values())
        channels = max(array.shape[0] for array in arrays)
        names = [file.relative_to(self.path).as_posix() for file in files]
        coloured = [name for name, array in zip(names, arrays, strict=True) if array.shape[0] > 1]
        self.coloured[:] = coloured if len(coloured) < len(files) else []
        return self._part(files, [np.broadcast_to(array, (channels, *array.shape[1:])) for array in arrays], 0)

    def stream(self, encoding: Encoding, beside: Sequence[str]) -> Iterator[Part]:
        if not (isinstance(encoding, ArrayEncoding) and encoding.is_image):
            raise InputError(f"The model was not trained on images, but {self.path} is a folder.")
        files = self._files()
        rows = at_once(IMAGES_AT_ONCE, math.prod(encoding.shape))
        done = 0
        for first in range(0, len(files), rows):
            found = self._load_all(files[first : first + rows], encoding.shape)
            if found:
                # Unreadable images are left out, as in training; the names of the others identify the rows.
                yield self._part([files[first + place] for place in found], list(found.values()), done)
                done += len(found)
        if not done:
            raise self._nothing_read()

    def blocks(self) -> Blocks:
        raise InputError(
            f"{self.path} is a folder of images, which are not streamed: use a torch Dataset in Python, such as "
            f"torchvision.datasets.ImageFolder, or save them as one .npy file."
        )

    def _load_all(self, files: Sequence[Path], shape: tuple[int, ...] | None) -> dict[int, NDArray[np.uint8]]:
        """The images that can be read, by their positions among the files: bytes (C, H, W).

        They have the given shape; without one they are scaled to ``size``, or unchanged.
        """
        found: dict[int, NDArray[np.uint8]] = {}
        for place, file in enumerate(files):
            try:
                found[place] = self._open(file, lambda image: self._as_array(image, shape))
            except InputError:
                if self.strict:
                    raise
                self.broken.append(file.relative_to(self.path).as_posix())
        return found

    def _nothing_read(self) -> InputError:
        return InputError(f"None of the pictures of {self.path} can be read: {', '.join(self.broken[:3])} …")

    def _files(self) -> list[Path]:
        files = files_in(self.path, IMAGES, hidden=True)
        if not files:
            raise InputError(f"There are no images in {self.path}; what can be read ends in {', '.join(IMAGES)}.")
        return files

    def _find_sizes(self, files: Sequence[Path]) -> list[str]:
        """Descriptions of the sizes of images, the most common first, if they differ; only headers are read."""
        found: Counter[str] = Counter()
        for file in files:
            with suppress(InputError):
                found[self._open(file, lambda image: f"{image.height}×{image.width}")] += 1
        return [size for size, _ in found.most_common()] if len(found) > 1 else []

    def _check_size(self, files: Sequence[Path]) -> None:
        """Raise an InputError if images as large as the first would not fit in memory, as bytes and as numbers."""
        for file in files:
            try:
                look = self._open(file, lambda image: (*image.size, 1 if image.mode in _GREY else 3))
            except InputError:
                if self.strict or file is files[-1]:
                    raise
            else:
                break
        width, height, channels = look
        if self.size is not None:
            width = height = self.size
        side = max(1, math.isqrt(room_bytes() // (5 * len(files) * channels)))
        check_room(
            f"The {len(files):,} images of {self.path}, at {height}×{width} pixels,",
            5 * len(files) * channels * width * height,
            f"pass {option('image_size', side)} or less, or keep fewer of them in the folder",
        )

    def _part(self, files: Sequence[Path], arrays: Sequence[NDArray[np.uint8]], first: int) -> Part:
        names = [file.relative_to(self.path) for file in files]
        beside = {
            "file": np.array([name.as_posix() for name in names]),
            "folder": np.array([name.parent.as_posix() for name in names]),
        }
        return Part(np.stack(arrays), first, beside)

    def _open(self, file: Path, look: Callable[[Any], Any]) -> Any:
        """The result of ``look`` on an open image; an InputError if the file is not an image."""
        library = _pillow()
        try:
            with warnings.catch_warnings():
                # Pillow warns of large images, which are fine; for absurd ones it raises an error.
                warnings.simplefilter("ignore", library.DecompressionBombWarning)
                with library.open(file) as image:
                    return look(image)
        except (OSError, ValueError, SyntaxError, library.DecompressionBombError) as error:
            raise InputError(f"{file} cannot be read as an image: {error}") from error

    def _as_array(self, image: Any, shape: tuple[int, ...] | None) -> NDArray[np.uint8]:
        is_grey = image.mode in _GREY if shape is None else shape[0] == 1
        # Sixteen bits are reduced to eight.
        if image.mode.startswith("I"):
            image = image.point(lambda value: value / 256).convert("L")
        # Not for bilevel images with transparency: on white nothing would be left of them.
        if image.mode in _TRANSPARENT or ("transparency" in image.info and image.mode != "1"):
            # Transparent pixels may have any colour: they are shown on white.
            seen = image.convert("RGBA")
            image = _pillow().alpha_composite(_pillow().new("RGBA", seen.size, "white"), seen)
        converted = image.convert("L" if is_grey else "RGB")
        size = (shape[2], shape[1]) if shape is not None else (self.size, self.size) if self.size else None
        if size is not None and converted.size != size:
            converted = converted.resize(size, _pillow().Resampling.LANCZOS)
        array = np.asarray(converted, dtype=np.uint8)
        return array[None] if is_grey else np.moveaxis(array, 2, 0)


def as_samples(array: NDArray[Any], path: Path) -> NDArray[Any]:
    """Samples (n, d), or (n, C, H, W); channels may come last or be omitted."""
    if array.dtype.kind not in "bifu" or array.ndim not in (1, 2, 3, 4):
        raise InputError(
            f"{path} holds an array of {array.dtype} and shape {array.shape}; what can be clustered are numbers: rows "
            f"(n, d), or images (n, H, W), (n, C, H, W) or (n, H, W, C)."
        )
    if array.ndim in (1, 3):
        array = array[:, None]
    elif array.ndim == 4 and array.shape[1] not in _CHANNELS and array.shape[3] in _CHANNELS:
        array = np.moveaxis(array, 3, 1)
    if not array.size:
        raise InputError(f"{path} holds an empty array, of shape {array.shape}.")
    return array


def _parts(whole: Part, encoding: Encoding, path: Path) -> Iterator[Part]:
    if not isinstance(encoding, ArrayEncoding):
        raise InputError(f"The model was trained on a table, but {path} holds arrays.")
    rows = at_once(ROWS_AT_ONCE, math.prod(whole.rows.shape[1:]))
    for first in range(0, len(whole), rows):
        yield whole.between(first, first + rows)


def _read_numbers(path: Path, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A copy of the numbers in a file from an offset on."""
    try:
        found = np.fromfile(path, dtype, math.prod(shape), offset=offset)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if len(found) < math.prod(shape):
        raise InputError(f"{path} was cut short while it was read: the data have changed meanwhile.")
    return found.reshape(shape)


def _place(array: Any) -> tuple[Path, int]:
    """The file of a mapped array, and the offset of its first entry."""
    if not isinstance(array, np.memmap) or array.filename is None or array.ndim == 0:
        raise InputError("This is no array in a file: rows are read from an .npy file, or from a np.memmap of a file.")
    path = Path(array.filename)
    if not array.flags.c_contiguous:
        raise InputError(f"Rows of {path} do not lie one after the other: save it by np.save(path, array.copy('C')).")
    if array.mode == "c":
        raise InputError(f"Changes to a map of {path} are not in the file that is read: map it in mode 'r' or 'r+'.")
    # A slice keeps the offset of the whole map, so its own is computed from the address.
    start = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY
    base = np.frombuffer(array._mmap, dtype=np.uint8).ctypes.data  # type: ignore[attr-defined]
    return path, int(start + array.ctypes.data - base)


def _pillow() -> Any:
    try:
        import PIL.Image
    except ImportError as error:
        raise InputError("Images are read by Pillow: pip install 'pollux[files]'.") from error
    return PIL.Image

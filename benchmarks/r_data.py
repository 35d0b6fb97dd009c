"""Read data of R: saved objects, and those in the database of a package. Nothing is executed, and R is not needed.

A file holds one object of R's serialisation in its portable binary form: a number that encodes the type and whether
attributes follow, then the content, then the attributes, which are a pairlist.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEADERS = {b"RDX2\n", b"RDX3\n"}
_COMPRESSED: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZ": bz2.decompress,
    b"\xfd7": lzma.decompress,
    b"\x78": zlib.decompress,
}
_SYMBOL, _PAIRS, _ENVIRONMENT, _CALL, _TEXT, _S4, _REFERENCE = 1, 2, 4, 6, 9, 25, 255
_FUNCTIONS = {3, 5}
_NUMBERS = {10: ">i4", 13: ">i4", 14: ">f8", 24: "u1"}
_LISTS = {16, 19, 20}
# The null value, the base, empty and global environments, and missing or unbound arguments.
_FIXED = {254, 253, 252, 251, 242, 241}
_NAMESPACES = {247, 248, 249}
_MISSING = -(2**31)


@dataclass
class Thing:
    """An object of R: numbers (n,), a text, a list of objects, or a dict of named ones; and its attributes."""

    value: Any = None
    attributes: dict[str, Thing] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Thing:
        """Return a column of a data frame, a part of a list or environment, or a slot."""
        if isinstance(self.value, dict):
            return _as_thing(self.value[name])
        if "names" in self.attributes and isinstance(self.value, list):
            return _as_thing(self.value[self.names.index(name)])
        return self.attributes[name]

    @property
    def names(self) -> list[str]:
        """The names of the columns of a data frame, or of the parts of a list."""
        return [part.value for part in self.attributes["names"].value]

    @property
    def is_frame(self) -> bool:
        """Whether it is a data frame, whose columns may have several types."""
        return "class" in self.attributes and "data.frame" in self.attributes["class"].array()

    def array(self) -> NDArray[Any]:
        """Return an array (n,), or of the object's shape; words for a factor, NaN or None for missing values."""
        if isinstance(self.value, list):
            return np.array([part.value for part in self.value], dtype=object)
        values = self.value
        if "levels" in self.attributes:
            words = [None, *(level.value for level in self.attributes["levels"].value)]
            return np.array(words, dtype=object)[np.where(values == _MISSING, 0, values)]
        if values.dtype == np.int32 and (values == _MISSING).any():
            values = np.where(values == _MISSING, np.nan, values)
        if "dim" in self.attributes:
            return np.asarray(values.reshape(self.attributes["dim"].value, order="F"))
        return np.asarray(values)

    def frame(self) -> Any:
        """Return a data frame as a table; columns that are tables themselves are left out."""
        import pandas as pd

        columns = dict(zip(self.names, self.value, strict=True))
        arrays = {name: column.array() for name, column in columns.items()}
        return pd.DataFrame({name: array for name, array in arrays.items() if array.ndim == 1})


def _as_thing(value: Any) -> Thing:
    return value if isinstance(value, Thing) else Thing(value)


def saved(content: bytes) -> Thing:
    """Return the object of a file."""
    for start, decompress in _COMPRESSED.items():
        if content.startswith(start):
            content = decompress(content)
            break
    return _Reader(content[5:] if content[:5] in _HEADERS else content).all()


def from_data_base(index: bytes, content: bytes, name: str) -> Thing:
    """Return an object from the database of a package, the files Rdata.rdx and Rdata.rdb."""
    offset, length = saved(index)["variables"][name].value
    # It begins with its length in four bytes; unless zlib is used, a letter for the kind of compression follows.
    part = content[offset + 4 : offset + length]
    if part[:1] == b"2":
        return saved(bz2.decompress(part[1:]))
    if part[:1] == b"Z":
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
        return saved(lzma.decompress(part[1:], format=lzma.FORMAT_RAW, filters=filters))
    return saved(part)


class _Reader:
    """Reads an object from bytes."""

    def __init__(self, content: bytes) -> None:
        if content[:2] != b"X\n":
            raise ValueError("it is not in R's binary form.")
        self.content = content
        self.at = 2
        self.referred: list[Any] = []

    def all(self) -> Thing:
        """Return the object that the bytes hold."""
        version = self.whole(3)[0]
        if version == 3:
            self.take(self.whole()[0])
        return _as_thing(self.item())

    def take(self, n: int) -> bytes:
        self.at += n
        return self.content[self.at - n : self.at]

    def whole(self, n: int = 1) -> tuple[int, ...]:
        return struct.unpack(f">{n}i", self.take(4 * n))

    def item(self) -> Any:
        """Return the next object; a symbol is returned as its name."""
        flags = self.whole()[0]
        kind = flags & 255
        if kind in _FIXED:
            return Thing()
        if kind == _REFERENCE:
            return self.referred[(flags >> 8 or self.whole()[0]) - 1]
        if kind == _SYMBOL:
            return self.refer(self.item().value)
        if kind in _NAMESPACES:
            _, n = self.whole(2)
            return self.refer(Thing([self.item() for _ in range(n)]))
        if kind == _ENVIRONMENT:
            return self.environment()
        if kind in (_PAIRS, _CALL):
            return Thing(self.pairs(flags))
        if kind in _FUNCTIONS:
            # Attributes, environment, arguments and body of a function or promise: ignored.
            for _ in range(2 + bool(flags & 512) + bool(flags & 1024)):
                self.item()
            return Thing()
        thing = self.content_of(kind)
        if flags & 512:
            thing.attributes = _named(self.item())
        return thing

    def refer(self, thing: Any) -> Any:
        self.referred.append(thing)
        return thing

    def content_of(self, kind: int) -> Thing:
        if kind == _S4:
            return Thing()
        n = self.whole()[0] if kind in {_TEXT, *_LISTS, *_NUMBERS} else 0
        if kind == _TEXT:
            return Thing(None if n < 0 else self.take(n).decode("utf-8", "replace"))
        if kind in _LISTS:
            return Thing([_as_thing(self.item()) for _ in range(n)])
        if kind in _NUMBERS:
            stored = np.dtype(_NUMBERS[kind])
            return Thing(np.frombuffer(self.take(n * stored.itemsize), stored).astype(stored.newbyteorder("=")))
        raise ValueError(f"it holds an object of R of type {kind}, which is not read.")

    def pairs(self, flags: int) -> dict[str, Any]:
        """Return the parts of a pairlist by their names, or by numbers if they have none."""
        found: dict[str, Any] = {}
        while flags & 255 in (_PAIRS, _CALL):
            if flags & 512:
                self.item()
            name = self.item() if flags & 1024 else str(len(found))
            found[name] = self.item()
            flags = self.whole()[0]
        if flags & 255 not in _FIXED:
            raise ValueError("it holds pairs of R that do not end, which are not read.")
        return found

    def environment(self) -> Thing:
        self.whole()
        thing = Thing({})
        self.refer(thing)
        _, frame, table, _ = (self.item() for _ in range(4))
        for part in (frame, *(table.value or [])):
            thing.value.update(_named(part))
        return thing


def _named(thing: Thing) -> dict[str, Any]:
    return dict(thing.value) if isinstance(thing.value, Mapping) else {}

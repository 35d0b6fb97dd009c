"""Sizes of the record batches of Arrow files and streams, read from their messages before any is unpacked.

pyarrow allocates what a message claims, and a compressed buffer of zeros unpacks to 10,000 times its size. Messages are
flatbuffers: a table begins with the offset of its vtable, which lists the places of its fields; missing ones have none.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

_MAGIC, _CONTINUED = b"ARROW1", 0xFFFFFFFF
_DAMAGED = "its messages are damaged"
_DICTIONARY, _BATCH = 2, 3
# Indices of fields in the tables of Arrow's format: of a message, a batch, a dictionary, and the footer of a file.
_KIND, _HEADER, _BODY_LENGTH = 1, 2, 3
_ROWS, _BUFFERS, _COMPRESSION = 0, 2, 3
_VALUES = 1
_DICTIONARIES, _BATCHES = 2, 3
_BLOCK = np.dtype({"names": ["offset", "metadata"], "formats": ["<i8", "<i4"], "offsets": [0, 8], "itemsize": 24})
_BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])


class BatchSizes(NamedTuple):
    """Rows of record batches, bytes of each when unpacked, and bytes of the dictionaries that they share."""

    rows: list[int]
    sizes: list[int]
    dictionaries: int


def measure_batches(file: BinaryIO) -> BatchSizes:
    """Measure the record batches of an Arrow file or stream; a ValueError if its messages are damaged."""
    rows: list[int] = []
    sizes: list[int] = []
    dictionaries = 0
    is_file = file.read(len(_MAGIC)) == _MAGIC
    try:
        for message, body in _messages_of_file(file) if is_file else _messages_of_stream(file):
            kind, header = _scalar(message, _root(message), _KIND, "B"), _table(message, _root(message), _HEADER)
            if kind == _DICTIONARY:
                dictionaries += _measure(file, body, message, _table(message, header, _VALUES))[1]
            elif kind == _BATCH:
                n, size = _measure(file, body, message, header)
                rows.append(n)
                sizes.append(size)
    except (struct.error, OverflowError, OSError) as error:
        raise ValueError(_DAMAGED) from error
    return BatchSizes(rows, sizes, dictionaries)


def _messages_of_file(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Messages of the dictionaries and batches that the footer of a file lists, and where their bodies begin."""
    size = file.seek(0, os.SEEK_END)
    length = struct.unpack("<i", _read(file, size - 10, 4))[0]
    end = _read(file, size - 10 - length, length)
    blocks = [_vector(end, _root(end), field, _BLOCK) for field in (_DICTIONARIES, _BATCHES)]
    if sum(int(some["metadata"].sum(dtype=np.int64)) for some in blocks) > size:
        raise ValueError(_DAMAGED)
    for offset, metadata in np.concatenate(blocks).tolist():
        message = _read(file, offset, metadata)
        # Files from before 2019 have no marker before the length.
        start = 8 if struct.unpack_from("<I", message)[0] == _CONTINUED else 4
        yield message[start:], offset + metadata


def _messages_of_stream(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """The messages of a stream in order, and where their bodies begin."""
    place = 0
    while len(start := _read(file, place, 4)) == 4:
        place += 4
        (length,) = struct.unpack("<I", start)
        if length == _CONTINUED:
            (length,) = struct.unpack("<I", _read(file, place, 4))
            place += 4
        if not length:
            break
        message = _read(file, place, length)
        place += length
        yield message, place
        body = _scalar(message, _root(message), _BODY_LENGTH, "q")
        if body < 0:
            raise ValueError(_DAMAGED)
        place += body


def _measure(file: BinaryIO, body: int, message: bytes, batch: int) -> tuple[int, int]:
    """Rows of a batch, and bytes of its buffers; a compressed one begins with its length, or −1 if it is not."""
    rows = _scalar(message, batch, _ROWS, "q")
    buffers = _vector(message, batch, _BUFFERS, _BUFFER)
    if not _place(message, batch, _COMPRESSION):
        return rows, sum(buffers["length"].tolist())
    size = 0
    for offset, length in buffers.tolist():
        if length:
            (unpacked,) = struct.unpack("<q", _read(file, body + offset, 8))
            size += unpacked if unpacked >= 0 else length
    return rows, size


def _read(file: BinaryIO, place: int, length: int) -> bytes:
    """Read ``length`` bytes, or those that there are, without allocating more than that."""
    if place < 0 or length < 0:
        raise ValueError(_DAMAGED)
    there = max(0, file.seek(0, os.SEEK_END) - place)
    file.seek(place)
    return file.read(min(length, there))


# Flatbuffers


def _place(data: bytes, table: int, field: int) -> int:
    """The position of a field of a table; 0 if it is missing."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    at = 4 + 2 * field
    offset = struct.unpack_from("<H", data, fields + at)[0] if at < struct.unpack_from("<H", data, fields)[0] else 0
    return table + int(offset) if offset else 0


def _scalar(data: bytes, table: int, field: int, kind: str) -> int:
    place = _place(data, table, field)
    return int(struct.unpack_from(f"<{kind}", data, place)[0]) if place else 0


def _root(data: bytes) -> int:
    return _follow(data, 0)


def _table(data: bytes, table: int, field: int) -> int:
    return _follow(data, _place(data, table, field))


def _follow(data: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", data, place)[0])


def _vector(data: bytes, table: int, field: int, kind: np.dtype[Any]) -> NDArray[Any]:
    if not _place(data, table, field):
        return np.empty(0, kind)
    start = _table(data, table, field)
    return np.frombuffer(data, kind, struct.unpack_from("<I", data, start)[0], start + 4)

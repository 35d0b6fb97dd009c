"""Plain data of files as typed records. What does not fit is an InputError that names the file and the field."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from pollux.errors import InputError

T = TypeVar("T")

Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
Size = Annotated[int, Meta(ge=1)]


def parse(data: Any, kind: type[T], source: str | Path) -> T:
    """Plain data as a ``kind``: a msgspec Struct, a dataclass or any type of these; ``source`` is named in messages.

    Fields that the type does not know are left out, unless it forbids them. Checks of several fields belong into its
    ``__post_init__``, which raises a ValueError.

    Examples
    --------
    >>> parse({"epochs": [3, "x"]}, dict[str, list[int]], "run.toml")
    Traceback (most recent call last):
    pollux.errors.InputError: run.toml: in [...][1], expected `int`, got `str`.
    """
    try:
        return msgspec.convert(data, kind)
    except (msgspec.ValidationError, RecursionError, UnicodeEncodeError) as error:
        # The last is of half a character, as names of files and words of a command line can have.
        what, _, field = str(error).partition(" - at `")
        what = re.sub(r"`float` [<>]=? -?1\.797\S+", "a finite number", what)
        place = re.sub(r"^(key in )?\$\.?", "", field.removesuffix("`"))
        what = f"in {place}, {what[:1].lower()}{what[1:]}" if place else f"{what[:1].lower()}{what[1:]}"
        raise InputError(f"{source}: {what.removesuffix('.')}.") from error


def parse_json(text: str | bytes, kind: type[T], source: str | Path) -> T:
    """JSON as a ``kind``."""
    try:
        data = decode_json(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: it is not JSON ({error}).") from error
    return parse(data, kind, source)


def decode_json(text: str | bytes) -> Any:
    """What JSON says; a ValueError where a key is there twice, or half a character, which no file can hold."""
    text = text.decode() if isinstance(text, bytes) else text
    data = json.loads(text, object_pairs_hook=_unique)
    if "\\ud" in text.lower():
        # Two halves make a character.
        json.dumps(data, ensure_ascii=False).encode()
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found

"""Parsing of plain data from files into typed records; an InputError names the file and the field that is wrong."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from pollux import names
from pollux.errors import InputError, did_you_mean, option

T = TypeVar("T")

Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]
Share = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
Size = Annotated[int, Meta(ge=1)]


def parse(data: Any, kind: type[T], source: str | Path) -> T:
    """Convert plain data to a ``kind``: a msgspec Struct, a dataclass or any type of these; messages name ``source``.

    Unknown fields are ignored, unless the type forbids them. Checks of several fields belong in its
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
        # UnicodeEncodeError is raised for lone surrogates, which file names and command lines can contain.
        what, _, field = str(error).partition(" - at `")
        what = re.sub(r"`float` [<>]=? -?1\.797\S+", "a finite number", what)
        place = re.sub(r"^(key in )?\$\.?", "", field.removesuffix("`"))
        what = f"in {place}, {what[:1].lower()}{what[1:]}" if place else f"{what[:1].lower()}{what[1:]}"
        raise InputError(f"{source}: {what.removesuffix('.')}.") from error


def parse_json(text: str | bytes, kind: type[T], source: str | Path) -> T:
    """Parse JSON as a ``kind``."""
    try:
        data = decode_json(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{source}: it is not JSON ({error}).") from error
    return parse(data, kind, source)


def check_parameters(kind: str, written: str) -> None:
    """Raise an InputError if a "model" or a "geometry", as in kernel:landmarks=200, does not take its parameters."""
    name, colon, items = written.partition(":")
    given, valid = [item.partition("=")[0] for item in items.split(",") if item], names.PARAMETERS[kind].get(name, ())
    unknown = [each for each in given if each not in valid]
    if unknown or (colon and not given):
        # The layers of a perceptron have options of their own on the command line: there is one way to give them.
        layers = f" (its layers: {option('hidden', group='MLP')})" if (kind, name) == ("model", "mlp") else ""
        takes = f"takes {', '.join(valid)}" if valid else f"takes no parameters behind its name{layers}"
        takes += f"; not {', '.join(map(repr, unknown))}" if unknown else ""
        raise InputError(f"The {kind} {name!r} {takes}.{did_you_mean(unknown[0], valid) if unknown else ''}")


def parse_parameters(written: str, several: Collection[str] = (), texts: Collection[str] = ()) -> dict[str, Any]:
    """Parse the parameters behind the colon of a name: numbers that are finite, and texts.

    Those of ``several`` may be repeated, and become a tuple; those of ``texts`` stay text.

    Examples
    --------
    >>> parse_parameters("gamma=0.5,kernel=laplacian")
    {'gamma': 0.5, 'kernel': 'laplacian'}
    >>> parse_parameters("power=1,power=3", several=["power"])
    {'power': (1, 3)}
    """
    parameters: dict[str, Any] = {}
    for item in filter(None, written.split(",")):
        name, _, text = item.partition("=")
        value = text if name in texts else _as_number(text)
        if name in parameters and name not in several:
            raise InputError(f"{name} is given twice in {written!r}: leave one of them out.")
        parameters[name] = (*parameters.get(name, ()), value) if name in several else value
    return parameters


def _as_number(text: str) -> int | float | str:
    """The finite number that a text is, or the text."""
    for kind in (int, float) if text.isascii() and "_" not in text else ():
        with contextlib.suppress(ValueError):
            if abs(number := kind(text)) <= sys.float_info.max:
                return number
    return text


def decode_json(text: str | bytes) -> Any:
    """Parse JSON; a ValueError for duplicate keys, and for lone surrogates, which no file can hold."""
    text = text.decode() if isinstance(text, bytes) else text
    data = json.loads(text, object_pairs_hook=_unique)
    if "\\ud" in text.lower():
        # Pairs of surrogates are valid characters.
        json.dumps(data, ensure_ascii=False).encode()
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found

"""Errors and warnings about the user's input, and helpers that word their messages."""

import re
import shlex
import struct
import sys
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from lzma import LZMAError
from pathlib import PurePath
from typing import Any

# What zipfile and numpy raise for files that are not archives, for encrypted archives, and for arrays whose header is
# not valid.
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, LZMAError, EOFError, RuntimeError, struct.error, tokenize.TokenError),
    *(ValueError, TypeError, LookupError, OverflowError, SyntaxError),
)


# Control characters, line separators, marks that change the direction of text, and surrogates, which are not text.
CONTROL = re.compile("[\0-\x08\x0a-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


class InputError(ValueError):
    """A file, column or option that cannot be used; its message says what to do."""


@contextmanager
def as_input_errors() -> Iterator[None]:
    """Within this context, what the library refuses by a ValueError or a TypeError is an InputError."""
    try:
        yield
    except InputError:
        raise
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from error


class NoColumnError(InputError):
    """A table without any column that can be used for clustering."""


class NothingLearnedError(InputError):
    """The objective was not finite from the first epoch on, so there are no weights to keep."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the user's line: the nearest call that is not made by this package or by scikit-learn."""
    level, frame = 2, sys._getframe(1)
    # Frames of contextlib lie between those of this package, as it enters the context managers.
    while frame.f_back is not None and _package(frame.f_globals) in ("pollux", "sklearn", "contextlib"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def _package(namespace: dict[str, Any]) -> str:
    return str(namespace.get("__name__", "")).partition(".")[0]


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """ " Did you mean 'age'?" for 'agee'; an empty string if no valid name is similar."""
    # Leading dashes of options and a common file extension do not make two names similar.
    ending = PurePath(name).suffix.lower()

    def bare(other: str) -> str:
        return other.lower().lstrip("-").removesuffix(ending)

    by_bare = {bare(other): other for other in valid}
    alike = get_close_matches(bare(name), by_bare, 1)
    return f" Did you mean {by_bare[alike[0]]!r}?" if alike else ""


def unknown(what: str, name: object, valid: Iterable[str], also: str = "") -> str:
    """What to say of a name that is not a valid one.

    >>> unknown("penalty", "vta", ["vat", "entropy"], "or a function")
    "Unknown penalty 'vta'. Did you mean 'vat'? Valid names: vat, entropy; or a function."
    """
    valid = list(valid)
    alike = did_you_mean(name, valid) if isinstance(name, str) else ""
    return f"Unknown {what} {name!r}.{alike} Valid names: {'; '.join(filter(None, (', '.join(valid), also)))}."


def counted(count: int, noun: str) -> str:
    """(1, 'cluster') → '1 cluster'; (1797, 'sample') → '1,797 samples'."""
    return f"{int(count):,} {noun}{'' if count == 1 else 's'}"


_ON_COMMAND_LINE: ContextVar[bool] = ContextVar("on_command_line", default=False)
_UNSET: Any = object()


@contextmanager
def command_line() -> Iterator[None]:
    """Within this context, messages spell options as the command line does."""
    token = _ON_COMMAND_LINE.set(True)
    try:
        yield
    finally:
        _ON_COMMAND_LINE.reset(token)


def on_command_line() -> bool:
    """Whether messages are read by a user of the command line."""
    return _ON_COMMAND_LINE.get()


def advised(words: str, given: str) -> str:
    """Advice: ``given`` for the command line, which has an option; ``words`` for Python, which has no parameter."""
    return given if on_command_line() else words


def option(name: str, value: Any = _UNSET, group: str = "") -> str:
    """Spell an option for the reader of a message, who uses Python or the command line.

    In Python, some options are parameters of a ``group``.

    Examples
    --------
    >>> option("missing", "mean"), option("missing")
    ("missing='mean'", 'missing=')
    >>> option("missing", "mean", group="Scaling")
    "Scaling(missing='mean')"
    >>> with command_line():
    ...     option("image_size", 32), option("header", False), option("missing"), option("drop", "height (cm)")
    ('--image-size 32', '--no-header', '--missing', "--drop 'height (cm)'")
    """
    if not on_command_line():
        spelled = f"{name}=" if value is _UNSET else f"{name}={value!r}"
        return f"{group}({spelled})" if group else spelled
    flag = "--" + name.replace("_", "-")
    if value is _UNSET or value is True:
        return flag
    if value is False:
        return f"--no-{flag[2:]}"
    # With a space, a value that begins with a dash would be read as another option.
    return f"{flag}{'=' if str(value).startswith('-') else ' '}{shlex.quote(str(value))}"

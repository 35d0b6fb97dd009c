"""What is wrong with what the user gave, apart from what is wrong with us."""

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from difflib import get_close_matches
from lzma import LZMAError

# What zipfile and numpy raise for files that are no archives, archives that are encrypted, and arrays without a header
# that makes sense.
DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, LZMAError, EOFError, RuntimeError, struct.error, tokenize.TokenError),
    *(ValueError, TypeError, LookupError, OverflowError, SyntaxError),
)


class InputError(ValueError):
    """A file, column or option that cannot be used; its message says what to do."""


class NothingLearnedError(InputError):
    """A training whose numbers were not finite from the start."""


def did_you_mean(name: str, valid: Iterable[str]) -> str:
    """ " Did you mean 'age'?" for 'agee'; nothing where no valid name is like it."""
    valid = list(valid)
    by_lower = {other.lower(): other for other in valid}
    alike = [by_lower[name.lower()]] if name.lower() in by_lower else get_close_matches(name, valid, 1)
    return f" Did you mean {alike[0]!r}?" if alike else ""

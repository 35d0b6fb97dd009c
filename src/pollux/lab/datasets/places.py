"""Where data sets lie: the folder named by POLLUX_DATA, or else the cache folder of the user."""

from __future__ import annotations

import os
import sys
from pathlib import Path

VARIABLE = "POLLUX_DATA"


def named_folder() -> Path | None:
    """The folder that the environment variable names, if any."""
    named = os.environ.get(VARIABLE)
    return Path(named).expanduser() if named else None


def complaint() -> str:
    """What is wrong with the environment variable, if anything is."""
    named = named_folder()
    return f" ({VARIABLE} names {named}, and there is no such folder.)" if named and not named.is_dir() else ""


def cache_folder() -> Path:
    """Where fetched data sets are kept; it need not exist yet."""
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local or Path.home() / "AppData" / "Local") / "pollux" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "pollux"
    cache = os.environ.get("XDG_CACHE_HOME")
    return Path(cache or Path.home() / ".cache") / "pollux"


def folders() -> list[Path]:
    """Where to look, in this order."""
    named = named_folder()
    return [named, cache_folder()] if named else [cache_folder()]


def find(relative: str) -> Path | None:
    """The first of the folders' files of this name, such as "mnist.npz"."""
    for folder in folders():
        if (folder / relative).is_file():
            return folder / relative
    return None

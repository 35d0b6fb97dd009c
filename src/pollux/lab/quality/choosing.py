"""From names and folders to the sets and methods that are compared, and notes of what is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pollux.errors import InputError, did_you_mean
from pollux.lab.datasets import IMAGES, TABLES, archives, table_names
from pollux.lab.datasets.image_sets import how_to_get, image_set_path
from pollux.lab.datasets.table_sets import table_path
from pollux.lab.quality.methods import METHODS, Method
from pollux.lab.quality.sets import DataSet, described, group_of, group_of_file

USUAL_IMAGES = "mnist"
_INSTALL = "pip install 'pollux[bench]'"


def choose_methods(names: Sequence[str]) -> tuple[list[Method], list[str]]:
    """Methods by name, all by default, in the order of the tables; and what is said of those that are not here."""
    for name in names:
        if name not in METHODS:
            valid = ", ".join(METHODS)
            raise InputError(f"There is no method {name!r}: choose of {valid}.{did_you_mean(name, METHODS)}")
    chosen = [method for method in METHODS.values() if method.name in names or not names]
    lacking = [method for method in chosen if not method.is_here]
    if names and lacking:
        raise InputError(f"{lacking[0].title} is not installed: {_INSTALL}, or leave it out of --methods.")
    notes = [f"{method.title} is left out, because it is not installed: {_INSTALL}" for method in lacking]
    return [method for method in chosen if method.is_here], notes


def choose_sets(folders: Sequence[str | Path], names: Sequence[str]) -> tuple[list[DataSet], list[str]]:
    """The sets of folders and those named, or else all that are on this machine; and what is said of others.

    A name is a set of the folders if there is one, and then only those that are named are taken of them.
    """
    files = _named(file for folder in folders for file in _files(Path(folder)))
    named = {name: path for name, path in files.items() if name in names} or files
    others = [name for name in dict.fromkeys(names) if name not in files]
    notes: list[str] = []
    if not folders and not names:
        others = table_names()
        if archives.find_file(f"{USUAL_IMAGES}.npz") is not None:
            others.append(USUAL_IMAGES)
        else:
            notes.append(f"{USUAL_IMAGES} is left out: {how_to_get(USUAL_IMAGES)}")
    sets = [_known(name, list(files)) for name in others]
    sets += [described(name, group_of_file(path), path) for name, path in named.items()]
    return sets, notes


def _files(folder: Path) -> list[Path]:
    if folder.suffix == ".npz" and folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise InputError(f"There is no folder {folder}: name one that holds .npz files of X and y.")
    files = sorted(path for path in folder.glob("*.npz") if path.is_file() and not path.name.startswith("."))
    if not files:
        raise InputError(f"{folder} holds no .npz file: put one for each set there, with X (n, d) and y (n,).")
    return files


def _named(files: Iterable[Path]) -> dict[str, Path]:
    """Files by the names of their sets: with their folder where another set is called the same."""
    distinct = list({path.resolve(): path for path in files}.values())
    counts = Counter(path.stem for path in distinct)
    known = {*table_names(), *IMAGES}
    named: dict[str, Path] = {}
    for path in distinct:
        name = (
            path.stem
            if counts[path.stem] == 1 and path.stem not in known
            else f"{path.resolve().parent.name}/{path.stem}"
        )
        if name in named:
            raise InputError(f"{named[name]} and {path} would both be called {name}: rename one of them.")
        named[name] = path
    return named


def _known(name: str, given: Sequence[str]) -> DataSet:
    if name in IMAGES:
        image_set_path(name)
        return described(name, group_of(name))
    path = None if name in TABLES else table_path(name)
    if path is None and name not in TABLES:
        valid = [*table_names(), *IMAGES, *given]
        raise InputError(f"There is no set {name!r}: choose of {', '.join(valid)}.{did_you_mean(name, valid)}")
    return described(name, group_of(name), path)

"""``pollux datasets``: list, fetch and find data with known classes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pollux.app.console import BAD_INPUT, GOOD, STOPPED, say
from pollux.errors import InputError, did_you_mean


def add(commands: Any) -> None:
    datasets = commands.add_parser(
        "datasets",
        description="Data with known classes, to try things on. Files are searched for in the folder that the "
        "environment variable POLLUX_DATA names, then in the cache folder.",
    )
    actions = datasets.add_subparsers(dest="action", metavar="ACTION")
    listing = "list all data sets and where they are"
    actions.add_parser("list", help=listing, description=f"{listing.capitalize()}.")
    fetch = actions.add_parser(
        "fetch",
        help="fetch images from their publisher",
        description="Fetch images from their publisher, compare their checksums and store them as NAME.npz.",
    )
    fetch.add_argument("names", metavar="NAME", nargs="+", help="mnist, fashion_mnist or cifar10")
    fetch.add_argument("--to", metavar="DIR", help="where to (default: POLLUX_DATA if set, or else the cache folder)")
    path = actions.add_parser(
        "path",
        help="print the path of a data set",
        description="Print the path of the file of a data set, and nothing else.",
    )
    path.add_argument("name", metavar="NAME", help="a data set of `pollux datasets list` that is a file")

    def run(options: argparse.Namespace) -> int:
        if options.action is None:
            datasets.print_help(sys.stderr)
            return BAD_INPUT
        return {"list": _list, "fetch": _fetch, "path": _path}[options.action](options)

    datasets.set_defaults(run=run)


class Entry(NamedTuple):
    """A data set: its samples, their shape, its classes, and where it is stored."""

    name: str
    kind: str
    samples: int
    shape: tuple[int, ...]
    classes: int
    where: str


def catalogue() -> Iterator[Entry]:
    """Yield all data sets, including those that are damaged or not on this machine."""
    from pollux.lab.datasets import IMAGES, SYNTHETIC, TABLES, archives, load_table, table_names
    from pollux.lab.datasets.table_sets import table_path, table_shape

    def read_or_damaged(read: Callable[[Path], Any], path: Path) -> tuple[Any, str]:
        """Return what ``read`` returns, and the path; for a damaged file, None and a message."""
        try:
            return read(path), str(path)
        except (InputError, OSError, IndexError, ValueError):
            return None, f"cannot be read: {path}"

    def image_sizes(path: Path) -> tuple[int, tuple[int, ...]]:
        shapes = archives.read_shapes(path)
        archives.require_arrays(shapes, path, "x_train", "x_test")
        return shapes["x_train"][0] + shapes["x_test"][0], shapes["x_train"][1:]

    for name, make in SYNTHETIC.items():
        X, y = make(random_state=0)
        yield Entry(name, "synthetic", len(X), X.shape[1:], len(set(y.tolist())), f"made by {_function(name)}")
    for name, info in IMAGES.items():
        path, sizes, where = archives.find_file(f"{name}.npz"), None, f"not here: pollux datasets fetch {name}"
        if path is not None:
            sizes, where = read_or_damaged(image_sizes, path)
        samples, shape = sizes or (info.n_train + info.n_test, info.shape)
        yield Entry(name, "images", samples, shape, len(info.class_names), where)
    for name in table_names():
        path = None if name in TABLES else table_path(name)
        if path is None:
            table = load_table(name)
            sizes, where = (*table.X.shape, len(table.class_names)), "comes with scikit-learn"
        else:
            sizes, where = read_or_damaged(table_shape, path)
        rows, columns, classes = sizes or (0, 0, 0)
        yield Entry(name, "table", rows, (columns,), classes, where)


def _function(name: str) -> str:
    return f"pollux.lab.datasets.{name}()"


def _list(_: argparse.Namespace) -> int:
    rows = [("NAME", "KIND", "SAMPLES", "SHAPE", "CLASSES", "WHERE")]
    for entry in catalogue():
        shape = " × ".join(map(str, entry.shape))
        rows.append((entry.name, entry.kind, f"{entry.samples:,}", shape, str(entry.classes), entry.where))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        # Text is aligned left, numbers right; the last column is not padded.
        aligned = zip(row[:-1], widths, "<<>>>", strict=False)
        print(*(f"{text:{side}{width}}" for text, width, side in aligned), row[-1], sep="  ")
    return GOOD


def _fetch(options: argparse.Namespace) -> int:
    from pollux.lab.datasets import SYNTHETIC, TABLES, archives, fetch
    from pollux.lab.datasets.image_sets import image_set_info

    def find(name: str) -> Path | None:
        if options.to is None:
            return archives.find_file(f"{name}.npz")
        path = Path(options.to) / f"{name}.npz"
        return path if path.is_file() else None

    for name in options.names:
        if name in SYNTHETIC:
            raise InputError(f"{name} needs no fetching: it is made by {_function(name)}.")
        if name in TABLES:
            raise InputError(f"{name} needs no fetching: it comes with scikit-learn.")
        image_set_info(name)
    lacking = [name for name in dict.fromkeys(options.names) if find(name) is None]
    try:
        for name in options.names:
            there = find(name)
            if there is not None:
                print(f"{name} is already here: {there}")
                continue
            progress = _Progress(name) if sys.stderr.isatty() else None
            print(f"{name} written to {fetch(name, options.to, progress=progress)}")
    except KeyboardInterrupt:
        written = [name for name in lacking if find(name) is not None]
        left = [name for name in lacking if name not in written]
        summary = f"{_were(written)} written" + (f", {_were(left)} not" if left else "")
        say(f"Stopped; {summary if written else 'nothing was written'}.")
        return STOPPED
    return GOOD


def _were(names: list[str]) -> str:
    return f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'}"


def _path(options: argparse.Namespace) -> int:
    from pollux.lab.datasets import IMAGES, SYNTHETIC, TABLES, table_names
    from pollux.lab.datasets.image_sets import image_set_path
    from pollux.lab.datasets.table_sets import table_path

    name = options.name
    if name in SYNTHETIC:
        raise InputError(f"{name} has no file: it is made by {_function(name)}.")
    if name in TABLES:
        raise InputError(f"{name} has no file: it comes with scikit-learn, pollux.lab.datasets.load_table({name!r}).")
    path = image_set_path(name) if name in IMAGES else table_path(name)
    if path is None:
        known = [*IMAGES, *(table for table in table_names() if table not in TABLES)]
        raise InputError(
            f"There is no data set {name!r} with a file: `pollux datasets list` shows all.{did_you_mean(name, known)}"
        )
    print(path)
    return GOOD


class _Progress:
    """Shows the progress of a download on one line of the terminal; pooch sets ``total`` and calls the methods."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.total = 0
        self.reset()

    def reset(self) -> None:
        self.bytes = self.shown = 0

    def update(self, more: int) -> None:
        self.bytes += more
        if self.bytes - self.shown >= 100_000 or self.bytes == self.total:
            self.shown = self.bytes
            line = f"\rfetching {self.name}: {self.bytes / 1e6:.1f} of {self.total / 1e6:.1f} MB "
            print(line, end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        say("")

"""``pollux datasets``: list, fetch and find data with known classes."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pollux.app.console import BAD_INPUT, GOOD, STOPPED, say


def add(commands: Any) -> None:
    datasets = commands.add_parser(
        "datasets",
        allow_abbrev=False,
        description="Data with known classes, to try things on. Files are searched for in the folder that the "
        "environment variable POLLUX_DATA names, then in the cache folder.",
    )
    actions = datasets.add_subparsers(dest="action", metavar="ACTION")
    listing = "list all data sets and where they are"
    actions.add_parser("list", allow_abbrev=False, help=listing, description=f"{listing.capitalize()}.")
    fetch = actions.add_parser(
        "fetch",
        allow_abbrev=False,
        help="fetch images from their publisher",
        description="Fetch images from their publisher, compare their checksums and store them as NAME.npz.",
    )
    fetch.add_argument("names", metavar="NAME", nargs="+", help="mnist, fashion_mnist or cifar10")
    fetch.add_argument("--to", metavar="DIR", help="where to (default: POLLUX_DATA if set, or else the cache folder)")
    path = actions.add_parser(
        "path",
        allow_abbrev=False,
        help="print the path of a data set",
        description="Print the path of the file of a data set, and nothing else.",
    )
    path.add_argument("name", metavar="NAME")

    def run(options: argparse.Namespace) -> int:
        if options.action is None:
            datasets.print_help(sys.stderr)
            return BAD_INPUT
        return {"list": _list, "fetch": _fetch, "path": _path}[options.action](options)

    datasets.set_defaults(run=run)


def _list(_: argparse.Namespace) -> int:
    from pollux.lab.datasets.catalogue import catalogue

    rows = [("NAME", "KIND", "SAMPLES", "SHAPE", "CLASSES", "WHERE")]
    for entry in catalogue():
        shape = " × ".join(map(str, entry.shape))
        rows.append((entry.name, entry.kind, f"{entry.samples:,}", shape, str(entry.classes), entry.where))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        # Words to the left, numbers to the right, and nothing after the last word.
        aligned = zip(row[:-1], widths, "<<>>>", strict=False)
        print(*(f"{text:{side}{width}}" for text, width, side in aligned), row[-1], sep="  ")
    return GOOD


def _fetch(options: argparse.Namespace) -> int:
    from pollux.lab.datasets import fetch
    from pollux.lab.datasets.catalogue import check_fetchable, find_fetched

    for name in options.names:
        check_fetchable(name)
    lacking = [name for name in dict.fromkeys(options.names) if find_fetched(name, options.to) is None]
    try:
        for name in options.names:
            there = find_fetched(name, options.to)
            if there is not None:
                print(f"{name} is already here: {there}")
                continue
            progress = _Progress(name) if sys.stderr.isatty() else None
            print(f"{name} written to {fetch(name, options.to, progress=progress)}")
    except KeyboardInterrupt:
        written = [name for name in lacking if find_fetched(name, options.to) is not None]
        if not written:
            raise
        say(_describe_written(written, [name for name in lacking if name not in written]))
        return STOPPED
    return GOOD


def _describe_written(written: list[str], lacking: list[str]) -> str:
    def were(names: list[str]) -> str:
        return f"{' and '.join(names)} {'was' if len(names) == 1 else 'were'}"

    return f"Stopped; {were(written)} written" + (f", {were(lacking)} not." if lacking else ".")


def _path(options: argparse.Namespace) -> int:
    from pollux.lab.datasets.catalogue import dataset_path

    print(dataset_path(options.name))
    return GOOD


class _Progress:
    """The progress of a download, on one line of a terminal; pooch sets ``total`` and calls the methods."""

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

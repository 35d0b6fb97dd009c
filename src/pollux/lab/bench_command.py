"""``pollux bench``: measure the library beside its peers."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pollux.app.console import BAD_INPUT

# Listed here because importing the methods imports scikit-learn and torch; a test compares the two lists.
METHODS = ("kmeans", "gmm", "ward", "spectral", "hdbscan", "gemclus", "pollux")


def add(commands: Any) -> None:
    about = "Measure the library beside its peers."
    bench = commands.add_parser("bench", description=about)

    def ask(options: argparse.Namespace) -> int:
        bench.print_help(sys.stderr)
        return BAD_INPUT

    bench.set_defaults(run=ask)
    benches = bench.add_subparsers(dest="bench", metavar="BENCH")
    quality = benches.add_parser(
        "quality",
        help="how well known classes are found again",
        description="Cluster sets with known classes by this library and its peers, and compare the clusterings with "
        "the classes: tables in the terminal, as Markdown and as a page, figures as PNG and SVG. Runs that are "
        "recorded in the folder are not run again: a command that was stopped goes on where it was.",
        epilog=f"Methods: {', '.join(METHODS)}.",
    )
    quality.add_argument(
        "folders",
        metavar="FOLDER",
        nargs="*",
        help="folders of .npz files with X (n, d), or the parts of a CSR matrix, and y (default: the sets of this "
        "machine, see pollux datasets list)",
    )
    quality.add_argument(
        "--sets", metavar="NAME", nargs="+", default=[], help="these sets only, or beside the folders'"
    )
    quality.add_argument("--methods", metavar="NAME", nargs="+", default=[], help="these methods only")
    quality.add_argument("--seeds", metavar="N", type=int, default=5, help="seeds of each method (default: 5)")
    quality.add_argument("--jobs", metavar="N", type=int, help="runs at a time (default: one a core)")
    quality.add_argument(
        "--timeout", metavar="S", type=float, default=1200, help="seconds after which a run is given up (default: 1200)"
    )
    quality.add_argument(
        "--out", metavar="DIR", default="results/quality", help="folder of the results (default: results/quality)"
    )
    quality.add_argument(
        "--anew", metavar="NAME", nargs="+", default=[], help="run these methods again though they are recorded"
    )
    quality.add_argument("--show", action="store_true", help="run nothing: tables and figures of what is recorded")
    quality.set_defaults(run=run_quality)


def run_quality(options: argparse.Namespace) -> int:
    from pollux.lab.progress import run_recorded
    from pollux.lab.quality.benchmark import Request, compare

    request = Request(**{name: getattr(options, name) for name in Request.__dataclass_fields__})
    return run_recorded(lambda: compare(request), options.out)

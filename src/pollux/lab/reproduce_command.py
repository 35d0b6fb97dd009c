"""``pollux reproduce``: run the experiments of the paper and compare the results with the published ones."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

# Listed here because importing the experiments imports torch; a test compares the two lists.
NAMES = (
    *("categorical", "outliers", "moons", "mnist", "cifar10"),
    *("mi-boundaries", "ova-vs-ovo", "model-selection", "complexity"),
)


class _WholeNames(argparse.HelpFormatter):
    """A help formatter that does not break lines within names such as ova-vs-ovo."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def add(commands: Any) -> None:
    reproduce = commands.add_parser(
        "reproduce",
        description="Run experiments of the GEMINI paper and set what is measured here beside what was published: "
        "tables in the terminal, as Markdown and as a page, figures as PNG and SVG. Runs that are recorded in the "
        "folder are not run again, and runs that were under way are continued from their checkpoints: give the same "
        "command again.",
        formatter_class=_WholeNames,
        epilog=f"Experiments: {', '.join(NAMES)}.",
    )
    reproduce.add_argument("names", metavar="NAME", nargs="*", help="which experiments; all of them: all")
    reproduce.add_argument(
        "--profile",
        choices=("quick", "cpu", "paper"),
        default="quick",
        help="minutes each (default), the whole protocol but for fewer epochs on images, or the whole protocol",
    )
    reproduce.add_argument("--runs", metavar="N", type=int, help="seeds of each setting (default: the profile's)")
    reproduce.add_argument("--jobs", metavar="N", type=int, help="runs at a time (default: one a core)")
    reproduce.add_argument("--out", metavar="DIR", default="results", help="folder of the results (default: results)")
    reproduce.add_argument(
        "--only",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="settings with this value only, as in objective=mmd_ova; of one name several values may be given",
    )
    another = "another value of a setting, as in epochs=50"
    reproduce.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], dest="other", help=another)
    reproduce.add_argument(
        "--show",
        action="store_true",
        help="run nothing: tables and figures of what is recorded of this profile and these settings",
    )
    reproduce.add_argument(
        "--checkpoint-every",
        metavar="T",
        default="60 s",
        help="how often a run under way writes a checkpoint: 5 minutes, 1 epoch, 100 steps (default: 60 s)",
    )
    reproduce.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from pollux.lab.paper.reproduction import Request, reproduce
    from pollux.lab.progress import run_recorded

    request = Request(**{name: getattr(options, name) for name in Request.__dataclass_fields__})
    return run_recorded(lambda: reproduce(request), options.out)

"""The answers of ``pollux select`` and ``pollux features``: options, a folder of files, and what is printed."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pollux.app.console import GOOD, Console
from pollux.app.settings import NAMES, Settings


def add_answer_options(parser: argparse.ArgumentParser, place: str) -> None:
    """Add the options of commands that write their answer to a folder, a new one below ``place``."""
    output = parser.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", default=None, help=f"folder (default: {place}/NAME, a new one)")
    output.add_argument("--overwrite", action="store_true", default=False, help="the folder may hold an older answer")
    output.add_argument("--json", action="store_true", default=False, help="print the answer as JSON")
    output.add_argument("--quiet", action="store_true", default=False, help="print nothing but errors")


def begin_answer(options: argparse.Namespace) -> tuple[Settings, Console]:
    """The settings that were given, and the output; an error if the folder is not free, before anything is read."""
    settings = Settings(**{name: value for name, value in vars(options).items() if name in NAMES})
    if options.out is not None:
        from pollux.app.run_folder import check_free

        check_free(options.out, options.overwrite)
    return settings, Console(options.quiet, options.json)


def write_answer(folder: Path, texts: Mapping[str, str], figure: str, plot: Callable[[Path], Any]) -> None:
    """Write the files of an answer, with its figure if matplotlib is installed."""
    from pollux.app.run_folder import replace_results

    can_draw = find_spec("matplotlib") is not None
    with replace_results(folder, outdated=() if can_draw else (figure,)) as place:
        for name, text in texts.items():
            (place / name).write_text(text, encoding="utf-8")
        if can_draw:
            plot(place / figure)


def print_answer(
    console: Console, folder: Path, content: Mapping[str, Any], text: str, figure: str, command: str | None
) -> int:
    """Print an answer, as JSON or as text, where it was written, and the command that uses it, if one does."""
    found = {"folder": str(folder), "next_command": command, **content}
    console.print_json(json.dumps(found, ensure_ascii=False))
    for line in text.split("\n"):
        console.echo(line)
    if not (folder / figure).exists():
        console.note(f"{figure} needs matplotlib: pip install 'pollux[report]'")
    console.echo(f"saved in {folder}")
    if command is not None:
        console.echo(f"next: {command}")
    return GOOD

"""The command line: what can be said, and how it is answered; a command, a file. The work is done elsewhere.

What is slow to import is imported by the command that needs it, so that help and complaints come at once.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from pollux.app.cli import bench, export, fit, predict, pretrain, report, reproduce, select
from pollux.app.cli.common import BAD_INPUT, GOOD, OUR_FAULT, STOPPED, say
from pollux.errors import InputError, command_line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 if all went well, 2 for bad input, 1 if it is our fault, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        # What is piped elsewhere may be written in an old code page, which lacks σ: better a question mark than an end.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    commands = parser()
    options = commands.parse_args(arguments)
    if options.command is None:
        commands.print_help(sys.stderr)
        return BAD_INPUT
    # Torch's threads otherwise wait in loops that keep the cores busy: where these are shared with other programs, a
    # training becomes many times slower. It is read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        with command_line():
            return int(options.run(options))
    except KeyboardInterrupt:
        say("Stopped; nothing was written.")
        return STOPPED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain of it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    except Exception as error:
        if _is_users(error):
            lack = "there is not enough memory. " if isinstance(error, MemoryError) else ""
            say(f"pollux {options.command}: {lack}{error}")
            return BAD_INPUT
        traceback.print_exc()
        say(f"This is a fault of pollux, not yours. Please report it, with the lines above. ({type(error).__name__})")
        return OUR_FAULT


def _is_users(error: Exception) -> bool:
    if isinstance(error, MemoryError):
        return True
    # What is lacking names what to install.
    return isinstance(error, InputError | OSError) or (isinstance(error, ImportError) and "pip install" in str(error))


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = argparse.ArgumentParser(
        prog="pollux",
        description="Cluster tables, arrays and images with a model of your choice, without labels.",
        epilog="Start with: pollux fit data.csv, then: pollux report runs/data",
        allow_abbrev=False,
    )
    top.add_argument("--version", action=Version, nargs=0, help="show the version and leave")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    datasets = importlib.import_module("pollux.lab.datasets_command")
    for command in (fit, select, predict, report, export, datasets, pretrain, reproduce, bench):
        command.add(commands)
    return top


class Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(f"pollux {version('pollux')}")
        parser.exit()

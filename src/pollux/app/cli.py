"""The command line: which commands there are, and how their errors and exit codes reach the user.

A command is a module with a function ``add``, which declares its options and the function that runs it. Only the module
of the command that was given is imported, so that help and complaints come at once.
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

from pollux.app.console import BAD_INPUT, GOOD, OUR_FAULT, STOPPED, say
from pollux.errors import InputError, command_line

COMMANDS = {
    "fit": ("pollux.app.fit", "find clusters in a file and save the model"),
    "select": ("pollux.app.select", "find how many clusters a file has"),
    "predict": ("pollux.app.predict", "write the cluster of each row of a file"),
    "report": ("pollux.app.report", "make a page of what was found"),
    "export": ("pollux.app.export", "write the model for other programs"),
    "datasets": ("pollux.lab.datasets_command", "list and fetch data with known classes"),
    "pretrain": ("pollux.lab.pretrain_command", "learn features of images, to cluster them by"),
    "reproduce": ("pollux.lab.reproduce_command", "run the experiments of the paper"),
    "bench": ("pollux.lab.bench_command", "measure the library beside its peers"),
}
"""The module of each command, and its line of help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 if all went well, 2 for bad input, 1 if it is our fault, 130 after Ctrl-C."""
    for stream in (sys.stdout, sys.stderr):
        # What is piped elsewhere may be written in an old code page, which lacks σ: better a question mark than an end.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    commands = parser(next((word for word in words if not word.startswith("-")), None))
    options = commands.parse_args(words)
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
    # A package that is not installed is named with how to install it.
    is_missing = isinstance(error, ImportError) and "pip install" in str(error)
    return is_missing or isinstance(error, InputError | OSError | MemoryError)


def parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """All commands, and the options of the chosen one."""
    top = argparse.ArgumentParser(
        prog="pollux",
        description="Cluster tables, arrays and images with a model of your choice, without labels.",
        epilog="Start with: pollux fit data.csv, then: pollux report runs/data",
        allow_abbrev=False,
    )
    top.add_argument("--version", action=Version, nargs=0, help="show the version and leave")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, (module, described) in COMMANDS.items():
        if name == chosen:
            importlib.import_module(module).add(commands)
        else:
            commands.add_parser(name, help=described)
    return top


class Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(f"pollux {version('pollux')}")
        parser.exit()

"""The command line: its commands, and how their errors and exit codes reach the user.

A command is a module with a function ``add``, which declares its options and the function that runs it. Only the module
of the given command is imported, so that help and errors come at once.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from pollux import __version__
from pollux.app.console import BAD_INPUT, GOOD, OUR_FAULT, STOPPED, ReaderLeftError, open_output, printable, say
from pollux.app.signals import ENDING, handle_signals, hold_signals, interrupt, on_stop
from pollux.errors import InputError, command_line, did_you_mean

COMMANDS = {
    "fit": ("pollux.app.fit", "find clusters in a file and save the model"),
    "select": ("pollux.app.select", "find how many clusters a file has"),
    "features": ("pollux.app.features", "find the columns that the clusters of a file need"),
    "embed": ("pollux.app.embed", "make vectors of texts or pictures, to cluster them by"),
    "predict": ("pollux.app.predict", "write the cluster of each row of a file"),
    "explain": ("pollux.app.explain", "say what tells each cluster apart"),
    "report": ("pollux.app.report", "make a page of what was found"),
    "export": ("pollux.app.export", "write the model for other programs"),
    "datasets": ("pollux.lab.datasets_command", "list and fetch data with known classes"),
    "pretrain": ("pollux.lab.pretrain_command", "learn features of images, to cluster them by"),
    "reproduce": ("pollux.lab.reproduce_command", "run the experiments of the paper"),
    "bench": ("pollux.lab.bench_command", "measure the library beside its peers"),
}
"""The module of each command, and its line of help."""

# Messages of torch, NumPy and the system's loader when memory is short.
_LACKS_MEMORY = re.compile(r"allocate memory|out of memory|not enough memory|failed to map segment", re.I)

# Libraries that run out of memory while they are loaded, or while their threads start, end the process without a
# message. If memory is limited, another process tries that first, with a little less memory than this one has.
_FEWEST_BYTES = 1_000_000_000
_TRIAL = """
import importlib.util, resource
for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
    soft, hard = resource.getrlimit(kind)
    if soft != resource.RLIM_INFINITY:
        resource.setrlimit(kind, (soft - 300_000_000, hard))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))  # Some ask again and again, for ever.
if importlib.util.find_spec("pyarrow"):
    import pyarrow.dataset
import numpy, scipy.sparse.linalg, sklearn.mixture, torch
for ones in (numpy.ones, torch.ones):
    ones((500, 500)) @ ones((500, 500))
torch.ones(1_000_000).exp().sum()
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 for success, 2 for bad input, 1 for an internal error, 130 if it was stopped.

    Without arguments those of the command line are used, and this function is the whole process.
    """
    # Otherwise torch's threads wait in busy loops: if cores are shared with other programs, training becomes many times
    # slower. The variable is read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    words = list(sys.argv[1:] if arguments is None else arguments)
    named = next((word for word in words if not word.startswith("-")), None)
    with open_output() as output, handle_signals(interrupt):
        on_stop.says = lambda: "Stopped."
        try:
            code = _run(words, named)
            sys.stdout.flush()
        except ReaderLeftError:
            code = GOOD
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        except KeyboardInterrupt:
            with hold_signals():
                say(on_stop.says())
            code = STOPPED
        except Exception as error:
            with hold_signals():
                code = _explain(error, named)
        if code == GOOD and output.error is not None:
            say(f"pollux: what it printed could not be written ({output.error}); files that it has written are whole.")
            code = BAD_INPUT
    if arguments is None:
        # The interpreter takes a while to exit, and signals that arrive now must not change the exit code.
        for number in ENDING:
            signal.signal(number, signal.SIG_IGN)
    return code


def _run(words: list[str], named: str | None) -> int:
    commands = parser(named)
    options = commands.parse_args(words)
    if options.command is None:
        commands.print_help(sys.stderr)
        return BAD_INPUT
    with command_line():
        _check_memory_limit()
        return int(options.run(options))


def _check_memory_limit() -> None:
    """Raise an InputError if the system allows less memory (``ulimit -v``, ``-d``) than the libraries need."""
    if "torch" in sys.modules or importlib.util.find_spec("resource") is None:
        return
    import resource

    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    limit = min((limit for limit in limits if limit != resource.RLIM_INFINITY), default=None)
    if limit is None:
        return
    is_enough = (
        limit >= _FEWEST_BYTES and not subprocess.run([sys.executable, "-c", _TRIAL], capture_output=True).returncode
    )
    if not is_enough:
        raise InputError(
            f"There is not enough memory: this process may have {limit / 1e9:.1f} GB of addresses, and the libraries "
            f"alone take more. Grant it at least 4 GB (ulimit -v 4000000), or set no limit."
        )


def _explain(error: Exception, command: str | None) -> int:
    """Print what went wrong; returns the exit code."""
    reason = " ".join(str(error).split("\n"))
    lacks_memory = isinstance(error, MemoryError) or _LACKS_MEMORY.search(reason) is not None
    # Errors about a package that is not installed say how to install it.
    is_missing = isinstance(error, ImportError) and "pip install" in reason
    if lacks_memory or is_missing or isinstance(error, InputError | OSError):
        lack = "there is not enough memory. " if lacks_memory and not isinstance(error, InputError) else ""
        say(f"pollux {command}: {lack}{reason}")
        return BAD_INPUT
    for line in traceback.format_exc().splitlines():
        say(line)
    say(f"This is a fault of pollux, not yours. Please report it, with the lines above. ({type(error).__name__})")
    return OUR_FAULT


# Names of our options in other programs.
_SYNONYMS = {
    **dict.fromkeys(("--sep", "--separator"), "--delimiter"),
    **dict.fromkeys(("--k", "--n", "--num-clusters", "--nclusters"), "--clusters"),
    **dict.fromkeys(("--target", "--class", "--y"), "--label"),
    **dict.fromkeys(("--output", "--output-dir", "--dir"), "--out"),
    **dict.fromkeys(("--exclude", "--ignore", "--skip"), "--drop"),
    **dict.fromkeys(("--include", "--features"), "--columns"),
    **dict.fromkeys(("--sheet", "--sheet-name"), "--array"),
    **dict.fromkeys(("--query", "--table"), "--sql"),
    **dict.fromkeys(("--index", "--index-col"), "--kinds"),
    **dict.fromkeys(("--na-values", "--null"), "--na"),
    **dict.fromkeys(("--kernel", "--metric"), "--geometry"),
    "--lr": "--learning-rate",
    "--force": "--overwrite",
}


_INVALID_CHOICE = re.compile(r"invalid choice: '(.+?)' \(choose from (.+)\)", re.DOTALL)
_INVALID_NUMBER = re.compile(r"invalid (int|float) value:")
_NUMBERS = {"int": "a whole number", "float": "a number"}
_SIDES = re.compile(r"argument --image-size: .*'(\d+) *[x×,] *(\d+)'")
_QUOTED = re.compile(r"[\w.-]+")


class Parser(argparse.ArgumentParser):
    """Prints errors in one line, and suggests the option that may have been meant."""

    chosen: argparse.ArgumentParser | None = None
    given: Sequence[str] = ()

    def __init__(self, **how: Any) -> None:
        # Abbreviated options of a script would be ambiguous once another option begins alike.
        super().__init__(allow_abbrev=False, **how)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.given = args or ()
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        command = self.chosen or self
        known = command._option_string_actions
        # An option that is missing may be there, misspelled.
        words = itertools.takewhile("--".__ne__, self.given)
        options = [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]
        if "are required" in message and options:
            message = f"unrecognized arguments: {options[0]}"
        unknown = [word.partition("=")[0] for word in message.split() if word.startswith("--")]
        message = message.rstrip(".") + "."
        if message.startswith("unrecognized") and unknown:
            meant = _SYNONYMS.get(unknown[0], "")
            message += f" Did you mean {meant!r}?" if meant in known else did_you_mean(unknown[0], known)
        if (chosen := _INVALID_CHOICE.search(message)) is not None:
            message += did_you_mean(chosen[1], _QUOTED.findall(chosen[2]))
        message = _INVALID_NUMBER.sub(lambda found: f"{_NUMBERS[found[1]]} is needed, not", message)
        if (sides := _SIDES.search(message)) is not None:
            message += f" Pictures are scaled to squares: --image-size {max(map(int, sides.groups()))}."
        say(f"{command.prog}: {printable(message)} See: {command.prog} --help")
        self.exit(BAD_INPUT)


def parser(chosen: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, with the options of the chosen one."""
    top = Parser(
        prog="pollux",
        description="Cluster tables, texts, arrays and images with a model of your choice, without labels.",
        epilog="Start with: pollux fit data.csv, then: pollux report runs/data",
    )
    top.add_argument("--version", action="version", version=f"pollux {__version__}", help="show the version and leave")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, (module, described) in COMMANDS.items():
        if name == chosen:
            importlib.import_module(module).add(commands)
            top.chosen = commands.choices[name]
        else:
            commands.add_parser(name, help=described)
    return top

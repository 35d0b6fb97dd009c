"""``pollux fit``: find clusters in a file and save the model."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pollux import names
from pollux.app.console import DIVERGED, FORMATS, GOOD, STOPPED, Console, counted, say
from pollux.app.settings import GROUPS, NAMES, OUTPUT, TRAINING, add_options, from_toml, resolve_settings
from pollux.errors import InputError


def add(commands: Any) -> None:
    fit = commands.add_parser(
        "fit",
        allow_abbrev=False,
        description=f"Find clusters in DATA ({FORMATS}) and write the model, the cluster of each row and the settings "
        "into the folder of a run. Numbers are standardised (--scaling), text of few values becomes zeros and ones, "
        "identifiers and constant columns are left out. --preset tables or images is a good start.",
        argument_default=argparse.SUPPRESS,
    )
    fit.add_argument("data", metavar="DATA", nargs="?", help="the file or folder to cluster")
    groups = add_options(fit, *GROUPS)
    groups[TRAINING].add_argument(
        "--preset",
        choices=names.RECIPES,
        help="a recipe for rows of numbers in any units, or for pixels and other features of one kind: settings that "
        "are not given come from it, and run.toml spells them out",
    )
    output = groups[OUTPUT]
    output.add_argument("--out", metavar="DIR", help="folder of the run (default: runs/NAME, a new one)")
    output.add_argument("--overwrite", action="store_true", help="the folder may hold an older run")
    output.add_argument("--resume", metavar="RUN", help="go on with a run that was stopped or killed, or prolong one")
    output.add_argument("--config", metavar="FILE", help="settings from a TOML file, such as a run's run.toml")
    output.add_argument("--json", action="store_true", help="print the summary as JSON")
    output.add_argument("--quiet", action="store_true", help="print nothing but errors")
    fit.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from pollux.app.run_folder import StoppedWithCheckpoint

    console = Console(getattr(options, "quiet", False), getattr(options, "json", False))
    try:
        with _interrupt_on_sigterm():
            outcome = _train(options, console)
    except StoppedWithCheckpoint as stopped:
        say(
            f"Stopped. A checkpoint of what was learned by then is in {stopped.folder}, and no model yet. "
            f"To go on: pollux fit --resume {stopped.folder}"
        )
        return STOPPED
    if outcome is None:
        # The first of several processes reports on the run.
        return GOOD
    return _report(outcome.folder, outcome.summary, console)


def _train(options: argparse.Namespace, console: Console) -> Any:
    """A new run, or one that goes on."""
    given = {name: value for name, value in vars(options).items() if name in (*NAMES, "preset")}
    if hasattr(options, "resume"):
        others = [*(name for name in given if name != "max_epochs"), *({"out", "config"} & vars(options).keys())]
        if others:
            refused = others[0].replace("_", "-")
            raise InputError(f"A run goes on with its own settings: only --epochs may be given too, not --{refused}.")
        from pollux.app.run_training import resume_run

        return resume_run(options.resume, max_epochs=given.get("max_epochs"), console=console)
    settings = from_toml(options.config, given) if hasattr(options, "config") else resolve_settings(given)
    if not settings.data:
        raise InputError("Name the file to cluster: pollux fit DATA.")
    from pollux.app.run_training import start_run

    out, overwrite = getattr(options, "out", None), getattr(options, "overwrite", False)
    return start_run(settings, out, overwrite=overwrite, console=console)


@contextmanager
def _interrupt_on_sigterm() -> Iterator[None]:
    """Until the training handles SIGTERM in its own way, it acts as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _report(folder: Any, summary: dict[str, Any], console: Console) -> int:
    """Print what was found; the exit code."""
    if console.as_json:
        print(json.dumps({"folder": str(folder), **summary}, ensure_ascii=False))
    for line in _described(summary):
        console.echo(line)
    for note in summary["notes"]:
        console.note(note)
    console.echo(f"saved in {folder}")
    if summary["interrupted"]:
        say(
            f"Stopped after {summary['epochs']} epochs. What was learned by then is in {folder} and can be "
            f"used as it is. To go on: pollux fit --resume {folder}"
        )
        return STOPPED
    if summary["diverged"]:
        return DIVERGED
    console.echo(f"next: pollux report {folder}    or: pollux predict {folder} NEW_DATA")
    return GOOD


def _described(summary: dict[str, Any]) -> Iterator[str]:
    """The clusters that were found, for people."""
    yield (
        f"found {counted(summary['clusters_found'], 'cluster')} of at most {summary['clusters_asked_for']} in "
        f"{counted(summary['epochs'], 'epoch')}, {summary['seconds']['training']:.1f} s"
    )
    yield "  cluster      rows   share  confidence"
    for cluster in summary["clusters"]:
        share = cluster["rows"] / summary["rows"]
        yield f"  {cluster['cluster']:7}  {cluster['rows']:8,}  {share:6.1%}  {cluster['confidence']:10.3f}"
    # Runs of older versions lack it.
    if summary.get("stability") is not None:
        yield f"agreement of the restarts: {summary['stability']:.2f}"
    if summary["scores"]:
        scores = dict(summary["scores"])
        known = scores.pop("rows_with_a_class")
        listed = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in scores.items())
        of = "" if known == summary["rows"] else f" of {known:,} rows"
        yield f"against the known classes{of}: {listed}"

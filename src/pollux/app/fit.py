"""``pollux fit``: find clusters in a file and save the model."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pollux import names
from pollux.app.console import DIVERGED, FORMATS, GOOD, STOPPED, Names, count_or_auto, counted, nothing, say


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
    _add_columns(fit.add_argument_group("columns"))
    reading = fit.add_argument_group("reading")
    _add_reading(reading)
    _add_scaling(reading)
    training = fit.add_argument_group("training")
    _add_problem(training)
    _add_model(training)
    _add_course(training)
    _add_machine(training)
    output = fit.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", help="folder of the run (default: runs/NAME, a new one)")
    output.add_argument("--overwrite", action="store_true", help="the folder may hold an older run")
    output.add_argument("--resume", metavar="RUN", help="go on with a run that was stopped or killed, or prolong one")
    output.add_argument(
        "--checkpoint-every",
        metavar="T",
        help="how often all that the training needs to go on is written: 5 minutes, 1 epoch, 100 steps (default: 60 s)",
    )
    output.add_argument("--config", metavar="FILE", help="settings from a TOML file, such as a run's run.toml")
    output.add_argument("--json", action="store_true", help="print what was found as JSON")
    output.add_argument("--quiet", action="store_true", help="print nothing but errors")
    fit.set_defaults(run=run)


def _add_columns(group: Any) -> None:
    group.add_argument("--columns", metavar="A,B", action=Names, help="use these columns only")
    group.add_argument("--drop", metavar="A,B", action=Names, help="leave these columns out")
    group.add_argument("--categories", metavar="A,B", action=Names, help="numbers in these columns are names")
    group.add_argument("--id", metavar="A,B", action=Names, help="these columns identify rows, and are not used")
    group.add_argument("--label", metavar="COLUMN", help="known classes: never used for training, only to score it")


def _add_reading(group: Any) -> None:
    group.add_argument("--missing", choices=names.MISSING_IN_FILES, help=_MISSING)
    group.add_argument("--na", metavar="TEXT", action="append", help="what else stands for a missing value, such as ?")
    group.add_argument("--delimiter", metavar="C", help="between values of a CSV file (default: guessed)")
    group.add_argument("--no-header", dest="header", action="store_false", help="a CSV file has no line of names")
    group.add_argument("--array", metavar="NAME", help="which array of an .npz file to cluster")
    group.add_argument("--image-size", metavar="N", type=int, help="scale images to N × N")
    group.add_argument(
        "--stream",
        choices=("auto", "yes", "no"),
        help="read rows as they are needed, and never hold them: Parquet and .npy files (default: auto, where they "
        "would take more than 1 GB)",
    )


def _add_scaling(group: Any) -> None:
    group.add_argument(
        "--scaling",
        choices=names.SCALINGS,
        help="numbers: each column standardised (default); all divided by one number where their ranges are alike, as "
        "those of pixels are, else standardised (auto); by one number in any case (global); centred only (none)",
    )
    group.add_argument(
        "--components", metavar="N", type=int, help="principal components of the rows that are kept (default: 0, all)"
    )


_MISSING = "values that are missing: refuse them (default), fill in the means, or drop their rows"


def _add_problem(group: Any) -> None:
    """What is looked for."""
    kernels = _listed((*names.KERNELS, *names.KERNELS_OF_ALL_SAMPLES))
    distances = _listed((*names.DISTANCES, *names.DISTANCES_OF_ALL_SAMPLES))
    group.add_argument(
        "--preset",
        choices=names.RECIPES,
        help="a recipe for rows of numbers in any units, or for pixels and other features of one kind: what is not "
        "given comes from it, and run.toml spells it out",
    )
    group.add_argument("--clusters", metavar="N", type=int, help="most clusters to find (default: 10)")
    group.add_argument("--objective", metavar="NAME", help=f"default: mmd_ova; of {_listed(names.OBJECTIVES)}")
    group.add_argument(
        "--geometry",
        metavar="NAME",
        help=f"kernel (mmd: {kernels}) or distance (wasserstein: {distances}), with parameters as in rbf:gamma=0.5 or "
        "graph:neighbours=20; default: linear or euclidean",
    )


def _add_model(group: Any) -> None:
    """What is trained, and where it starts."""
    group.add_argument("--model", metavar="NAME", help=f"default: mlp; of {_listed(names.MODELS)}")
    group.add_argument("--hidden", metavar="N,N", action=Widths, help="hidden layers of the mlp (default: 100)")
    group.add_argument("--norm", choices=names.NORMS, help="of the hidden layers of the mlp (default: none)")
    group.add_argument(
        "--init",
        choices=names.INITS,
        help="where models start: at random, or at the clusters that k-means finds, in the features of the geometry or "
        "in those of a neighbour graph; kmeans++: a free table at such seeds (default: auto, at random, and a free "
        "table at seeds)",
    )


def _add_course(group: Any) -> None:
    """How it is trained, and for how long."""
    group.add_argument(
        "--epochs",
        metavar="N",
        type=count_or_auto,
        help="passes over the data (default: 200); auto: those of about 500 steps, and at least 15",
    )
    group.add_argument("--batch-size", metavar="N", type=count_or_auto, help="rows of a step (default: auto)")
    group.add_argument("--learning-rate", metavar="X", type=float, help="default: 0.01")
    group.add_argument(
        "--schedule", choices=names.SCHEDULES, help="whether the learning rate stays (default), or falls to zero"
    )
    group.add_argument(
        "--restarts",
        metavar="N",
        type=count_or_auto,
        help="starts, of which the best is kept (default: 5; 1 for more than 10,000 rows, lenet5 and resnet18)",
    )
    group.add_argument(
        "--trial-epochs",
        metavar="N",
        type=count_or_auto,
        help="after N epochs the best two starts alone go on (default: 0, all do); auto: after a quarter of them",
    )
    group.add_argument("--patience", metavar="N", type=int, help="stop after N epochs without a rise (default: never)")
    group.add_argument(
        "--penalty", metavar="NAME=X", action="append", help=f"joins the loss; of {_listed(names.PENALTIES)}"
    )


def _add_machine(group: Any) -> None:
    """Where its random numbers come from, and what it is computed by."""
    group.add_argument("--seed", metavar="N", type=int, help="of all randomness (default: 0)")
    group.add_argument("--device", metavar="NAME", help="cpu (default) or cuda")
    group.add_argument(
        "--dtype", choices=names.DTYPES[1:], help="arithmetic (default: float32); bfloat16 for matrix products only"
    )
    group.add_argument("--compile", action="store_true", help="let torch compile the model: for large ones")
    group.add_argument("--threads", metavar="N", type=int, help="most threads of the training (default: one a core)")


def _listed(valid: tuple[str, ...]) -> str:
    return ", ".join(valid)


class Widths(argparse.Action):
    """Layer widths, separated by commas."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        try:
            setattr(namespace, self.dest, [int(value) for value in values.split(",")])
        except ValueError:
            parser.error(f"--hidden is a list of whole numbers such as 200,100; not {values!r}")


def run(options: argparse.Namespace) -> int:
    from pollux.app.runs.folder import Kept

    as_json, quiet = (getattr(options, name, False) for name in ("json", "quiet"))
    tell = nothing if as_json or quiet else print
    try:
        with _heeding_sigterm():
            outcome = _train(options, {"show_progress": sys.stderr.isatty() and not quiet, "tell": tell})
    except Kept as kept:
        say(
            f"Stopped. A checkpoint of what was learned by then is in {kept.folder}, and no model yet. "
            f"To go on: pollux fit --resume {kept.folder}"
        )
        return STOPPED
    if outcome is None:
        # The first of several processes tells of the run.
        return GOOD
    summary = outcome.summary
    if as_json:
        print(json.dumps({"folder": str(outcome.folder), **summary}, ensure_ascii=False))
    for line in _found(summary):
        tell(line)
    for note in [] if quiet else summary["notes"]:
        say(f"note: {note}")
    tell(f"saved in {outcome.folder}")
    if summary["interrupted"]:
        say(
            f"Stopped after {summary['epochs']} epochs. What was learned by then is in {outcome.folder} and can be "
            f"used as it is. To go on: pollux fit --resume {outcome.folder}"
        )
        return STOPPED
    if summary["diverged"]:
        return DIVERGED
    tell(f"next: pollux report {outcome.folder}    or: pollux predict {outcome.folder} NEW_DATA")
    return GOOD


@contextmanager
def _heeding_sigterm() -> Iterator[None]:
    """Until the training heeds it in its own way, it is taken as Ctrl-C is."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _train(options: argparse.Namespace, how: dict[str, Any]) -> Any:
    """A new run, or one that goes on."""
    from pollux.app.runs.settings import NAMES, from_toml, settled
    from pollux.errors import InputError

    given = {name: value for name, value in vars(options).items() if name in (*NAMES, "preset")}
    if hasattr(options, "resume"):
        from pollux.app.runs.resuming import resume

        others = [*(name for name in given if name != "epochs"), *({"out", "config"} & vars(options).keys())]
        if others:
            raise InputError(f"A run goes on with its own settings: only --epochs may be given too, not {others[0]}.")
        return resume(options.resume, epochs=given.get("epochs"), **how)
    settings = from_toml(options.config, given) if hasattr(options, "config") else settled(given)
    if not settings.data:
        raise InputError("Name the file to cluster: pollux fit DATA.")
    from pollux.app.runs.fitting import fit

    return fit(settings, getattr(options, "out", None), overwrite=getattr(options, "overwrite", False), **how)


def _found(summary: dict[str, Any]) -> Iterator[str]:
    """What was found, for people."""
    yield (
        f"found {counted(summary['clusters_found'], 'cluster')} of at most {summary['clusters_asked_for']} in "
        f"{counted(summary['epochs'], 'epoch')}, {summary['seconds']['training']:.1f} s"
    )
    yield "  cluster      rows   share  confidence"
    for cluster in summary["clusters"]:
        share = cluster["rows"] / summary["rows"]
        yield f"  {cluster['cluster']:7}  {cluster['rows']:8,}  {share:6.1%}  {cluster['confidence']:10.3f}"
    # A run of an older version does not tell it.
    if summary.get("stability") is not None:
        yield f"agreement of the starts: {summary['stability']:.2f}"
    if summary["scores"]:
        scores = dict(summary["scores"])
        known = scores.pop("rows_with_a_class")
        told = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in scores.items())
        of = "" if known == summary["rows"] else f" of {known:,} rows"
        yield f"against the known classes{of}: {told}"

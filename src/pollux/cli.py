"""The command line: what can be said, and how it is answered. The work is done by :mod:`pollux.runs`.

What is slow to import is imported by the command that needs it, so that help and complaints come at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

GOOD, OUR_FAULT, BAD_INPUT, STOPPED = 0, 1, 2, 130

# Written out, because the registries bring torch; a test compares them.
OBJECTIVES = "mi, kl_ova, kl_ovo, tv_ova, tv_ovo, hellinger_ova, hellinger_ovo, chi2_ova, mmd_ova, mmd_ovo, \
wasserstein_ova, wasserstein_ovo"
KERNELS = "linear, polynomial, rbf, laplacian, sigmoid, cosine, chi2, fourier"
DISTANCES = "euclidean, sqeuclidean, manhattan, cosine, shortest_path"
MODELS = "free, linear, mlp, lenet5, resnet18"
PENALTIES = "vat, entropy, weight_decay"

FORMATS = "CSV, TSV, Parquet, Feather/Arrow, .npy, .npz, or a folder of images"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0 if all went well, 2 for bad input, 1 if it is our fault, 130 after Ctrl-C."""
    commands = parser()
    options = commands.parse_args(arguments)
    if options.command is None:
        commands.print_help(sys.stderr)
        return BAD_INPUT
    # Torch's threads otherwise wait in loops that keep the cores busy: where these are shared with other programs, a
    # training becomes many times slower. It is read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return int(options.run(options))
    except KeyboardInterrupt:
        _say("Stopped; nothing was written.")
        return STOPPED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not complain of it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return GOOD
    except Exception as error:
        if _is_users(error):
            _say(f"pollux {options.command}: {error}")
            return BAD_INPUT
        traceback.print_exc()
        _say(f"This is a fault of pollux, not yours. Please report it, with the lines above. ({type(error).__name__})")
        return OUR_FAULT


def _is_users(error: Exception) -> bool:
    from pollux.errors import InputError

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
    _add_fit(commands)
    _add_predict(commands)
    _add_report(commands)
    _add_export(commands)
    return top


class Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from importlib.metadata import version

        print(f"pollux {version('pollux')}")
        parser.exit()


def _add_fit(commands: Any) -> None:
    fit = commands.add_parser(
        "fit",
        allow_abbrev=False,
        help="find clusters in a file and save the model",
        description=f"Find clusters in DATA ({FORMATS}) and write the model, the cluster of each row and the settings "
        "into the folder of a run. Numbers are standardised, text of few values becomes zeros and ones, identifiers "
        "and constant columns are left out.",
        argument_default=argparse.SUPPRESS,
    )
    fit.add_argument("data", metavar="DATA", nargs="?", help="the file or folder to cluster")
    _add_columns(fit.add_argument_group("columns"))
    _add_reading(fit.add_argument_group("reading"))
    _add_training(fit.add_argument_group("training"))
    output = fit.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", help="folder of the run (default: runs/NAME, a new one)")
    output.add_argument("--overwrite", action="store_true", help="the folder may hold an older run")
    output.add_argument("--resume", metavar="RUN", help="go on with a run that was stopped, in its folder")
    output.add_argument("--config", metavar="FILE", help="settings from a TOML file, such as a run's run.toml")
    output.add_argument("--json", action="store_true", help="print what was found as JSON")
    output.add_argument("--quiet", action="store_true", help="print nothing but errors")
    fit.set_defaults(run=_fit)


def _add_columns(group: Any) -> None:
    group.add_argument("--columns", metavar="A,B", action=Names, help="use these columns only")
    group.add_argument("--drop", metavar="A,B", action=Names, help="leave these columns out")
    group.add_argument("--categories", metavar="A,B", action=Names, help="numbers in these columns are names")
    group.add_argument("--id", metavar="A,B", action=Names, help="these columns identify rows, and are not used")
    group.add_argument("--label", metavar="COLUMN", help="known classes: never used for training, only to score it")


def _add_reading(group: Any) -> None:
    group.add_argument("--missing", choices=("error", "mean", "drop"), help=_MISSING)
    group.add_argument("--na", metavar="TEXT", action="append", help="what else stands for a missing value, such as ?")
    group.add_argument("--delimiter", metavar="C", help="between values of a CSV file (default: guessed)")
    group.add_argument("--no-header", dest="header", action="store_false", help="a CSV file has no line of names")
    group.add_argument("--array", metavar="NAME", help="which array of an .npz file to cluster")
    group.add_argument("--image-size", metavar="N", type=int, help="scale images to N × N")


_MISSING = "values that are missing: refuse them (default), fill in the means, or drop their rows"


def _add_training(group: Any) -> None:
    group.add_argument("--clusters", metavar="N", type=int, help="most clusters to find (default: 10)")
    group.add_argument("--objective", metavar="NAME", help=f"default: mmd_ova; of {OBJECTIVES}")
    group.add_argument(
        "--geometry",
        metavar="NAME",
        help=f"kernel (mmd: {KERNELS}) or distance (wasserstein: {DISTANCES}), with parameters as in rbf:gamma=0.5; "
        "default: linear or euclidean",
    )
    group.add_argument("--model", metavar="NAME", help=f"default: mlp; of {MODELS}")
    group.add_argument("--hidden", metavar="N,N", action=Widths, help="hidden layers of the mlp (default: 100)")
    group.add_argument("--epochs", metavar="N", type=int, help="passes over the data (default: 200)")
    group.add_argument("--batch-size", metavar="N", type=_count_or_auto, help="rows of a step (default: auto)")
    group.add_argument("--learning-rate", metavar="X", type=float, help="default: 0.01")
    group.add_argument(
        "--restarts",
        metavar="N",
        type=_count_or_auto,
        help="starts, of which the best is kept (default: 5; 1 for more than 10,000 rows, lenet5 and resnet18)",
    )
    group.add_argument("--patience", metavar="N", type=int, help="stop after N epochs without a rise (default: never)")
    group.add_argument("--penalty", metavar="NAME=X", action="append", help=f"joins the loss; of {PENALTIES}")
    group.add_argument("--seed", metavar="N", type=int, help="of all randomness (default: 0)")
    group.add_argument("--device", metavar="NAME", help="cpu (default) or cuda")
    group.add_argument("--threads", metavar="N", type=int, help="most threads of the training (default: one a core)")


def _add_predict(commands: Any) -> None:
    predict = commands.add_parser(
        "predict",
        allow_abbrev=False,
        help="tell the cluster of each row of a file",
        description="Write the cluster, the probabilities and the entropy of each row of DATA, beside its number and "
        "identifiers. Columns are found by name. Files may be larger than memory.",
    )
    predict.add_argument("run_folder", metavar="RUN", help="folder of a run, or a model file")
    predict.add_argument("data", metavar="DATA", help=FORMATS)
    predict.add_argument("--out", metavar="FILE", help="CSV, TSV or Parquet, by its name (default: CSV, printed)")
    predict.add_argument("--id", metavar="A,B", action=Names, default=[], help="columns to write beside each row")
    predict.add_argument("--missing", choices=("error", "mean", "drop"), help="default: as in training")
    predict.add_argument("--json", action="store_true", help="print what was done as JSON; needs --out")
    predict.set_defaults(run=_predict)


def _add_report(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        allow_abbrev=False,
        help="make a page of what was found",
        description="Write one HTML file, for any browser, that shows the clusters: their sizes and confidence, a map "
        "of the rows, what sets each cluster apart, the training, and scores where classes are known.",
    )
    report.add_argument("run_folder", metavar="RUN", help="folder of a run, or a model file")
    report.add_argument("data", metavar="DATA", nargs="?", help="other rows than those of the run")
    report.add_argument("--out", metavar="FILE", help="default: report.html in the folder of the run")
    report.add_argument("--label", metavar="COLUMN", help="known classes (default: those of the run)")
    report.add_argument("--map", metavar="A,B", help="two columns as the axes of the map, or an .npy file (n, 2)")
    report.add_argument("--missing", choices=("error", "mean", "drop"), help="default: as in training")
    report.set_defaults(run=_report)


def _add_export(commands: Any) -> None:
    export = commands.add_parser(
        "export",
        allow_abbrev=False,
        help="write the model for other programs",
        description="Write the model and its preprocessing as ONNX: columns of numbers and text in, probabilities and "
        "clusters out.",
    )
    export.add_argument("run_folder", metavar="RUN", help="folder of a run, or a model file")
    export.add_argument("--onnx", metavar="FILE", required=True, help="the file to write")
    export.set_defaults(run=_export)


class Names(argparse.Action):
    """Column names: separated by commas, or the option given several times (for names with a comma)."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        setattr(namespace, self.dest, [*(getattr(namespace, self.dest, None) or []), values])


class Widths(argparse.Action):
    """Layer widths, separated by commas."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        try:
            setattr(namespace, self.dest, [int(value) for value in values.split(",")])
        except ValueError:
            parser.error(f"--hidden is a list of whole numbers such as 200,100; not {values!r}")


def _count_or_auto(text: str) -> int | str:
    if text != "auto" and not text.isdigit():
        raise argparse.ArgumentTypeError(f"a whole number or auto, not {text!r}")
    return text if text == "auto" else int(text)


def _fit(options: argparse.Namespace) -> int:
    from pollux.errors import NothingLearned

    as_json, quiet = (getattr(options, name, False) for name in ("json", "quiet"))
    tell = _nothing if as_json or quiet else print
    try:
        outcome = _train(options, {"show_progress": sys.stderr.isatty() and not quiet, "tell": tell})
    except NothingLearned:
        _say("Stopped before the first epoch had ended: there was nothing to keep, and nothing was written.")
        return STOPPED
    summary = outcome.summary
    if as_json:
        print(json.dumps({"folder": str(outcome.folder), **summary}, ensure_ascii=False))
    for line in _found(summary):
        tell(line)
    for note in [] if quiet else summary["notes"]:
        _say(f"note: {note}")
    tell(f"saved in {outcome.folder}")
    if summary["interrupted"]:
        again = f"--config {outcome.folder}/run.toml" if summary["model"] == "free" else f"--resume {outcome.folder}"
        _say(
            f"Stopped after {summary['epochs']} epochs. What was learned by then is in {outcome.folder} and can be "
            f"used as it is. To go on: pollux fit {again}"
        )
        return STOPPED
    tell(f"next: pollux report {outcome.folder}    or: pollux predict {outcome.folder} NEW_DATA")
    return GOOD


def _train(options: argparse.Namespace, how: dict[str, Any]) -> Any:
    """A new run, or one that goes on."""
    from pollux.errors import InputError
    from pollux.runs.settings import NAMES, Settings, from_toml

    given = {name: value for name, value in vars(options).items() if name in NAMES}
    if hasattr(options, "resume"):
        from pollux.runs.resuming import resume

        others = [*(name for name in given if name != "epochs"), *({"out", "config"} & vars(options).keys())]
        if others:
            raise InputError(f"A run goes on with its own settings: only --epochs may be given too, not {others[0]}.")
        return resume(options.resume, epochs=given.get("epochs"), **how)
    settings = from_toml(options.config, given) if hasattr(options, "config") else Settings(**given)
    if not settings.data:
        raise InputError("Name the file to cluster: pollux fit DATA.")
    from pollux.runs.fitting import fit

    return fit(settings, getattr(options, "out", None), overwrite=getattr(options, "overwrite", False), **how)


def _found(summary: dict[str, Any]) -> Iterator[str]:
    """What was found, for people."""
    yield (
        f"found {_counted(summary['clusters_found'], 'cluster')} of at most {summary['clusters_asked_for']} in "
        f"{_counted(summary['epochs'], 'epoch')}, {summary['seconds']['training']:.1f} s"
    )
    yield "  cluster      rows   share  confidence"
    for cluster in summary["clusters"]:
        share = cluster["rows"] / summary["rows"]
        yield f"  {cluster['cluster']:7}  {cluster['rows']:8,}  {share:6.1%}  {cluster['confidence']:10.3f}"
    if summary["scores"]:
        scores = dict(summary["scores"])
        known = scores.pop("rows_with_a_class")
        told = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in scores.items())
        of = "" if known == summary["rows"] else f" of {known:,} rows"
        yield f"against the known classes{of}: {told}"


def _predict(options: argparse.Namespace) -> int:
    from pollux.errors import InputError
    from pollux.runs.predicting import predict

    if options.json and options.out is None:
        raise InputError("--json prints what was done, so the rows must go elsewhere: --out FILE.")
    with _row_counter() as progress:
        done = predict(
            options.run_folder,
            options.data,
            options.out,
            missing=options.missing,
            identifiers=options.id,
            progress=progress,
        )
    if options.json:
        print(json.dumps({"rows": done.rows, "left_out": done.left_out, "unseen": done.unseen, "out": options.out}))
        return GOOD
    if done.left_out:
        _say(f"note: {done.left_out:,} rows lack values and were left out")
    for name, count in done.unseen.items():
        _say(f"note: {count:,} values of column {name!r} were not seen in training; they count as none of its values")
    if options.out is not None:
        print(f"{done.rows:,} rows written to {options.out}")
    return GOOD


def _report(options: argparse.Namespace) -> int:
    from pollux.errors import InputError
    from pollux.report import write_page
    from pollux.runs.findings import findings
    from pollux.runs.folder import REPORT, keep_apart, model_of

    run = Path(options.run_folder)
    if options.out and Path(options.out).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"The report is a page: give it a name that ends in .html, not {options.out}.")
    found = findings(run, options.data, label=options.label, place=options.map, missing=options.missing)
    out = Path(options.out) if options.out else (run if run.is_dir() else run.parent) / REPORT
    keep_apart(out, *([options.data] if options.data else []), model_of(run))
    write_page(found, out)
    print(f"report written to {out}")
    return GOOD


def _export(options: argparse.Namespace) -> int:
    from pollux.export import to_onnx
    from pollux.runs.folder import keep_apart, model_of
    from pollux.runs.predicting import load_for

    keep_apart(Path(options.onnx), model_of(options.run_folder))
    told = to_onnx(load_for(options.run_folder), options.onnx)
    print(f"model written to {options.onnx}: {told}")
    return GOOD


@contextmanager
def _row_counter() -> Iterator[Callable[[int], None]]:
    """A live count of rows on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield _nothing
        return
    from time import perf_counter

    start = perf_counter()

    def count(rows: int) -> None:
        rate = rows / max(perf_counter() - start, 1e-9)
        print(f"\r{rows:,} rows, {rate:,.0f} a second ", end="", file=sys.stderr, flush=True)

    try:
        yield count
    finally:
        print(file=sys.stderr)


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _nothing(*_: Any) -> None:
    """Says nothing."""


def _say(line: str) -> None:
    print(line, file=sys.stderr)

"""``pollux fit``: find clusters in a file and save the model; also resumes a run that was stopped."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from pollux import __version__, names
from pollux.app.console import DIVERGED, FORMATS, GOOD, SILENT, STOPPED, Console, printable, say
from pollux.app.settings import (
    COLUMNS,
    GROUPS,
    MADE_BY,
    NAMES,
    OUTPUT,
    TRAINING,
    Settings,
    add_options,
    add_text_options,
    from_toml,
    resolve_data,
    resolve_settings,
)
from pollux.app.signals import handle_signals, interrupt, on_stop, stop_on_signals
from pollux.errors import InputError, NothingLearnedError, as_input_errors, counted, option
from pollux.progress import Stage

if TYPE_CHECKING:
    from pollux.app.run_data import RunData
    from pollux.clustering import GeminiClustering
    from pollux.data.encoding import Encoding
    from pollux.ranks import Ranks

COLLAPSED = (
    "Everything fell into one cluster. Try --objective mmd_ovo, more --restarts or a smaller --learning-rate; or the "
    "data hold no clusters that this model and geometry can see."
)


def add(commands: Any) -> None:
    fit = commands.add_parser(
        "fit",
        description=f"Find clusters in DATA ({FORMATS}) and write the model, the cluster of each row and the settings "
        "into the folder of a run. Numbers are scaled (--scaling), text and dates are read too, gaps are filled "
        "(--missing), identifiers and columns that tell little are left out; a table says what became of each. Without "
        "further options the method is the recipe for the kind of data, whole. With one of --model, --objective, "
        "--geometry, --init and --penalty there is no recipe: the others of these take the values called plain below, "
        "and only scaling, restarts, epochs and the batch size are automatic.",
        argument_default=argparse.SUPPRESS,
    )
    fit.add_argument("data", metavar="DATA", nargs="?", help="the file or folder to cluster; - for standard input")
    groups = add_options(fit, *GROUPS)
    groups[TRAINING].add_argument(
        "--preset",
        choices=names.RECIPES,
        help="the recipe for rows of numbers, for pixels, or for vectors of an encoder (default: that "
        "of what DATA are): what is not given comes from it, and run.toml spells it out",
    )
    add_text_options(groups[COLUMNS])
    output = groups[OUTPUT]
    output.add_argument("--out", metavar="DIR", help="folder of the run (default: runs/NAME, a new one)")
    output.add_argument("--overwrite", action="store_true", help="the folder may hold a run, which is lost")
    output.add_argument("--resume", metavar="RUN", help="go on with a run that was stopped or killed, or prolong one")
    output.add_argument("--config", metavar="FILE", help="settings from a TOML file, such as a run's run.toml")
    output.add_argument("--json", action="store_true", help="print the summary as JSON")
    output.add_argument("--quiet", action="store_true", help="print nothing but errors")
    fit.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    on_stop.says = lambda: "Stopped; nothing was written."
    console = Console(getattr(options, "quiet", False), getattr(options, "json", False))
    given = {name: value for name, value in vars(options).items() if name in (*NAMES, "preset")}
    if hasattr(options, "resume"):
        others = [*(given.keys() - {"data", "max_epochs"}), *({"out", "config"} & vars(options).keys())]
        if others:
            refused = min(others).replace("_", "-")
            raise InputError(
                f"A run goes on with its own settings: only --epochs, and where its data are now, may be given too, "
                f"not --{refused}."
            )
        data, epochs, overwrite = given.get("data"), given.get("max_epochs"), hasattr(options, "overwrite")
        with console.progress():
            outcome = resume_run(options.resume, data, max_epochs=epochs, overwrite=overwrite, console=console)
    else:
        settings = from_toml(options.config, given) if hasattr(options, "config") else resolve_settings(given)
        if not settings.data:
            raise InputError("Name the file to cluster: pollux fit DATA.")
        for layer in ("hidden", "activation", "norm"):
            if layer in given and settings.model not in ("auto", "mlp"):
                raise InputError(f"{option(layer)} is of the mlp, and the model is {settings.model}: leave one out.")
        out, overwrite = getattr(options, "out", None), getattr(options, "overwrite", False)
        from pollux.app.embed import with_vectors

        def start(chosen: Settings, check: Callable[[RunData], None]) -> Outcome | None:
            return start_run(chosen, out, overwrite=overwrite, console=console, check=check)

        with console.progress():
            outcome = with_vectors(start, settings, options, out, overwrite=overwrite, console=console)
    # With several processes the first one reports.
    if outcome is None:
        return GOOD
    return _report(outcome.folder, outcome.summary, console)


def _report(folder: Path, summary: dict[str, Any], console: Console) -> int:
    """Print the results; returns the exit code."""
    console.print_json(json.dumps({"folder": str(folder), **summary}, ensure_ascii=False))
    # Including the time to select the number of clusters.
    seconds = summary["seconds"]["training"] + summary["seconds"].get("selecting", 0.0)
    console.echo(
        f"found {counted(summary['clusters_found'], 'cluster')} of at most {summary['clusters_asked_for']} in "
        f"{counted(summary['epochs'], 'epoch')}, {seconds:.1f} s"
    )
    # Summaries of older versions lack it.
    if (learned := summary.get("rows_learned_from", summary["rows"])) < summary["rows"]:
        console.echo(f"learned from {learned:,} of {summary['rows']:,} rows")
    # First, because probabilities do not show whether clusters are there. Summaries of older versions lack it.
    if summary.get("structure") is not None:
        console.echo("structure: {grade}: {reason}".format(**summary["structure"]))
        if summary["structure"]["grade"] == "none":
            advice = f"; columns of noise can hide clusters: leave out columns that do not matter ({option('drop')})"
            if not summary["columns"]:
                advice = "; of photographs pixels tell little, and vectors of what they show more (pollux embed)"
            elif summary["recipe"] == "embeddings":
                # Single entries of a vector are not interpretable.
                advice = ""
            console.echo(
                "  the clusters part the rows, but need not be kinds that are there, however sure the model is" + advice
            )
    has_names = any(cluster["name"] for cluster in summary["clusters"])
    word = "confidence" if summary.get("assessed") else "probability"
    console.echo(f"  cluster      rows   share  {word:>11}{'  what tells it' if has_names else ''}")
    for cluster in summary["clusters"]:
        share = cluster["rows"] / summary["rows"]
        sizes = f"{cluster['cluster']:7}  {cluster['rows']:8,}  {share:6.1%}  {cluster['confidence']:11.3f}"
        console.echo(f"  {sizes}  {cluster['name']}".rstrip())
    numbered = [f"{k} is {name}" for k, name in enumerate(summary.get("known", ())) if name not in ("", str(k))]
    if numbered:
        console.echo(f"known clusters: {', '.join(numbered[:60])}{' …' if len(numbered) > 60 else ''}")
    from pollux.metrics import AGREED

    if (summary.get("stability") or 1.0) < AGREED:
        console.note(
            f"restarts disagree (adjusted Rand index {summary['stability']:.2f}): another seed may find others"
        )
    for kind, count in summary.get("hint_violations", {}).items():
        if count:
            console.note(
                f"{counted(count, 'hint')} of {option(kind)} not kept: a greater {option('hint_weight')} helps"
            )
    if "outliers" in summary:
        console.echo(f"rows that fit in nowhere: {summary['outliers']:,}, flagged in the column outlier")
    if summary["scores"]:
        scores = dict(summary["scores"])
        known = scores.pop("rows_with_a_class")
        listed = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in scores.items())
        of = "" if known == summary["rows"] else f" of {known:,} rows"
        console.echo(f"against the known classes{of}: {listed}")
    for note in summary["notes"]:
        console.note(note)
    console.echo(f"saved in {folder}")
    typed = shlex.quote(str(folder))
    if summary["interrupted"]:
        say(
            f"Stopped after {summary['epochs']} epochs. What was learned by then is in {folder} and can be "
            f"used as it is. To go on: pollux fit --resume {typed}"
        )
        return STOPPED
    if summary["diverged"]:
        return DIVERGED
    console.echo(f"next: pollux report {typed}    or: pollux predict {typed} NEW_DATA")
    return GOOD


@dataclass(frozen=True)
class Outcome:
    """The results of a run, and its folder. With several processes only the first has one."""

    folder: Path
    summary: dict[str, Any]


def start_run(
    settings: Settings,
    out: str | Path | None = None,
    *,
    overwrite: bool = False,
    console: Console = SILENT,
    check: Callable[[RunData], None] = lambda data: None,
) -> Outcome | None:
    """Cluster a file and write the folder of the run; bad input is refused before anything is written.

    Processes started by torchrun train together, and the first of them writes; if torchrun has restarted them, they
    continue from the last checkpoint. Without ``out`` the folder is a new one below ``runs``; with ``overwrite`` it may
    hold an older run. ``check`` may refuse the data.
    """
    from pollux.app import run_folder

    # Absolute, so that the run can be resumed from any working directory.
    must_link, cannot_link = (path and str(Path(path).resolve()) for path in (settings.must_link, settings.cannot_link))
    data = resolve_data(settings.data)
    settings = replace(settings, data=data, must_link=must_link, cannot_link=cannot_link)
    with _processes(settings.device) as ranks:
        is_first = ranks is None or not ranks.rank
        unfinished, finished = None, None
        # torchrun restarts the processes after one of them has died.
        if os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
            if is_first:
                unfinished = run_folder.find_run(out, settings.data, settings, finished=False)
                if unfinished is None:
                    finished = run_folder.find_run(out, settings.data, settings, finished=True)
            if ranks is not None:
                # The first process tells the others, which may not see its disk.
                unfinished, finished = ranks.broadcast_object((unfinished, finished))
        if finished is not None:
            # Launchers restart after any exit code but zero; a field that the summary lacks is not an error.
            if not is_first:
                return None
            found = {"folder": str(finished), **run_folder.read_summary(finished)}
            console.print_json(json.dumps(found, ensure_ascii=False))
            console.echo(f"saved in {finished}, before the processes were started again")
            return None
        if unfinished is not None:
            # It is trained to its end, whatever it will be compared with.
            if not is_first:
                return _run_training(settings, nullcontext(None), ranks)
            return _run_training(settings, run_folder.reopen_run_folder(unfinished), ranks, console)

        def check_all(data: RunData) -> None:
            data.check_label()
            check(data)

        if not is_first:
            return _run_training(settings, nullcontext(None), ranks, check=lambda data: data.check_label())
        if out is not None:
            run_folder.check_free(out, overwrite)
            run_folder.check_idle(out)
        place = run_folder.create_run_folder(out, settings.data, overwrite)
        return _run_training(settings, place, ranks, console, check=check_all)


def resume_run(
    run: str | Path,
    data: str | None = None,
    *,
    max_epochs: int | str | None = None,
    overwrite: bool = False,
    console: Console = SILENT,
) -> Outcome | None:
    """Continue the training of a run, up to its epochs or ``max_epochs`` in all, and write its folder again.

    It continues from the last checkpoint as if it had not been interrupted. If nothing was learned by then, it begins
    anew, if it may ``overwrite``. Its data may have been moved to ``data``.
    """
    from pollux.app import run_folder

    run = Path(run)
    settings = run_folder.read_settings(run / run_folder.UNFINISHED) or run_folder.read_settings(run)
    if settings is None:
        if not run.exists():
            raise run_folder.no_run(run)
        raise InputError(f"{run} has no {run_folder.SETTINGS}: pass the folder of a run.")
    data = run_folder.find_data(run, settings, data, f"pollux fit DATA --resume {run}")
    settings = replace(settings, data=resolve_data(data))
    if os.environ.get("RANK", "0") == "0":
        run_folder.check_idle(run)
    if max_epochs is not None and max_epochs != settings.max_epochs:
        again = f"pollux fit --config {run / run_folder.SETTINGS} --epochs {max_epochs}"
        if max_epochs == "auto":
            raise InputError(
                "A run goes on for a number of epochs that is given: --epochs N, those already done included."
            )
        if settings.schedule != "constant":
            raise InputError(
                f"The learning rate of the run falls to zero over its own epochs "
                f"({option('schedule', settings.schedule)}), so it cannot have others: start a new run, {again}."
            )
        # With one or two restarts there is no trial.
        if isinstance(settings.trial_epochs, float) and settings.n_init not in (1, 2):
            raise InputError(
                f"The trial of the run is a share of its own epochs ({option('trial_epochs', settings.trial_epochs)}), "
                f"so it cannot have others: start a new run that names the trial, {again} --trial-epochs N."
            )
        settings = replace(settings, max_epochs=max_epochs)
    summary = run_folder.read_summary(run)
    if not (run / run_folder.UNFINISHED).is_dir():
        done = summary.get("epochs", 0)
        # The value of "auto" is known once the training has ended.
        asked = done if settings.max_epochs == "auto" else int(settings.max_epochs)
        if done >= asked and not summary.get("interrupted"):
            can_have_more = settings.schedule == "constant"
            more = "ask for more of them (--epochs)" if can_have_more else "its learning rate has fallen to zero"
            raise InputError(f"The run has had its {done} epochs: {more}.")
    if not run_folder.has_learned(run) and not overwrite:
        epochs = "" if max_epochs is None else f" --epochs {max_epochs}"
        raise InputError(
            f"{run} has no checkpoint of anything learned, so the training would start at its first epoch. To start "
            f"anew: pollux fit --resume {run}{epochs} --overwrite"
        )
    with _processes(settings.device) as ranks:
        if ranks is not None and ranks.rank:
            return _run_training(settings, nullcontext(None), ranks)
        before = summary.get("resumed_after", [])
        return _run_training(settings, run_folder.reopen_run_folder(run), ranks, console, before)


@contextmanager
def _processes(device: str) -> Iterator[Ranks | None]:
    """The processes that torchrun started, if there are several."""
    if os.environ.get("WORLD_SIZE", "1") == "1":
        # Without importing torch, which takes seconds, so that errors come sooner.
        yield None
        return
    from pollux.ranks import is_lost, joining

    with joining(device) as ranks:
        try:
            yield ranks
        except RuntimeError as error:
            if not is_lost(error):
                raise
            raise InputError(
                "Another process has gone, and this cannot go on alone. What was learned is in the last checkpoint: "
                f"torchrun --max-restarts 3 starts all again, and pollux fit --resume goes on. ({error})"
            ) from error


def _run_training(
    settings: Settings,
    place: AbstractContextManager[Path | None],
    ranks: Ranks | None,
    console: Console = SILENT,
    resumed_after: Sequence[int] = (),
    check: Callable[[RunData], None] = lambda data: None,
) -> Outcome | None:
    """Read, train and write. Only the first process has a folder; ``resumed_after`` are epochs of earlier breaks."""
    with Stage("loading libraries"):
        from pollux.app.run_data import open_run_data

    seconds, last = {}, perf_counter()

    def lap(name: str) -> None:
        nonlocal last
        seconds[name], last = perf_counter() - last, perf_counter()

    try:
        data = open_run_data(settings, ranks, check_streamable)
        check(data)
        lap("reading")
        for line in data.describe():
            console.echo(line)
        settings = settings.with_recipe(data.recipe)
        if settings.n_clusters == "auto":
            number = max(find_number(data, ranks, console), len(data.known_names()))
            settings = replace(settings, n_clusters=number)
            lap("selecting")
        data = replace(data, settings=settings)
        hints = data.hints()
        with Stage("loading libraries"):
            clustering = make_estimator(settings, len(data), data.encoding)
        lap("importing")
        console.echo(f"method: {_describe_method(settings)}")
        samples = data.samples
        lap("encoding")
    except MemoryError as error:
        # Out-of-memory errors of pyarrow, NumPy and Python.
        raise InputError(
            f"There is not enough memory to hold the rows of {settings.data}: read them as they are needed, from "
            f"Parquet or .npy files ({option('stream', 'yes')}), or fewer of them. ({error})"
        ) from error
    from pollux.app import run_folder
    from pollux.threads import at_most
    from pollux.training import Checkpoints

    with place as folder:
        done = 0
        if folder is not None and run_folder.newest_checkpoint(folder):
            done = Checkpoints(folder / run_folder.UNFINISHED).epochs_done()
            if isinstance(settings.max_epochs, int) and done > settings.max_epochs:
                raise InputError(
                    f"The run has had {done} epochs already, more than {settings.max_epochs}: ask for more."
                )
            of = "" if settings.max_epochs == "auto" else f" of {settings.max_epochs}"
            console.echo(f"going on after epoch {done}{of}")
        checkpoint_folder = Path() if folder is None else run_folder.begin_training(folder, _toml(settings))
        checkpoints = Checkpoints(checkpoint_folder, every=settings.checkpoint_every)
        # A training that was stopped does not read streamed rows once more to evaluate.
        checkpoints.stop_immediately = data.is_streamed
        clustering.set_params(training__checkpoint=checkpoints)
        with stop_on_signals(checkpoints):
            with at_most(settings.threads):
                notes = _fit(clustering, samples, hints | data.sizes())
                if settings.assess and folder is not None and not checkpoints.stopped:
                    notes += _assess(clustering, samples, hints | {"temperature": settings.temperature})
            lap("training")
            if folder is None:
                return None
            training = {
                "interrupted": checkpoints.stopped,
                "resumed_after": [*resumed_after, *([done] if done else [])],
                "notes": [*data.notes, *notes],
            }
            return Outcome(folder, _write_results(folder, data, clustering, training, seconds, lap))


def _describe_method(settings: Settings) -> str:
    """The recipe, or what a method is composed of."""
    if settings.recipe is not None:
        return f"the recipe for {settings.recipe} ({option('preset', settings.recipe)})"
    geometry = [] if settings.geometry == "auto" else [f"geometry {settings.geometry}"]
    penalties = [f"penalty {name}={weight:g}" for name, weight in settings.penalties.items()]
    layers = [f"hidden {','.join(map(str, settings.hidden))}"] if settings.model == "mlp" and settings.hidden else []
    parts = [f"objective {settings.objective}", f"model {settings.model}", *layers, *geometry, *penalties]
    return f"{', '.join(parts)} (no recipe; run.toml has all settings)"


def find_number(data: RunData, ranks: Ranks | None, console: Console) -> int:
    """Select the number of clusters if it was not given; with several processes the first one decides."""
    import numpy as np

    with Stage("loading libraries"):
        from pollux.selection.search import MOST_ROWS, select_quickly

    number = 0
    if ranks is None or ranks.rank == 0:
        seed = data.settings.random_state
        X, _ = data.sample(MOST_ROWS, seed, with_classes=False)
        found = select_quickly(X, np.random.RandomState(seed))
        number = found.best.n_clusters
        sets = f"{option('n_clusters')} N sets it, pollux select tells more"
        most = ", the most it looks for" if number == found.asked_for else ""
        console.echo(
            # How clear the clusters are is reported with the results.
            f"a quick look suggests {counted(number, 'cluster')}{most}; {sets}"
            if found.grade != "none"
            else f"a quick look does not tell how many clusters there are: {number} are looked for; {sets}"
        )
    return number if ranks is None else int(ranks.broadcast_object(number))


def _fit(clustering: GeminiClustering, samples: Any, wishes: dict[str, Any]) -> list[str]:
    """Fit the estimator; returns notes for the user."""
    from pollux.clustering import CollapseWarning
    from pollux.training import NotFiniteError

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with as_input_errors():
            try:
                clustering.fit(samples, **wishes)
            except NotFiniteError as error:
                raise NothingLearnedError(str(error)) from error
    # Each warning once, in the words of the command line.
    notes = [COLLAPSED if warning.category is CollapseWarning else str(warning.message) for warning in caught]
    return list(dict.fromkeys(notes))


def _assess(clustering: GeminiClustering, samples: Any, given: dict[str, Any]) -> list[str]:
    """Assess the confidence of clusters; returns notes for the user. If it fails, the trained model is kept."""
    try:
        with handle_signals(interrupt):
            clustering.assess(samples, **given)
    except KeyboardInterrupt:
        reason = "it was stopped"
    except ValueError as error:
        reason = str(error).rstrip(".")
    else:
        return []
    return [f"{option('assess')} was left out, so that the confidence is the mean probability: {reason}"]


def _write_results(
    folder: Path,
    data: RunData,
    clustering: GeminiClustering,
    training: dict[str, Any],
    seconds: dict[str, float],
    lap: Any,
) -> dict[str, Any]:
    """Write the model, the clusters, the settings and the summary to the folder of a run, all at once."""
    from pollux.app.run_folder import CLUSTERS, MODEL, REPORT, SETTINGS, STREAMED_CLUSTERS, SUMMARY, replace_results
    from pollux.io.atomic import write_text
    from pollux.io.model_files import MOST_OF_A_NAME

    clusters, others = (STREAMED_CLUSTERS, CLUSTERS) if data.is_streamed else (CLUSTERS, STREAMED_CLUSTERS)
    with replace_results(folder, outdated=(REPORT, others)) as new:
        write_text(new / SETTINGS, _toml(data.settings))
        of_rows = data.write_assignments(new / clusters, clustering.fitted_)
        names = {each["cluster"]: each["name"] for each in of_rows["clusters"]}
        # Names of clusters contain column names and values, which may hold anything.
        shown = {k: printable(name)[:MOST_OF_A_NAME] for k, name in names.items()}
        named = tuple(shown.get(k, "") for k in range(max(shown) + 1)) if any(shown.values()) else ()
        clustering.fitted_ = replace(clustering.fitted_, encoding=data.encoding, cluster_names=named)
        with Stage("looking for structure"):
            structure = clustering.structure_
        clustering.save(new / MODEL)
        if of_rows["restates"]:
            from pollux.trees.explanation import say_restated

            training["notes"].append(say_restated(of_rows["restates"]))
        training["notes"] += of_rows.pop("notes")
        lap("writing")
        if (folder / REPORT).exists():
            note = f"{REPORT} showed an older model and was removed: make it again, pollux report."
            training["notes"].append(note)
        summary = {
            "pollux": __version__,
            "model": data.settings.model,
            "recipe": data.settings.recipe,
            **of_rows,
            "features": data.n_features,
            "identifiers": list(data.encoding.identifiers),
            "left_out": dict(data.encoding.left_out),
            "columns": [asdict(each) for each in data.encoding.decisions],
            "clusters_found": clustering.n_clusters_,
            "clusters_asked_for": data.settings.n_clusters,
            "objective": clustering.objective_,
            "stability": clustering.stability_,
            "structure": None if structure is None else structure.to_dict(),
            "assessed": clustering.fitted_.confidence is not None,
            **({"known": data.known_names()} if data.settings.known else {}),
            **({"hint_violations": clustering.hint_violations_} if clustering.hint_violations_ else {}),
            "epochs": clustering.n_iter_,
            "diverged": clustering.diverged_,
            **({"vectors": data.vectors} if data.vectors else {}),
            **training,
            "command": data.settings.command(),
            "seconds": seconds,
        }
        write_text(new / SUMMARY, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    return summary


def _toml(settings: Settings) -> str:
    header = f"{MADE_BY} {__version__}. To repeat the run: pollux fit --config run.toml\n"
    return header + settings.to_toml()


# From settings to the estimator


def make_estimator(settings: Settings, n: int, encoding: Encoding | None = None) -> GeminiClustering:
    """The estimator for n rows, from settings without "auto", with its parameters checked.

    Features that the model names are those of the encoding.
    """
    from pollux.clustering import GeminiClustering
    from pollux.geometry import resolve
    from pollux.recipes import VISION
    from pollux.spec import MLP, SoftTree, Spec, as_group, flatten_params, nested_name, number_features

    if n < int(settings.n_clusters):
        raise InputError(
            f"There are {n} rows for {settings.n_clusters} clusters: ask for at most {n} ({option('n_clusters')})."
        )
    if settings.n_components and settings.model.partition(":")[0] in VISION:
        raise InputError(
            f"{settings.model} reads images, and principal components are not images: leave them out "
            f"({option('n_components', 0)})."
        )
    # Scaling and missing values are handled by the encoding of columns, which model files store by column.
    left_out = {"scaling", "missing", "geometry", *([] if settings.model == "mlp" else MLP().get_params())}
    own = [name for name in flatten_params(GeminiClustering()) if name in NAMES and name not in left_out]
    parameters = {nested_name(name): settings.parameter(name) for name in own}
    clustering = GeminiClustering(preprocessing=None).set_params(**parameters)
    with as_input_errors():
        model = as_group("model", clustering.model)
        if isinstance(model, SoftTree) and encoding is not None and not settings.n_components:
            clustering.model = SoftTree(**number_features(model.get_params(), (), encoding))
        if (needs := Spec.of(clustering).objective.needs) is not None:
            resolve(settings.geometry, needs)
            clustering.geometry = settings.geometry
        elif settings.geometry != "auto":
            raise InputError(
                f"{settings.objective} compares predictions only: it needs no {option('geometry')}, so leave it out."
            )
    return clustering


def check_streamable(settings: Settings) -> None:
    """Raise an InputError if something needs all rows at once, and these are streamed."""
    from pollux.spec import Spec

    if settings.assess:
        raise InputError(
            f"Rows that are read as they are needed cannot be fitted twenty times: leave out {option('assess')}, or "
            f"hold them in memory ({option('stream', 'no')})."
        )
    # The result does not depend on which recipe the data will get.
    settings = settings.with_recipe("tables")
    settings = replace(settings, n_clusters=2) if settings.n_clusters == "auto" else settings
    Spec.of(make_estimator(settings, int(settings.n_clusters))).check_streamable()

"""``pollux report``: write an HTML page about a run."""

from __future__ import annotations

import argparse
import re
import shlex
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pollux.app.console import GOOD, Console
from pollux.app.settings import STANDARD_INPUT, Settings
from pollux.errors import InputError, option
from pollux.names import MISSING_IN_FILES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from pollux.app.run_folder import Summary
    from pollux.data.encoding import Encoding
    from pollux.data.sources import Part, Source
    from pollux.report import Findings

# Names of columns that number rows rather than name them.
_NUMBERED = re.compile(r"(^|[\W_])(id|idx|index|row|nr|no|num|number|unnamed)", re.IGNORECASE)
# Minimum share of rows with a unique name, for a column in which a few names repeat.
_NEARLY_EACH = 0.9
# For streamed files, pages show a sample.
_MOST_ROWS, _SHOWN_ROWS = 200_000, 100_000
# Side of thumbnails of embedded images, in pixels.
_PICTURE_SIZE = 64
_OTHER_ROWS = "The rows shown here are not those that the model was trained on, or need not be."


def add(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        description="Write one HTML file, for any browser, that shows the clusters: their sizes and confidence, a map "
        "of the rows, what sets each cluster apart, the training, and scores where classes are known.",
    )
    report.add_argument("run_folder", metavar="RUN", help="folder of a run, or a model file")
    report.add_argument("data", metavar="DATA", nargs="?", help="other rows than those of the run")
    report.add_argument("--out", metavar="FILE", help="default: report.html in the folder of the run")
    report.add_argument("--label", metavar="COLUMN", help="known classes (default: those of the run)")
    report.add_argument(
        "--map",
        metavar="A,B",
        help="two columns as the axes of the map, or an .npy file (n, 2); components: principal components alone "
        "(default: neighbours, near each other lie rows that are alike, with principal components beside)",
    )
    report.add_argument(
        "--against",
        metavar="RUN2|FILE",
        help="compare with another run on the same rows, or with other rows: matched clusters, rows that moved, "
        "how the share of each cluster changed, and which columns moved",
    )
    report.add_argument("--missing", choices=MISSING_IN_FILES, help="default: as in training")
    report.add_argument("--quiet", action="store_true", help="print nothing but errors")
    report.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from pollux.app.run_folder import REPORT, check_not_input, model_path, read_summary

    run = Path(options.run_folder)
    model = model_path(run)
    if options.out and Path(options.out).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"The report is a page: give it a name that ends in .html, not {options.out}.")
    if options.against is not None and not Path(options.against).exists():
        raise InputError(f"There is neither a run nor a file {options.against} to compare with ({option('against')}).")
    findings = gather_findings(run, options.data, label=options.label, axes=options.map, missing=options.missing)
    if options.against is not None:
        findings = _compared(findings, run, options)
    out = Path(options.out) if options.out else (run if run.is_dir() else run.parent) / REPORT
    check_not_input(out, *([options.data] if options.data else []), model)
    from pollux.report import write_page

    write_page(findings, out)
    console = Console(options.quiet)
    made = read_summary(run).get("vectors")
    if made is not None and made["text"] is None and findings.images is None:
        shows = f"pollux report {shlex.quote(str(run))} FOLDER shows them"
        console.note(f"the page shows no pictures, of which the run has vectors: {shows}")
    for note in [] if findings.comparison is None else findings.comparison.notes:
        console.note(f"{options.against}: {note}")
    console.echo(f"report written to {out}")
    return GOOD


def _compared(findings: Findings, run: Path, options: argparse.Namespace) -> Findings:
    """The findings of a run compared with those of another run on the same rows, or its own on other rows."""
    from pollux.app.run_folder import MODEL, UNFINISHED, find_data, model_path, read_settings
    from pollux.report import compare

    against = Path(options.against)
    is_run = any((against / each).exists() for each in (MODEL, UNFINISHED)) or against.suffix == Path(MODEL).suffix
    if is_run:
        model_path(against)
    file = find_data(run, read_settings(run), options.data, "pollux report RUN DATA") if is_run else against
    try:
        other = gather_findings(against if is_run else run, file, label="", axes="components", missing=options.missing)
        other = replace(other, notes=[note for note in other.notes if note != _OTHER_ROWS])
        found = compare(findings, other, name=against.name, same_samples=is_run)
    except ValueError as error:
        raise InputError(f"The run cannot be compared with {against}. {error}") from error
    return replace(findings, comparison=found)


def gather_findings(
    run: str | Path,
    data: str | Path | None = None,
    *,
    label: str | None = None,
    axes: str | None = None,
    missing: str | None = None,
) -> Findings:
    """Collect the findings of the model of a run, or of a model file, on its own data or on others.

    ``label`` is the column of known classes, "" for none; ``axes`` of the map are two columns, "a,b", a .npy file
    (n, 2), or "components", else "neighbours"; ``missing`` is the treatment of rows with missing values. By default as
    in the run.
    """
    import numpy as np

    from pollux.app import run_data, run_folder

    settings = run_folder.read_settings(run)
    file = run_folder.find_data(run, settings, None if data is None else str(data), "pollux report RUN DATA")
    settings, summary = settings or Settings(), run_folder.read_summary(run)
    clustering, encoding = run_folder.load_run(run, missing, with_free=True)
    # Imported late, because they import torch.
    from pollux.app.embed import embed_alike
    from pollux.data.array_files import ImageFolder
    from pollux.data.encoding import UnseenValues
    from pollux.data.sources import gather
    from pollux.report import describe, describe_training

    beside = [*_naming(encoding), *filter(None, [settings.label, label]), *(axes or "").split(",")]
    trained_on = summary.get("rows", 0) + summary.get("rows_dropped", 0)
    is_own = data is None or str(data) == settings.data
    is_long = is_own and trained_on > _MOST_ROWS and bool(summary.get("streamed"))
    drawn = np.arange(0)
    if is_long:
        drawn = np.sort(np.random.default_rng(0).choice(trained_on, min(_SHOWN_ROWS, trained_on), replace=False))
    shown, found, total = [], [], 0
    source = run_data.open_source(settings, file)
    with tempfile.TemporaryDirectory(prefix="pollux-") as folder:
        made = summary.get("vectors")
        readable = source if made is None else embed_alike(source, made, encoding.names, beside, Path(folder), run)
        encoding = run_data.adapt(encoding, readable)
        # Read as for prediction: inferring types again, from other rows, could give other ones.
        for part in readable.stream(encoding, beside):
            numbers = np.arange(total, total + len(part))
            mask = np.isin(numbers, drawn, assume_unique=True) if is_long else np.ones(len(part), dtype=bool)
            shown.append(part.kept(mask) if is_long else part)
            found.append(numbers[mask])
            total += len(part)
    whole, numbers = gather(shown), np.concatenate(found)
    part, kept = run_data.drop_incomplete(whole, encoding)
    if not len(part):
        raise InputError(f"{file} has no rows to show.")
    # Streamed rows are identified by their files, and only some of them are read here.
    is_known = "fingerprint" in summary and not summary.get("streamed")
    is_other = is_known and run_data.fingerprint(encoding.encode(part.rows, UnseenValues())) != summary["fingerprint"]
    if is_other and clustering.fitted_.is_free:
        raise InputError("A free table knows only the rows it was trained on, in their order, and these are others.")
    if label is None:
        # Other data may lack the classes of the training data.
        label = settings.label if settings.label in part.names else ""
    is_embedded = readable is not source
    named = _name_column(part, encoding, settings.recipe == "embeddings")
    row_names = None if len(part) == total else [f"row {number}" for number in numbers[kept]]
    if named:
        row_names = ["" if value is None else str(value) for value in part.column(named)]
        if all(name.isdecimal() for name in row_names[:100]):
            called = "row" if named.startswith("unnamed") else named
            row_names = [f"{called} {name}" for name in row_names]
    totals = None
    if is_long and total == trained_on and missing is None:
        counts = {each.get("cluster"): each.get("rows") for each in summary.get("clusters", [])}
        known = [
            rows for k in range(len(clustering.fitted_.order)) if isinstance(rows := counts.get(k, 0), int | float)
        ]
        # The sizes in the summary are used if they are consistent.
        totals = np.array(known, dtype=np.int64) if sum(known) == summary["rows"] else None
    scaling = {"global": "divided by one number", "none": "as they are"}.get(settings.scaling, "")
    if settings.scaling == "auto" and len(encoding.scales) > 1:
        scaling = run_data.describe_scaling(encoding)
    trained_with = "standard input" if settings.data == STANDARD_INPUT else settings.data
    # For vectors, the title is that of the file or folder that was embedded.
    title = summary["vectors"].get("data", "") if is_own and "vectors" in summary else ""
    described = {"Data": trained_with, **describe_training(clustering)}
    described |= {"Numbers": scaling, "Missing values": settings.missing}
    arranged = axes in (None, "neighbours", "components")
    points, axis_names = _points(None if arranged else axes, part, kept)
    notes = _notes(summary, data is not None or missing is not None, is_other, total, len(whole), len(part))
    if settings.known and label and data is None:
        notes.append("Scores are of all rows of a known class, those that were learned from included.")
    try:
        described_rows = describe(
            clustering,
            part.rows,
            title=title or Path(file).name,
            classes=run_data.classes_of(part, label),
            points=axes if axes == "components" else points,
            axes=axis_names,
            # With given sizes, labels may differ from the most likely clusters.
            labels=clustering.fitted_.labels if is_known and not is_other else None,
            outliers=settings.outliers,
            row_names=row_names,
            images=_pictures_of(source, numbers[kept]) if is_embedded and isinstance(source, ImageFolder) else None,
            settings={name: value for name, value in described.items() if value},
            notes=notes,
            command=settings.command() if settings.data else "",
        )
    except ValueError as error:
        raise InputError(str(error)) from error
    return replace(described_rows, totals=totals)


def _pictures_of(folder: Source, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Thumbnails (n, H, W, 3) of a folder, by their ascending indices (n,) among the readable images."""
    import numpy as np

    from pollux.data.encoding import ArrayEncoding

    encoding = ArrayEncoding((3, _PICTURE_SIZE, _PICTURE_SIZE), (0.0,) * 3, (1.0,) * 3)
    found, first = [], 0
    for part in folder.stream(encoding, ()):
        here = rows[(first <= rows) & (rows < first + len(part))]
        found.append(part.rows[here - first])
        first += len(part)
    return np.ascontiguousarray(np.concatenate(found).transpose(0, 2, 3, 1))


def _naming(encoding: Encoding) -> list[str]:
    """Columns that may name rows, the best first: names before numbers, and texts of many values last."""
    texts = [each.name for each in encoding.decisions if not each.used and each.kind == "text"]
    return [*sorted(encoding.identifiers, key=lambda name: _NUMBERED.search(name) is not None), *texts]


def _name_column(part: Part, encoding: Encoding, are_texts: bool) -> str:
    """The column that names rows: with a unique value for each, or a text that is unique for nearly each; else "".

    Numbers that restart in each group do not name rows. Rows that are texts are always named by these.
    """
    candidates = [name for name in ["file", *_naming(encoding)] if name in part.names]
    if are_texts:
        return next(iter(candidates), "")
    values = {name: part.column(name).tolist() for name in candidates}
    shares = {name: len(set(own)) / len(own) for name, own in values.items()}
    unique = [name for name in candidates if shares[name] == 1]
    texts = [name for name in candidates if shares[name] >= _NEARLY_EACH and isinstance(values[name][0], str)]
    return next(iter([*unique, *texts]), "")


def _points(
    axes: str | None, part: Part, kept: NDArray[np.bool_]
) -> tuple[NDArray[np.float64] | None, tuple[str, str]]:
    """Coordinates (n, 2) for the map and their names; None for principal components."""
    import numpy as np

    from pollux.data.sources import open_data

    coordinates = ("first coordinate", "second coordinate")
    if axes is None:
        return None, coordinates
    if axes.endswith(".npy"):
        rows = open_data(axes).read().rows
        if rows.shape != (len(kept), 2):
            raise InputError(f"{axes} has shape {rows.shape}; the map needs ({len(kept)}, 2).")
        return np.asarray(rows[kept], dtype=np.float64), coordinates
    names = axes.split(",")
    if len(names) != 2:
        raise InputError(f"The map has two axes: {option('map')} COLUMN,COLUMN or a .npy file, not {axes!r}.")
    if isinstance(part.rows, np.ndarray) and part.rows.ndim == 2 and all(name.isdigit() for name in names):
        width = part.rows.shape[1]
        if max(map(int, names)) >= width:
            raise InputError(f"There are columns 0 … {width - 1} for the map, not {axes!r}.")
        columns = [part.rows[:, int(name)] for name in names]
    else:
        columns = [part.column(name) for name in names]
    try:
        points = np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)
    except (TypeError, ValueError) as error:
        raise InputError(f"The columns of the map must hold numbers ({option('map', axes)}).") from error
    # Missing coordinates are replaced by the mean.
    return np.where(np.isfinite(points), points, np.nanmean(points, axis=0)), (names[0], names[1])


def _notes(summary: Summary, other_data: bool, is_other: bool, total: int, whole: int, shown: int) -> list[str]:
    """Notes for the reader; of ``total`` rows ``whole`` were drawn, and ``shown`` of these have no missing values."""
    notes = []
    if whole < total:
        notes.append(f"The page shows {whole:,} rows, drawn at random from the {total:,} of the file.")
    if shown < whole:
        notes.append(f"{whole - shown:,} rows that lack values were left out.")
    trained_on = summary.get("rows", 0) + summary.get("rows_dropped", 0)
    if not other_data and trained_on and trained_on != total:
        notes.append(f"The file had {trained_on:,} rows when the model was trained, and has {total:,} now.")
    elif not other_data and is_other:
        notes.append("The file has changed since the model was trained.")
    if summary.get("resumed_after"):
        stops = ", ".join(map(str, summary["resumed_after"]))
        notes.append(f"The training was resumed after epoch {stops}; the command below trains without that break.")
    if summary.get("interrupted"):
        notes.append("The training was interrupted before its end.")
    if other_data:
        notes.append(_OTHER_ROWS)
    return [*notes, *summary.get("notes", [])]

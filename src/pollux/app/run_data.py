"""The rows of a run, in memory or streamed from files, and files of their clusters."""

from __future__ import annotations

import atexit
import codecs
import hashlib
import math
import os
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from pollux.app.console import Console, PrintedRows
from pollux.app.settings import STANDARD_INPUT, Settings, resolve_data
from pollux.data.arrow import are_sentences, as_text
from pollux.data.encoding import Decision, Encoding, Feature, TableEncoding, UnseenValues
from pollux.data.sources import FORMATS, InMemory, Part, Reading, Source, open_data, suffix_of
from pollux.data.streams import encode_stream
from pollux.data.survey import Choices, adapt_encoding, learn_encoding, recognise_rows, split_names, take_evenly
from pollux.errors import InputError, counted, option
from pollux.io.atomic import in_place
from pollux.progress import Stage

if TYPE_CHECKING:
    from pollux.app.run_folder import MadeVectors
    from pollux.data.streams import Stream
    from pollux.fitted import Fitted
    from pollux.ranks import Ranks

_MOST_BYTES = 1_000_000_000
"""Encoded rows that take more memory than this are streamed."""
_MOST_CLASSES = 1_000
_MOST_LISTED = 60
"""Maximum number of columns that are listed on the terminal; summary.json has all."""
_NAMED_ROWS = 2_000
_NAMED_TEXTS = 20_000
_SCORED_ROWS = 1_000_000
_ROWS_AT_ONCE = 262_144
"""Rows in memory that are written together: the output for a row takes far more memory than the row."""


@dataclass(frozen=True)
class RunData:
    """The rows that a run is trained on: encoded as numbers, without those that were dropped.

    Either ``part`` holds them in memory, with their indices ``numbers`` (n,) in the file, or ``stream`` reads them.
    """

    settings: Settings
    encoding: Encoding
    n_dropped: int
    part: Part | None = None
    numbers: NDArray[np.int64] | None = None
    stream: Stream | None = None
    source: Source | None = None
    notes: Sequence[str] = ()
    vectors: MadeVectors | None = None
    """How the rows were made, if they are vectors of texts or images."""

    def __len__(self) -> int:
        return len(self.samples if self.part is None else self.part)

    @property
    def is_streamed(self) -> bool:
        return self.stream is not None

    @property
    def n_learned_from(self) -> int:
        """Number of training rows, for settings without "auto"; the model labels all rows."""
        settings, n = self.settings, len(self)
        if not settings.max_samples or settings.model == "free":
            return n
        return min(n, max(int(settings.max_samples), int(settings.n_clusters), 2))

    @cached_property
    def samples(self) -> Any:
        """The argument of the estimator's fit: an array (n, …), or the stream."""
        return self.stream if self.part is None else self.encoding.encode(self.part.rows, UnseenValues())

    @property
    def n_features(self) -> int:
        """Number of features of an encoded row."""
        return math.prod(self.samples.shape if self.part is None else self.samples.shape[1:])

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one row in the file."""
        return tuple(self.samples.shape if self.part is None else self.part.rows.shape[1:])

    @cached_property
    def recipe(self) -> str:
        """The recipe for rows of this kind."""

        def sample(most: int) -> Any:
            return take_evenly(self.samples, most) if self.stream is None else self.stream.sample(most)

        return recognise_rows(len(self), self.encoding.encoded_shape, self.encoding, sample)

    def fingerprint(self) -> str:
        """A digest of the rows and their order."""
        return self.stream.fingerprint() if self.stream is not None else fingerprint(self.samples)

    def describe(self) -> list[str]:
        """Lines that describe the rows and how they are read."""
        names, decisions = self.encoding.feature_names, self.encoding.decisions
        features = counted(len(names), "feature")
        lines = [f"{len(self):,} rows, " + (features if names else "images of " + "×".join(map(str, self.shape)))]
        if names:
            # Texts and dates have several features each, so columns are counted by source.
            beside = {*self.encoding.identifiers}
            columns = [each.name for each in decisions if each.used and each.name not in beside] or names
            lines[0] += f" of {counted(len(columns), 'column')}" if len(columns) < len(names) else ""
            lines[0] += ": " + ", ".join(columns[:8]) + (" …" if len(columns) > 8 else "")
        if self.is_streamed:
            lines[0] += "; read as they are needed"
        if any(not each.used or each.reason for each in decisions):
            lines += decisions.lines(_MOST_LISTED)
            if self.recipe != "embeddings":
                lines.append("to change this: --use COLUMN, --drop COLUMN, --kinds text|number|date|id COLUMN")
        if self.n_dropped:
            lines.append(f"left out {self.n_dropped:,} rows that lack values")
        if self.settings.scaling == "auto" and len(self.encoding.scales) > 1 and self.recipe != "embeddings":
            lines.append(f"{'numbers' if names else 'channels'} are {describe_scaling(self.encoding)}")
        return lines

    def parts(self) -> Iterator[tuple[Part, NDArray[np.int64], NDArray[np.float32]]]:
        """The rows in the order of the file: raw, their indices, and encoded."""
        if self.part is not None and self.numbers is not None:
            for first in range(0, len(self), _ROWS_AT_ONCE):
                stop = first + _ROWS_AT_ONCE
                yield self.part.between(first, stop), self.numbers[first:stop], self.samples[first:stop]
            return
        assert self.source is not None
        beside = [*self.encoding.identifiers, *filter(None, [self.settings.label, self.settings.known])]
        beside += self.source.names() if self.settings.with_data else []
        # The same source as before, which checks that its files have not changed.
        for whole in self.source.stream(self.encoding, beside):
            part, kept = drop_incomplete(whole, self.encoding)
            if len(part):
                yield part, part.first + np.flatnonzero(kept), self.encoding.encode(part.rows, UnseenValues())

    def sample(self, n: int, seed: int, *, with_classes: bool = True) -> tuple[NDArray[Any], NDArray[np.str_] | None]:
        """At most n rows (n, d), flattened, drawn at random, and their classes if these are known."""
        chosen = np.sort(np.random.RandomState(seed).permutation(len(self))[:n])
        if self.stream is None:
            assert self.part is not None
            X, classes = self.samples[chosen], classes_of(self.part, self.settings.label if with_classes else "")
        elif self.settings.label and with_classes:
            raise InputError(
                f"Classes of streamed rows are not read ({option('label')}): leave it out, or use "
                f"{option('stream', 'no')}."
            )
        else:
            X, classes = self.stream.take(chosen), None
        return X.reshape(len(X), -1), None if classes is None else classes[chosen]

    def check_label(self) -> None:
        """Raise an InputError if the label is not a column of classes; of streamed rows, in the first of them."""
        if self.settings.label:
            part = self.part
            if part is None:
                assert self.source is not None
                part = next(self.source.stream(TableEncoding(()), [self.settings.label]))
            classes_of(part, self.settings.label)

    def hints(self) -> dict[str, Any]:
        """Hints from the settings, as arguments of the estimator's fit; empty if there are none."""
        settings, found = self.settings, dict[str, Any]()
        if settings.known:
            found["known"] = self._number_classes(self._known_classes())
        for name in ("must_link", "cannot_link"):
            if path := getattr(settings, name):
                found[name] = self._places(read_pairs(path, option(name)), option(name))
        return found | {"hint_weight": settings.hint_weight} if found else {}

    def sizes(self) -> dict[str, Any]:
        """Sizes of clusters from the settings, as arguments of the estimator's fit."""
        given = {
            name: getattr(self.settings, name) for name in ("min_size", "max_size") if getattr(self.settings, name)
        }
        # Shares are at most one: run.toml files of older versions have numbers of rows with a decimal point.
        return {name: int(value) if value > 1 and value == int(value) else value for name, value in given.items()}

    def known_names(self) -> list[str]:
        """Names of known clusters, in order; "" for those without."""
        classes = sorted(set(self._known_classes()) - {""}, key=_by_number) if self.settings.known else []
        K = self.settings.n_clusters
        numbers = [str(k) for k in range(K)] if isinstance(K, int) else []
        # Codes such as 01 are not numbers of clusters.
        if set(classes) <= set(numbers):
            return [
                number if number in classes else "" for number in numbers[: int(max(classes, key=int, default=-1)) + 1]
            ]
        return classes

    def _known_classes(self) -> NDArray[np.str_]:
        column = self.settings.known
        if self.part is not None:
            found = [classes_of(self.part, column)]
        else:
            assert self.source is not None
            parts = (drop_incomplete(whole, self.encoding)[0] for whole in self.source.stream(self.encoding, [column]))
            found = [classes_of(part, column) for part in parts]
        return np.concatenate([np.empty(0, dtype=str), *(each for each in found if each is not None)])

    def _number_classes(self, classes: NDArray[np.str_]) -> NDArray[np.int64]:
        names, K = self.known_names(), self.settings.n_clusters
        if len(names) > int(K):
            raise InputError(
                f"Column {self.settings.known!r} ({option('known')}) knows {len(names)} clusters, and {K} are looked "
                f"for: ask for at least {len(names)} ({option('n_clusters', len(names))})."
            )
        number = {name: k for k, name in enumerate(names) if name}
        return np.array([number.get(value, -1) for value in classes.tolist()], dtype=np.int64)

    def _places(self, rows: NDArray[np.int64], given: str) -> NDArray[np.int64]:
        """Positions of rows of the file among those that are clustered."""
        if self.numbers is None:
            if self.n_dropped:
                raise InputError(f"Rows that lack values were left out, so that {given} cannot name streamed rows.")
            return rows
        places = np.searchsorted(self.numbers, rows).clip(max=len(self.numbers) - 1)
        absent = rows[self.numbers[places] != rows]
        if len(absent):
            raise InputError(f"{given} names row {absent[0]}, which is not among the rows that are clustered.")
        return places

    def write_assignments(self, path: Path, fitted: Fitted) -> dict[str, Any]:
        """Write the cluster of each row; returns the statistics of rows for the summary, with notes for the user."""
        from pollux.metrics import LABEL_METRICS, conditional_entropy
        from pollux.trees.contrasts import restated_column
        from pollux.trees.explanation import name_clusters

        rows, confidence, entropy = np.zeros(len(fitted.order), dtype=np.int64), np.zeros(len(fitted.order)), 0.0
        outliers, notes, label = 0, list[str](), self.settings.label
        known, found = [np.empty(0, dtype=str)], [np.empty(0, dtype=np.int64)]
        has_columns, with_data = len(self.encoding.encoded_shape) == 1, self.settings.with_data
        named: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        features: tuple[Feature, ...] = ()
        is_embedded, labelled, texts = self.recipe == "embeddings", list[int](), list[str]()
        names: dict[int, str] = {}
        restates = ""

        draw_named = _drawing(len(self), _NAMED_TEXTS if is_embedded else _NAMED_ROWS)
        draw_scored = _drawing(len(self), _SCORED_ROWS)

        def look_at(part: Part, labels: NDArray[np.int64]) -> None:
            nonlocal features
            if is_embedded:
                # Entries of vectors are not interpretable; names come from the texts that they stand for.
                some = draw_named(len(part))
                if own := _texts_of(part, self.encoding, some):
                    texts.extend(own)
                    labelled.extend(labels[some].tolist())
            elif has_columns:
                some = draw_named(len(part))
                if some.any():
                    columns, features = self.encoding.readable(part.kept(some).rows)
                    named.append((labels[some], columns))

        def find_names() -> None:
            nonlocal names, restates
            if texts:
                from pollux.embedding.topics import name_clusters as name_topics

                names = {topic.cluster: topic.name for topic in name_topics(labelled, texts)}
            elif named:
                labels, columns = map(np.concatenate, zip(*named, strict=True))
                names = name_clusters(labels, columns, features)
                restates = restated_column(columns, labels, features)

        if self.part is not None:
            # Named before any row is written; for streamed rows, after all have been read.
            with Stage("naming clusters"):
                look_at(self.part, fitted.labels)
                find_names()
        free = fitted.free_probabilities() if fitted.is_free else None
        with open_writer(path, self.settings.raw) as write, Stage("writing clusters, row", len(self)) as shown:
            for part, numbers, X in self.parts():
                done = int(rows.sum())
                probabilities = fitted.probabilities(X) if free is None else free[done : done + len(X)]
                # With given sizes, labels may differ from the most likely clusters.
                labels = fitted.labels[done : done + len(X)] if self.part is not None else probabilities.argmax(1)
                outlier = fitted.find_outliers(X, self.settings.outliers) if self.settings.outliers else None
                outliers += 0 if outlier is None else int(outlier.sum())
                if self.is_streamed:
                    look_at(part, labels)
                beside = [*identifiers_of(part, self.encoding), *(part.names if with_data else ())]
                given = names if with_data else {}
                sure = confidence_of(fitted, X, labels)
                write(assignment_columns(part, numbers, probabilities, beside, outlier, labels, given, sure))
                rows += np.bincount(labels, minlength=len(rows))
                sure = probabilities[np.arange(len(labels)), labels] if sure is None else sure
                confidence += np.bincount(labels, sure, minlength=len(rows))
                entropy += conditional_entropy(probabilities) * len(probabilities)
                try:
                    classes = classes_of(part, label)
                except InputError as error:
                    # What was trained is kept, whatever it is compared with.
                    notes.append(f"nothing is scored: {error}")
                    classes, label, known, found = None, "", [np.empty(0, dtype=str)], [np.empty(0, dtype=np.int64)]
                if classes is not None:
                    taught = classes_of(part, self.settings.known)
                    # Rows whose class was given as a hint are not scored.
                    classes = classes if taught is None else np.where(taught == "", classes, "")
                    scored = draw_scored(len(part))
                    known.append(classes[scored])
                    found.append(labels[scored])
                shown.update(rows.sum())
        scores, has_class = None, (classes := np.concatenate(known)) != ""
        if has_class.any():
            pair = classes[has_class], np.concatenate(found)[has_class]
            scores = {name: metric(*pair) for name, metric in LABEL_METRICS.items()}
            scores["rows_with_a_class"] = int(has_class.sum())
            if 2 * (n_classes := len(set(classes[has_class].tolist()))) > has_class.sum():
                notes.append(
                    f"column {label!r} has {n_classes:,} different values in {has_class.sum():,} rows: these are "
                    "hardly classes, and scores against them say little"
                )
        elif label and self.settings.known:
            notes.append(
                f"nothing is scored: each row whose class is known ({option('label')}) was learned from "
                f"({option('known')})"
            )
        if self.is_streamed:
            with Stage("naming clusters"):
                find_names()
        return {
            "rows": len(self),
            "rows_dropped": self.n_dropped,
            "rows_learned_from": self.n_learned_from,
            "streamed": self.is_streamed,
            "fingerprint": self.fingerprint(),
            "clusters": [
                {
                    "cluster": k,
                    "rows": int(rows[k]),
                    "confidence": float(confidence[k] / rows[k]),
                    "name": names.get(k, ""),
                }
                # Clusters known by their numbers may leave holes.
                for k in range(len(rows))
                if rows[k]
            ],
            "restates": restates,
            "entropy": entropy / max(1, int(rows.sum())),
            **({"outliers": outliers} if self.settings.outliers else {}),
            "scores": scores,
            "notes": notes,
        }


def _drawing(n: int, most: int) -> Callable[[int], NDArray[np.bool_]]:
    """A function that draws about ``most`` of n rows, given the lengths of parts in order: a mask for each part.

    Rows at regular distances would not do, because the order of a file may repeat itself.
    """
    share, random = 1 / max(1, n // most), np.random.default_rng(0)
    return lambda length: random.random(length) < share


def _texts_of(part: Part, encoding: Encoding, rows: NDArray[np.bool_]) -> list[str]:
    """The texts beside vectors, if a column holds sentences; else empty."""
    others = [name for name in part.names if name not in set(encoding.names)]
    for name in dict.fromkeys([*identifiers_of(part, encoding), *others]):
        values = part.column(name)[rows].tolist()
        if are_sentences([value for value in values[:_NAMED_ROWS] if isinstance(value, str)]):
            return [value if isinstance(value, str) else "" for value in values]
    return []


# How a file is opened


@cache
def _copy_to_file(stream: TextIO) -> Path:
    """Copy standard input to a file that is deleted when the process ends; its first bytes determine the format.

    It is deleted however the process ends: where the system lists open files, the copy has no name, only a link to it.
    """
    folder = tempfile.TemporaryDirectory(prefix="pollux-")
    atexit.register(folder.cleanup)
    path, listed = Path(folder.name) / "stdin", Path(f"/proc/{os.getpid()}/fd")
    # Both stay open until the process ends.
    file: Any = tempfile.TemporaryFile() if listed.is_dir() else path.open("w+b")  # noqa: SIM115
    shutil.copyfileobj(stream.buffer, file)
    file.flush()
    file.seek(0)
    head = file.read(64).lstrip(codecs.BOM_UTF8 + b" \t\r\n")
    suffixes = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\x93NUMPY": ".npy", b"\xd0\xcf\x11\xe0": ".xls"}
    suffixes |= {b"\x1f\x8b": ".csv.gz", b"BZh": ".csv.bz2", b"\x28\xb5\x2f\xfd": ".csv.zst"}
    suffixes |= {b"[": ".json", b"{": ".json"}
    suffix = next((suffix for first, suffix in suffixes.items() if head.startswith(first)), ".csv")
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as packed:
            members = packed.namelist()
        is_sheet = any(name in ("[Content_Types].xml", "mimetype") for name in members)
        suffix = (".ods" if "mimetype" in members else ".xlsx") if is_sheet else ".npz"
    named = path.with_name(path.name + suffix)
    atexit.register(file.close)
    if path.exists():
        return path.rename(named)
    named.symlink_to(listed / str(file.fileno()))
    return named


def data_file(data: str | Path) -> Path:
    """The path of the data: standard input, which can only be read once, is copied to a file."""
    return _copy_to_file(sys.stdin) if data == STANDARD_INPUT else Path(data)


def open_source(settings: Settings, data: str | Path | None = None) -> Source:
    """Open the data file of the settings, or other data, to be read as the settings say."""
    return open_data(data_file(settings.data if data is None else data), _reading_of(settings))


def _reading_of(settings: Settings) -> Reading:
    """The options for reading files in the settings."""
    delimiter, array, size = settings.delimiter or None, settings.array or None, settings.image_size or None
    how = (settings.encoding or None, settings.strict, settings.sql or None)
    return Reading(delimiter, settings.header, settings.na, array, size, *how)


def open_run_data(
    settings: Settings,
    ranks: Ranks | None = None,
    check_streamable: Callable[[Settings], None] = lambda settings: None,
) -> RunData:
    """Open the rows of the data file: in memory, unless they are large or streaming was requested."""
    source = open_source(settings)
    with _naming_sheets(source):
        if settings.stream == "yes" or (settings.stream == "auto" and source.size_in_memory() > _MOST_BYTES):
            # Before any row is read, because surveying a large file takes long.
            check_streamable(settings)
            data = _stream(settings, source, ranks)
        else:
            data = _read(settings, source)
    if settings.scaling == "auto" and len(set(data.encoding.scales)) > 1 and data.recipe == "embeddings":
        # Dimensions of an encoder share one unit, whatever their ranges.
        return open_run_data(replace(settings, scaling="global"), ranks, check_streamable)
    return replace(data, encoding=_with_texts(data.vectors, data.encoding))


@contextmanager
def _naming_sheets(source: Source) -> Iterator[None]:
    """Add to errors which sheet of a workbook was read, if there are others: it may be the wrong one."""
    try:
        yield
    except InputError as error:
        notes = source.notes() if suffix_of(source.path)[0] in FORMATS["Excel"] else []
        if not notes:
            raise
        raise InputError(f"{str(error).removesuffix('.')}. Note that {'; '.join(notes)}.") from error


def _with_texts(made: MadeVectors | None, encoding: Encoding) -> Encoding:
    """For vectors of texts, the encoding with the columns of the original file in its decisions."""
    if not isinstance(encoding, TableEncoding) or made is None or made["text"] is None:
        return encoding
    there, text = {each.name: each for each in encoding.decisions}, made["text"]
    vectors = [name for name in encoding.names if name not in made.get("beside", ())]
    if text not in there or there[text].used or not vectors:
        return encoding
    listed = {
        name: there.get(name) or Decision(name, "", False, "texts are clustered by their vectors alone")
        for name in made.get("columns", [text])
    }
    ends = f"{vectors[0]} … {vectors[-1]}"
    listed[text] = Decision(text, "text", True, f"by its vectors, {ends} ({made['encoder']})")
    return replace(encoding, listed=tuple({**listed, **{n: each for n, each in there.items() if n != text}}.values()))


def open_and_describe(
    settings: Settings, console: Console, check: Callable[[RunData], None] = lambda data: None
) -> RunData:
    """Open the rows of the data file, and print what they are; ``check`` may refuse them."""
    data = open_run_data(replace(settings, data=resolve_data(settings.data)))
    check(data)
    for line in data.describe():
        console.echo(line)
    for note in data.notes:
        console.note(note)
    return data


def _read(settings: Settings, source: Source) -> RunData:
    with Stage(f"reading {source.path.name}"):
        part = source.read()
    check_several(settings, len(part))
    choices, made = _choices_of(settings, source)
    if part.names:
        kinds = {name: kind for given, kind in choices.kinds.items() for name in split_names([given], part.names)}
        choices = replace(choices, kinds=kinds)
    check_nameable(part, [*choices.identifiers, *filter(None, [settings.label])])
    # Means, and which columns vary, are computed from the remaining rows.
    encoding, _ = learn_encoding(InMemory(part.rows, part.feature_names, source.path), choices)
    part, kept = drop_incomplete(part, encoding)
    numbers = part.first + np.flatnonzero(kept)
    part = source.as_written(part, encoding.identifiers, numbers)
    check_several(settings, len(part))
    n_dropped = int((~kept).sum())
    return RunData(settings, encoding, n_dropped, part=part, numbers=numbers, notes=source.notes(), vectors=made)


def _choices_of(settings: Settings, source: Source) -> tuple[Choices, MadeVectors | None]:
    """The choices about columns in the settings, and how the data were made if they are vectors."""
    from pollux.app.embed import how_vectors_were_made

    made = how_vectors_were_made(settings.data)
    # Known clusters are not used as a feature.
    drop = (*settings.drop, *([settings.known] if settings.known and settings.known != settings.label else []))
    columns = (settings.columns, drop, settings.use, settings.kinds, settings.label or None, settings.known or None)
    beside = [] if made is None else made.get("beside", [])
    return Choices(*columns, settings.missing, settings.scaling, beside, source.has_decimal_comma), made


def check_several(settings: Settings, n: int) -> None:
    """Raise an InputError if there are too few rows to cluster."""
    if n < 2:
        raise InputError(
            f"There is {'one row' if n else 'no row'} to cluster in {settings.data}; there must be at least 2."
        )


def _stream(settings: Settings, source: Source, ranks: Ranks | None) -> RunData:
    """Open streamed rows; their encoding is learned by reading them once, which several processes share."""
    blocks = source.blocks()
    choices, made = _choices_of(settings, source)
    check_several(settings, int(blocks.lengths.sum()))
    if blocks.shape is None:
        choices = choices.among(blocks.names)
        named = [*choices.identifiers, *filter(None, [settings.label])]
        if named:
            # Check on the first rows that these columns can name rows or classes.
            check_nameable(next(source.stream(TableEncoding(()), named)), named)
    elif settings.label or choices.identifiers:
        raise InputError(
            f"An .npy file has no columns beside its rows: leave out {option('label')} and {option('kinds', 'id')}."
        )
    dtype = "float64" if settings.dtype == "float64" else "float32"
    stream = encode_stream(blocks, choices, dtype, settings.data, ranks=ranks)
    assert stream.encoding is not None
    n_dropped = int(blocks.lengths.sum()) - len(stream)
    encoding, notes = stream.encoding, source.notes()
    return RunData(settings, encoding, n_dropped, stream=stream, source=source, notes=notes, vectors=made)


# Shared by training, prediction and reports


def adapt(encoding: Encoding, source: Source) -> Encoding:
    """The encoding for data in which numbers or dates may be written otherwise than in training."""
    if not set(encoding.names) <= set(source.names()):
        return encoding
    return adapt_encoding(encoding, lambda own: (part.rows for part in source.stream(own, ())))


def drop_incomplete(part: Part, encoding: Encoding) -> tuple[Part, NDArray[np.bool_]]:
    """The rows to be used, and the mask of these in the part: incomplete ones are dropped if the encoding says so."""
    kept = np.ones(len(part), dtype=bool)
    if encoding.missing == "drop":
        kept = encoding.complete(part.rows)
    return part if kept.all() else part.kept(kept), kept


def check_nameable(part: Part, names: Sequence[str]) -> None:
    """Raise an InputError if a column does not exist, or holds values that cannot name rows or classes."""
    for name in names:
        part.column(name)
        if _is_nested(part.written(name)):
            kind = part.written(name).type
            raise InputError(f"Column {name!r} holds values of type {kind}, which cannot name rows or classes.")


def classes_of(part: Part, label: str) -> NDArray[np.str_] | None:
    """Known classes (n,) as text, "" for unknown ones; None without a label."""
    if not label:
        return None
    values = part.column(label)
    if label not in part.beside:
        values = as_text(part.written(label)).to_pylist()
    classes = np.array(["" if value is None or value != value else str(value) for value in values])
    if len(set(classes)) > _MOST_CLASSES:
        raise InputError(f"Column {label!r} has more than {_MOST_CLASSES:,} different values: these are not classes.")
    return classes


def read_pairs(path: str, given: str) -> NDArray[np.int64]:
    """Pairs (m, 2) of row numbers in a CSV file; a header line is skipped."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} ({given}) cannot be read: {error}") from error
    pairs = [[word.strip() for word in line.replace(";", ",").replace("\t", ",").split(",")] for line in lines if line]
    if pairs and not any(word.isdecimal() for word in pairs[0]):
        del pairs[0]
    if not pairs:
        raise InputError(f"{path} ({given}) has no pair of row numbers, as in 3,17.")
    bad = [pair for pair in pairs if len(pair) != 2 or not all(word.isdecimal() and len(word) < 16 for word in pair)]
    if bad:
        raise InputError(f"{path} ({given}) has two row numbers in each line, as in 3,17; not {','.join(bad[0])!r}.")
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _by_number(text: str) -> tuple[int, str]:
    return (int(text), text) if text.isdecimal() and len(text) < 16 else (2**60, text)


def identifiers_of(part: Part, encoding: Encoding) -> list[str]:
    """The columns that identify rows: identifiers of a table, names of images."""
    return [*encoding.identifiers, *(["file"] if "file" in part.beside else [])]


def describe_scaling(encoding: Encoding) -> str:
    """A phrase about how "auto" scaled numbers."""
    if len(set(encoding.scales)) == 1:
        said, each = (": their units count", "column") if encoding.feature_names else ("", "channel")
        return (
            f"divided by one number, as their ranges are alike{said} "
            f"({option('scaling', 'standard')} gives each {each} the same weight)"
        )
    return "standardised, as their ranges differ"


def fingerprint(X: NDArray[np.float32]) -> str:
    """A digest of rows in memory and their order."""
    return hashlib.sha256(np.ascontiguousarray(X).data).hexdigest()


# The rows of clusters.csv and of predictions

WRITTEN = (".csv", ".tsv", ".parquet", ".pq", ".xlsx")
_DECIMALS = 4
"""Decimals of probabilities in text files; Parquet files have all digits."""
# Types that a text cell cannot hold.
_NESTED = ("list", "large_list", "fixed_size", "struct", "map", "binary", "large_binary")
_MOST_ROWS_OF_A_SHEET = 1_048_575


def confidence_of(fitted: Fitted, X: Any, labels: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """The share (n,) of other trainings that agree on the labels (n,) of samples X; None if it was not assessed."""
    if fitted.confidence is None:
        return None
    return fitted.confidence.predict(fitted.log_probabilities(X).numpy(), labels)


def assignment_columns(
    part: Part,
    numbers: NDArray[np.int64],
    probabilities: NDArray[Any],
    identifiers: Sequence[str],
    outlier: NDArray[np.bool_] | None = None,
    labels: NDArray[np.int64] | None = None,
    names: Mapping[int, str] | None = None,
    confidence: NDArray[np.float64] | None = None,
) -> dict[str, Any]:
    """Columns by name: row, identifiers, cluster, its name, p_0 … p_{K−1}, entropy (in nats), confidence, and outlier.

    Names, confidence and outliers are included if there are any. ``numbers`` (n,) are the row numbers in the file, from
    0; ``probabilities`` are (n, K).
    """
    labels = probabilities.argmax(1) if labels is None else labels
    results = {"cluster": labels}
    if names:
        results["cluster_name"] = np.array([names.get(k, "") for k in range(probabilities.shape[1])], object)[labels]
    results |= {f"p_{k}": probabilities[:, k] for k in range(probabilities.shape[1])}
    # Imported late, because it takes as long as all that reads a file.
    from scipy.special import entr

    results["entropy"] = entr(probabilities).sum(1)
    results |= {} if confidence is None else {"confidence": confidence}
    results |= {} if outlier is None else {"outlier": outlier}
    columns: dict[str, Any] = {"row": numbers}
    taken, taken_up = {"row", *results, *identifiers}, set[str]()
    for name in identifiers:
        if name in part.names and name not in taken_up:
            taken_up.add(name)
            if _is_nested(part.written(name)):
                continue
            spelled = name
            while spelled == "row" or spelled in results or (spelled != name and spelled in taken):
                # A column of the file with the name of one of ours is renamed; names stay unique.
                spelled += "_in_file"
            columns[spelled] = part.written(name)
            taken.add(spelled)
    return columns | results


def _is_nested(values: Any) -> bool:
    return str(getattr(values, "type", "")).startswith(_NESTED)


def without_formulas(table: Any) -> Any:
    """An Arrow table whose texts cannot be run as formulas by spreadsheets: an apostrophe is prepended to these."""
    import pyarrow as pa
    import pyarrow.compute as pc

    def neutralise(texts: Any) -> Any:
        # Full-width characters can begin formulas too.
        begins = pc.match_substring_regex(texts, r"^[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]")
        is_number = pc.match_substring_regex(texts, r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
        quoted = pc.binary_join_element_wise(pa.scalar("'", texts.type), texts, pa.scalar("", texts.type))
        return pc.if_else(pc.and_not(begins, is_number), quoted, texts)

    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    is_text = [pa.types.is_string(column.type) or pa.types.is_large_string(column.type) for column in columns]
    columns = [neutralise(column) if text else column for column, text in zip(columns, is_text, strict=True)]
    return pa.table(columns, names=neutralise(pa.array(table.column_names)).to_pylist())


@contextmanager
def open_writer(
    path: Path | None, raw: bool = False, facts: Mapping[str, str] | None = None
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that appends columns to a file: CSV, TSV, Parquet or Excel, by its suffix.

    The file appears once it is complete, and the first rows determine the types. Without a path it is CSV on standard
    output. CSV and TSV are made safe from formulas, unless texts are ``raw``; in Excel no text is a formula. Parquet
    files also store the ``facts`` about their rows.
    """
    suffix = ".csv" if path is None else path.suffix.lower()
    if suffix not in WRITTEN:
        raise InputError(f"{path} does not end in one of {', '.join(WRITTEN)}: name a CSV, TSV, Parquet or Excel file.")
    if suffix == ".xlsx":
        assert path is not None
        with _open_sheet(path) as write_rows:
            yield write_rows
        return
    with ExitStack() as stack:
        file: Any = PrintedRows()
        if path is not None:
            file = stack.enter_context(stack.enter_context(in_place(path)).open("wb"))
        writer: Any = None

        def write(columns: dict[str, Any]) -> None:
            nonlocal writer
            import pyarrow as pa
            import pyarrow.csv as arrow_csv

            table = pa.table(columns if suffix in (".parquet", ".pq") else _rounded(columns))
            table = table.replace_schema_metadata(facts)
            if suffix in (".csv", ".tsv") and not raw:
                table = without_formulas(table)
            if writer is None and suffix in (".csv", ".tsv"):
                how = arrow_csv.WriteOptions(delimiter="\t" if suffix == ".tsv" else ",", quoting_style="needed")
                writer = stack.enter_context(arrow_csv.CSVWriter(file, table.schema, write_options=how))
            elif writer is None:
                import pyarrow.parquet as parquet

                # Probabilities hardly compress, and dictionary encoding of them costs more than it saves.
                how = {"compression": "snappy", "use_dictionary": False}
                writer = stack.enter_context(parquet.ParquetWriter(file, table.schema, **how))
            writer.write_table(table.cast(writer.schema) if hasattr(writer, "schema") else table)

        yield write


def _rounded(columns: dict[str, Any]) -> dict[str, Any]:
    """The columns of assignments with probabilities, entropies and confidences, which come last, rounded."""
    names = list(columns)
    after = names[names.index("cluster") :] if "cluster" in columns else []
    results = {name for name in after if re.fullmatch(r"p_\d+|entropy|confidence", name)}
    return {
        name: np.round(np.asarray(values, dtype=np.float64), _DECIMALS) + 0.0 if name in results else values
        for name, values in columns.items()
    }


@contextmanager
def _open_sheet(path: Path) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A function that appends columns to an Excel sheet."""
    try:
        import xlsxwriter
    except ImportError as error:
        raise InputError(
            f"{path}: Excel files are written by XlsxWriter: pip install 'pollux[excel]'; or write a .csv file."
        ) from error
    import datetime

    import pyarrow as pa

    with in_place(path) as place:
        # Rows are written to disk as they come, and no text becomes a formula or a link.
        how: dict[str, Any] = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
        how |= {"nan_inf_to_errors": True, "default_date_format": "yyyy-mm-dd hh:mm", "remove_timezone": True}
        book = xlsxwriter.Workbook(str(place), how)
        sheet, done = book.add_worksheet("clusters"), 0

        def write(columns: dict[str, Any]) -> None:
            nonlocal done
            table = pa.table(_rounded(columns))
            if done + table.num_rows > _MOST_ROWS_OF_A_SHEET:
                raise InputError(f"A sheet of Excel has room for {_MOST_ROWS_OF_A_SHEET:,} rows: write a .csv file.")
            if not done:
                for column, name in enumerate(table.column_names):
                    sheet.write_string(0, column, name)
                sheet.freeze_panes(1, 0)
            kept = (bool, int, float, str, datetime.date, datetime.time, datetime.timedelta)
            for values in zip(*(column.to_pylist() for column in table.columns), strict=True):
                done += 1
                for column, value in enumerate(values):
                    if value is not None and value == value:
                        sheet.write(done, column, value if isinstance(value, kept) else str(value))

        yield write
        book.close()

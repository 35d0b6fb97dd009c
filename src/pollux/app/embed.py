"""``pollux embed``: write a vector for each text of a file, or each image of a folder."""

from __future__ import annotations

import argparse
import json
import os
import shlex
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pollux.app.console import GOOD, Console
from pollux.app.run_folder import MadeVectors
from pollux.app.settings import STANDARD_INPUT, Settings
from pollux.data.arrow import are_prose, are_sentences, no_column, plain
from pollux.data.encoding import MOST_VALUES, Number, TableEncoding
from pollux.errors import InputError, NoColumnError, option
from pollux.io.parsing import parse_json

if TYPE_CHECKING:
    from pollux.app.run_data import RunData
    from pollux.data.sources import Source
    from pollux.embedding.encoders import Encoder

Result = TypeVar("Result")

_IMAGE_SIZE = 224
# At most so many columns of few values, beside which texts are more informative.
_MOST_BESIDE, _ROWS_LOOKED_AT = 3, 10_000
# Key in the metadata of Parquet files that says how their vectors were made.
_NOTED = "pollux.vectors"


def add(commands: Any) -> None:
    embed = commands.add_parser(
        "embed",
        description="Write a vector of length one for each text in a column of DATA (CSV, Parquet, …), or for each "
        "picture of a folder, beside the text or the name of the picture: something for pollux fit. What was encoded "
        "before is found in a cache by its content, so that a command that was stopped goes on when it is repeated.",
    )
    embed.add_argument("data", metavar="DATA", help="a file with a column of texts, or a folder of pictures")
    embed.add_argument("--text", metavar="COLUMN", help="the column of texts (default: the only one that holds text)")
    embed.add_argument("--out", metavar="FILE", required=True, help="Parquet, CSV or TSV, by its name")
    embed.add_argument(
        "--encoder",
        default="auto",
        help="wordllama (fast) or minilm (better) for texts, efficientnet-lite0 for pictures, a folder of "
        "sentence-transformers, or an encoder of pollux pretrain (default: auto, wordllama or efficientnet-lite0)",
    )
    embed.add_argument(
        "--keep",
        metavar="A,B",
        action="append",
        default=[],
        help="further columns to write beside the vectors; of pictures: folder, the one that each lies in",
    )
    embed.add_argument(
        "--image-size",
        metavar="N",
        type=int,
        default=_IMAGE_SIZE,
        help=f"pixels a side to which pictures are scaled (default: {_IMAGE_SIZE}); give that of a pollux pretrain",
    )
    embed.add_argument("--batch-size", metavar="N", type=int, help="samples that are encoded at once")
    embed.add_argument("--no-cache", action="store_true", help="neither read nor write the cache")
    embed.add_argument("--quiet", action="store_true", help="print nothing but errors")
    embed.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the vectors of a file or a folder."""
    from pollux.app.run_folder import check_not_input
    from pollux.data.array_files import ImageFolder
    from pollux.data.sources import open_data
    from pollux.data.survey import split_names

    console, out = Console(options.quiet), Path(options.out)
    source = open_data(options.data)
    if not out.parent.is_dir():
        raise InputError(f"The folder {out.parent} does not exist: make it first.")
    is_folder = isinstance(source, ImageFolder)
    if is_folder and options.text:
        raise InputError(f"{options.data} is a folder of pictures, which has no columns.")
    if not is_folder:
        check_not_input(out, options.data)
    text = None if is_folder else _text_column(source, options.text)
    encoder = _load_encoder(options.encoder, of_texts=not is_folder)
    console.echo(f"encoder: {encoder.name}")
    keep = split_names(options.keep, ImageFolder.BESIDE if is_folder else source.names())
    with console.progress():
        n = _write_vectors(
            _chunks(source, text, options.image_size, dict.fromkeys(keep, "--keep")),
            encoder,
            out,
            _facts(encoder, text, options.image_size, source, keep),
            options.batch_size,
            caches=not options.no_cache,
        )
    for note in source.notes():
        console.note(note)
    console.echo(f"{n:,} vectors written to {out}; next: pollux fit {shlex.quote(str(out))}")
    return GOOD


def with_vectors(
    work: Callable[[Settings, Callable[[RunData], None]], Result],
    settings: Settings,
    options: argparse.Namespace,
    out: str | Path | None,
    *,
    overwrite: bool,
    console: Console,
    place: str = "runs",
) -> Result:
    """Run the work on a table, or on the vectors of a text column: the one named, or one beside which there is little.

    The work calls the function that it is passed with the data that it has read, before anything else.
    """
    text, encoder = getattr(options, "text", None), getattr(options, "encoder", "auto")
    if encoder != "auto" and text is None:
        raise InputError("--encoder is that of texts: name their column too, --text COLUMN.")
    instead = ""
    if text is None:
        try:
            return work(settings, partial(_check_mostly_texts, settings))
        except MostlyTextsError as found:
            text, instead = found.text, f"; by the other columns: {option('use', found.others)}"
            try:
                _load_encoder(encoder, of_texts=True)
            except ImportError as error:
                console.note(f"the texts of {text!r} tell more than the other columns, which are used alone. {error}")
                return work(settings, lambda data: None)
        except NoColumnError:
            text = _find_texts(settings)
            if text is None:
                raise
    vectors = _embed_texts(settings, text, encoder, out, overwrite, console, place, instead)
    return work(vectors, lambda data: None)


class MostlyTextsError(Exception):
    """The texts of a column are more informative than all other columns."""

    def __init__(self, text: str, others: str) -> None:
        super().__init__(text)
        self.text, self.others = text, others


def _check_mostly_texts(settings: Settings, data: RunData) -> None:
    """Raise if a column of prose stands beside few others of few values or of dates, and the user chose none."""
    encoding, part = data.encoding, data.part
    is_chosen = settings.columns or settings.use or {*settings.kinds.values()} - {"id"}
    is_alone = os.environ.get("WORLD_SIZE", "1") == "1"
    if is_chosen or not is_alone or part is None or not isinstance(encoding, TableEncoding):
        return
    if len(encoding.columns) > _MOST_BESIDE:
        return
    for column in encoding.columns:
        first = part.rows.column(column.name).slice(0, _ROWS_LOOKED_AT)
        if isinstance(column, Number) and len({*first.to_pylist()}) > MOST_VALUES:
            return
    beside = {*encoding.names, settings.label, settings.known, *settings.kinds, *settings.drop}
    texts = [name for name in part.names if name not in beside]
    if (found := _longest_texts(part.rows, texts, are_prose)) is not None:
        raise MostlyTextsError(found, ",".join(encoding.names))


def _embed_texts(
    settings: Settings,
    text: str,
    encoder: str,
    out: str | Path | None,
    overwrite: bool,
    console: Console,
    place: str,
    instead: str = "",
) -> Settings:
    """Embed the texts of a column, in a file beside the folder of the run; returns settings for a run on the vectors.

    The file also holds the texts, the known classes and clusters, and the identifiers. ``instead`` says what else could
    be done.
    """
    from pollux.app.run_data import open_source
    from pollux.app.run_folder import candidates, check_free, check_idle

    if os.environ.get("WORLD_SIZE", "1") != "1":
        raise InputError("Several processes cannot share the encoding of texts: pollux embed first.")
    if settings.columns or settings.use:
        raise InputError(
            f"Texts are clustered by their vectors alone ({option('text')}): leave out {option('columns')} and "
            f"{option('use')}. To use other columns too: pollux embed DATA --keep A,B, then pollux fit {option('use')} "
            "A,B."
        )
    if out is not None:
        check_free(out, overwrite)
        check_idle(out)
    identifiers = [name for name, kind in settings.kinds.items() if kind == "id" and name != text]
    run = next(iter(candidates(settings.data, place))) if out is None else Path(out)
    names = chain([run.name], (f"{run.name}-{number}" for number in count(2)))
    paths = (run.parent / f"{name}.vectors.parquet" for name in names)
    path = next(path for path in paths if not path.exists())
    source = open_source(settings)
    text = _text_column(source, text)
    if absent := [name for name in settings.drop if name not in source.names()]:
        raise no_column(absent, source.names(), option("drop"))
    if text in settings.drop:
        raise InputError(f"The texts of {text!r} are what is clustered ({option('text')}): {option('drop')} another.")
    try:
        found = _load_encoder(encoder, of_texts=True)
    except ImportError as error:
        raise InputError(f"The column {text!r} holds texts, which must become vectors. {error}") from error
    beside = dict.fromkeys(identifiers, option("kinds", "id"))
    beside |= {name: option(role) for role in ("label", "known") if (name := getattr(settings, role))}
    chunks = _chunks(source, text, _IMAGE_SIZE, beside)
    # Read first, so that errors are raised before anything is written.
    first = next(chunks)
    console.echo(f"texts of {text!r} are clustered by the vectors of {found.name}, which go to {path}{instead}")
    path.parent.mkdir(parents=True, exist_ok=True)
    named = "standard input" if settings.data == STANDARD_INPUT else source.path.name
    _write_vectors(chain([first], chunks), found, path, _facts(found, text, _IMAGE_SIZE, source, beside, named))
    return replace(settings, data=str(path), drop=(), kinds=dict.fromkeys([*identifiers, text], "id"))


def _find_texts(settings: Settings) -> str | None:
    """The column of a table that holds sentences, the one with the longest if there are several."""
    from pollux.app.run_data import open_source
    from pollux.data.table_files import TableFiles

    source = open_source(settings)
    if not isinstance(source, TableFiles):
        return None
    blocks = source.blocks()
    beside = (settings.label, settings.known, *settings.drop)
    names = [name for name, kind in blocks.kinds.items() if kind == "text" and name not in beside]
    return _longest_texts(blocks.read_block(0, names), names, are_sentences)


def _longest_texts(table: Any, names: Iterable[str], are_texts: Callable[[Sequence[str]], bool]) -> str | None:
    """Of these columns, judged by their first rows, the one with the longest texts, most of which differ."""
    words: dict[str, int] = {}
    for name in names:
        texts = [text for text in table.column(name).slice(0, 1000).to_pylist() if isinstance(text, str) and text]
        if are_texts(texts) and 2 * len(set(texts)) >= len(texts):
            words[name] = sum(len(text.split()) for text in texts)
    return max(words, key=words.__getitem__, default=None)


def how_vectors_were_made(path: str | Path) -> MadeVectors | None:
    """The metadata that ``pollux embed`` wrote to a Parquet file of vectors; None for another file."""
    import pyarrow.parquet as parquet

    from pollux.data.sources import FORMATS

    path = Path(path)
    if path.suffix.lower() not in FORMATS["Parquet"] or not path.is_file():
        return None
    noted = (parquet.read_metadata(path).metadata or {}).get(_NOTED.encode())
    return None if noted is None else parse_json(noted, MadeVectors, path)


def embed_alike(
    source: Source, made: MadeVectors, names: Sequence[str], keep: Iterable[str], folder: Path, run: str | Path
) -> Source:
    """The data for the model of a run on vectors of texts or images: columns of these names.

    Texts and images are embedded by the encoder that ``made`` those vectors, in a file of the folder; data that have
    the columns are returned unchanged.
    """
    there = source.names()
    if set(names) <= set(there):
        return source
    from pollux.data.sources import open_data
    from pollux.embedding.encoders import ENCODERS

    text = made["text"]
    if (text not in there) if text is not None else bool(there):
        of = "pictures" if text is None else f"texts (in a column {text!r})"
        raise InputError(f"{source.path} holds neither {of} nor their vectors, which the model reads.")
    # A run may come from anyone, so only known encoders are loaded, not paths that it names.
    encoder = _load_encoder(made["encoder"], of_texts=text is not None) if made["encoder"] in ENCODERS else None
    if encoder is None or encoder.fingerprint != made["fingerprint"]:
        raise InputError(
            f"{run} was trained on vectors of the encoder {made['encoder']!r}, "
            + ("which is not one of Pollux's own" if encoder is None else "which has another version here")
            + ": make those of the new data with the same one, by pollux embed."
        )
    path = folder / "vectors.parquet"
    beside = dict.fromkeys((name for name in keep if name in there and name != text), "--id")
    _write_vectors(_chunks(source, text, made["image_size"], beside), encoder, path)
    return open_data(path)


def _facts(
    encoder: Encoder, text: str | None, image_size: int, source: Source, keep: Iterable[str], data: str = ""
) -> dict[str, str]:
    """Metadata about the vectors in a Parquet file, with which new samples can be embedded in the same way."""
    made = MadeVectors(
        encoder=encoder.name,
        fingerprint=encoder.fingerprint or "",
        text=text,
        image_size=image_size,
        data=data or source.path.name,
        columns=source.names(),
        beside=list(dict.fromkeys(["file" if text is None else text, *keep])),
    )
    return {_NOTED: json.dumps(made, ensure_ascii=False)}


def _write_vectors(
    chunks: Iterable[tuple[Any, dict[str, Any]]],
    encoder: Encoder,
    out: Path,
    facts: Mapping[str, str] | None = None,
    batch_size: int | None = None,
    caches: bool = True,
) -> int:
    """Write the vectors of samples with the columns beside them, in parts; returns the number of samples."""
    from pollux.app.run_data import open_writer
    from pollux.embedding.encoders import cache_folder
    from pollux.embedding.vectors import embed_chunks

    beside: deque[dict[str, Any]] = deque()

    def samples() -> Iterator[Any]:
        for some, own in chunks:
            beside.append(own)
            yield some

    n, cache = 0, cache_folder() if caches else None
    with open_writer(out, facts=facts) as write:
        for vectors in embed_chunks(samples(), encoder, batch_size=batch_size, cache=cache):
            width = len(str(vectors.shape[1] - 1))
            columns = {f"e{index:0{width}}": vectors[:, index] for index in range(vectors.shape[1])}
            own = beside.popleft()
            twice = sorted(columns.keys() & own.keys())
            if twice:
                raise InputError(f"The column {twice[0]!r} has the name of a number of the vectors: rename it first.")
            write({**own, **columns})
            n += len(vectors)
    return n


def _text_column(source: Source, name: str | None) -> str:
    """The named column of texts, or the only one."""
    blocks = source.blocks()
    if blocks.shape is not None:
        raise InputError(f"{source.path} is an array of numbers, which has no texts.")
    if name is None:
        found = [column for column, kind in blocks.kinds.items() if kind == "text"]
        if len(found) != 1:
            there = f"several columns of text ({', '.join(found[:5])})" if found else "no column of text"
            raise InputError(f"{source.path} has {there}: name the one to encode, --text COLUMN.")
        (name,) = found
    if name not in blocks.names:
        raise no_column([name], list(blocks.names), "--text")
    return name


def _chunks(
    source: Source, text: str | None, image_size: int, keep: Mapping[str, str]
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Texts of a column, or images, in parts, with the columns that are written beside them."""
    return _pictures(source, image_size, keep) if text is None else _texts(source, text, keep)


def _texts(source: Source, name: str, keep: Mapping[str, str]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """Texts of a column, in parts, with the columns that are written beside them, which were named by options."""
    from pollux.embedding.vectors import CHUNK

    blocks = source.blocks()
    absent = [column for column in keep if column not in blocks.names]
    if absent:
        raise no_column(absent, list(blocks.names), keep[absent[0]])
    names = list(dict.fromkeys([name, *keep]))
    for block in range(len(blocks.lengths)):
        table = blocks.read_block(block, names)
        for start in range(0, table.num_rows, CHUNK):
            part = table.slice(start, CHUNK)
            texts = ["" if text is None else str(text) for text in part.column(name).to_pylist()]
            yield texts, {column: plain(part.column(column)) for column in names}


def _pictures(folder: Any, side: int, keep: Mapping[str, str]) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The images of a folder, in parts, with their names, and their folders if these are kept."""
    from pollux.data.array_files import ImageFolder
    from pollux.data.encoding import ArrayEncoding
    from pollux.embedding.vectors import CHUNK

    absent = [column for column in keep if column not in ImageFolder.BESIDE]
    if absent:
        raise no_column(absent, ImageFolder.BESIDE, keep[absent[0]])
    names = list(dict.fromkeys(["file", *keep]))
    # Unscaled, as bytes.
    encoding = ArrayEncoding((3, side, side), (0.0,) * 3, (1.0,) * 3)
    for part in folder.stream(encoding, ()):
        for start in range(0, len(part), CHUNK):
            yield part.rows[start : start + CHUNK], {name: part.beside[name][start : start + CHUNK] for name in names}


def _load_encoder(name: str, of_texts: bool) -> Encoder:
    """The encoder for a name, a folder, or a file of ``pollux pretrain``."""
    from pollux.embedding.encoders import Encoder, of_module, resolve_encoder
    from pollux.embedding.image_encoder import load_encoder

    if not name.endswith(".safetensors"):
        return resolve_encoder(name, of_texts=of_texts)
    if of_texts:
        raise InputError(f"{name} is an encoder of pictures, and these are texts.")
    network = load_encoder(name)
    if network.channels != 3:
        raise InputError(f"{name} was trained on pictures of {network.channels} channel, and these are in colour.")
    found = of_module(network)
    # It was trained on pixels from 0 to 1.
    return Encoder(name, lambda batch: found.encode([some / 255 for some in batch]), None, 64, found.fingerprint)

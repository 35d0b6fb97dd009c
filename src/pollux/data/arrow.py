"""Columns of Arrow tables: their kinds, and their values as numbers and text. pyarrow is imported on demand."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError, did_you_mean

CODE = re.compile(r"0\d+|\d{19,}")
"""Text that looks like a number, but would lose digits as one."""


_WORDS = 3
# Minimum share of lower-case words in sentences.
_SMALL_WORDS = 0.25
_WORD = re.compile(r"[^\W\d_]{2,}")

VECTOR = re.compile(r"(.+)\[\d+\]")
"""Name of a column that holds one entry of each vector."""


def as_arrow(table: Any, names: Sequence[str] = ()) -> Any:
    """An Arrow table from a table, a batch or a data frame; columns of records and vectors are split."""
    return split_nested(_as_table(table, names))


def _as_table(table: Any, names: Sequence[str]) -> Any:
    pa = pyarrow_library()
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    check_frame(table)
    try:
        if hasattr(table, "iloc"):
            # Arrow has intervals, but cannot convert those of pandas.
            table = _spelled(table, "interval")
            try:
                return pa.Table.from_pandas(table, preserve_index=False)
            except (pa.ArrowInvalid, pa.ArrowTypeError):
                # A column that mixes numbers and words becomes text.
                return pa.Table.from_pandas(_spelled(table, "object"), preserve_index=False)
        if hasattr(table, "__arrow_c_stream__") or isinstance(table, Mapping):
            return pa.table(table)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
        raise InputError(f"The data frame cannot be read as a table: {error}") from error
    raise InputError(
        f"This model was trained on a table and reads its columns by name: pass a data frame with {quoted(names)}, "
        f"not {type(table).__name__}."
    )


def check_frame(table: Any) -> None:
    """Raise an InputError if the argument is not a data frame, or has duplicate or complex columns."""
    if hasattr(table, "to_frame") and not hasattr(table, "columns"):
        raise InputError(
            f"X is a {type(table).__name__}, and a table or (n, d) array is needed; series.to_frame() makes one of "
            "a column, and df.iloc[[i]] is one of a row."
        )
    if hasattr(table, "collect_schema") and hasattr(table, "collect"):
        raise InputError(f"X is a {type(table).__name__}, which holds no rows yet: pass X.collect().")
    if not hasattr(table, "iloc"):
        return
    twice = [str(name) for name, times in Counter(table.columns).items() if times > 1]
    if twice:
        raise InputError(f"The data frame has more than one column called {quoted(twice)}: rename them.")
    kinds = zip(table.columns, table.dtypes, strict=True)
    imaginary = [str(name) for name, kind in kinds if getattr(kind, "kind", "O") == "c"]
    if imaginary:
        raise InputError(
            f"Complex numbers are not read, and {quoted(imaginary)} holds some: pass their real and imaginary parts as "
            "columns of their own, or leave them out."
        )


def _spelled(frame: Any, kind: str) -> Any:
    """A pandas data frame whose columns of this type, or of categories of this type, are converted to text."""

    def is_kind(dtype: Any) -> bool:
        categories = getattr(dtype, "categories", None)
        return str(dtype if categories is None else categories.dtype).startswith(kind)

    # By position, because names may be of any type.
    places = [place for place, dtype in enumerate(frame.dtypes) if is_kind(dtype)]
    if not places:
        return frame
    frame = frame.copy(deep=False)
    for place in places:
        frame.isetitem(place, frame.iloc[:, place].map(str, na_action="ignore"))
    return frame


def is_nested(kind: str) -> bool:
    """Whether a column of this kind holds records or vectors."""
    return kind == "vector" or kind.startswith("struct<")


def split_nested(table: Any, widths: Mapping[str, int] | None = None) -> Any:
    """Split columns of records into ``name.field`` for each field, and of vectors into ``name[i]`` for each entry.

    If a record or vector is missing, so are all of its entries. Columns of lists of different lengths are left as they
    are; if ``widths`` gives their lengths, they are refused.
    """
    pa = pyarrow_library()
    pc = pa.compute
    while any(pa.types.is_struct(kind) for kind in table.schema.types):
        table = table.flatten()
        twice = [name for name, times in Counter(table.column_names).items() if times > 1]
        if twice:
            raise InputError(f"A field of a record has the name of the column {twice[0]!r}: rename it.")
    vectors = {field.name for field in table.schema if kind_of(field.type) == "vector"}
    if not vectors:
        return table
    columns: dict[str, Any] = {}
    for name, values in zip(table.column_names, table.columns, strict=True):
        columns[name] = values
        if name not in vectors:
            continue
        lengths = np.asarray(pc.list_value_length(values), dtype=np.float64)
        there = ~np.isnan(lengths)
        width = int(lengths[there].max(initial=0)) if widths is None else widths.get(name, 0)
        strange = np.flatnonzero(there & (lengths != width))
        if len(strange) and widths is not None and width:
            raise InputError(
                f"Vectors of column {name!r} have {width:,} numbers, but {int(lengths[strange[0]]):,} in row "
                f"{strange[0]:,}: all must be of one length."
            )
        if len(strange) or not width:
            continue
        spread = np.full((len(lengths), width), np.nan)
        spread[there] = as_numbers(name, pc.list_flatten(values)).reshape(-1, width)
        del columns[name]
        split = {f"{name}[{index}]": pa.array(spread[:, index], from_pandas=True) for index in range(width)}
        twice = sorted(split.keys() & {*columns, *table.column_names})
        if twice:
            raise InputError(f"A number of the vectors of {name!r} has the name of the column {twice[0]!r}: rename it.")
        columns |= split
    return pa.table(columns)


def as_numbers(name: str, values: Any) -> NDArray[np.float64]:
    """A column of an Arrow table as numbers (n,), NaN for missing values."""
    pa = pyarrow_library()
    values = plain(values)
    if values.type == pa.float64() or (pa.types.is_integer(values.type) and not values.null_count):
        # Without a cast, which takes as long as converting thousands of numbers.
        return np.asarray(values, dtype=np.float64)
    try:
        if pa.types.is_duration(values.type):
            # In seconds, whatever the unit.
            return as_numbers(name, values.cast(pa.duration("us"), safe=False).cast(pa.int64())) / 1e6
        # Unsafe cast, because numbers may have more digits than float64.
        return np.asarray(values.cast(pa.float64(), safe=False), dtype=np.float64)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        found = re.search(r"Failed to parse string: ('.*') as a scalar", str(error))
        reason = f", and {found[1]} is not one, written as 1234.5" if found else f": {error}"
        raise InputError(f"Column {name!r} must hold numbers{reason}. Correct it, or leave those rows out.") from error


def as_text(values: Any) -> Any:
    """A column of an Arrow table as text; integers without a decimal point, whatever their type."""
    pa = pyarrow_library()
    pc = pa.compute
    values = plain(values)
    if not pa.types.is_floating(values.type):
        return values.cast(pa.string())
    values = pc.if_else(pc.is_nan(values), None, values)
    whole = pc.and_(pc.equal(values, pc.floor(values)), pc.less(pc.abs(values), 2.0**53))
    as_integers = pc.if_else(whole, values, None).cast(pa.int64()).cast(pa.string())
    return pc.if_else(whole, as_integers, values.cast(pa.string()))


def numbers_as_text(name: str, values: Any) -> Any:
    """Numbers that are names, as text in one notation, whether stored as text, integers or floats."""
    pa = pyarrow_library()
    return as_text(pa.chunked_array([pa.array(as_numbers(name, values), from_pandas=True)]))


def plain(values: Any) -> Any:
    """A column of an Arrow table without encodings, such as dictionaries, that its functions do not support."""
    pa = pyarrow_library()
    if pa.types.is_dictionary(values.type) and pa.types.is_string_view(values.type.value_type):
        # Categories of polars, which pyarrow cannot cast.
        if isinstance(values, pa.ChunkedArray):
            return pa.chunked_array(map(plain, values.chunks), pa.string())
        return plain(values.dictionary).take(values.indices)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if pa.types.is_float16(values.type):
        # pyarrow 18 and 19 support hardly any other operation on float16.
        values = values.cast(pa.float32())
    if pa.types.is_string_view(values.type) or pa.types.is_large_string(values.type):
        values = values.cast(pa.string())
    return values


def plain_size(values: Any) -> int:
    """The bytes of text after :func:`plain` on a column that stores repeated text once; 0 for others."""
    pa = pyarrow_library()
    pc, types = pa.compute, pa.types
    size = 0
    for chunk in getattr(values, "chunks", [values]):
        if types.is_string_view(chunk.type):
            # A view has 16 bytes, and begins with the length of its text.
            views = np.frombuffer(chunk.buffers()[1], "<i4").reshape(-1, 4)[chunk.offset :][: len(chunk)]
            size += int(views[:, 0].sum(where=np.asarray(chunk.is_valid()), dtype=np.int64))
        elif types.is_dictionary(chunk.type) and kind_of(chunk.type) == "text":
            lengths = pc.binary_length(plain(chunk.dictionary)).cast("int64")
            size += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    return size


def is_missing(values: Any) -> NDArray[np.bool_]:
    """Mask (n,) of missing values in a column of an Arrow table; NaN counts as missing."""
    values = plain(values)
    if not values.null_count and pyarrow_library().types.is_integer(values.type):
        return np.zeros(len(values), dtype=bool)
    return np.asarray(values.is_null(nan_is_null=True), dtype=bool)


def pyarrow_library() -> Any:
    """pyarrow, with its compute functions."""
    try:
        import pyarrow.compute
    except ImportError as error:
        raise InputError("Tables are read by pyarrow: pip install 'pollux[files]'.") from error
    return pyarrow


def kind_of(arrow_type: Any) -> str:
    """The kind of a type: nothing, boolean, integer, number (also durations), text, time or vector; else its name."""
    types = pyarrow_library().types
    if types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    kinds = {
        "nothing": (types.is_null,),
        "boolean": (types.is_boolean,),
        "integer": (types.is_integer,),
        # Before times, because durations are temporal too.
        "number": (types.is_floating, types.is_decimal, types.is_duration),
        "time": (types.is_temporal,),
        "text": (types.is_string, types.is_large_string, types.is_string_view),
    }
    for kind, checks in kinds.items():
        if any(check(arrow_type) for check in checks):
            return kind
    is_list = types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type)
    if is_list and kind_of(arrow_type.value_type) in ("integer", "number"):
        return "vector"
    return str(arrow_type)


def same_kind(kind: str, other: str) -> str | None:
    """The common kind of parts of a column with these kinds; None if they cannot be of one column."""
    if kind == other or "nothing" in (kind, other):
        return other if kind == "nothing" else kind
    return "number" if {kind, other} == {"integer", "number"} else None


def is_number(value: str) -> bool:
    """Whether text is a number, and not a code such as 007 or one of very many digits."""
    if CODE.fullmatch(value):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def are_sentences(texts: Sequence[str]) -> bool:
    """Whether texts have enough words to be sentences."""
    return bool(texts) and sum(len(text.split()) for text in texts) >= _WORDS * len(texts)


def are_prose(texts: Sequence[str]) -> bool:
    """Whether texts are prose, and not names, addresses or dates, which consist of capitalised words or numbers."""
    words = [word for text in texts for word in _WORD.findall(text)]
    is_small = sum(not word[0].isupper() for word in words)
    return bool(texts) and len(words) >= _WORDS * len(texts) and is_small >= _SMALL_WORDS * len(words)


def no_column(absent: Sequence[str], there: Sequence[str], given: str = "") -> InputError:
    """The error for missing columns, which were named by an option."""
    asked = f" ({given})" if given else ""
    alike = did_you_mean(absent[0], there)
    return InputError(f"There is no column {quoted(absent, 5)}{asked}.{alike} There are: {quoted(there, 30)}.")


def quoted(names: Sequence[str], most: int = 12) -> str:
    """Names for a message, shortened if there are many."""
    shown = ", ".join(repr(str(name)) for name in list(names)[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")

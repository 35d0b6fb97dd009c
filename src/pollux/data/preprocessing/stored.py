"""Preprocessing from the description in a model file, which may say anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pollux.data.preprocessing.array import ArrayPreprocessing
from pollux.data.preprocessing.common import MISSING, check_moments
from pollux.data.preprocessing.table import Category, Number, TablePreprocessing

Preprocessing = TablePreprocessing | ArrayPreprocessing


def from_json(description: Mapping[str, Any]) -> Preprocessing:
    """The preprocessing in a model file; a KeyError or TypeError where there is none."""
    missing, left_out = description["missing"], {str(k): str(v) for k, v in description["left_out"].items()}
    if missing not in MISSING:
        raise KeyError(f"missing values cannot be treated by {missing!r}")
    identifiers = tuple(str(name) for name in description.get("identifiers", ()))
    if description["kind"] == "table":
        columns = tuple(_column_from_json(column) for column in description["columns"])
        if len({column.name for column in columns}) < len(columns):
            raise IndexError("a column is read twice")
        return TablePreprocessing(columns, missing, identifiers, left_out)
    if description["kind"] != "array":
        raise KeyError("kind")
    mean, scale = (tuple(float(value) for value in description[name]) for name in ("mean", "scale"))
    shape = tuple(int(size) for size in description["shape"])
    kept = None if description["kept"] is None else tuple(int(index) for index in description["kept"])
    widths = {len(mean), len(scale), shape[0] if kept is None else len(kept)}
    if len(widths) != 1 or (kept is not None and not all(0 <= index < shape[0] for index in kept)):
        raise IndexError("means and scales are not those of the columns")
    for pair in zip(mean, scale, strict=True):
        check_moments(*pair)
    named = tuple(str(name) for name in description.get("columns", ()))
    if named and len(named) != shape[0]:
        raise IndexError("there are other names than columns")
    return ArrayPreprocessing(shape, mean, scale, kept, missing, identifiers, left_out, named)


def _column_from_json(column: Mapping[str, Any]) -> Number | Category:
    name = str(column["name"])
    if column["kind"] == "number":
        number = Number(name, float(column["mean"]), float(column["scale"]))
        check_moments(number.mean, number.scale)
        return number
    if column["kind"] != "category":
        raise KeyError(f"there are no columns of kind {column['kind']!r}")
    values, shares = tuple(str(value) for value in column["values"]), tuple(float(share) for share in column["shares"])
    if len(values) != len(shares) or len(set(values)) < len(values):
        raise IndexError("values and shares differ in number")
    return Category(name, values, shares, bool(column["boolean"]), bool(column.get("number", False)))

"""Columns of real tables, regenerated from their statistics, since the data cannot be redistributed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pollux.data.arrow import kind_of
from pollux.data.encoding import Date, Number, TableEncoding
from pollux.data.spellings import read_times

FILE = Path(__file__).with_name("real_tables.json")
TABLES: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}
"""By name: source, rows, and for each column its name, its statistics and its expected encoding."""


def evidence_of(column_values: Any, column: Any) -> dict[str, Any]:
    """Return statistics of an Arrow column, without its values; ``column`` is its encoding, if it has one."""
    kind, there = kind_of(column_values.type), column_values.drop_null()
    found: dict[str, Any] = {"kind": kind, "missing": len(column_values) - len(there)}
    if kind == "time" or isinstance(column, Date):
        times = read_times(column_values, getattr(column, "form", ""))
        days = times[~np.isnan(times)].astype("datetime64[s]").astype("datetime64[D]")
        months = days.astype("datetime64[M]")
        found |= {"form": getattr(column, "form", ""), "low": str(days.min()), "high": str(days.max())}
        found["monthly"] = bool((days == months.astype("datetime64[D]")).all())
        found["months"] = sorted({int(month) % 12 for month in months.astype(int)})
    elif isinstance(column, Number) and column.decimal:
        found |= {"decimal": column.decimal, "unit": column.unit}
    elif kind in ("text", "boolean"):
        counts = sorted((row["counts"] for row in pc.value_counts(there).to_pylist()), reverse=True)
        found |= {"counts": counts} if len(counts) <= 250 else {"distinct": len(counts)}
        if kind == "text":
            found["digits"] = bool(pc.all(pc.match_substring_regex(there, r"\d")).as_py())
    elif kind == "integer":
        numbers = there.to_numpy()
        steps = np.diff(numbers)
        found |= {"low": int(numbers.min()), "high": int(numbers.max()), "distinct": len(set(numbers.tolist()))}
        found["ones"] = round(float((steps == 1).mean()), 3) if len(steps) else 0
    elif kind == "number":
        values = set(there.to_pylist())
        # The number of distinct values, if all are whole numbers.
        found |= {"constant": len(values) < 2, "whole": len(values) if all(map(float.is_integer, values)) else 0}
    return found


def column_of(evidence: dict[str, Any], rows: int) -> Any:
    """Return an Arrow column with the same statistics."""
    random = np.random.default_rng(0)
    kind, n = evidence["kind"], rows - evidence["missing"]
    values: list[Any]
    if not n:
        return pa.nulls(rows)
    if "form" in evidence:
        first, last = (np.datetime64(evidence[end]) for end in ("low", "high"))
        days = first + ((last - first).astype(int) * np.linspace(0, 1, n)).astype("timedelta64[D]")
        every = np.arange(first, last + np.timedelta64(1, "D"))
        every = every[np.isin(every.astype("datetime64[M]").astype(int) % 12, evidence["months"])]
        if evidence["monthly"]:
            every = every[every == every.astype("datetime64[M]").astype("datetime64[D]")]
        days = every[np.linspace(0, len(every) - 1, n).astype(int)]
        spelled = {
            "day.month.year": "%d-%m-%Y",
            "month/day/year": "%m/%d/%Y",
            "year-month": "%Y-%m",
            "month day year": "%b %d %Y",
            "month year": "%b-%Y",
        }
        form = evidence["form"]
        if kind == "integer" and form == "seconds":
            values = days.astype("datetime64[s]").astype(int).tolist()
        else:
            values = [day.strftime(spelled[form]) for day in days.tolist()] if form else days.tolist()
    elif "decimal" in evidence:
        written = [f"{value:,.2f}" for value in random.normal(5e4, 1e4, size=n)]
        if evidence["decimal"] == ",":
            written = [value.translate(str.maketrans(",.", ".,")) for value in written]
        values = [f"{evidence['unit']}{value}" for value in written]
    elif kind in ("text", "boolean"):
        counts = evidence.get("counts") or [n - evidence["distinct"] + 1, *[1] * (evidence["distinct"] - 1)]
        numbers = np.repeat(np.arange(len(counts)), counts)
        random.shuffle(numbers)
        values = [bool(value) if kind == "boolean" else f"word {chr(97 + value % 26)}{value}" for value in numbers]
        if kind == "text" and not evidence["digits"]:
            letters = str.maketrans("0123456789", "klmnopqrst")
            values = [value.translate(letters) for value in values]
    elif kind == "integer":
        low, high, distinct = evidence["low"], evidence["high"], evidence["distinct"]
        if evidence["ones"] == 1:
            values = list(range(low, low + n))
        elif evidence["ones"] > 0.9:
            values = [low + index % distinct for index in range(n)]
        else:
            chosen = low + np.unique(np.linspace(0, high - low, distinct).astype(int))
            values = random.permutation(np.resize(chosen, n)).tolist()
            if evidence["ones"] == 0 and distinct == n:
                values = sorted(values, reverse=True)
    else:
        values = [0.5] * n if evidence.get("constant") else random.normal(size=n).tolist()
        if evidence.get("whole"):
            values = random.permutation(np.resize(np.arange(float(evidence["whole"])), n)).tolist()
    places = np.sort(random.permutation(rows)[:n])
    whole: list[Any] = [None] * rows
    for place, value in zip(places.tolist(), values, strict=True):
        whole[place] = value
    return pa.array(whole)


def describe(table: Any, plan: TableEncoding, source: str) -> dict[str, Any]:
    """Return what is stored of a table."""
    read = {column.name: column for column in plan.columns}
    columns = [
        [each.name, evidence_of(table.column(each.name), read.get(each.name)), each.kind, each.used]
        for each in plan.decisions
    ]
    return {"from": source, "rows": table.num_rows, "columns": columns}

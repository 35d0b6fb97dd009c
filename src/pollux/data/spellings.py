"""Numbers and times in common notations: "$42,000", "1.234,56", "45 %", 31.12.2012, Dec 31 2012 5:30 pm."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.arrow import CODE, as_numbers, as_text, kind_of, plain, pyarrow_library

DECIMALS = (".", ",")
"""Possible decimal separators; the other one then separates thousands."""

_CURRENCY = r"US\$|A\$|C\$|[$€£¥₹₩₽₺₴₫฿₪¢]|USD|EUR|GBP|CHF|JPY|CNY|INR|CAD|AUD|SEK|NOK|DKK|PLN|BRL|kr\.?|Rs\.?|zł"
_PERCENT = ("%", "‰")
_LONGEST_UNIT = 12

DAY = 86_400.0
YEAR = 365.2425 * DAY
CYCLES = {"season": YEAR, "weekday": 7 * DAY, "time of day": DAY}
"""Lengths of cycles, in seconds. The years of the calendar differ from the mean one by a day at most."""

_TIME = (
    r"(?:(?:[T ]|, ?)(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2}(?:\.\d+)?))?\s*(?P<p>[AaPp]\.?[Mm]\.?)?"
    r"\s*(?P<z>Z|UTC|GMT|[+-]\d{2}:?\d{2})?)?"
)
_YEAR = r"(?P<y>\d{4}|\d{2})"
_DAY_MONTH = r"(?P<{}>\d{{1,2}})[-/. ](?P<{}>\d{{1,2}})[-/. ]"
DATES = {
    "year-month-day": r"(?P<y>\d{4})[-/. ](?P<m>\d{1,2})[-/. ](?P<d>\d{1,2})" + _TIME,
    "month/day/year": _DAY_MONTH.format("m", "d") + _YEAR + _TIME,
    "day.month.year": _DAY_MONTH.format("d", "m") + _YEAR + _TIME,
    "day month year": r"(?:[A-Za-z]{3,9},? )?(?P<d>\d{1,2})(?:st|nd|rd|th)?[-/. ](?P<m>[A-Za-z]{3,9})\.?,?[-/. ]"
    + _YEAR
    + _TIME,
    "month day year": r"(?:[A-Za-z]{3,9},? )?(?P<m>[A-Za-z]{3,9})\.? (?P<d>\d{1,2})(?:st|nd|rd|th)?,? "
    + r"(?P<y>\d{4})"
    + _TIME,
    "year-month": r"(?P<y>\d{4})[-/](?P<m>\d{2})",
    "month year": r"(?P<m>[A-Za-z]{3,9})\.?[- ](?P<y>\d{4})",
    "yearmonthday": r"(?P<y>\d{4})(?P<m>\d{2})(?P<d>\d{2})",
    "time": r"(?P<H>\d{1,2}):(?P<M>\d{2})(?::(?P<S>\d{2}(?:\.\d+)?))?\s*(?P<p>[AaPp]\.?[Mm]\.?)?",
}
"""Patterns of dates in text, in order of preference. Group names are those of the parts."""
EXAMPLES = {
    "year-month-day": "1887-05-12",
    "month/day/year": "05/12/1887",
    "day.month.year": "12.05.1887",
    "day month year": "12 May 1887",
    "month day year": "May 12, 1887",
    "year-month": "1887-05",
    "month year": "May 1887",
    "yearmonthday": "18870512",
    "time": "17:30",
}
"""The same day in each of these forms, or a time of day."""
TRUTHS = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
"""Spellings of true and false in text, in any case."""
STORED, SECONDS, MILLISECONDS, YEARS = "", "seconds", "milliseconds", "years"
"""Forms of dates that are not text: a type for them, numbers since the start of 1970, or years."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


def written_numbers(values: Any, decimal: str) -> tuple[NDArray[np.float64], set[str]]:
    """Parse an Arrow column of text as numbers (n,), NaN if there is none; and the set of their units, "" for none.

    Thousands may be separated, a currency may stand before or after, a unit after a space, and brackets mean a negative
    number, as in accounting. Percentages are not divided by 100: "45 %" is 45.
    """
    pa = pyarrow_library()
    pc = pa.compute
    parts = pc.extract_regex(_joined(values), _number_pattern(decimal))

    def part(name: str) -> Any:
        return pc.fill_null(pc.struct_field(parts, name), "")

    whole = pc.replace_substring_regex(part("whole"), r"\D", "")
    digits = pc.binary_join_element_wise(whole, ".", pc.replace_substring(part("fraction"), decimal, ""), "")
    # Checked outside the pattern: with twelve repeated letter classes it would take longer to compile than to use.
    is_long = pc.greater(pc.utf8_length(pc.utf8_ltrim_whitespace(part("after"))), _LONGEST_UNIT)
    is_absent = pc.or_(pc.equal(digits, "."), is_long)
    text = pc.if_else(is_absent, None, pc.binary_join_element_wise(digits, part("exponent"), ""))
    numbers = np.asarray(text.cast(pa.float64()), dtype=np.float64)
    signs = pc.binary_join_element_wise(part("sign"), part("inner"), part("open"), "")
    negative = np.asarray(pc.match_substring_regex(signs, r"[-−–(]"))
    beside = pc.utf8_trim_whitespace(pc.binary_join_element_wise(part("before"), part("after"), ""))
    units = set(pc.unique(pc.drop_null(pc.if_else(text.is_valid(), beside, None))).to_pylist())
    return np.where(negative, -numbers, numbers), units


def comparable_units(units: Set[str]) -> Set[str]:
    """The distinct units of a column; an omitted unit is compatible with any other, except a percent sign."""
    return units if units & set(_PERCENT) else units - {""}


def _number_pattern(decimal: str) -> str:
    between = r"[,'’ \x{a0}\x{2009}\x{202f}]" if decimal == "." else r"[.'’ \x{a0}\x{2009}\x{202f}]"
    return (
        rf"^\s*(?P<open>\()?(?P<sign>[-+−–]?)\s*(?P<before>{_CURRENCY})?\s*(?P<inner>[-−–]?)"
        rf"(?P<whole>[1-9]\d{{0,2}}(?:{between}\d{{3}})+|\d*)(?P<fraction>{re.escape(decimal)}\d+|)"
        rf"(?P<exponent>(?:[eE][-+]?\d+)?)(?P<after>\s*(?:%|‰|{_CURRENCY})|\s+\pL[\pL/²³]*|)(?:\))?\s*$"
    )


def has_codes(values: Any, pattern: str = CODE.pattern) -> bool:
    """Whether a column of text has values such as 007, which are codes and not numbers."""
    pc = pyarrow_library().compute
    return bool(pc.any(pc.match_substring_regex(values, f"^({pattern})$")).as_py())


def without_digits(values: Any) -> list[str]:
    """The different values of a column of text that have no digit, so that they are neither numbers nor times."""
    pc = pyarrow_library().compute
    values = values.drop_null()
    found: list[str] = pc.unique(values.filter(pc.invert(pc.match_substring_regex(values, r"\d")))).to_pylist()
    return found


def read_times(values: Any, form: str, name: str = "") -> NDArray[np.float64]:
    """Parse an Arrow column as times (n,), in seconds since the start of 1970; NaN if missing or in another form.

    Columns of a time type are read as such, whatever the form; times of day are those of 1970-01-01.
    """
    pa = pyarrow_library()
    values = plain(values)
    types = pa.types
    if types.is_time(values.type):
        return as_numbers(name, values.cast(pa.time64("us")).cast(pa.int64())) / 1e6
    if types.is_date(values.type) or types.is_timestamp(values.type):
        stamp = pa.timestamp("us", getattr(values.type, "tz", None))
        return as_numbers(name, values.cast(stamp, safe=False).cast(pa.int64())) / 1e6
    if kind_of(values.type) in ("integer", "number") and form in (SECONDS, MILLISECONDS, YEARS):
        numbers = as_numbers(name, values)
        if form == YEARS:
            return np.where(np.abs(numbers) < 1e5, (numbers - 1970) * YEAR, np.nan)
        return numbers / (1e3 if form == MILLISECONDS else 1.0)
    return _parsed_times(as_text(values), DATES.get(form, DATES["year-month-day"]))


def _parsed_times(text: Any, pattern: str) -> NDArray[np.float64]:
    pa = pyarrow_library()
    pc = pa.compute
    text = _joined(text)
    pattern = rf"^\s*{pattern}\s*$"
    parts = pc.extract_regex(text, pattern)
    there = set(re.findall(r"\?P<(\w+)>", pattern))

    def part(name: str) -> Any:
        found = pc.struct_field(parts, name) if name in there else pa.nulls(len(text), pa.string())
        return pc.if_else(pc.equal(found, ""), None, found)

    def numbers(name: str, instead: float) -> NDArray[np.float64]:
        found = pc.fill_null(part(name).cast(pa.float64()), instead)
        return np.asarray(found, dtype=np.float64)

    matched = np.asarray(parts.is_valid())
    year, day = numbers("y", 1970), numbers("d", 1)
    # Years of two digits are 1950 to 2049.
    year = np.where((year < 100) & ("y" in there), year + np.where(year < 50, 2000, 1900), year)
    if "m" in there and "A-Za-z" in pattern.partition("?P<m>")[2][:12]:
        names = pc.utf8_lower(pc.utf8_slice_codeunits(part("m"), 0, 3))
        found = pc.index_in(names, value_set=pa.array(_MONTHS)).cast(pa.float64())
        month = np.asarray(pc.fill_null(found, -1.0)) + 1
    else:
        month = numbers("m", 1)
    hour, minute, second = numbers("H", 0), numbers("M", 0), numbers("S", 0)
    half = np.asarray(pc.utf8_lower(pc.fill_null(part("p"), ""))).astype(str)
    has_half, is_afternoon = np.char.str_len(half) > 0, np.char.startswith(half, "p")
    good = matched & (month >= 1) & (month <= 12) & (day >= 1) & (hour < 24) & (minute < 60) & (second < 61)
    good &= ~has_half | ((hour >= 1) & (hour <= 12))
    hour = np.where(has_half, hour % 12 + 12 * is_afternoon, hour)
    months = np.where(good, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    after = months + np.timedelta64(1, "M")
    good &= day <= (after.astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.float64)
    days = months.astype("datetime64[D]").astype(np.float64) + day - 1
    seconds = days * DAY + hour * 3600 + minute * 60 + second
    zone = part("z")
    if zone.null_count < len(zone):
        offsets = pc.replace_substring(pc.if_else(pc.match_substring_regex(zone, r"\d"), zone, None), ":", "")
        hours = np.asarray(pc.fill_null(offsets.cast(pa.float64()), 0.0))
        seconds -= np.sign(hours) * ((np.abs(hours) // 100) * 3600 + (np.abs(hours) % 100) * 60)
    return np.where(good, seconds, np.nan)


def _joined(values: Any) -> Any:
    """An Arrow column as one array, since some functions do not accept chunks."""
    pa = pyarrow_library()
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values

"""Formatting of numbers, shares and dates as text."""

from __future__ import annotations

import datetime
import math
import re

from pollux.data.encoding import Feature

_YEARS = re.compile(r"(^|[\W_])(year|yr|jahr|ann[eé]e|a[nñ]o|born|founded|since)s?([\W_]|$)|[a-z]Year$", re.IGNORECASE)


def number(value: float, extent: float | None = None) -> str:
    """Three significant digits and a true minus sign; whole numbers up to a million in full.

    With an extent, the number of digits is such that values within that range can be distinguished.
    """
    if not math.isfinite(value):
        return "–"
    if extent is not None and 0 < extent < math.inf and abs(value) < 1e-6 * extent:
        # A rounding error of zero.
        value = 0.0
    size = abs(value)
    if extent is not None and 1e-3 <= extent < 1e6 and size < 1e6:
        written = f"{value:,.{max(0, 2 - math.floor(math.log10(extent)))}f}"
        written = written.rstrip("0").rstrip(".") if "." in written else written
    elif size == 0:
        written = "0"
    elif 1e-3 <= size < 1e6:
        written = f"{value:,.0f}" if size >= 99.95 else f"{value:.3g}"
    elif 1e6 <= size < 1e15:
        unit, power = next((unit, power) for unit, power in _LARGE.items() if size >= 0.9995 * power)
        written = f"{value / power:.3g} {unit}"
    else:
        mantissa, exponent = f"{value:.2e}".split("e")
        written = f"{float(mantissa):g}e{int(exponent)}"
    return written.replace("-", "−")


_LARGE = {"trillion": 1e12, "billion": 1e9, "million": 1e6}


def percent(share: float, decimals: int = 0) -> str:
    """0.123 → '12%'; only exactly 0 and 1 read as 0% and 100%."""
    if not math.isfinite(share):
        return "–"
    # Means of zeros and ones may differ from 0 and 1 by a rounding error.
    share = round(share, 12) + 0.0
    if share in (0, 1):
        return f"{100 * share:.0f}%"
    least, shown = 10.0**-decimals, 100 * share
    if 0 < shown < least / 2:
        return f"<{least:g}%"
    if 100 - least / 2 < shown < 100:
        return f">{100 - least:g}%"
    return f"{shown:.{decimals}f}%"


def as_date(years: float) -> str:
    """2019.5 → '2019-07-02'; years have the average length of the calendar, as in the encoding of dates."""
    try:
        day = datetime.datetime(1970, 1, 1) + datetime.timedelta(days=(years - 1970) * 365.2425)
    except (OverflowError, ValueError):
        return number(years)
    return day.date().isoformat()


def write_value(value: float, feature: Feature, extent: float | None = None) -> str:
    """A value of a feature as text: a date, a year without a comma, or a number rounded to the extent."""
    if feature.is_date:
        return as_date(value) if math.isfinite(value) else "–"
    if 1000 <= abs(value) < 3000 and counts_years(feature):
        return f"{value:.0f}"
    return number(value, extent)


def counts_years(feature: Feature) -> bool:
    """Whether numbers of a feature are years, judged by its name."""
    return _YEARS.search(feature.name) is not None

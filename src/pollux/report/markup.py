"""Text and numbers as HTML: everything that comes from the data passes through here."""

from __future__ import annotations

import html
import json
import math
import re

# Control characters have no place in HTML; a lone half of a surrogate pair cannot be written as UTF-8.
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
IN_A_SCRIPT = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def plain(value: object) -> str:
    """Text that can be written, not yet escaped."""
    return UNWRITABLE.sub("\ufffd", str(value))


def shortened(value: object, most: int) -> str:
    """At most so many characters, the last of them an ellipsis where something was cut off."""
    whole = plain(value)
    return whole if len(whole) <= most else whole[: most - 1].rstrip() + "…"


def escaped(value: object) -> str:
    """Text for between tags or between quotes."""
    return html.escape(plain(value), quote=True)


def isolated(value: object, most: int = 10_000) -> str:
    """Text of the data, whose direction of writing stays its own; the whole of it is its title where it is cut."""
    short = shortened(value, most)
    title = f' title="{escaped(value)}"' if short != plain(value) else ""
    return f"<bdi{title}>{escaped(short)}</bdi>"


def script_data(value: object) -> str:
    """JSON that cannot end the script element it stands in, and that can be written."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return UNWRITABLE.sub("\ufffd", written).translate(IN_A_SCRIPT)


def count(number_of: float) -> str:
    """1797 → '1,797'."""
    return f"{int(number_of):,}"


def counted(number_of: int, noun: str) -> str:
    """(1, 'sample') → '1 sample'; (1797, 'sample') → '1,797 samples'."""
    return f"{count(number_of)} {noun}{'' if number_of == 1 else 's'}"


def number(value: float) -> str:
    """Three significant digits and a true minus sign; whole numbers up to a million in full."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size == 0:
        return "0"
    if 1e-3 <= size < 1e6:
        written = f"{value:,.0f}" if size >= 99.95 else f"{value:.3g}"
    else:
        mantissa, exponent = f"{value:.2e}".split("e")
        written = f"{float(mantissa):g}e{int(exponent)}"
    return written.replace("-", "−")


def percent(share: float, decimals: int = 0) -> str:
    """0.123 → '12%'; what is not quite nothing or everything never reads as 0% or 100%."""
    if not math.isfinite(share):
        return "–"
    # Means of zeros and ones may miss 0 and 1 by a rounding error.
    share = round(share, 12) + 0.0
    if share in (0, 1):
        return f"{100 * share:.0f}%"
    least = 10.0**-decimals
    shown = 100 * share
    if 0 < shown < least / 2:
        return f"<{least:g}%"
    if 100 - least / 2 < shown < 100:
        return f">{100 - least:g}%"
    return f"{shown:.{decimals}f}%"


def signed(value: float, decimals: int = 1) -> str:
    """1.234 → '+1.2', with a true minus sign."""
    return f"{value:+.{decimals}f}".replace("-", "−")

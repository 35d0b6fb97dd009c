"""How values are written into HTML: the templates' environment and its filters for text, numbers and outlines."""

from __future__ import annotations

import functools
import json
import math
import re
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

# Control characters have no place in HTML; a lone half of a surrogate pair cannot be written as UTF-8.
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
IN_A_SCRIPT = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


@functools.cache
def environment(package: str = "pollux.report") -> Environment:
    """The environment of the templates in ``package/templates``: whatever they print is cleaned and escaped."""
    made = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        plain=plain,
        shortened=shortened,
        script_data=script_data,
        integer=integer,
        counted=counted,
        number=number,
        percent=percent,
        signed=signed,
        score=score,
        coordinate=coordinate,
        steps=steps,
    )
    made.globals.update(asset=asset, made_by=made_by)
    return made


def _clean(value: object) -> object:
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def asset(name: str) -> Markup:
    """A style sheet or a script of the package; it is part of the page as it stands."""
    return Markup((files("pollux.report") / "assets" / name).read_text(encoding="utf-8"))


def made_by() -> str:
    """'Written by Pollux 0.1.0'; without a number where the package was not installed."""
    try:
        return f"Written by Pollux {version('pollux')}"
    except PackageNotFoundError:
        return "Written by Pollux"


def plain(value: object) -> str:
    """Text that can be written, not yet escaped."""
    return UNWRITABLE.sub("\ufffd", str(value))


def shortened(value: object, most: int) -> str:
    """At most ``most`` characters, the last of them an ellipsis where something was cut off."""
    whole = plain(value)
    return whole if len(whole) <= most else whole[: most - 1].rstrip() + "…"


def script_data(value: object) -> Markup:
    """JSON that cannot end the script element it stands in, and that can be written."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(UNWRITABLE.sub("\ufffd", written).translate(IN_A_SCRIPT))


def integer(value: float) -> str:
    """1797 → '1,797'."""
    return f"{int(value):,}"


def counted(value: int, noun: str) -> str:
    """(1, 'sample') → '1 sample'; (1797, 'sample') → '1,797 samples'."""
    return f"{integer(value)} {noun}{'' if value == 1 else 's'}"


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


def level(value: float, extent: float) -> str:
    """A number to as many digits as matter in a range of this extent."""
    if not 1e-3 <= extent < 1e6 or abs(value) >= 1e6:
        return number(value)
    return f"{value:,.{max(0, 2 - math.floor(math.log10(extent)))}f}".replace("-", "−")


def percent(share: float, decimals: int = 0) -> str:
    """0.123 → '12%'; only exactly 0 and 1 read as 0% and 100%."""
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


def score(value: float) -> str:
    """Three decimals and a true minus sign."""
    return f"{value:.3f}".replace("-", "−")


def coordinate(value: float) -> str:
    """A length in a drawing, to a tenth; 0 where it is not known."""
    return "0" if math.isnan(value) else f"{value:.1f}".removesuffix(".0")


def steps(shares: NDArray[np.floating], width: float, height: float, highest: float) -> str:
    """The outline of a histogram (B,) as an SVG path. Its base and its empty bins lie below the edge of the drawing."""
    wide, below = width / len(shares), coordinate(height + 3)
    tops = [coordinate(height * (1 - float(share) / highest)) if share > 0 else below for share in shares]
    along = "".join(f"V{top}H{coordinate((at + 1) * wide)}" for at, top in enumerate(tops))
    return f"M0 {below}{along}V{below}Z"

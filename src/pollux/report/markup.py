"""Formatting of values as text, and rendering of templates."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import re
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from pollux import __version__

# Control characters are not allowed in HTML; lone surrogates cannot be encoded as UTF-8.
UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
IN_A_SCRIPT = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


@functools.cache
def environment(package: str = "pollux.report") -> Environment:
    """The environment of the templates in ``package/templates``, with autoescape."""
    made = Environment(
        loader=PackageLoader(package, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(asset=asset, version=__version__)
    made.filters["digest"] = digest
    return made


def render(name: str, content: dict[str, Any], package: str = "pollux.report") -> str:
    """Render a template of a package with its content, without characters that cannot be encoded."""
    return plain(environment(package).get_template(name).render(content))


def asset(*names: str) -> Markup:
    """Style sheets or scripts of the package, concatenated, for inclusion in the page without escaping."""
    folder = files("pollux.report") / "assets"
    return Markup("".join((folder / name).read_text(encoding="utf-8") for name in names))


def digest(text: str) -> str:
    """'sha256-…': the hash of a script or a style sheet for a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def plain(value: object) -> str:
    """Text without characters that cannot be encoded, not yet escaped."""
    return UNWRITABLE.sub("\ufffd", str(value))


def shortened(value: object, most: int) -> str:
    """At most ``most`` characters, ending in an ellipsis if the text was cut."""
    whole = plain(value)
    return whole if len(whole) <= most else whole[: most - 1].rstrip() + "…"


def script_data(value: object) -> Markup:
    """JSON that is safe inside a script element."""
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Markup(written.translate(IN_A_SCRIPT))


def integer(value: float) -> str:
    """1797 → '1,797'."""
    return f"{int(value):,}"


def decimal(value: float, form: str = ".3f") -> str:
    """A number in a form such as '+.1f', with a true minus sign."""
    return f"{value:{form}}".replace("-", "−")


def coordinate(value: float) -> str:
    """A length in a drawing, to a tenth; 0 if it is not finite."""
    return "0" if math.isnan(value) else f"{value:.1f}".removesuffix(".0")


def outline(shares: NDArray[np.floating], width: float, height: float, highest: float) -> str:
    """The outline of a histogram (B,) as an SVG path. Its base and its empty bins lie below the edge of the drawing."""
    wide, below = width / len(shares), coordinate(height + 3)
    tops = [coordinate(height * (1 - float(share) / highest)) if share > 0 else below for share in shares]
    along = "".join(f"V{top}H{coordinate((at + 1) * wide)}" for at, top in enumerate(tops))
    return f"M0 {below}{along}V{below}Z"

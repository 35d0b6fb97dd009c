"""How often something is done, as users write it: "60 s", "5 minutes", "1 epoch", "100 steps"."""

from __future__ import annotations

import re
from typing import Any

from pollux.errors import InputError

_EVERY = re.compile(r"(\d+(?:\.\d+)?)\s*(s|seconds?|m|minutes?|h|hours?|epochs?|steps?)")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_every(every: Any) -> tuple[float, str]:
    """(60, "second") from "60 s"; also "5 minutes", "1 epoch", "100 steps"."""
    match = _EVERY.fullmatch(every.strip()) if isinstance(every, str) else None
    if match is None:
        raise InputError(
            f"Checkpoints are written every '60 s', '5 minutes', '1 epoch', '100 steps' or the like; not {every!r}."
        )
    count, unit = float(match[1]), match[2]
    if unit.startswith(("epoch", "step")):
        if count < 1 or count % 1:
            raise InputError(f"Checkpoints are written every whole number of epochs or steps, not {every!r}.")
        return count, unit.removesuffix("s")
    return count * _SECONDS[unit[0]], "second"

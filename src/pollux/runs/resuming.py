"""``pollux fit --resume``: go on with a training that has not ended, or prolong one that has."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from pollux.errors import InputError
from pollux.runs import folder
from pollux.runs.fitting import Manner, Outcome, carry_out, processes


def resume(
    run: str | Path,
    *,
    epochs: int | None = None,
    show_progress: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome | None:
    """Train the model of a run further, up to its epochs or those given, and write its folder anew.

    It goes on from the last checkpoint as if nothing had happened in between.

    Parameters
    ----------
    run : path
        The folder of the run.
    epochs : int, optional
        Epochs in all, those already done included; the run's own by default.
    show_progress : bool
        Whether to show a live line on standard error.
    tell : callable
        Called with what the user is told before training.
    """
    run = Path(run)
    settings = folder.settings_to_go_on(run)
    if settings is None:
        raise InputError(f"{run} has no {folder.SETTINGS}: pass the folder of a run.")
    if os.environ.get("RANK", "0") == "0":
        folder.check_idle(run)
    settings = replace(settings, epochs=settings.epochs if epochs is None else epochs)
    summary = folder.summary_of(run)
    if not (run / folder.UNFINISHED).is_dir():
        done = summary.get("epochs", 0)
        if done >= settings.epochs and not summary.get("interrupted"):
            raise InputError(f"The run has had its {done} epochs: ask for more of them (--epochs).")
    with processes(settings.device) as ranks:
        if ranks is not None and ranks.rank:
            return carry_out(settings, nullcontext(None), ranks, Manner())
        before = summary.get("resumed_after", [])
        return carry_out(settings, folder.taken_up(run), ranks, Manner(show_progress, tell), before)

"""``pollux fit --resume``: go on with a training that has not ended, or prolong one that has."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from pollux.app.runs import folder
from pollux.app.runs.fitting import Manner, Outcome, carry_out, processes
from pollux.app.runs.settings import Settings
from pollux.errors import InputError


def resume(
    run: str | Path,
    *,
    epochs: int | str | None = None,
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
    if epochs is not None and epochs != settings.epochs:
        _check_can_change(settings, epochs, run)
        settings = replace(settings, epochs=epochs)
    summary = folder.summary_of(run)
    if not (run / folder.UNFINISHED).is_dir():
        done = summary.get("epochs", 0)
        # How many were left to us is known once it has ended.
        asked = done if settings.epochs == "auto" else int(settings.epochs)
        if done >= asked and not summary.get("interrupted"):
            can_have_more = settings.schedule == "constant"
            more = "ask for more of them (--epochs)" if can_have_more else "its learning rate has fallen to zero"
            raise InputError(f"The run has had its {done} epochs: {more}.")
    with processes(settings.device) as ranks:
        if ranks is not None and ranks.rank:
            return carry_out(settings, nullcontext(None), ranks, Manner())
        before = summary.get("resumed_after", [])
        return carry_out(settings, folder.taken_up(run), ranks, Manner(show_progress, tell), before)


def _check_can_change(settings: Settings, epochs: int | str, run: Path) -> None:
    """Raise an InputError where a run cannot go on for another number of epochs than its own."""
    if epochs == "auto":
        raise InputError("A run goes on for a number of epochs that is given: --epochs N, those already done included.")
    if settings.schedule != "constant":
        raise InputError(
            f"The learning rate of the run falls to zero over its own epochs (--schedule {settings.schedule}), so it "
            f"cannot have others: start a new run, pollux fit --config {run / folder.SETTINGS} --epochs {epochs}."
        )
    # One or two starts have no trial.
    if settings.trial_epochs == "auto" and settings.restarts not in (1, 2):
        raise InputError(
            "The trial of the run is a quarter of its own epochs (--trial-epochs auto), so it cannot have others: "
            "start a new run that names the trial, pollux fit --config "
            f"{run / folder.SETTINGS} --epochs {epochs} --trial-epochs N."
        )

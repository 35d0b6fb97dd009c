"""``pollux fit --resume``: go on with a training that was stopped."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError, NothingLearned
from pollux.runs import folder
from pollux.runs.data import about, read
from pollux.runs.estimator import clustering_of
from pollux.runs.fitting import Clock, Outcome, Trained, conclude, heeded_interrupts, in_words
from pollux.runs.predicting import apart, load_for
from pollux.runs.settings import Settings

if TYPE_CHECKING:
    from pollux.estimators import GeminiClustering
    from pollux.training import Interruptible

FIGURES = ("objective", "clusters", "entropy")


def resume(
    run: str | Path,
    *,
    epochs: int | None = None,
    show_progress: bool = False,
    tell: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Train the model of a run further, up to its epochs or those given, and write its folder anew.

    It goes on from the weights; the optimiser begins afresh, and so does the order of the rows.

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
    clock = Clock()
    settings = folder.settings_of(run)
    if settings is None:
        raise InputError(f"{run} has no {folder.SETTINGS}: pass the folder of a run.")
    settings = replace(settings, epochs=settings.epochs if epochs is None else epochs)
    if settings.model == "free":
        raise InputError("A free table cannot be trained further: start a new run, pollux fit --config.")
    clustering, preprocessing = apart(load_for(run))
    done = clustering.n_iter_
    if done >= settings.epochs:
        raise InputError(f"The run has had its {done} epochs: ask for more of them (--epochs).")
    clock.lap("importing")
    data = read(settings)
    _check_unchanged(settings, clustering, len(data.numbers))
    if data.preprocessing != preprocessing:
        raise InputError(f"{settings.data} is no longer what the run was trained on: start a new one, pollux fit.")
    for line in (*about(data), f"going on after epoch {done} of {settings.epochs}"):
        tell(line)
    X = data.preprocessing.encode(data.part.rows)
    clock.lap("reading")
    before = folder.summary_of(run).get("resumed_after", [])
    clustering.max_epochs = settings.epochs
    from pollux.threads import at_most

    with heeded_interrupts() as interruptible:
        with at_most(settings.threads):
            notes = _train_further(clustering, X, settings, interruptible, show_progress)
        clock.lap("training")
        trained = Trained(interruptible.interrupted, notes, [*before, done])
        return conclude(Path(run), settings, data, X, clustering, trained, clock)


def _check_unchanged(settings: Settings, clustering: GeminiClustering, n: int) -> None:
    """Raise an InputError where the settings are no longer those that the model was trained with."""
    own, said = (each.get_params(deep=False) for each in (clustering, clustering_of(settings, n)))
    decide = ("n_clusters", "model", "hidden", "objective", "geometry", "batch_size", "learning_rate", "penalties")
    changed = [name for name in (*decide, "random_state") if (own[name] or None) != (said[name] or None)]
    if changed:
        what = ", ".join(changed)
        raise InputError(f"{folder.SETTINGS} was changed since the model was trained ({what}): start a new run.")


def _train_further(
    clustering: GeminiClustering,
    X: NDArray[np.float32],
    settings: Settings,
    interruptible: Interruptible,
    show_progress: bool,
) -> list[str]:
    """Epoch by epoch; one that Ctrl-C breaks off leaves the clustering as it was before it."""
    import torch

    from pollux.fitting import CollapseWarning
    from pollux.training import Epoch, Patience, ProgressBar

    first, patience = clustering.n_iter_, Patience(clustering.tol, settings.patience or None)
    with ExitStack() as stack:
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        bar = stack.enter_context(ProgressBar()) if show_progress else None
        try:
            with interruptible:
                for number in range(first + 1, settings.epochs + 1):
                    clustering.partial_fit(X)
                    objective, clusters, entropy = (clustering.history_[name][-1] for name in FIGURES)
                    if bar is not None:
                        bar(Epoch(number, settings.epochs, objective, int(clusters), entropy))
                    if patience.ends(torch.tensor([objective])):
                        break
        except (ValueError, TypeError) as error:
            raise InputError(str(error)) from error
    if clustering.n_iter_ == first:
        raise NothingLearned
    # Of a collapse that has passed there is nothing to say.
    told = [warning for warning in caught if warning.category is not CollapseWarning or clustering.n_clusters_ == 1]
    return in_words(told)

"""``pollux fit --resume``: go on with a training that was stopped."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pollux.errors import InputError
from pollux.runs import folder
from pollux.runs.fit import Outcome, Trained, about, conclude, in_words, read
from pollux.runs.predict import load_for

if TYPE_CHECKING:
    from pollux.estimators import GeminiClustering


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
    start = perf_counter()
    settings = folder.settings_of(run)
    if settings is None:
        raise InputError(f"{run} has no {folder.SETTINGS}: pass the folder of a run.")
    settings = replace(settings, epochs=settings.epochs if epochs is None else epochs)
    if settings.model == "free":
        raise InputError("A free table cannot be trained further: start a new run, pollux fit --config.")
    clustering = load_for(run)
    done = clustering.n_iter_
    if done >= settings.epochs:
        raise InputError(f"The run has had its {done} epochs: ask for more of them (--epochs).")
    data = read(settings)
    if data.preprocessing != clustering.preprocessing_:
        raise InputError(f"{settings.data} is no longer what the run was trained on: start a new one, pollux fit.")
    for line in (*about(data), f"going on after epoch {done} of {settings.epochs}"):
        tell(line)
    X = data.preprocessing.encode(data.part.rows)
    clustering.preprocessing_, clustering.max_epochs = None, settings.epochs
    before = perf_counter()
    trained = _train_further(clustering, X, settings.epochs, show_progress)
    seconds = {"reading": before - start, "training": perf_counter() - before}
    return conclude(Path(run), settings, data, X, clustering, trained, seconds)


def _train_further(clustering: GeminiClustering, X: NDArray[np.float32], epochs: int, show_progress: bool) -> Trained:
    """Epoch by epoch; one that Ctrl-C breaks off leaves the clustering as it was before it."""
    from pollux.training import Epoch, ProgressBar

    first = clustering.n_iter_
    with ExitStack() as stack:
        caught = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        bar = stack.enter_context(ProgressBar()) if show_progress else None
        try:
            for number in range(first + 1, epochs + 1):
                clustering.partial_fit(X)
                if bar is not None:
                    history = clustering.history_
                    figures = (history[name][-1] for name in ("objective", "clusters", "entropy"))
                    objective, clusters, entropy = figures
                    bar(Epoch(number, epochs, objective, int(clusters), entropy))
        except KeyboardInterrupt:
            if clustering.n_iter_ == first:
                raise
            return Trained(True, in_words(caught))
        except (ValueError, TypeError) as error:
            raise InputError(str(error)) from error
        return Trained(False, in_words(caught))

"""Callbacks of scikit-learn, beside ours."""

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from blobs import blobs
from pollux import GeminiClustering

sklearn_callback = pytest.importorskip("sklearn.callback")


class Log:
    """What is called; the second epoch is the last where it is told so."""

    def __init__(self, stops: bool = False) -> None:
        self.stops, self.seen = stops, list[tuple[Any, ...]]()

    def setup(self, estimator: Any, context: Any) -> None:
        self.seen.append(("setup",))

    def teardown(self, estimator: Any, context: Any) -> None:
        self.seen.append(("teardown",))

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.seen.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(self, estimator: Any, context: Any, *, X: Any = None, fitted_estimator: Any = None) -> bool:
        self.seen.append(("end", context.task_name, context.task_id))
        if context.task_name == "fit":
            np.testing.assert_array_equal(fitted_estimator.predict(X), estimator.labels_)
        return self.stops and context.task_id == 1


def linear() -> GeminiClustering:
    return GeminiClustering(3, model="linear", objective="mmd_ova", init="kmeans", n_init=1, max_epochs=3)


def test_each_epoch_is_a_task_of_the_fit() -> None:
    log, ours = Log(), list[int]()
    clustering = linear().set_params(callbacks=[lambda epoch: ours.append(epoch.number)]).set_callbacks(log)
    clustering.fit(blobs()[0])
    epochs = [(kind, "epoch", number) for number in range(3) for kind in ("begin", "end")]
    assert log.seen == [("setup",), ("begin", "fit", 0), *epochs, ("end", "fit", 0), ("teardown",)]
    assert len(ours) == 3
    assert clustering.set_callbacks().fit(blobs()[0]).n_iter_ == 3
    assert log.seen[-1] == ("teardown",)


def test_a_callback_ends_the_training_and_is_told_where_it_fails() -> None:
    log = Log(stops=True)
    assert linear().set_callbacks(log).fit(blobs()[0]).n_iter_ == 2
    failing = linear().set_callbacks(log := Log())
    with pytest.raises(ValueError, match=r"NaN|infinite|infinity"):
        failing.fit(np.full((9, 2), np.inf))
    assert log.seen[-1] == ("teardown",)


def test_callbacks_go_with_clones_and_into_pipelines() -> None:
    log = Log()
    clone(linear().set_callbacks(log)).fit(blobs()[0])
    assert log.seen[-1] == ("teardown",)
    pipeline = make_pipeline(StandardScaler(), linear()).set_callbacks(
        sklearn_callback.ProgressBar(max_propagation_depth=None)
    )
    assert len(set(pipeline.fit_predict(blobs()[0]))) == 3

"""Discriminative clustering: any model p(y|x), trained to maximise a generalised mutual information."""

import importlib
import typing

if typing.TYPE_CHECKING:
    from pollux import (
        datasets,
        export,
        geometry,
        metrics,
        models,
        objectives,
        pretraining,
        ranks,
        report,
        streaming,
        training,
        transport,
    )
    from pollux.estimators import GeminiClustering, load
    from pollux.objectives import Divergence, Gemini, f_divergence
    from pollux.selection import Selection, select_n_clusters
    from pollux.streaming import open_stream

__all__ = [
    "Divergence",
    "Gemini",
    "GeminiClustering",
    "Selection",
    "datasets",
    "export",
    "f_divergence",
    "geometry",
    "load",
    "metrics",
    "models",
    "objectives",
    "open_stream",
    "pretraining",
    "ranks",
    "report",
    "select_n_clusters",
    "streaming",
    "training",
    "transport",
]
__version__ = "0.1.0"

# torch and scikit-learn take seconds to import: the command line answers --help, and complains, sooner than that.
_HOMES = {
    "Divergence": "pollux.objectives",
    "Gemini": "pollux.objectives",
    "GeminiClustering": "pollux.estimators",
    "Selection": "pollux.selection",
    "f_divergence": "pollux.objectives",
    "load": "pollux.estimators",
    "open_stream": "pollux.streaming",
    "select_n_clusters": "pollux.selection",
}


if not typing.TYPE_CHECKING:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name in _HOMES:
            globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        else:
            importlib.import_module(f"{__name__}.{name}")
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

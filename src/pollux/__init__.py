"""Discriminative clustering: any model p(y|x), trained to maximise a generalised mutual information."""

import importlib
import typing

if typing.TYPE_CHECKING:
    from pollux import data, geometry, io, metrics, models, objectives, ranks, report, training, transport
    from pollux.clustering import GeminiClustering, load
    from pollux.data.streams import open_stream
    from pollux.embedding import embed, name_clusters
    from pollux.inspection.hierarchy import Hierarchy
    from pollux.inspection.structure import Structure
    from pollux.objectives import Divergence, Gemini, f_divergence
    from pollux.selection import FeaturePath, Selection, select_features, select_n_clusters
    from pollux.spec import MLP, KernelModel, LeNet5, ResNet18, Scaling, SoftTree, Training
    from pollux.trees import Explanation, GeminiTree, explain

__all__ = [
    "MLP",
    "Divergence",
    "Explanation",
    "FeaturePath",
    "Gemini",
    "GeminiClustering",
    "GeminiTree",
    "Hierarchy",
    "KernelModel",
    "LeNet5",
    "ResNet18",
    "Scaling",
    "Selection",
    "SoftTree",
    "Structure",
    "Training",
    "data",
    "embed",
    "explain",
    "f_divergence",
    "geometry",
    "io",
    "load",
    "metrics",
    "models",
    "name_clusters",
    "objectives",
    "open_stream",
    "ranks",
    "report",
    "select_features",
    "select_n_clusters",
    "training",
    "transport",
]
__version__ = "0.1.0"

# Imported on first access, because torch and scikit-learn take seconds to import: --help and error messages of the
# command line do not wait for them.
_HOMES = {
    "Divergence": "pollux.objectives",
    "Gemini": "pollux.objectives",
    "GeminiClustering": "pollux.clustering",
    "Explanation": "pollux.trees",
    "FeaturePath": "pollux.selection",
    "GeminiTree": "pollux.trees",
    "Hierarchy": "pollux.inspection.hierarchy",
    "embed": "pollux.embedding",
    "explain": "pollux.trees",
    "KernelModel": "pollux.spec",
    "LeNet5": "pollux.spec",
    "ResNet18": "pollux.spec",
    "MLP": "pollux.spec",
    "Scaling": "pollux.spec",
    "Selection": "pollux.selection",
    "SoftTree": "pollux.spec",
    "Structure": "pollux.inspection.structure",
    "Training": "pollux.spec",
    "f_divergence": "pollux.objectives",
    "load": "pollux.clustering",
    "name_clusters": "pollux.embedding",
    "open_stream": "pollux.data.streams",
    "select_features": "pollux.selection",
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
    return sorted([*__all__, "__all__", "__doc__", "__version__"])

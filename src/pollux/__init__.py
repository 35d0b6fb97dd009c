"""Discriminative clustering: any model p(y|x), trained to maximise a generalised mutual information."""

from pollux import geometry, metrics, models, objectives, training, transport
from pollux.estimators import GeminiClustering, load
from pollux.objectives import Divergence, Gemini, f_divergence

__all__ = [
    "Divergence",
    "Gemini",
    "GeminiClustering",
    "f_divergence",
    "geometry",
    "load",
    "metrics",
    "models",
    "objectives",
    "training",
    "transport",
]
__version__ = "0.1.0"

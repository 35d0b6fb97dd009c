"""Runs: what the command line does, as functions. A run is a folder with a model and how it came about."""

from pollux.runs.fitting import Outcome, fit
from pollux.runs.predicting import Predicted, predict
from pollux.runs.settings import Settings, from_toml

__all__ = ["Outcome", "Predicted", "Settings", "fit", "from_toml", "predict"]

"""Runs: what the command line does, as functions. A run is a folder with a model and how it came about."""

from pollux.app.runs.fitting import Outcome, fit
from pollux.app.runs.predicting import Predicted, predict
from pollux.app.runs.settings import Settings, from_toml

__all__ = ["Outcome", "Predicted", "Settings", "fit", "from_toml", "predict"]

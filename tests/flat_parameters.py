"""Clusterings from parameters by their own names, those of groups too: ``patience=3`` is ``training__patience=3``."""

from typing import Any

from pollux import MLP, GeminiClustering
from pollux.spec import nested_name

PLAIN: dict[str, Any] = {"model": "mlp", "objective": "mmd_ova", "preprocessing": None, "n_init": 1, "max_epochs": 200}
"""A composed method of one restart, on samples as they are."""


def make_clustering(n_clusters: int = 10, **parameters: Any) -> GeminiClustering:
    return GeminiClustering(n_clusters).set_params(**nested({**PLAIN, **parameters}))


def nested(parameters: dict[str, Any]) -> dict[str, Any]:
    """The same parameters as an estimator names them; layers of a perceptron only where it is the model."""
    model = parameters.get("model", "mlp")
    left_out = [] if isinstance(model, str) and model == "mlp" else MLP().get_params()
    return {nested_name(name): value for name, value in parameters.items() if name not in left_out}

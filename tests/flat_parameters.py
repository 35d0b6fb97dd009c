"""Clusterings from flat parameter names, including those of groups: ``patience=3`` is ``training__patience=3``."""

from typing import Any

from pollux import MLP, GeminiClustering
from pollux.spec import nested_name

PLAIN: dict[str, Any] = {"model": "mlp", "objective": "mmd_ova", "preprocessing": None, "n_init": 1, "max_epochs": 200}
"""A composed method with one restart, on unscaled samples."""


def make_clustering(n_clusters: int = 10, **parameters: Any) -> GeminiClustering:
    return GeminiClustering(n_clusters).set_params(**nested({**PLAIN, **parameters}))


def nested(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters under their nested names; layers of a perceptron only if it is the model."""
    model = parameters.get("model", "mlp")
    left_out = [] if isinstance(model, str) and model == "mlp" else MLP().get_params()
    return {nested_name(name): value for name, value in parameters.items() if name not in left_out}

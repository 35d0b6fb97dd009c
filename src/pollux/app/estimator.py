"""From the settings of a run to its estimator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pollux import names
from pollux.app.settings import NAMES, Settings
from pollux.errors import InputError, did_you_mean, option

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering

VISION = ("lenet5", "resnet18")
"""Models that see images as they are."""


def make_estimator(settings: Settings, n: int) -> GeminiClustering:
    """The estimator for n rows, with its parameters checked."""
    from pollux.clustering import GeminiClustering
    from pollux.spec import MLP, Spec, flatten_params, nested_name

    if n < settings.n_clusters:
        raise InputError(
            f"There are {n} rows for {settings.n_clusters} clusters: ask for at most {n} ({option('n_clusters')})."
        )
    if settings.n_components and settings.model in VISION:
        raise InputError(
            f"{settings.model} reads images, and principal components are not images: leave them out "
            f"({option('n_components', 0)})."
        )
    # The encoding of columns scales numbers and fills gaps, so that model files say how by column.
    left_out = {"scaling", "missing", "geometry", *([] if settings.model == "mlp" else MLP().get_params())}
    own = [name for name in flatten_params(GeminiClustering()) if name in NAMES and name not in left_out]
    parameters = {nested_name(name): settings.parameter(name) for name in own}
    clustering = GeminiClustering().set_params(**{**parameters, "n_init": settings.restarts_of(n)})
    try:
        clustering.geometry = _geometry(settings, Spec.of(clustering).objective.needs)
    except (ValueError, TypeError) as error:
        raise error if isinstance(error, InputError) else InputError(str(error)) from error
    return clustering


def check_streamable(settings: Settings) -> None:
    """Raise an InputError where something must look at all rows at once, and these are not held in memory.

    Before any row is read, because to look at all rows of a large file takes long.
    """
    from pollux.spec import Spec

    # How many rows there are decides on the number of restarts alone.
    clustering = make_estimator(settings, settings.n_clusters)
    if settings.max_samples:
        # Those that are learned from are in memory.
        return
    instead = _instead(settings, clustering)
    if instead:
        raise InputError(
            f"{settings.data} is read as it is needed, and {' and '.join(instead)} must look at all rows at once: "
            f"choose {', '.join(instead.values())}; learn from some of them ({option('max_samples', 20_000)}); or hold "
            f"the rows in memory ({option('stream', 'no')})."
        )
    # Whatever else there may be.
    Spec.of(clustering).check_streamable()


def _instead(settings: Settings, clustering: GeminiClustering) -> dict[str, str]:
    """The options that ask for all rows at once, and what can be chosen for each of them."""
    from pollux.geometry import resolve
    from pollux.objectives import PENALTIES
    from pollux.spec import resolve_objective

    found: dict[str, str] = {}
    needs = resolve_objective(clustering.objective).needs
    if needs is not None and resolve(clustering.geometry, needs).needs_all_samples:
        found[option("geometry", settings.geometry)] = option("geometry", "auto")
    if settings.init in ("kmeans", "graph"):
        found[option("init", settings.init)] = option("init", "random")
    if settings.n_components:
        found[option("n_components", settings.n_components)] = option("n_components", 0)
    for name in settings.penalties:
        if getattr(PENALTIES[name], "uses_spacing", False):
            found[option("penalties", name)] = "another penalty, such as vat"
    return found


def _geometry(settings: Settings, needs: Any) -> Any:
    """A named geometry, as "rbf", or with parameters, "rbf:gamma=0.5"."""
    from pollux.geometry import OF_ALL_SAMPLES, resolve

    name, _, rest = settings.geometry.partition(":")
    if needs is None:
        if settings.geometry != "auto":
            raise InputError(
                f"{settings.objective} compares predictions only: it needs no {option('geometry')}, so leave it out."
            )
        return "auto"
    kernels = ("auto", *names.KERNELS, *names.KERNELS_OF_ALL_SAMPLES)
    distances = ("auto", *names.DISTANCES, *names.DISTANCES_OF_ALL_SAMPLES)
    valid, others = (kernels, distances) if needs == "kernel" else (distances, kernels)
    if name not in valid:
        is_other = f" {name} is a {'distance' if needs == 'kernel' else 'kernel'}."
        hint = is_other if name in others else did_you_mean(name, valid)
        raise InputError(
            f"{settings.objective} needs a {needs}: {', '.join(valid)}; not {name!r}.{hint} "
            f"Kernels go with mmd objectives, distances with wasserstein."
        )
    parameters: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, _, text = item.partition("=")
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, int | float):
            raise InputError(f"Parameters of a geometry are numbers, as in rbf:gamma=0.5; {item!r} is not one.")
        # Where there can be several, each is given by itself.
        takes_several = isinstance(getattr(OF_ALL_SAMPLES[needs].get(name), key, None), tuple)
        parameters[key] = (*parameters.get(key, ()), value) if takes_several else value
    geometry = resolve(name, needs, **parameters)
    return geometry if parameters else name

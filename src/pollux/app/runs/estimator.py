"""From the settings of a run to its estimator."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pollux.app.runs.settings import Settings
from pollux.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering

VISION = ("lenet5", "resnet18")
"""Models that see images as they are."""


def clustering_of(settings: Settings, n: int) -> GeminiClustering:
    """The estimator of the settings, checked."""
    from pollux.clustering import GeminiClustering
    from pollux.spec import MLP, Scaling, Spec, Training

    if n < settings.clusters:
        raise InputError(f"There are {n} rows for {settings.clusters} clusters: ask for at most {n} (--clusters).")
    if settings.components and settings.model in VISION:
        raise InputError(
            f"Principal components are no images, which {settings.model} reads: leave them out (--components 0)."
        )
    norm = None if settings.norm == "none" else settings.norm
    clustering = GeminiClustering(
        settings.clusters,
        model=MLP(settings.hidden, norm=norm) if settings.model == "mlp" else settings.model,
        objective=settings.objective,
        # Scales and gaps are seen to by the preprocessing, so that model files tell them by column.
        preprocessing=Scaling(n_components=settings.components or None),
        init=settings.init,
        max_epochs=settings.epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        training=Training(
            schedule=settings.schedule,
            trial_epochs=settings.trial_epochs or None,
            patience=settings.patience or None,
            dtype=settings.dtype,
            compile=settings.compile,
        ),
        n_init=settings.starts(n),
        penalties=_penalties(settings.penalty),
        random_state=settings.seed,
        device=settings.device,
    )
    try:
        _check_names_of_parts(settings)
        clustering.geometry = _geometry(settings, Spec.of(clustering).objective.needs)
    except (ValueError, TypeError) as error:
        raise InputError(str(error)) from error
    return clustering


def check_streamable(settings: Settings) -> None:
    """Raise an InputError where something must look at all rows at once, and these are not to be held.

    Before any row is read, because to look at all rows of a large file takes long.
    """
    from pollux.spec import Spec

    # How many rows there are decides on the number of starts alone.
    clustering = clustering_of(settings, settings.clusters)
    instead = _instead(settings, clustering)
    if instead:
        raise InputError(
            f"{settings.data} is read as it is needed, and {' and '.join(instead)} must look at all rows at once: "
            f"choose {', '.join(instead.values())}; or hold the rows, where memory allows (--stream no)."
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
        found[f"--geometry {settings.geometry}"] = "--geometry auto"
    if settings.init in ("kmeans", "graph"):
        found[f"--init {settings.init}"] = "--init random"
    if settings.components:
        found[f"--components {settings.components}"] = "--components 0"
    for name in _penalties(settings.penalty):
        if getattr(PENALTIES[name], "uses_spacing", False):
            found[f"--penalty {name}"] = "another penalty, such as vat"
    return found


def _check_names_of_parts(settings: Settings) -> None:
    from pollux.models import MODELS
    from pollux.objectives import GEMINIS

    valid = {"model": tuple(MODELS), "objective": ("mi", *GEMINIS)}
    for option, names in valid.items():
        name = getattr(settings, option)
        # What is refused for a reason of its own, as chi2_ovo, is told that reason elsewhere.
        if name not in names and name != "chi2_ovo":
            alike = did_you_mean(name, names)
            raise InputError(f"Unknown {option} {name!r}.{alike} Valid names: {', '.join(names)}.")


def _penalties(texts: Sequence[str]) -> dict[Any, float]:
    """{"vat": 1.0} from "vat=1.0", or "vat" alone."""
    penalties: dict[Any, float] = {}
    for text in texts:
        name, _, weight = text.partition("=")
        try:
            penalties[name] = float(weight or 1.0)
        except ValueError as error:
            raise InputError(f"A penalty is a name and a weight, such as vat=1.0; not {text!r}.") from error
    return penalties


def _geometry(settings: Settings, needs: Any) -> Any:
    """A named geometry, as "rbf", or with parameters, "rbf:gamma=0.5"."""
    from pollux.geometry import DISTANCES, KERNELS, SPANNING, resolve

    name, _, rest = settings.geometry.partition(":")
    if needs is None:
        if settings.geometry != "auto":
            raise InputError("The objective compares predictions only: it needs no --geometry, so leave it out.")
        return "auto"
    kernels, distances = ("auto", *KERNELS, *SPANNING["kernel"]), ("auto", *DISTANCES, *SPANNING["distance"])
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
        takes_several = isinstance(getattr(SPANNING[needs].get(name), key, None), tuple)
        parameters[key] = (*parameters.get(key, ()), value) if takes_several else value
    geometry = resolve(name, needs, **parameters)
    return geometry if parameters else name

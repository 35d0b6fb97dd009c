"""Names without torch are those of the registries."""

import subprocess
import sys

import pytest

from pollux import GeminiClustering, geometry, models, names, objectives, recipes, training
from pollux.objectives import gemini
from pollux.spec import MODEL_GROUPS, flatten_params


@pytest.mark.parametrize(
    ("listed", "registry"),
    [
        (names.OBJECTIVES, (*gemini.ALIASES, *objectives.GEMINIS)),
        (names.KERNELS, geometry.KERNELS),
        (names.DISTANCES, geometry.DISTANCES),
        (names.KERNELS_OF_ALL_SAMPLES, geometry.OF_ALL_SAMPLES["kernel"]),
        (names.DISTANCES_OF_ALL_SAMPLES, geometry.OF_ALL_SAMPLES["distance"]),
        (names.MODELS, models.MODELS),
        (names.ACTIVATIONS, models.ACTIVATIONS),
        (names.NORMS, [norm or "none" for norm in models.NORMS]),
        (names.PENALTIES, objectives.PENALTIES),
        (names.OPTIMISERS, training.OPTIMISERS),
        (names.SCHEDULES, training.SCHEDULES),
        (names.RECIPES, [name.removeprefix("for_") for name in dir(GeminiClustering) if name.startswith("for_")][::-1]),
    ],
)
def test_names_are_those_of_the_registry(listed: tuple[str, ...], registry: object) -> None:
    assert listed == tuple(registry)  # type: ignore[call-overload]


def test_parameters_behind_names_are_those_of_the_registries() -> None:
    groups = {name: tuple(kind().get_params()) for name, kind in MODEL_GROUPS.items() if name != "mlp"}
    assert names.PARAMETERS["model"] == groups
    taken = {}
    for kind, named in (("kernel", geometry.KERNELS), ("distance", geometry.DISTANCES)):
        for name in (*named, *geometry.OF_ALL_SAMPLES[kind]):  # type: ignore[index]
            with pytest.raises(ValueError, match="takes") as caught:
                geometry.resolve(name, kind, nothing=1)  # type: ignore[arg-type]
            listed = str(caught.value).partition("; not")[0].partition(" takes ")[2]
            taken[name] = () if listed == "no parameters" else tuple(listed.split(", "))
    assert names.PARAMETERS["geometry"] == {name: each for name, each in taken.items() if each}


def test_defaults_of_the_estimator_are_among_the_names() -> None:
    defaults = flatten_params(GeminiClustering())
    for option, listed in {"init": names.INITS, "dtype": names.DTYPES, "scaling": names.SCALINGS}.items():
        assert defaults[option] in listed
    for recipe in (recipes.PLAIN, *recipes.RECIPES.values()):
        assert recipe["objective"] in names.OBJECTIVES
        assert set(recipe) <= GeminiClustering().get_params().keys()


def test_names_do_not_bring_torch() -> None:
    done = subprocess.run([sys.executable, "-c", "import sys, pollux.names; assert 'torch' not in sys.modules"])
    assert done.returncode == 0

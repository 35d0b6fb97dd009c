"""Names without torch are those of the registries."""

import subprocess
import sys

import pytest

from pollux import GeminiClustering, geometry, models, names, objectives, recipes, training
from pollux.objectives import gemini
from pollux.spec import flatten_params


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

"""The public names: there, documented, and no others."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import pkgutil
import re
import tomllib
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import pollux
from pollux import GeminiClustering, geometry, metrics, models, objectives, ranks, report, training, transport
from pollux.data import streams
from pollux.io import onnx as export
from pollux.lab import datasets, pretraining

MODULES = [
    *(pollux, datasets, export, geometry, metrics, models, objectives, pretraining, ranks, report, streams, training),
    transport,
]
every_module = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)

X = np.random.default_rng(0).normal(size=(12, 2))


# What users rely on


def test_what_is_listed_is_public() -> None:
    assert {name for name in dir(pollux) if not name.startswith("__")} == set(pollux.__all__)


def test_the_top_level_names_are_these() -> None:
    assert set(pollux.__all__) >= {
        "Gemini",
        "GeminiClustering",
        "Selection",
        "f_divergence",
        "load",
        "select_n_clusters",
    }
    assert set(pollux.__all__) >= {"geometry", "metrics", "models", "objectives", "report", "training", "transport"}


def test_the_objectives_have_their_names() -> None:
    names = {
        f"{divergence}_{mode}"
        for divergence in ("kl", "tv", "hellinger", "chi2", "mmd", "wasserstein")
        for mode in ("ova", "ovo")
    }
    # Between clusters the chi-square divergence is unbounded, and refused with the reason.
    assert set(objectives.GEMINIS) == names - {"chi2_ovo"}
    for name in objectives.GEMINIS:
        assert pollux.Gemini(name).name == name
    assert pollux.Gemini("mi").name == "kl_ova"
    with pytest.raises(ValueError, match="unbounded"):
        pollux.Gemini("chi2_ovo")
    assert set(objectives.PENALTIES) >= {"vat", "entropy"}


def test_an_objective_is_made_of_a_name_or_a_divergence() -> None:
    own = pollux.f_divergence(lambda t: (t - 1) ** 2)
    assert isinstance(own, pollux.Divergence)
    assert not pollux.Gemini(own).one_vs_one
    assert pollux.Gemini(own, one_vs_one=True).one_vs_one
    assert pollux.Gemini("mmd", True).name == "mmd_ovo"
    call = inspect.signature(pollux.Gemini.__call__).parameters
    assert list(call)[1:3] == ["log_p", "affinity"]
    assert call["affinity"].default is None


def test_a_geometry_is_resolved_from_a_name_a_function_or_an_object() -> None:
    for name in geometry.KERNELS:
        assert geometry.resolve(name, "kernel").kind == "kernel"
    for name in (*geometry.DISTANCES, "shortest_path"):
        assert geometry.resolve(name, "distance").kind == "distance"
    own = geometry.resolve(lambda x, y: x @ y.mT)
    assert isinstance(own, geometry.Geometry)
    assert geometry.resolve(own) is own
    assert geometry.resolve("precomputed", affinity=np.eye(3)).kind == "kernel"


def test_the_estimator_has_its_signature() -> None:
    parameters = inspect.signature(GeminiClustering).parameters
    assert next(iter(parameters)) == "n_clusters"
    assert parameters["n_clusters"].default == 10
    # All that a recipe decides on is left to it.
    assert [name for name, parameter in parameters.items() if parameter.default == "auto"] == list(parameters)[1:11]
    assert list(parameters) == [
        *("n_clusters", "model", "objective", "geometry", "preprocessing", "init", "n_init", "max_epochs"),
        *("batch_size", "learning_rate", "penalties", "training", "device", "random_state", "verbose", "callbacks"),
    ]
    assert all(
        parameter.kind is parameter.KEYWORD_ONLY for name, parameter in parameters.items() if name != "n_clusters"
    )
    fit = inspect.signature(GeminiClustering.fit).parameters
    optional = ["sample_weight", "affinity", "known", "must_link", "cannot_link", "min_size", "max_size"]
    assert list(fit) == ["self", "X", "y", *optional[:5], "hint_weight", *optional[5:]]
    assert all(fit[name].default is None for name in ("y", *optional))
    assert all(fit[name].kind is inspect.Parameter.KEYWORD_ONLY for name in (*optional, "hint_weight"))
    assert next(iter(inspect.signature(pollux.load).parameters)) == "path"


def test_the_estimator_has_its_methods_and_attributes() -> None:
    methods = "fit predict predict_proba fit_predict score transform fit_transform partial_fit save"
    assert [name for name in methods.split() if not callable(getattr(GeminiClustering, name, None))] == []
    fitted = GeminiClustering(2, model="linear", max_epochs=2, random_state=0).fit(X)
    assert fitted.labels_.shape == (12,)
    assert isinstance(fitted.n_clusters_, int)
    assert isinstance(fitted.objective_, float)
    assert isinstance(fitted.n_iter_, int)
    assert isinstance(fitted.module_, nn.Module)
    assert {name: len(values) for name, values in fitted.history_.items()} == {
        "objective": 2,
        "clusters": 2,
        "entropy": 2,
    }
    assert isinstance(fitted.score(X), float)


def test_a_model_is_a_name_or_a_function() -> None:
    assert set(models.MODELS) == {"free", "linear", "mlp", "kernel", "soft_tree", "lenet5", "resnet18"}
    for name, factory in models.MODELS.items():
        assert getattr(models, name) is factory


# Names


@every_module
def test_only_public_names_are_listed(module: types.ModuleType) -> None:
    names = module.__all__
    assert len(names) == len(set(names))
    assert not [name for name in names if name.startswith("_")]
    assert not [name for name in names if not hasattr(module, name)]


@every_module
def test_every_public_name_is_listed(module: types.ModuleType) -> None:
    def own(name: str, value: Any) -> bool:
        # A package gathers its names from its files; a single file also holds what it imports from elsewhere.
        if hasattr(module, "__path__") or getattr(value, "__module__", "") == module.__name__:
            return True
        return name.isupper() and re.search(rf"^{name}\b[^=\n]*=", inspect.getsource(module), re.MULTILINE) is not None

    public = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    defined = {name for name, value in public.items() if not isinstance(value, types.ModuleType) and own(name, value)}
    assert defined <= set(module.__all__)


def test_the_top_level_lists_no_module_that_is_an_implementation() -> None:
    listed = {name for name in pollux.__all__ if isinstance(getattr(pollux, name), types.ModuleType)}
    # The lab is there for who imports it: the library is whole without it.
    assert listed == {module.__name__.split(".")[1] for module in MODULES[1:]} - {"lab"}


def test_a_star_import_brings_the_public_names() -> None:
    namespace: dict[str, Any] = {}
    exec("from pollux import *", namespace)
    assert namespace.keys() - {"__builtins__"} == set(pollux.__all__)


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert pollux.__version__ == importlib.metadata.version("pollux")


def test_types_are_published() -> None:
    assert (Path(pollux.__file__).parent / "py.typed").is_file()


# Documentation


def public_objects() -> Iterator[tuple[str, Any]]:
    """Public functions and classes by their full names, and the methods and properties of the classes."""
    for module in MODULES:
        yield module.__name__, module
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and value.__module__.startswith("pollux"):
                yield f"{module.__name__}.{name}", value
                yield from methods(f"{module.__name__}.{name}", value)
            elif inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


def methods(prefix: str, owner: type) -> Iterator[tuple[str, Any]]:
    for name in vars(owner):
        value = getattr(owner, name)
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
            yield f"{prefix}.{name}", value


PUBLIC = dict(public_objects())


def documentation(value: Any) -> str:
    return inspect.getdoc(value) or ""


def inherited_documentation(name: str) -> str:
    """What a class further up says of the method of this full name."""
    owner, _, method = name.rpartition(".")
    parents = inspect.getmro(PUBLIC[owner]) if inspect.isclass(PUBLIC.get(owner)) else ()
    return "".join(documentation(vars(parent).get(method)) for parent in parents if method in vars(parent))


def test_everything_public_is_documented() -> None:
    missing = [name for name, value in PUBLIC.items() if not documentation(value)]
    assert [name for name in missing if not inherited_documentation(name)] == []


def test_every_module_says_what_it_is_for() -> None:
    names = [module.name for module in pkgutil.walk_packages(pollux.__path__, "pollux.")]
    assert [name for name in names if not importlib.import_module(name).__doc__] == []


def section(text: str, title: str) -> list[str]:
    """The names that a section of a docstring describes: ``a, b : int`` describes two."""
    found = re.search(rf"^{title}\n-+\n(.*?)(?=^\S[^\n]*\n-+$|\Z)", text, re.MULTILINE | re.DOTALL)
    lines = found[1].splitlines() if found else []
    described = [line.partition(":")[0] for line in lines if line and not line[0].isspace()]
    return [name.strip().lstrip("*") for names in described for name in names.split(",")]


def test_every_parameter_of_the_estimator_is_documented() -> None:
    expected = list(inspect.signature(GeminiClustering).parameters)
    assert section(documentation(GeminiClustering), "Parameters") == expected


def test_every_attribute_of_the_estimator_is_documented() -> None:
    documented = set(section(documentation(GeminiClustering), "Attributes"))
    learned = set()
    for model in ("linear", "free"):
        fitted = GeminiClustering(2, model=model, max_epochs=1, random_state=0).fit(X)
        learned |= {name for name in dir(fitted) if name.endswith("_") and not name.startswith("_")}
    # Those that scikit-learn gives to every estimator are documented there.
    assert documented == learned - {"n_features_in_", "feature_names_in_"}


DESCRIBED = {name: section(documentation(value), "Parameters") for name, value in PUBLIC.items()}


@pytest.mark.parametrize("name", [name for name, parameters in DESCRIBED.items() if parameters])
def test_documented_parameters_are_the_parameters(name: str) -> None:
    actual = [parameter for parameter in inspect.signature(PUBLIC[name]).parameters if parameter != "self"]
    assert [parameter for parameter in DESCRIBED[name] if parameter not in actual] == []
    # A function may leave what it shares with its siblings to the text of their module; a class may not.
    if inspect.isclass(PUBLIC[name]):
        assert [parameter for parameter in actual if parameter not in DESCRIBED[name]] == []


def test_a_gemini_is_a_tensor_to_be_maximised() -> None:
    text = documentation(pollux.Gemini)
    assert "maximised" in text
    assert inspect.signature(pollux.Gemini.__call__, eval_str=True).return_annotation is Tensor


def test_wheels_are_tested_beside_all_that_their_tests_read() -> None:
    root = Path(__file__).parents[1]
    wheels = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["cibuildwheel"]
    folders = [word for word in wheels["test-command"].split() if word.startswith("tests/")]
    assert folders
    tests = [path.read_text(encoding="utf-8") for folder in folders for path in (root / folder).rglob("*.py")]
    read = {name for text in tests for name in re.findall(r'parents\[2\] / "(\w+)"', text)}
    assert read <= set(wheels["test-sources"])

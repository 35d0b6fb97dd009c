"""Geometries: kernels and distances against scikit-learn, graphs against Floyd and Warshall, and every storage."""

import math
import pickle
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.metrics import pairwise
from sklearn.neighbors import NearestNeighbors
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from pollux.data.rows import Rows, as_rows
from pollux.geometry import (
    DISTANCES,
    KERNELS,
    OF_ALL_SAMPLES,
    Encoded,
    Geometry,
    Pairwise,
    Precomputed,
    ShortestPath,
    resolve,
)
from pollux.geometry.affinity import Affinity, Features, Paths
from pollux.geometry.geometry import spell
from pollux.geometry.mixtures import learn_points

Array = NDArray[np.float64]

every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


def samples(n: int, d: int, seed: int = 0, *, positive: bool = False) -> Tensor:
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x.abs() if positive else x


def matrix(affinity: Affinity) -> Tensor:
    """The matrix (n, n) that an affinity stands for."""
    if isinstance(affinity, Paths):
        return affinity.matrix()
    return affinity.values @ affinity.values.mT if isinstance(affinity, Features) else affinity


def centred(kernel: Tensor) -> Tensor:
    """The kernel of centred features: what an MMD sees of a kernel."""
    return kernel - kernel.mean(0) - kernel.mean(1, keepdim=True) + kernel.mean()


# --- Kernels and distances against scikit-learn -------------------------------------------------------------


# Reference, explicit parameters, and whether the defaults are those of scikit-learn.
KERNEL_REFERENCES: dict[str, tuple[Callable[..., Array], list[dict[str, Any]]]] = {
    "linear": (pairwise.linear_kernel, [{}]),
    "cosine": (pairwise.cosine_similarity, [{}]),
    "polynomial": (
        pairwise.polynomial_kernel,
        [{}, {"degree": 2}, {"degree": 4, "gamma": 0.3, "coef0": 0.0}, {"gamma": 2.0, "coef0": 0.5}],
    ),
    "rbf": (pairwise.rbf_kernel, [{"gamma": 0.1}, {"gamma": 2.0}]),
    "laplacian": (pairwise.laplacian_kernel, [{}, {"gamma": 0.4}]),
    "sigmoid": (pairwise.sigmoid_kernel, [{}, {"gamma": 0.2, "coef0": -1.0}]),
    "chi2": (pairwise.chi2_kernel, [{}, {"gamma": 0.5}]),
}
DISTANCE_REFERENCES: dict[str, Callable[..., Array]] = {
    "euclidean": pairwise.euclidean_distances,
    "sqeuclidean": lambda x, y: pairwise.euclidean_distances(x, y, squared=True),
    "manhattan": pairwise.manhattan_distances,
    "cosine": pairwise.cosine_distances,
}
APPROXIMATE_KERNELS = {"fourier"}


def test_every_registered_geometry_has_a_reference() -> None:
    assert set(KERNELS) == set(KERNEL_REFERENCES) | APPROXIMATE_KERNELS
    assert set(DISTANCES) == set(DISTANCE_REFERENCES)
    for registry, kind in ((KERNELS, "kernel"), (DISTANCES, "distance")):
        for name, geometry in registry.items():
            assert (geometry.name, geometry.kind) == (name, kind)


# More columns than the few that are compared one by one.
@every_dtype
@pytest.mark.parametrize("columns", [1, 3, 40])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [(name, parameters) for name, (_, choices) in KERNEL_REFERENCES.items() for parameters in choices],
    ids=str,
)
def test_kernel_is_that_of_scikit_learn(
    name: str, parameters: dict[str, Any], columns: int, dtype: torch.dtype
) -> None:
    x, y = samples(7, columns, positive=name == "chi2"), samples(5, columns, 1, positive=name == "chi2")
    kernel = KERNELS[name].with_parameters(**parameters)
    reference = KERNEL_REFERENCES[name][0]
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-12}[dtype]
    actual = kernel(x.to(dtype), y.to(dtype))
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, reference(x.numpy(), y.numpy(), **parameters), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(
        kernel(x.to(dtype)), reference(x.numpy(), x.numpy(), **parameters), rtol=tolerance, atol=tolerance
    )


@every_dtype
@pytest.mark.parametrize("columns", [1, 3, 40])
@pytest.mark.parametrize("name", DISTANCE_REFERENCES)
def test_distance_is_that_of_scikit_learn(name: str, columns: int, dtype: torch.dtype) -> None:
    x, y = samples(7, columns), samples(5, columns, 1)
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-9}[dtype]
    actual = DISTANCES[name](x.to(dtype), y.to(dtype))
    assert actual.dtype == dtype
    reference = DISTANCE_REFERENCES[name]
    np.testing.assert_allclose(actual, reference(x.numpy(), y.numpy()), rtol=tolerance, atol=tolerance)
    within = DISTANCES[name](x.to(dtype))
    points = x.numpy()
    np.testing.assert_allclose(within, reference(points, points), rtol=tolerance, atol=tolerance)
    assert bool((within.diagonal() == 0).all())
    assert bool((within >= 0).all())
    torch.testing.assert_close(within, within.mT, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("columns", [3, 40])
@pytest.mark.parametrize("name", ["euclidean", "sqeuclidean", "manhattan"])
def test_distances_far_off_centre_keep_their_digits(name: str, columns: int) -> None:
    x = samples(8, columns)
    single = (x + 1000).float()
    exact = DISTANCES[name](single.double())
    np.testing.assert_allclose(DISTANCES[name](single), exact, rtol=1e-4, atol=1e-4)


def test_zero_rows_have_cosine_distance_one_to_others_and_zero_to_themselves() -> None:
    x = torch.tensor([[0.0, 0.0], [1.0, 2.0]])
    torch.testing.assert_close(DISTANCES["cosine"](x), torch.tensor([[0.0, 1.0], [1.0, 0.0]]))
    torch.testing.assert_close(KERNELS["cosine"](x), torch.tensor([[0.0, 0.0], [0.0, 1.0]]))


def test_chi2_kernel_refuses_negative_values_and_accepts_empty_bins() -> None:
    x = torch.tensor([[0.0, 1.0], [0.0, 3.0]])
    np.testing.assert_allclose(KERNELS["chi2"](x), pairwise.chi2_kernel(x.numpy()), rtol=1e-6)
    with pytest.raises(ValueError, match="must not hold negative values"):
        KERNELS["chi2"](x - 1)


# --- Features -----------------------------------------------------------------------------------------------


EXACT_FEATURES = [
    ("linear", {}),
    ("cosine", {}),
    ("polynomial", {}),
    ("polynomial", {"degree": 1}),
    ("polynomial", {"degree": 2, "gamma": 0.7, "coef0": 3.0}),
    ("polynomial", {"degree": 4, "coef0": 0.0}),
]


def test_every_kernel_with_features_is_tested() -> None:
    with_features = {name for name, kernel in KERNELS.items() if kernel.features is not None}
    assert with_features == {name for name, _ in EXACT_FEATURES} | APPROXIMATE_KERNELS


@pytest.mark.parametrize(("name", "parameters"), EXACT_FEATURES, ids=str)
def test_products_of_features_are_the_kernel(name: str, parameters: dict[str, Any]) -> None:
    x = samples(40, 2)
    kernel = KERNELS[name].with_parameters(**parameters)
    assert kernel.features is not None
    features = kernel.features(x, **parameters)
    assert features is not None
    torch.testing.assert_close(features @ features.mT, kernel(x))
    between = kernel.between(x)
    assert isinstance(between, Features)
    torch.testing.assert_close(matrix(between), centred(kernel(x)))


@pytest.mark.parametrize("parameters", [{"coef0": -1.0}, {"gamma": -1.0}, {"degree": 14}])
def test_polynomial_kernel_without_cheap_features_is_a_matrix(parameters: dict[str, Any]) -> None:
    x = samples(20, 3)
    kernel = KERNELS["polynomial"].with_parameters(**parameters)
    assert isinstance(kernel.between(x), Tensor)
    torch.testing.assert_close(kernel.between(x), kernel(x))


@pytest.mark.parametrize("n", [5, 300])
def test_polynomial_features_are_used_where_they_are_few(n: int) -> None:
    """(d + 3 choose 3) monomials are 286 for 10 columns and 1771 for 20, whatever the size of the batch."""
    assert isinstance(KERNELS["polynomial"].between(samples(n, 10)), Features)
    assert isinstance(KERNELS["polynomial"].between(samples(n, 20)), Tensor)


def test_fourier_features_approach_the_rbf_kernel() -> None:
    """The error falls as 1/√r; the diagonal is exact."""
    x = samples(30, 3)
    exact = KERNELS["rbf"].with_parameters(gamma=0.3)(x)
    errors = []
    for n_features in (64, 4096):
        kernel = KERNELS["fourier"].with_parameters(gamma=0.3, n_features=n_features)
        between = kernel.between(x)
        assert isinstance(between, Features)
        assert between.values.shape == (30, n_features)
        torch.testing.assert_close(kernel(x).diagonal(), torch.ones(30, dtype=torch.float64))
        torch.testing.assert_close(matrix(between), centred(kernel(x)))
        errors.append(float((kernel(x) - exact).square().mean().sqrt()))
    assert errors[1] < 0.02
    assert errors[1] < errors[0] / 4


def test_fourier_features_are_those_of_their_seed() -> None:
    x = samples(6, 3)
    first, again, other = (
        KERNELS["fourier"].with_parameters(gamma=0.3, n_features=8, random_state=seed)(x) for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


@pytest.mark.parametrize("n_features", [0, 1, 7, -2])
def test_fourier_features_come_in_pairs(n_features: int) -> None:
    with pytest.raises(ValueError, match="must be even and positive"):
        resolve("fourier", n_features=n_features).bind(samples(5, 2))


# --- The bandwidth ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [2, 40])
def test_default_bandwidth_is_the_median_distance(columns: int) -> None:
    # 15 pairs: their median is one of them.
    x = samples(6, columns)
    distances = pairwise.euclidean_distances(x.numpy())
    median = np.median(distances[np.triu_indices(6, 1)])
    expected = pairwise.rbf_kernel(x.numpy(), gamma=1 / (2 * median**2))
    np.testing.assert_allclose(KERNELS["rbf"](x), expected, rtol=1e-6)
    adapted = KERNELS["rbf"].adapt(x)
    assert adapted.parameters["gamma"] == pytest.approx(1 / (2 * median**2), rel=1e-6)
    assert KERNELS["fourier"].adapt(x).parameters["gamma"] == pytest.approx(adapted.parameters["gamma"])


def test_bandwidth_ignores_duplicates() -> None:
    x = torch.tensor([[0.0], [0.0], [0.0], [0.0], [2.0]])
    assert KERNELS["rbf"].adapt(x).parameters["gamma"] == pytest.approx(1 / 8)


@pytest.mark.parametrize("n", [1, 4])
def test_bandwidth_of_equal_rows_gives_the_constant_kernel(n: int) -> None:
    torch.testing.assert_close(KERNELS["rbf"](torch.full((n, 2), 3.0)), torch.ones(n, n))


def test_bandwidth_follows_the_unit_of_the_data() -> None:
    x = samples(9, 3)
    torch.testing.assert_close(KERNELS["rbf"](1e-3 * x), KERNELS["rbf"](1e3 * x))


def test_bandwidth_is_that_of_all_samples_in_every_batch() -> None:
    x = samples(30, 2)
    index = torch.tensor([3, 1, 4, 15, 9])
    whole = KERNELS["rbf"](x)
    torch.testing.assert_close(matrix(resolve("rbf").bind(x)(index)), whole[index][:, index])
    # And of the samples it was adapted to, on others.
    new = samples(5, 2, seed=1)
    gamma = KERNELS["rbf"].adapt(x).parameters["gamma"]
    adapted = matrix(resolve("rbf").adapt(x).bind(new)(torch.arange(5)))
    np.testing.assert_allclose(adapted, pairwise.rbf_kernel(new.numpy(), gamma=gamma), rtol=1e-9)


@pytest.mark.parametrize(
    ("written", "kind", "name", "parameters"),
    [
        ("rbf:gamma=0.5", "kernel", "rbf", {"gamma": 0.5}),
        ("polynomial:degree=2,gamma=3", "kernel", "polynomial", {"degree": 2, "gamma": 3}),
        ("graph:neighbours=7", "kernel", "graph", {"neighbours": 7}),
        ("shortest_path:neighbours=7", "distance", "shortest_path", {"neighbours": 7}),
    ],
)
def test_parameters_are_written_behind_the_name_or_given(
    written: str, kind: Any, name: str, parameters: dict[str, Any]
) -> None:
    assert resolve(written, kind) == resolve(name, kind, **parameters)


@pytest.mark.parametrize(
    ("geometry", "written"),
    [
        (resolve("rbf", gamma=0.123456789), "rbf:gamma=0.123456789"),
        (resolve("rbf", gamma=np.float32(0.5)), "rbf:gamma=0.5"),
        (resolve("graph", neighbours=1_234_567), "graph:neighbours=1234567"),
        (resolve("graph", neighbours=5, weights="self_tuning"), "graph:neighbours=5,weights=self_tuning"),
        (resolve("linear"), "linear"),
    ],
    ids=["digits", "numpy", "large", "word", "defaults"],
)
def test_a_geometry_is_spelled_by_what_makes_it(geometry: Geometry, written: str) -> None:
    assert spell(geometry) == written
    if "weights" not in written:
        assert resolve(written) == geometry


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("rbf:gamma=x", "numbers, as in rbf:gamma=0.5; 'gamma=x' is not one"),
        ("rbf:gamma", "'gamma' is not one"),
        ("rbf:gamma=-1", "gamma is a positive number, not -1"),
        ("laplacian:gamma=0", "gamma is a positive number, not 0"),
        ("rbf:gamma=1,gamma=2", "given twice"),
        ("rbv:gamma=1", "'rbv' is not one of them. Did you mean 'rbf'"),
        ("gaussian", "'gaussian' is not one of them. The Gaussian kernel is 'rbf'"),
        ("euclidean", "Kernels go with mmd objectives, distances with wasserstein"),
    ],
)
def test_what_is_written_wrongly_is_explained(written: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(written)


def test_a_named_geometry_is_shown_without_its_functions() -> None:
    assert repr(resolve("rbf", gamma=0.5)) == "Pairwise('rbf', 'kernel', gamma=0.5)"


def test_given_bandwidth_is_kept() -> None:
    assert resolve("rbf", gamma=0.25).adapt(samples(9, 2)).parameters == {"gamma": 0.25}  # type: ignore[attr-defined]


@pytest.mark.parametrize("geometry", [*KERNELS.values(), *DISTANCES.values()], ids=lambda g: f"{g.name}-{g.kind}")
def test_images_are_to_be_flattened_first(geometry: Pairwise) -> None:
    images = samples(20, 64, positive=True).reshape(20, 1, 8, 8)
    for given in ((images,), (images.flatten(1), images)):
        with pytest.raises(ValueError, match=rf"'{geometry.name}' compares samples \(n, d\).*x\.flatten\(1\)"):
            geometry(*given)
    with pytest.raises(ValueError, match=r"these are \(64,\): one feature is x\[:, None\]"):
        geometry(images[0].flatten())
    assert geometry(images.flatten(1)).shape == (20, 20)


# --- Batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("geometry", [*KERNELS.values(), *DISTANCES.values()], ids=lambda g: f"{g.name}-{g.kind}")
@every_dtype
def test_batch_is_the_part_of_the_whole(geometry: Pairwise, dtype: torch.dtype) -> None:
    """A block of some rows is that part of the matrix; for a kernel, as far as an MMD can see."""
    x = samples(20, 3, positive=True).to(dtype)
    index = torch.tensor([7, 2, 19, 5])
    block = geometry.bind(x)
    whole, part = matrix(block(torch.arange(20)))[index][:, index], matrix(block(index))
    assert part.dtype == dtype
    # A batch too small for monomials gets the matrix itself, which differs by the centring.
    if geometry.kind == "kernel":
        whole, part = centred(whole), centred(part)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(part, whole, rtol=tolerance, atol=tolerance)


class LargestTensor(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in result if isinstance(result, list | tuple) else (result,):
            if isinstance(value, Tensor):
                self.elements = max(self.elements, value.numel())
        return result


@pytest.mark.parametrize("registry", [KERNELS, DISTANCES], ids=["kernels", "distances"])
def test_matrix_of_all_samples_is_never_built(registry: dict[str, Pairwise]) -> None:
    n, batch = 4000, torch.arange(0, 4000, 100)
    x = samples(n, 3, positive=True).float()
    for name, geometry in registry.items():
        with LargestTensor() as largest:
            geometry.bind(x)(batch)
        assert 0 < largest.elements < n * n / 4, name


def test_graph_paths_of_all_samples_are_never_built() -> None:
    n = 2500
    x = samples(n, 2).numpy()
    tracemalloc.start()
    try:
        block = ShortestPath(neighbours=5).bind(x)(torch.arange(20))
        lengths = matrix(block)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(block, Paths)
    assert len(block) == 20
    assert lengths.shape == (20, 20)
    assert peak < n * n * 8 / 4


# --- resolve ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "expected"), [("kernel", "linear"), ("distance", "euclidean")])
def test_auto_is_the_choice_of_the_paper(kind: Any, expected: str) -> None:
    assert resolve("auto", kind) == resolve(expected, kind)


@pytest.mark.parametrize("name", KERNELS)
def test_names_of_kernels(name: str) -> None:
    assert resolve(name) == KERNELS[name]


@pytest.mark.parametrize("name", DISTANCES)
def test_names_of_distances(name: str) -> None:
    assert resolve(name, "distance") == DISTANCES[name]


def test_cosine_is_a_kernel_or_a_distance_as_needed() -> None:
    assert resolve("cosine", "kernel").kind == "kernel"
    assert resolve("cosine", "distance").kind == "distance"


@pytest.mark.parametrize("kind", ["kernel", "distance"])
def test_functions_are_geometries(kind: Any) -> None:
    def ones(x: Tensor, y: Tensor) -> Tensor:
        return torch.ones(len(x), len(y))

    geometry = resolve(ones, kind)
    assert geometry.kind == kind
    assert torch.equal(matrix(geometry.bind(samples(4, 2))(torch.arange(3))), torch.ones(3, 3))


@pytest.mark.parametrize(
    "function", [lambda x, y: torch.ones(len(x)), lambda x, y: np.ones((len(x), len(y))), lambda x, y: 3.0]
)
def test_functions_that_return_no_matrix_are_explained(function: Callable[..., Tensor]) -> None:
    with pytest.raises(ValueError, match=r"must map \(n, d\) and \(m, d\) to an \(n, m\) tensor"):
        resolve(function).bind(samples(4, 2))(torch.arange(3))


def test_geometries_resolve_to_themselves() -> None:
    geometry = ShortestPath(neighbours=3)
    assert resolve(geometry, "distance") is geometry
    assert resolve("shortest_path", "distance", neighbours=3) == geometry


EVERY_GEOMETRY: list[tuple[str, Geometry]] = [
    *((f"{name} kernel", kernel) for name, kernel in KERNELS.items()),
    ("polynomial kernel of a high degree", resolve("polynomial", degree=14)),
    ("polynomial kernel that is not positive", resolve("polynomial", coef0=-1.0)),
    *((f"{name} distance", distance) for name, distance in DISTANCES.items()),
    *((name, make()) for named in OF_ALL_SAMPLES.values() for name, make in named.items()),
    ("encoded features", resolve("cosine", encoder=lambda x: 2 * x)),
    ("encoded monomials", resolve("polynomial", encoder=lambda x: x.repeat(1, 9))),
    ("encoded paths", resolve("shortest_path", "distance", encoder=lambda x: 2 * x)),
    ("matrix", resolve("precomputed", affinity=torch.eye(12))),
    ("features", resolve("precomputed", affinity=Features(torch.eye(12)))),
]


@pytest.mark.parametrize(("name", "geometry"), EVERY_GEOMETRY, ids=[name for name, _ in EVERY_GEOMETRY])
def test_geometries_say_what_they_give(name: str, geometry: Geometry) -> None:
    x = samples(12, 3).abs()
    adapted = geometry.for_clusters(2).adapt(x)
    affinity = adapted.bind(x)(torch.arange(4))
    assert (adapted.gives_features, adapted.gives_paths) == (
        isinstance(affinity, Features),
        isinstance(affinity, Paths),
    )
    # What is adapted takes nothing more from the data, and what does not adapt took nothing.
    assert geometry.adapts or geometry.adapt(x) is geometry
    assert adapted.adapt(x) == adapted
    if not adapted.needs_all_samples:
        torch.testing.assert_close(matrix(adapted.of(x[:4])), matrix(affinity))


class Always(Geometry):
    """A user's own: the same affinity for all."""

    kind = "distance"

    def bind(self, X: Any) -> Callable[[Tensor], Tensor]:
        return lambda index: torch.zeros(len(index), len(index))


def test_a_geometry_of_ones_own_is_used() -> None:
    geometry = resolve(Always(), "distance")
    assert torch.equal(matrix(geometry.bind(samples(4, 2))(torch.arange(2))), torch.zeros(2, 2))
    assert geometry.adapt(samples(4, 2)) is geometry


@pytest.mark.parametrize("name", ["rbff", "", "manhattan", "shortest_path"])
def test_kernels_are_listed_where_one_is_needed(name: str) -> None:
    with pytest.raises(ValueError, match="needs a kernel") as error:
        resolve(name, "kernel")
    for valid in (*KERNELS, "precomputed"):
        assert valid in str(error.value)
    assert repr(name) in str(error.value)


@pytest.mark.parametrize("name", ["euclidian", "", "rbf"])
def test_distances_are_listed_where_one_is_needed(name: str) -> None:
    with pytest.raises(ValueError, match="needs a distance") as error:
        resolve(name, "distance")
    for valid in (*DISTANCES, "shortest_path", "precomputed"):
        assert valid in str(error.value)
    assert repr(name) in str(error.value)


def test_a_geometry_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a kernel, but"):
        resolve(ShortestPath(), "kernel")
    with pytest.raises(ValueError, match="needs a distance, but"):
        resolve(KERNELS["rbf"], "distance")


@pytest.mark.parametrize(
    ("name", "other", "kind"),
    [("euclidean", "distance", "kernel"), ("rbf", "kernel", "distance")],
)
def test_a_name_of_the_other_kind_is_called_so(name: str, other: str, kind: Any) -> None:
    with pytest.raises(ValueError, match=re.escape(f"{name!r} is a {other}: resolve({name!r}, {other!r}).")):
        resolve(name, kind)


def test_a_third_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="'kernel' or a 'distance', not 'similarity'"):
        resolve("rbf", "similarity")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "kind", "valid"),
    [
        ("rbf", "kernel", "takes gamma"),
        ("fourier", "kernel", "takes gamma, n_features, random_state"),
        ("polynomial", "kernel", "takes degree, gamma, coef0"),
        ("linear", "kernel", "takes no parameters"),
        ("euclidean", "distance", "takes no parameters"),
        ("shortest_path", "distance", "takes quantile, neighbours, weighted"),
    ],
)
def test_unknown_parameters_list_the_valid_ones(name: str, kind: Any, valid: str) -> None:
    with pytest.raises(ValueError, match=f"{valid}; not sigma"):
        resolve(name, kind, sigma=3.0)


def test_parameters_without_a_name_are_refused() -> None:
    with pytest.raises(TypeError, match="belong to a named geometry"):
        resolve(KERNELS["rbf"], gamma=1.0)


@pytest.mark.parametrize("geometry", [None, 3, ["rbf"]])
def test_what_is_no_geometry_is_refused(geometry: Any) -> None:
    with pytest.raises(TypeError, match="A geometry is a name, a function or a Geometry"):
        resolve(geometry)


# --- Precomputed --------------------------------------------------------------------------------------------


def distances_between(x: Tensor) -> Array:
    return pairwise.euclidean_distances(x.numpy())


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy, pd.DataFrame, np.ndarray.tolist])
def test_precomputed_matrices_are_used_by_their_rows_and_columns(convert: Callable[[Array], Any]) -> None:
    distance = distances_between(samples(6, 2))
    geometry = resolve("precomputed", "distance", affinity=convert(distance))
    index = torch.tensor([4, 0, 5])
    np.testing.assert_allclose(matrix(geometry.bind(samples(6, 3))(index)), distance[np.ix_(index, index)])
    assert geometry.kind == "distance"


def test_precomputed_integers_become_floating_point() -> None:
    geometry = resolve("precomputed", "distance", affinity=np.array([[0, 2], [2, 0]]))
    assert matrix(geometry.bind(np.zeros((2, 1)))(torch.arange(2))).is_floating_point()


def test_an_affinity_makes_any_geometry_precomputed() -> None:
    assert isinstance(resolve("auto", "kernel", affinity=np.eye(3)), Precomputed)


def test_precomputed_features_are_centred() -> None:
    z = samples(6, 2) + 100
    geometry = resolve("precomputed", affinity=Features(z))
    bound = geometry.bind(np.zeros((6, 1)))(torch.arange(6))
    assert isinstance(bound, Features)
    torch.testing.assert_close(bound.values, z - z.mean(0))


def readonly(array: Array, folder: Path) -> Array:
    array = array.copy()
    array.setflags(write=False)
    return array


def memory_map(array: Array, folder: Path) -> Array:
    np.save(folder / "array.npy", array)
    return np.load(folder / "array.npy", mmap_mode="r")


# The same numbers as numpy may store them.
STORAGES: dict[str, Callable[[Array, Path], Any]] = {
    "readonly": readonly,
    "memory_map": memory_map,
    "fortran": lambda array, _: np.asfortranarray(array),
    "negative_strides": lambda array, _: np.ascontiguousarray(array[::-1, ::-1])[::-1, ::-1],
    "strided": lambda array, _: np.repeat(np.repeat(array, 2, 0), 2, 1)[::2, ::2],
    "big_endian": lambda array, _: array.astype(">f8"),
    "float16": lambda array, _: array.astype(np.float16),
}
every_storage = pytest.mark.parametrize("store", STORAGES.values(), ids=STORAGES.keys())


@pytest.fixture
def torch_always_warns() -> Any:
    """Torch warns of unwritable arrays once in a process: each test must see it."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("torch_always_warns")
@every_storage
def test_precomputed_matrices_may_be_stored_in_any_way(store: Callable[[Array, Path], Any], tmp_path: Path) -> None:
    distance = np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 1.5], [2.0, 1.5, 0.0]])
    geometry = resolve("precomputed", "distance", affinity=store(distance, tmp_path))
    np.testing.assert_array_equal(matrix(geometry.bind(np.zeros((3, 1)))(torch.arange(3))), distance)


@pytest.mark.parametrize("kind", ["kernel", "distance"])
@pytest.mark.parametrize(
    ("affinity", "message"),
    [
        (np.zeros((3, 2)), r"must be square; its shape is \(3, 2\)"),
        (np.zeros(3), "must be square"),
        (np.array([[0.0, 1.0], [2.0, 0.0]]), "must be symmetric"),
        (np.array([[0.0, np.nan], [np.nan, 0.0]]), "holds NaN or infinity"),
        (np.array([[0.0, np.inf], [np.inf, 0.0]]), "holds NaN or infinity"),
        (None, "needs the (kernel|distance) matrix"),
    ],
)
def test_wrong_matrices_are_refused(kind: Any, affinity: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve("precomputed", kind, affinity=affinity)


def test_asymmetry_is_found_in_every_part_of_a_large_matrix() -> None:
    kernel = np.eye(600)
    kernel[590, 300] = 1.0
    with pytest.raises(ValueError, match="must be symmetric"):
        resolve("precomputed", affinity=kernel)


def test_matrices_that_are_no_distance_are_refused() -> None:
    with pytest.raises(ValueError, match="holds negative distances"):
        resolve("precomputed", "distance", affinity=np.array([[0.0, -1.0], [-1.0, 0.0]]))
    with pytest.raises(ValueError, match="of a sample to itself must be 0"):
        resolve("precomputed", "distance", affinity=np.eye(2))
    # Both are kernels.
    resolve("precomputed", "kernel", affinity=np.array([[1.0, -1.0], [-1.0, 1.0]]))


@pytest.mark.parametrize("values", [torch.zeros(3), torch.tensor([[math.nan], [0.0]])])
def test_wrong_features_are_refused(values: Tensor) -> None:
    with pytest.raises(ValueError, match=r"Features must be finite and of shape \(n, r\)"):
        resolve("precomputed", affinity=Features(values))


def test_features_are_no_distance() -> None:
    with pytest.raises(ValueError, match="Features define a kernel"):
        resolve("precomputed", "distance", affinity=Features(torch.zeros(3, 2)))


@pytest.mark.parametrize("affinity", [np.eye(4), Features(torch.zeros(4, 2))], ids=["matrix", "features"])
def test_affinity_of_another_number_of_samples_is_refused(affinity: Any) -> None:
    with pytest.raises(ValueError, match="The affinity is of 4 samples, but X has 5 rows"):
        resolve("precomputed", affinity=affinity).bind(samples(5, 2))


@pytest.mark.parametrize("wrap", [np.asarray, torch.from_numpy, scipy.sparse.csr_array, scipy.sparse.csr_matrix, Rows])
def test_precomputed_geometries_bind_to_every_kind_of_data(wrap: Callable[[Array], Any]) -> None:
    block = resolve("precomputed", affinity=np.eye(3)).bind(wrap(np.ones((3, 2))))
    assert torch.equal(matrix(block(torch.tensor([0, 2]))), torch.eye(2, dtype=torch.float64))


# --- Encoders -----------------------------------------------------------------------------------------------


class CountingEncoder(nn.Module):
    """A layer that behaves differently in training, and counts the samples it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 2)
        self.dropout = nn.Dropout(0.5)
        self.frozen = nn.BatchNorm1d(2).eval()
        self.seen = 0
        self.modes: set[bool] = set()

    def forward(self, x: Tensor) -> Tensor:
        self.seen += len(x)
        self.modes.add(self.training)
        return self.frozen(self.dropout(self.layer(x.flatten(1))))


@pytest.mark.parametrize("name", ["linear", "rbf"])
def test_encoder_sees_each_sample_once(name: str) -> None:
    encoder = CountingEncoder()
    geometry = Encoded(encoder, KERNELS[name], batch_size=7)
    block = geometry.bind(samples(20, 3).float())
    for start in (0, 5, 10):
        block(torch.arange(start, start + 5))
    assert encoder.seen == 20


@pytest.mark.parametrize("kind", ["kernel", "distance"])
def test_encoded_geometry_compares_the_features(kind: Any) -> None:
    encoder, x = CountingEncoder().eval(), samples(9, 3).float()
    geometry = resolve("auto", kind, encoder=encoder)
    assert geometry.kind == kind
    bound = geometry.bind(x)(torch.arange(9))
    with torch.no_grad():
        features = encoder(x)
    expected = centred(features @ features.mT) if kind == "kernel" else torch.cdist(features, features)
    torch.testing.assert_close(matrix(bound), expected, rtol=1e-4, atol=1e-5)
    assert not matrix(bound).requires_grad


@pytest.mark.parametrize("training", [True, False])
def test_encoder_runs_in_evaluation_mode_and_is_left_as_it_was(training: bool) -> None:
    encoder = CountingEncoder()
    if not training:
        encoder.eval()
    modes = [module.training for module in encoder.modules()]
    geometry = Encoded(encoder, KERNELS["rbf"])
    geometry.bind(samples(5, 3).float())
    geometry.adapt(samples(5, 3).float())
    assert encoder.modes == {False}
    # The parts keep their own modes: a frozen batch norm stays frozen.
    assert [module.training for module in encoder.modules()] == modes


def test_encoder_that_fails_is_left_as_it_was() -> None:
    encoder = CountingEncoder()
    with pytest.raises(RuntimeError):
        Encoded(encoder, KERNELS["linear"]).bind(torch.zeros(4, 5))
    assert encoder.training


def test_encoder_may_be_a_function_of_images() -> None:
    images = samples(6, 8).reshape(6, 2, 2, 2)
    bound = resolve("euclidean", "distance", encoder=lambda x: x.mean((2, 3))).bind(images)(torch.arange(6))
    torch.testing.assert_close(matrix(bound), torch.cdist(images.mean((2, 3)), images.mean((2, 3))))


def test_adapted_encoded_geometry_keeps_its_bandwidth() -> None:
    x = samples(8, 3)
    geometry = resolve("rbf", encoder=lambda z: 5 * z)
    adapted = geometry.adapt(x)
    assert isinstance(adapted, Encoded)
    expected = KERNELS["rbf"].adapt(5 * x).parameters["gamma"]
    assert adapted.geometry.parameters["gamma"] == pytest.approx(expected)  # type: ignore[attr-defined]
    torch.testing.assert_close(matrix(adapted.bind(x)(torch.arange(8))), KERNELS["rbf"](5 * x))


# --- Shortest paths -----------------------------------------------------------------------------------------


def floyd_warshall(edges: Array) -> Array:
    """All shortest paths of a matrix of edge lengths, infinite where there is no edge."""
    lengths = edges.copy()
    np.fill_diagonal(lengths, 0)
    for k in range(len(lengths)):
        for i in range(len(lengths)):
            for j in range(len(lengths)):
                lengths[i, j] = min(lengths[i, j], lengths[i, k] + lengths[k, j])
    return lengths


def threshold_edges(x: Array, quantile: float, *, weighted: bool) -> Array:
    """Appendix I: an edge where d_ij ≤ ε, the given quantile of all d_ij."""
    distances = np.array([[math.dist(a, b) for b in x] for a in x])
    joined = distances <= np.quantile(distances, quantile)
    return np.where(joined, distances if weighted else 1.0, np.inf)


def neighbour_edges(x: Array, k: int, *, weighted: bool) -> Array:
    """An edge where one is among the k nearest of the other."""
    distances = np.array([[math.dist(a, b) for b in x] for a in x])
    edges = np.full(distances.shape, np.inf)
    for i in range(len(x)):
        others = sorted((j for j in range(len(x)) if j != i), key=lambda j: distances[i, j])
        for j in others[:k]:
            edges[i, j] = edges[j, i] = distances[i, j] if weighted else 1.0
    return edges


def with_limit(lengths: Array, edges: Array, *, weighted: bool) -> Array:
    """Unreachable samples are n edges away, each of the longest length."""
    longest = edges[np.isfinite(edges)].max() if weighted else 1.0
    return np.where(np.isinf(lengths), len(lengths) * longest, lengths)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("quantile", [0.05, 0.2, 0.5, 1.0])
def test_threshold_graph_is_that_of_floyd_and_warshall(quantile: float, weighted: bool) -> None:
    x = 3 * samples(25, 2).numpy()
    edges = threshold_edges(x, quantile, weighted=weighted)
    expected = with_limit(floyd_warshall(edges), edges, weighted=weighted)
    block = ShortestPath(quantile, weighted=weighted).bind(x)
    np.testing.assert_allclose(matrix(block(torch.arange(25))), expected, rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("k", [1, 2, 5, 100])
def test_neighbour_graph_is_that_of_floyd_and_warshall(k: int, weighted: bool) -> None:
    x = 3 * samples(20, 2).numpy()
    edges = neighbour_edges(x, k, weighted=weighted)
    expected = with_limit(floyd_warshall(edges), edges, weighted=weighted)
    block = ShortestPath(neighbours=k, weighted=weighted).bind(x)
    np.testing.assert_allclose(matrix(block(torch.arange(20))), expected, rtol=1e-9)


def test_unreachable_samples_are_n_away() -> None:
    x = np.array([[0.0], [1.0], [100.0], [101.0]])
    expected = np.array([[0, 1, 4, 4], [1, 0, 4, 4], [4, 4, 0, 1], [4, 4, 1, 0]])
    np.testing.assert_array_equal(matrix(ShortestPath(neighbours=1).bind(x)(torch.arange(4))), expected)


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
def test_weighted_paths_follow_the_unit_of_the_data(unit: float) -> None:
    """Also those that do not exist."""
    x = np.array([[0.0], [1.0], [100.0], [102.0]])
    lengths = matrix(ShortestPath(neighbours=1, weighted=True).bind(unit * x)(torch.arange(4)))
    expected = unit * np.array([[0, 1, 8, 8], [1, 0, 8, 8], [8, 8, 0, 2], [8, 8, 2, 0]])
    np.testing.assert_allclose(lengths, expected, rtol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("neighbours", [None, 1, 2])
def test_duplicate_rows_are_neighbours(neighbours: int | None, weighted: bool) -> None:
    """An edge of length zero is an edge."""
    x = np.array([[0.0, 0.0], [0.0, 0.0], [5.0, 5.0], [5.0, 5.0]])
    lengths = matrix(ShortestPath(0.3, neighbours, weighted).bind(x)(torch.arange(4)))
    twins = lengths[[0, 1, 2, 3], [1, 0, 3, 2]]
    assert twins.tolist() == [0.0 if weighted else 1.0] * 4
    far = [lengths[i, j].item() for i in (0, 1) for j in (2, 3)]
    assert min(far) >= 1


def test_many_duplicates_leave_the_rest_connected() -> None:
    """Samples drawn with replacement, as a bootstrap does."""
    x = np.repeat(np.arange(5.0)[:, None], 3, axis=0)
    lengths = matrix(ShortestPath(neighbours=4, weighted=True).bind(x)(torch.arange(15)))
    expected = np.abs(x - x.T)
    np.testing.assert_allclose(lengths, expected, atol=1e-12)


@pytest.mark.parametrize("geometry", [ShortestPath(0.2), ShortestPath(neighbours=3, weighted=True)], ids=str)
def test_paths_of_a_batch_go_through_all_samples(geometry: ShortestPath) -> None:
    """The block of a batch is the part of the whole, and not the paths within the batch."""
    x = samples(30, 2)
    block = geometry.bind(x)
    index = torch.tensor([29, 0, 17, 4])
    torch.testing.assert_close(matrix(block(index)), matrix(block(torch.arange(30)))[index][:, index])


def test_paths_are_a_metric() -> None:
    lengths = matrix(ShortestPath(neighbours=3, weighted=True).bind(samples(25, 2))(torch.arange(25)))
    torch.testing.assert_close(lengths, lengths.mT)
    assert bool((lengths.diagonal() == 0).all())
    through = (lengths[:, :, None] + lengths[None]).amin(1)
    assert bool((lengths <= through + 1e-9).all())


def test_paths_follow_the_manifold() -> None:
    """The ends of a horseshoe are close in the plane and far along it."""
    angle = np.linspace(0, 1.8 * np.pi, 40)
    x = np.stack([np.cos(angle), np.sin(angle)], 1)
    lengths = matrix(ShortestPath(neighbours=2, weighted=True).bind(x)(torch.tensor([0, 39])))
    assert float(lengths[0, 1]) == pytest.approx(1.8 * np.pi, rel=0.01)


@every_dtype
def test_paths_have_the_precision_of_the_data(dtype: torch.dtype) -> None:
    assert matrix(ShortestPath(neighbours=2).bind(samples(6, 2).to(dtype))(torch.arange(3))).dtype == dtype


@pytest.mark.parametrize("geometry", [ShortestPath(), ShortestPath(neighbours=3)], ids=str)
def test_graph_of_one_sample(geometry: ShortestPath) -> None:
    assert matrix(geometry.bind(np.zeros((1, 2)))(torch.arange(1))).tolist() == [[0.0]]


def test_the_nearest_are_those_in_all_dimensions() -> None:
    x = np.random.default_rng(0).normal(size=(150, 120))
    lengths = NearestNeighbors(n_neighbors=3, algorithm="brute").fit(x).kneighbors_graph(mode="distance")
    expected = lengths.maximum(lengths.T).toarray()
    np.testing.assert_allclose(ShortestPath(neighbours=3).graph(x).toarray(), expected, rtol=1e-9)


@pytest.mark.parametrize("quantile", [0.0, -0.1, 1.1, math.nan])
def test_quantile_is_a_share(quantile: float) -> None:
    with pytest.raises(ValueError, match="quantile is a share of all pairs"):
        ShortestPath(quantile)


@pytest.mark.parametrize("neighbours", [0, -1, 2.5, True])
def test_neighbours_are_a_positive_number(neighbours: Any) -> None:
    with pytest.raises(ValueError, match="neighbours is a positive whole number"):
        ShortestPath(neighbours=neighbours)


def test_threshold_graphs_of_large_data_are_refused_with_the_way_out() -> None:
    with pytest.raises(ValueError, match=r"ShortestPath\(neighbours=10\)"):
        ShortestPath(0.5).bind(np.zeros((20_000, 1), dtype=np.float32))


# --- Rows: whatever the samples are stored in ---------------------------------------------------------------


VALUES = np.arange(24, dtype=np.float64).reshape(6, 4)
INDEX = torch.tensor([5, 0, 3])


@pytest.mark.usefixtures("torch_always_warns")
@every_storage
def test_rows_of_every_storage(store: Callable[[Array, Path], Any], tmp_path: Path) -> None:
    rows = Rows(store(VALUES, tmp_path))
    assert len(rows) == 6
    assert rows.shape == (4,)
    np.testing.assert_array_equal(rows[INDEX], VALUES[INDEX.numpy()])


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "lil", "dok", "bsr"])
@pytest.mark.parametrize("container", ["array", "matrix"])
def test_rows_of_every_sparse_format(format: str, container: str) -> None:
    sparse = getattr(scipy.sparse, f"{format}_{container}")(np.where(VALUES % 3 == 0, VALUES, 0))
    rows = Rows(sparse)
    assert (len(rows), rows.shape) == (6, (4,))
    np.testing.assert_array_equal(rows[INDEX], sparse.toarray()[INDEX.numpy()])


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64"]
)
@pytest.mark.parametrize("wrap", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_rows_of_every_type_are_floating_point(dtype: str, wrap: Callable[[Array], Any]) -> None:
    array = VALUES.astype(dtype)
    batch = Rows(wrap(array))[INDEX]
    assert batch.dtype == (torch.float64 if dtype == "float64" else torch.float32)
    np.testing.assert_array_equal(batch, array[INDEX.numpy()].astype(float))


def test_rows_of_tensors_and_frames() -> None:
    for data in (torch.from_numpy(VALUES), pd.DataFrame(VALUES), VALUES.tolist()):
        np.testing.assert_array_equal(Rows(data)[INDEX], VALUES[INDEX.numpy()])


def test_rows_of_a_tensor_with_gradient_have_none() -> None:
    assert not Rows(torch.zeros(3, 2, requires_grad=True))[torch.arange(2)].requires_grad


def test_rows_of_images_keep_their_shape() -> None:
    images = VALUES.reshape(6, 1, 2, 2)
    rows = Rows(images)
    assert rows.shape == (1, 2, 2)
    np.testing.assert_array_equal(rows[INDEX], images[INDEX.numpy()])


def test_rows_have_the_precision_that_was_asked_for() -> None:
    assert Rows(VALUES, torch.float32)[INDEX].dtype == torch.float32
    assert Rows(scipy.sparse.csr_array(VALUES), torch.float32)[INDEX].dtype == torch.float32


def test_rows_share_the_memory_of_an_array() -> None:
    array = VALUES.copy()
    rows = Rows(array)
    array[0, 0] = -1
    assert float(rows[torch.tensor([0])][0, 0]) == -1


def test_rows_are_not_changed_through_a_batch() -> None:
    array = VALUES.copy()
    Rows(array)[INDEX].zero_()
    np.testing.assert_array_equal(array, VALUES)


def test_same_batch_is_read_once() -> None:
    rows = Rows(VALUES)
    assert rows[INDEX] is rows[INDEX]


def test_batch_that_its_reader_changed_is_read_anew() -> None:
    """A model whose first layer works in place must not change what the geometry compares."""
    rows = Rows(VALUES)
    rows[INDEX].zero_()
    np.testing.assert_array_equal(rows[INDEX], VALUES[INDEX.numpy()])


def test_index_that_was_filled_again_is_read_anew() -> None:
    rows, index = Rows(VALUES), INDEX.clone()
    rows[index]
    index.copy_(torch.tensor([1, 2, 4]))
    np.testing.assert_array_equal(rows[index], VALUES[[1, 2, 4]])


def test_sample_is_drawn_without_replacement_and_always_the_same() -> None:
    rows = Rows(np.arange(50.0)[:, None])
    drawn = rows.sample(20)[:, 0]
    assert len(drawn.unique()) == 20
    assert torch.equal(drawn, rows.sample(20)[:, 0])
    assert len(rows.sample(1000)) == 50


def test_as_rows_leaves_rows_alone() -> None:
    rows = Rows(VALUES)
    assert as_rows(rows) is rows
    assert isinstance(as_rows(VALUES), Rows)


@pytest.mark.parametrize("name", [*KERNELS, *DISTANCES, "shortest_path"])
def test_every_geometry_reads_every_storage(name: str, tmp_path: Path) -> None:
    kind: Any = "kernel" if name in KERNELS else "distance"
    index = torch.arange(6)
    expected = matrix(resolve(name, kind).bind(VALUES)(index))
    stored = [store(VALUES, tmp_path) for store in STORAGES.values()]
    for data in (*stored, VALUES.reshape(6, 2, 1, 2), scipy.sparse.csr_array(VALUES)):
        actual = matrix(resolve(name, kind).bind(data)(index))
        # Half precision is one of the storages; it holds these numbers, but not what is computed from them.
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-4)


# --- Pickling -----------------------------------------------------------------------------------------------


def geometries() -> dict[str, Geometry]:
    return {
        **{f"kernel_{name}": kernel for name, kernel in KERNELS.items()},
        **{f"distance_{name}": distance for name, distance in DISTANCES.items()},
        "rbf_with_parameters": resolve("rbf", gamma=0.5),
        "shortest_path": ShortestPath(neighbours=2, weighted=True),
        "precomputed": resolve("precomputed", affinity=np.eye(8)),
        "precomputed_features": resolve("precomputed", affinity=Features(torch.eye(8))),
        "encoded": Encoded(nn.Linear(3, 2).double(), KERNELS["rbf"]),
    }


@pytest.mark.parametrize("name", geometries())
def test_every_geometry_survives_pickling(name: str) -> None:
    geometry = geometries()[name]
    restored = pickle.loads(pickle.dumps(geometry))
    x, index = samples(8, 3, positive=True), torch.tensor([1, 5, 6])
    assert restored.kind == geometry.kind
    assert torch.equal(matrix(restored.bind(x)(index)), matrix(geometry.bind(x)(index)))


def test_few_wide_samples_are_seen_by_their_principal_components() -> None:
    rows = Rows(np.random.default_rng(0).normal(size=(5, 1_500)), torch.float64)
    assert learn_points(rows, 50)(rows).shape == (5, 4)

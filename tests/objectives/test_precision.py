"""Precision, devices, compilation and memory: what the numbers are computed in, where, and what if there is no room."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, TensorDataset

from coverings import combinations_of, every_other, rotated
from data_files import without_addresses
from pollux import Gemini, f_divergence, models
from pollux.geometry.affinity import Features
from pollux.objectives import GEMINIS, PENALTIES
from pollux.training import Batch, make_optimiser
from pollux.training.loop import NanGuard
from pollux.training.problem import log_probabilities
from pollux.training.steps import AutogradStep, ClusterMetrics
from pollux.training.trainable import SingleModel, StackedModels, has_compiled_steps
from unequal_blobs import CLASSES, X, clustering, own, types_of

# Types


@pytest.mark.parametrize(
    "options",
    every_other(
        [
            {},
            {"n_init": 3},
            {"model": own, "n_init": 2},
            {"penalties": {"vat": 0.1}, "learning_rate": 0.005},
            {"objective": "wasserstein_ova", "n_init": 4},
            {"optimiser": "sgd", "learning_rate": 0.1},
            {"model": "linear", "learning_rate": 0.05},
            {"objective": "mmd_ova", "geometry": "rbf"},
        ]
    ),
    ids=without_addresses,
)
def test_products_of_half_precision_find_the_same_clusters(options: dict[str, Any]) -> None:
    fitted = clustering(dtype="bfloat16", **options).fit(X)
    assert adjusted_rand_score(fitted.labels_, CLASSES) > 0.99
    assert types_of(fitted) == {torch.float32}
    assert fitted.predict_proba(X).dtype == np.float32
    assert np.isfinite(fitted.history_["objective"]).all()
    assert fitted.objective_ == pytest.approx(clustering(**options).fit(X).objective_, rel=0.05)


def test_products_are_of_half_precision_and_all_else_is_not() -> None:
    seen: list[torch.dtype] = []

    class Looks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, inputs: Tensor) -> Tensor:
            between = self.first(inputs)
            if self.training:
                seen.extend([inputs.dtype, between.dtype])
            logits: Tensor = self.second(between)
            return logits

    module = Looks().requires_grad_()
    model = SingleModel(module, 3, torch.bfloat16)
    log_p = model(torch.as_tensor(X))
    assert log_p.dtype == torch.float32
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(len(X)))
    (-Gemini("mi")(log_p)).backward()
    gradients = [parameter.grad for parameter in module.parameters()]
    assert all(grad is not None and grad.dtype == torch.float32 and grad.isfinite().all() for grad in gradients)
    assert seen == [torch.float32, torch.bfloat16]


@pytest.mark.parametrize(
    ("rows", "dtype", "expected"),
    [
        (np.float32, "auto", torch.float32),
        (np.float64, "auto", torch.float64),
        (np.float16, "auto", torch.float32),
        (np.uint8, "auto", torch.float32),
        (np.int64, "auto", torch.float64),
        (np.float32, "float64", torch.float64),
        (np.float64, "float32", torch.float32),
        (np.float64, "bfloat16", torch.float32),
    ],
)
@pytest.mark.parametrize("model", ["linear", own])
def test_weights_are_of_the_type_asked_for(rows: Any, dtype: str, expected: torch.dtype, model: Any) -> None:
    data = np.abs(X * 4).astype(rows)
    fitted = clustering(dtype=dtype, model=model, max_epochs=1, n_init=2).fit(data)
    assert types_of(fitted) == {expected}
    assert torch.as_tensor(fitted.predict_proba(data)).dtype == expected


def test_rows_of_double_precision_are_rounded_first() -> None:
    double = X.astype(np.float64) + 1e-12
    fits = [clustering(dtype="float32", max_epochs=2).fit(rows) for rows in (X, double.astype(np.float32), double)]
    assert fits[1].history_ == fits[2].history_
    assert types_of(fits[2]) == {torch.float32}


def test_streams_are_of_single_precision_by_default(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", X.astype(np.float64))
    loader: Any = DataLoader(TensorDataset(torch.as_tensor(X).double()), batch_size=100)
    for rows in (tmp_path / "rows.npy", loader, loader.dataset):
        for dtype, expected in (("auto", torch.float32), ("float64", torch.float64), ("bfloat16", torch.float32)):
            assert types_of(clustering(dtype=dtype, max_epochs=1).fit(rows)) == {expected}


def test_unknown_types_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Unknown dtype 'float16'\..* Valid names: auto, float32, float64, bfloat16"):
        clustering(dtype="float16").fit(X)


# Compilation


@pytest.fixture
def eagerly_compiled(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """All of torch.compile but for the compiler, which takes long; and what was compiled."""
    compiled: list[nn.Module] = []
    original = torch.compile

    def compile_it(module: Any, **options: Any) -> Any:
        compiled.append(module)
        return original(module, backend="eager", **options)

    monkeypatch.setattr(torch, "compile", compile_it)
    return compiled


@pytest.mark.parametrize(
    "options",
    every_other([{"model": own}, {}, {"penalties": {"vat": 0.1}}, {"dtype": "bfloat16"}]),
    ids=without_addresses,
)
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.filterwarnings("ignore:'onnxscript")  # Of itself, in its oldest releases, which the compiler imports.
def test_compiled_networks_learn_the_same(eagerly_compiled: list[nn.Module], options: dict[str, Any]) -> None:
    torch._dynamo.reset()
    options = {"max_epochs": 4, "optimiser": "adamw", **options}
    fitted, plain = (clustering(compile=flag, **options).fit(X) for flag in (True, False))
    assert len(eagerly_compiled) == 1
    np.testing.assert_allclose(fitted.history_["objective"], plain.history_["objective"], rtol=1e-4)
    np.testing.assert_allclose(fitted.predict_proba(X), plain.predict_proba(X), atol=1e-3)
    assert fitted.module_.state_dict().keys() == plain.module_.state_dict().keys()


def test_compiled_restarts_are_trained_one_by_one(eagerly_compiled: list[nn.Module]) -> None:
    torch._dynamo.reset()
    fitted = clustering(compile=True, n_init=2, max_epochs=8).fit(X)
    assert len(eagerly_compiled) == 2
    assert adjusted_rand_score(fitted.labels_, CLASSES) == 1


@pytest.mark.skipif(not (shutil.which("c++") or shutil.which("g++")), reason="there is no compiler")
@pytest.mark.skipif(os.environ.get("POLLUX_FAULTS") != "full", reason="it takes long: make test-faults")
@pytest.mark.filterwarnings("ignore")
def test_a_compiler_can_be_used_in_earnest() -> None:
    torch._dynamo.reset()
    fitted, plain = (
        clustering(compile=flag, model="linear", max_epochs=2, batch_size=150).fit(X) for flag in (True, False)
    )
    np.testing.assert_allclose(fitted.history_["objective"], plain.history_["objective"], rtol=1e-4)
    np.testing.assert_allclose(fitted.predict_proba(X), plain.predict_proba(X), atol=1e-3)


# Devices

SHAPES = {"linear": (4,), "mlp": (4,), "lenet5": (1, 28, 28), "resnet18": (3, 32, 32)}
OBJECTIVES = [name for name in GEMINIS if not name.startswith("wasserstein")]


def affinities(name: str, n: int, device: str) -> list[Any]:
    """What an objective may be given, with numbers on a device."""
    if Gemini(name).needs is None:
        return [None]
    return [torch.ones(n, n, device=device), Features(torch.ones(n, 2, device=device))]


@pytest.mark.parametrize("name", SHAPES)
def test_networks_know_their_shapes_without_numbers(name: str) -> None:
    (module,) = models.build(name, SHAPES[name], 5, 1)
    logits = module.to("meta")(torch.empty(6, *SHAPES[name], device="meta"))
    assert logits.shape == (6, 5)
    assert log_probabilities(module, torch.empty(6, *SHAPES[name], device="meta"), 5).shape == (6, 5)


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("several", [(), (2,)])
def test_objectives_know_their_shapes_without_numbers(name: str, several: tuple[int, ...]) -> None:
    logits = torch.empty(*several, 8, 3, device="meta", requires_grad=True)
    for affinity in affinities(name, 8, "meta"):
        for weight in (None, torch.empty(8, device="meta")):
            value = Gemini(name)(logits.log_softmax(-1), affinity, sample_weight=weight)
            assert value.shape == several
            assert torch.autograd.grad(value.sum(), logits)[0].shape == logits.shape


class Apart(TorchDispatchMode):
    """Raises where numbers of the processor meet those of another device, but for single ones and for copies."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        met = {leaf.device.type for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.ndim}
        if len(met) > 1 and func.overloadpacket not in (torch.ops.aten.copy_, torch.ops.aten._to_copy):
            raise RuntimeError(f"{func} is given tensors on different devices")
        return func(*args, **(kwargs or {}))


@pytest.fixture
def apart() -> Iterator[None]:
    """There are no numbers on the meta device: whoever looks at some is found out too."""
    with Apart():
        yield


def there(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def networks(count: int) -> list[nn.Module]:
    return [module.to("meta") for module in models.build("mlp", (4,), 3, count, hidden=(5,))]


def test_who_mixes_devices_is_found_out(apart: None) -> None:
    with pytest.raises(RuntimeError, match="different devices"):
        there(3) + torch.ones(3)
    with pytest.raises(RuntimeError, match="different devices"):
        there(3)[torch.arange(2)]
    with pytest.raises(RuntimeError, match="meta"):
        bool(there(3).sum() > 0)
    with pytest.raises((RuntimeError, TypeError), match="meta"):
        there(3).numpy()


@pytest.mark.parametrize(("name", "weighted", "several"), combinations_of(OBJECTIVES, [False, True], [False, True]))
def test_steps_stay_on_the_device_of_their_rows(apart: None, name: str, weighted: bool, several: bool) -> None:
    weight = there(8, dtype=torch.float64) if weighted else None
    for affinity in affinities(name, 8, "meta"):
        batch = Batch(there(8, 4), affinity, weight)
        modules = networks(1 + several)
        model = StackedModels(modules, 3) if several else SingleModel(modules[0], 3)
        by_autograd = AutogradStep(model, Gemini(name), make_optimiser("sgd", model.parameters(), 0.1))
        logits, values = by_autograd(batch)
        assert logits.is_meta
        assert values.is_meta
        model.sync()
        assert not has_compiled_steps(modules[0], 3)


@pytest.mark.parametrize(
    ("penalty", "several", "optimiser"),
    rotated(PENALTIES, [False, True], ["sgd", "rmsprop", torch.optim.Adam]),
    ids=without_addresses,
)
def test_penalties_and_optimisers_stay_on_the_device(apart: None, optimiser: Any, penalty: str, several: bool) -> None:
    modules = networks(1 + several)
    model = StackedModels(modules, 3) if several else SingleModel(modules[0], 3)
    how = make_optimiser(optimiser, model.parameters(), 0.1)
    # Random numbers are drawn on the processor.
    generator = torch.Generator().manual_seed(0)
    step = AutogradStep(model, Gemini("mmd_ovo"), how, [(PENALTIES[penalty], 0.1)], generator)
    for weight in (None, there(8, dtype=torch.float64)):
        logits, values = step(Batch(there(8, 4), there(8, 8), weight, spacing=there(8)))
    assert logits.shape == ((2, 8, 3) if several else (8, 3))
    assert values.shape == ((2,) if several else ())
    assert all(parameter.grad is not None and parameter.grad.is_meta for parameter in model.parameters())


@pytest.mark.parametrize(
    "objective",
    [
        Gemini("mmd_ovo", sampled_pairs=2),
        Gemini("kl_ovo", clip=1e-9),
        Gemini(f_divergence(lambda t: (t - 1) ** 2 / (t + 1), name="own")),
    ],
    ids=repr,
)
def test_other_objectives_stay_on_the_device_too(apart: None, objective: Gemini) -> None:
    logits = there(8, 3).requires_grad_()
    value = objective(logits.log_softmax(-1), there(8, 8), generator=torch.Generator().manual_seed(0))
    assert torch.autograd.grad(value, logits)[0].is_meta


def test_metrics_are_gathered_on_the_device(apart: None) -> None:
    (module,) = networks(1)
    assert all(tensor.is_meta for tensor in NanGuard(SingleModel(module, 3))._copy())
    metrics = ClusterMetrics()
    metrics.update(there(8, 3), there())
    assert metrics.mean().is_meta
    assert metrics.mean_since_last().is_meta
    kept = {
        name: torch.ones(value.shape) if isinstance(value, Tensor) else value for name, value in metrics.state().items()
    }
    again = ClusterMetrics()
    again.load_state(kept, torch.device("meta"))
    again.update(there(8, 3), there())
    assert again.mean().is_meta

"""Models of table rows, and modules from whatever a user passes as a model."""

import inspect
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pollux.geometry import KERNELS
from pollux.models import ACTIVATIONS, MODELS, FreeTable, build, free, kernel, linear, mlp, soft_tree


def output(module: nn.Module, *shape: int) -> Tensor:
    return module(torch.randn(*shape, generator=torch.Generator().manual_seed(0)))


def layers(module: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    return [layer for layer in module.modules() if type(layer) is kind]


def same_weights(first: nn.Module, second: nn.Module) -> bool:
    pairs = zip(first.state_dict().values(), second.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


# --- Free tables --------------------------------------------------------------------------------------------


def test_free_table_is_a_row_of_logits_for_each_sample() -> None:
    table = free(6, 4)
    assert isinstance(table, FreeTable)
    index = torch.tensor([5, 0, 5])
    assert torch.equal(table(index), table.logits[index])
    assert [tuple(parameter.shape) for parameter in table.parameters()] == [(6, 4)]


def test_free_table_starts_near_uniform_but_not_quite() -> None:
    torch.manual_seed(0)
    p = free(500, 3)(torch.arange(500)).detach().softmax(-1)
    assert float((p - 1 / 3).abs().max()) < 0.2
    assert float(p.std()) > 0.01


def test_free_table_trains_only_the_rows_of_the_batch() -> None:
    table = free(4, 2)
    table(torch.tensor([1, 3])).sum().backward()
    assert table.logits.grad is not None
    assert table.logits.grad.abs().sum(1).bool().tolist() == [False, True, False, True]


# --- Linear models and perceptrons --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [3, (3,)])
def test_linear_model_is_a_logistic_regression(size: int | tuple[int]) -> None:
    model = linear(size, 4)
    assert isinstance(model, nn.Linear)
    assert output(model, 5, 3).shape == (5, 4)


@pytest.mark.parametrize("factory", [linear, mlp])
def test_samples_of_several_dimensions_are_flattened(factory: type) -> None:
    model = factory((2, 3, 4), 5)
    assert output(model, 7, 2, 3, 4).shape == (7, 5)
    flat = nn.Sequential(*list(model)[1:])
    images = torch.randn(7, 2, 3, 4, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(model(images), flat(images.reshape(7, 24)))


@pytest.mark.parametrize("hidden", [(), (8,), (8, 6), [5, 4, 3], (8.0,)])
def test_perceptron_has_the_widths_that_were_asked_for(hidden: tuple[int, ...]) -> None:
    model = mlp(3, 4, hidden=hidden)
    widths = [3, *(int(width) for width in hidden), 4]
    shapes = [(layer.in_features, layer.out_features) for layer in layers(model, nn.Linear)]
    assert shapes == list(pairwise(widths))
    assert len(layers(model, nn.ReLU)) == len(hidden)
    assert output(model, 5, 3).shape == (5, 4)


def test_perceptron_has_one_hidden_layer_of_a_hundred_by_default() -> None:
    assert [layer.out_features for layer in layers(mlp(3, 4), nn.Linear)] == [100, 4]


@pytest.mark.parametrize(("name", "kind"), ACTIVATIONS.items())
def test_every_named_activation_is_used(name: str, kind: type[nn.Module]) -> None:
    model = mlp(3, 2, hidden=(4, 4), activation=name)
    assert len(layers(model, kind)) == 2
    assert output(model, 5, 3).isfinite().all()


def test_activation_may_be_a_class() -> None:
    model = mlp(3, 2, hidden=(4, 4), activation=nn.PReLU)
    first, second = layers(model, nn.PReLU)
    # Each layer learns its own slope.
    assert first is not second


def test_unknown_activation_lists_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="Unknown activation 'swish'") as error:
        mlp(3, 2, activation="swish")
    for name in ACTIVATIONS:
        assert name in str(error.value)


def test_each_layer_may_have_its_own_activation() -> None:
    model = mlp(3, 2, hidden=(4, 5, 6), activation=("tanh", "identity", nn.PReLU))
    kinds = [type(layer) for layer in model.children()]
    assert kinds == [nn.Linear, nn.Tanh, nn.Linear, nn.Identity, nn.Linear, nn.PReLU, nn.Linear]


def test_activations_are_as_many_as_hidden_layers() -> None:
    with pytest.raises(ValueError, match="1 entries for 2 hidden layers: give one for each"):
        mlp(3, 2, hidden=(4, 4), activation=("tanh",))


@pytest.mark.parametrize("hidden", [100, (0,), (5, -1)])
def test_hidden_widths_are_positive_numbers(hidden: object) -> None:
    with pytest.raises(ValueError, match="hidden is a sequence of positive layer widths"):
        mlp(3, 2, hidden=hidden)  # type: ignore[arg-type]


def test_models_are_differentiable_in_all_their_parameters() -> None:
    for model in (linear(3, 4), mlp(3, 4, hidden=(5, 6), activation="tanh")):
        output(model, 8, 3).logsumexp(-1).sum().backward()
        for parameter in model.parameters():
            assert parameter.grad is not None
            assert bool(parameter.grad.any())


def test_a_soft_tree_is_its_boxes_where_it_is_cold() -> None:
    torch.manual_seed(0)
    tree = soft_tree(4, 3, cuts=2, temperature=1e-4, features=[0, 2, 3])
    inputs = torch.randn(200, 4)
    chosen = tree(inputs).argmax(1)
    told = torch.full((200,), -1)
    for output, box in tree.boxes():
        inside = torch.ones(200, dtype=torch.bool)
        for feature, (low, high) in zip(tree.features, box, strict=True):
            inside &= (inputs[:, feature] > low) & (inputs[:, feature] <= high)
        assert bool((told[inside] == -1).all())
        told[inside] = output
    assert torch.equal(told, chosen)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cuts": 0}, "cuts is a positive whole number"),
        ({"temperature": 0}, "temperature is a positive number"),
        ({"features": [0, 0]}, "different numbers from 0 to 29"),
        ({"features": [30]}, "different numbers from 0 to 29"),
        ({}, r"2\^30 leaves: name at most 12"),
        ({"cuts": 3}, "name at most 6"),
    ],
)
def test_soft_trees_that_cannot_be_grown_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        soft_tree(30, 3, **options)


@pytest.mark.parametrize("name", KERNELS)
def test_features_of_landmarks_have_the_products_of_the_kernel(name: str) -> None:
    samples = torch.rand(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    model = kernel(3, 2, landmarks=20, kernel=name).double()
    model.adapt(samples)
    parameters = {**KERNELS[name].parameters, **({} if model.gamma is None else {"gamma": model.gamma})}
    features = KERNELS[name].function(samples, model.landmarks, **parameters) @ model.basis
    matrix = KERNELS[name].adapt(samples)(samples)
    # What is dropped is 1e-8 of the largest eigenvalue at most, which the trace bounds; some of sigmoid are negative.
    if name != "sigmoid":
        torch.testing.assert_close(features @ features.mT, matrix, rtol=0, atol=2e-8 * float(matrix.trace()))
    # There are fewer samples than landmarks: what is left counts for nothing.
    assert not model.basis[12:].any()
    assert not model.basis[:, 12:].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"landmarks": 0}, "landmarks is a positive whole number"),
        ({"landmarks": 2.5}, "landmarks is a positive whole number"),
        ({"kernel": "graph"}, "two by two"),
        ({"kernel": "euclidian"}, "euclidian"),
        ({"kernel": "linear", "gamma": 1.0}, "takes no parameters"),
        ({"gamma": "wide"}, "gamma is a positive number"),
        ({"gamma": 0.0}, "gamma is a positive number"),
    ],
)
def test_kernel_models_of_other_kernels_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernel(3, 2, **options)


# --- build --------------------------------------------------------------------------------------------------


SHAPES: dict[str, tuple[int, ...]] = {
    "free": (9,),
    "linear": (3,),
    "mlp": (3,),
    "kernel": (3,),
    "soft_tree": (3,),
    "lenet5": (1, 32, 32),
    "resnet18": (3, 32, 32),
}


def test_every_model_of_the_registry_is_built_here() -> None:
    assert set(SHAPES) == set(MODELS)
    for factory in MODELS.values():
        # A factory takes the shape of a sample and the number of clusters; what else it takes has a default.
        _, _, *options = inspect.signature(factory).parameters.values()
        assert all(option.default is not option.empty for option in options)


@pytest.mark.parametrize("name", MODELS)
def test_named_models_return_a_logit_for_each_cluster(name: str) -> None:
    (module,) = build(name, SHAPES[name], 4)
    module.eval()
    inputs = torch.arange(2) if name == "free" else torch.zeros(2, *SHAPES[name])
    with torch.no_grad():
        assert module(inputs).shape == (2, 4)


@pytest.mark.parametrize("name", MODELS)
def test_restarts_of_named_models_have_weights_of_their_own(name: str) -> None:
    first, second = build(name, SHAPES[name], 4, count=2)
    assert not same_weights(first, second)


@pytest.mark.parametrize("name", ["free", "linear", "mlp"])
def test_weights_come_from_the_seed(name: str) -> None:
    def seeded(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return build(name, SHAPES[name], 4)[0]

    assert same_weights(seeded(0), seeded(0))
    assert not same_weights(seeded(0), seeded(1))


def test_options_reach_a_named_model() -> None:
    for module in build("mlp", (3,), 2, count=2, hidden=(7, 5), activation="tanh"):
        assert [layer.out_features for layer in layers(module, nn.Linear)] == [7, 5, 2]
        assert len(layers(module, nn.Tanh)) == 2


def test_unknown_model_lists_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="Unknown model 'transformer'") as error:
        build("transformer", (3,), 2)
    for name in (*MODELS, "nn.Module"):
        assert name in str(error.value)


@pytest.mark.parametrize("model", [None, 3, ["mlp"]])
def test_what_is_no_model_is_refused(model: object) -> None:
    with pytest.raises(TypeError, match=r"A model is a name, an nn\.Module or a function"):
        build(model, (3,), 2)  # type: ignore[arg-type]


def test_users_module_is_copied_with_its_weights() -> None:
    users = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))
    before = {name: value.clone() for name, value in users.state_dict().items()}
    (module,) = build(users, (3,), 2)
    assert module is not users
    assert same_weights(module, users)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(1.0)
    output(module, 4, 3)
    for name, value in users.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_restarts_of_a_users_module_begin_with_its_weights_and_then_have_new_ones() -> None:
    users = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    before = {name: value.clone() for name, value in users.state_dict().items()}
    modules = build(users, (3,), 2, count=3)
    assert len({id(module) for module in modules}) == 3
    for i, module in enumerate(modules):
        assert same_weights(module, users) == (i == 0)
        assert not any(same_weights(module, other) for other in modules[:i])
        assert output(module, 4, 3).isfinite().all()
    for name, value in users.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_restarts_forget_running_statistics() -> None:
    users = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    output(users, 8, 3)
    for module in build(users, (3,), 2, count=3)[1:]:
        assert not bool(module[0].running_mean.any())
        assert int(module[0].num_batches_tracked) == 0


class Scaled(nn.Module):
    """A layer of one's own that says nothing of how it starts."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.linear = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(self.scale * x)


class Resettable(Scaled):
    def reset_parameters(self) -> None:
        nn.init.normal_(self.scale)


def test_restarts_of_a_module_that_cannot_be_reset_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Scaled has no reset_parameters: pass a function"):
        build(nn.Sequential(Scaled()), (3,), 2, count=2)
    # A single training needs no new weights.
    assert len(build(nn.Sequential(Scaled()), (3,), 2)) == 1


def test_restarts_use_a_modules_own_reset() -> None:
    given, first, second = build(Resettable(), (3,), 2, count=3)
    assert bool((given.get_parameter("scale") == 1).all())
    assert not torch.equal(first.get_parameter("scale"), second.get_parameter("scale"))
    assert not torch.equal(first.get_parameter("linear.weight"), second.get_parameter("linear.weight"))


@pytest.mark.parametrize(("shape", "size"), [((3,), 3), ((1, 4, 4), (1, 4, 4))])
def test_factory_gets_the_size_of_a_row_or_the_shape_of_an_image(shape: tuple[int, ...], size: object) -> None:
    calls = []

    def factory(size: object, n_clusters: int, *, width: int = 1) -> nn.Module:
        calls.append((size, n_clusters, width))
        return nn.Linear(width, n_clusters)

    modules = build(factory, shape, 5, count=2, width=7)
    assert calls == [(size, 5, 7)] * 2
    assert modules[0] is not modules[1]


def test_a_class_of_modules_is_a_factory() -> None:
    first, second = build(nn.Linear, (3,), 2, count=2)
    assert isinstance(first, nn.Linear)
    assert not same_weights(first, second)


@pytest.mark.parametrize("result", [None, 3, torch.zeros(2)])
def test_factory_that_returns_no_module_is_refused(result: object) -> None:
    with pytest.raises(TypeError, match=f"must return an nn.Module, not {type(result).__name__}"):
        build(lambda size, n_clusters: result, (3,), 2)  # type: ignore[arg-type,return-value]

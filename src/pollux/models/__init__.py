"""Models p(y|x): factories ``(shape of a sample, n_clusters) → nn.Module`` whose modules return logits (n, K)."""

from pollux.models.kernel import KernelNetwork, kernel
from pollux.models.registry import MODELS, build
from pollux.models.soft_tree import SoftTreeNetwork, soft_tree
from pollux.models.tabular import ACTIVATIONS, NORMS, FreeTable, activations, free, linear, mlp
from pollux.models.vision import lenet5, resnet18

__all__ = [
    "ACTIVATIONS",
    "MODELS",
    "NORMS",
    "FreeTable",
    "KernelNetwork",
    "SoftTreeNetwork",
    "activations",
    "build",
    "free",
    "kernel",
    "lenet5",
    "linear",
    "mlp",
    "resnet18",
    "soft_tree",
]

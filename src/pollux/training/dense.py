"""Small dense networks trained without a tape: linear models and perceptrons, with all their restarts.

For such models the work of a step is less than the cost of recording it. Their forward pass, gradient and
Adam step are a few matrix products, written out here; the results are those of the taped loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

# Above this many parameters the work outweighs the recording, and the fused optimiser wins.
_MOST_PARAMETERS = 50_000

# Each activation, and its derivative as a function of its output.
_ACTIVATIONS: dict[type[nn.Module], tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    nn.ReLU: (torch.relu, lambda output: (output > 0).to(output.dtype)),
    nn.Tanh: (torch.tanh, lambda output: 1 - output * output),
    nn.Identity: (lambda inputs: inputs, torch.ones_like),
    nn.Sigmoid: (torch.sigmoid, lambda output: output * (1 - output)),
}


class _Layer(NamedTuple):
    """Views of the parameters of one layer, (…, h, d) and (…, 1, h), and of their gradients."""

    weight: Tensor
    bias: Tensor
    weight_gradient: Tensor
    bias_gradient: Tensor


class DenseModels:
    """R dense networks of one architecture, as one vector of parameters each.

    Inputs (n, d) → logits (R, n, K), or (n, K) for a single one.
    """

    def __init__(self, modules: Sequence[nn.Module], learning_rate: float) -> None:
        self.modules = list(modules)
        linears = [_linear_layers(module) for module in self.modules]
        layers = _flat(self.modules[0])
        self._activations = [_ACTIVATIONS[type(layer)] for layer in layers if type(layer) in _ACTIVATIONS]
        self.adam = Adam(_flatten(linears), learning_rate)
        self._layers = _views(linears[0], self.adam.parameters, self.adam.gradients)
        self._outputs: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits; what the gradient needs is kept."""
        self._outputs = [inputs.flatten(1)]
        *hidden, last = self._layers
        for layer, (activation, _) in zip(hidden, self._activations, strict=True):
            self._outputs.append(activation(_affine(self._outputs[-1], layer)))
        return _affine(self._outputs[-1], last)

    def descend(self, gradient: Tensor) -> None:
        """One step of Adam against the gradient (…, n, K) of the loss with respect to the logits."""
        for depth in reversed(range(len(self._layers))):
            layer, inputs = self._layers[depth], self._outputs[depth]
            torch.matmul(gradient.mT, inputs, out=layer.weight_gradient)
            torch.sum(gradient, -2, keepdim=True, out=layer.bias_gradient)
            if depth:
                _, derivative = self._activations[depth - 1]
                gradient = (gradient @ layer.weight).mul_(derivative(inputs))
        self.adam.step()

    def state(self) -> list[Tensor]:
        """All that training changes."""
        return [self.adam.parameters]

    def train(self, mode: bool = True) -> None:
        """Nothing here behaves differently in training."""

    @torch.no_grad()
    def sync(self) -> None:
        """Make the modules hold what was learned."""
        for r, module in enumerate(self.modules):
            for linear, layer in zip(_linear_layers(module), self._layers, strict=True):
                linear.weight.copy_(layer.weight.reshape(-1, *layer.weight.shape[-2:])[r])
                linear.bias.copy_(layer.bias.reshape(-1, layer.bias.shape[-1])[r])


class Adam:
    """Adam on one matrix of parameters (R, P), in the six operations that it is."""

    def __init__(self, parameters: Tensor, learning_rate: float, beta1: float = 0.9, beta2: float = 0.999) -> None:
        self.parameters = parameters
        self.gradients = torch.zeros_like(parameters)
        self._mean = torch.zeros_like(parameters)
        self._square = torch.zeros_like(parameters)
        self._learning_rate, self._beta1, self._beta2 = learning_rate, beta1, beta2
        self._steps = 0
        # The share of the learning rate to go on at.
        self.pace = 1.0

    def step(self) -> None:
        self._steps += 1
        self._mean.lerp_(self.gradients, 1 - self._beta1)
        self._square.mul_(self._beta2).addcmul_(self.gradients, self.gradients, value=1 - self._beta2)
        # The corrections of both moments, drawn out of the element-wise work.
        correction = (1 - self._beta2**self._steps) ** 0.5
        rate = self.pace * self._learning_rate * correction / (1 - self._beta1**self._steps)
        self.parameters.addcdiv_(self._mean, self._square.sqrt().add_(1e-8 * correction), value=-rate)

    def state(self) -> dict[str, Any]:
        """Its memory of the steps so far."""
        return {"mean": self._mean, "square": self._square, "steps": self._steps}

    def load_state(self, state: dict[str, Any]) -> None:
        """Remember this instead."""
        self._mean.copy_(state["mean"])
        self._square.copy_(state["square"])
        self._steps = state["steps"]


def has_closed_form(module: nn.Module, n_clusters: int) -> bool:
    """Whether the module is a small stack of linear layers with known activations, ending in n_clusters."""
    layers = _flat(module)
    parameters = list(module.parameters())
    return (
        len(layers) % 2 == 1
        and all(type(layer) is nn.Linear for layer in layers[::2])
        and all(type(layer) in _ACTIVATIONS for layer in layers[1::2])
        and all(layer.bias is not None for layer in _linear_layers(module))
        and _linear_layers(module)[-1].out_features == n_clusters
        and all(parameter.requires_grad for parameter in parameters)
        and sum(parameter.numel() for parameter in parameters) <= _MOST_PARAMETERS
    )


def _flat(module: nn.Module) -> list[nn.Module]:
    """The layers in their order, without a flattening that leads them."""
    layers = list(module) if type(module) is nn.Sequential else [module]
    return layers[1:] if layers and type(layers[0]) is nn.Flatten else layers


def _linear_layers(module: nn.Module) -> list[nn.Linear]:
    return [layer for layer in _flat(module) if isinstance(layer, nn.Linear)]


def _flatten(linears: Sequence[Sequence[nn.Linear]]) -> Tensor:
    """All parameters, a row a model: (R, P)."""
    rows = [
        torch.cat([part.detach().flatten() for linear in model for part in (linear.weight, linear.bias)])
        for model in linears
    ]
    return torch.stack(rows)


def _views(linears: Sequence[nn.Linear], parameters: Tensor, gradients: Tensor) -> list[_Layer]:
    layers: list[_Layer] = []
    start = 0
    for linear in linears:
        d, h = linear.in_features, linear.out_features
        middle, end = start + d * h, start + d * h + h
        views: list[Tensor] = []
        for matrix in (parameters, gradients):
            weight = matrix[:, start:middle].reshape(-1, h, d)
            bias = matrix[:, middle:end].reshape(-1, 1, h)
            # A single model goes without the leading dimension: plain matrix products are faster.
            views += [weight[0], bias[0]] if len(matrix) == 1 else [weight, bias]
        layers.append(_Layer(*views))
        start = end
    return layers


def _affine(inputs: Tensor, layer: _Layer) -> Tensor:
    if layer.weight.ndim == 2:
        return torch.addmm(layer.bias, inputs, layer.weight.mT)
    return inputs @ layer.weight.mT + layer.bias

"""Models as the loop trains them: one module, several restarts as one, or small dense networks with compiled steps."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from pollux.data.rows import Several
from pollux.errors import InputError
from pollux.models.onednn import fast_linear_layers
from pollux.native import load_compiled
from pollux.objectives.penalties import frozen_statistics
from pollux.ranks import Ranks

# With more parameters autograd's overhead is small, and torch's fused optimiser is faster.
_MOST_DENSE_PARAMETERS = 50_000

# Activations of dense networks, by their numbers in the compiled code.
_ACTIVATIONS: dict[type[nn.Module], int] = {nn.Identity: 0, nn.ReLU: 1, nn.Tanh: 2, nn.Sigmoid: 3}


class ModelError(ValueError):
    """The forward pass of a module failed."""


class Trainable(Protocol):
    """The interface of a model that the loop uses."""

    modules: list[nn.Module]
    """The R modules being trained."""

    def state(self) -> list[Tensor]:
        """All tensors that training changes: parameters and running statistics."""

    def train(self, mode: bool = True) -> None:
        """Set training mode or evaluation mode."""

    def sync(self) -> None:
        """Write trained parameters back to the modules."""


class SingleModel(Trainable):
    """One module: inputs (n, …) → log-probabilities (n, K).

    Parameters
    ----------
    module, n_clusters
        The module, and the number K of its logits.
    autocast : torch.dtype, optional
        The dtype of matrix products, if it is not that of the weights.
    compiled : bool
        Whether torch compiles the module.
    """

    def __init__(
        self,
        module: nn.Module,
        n_clusters: int,
        autocast: torch.dtype | None = None,
        compiled: bool = False,
    ) -> None:
        self.modules = [module]
        self.n_clusters = n_clusters
        self._autocast, self.compiled, self._is_checked = autocast, compiled, False
        # dynamic, because sizes of batches differ by one, which must not cause another compilation.
        self._forward: Any = torch.compile(module, dynamic=True) if compiled else module

    def __call__(self, inputs: Tensor | Several) -> Tensor:
        """Log-probabilities of inputs."""
        logits = logits_of(self._forward, inputs, self.n_clusters, self._autocast)
        if not self._is_checked:
            check_not_probabilities(logits.detach())
            self._is_checked = True
        return logits.log_softmax(-1)

    def each(self, inputs: Tensor) -> Tensor:
        """Log-probabilities of inputs that a penalty has modified."""
        # Modified inputs must not enter the running statistics of normalisation layers.
        with frozen_statistics(self.modules[0]):
            return self(inputs)

    def parameters(self) -> list[Tensor]:
        """The trainable parameters."""
        return [parameter for parameter in self.modules[0].parameters() if parameter.requires_grad]

    def state(self) -> list[Tensor]:
        return [*self.modules[0].parameters(), *self.modules[0].buffers()]

    def train(self, mode: bool = True) -> None:
        self.modules[0].train(mode)

    def broadcast_statistics(self, ranks: Ranks) -> None:
        """Give all processes the running statistics of the first."""
        for buffer in self.modules[0].buffers():
            ranks.broadcast(buffer)

    def sync(self) -> None:
        """Do nothing: the module is trained in place."""


@dataclass(frozen=True)
class One:
    """One of several stacked models, with the interface that penalties use."""

    forward: Callable[[Tensor], Tensor]
    own: list[Tensor]

    def __call__(self, inputs: Tensor) -> Tensor:
        return self.forward(inputs)

    def each(self, inputs: Tensor) -> Tensor:
        return self.forward(inputs)

    def parameters(self) -> list[Tensor]:
        return self.own


class StackedModels(Trainable):
    """R modules of one architecture as one: inputs (n, …) → log-probabilities (R, n, K).

    Parameters are stacked along a first dimension; an optimiser that treats each element separately trains them as it
    would train them one by one.
    """

    def __init__(self, modules: Sequence[nn.Module], n_clusters: int, autocast: torch.dtype | None = None) -> None:
        self.modules = list(modules)
        self.n_clusters = n_clusters
        self._autocast = autocast
        parameters, self._buffers = stack_module_state(self.modules)[0], dict(self.modules[0].named_buffers())
        self._stacked = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        self._skeleton = copy.deepcopy(self.modules[0]).to("meta")
        self._shared = vmap(self._call, in_dims=(0, None), randomness="different")
        self._each = vmap(self._call, in_dims=(0, 0), randomness="different")

    def _call(self, parameters: dict[str, Tensor], inputs: Tensor | Several) -> Tensor:
        def module(*args: Any, **kwargs: Any) -> Any:
            return functional_call(self._skeleton, {**parameters, **self._buffers}, args, kwargs)

        return logits_of(module, inputs, self.n_clusters, self._autocast).log_softmax(-1)

    def __call__(self, inputs: Tensor | Several) -> Tensor:
        """Log-probabilities of the same inputs for all models."""
        log_p: Tensor = self._shared(self._stacked, inputs)
        return log_p

    def each(self, inputs: Tensor) -> Tensor:
        """Log-probabilities of inputs (R, n, …) that differ between models."""
        log_p: Tensor = self._each(self._stacked, inputs)
        return log_p

    def alone(self, r: int) -> One:
        """The r-th model."""
        own = {name: value[r] for name, value in self._stacked.items()}
        return One(lambda inputs: self._call(own, inputs), list(own.values()))

    def parameters(self) -> list[Tensor]:
        """The trainable parameters, stacked."""
        return list(self._stacked.values())

    def state(self) -> list[Tensor]:
        return self.parameters()

    def train(self, mode: bool = True) -> None:
        self._skeleton.train(mode)

    def broadcast_statistics(self, ranks: Ranks) -> None:
        """Do nothing: modules with running statistics are not stacked."""

    @torch.no_grad()
    def sync(self) -> None:
        for r, module in enumerate(self.modules):
            for name, parameter in module.named_parameters():
                parameter.copy_(self._stacked[name][r])


def stackable(module: nn.Module) -> bool:
    """Whether copies of the module can be stacked and trained as one.

    Buffers (running statistics) are written in place, and frozen or shared parameters cannot be stacked.
    """
    distinct = {id(parameter) for parameter in module.parameters()}
    named = dict(module.named_parameters(remove_duplicate=False))
    return (
        (getattr(module, "has_fixed_buffers", False) or not any(True for _ in module.buffers()))
        and len(distinct) == len(named) > 0
        and all(parameter.requires_grad for parameter in module.parameters())
    )


def try_stack(
    modules: Sequence[nn.Module], n_clusters: int, inputs: Tensor | Several, autocast: torch.dtype | None = None
) -> StackedModels | None:
    """The modules stacked as one model, or None if their forward pass cannot be batched."""
    if not stackable(modules[0]):
        return None
    try:
        stacked = StackedModels(modules, n_clusters)
        stacked.train(False)
        with torch.no_grad():
            together = stacked(inputs)
            logits = [logits_of(module.eval(), inputs, n_clusters) for module in modules]
            alone = torch.stack(logits).log_softmax(-1)
    except (ModelError, RuntimeError):
        return None
    check_not_probabilities(logits[0])
    # A module may depend on more than its parameters, such as a tensor attribute: compare with the module alone.
    if not torch.allclose(together, alone, rtol=1e-4, atol=1e-5, equal_nan=True):
        return None
    return stacked if autocast is None else StackedModels(modules, n_clusters, autocast)


class DenseModels(Trainable):
    """R dense networks of one architecture, trained by compiled steps of Adam: inputs (n, d) → logits (R, n, K).

    A step takes less time than autograd's overhead for it. The results are those of
    :class:`~pollux.training.AutogradStep`.
    """

    def __init__(
        self, modules: Sequence[nn.Module], learning_rate: float, beta1: float = 0.9, beta2: float = 0.999
    ) -> None:
        native = load_compiled()
        assert native is not None
        self._native, self.modules = native, list(modules)
        self._linears = [_dense_layers(module)[::2] for module in modules]
        layers = _dense_layers(modules[0])
        self.parameters = torch.stack(
            [
                torch.cat([part.detach().flatten() for linear in own for part in (linear.weight, linear.bias)])
                for own in self._linears
            ]
        )
        """Parameters of all layers (R, P): weights and biases of the first, of the second, …"""
        self._mean, self._square = torch.zeros_like(self.parameters), torch.zeros_like(self.parameters)
        self._steps, self._betas, self.learning_rate = 0, (beta1, beta2), float(learning_rate)
        widths = [layers[0].in_features, *(linear.out_features for linear in layers[::2])]
        self._n_clusters = widths[-1]
        activations = [_ACTIVATIONS[type(layer)] for layer in layers[1::2]]
        self._network = (np.array(widths, np.intc), np.array(activations, np.intc), self.parameters.numpy())
        self._moments = (self._mean.numpy(), self._square.numpy())

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (R, n, K)."""
        logits = torch.empty(len(self.modules), len(inputs), self._n_clusters, dtype=self.parameters.dtype)
        self._native.forward(*self._network, self._as_rows(inputs), logits.numpy())
        return logits

    def ascend(self, inputs: Tensor, gradient: Tensor, factor: float) -> None:
        """One step of Adam along the gradient (R, n, K) with respect to logits, at this share of the learning rate."""
        rows, rate = self._as_rows(inputs), factor * self.learning_rate
        gradient = gradient.contiguous()
        self._native.ascend(*self._network, *self._moments, self._steps, *self._betas, rows, gradient.numpy(), rate)
        self._steps += 1

    def take_steps(
        self,
        objective: str,
        inputs: NDArray[Any],
        features: NDArray[Any],
        weight: NDArray[np.float64],
        labels: NDArray[np.int64],
        index: NDArray[np.int64],
        ends: NDArray[np.int64],
        factors: Sequence[float],
        clip: float = 0.0,
        label_smoothing: float = 0.0,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Steps of Adam on batches ``index[:ends[0]]``, ``index[ends[0]:ends[1]]``, … of samples in memory.

        Returns the objectives and the sums of entropies (S, R), and the numbers of samples in each cluster (S, R, K).
        """
        S, R = len(ends), len(self.modules)
        values, entropy, counts = np.empty((S, R)), np.empty((S, R)), np.empty((S, R, self._n_clusters), np.int64)
        rates = np.full(S, self.learning_rate * factors[0])
        if len(factors) > 1:
            rates = self.learning_rate * np.array(factors)
        self._native.train_steps(
            *(*self._network, *self._moments, self._steps, *self._betas, objective, clip, label_smoothing),
            *(inputs, features, weight, labels, index, ends, rates, values, entropy, counts),
        )
        self._steps += S
        return torch.from_numpy(values), torch.from_numpy(entropy), torch.from_numpy(counts)

    def _as_rows(self, inputs: Tensor) -> NDArray[Any]:
        rows: NDArray[Any] = inputs.flatten(1).to(self.parameters.dtype).contiguous().numpy()
        return rows

    def optimiser_state(self) -> dict[str, Any]:
        """Moments and number of steps of Adam."""
        return {"mean": self._mean, "square": self._square, "steps": self._steps}

    def load_optimiser_state(self, state: dict[str, Any]) -> None:
        """Restore an :meth:`optimiser_state`."""
        self._mean.copy_(state["mean"])
        self._square.copy_(state["square"])
        self._steps = state["steps"]

    def state(self) -> list[Tensor]:
        return [self.parameters]

    def train(self, mode: bool = True) -> None:
        """Do nothing: the layers behave the same in training and in evaluation."""

    @torch.no_grad()
    def sync(self) -> None:
        for own, linears in zip(self.parameters, self._linears, strict=True):
            start = 0
            for part in (part for linear in linears for part in (linear.weight, linear.bias)):
                part.copy_(own[start : start + part.numel()].view_as(part))
                start += part.numel()


def has_compiled_steps(module: nn.Module, n_clusters: int) -> bool:
    """Whether the module is a small stack of linear layers with known activations, ending in n_clusters."""
    layers, parameters = _dense_layers(module), list(module.parameters())
    return (
        load_compiled() is not None
        and len(layers) % 2 == 1
        and all(type(layer) is nn.Linear and layer.bias is not None for layer in layers[::2])
        and all(type(layer) in _ACTIVATIONS for layer in layers[1::2])
        and layers[-1].out_features == n_clusters
        and all(parameter.requires_grad and parameter.device.type == "cpu" for parameter in parameters)
        and {parameter.dtype for parameter in parameters} in ({torch.float32}, {torch.float64})
        and sum(parameter.numel() for parameter in parameters) <= _MOST_DENSE_PARAMETERS
    )


def _dense_layers(module: nn.Module) -> list[Any]:
    """The layers in order, without a leading nn.Flatten."""
    layers = list(module) if type(module) is nn.Sequential else [module]
    return layers[1:] if layers and type(layers[0]) is nn.Flatten else layers


def logits_of(
    module: Callable[..., Any], inputs: Tensor | Several, n_clusters: int, autocast: torch.dtype | None = None
) -> Tensor:
    """Logits (n, K) of inputs (n, …); raises an error that says how the module failed.

    A module may also return an object or a mapping with ``logits``, or a tuple that begins with them. With ``autocast``
    matrix products have that dtype, and logits one in which probabilities can be computed.
    """
    try:
        with fast_linear_layers() if autocast is None else torch.autocast(inputs.device.type, autocast):
            output = inputs.pass_to(module) if isinstance(inputs, Several) else module(inputs)
    except (RuntimeError, TypeError, ValueError, IndexError) as error:
        raise ModelError(f"The model failed on inputs of shape {tuple(inputs.shape)}: {error}") from error
    logits = output
    if isinstance(output, Mapping) and "logits" in output:
        logits = output["logits"]
    elif isinstance(output, tuple | list) and output and not hasattr(output, "logits"):
        logits = output[0]
    elif not isinstance(output, Tensor):
        logits = getattr(output, "logits", output)
    shape = tuple(getattr(logits, "shape", ()))
    if not isinstance(logits, Tensor) or shape != (len(inputs), n_clusters) or not logits.is_floating_point():
        raise ValueError(
            f"The model must return one logit for each sample and cluster: a tensor of shape "
            f"({len(inputs)}, {n_clusters}) for {len(inputs)} samples and n_clusters={n_clusters}. It returned "
            f"{type(logits).__name__} {shape} of {getattr(logits, 'dtype', 'no type')}."
        )
    return logits if autocast is None else logits.float()


def check_not_probabilities(logits: Tensor) -> None:
    """Raise an InputError if rows (n, K) are probabilities: non-negative, with a sum of one."""
    if logits.is_meta or logits.shape[1] < 2 or not bool((logits >= 0).all()):
        return
    # Rounding error of a sum of K numbers.
    tolerance = logits.shape[1] * torch.finfo(logits.dtype).eps
    if bool(((logits.sum(1) - 1).abs() <= tolerance).all()):
        raise InputError(
            "The model returns probabilities: rows of at least 0 that sum to 1. It must return logits: leave out the "
            "softmax at its end."
        )

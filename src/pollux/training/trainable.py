"""What the loop trains: one module, or several restarts of it as one batched model."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from pollux.ranks import Ranks


class SingleModel:
    """One module: inputs (n, …) → log-probabilities (n, K).

    ``autocast`` is the type that matrix products are computed in, where it is not that of the weights; ``compiled``
    has torch compile the module.
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
        self._autocast = autocast
        # Batches differ by a row in size, which must not lead to more than one compilation.
        self._forward: Any = torch.compile(module, dynamic=True) if compiled else module

    def __call__(self, inputs: Tensor) -> Tensor:
        """Log-probabilities of inputs."""
        with casting(self._autocast, inputs.device):
            logits = run(self._forward, inputs, self.n_clusters)
        return full(logits, self._autocast).log_softmax(-1)

    def each(self, inputs: Tensor) -> Tensor:
        """The same for inputs that are no data of the training: a penalty's own."""
        # Moved inputs are not data: the running statistics of normalisation layers must not see them.
        with _frozen_statistics(self.modules[0]):
            return self(inputs)

    def parameters(self) -> list[Tensor]:
        """What the optimiser may change."""
        return [parameter for parameter in self.modules[0].parameters() if parameter.requires_grad]

    def state(self) -> list[Tensor]:
        """All that training changes: parameters and running statistics."""
        return [*self.modules[0].parameters(), *self.modules[0].buffers()]

    def train(self, mode: bool = True) -> None:
        """Training mode, or evaluation mode."""
        self.modules[0].train(mode)

    def share_statistics(self, ranks: Ranks) -> None:
        """Let all processes have the running statistics of the first."""
        for buffer in self.modules[0].buffers():
            ranks.broadcast(buffer)

    def sync(self) -> None:
        """Make the modules hold what was learned: they always do."""


class StackedModels:
    """R modules of one architecture as one: inputs (n, …) → log-probabilities (R, n, K).

    Parameters are stacked along a first dimension, and each optimiser that works element by element trains
    them as it would one by one.
    """

    def __init__(self, modules: Sequence[nn.Module], n_clusters: int, autocast: torch.dtype | None = None) -> None:
        self.modules = list(modules)
        self.n_clusters = n_clusters
        self._autocast = autocast
        parameters, _ = stack_module_state(self.modules)
        self._stacked = {name: value.detach().requires_grad_() for name, value in parameters.items()}
        self._skeleton = copy.deepcopy(self.modules[0]).to("meta")
        self._shared = vmap(self._call, in_dims=(0, None), randomness="different")
        self._each = vmap(self._call, in_dims=(0, 0), randomness="different")

    def _call(self, parameters: dict[str, Tensor], inputs: Tensor) -> Tensor:
        with casting(self._autocast, inputs.device):
            logits: Tensor = functional_call(self._skeleton, parameters, (inputs,))
        check_logits(logits, len(inputs), self.n_clusters)
        return full(logits, self._autocast).log_softmax(-1)

    def __call__(self, inputs: Tensor) -> Tensor:
        """Log-probabilities of inputs that all models share."""
        log_p: Tensor = self._shared(self._stacked, inputs)
        return log_p

    def each(self, inputs: Tensor) -> Tensor:
        """The same for inputs (R, n, …), each model its own."""
        log_p: Tensor = self._each(self._stacked, inputs)
        return log_p

    def parameters(self) -> list[Tensor]:
        """What the optimiser may change, stacked."""
        return list(self._stacked.values())

    def state(self) -> list[Tensor]:
        """All that training changes."""
        return self.parameters()

    def train(self, mode: bool = True) -> None:
        """Training mode, or evaluation mode."""
        self._skeleton.train(mode)

    def share_statistics(self, ranks: Ranks) -> None:
        """Modules with running statistics are not stacked."""

    @torch.no_grad()
    def sync(self) -> None:
        """Make the modules hold what was learned."""
        for r, module in enumerate(self.modules):
            for name, parameter in module.named_parameters():
                parameter.copy_(self._stacked[name][r])


def stackable(module: nn.Module) -> bool:
    """Whether copies of the module can be trained as one.

    Buffers (running statistics) are written in place, and frozen or shared parameters would be torn apart.
    """
    distinct = {id(parameter) for parameter in module.parameters()}
    named = dict(module.named_parameters(remove_duplicate=False))
    return (
        not any(True for _ in module.buffers())
        and len(distinct) == len(named) > 0
        and all(parameter.requires_grad for parameter in module.parameters())
    )


def try_stack(
    modules: Sequence[nn.Module], n_clusters: int, inputs: Tensor, autocast: torch.dtype | None = None
) -> StackedModels | None:
    """The modules as one model, or None where their forward pass cannot be batched."""
    if not stackable(modules[0]):
        return None
    try:
        stacked = StackedModels(modules, n_clusters)
        stacked.train(False)
        with torch.no_grad():
            together = stacked(inputs)
            alone = torch.stack([module.eval()(inputs).log_softmax(-1) for module in modules])
    except (RuntimeError, NotImplementedError):
        return None
    # A module may hold more than its parameters show, such as a plain tensor of its own.
    same = torch.allclose(together, alone, rtol=1e-4, atol=1e-5, equal_nan=True)
    if not same:
        return None
    return stacked if autocast is None else StackedModels(modules, n_clusters, autocast)


def casting(dtype: torch.dtype | None, device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Matrix products in another type than that of the weights, or as they are."""
    return contextlib.nullcontext() if dtype is None else torch.autocast(device.type, dtype)


def full(logits: Tensor, autocast: torch.dtype | None) -> Tensor:
    """Logits in a type that probabilities can be computed in."""
    return logits if autocast is None else logits.float()


def run(module: nn.Module, inputs: Tensor, n_clusters: int) -> Tensor:
    """Logits (n, K) of inputs (n, …), or an error that says how the module failed."""
    try:
        logits: Tensor = module(inputs)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"The model failed on inputs of shape {tuple(inputs.shape)}: {error}") from error
    check_logits(logits, len(inputs), n_clusters)
    return logits


def check_logits(logits: Tensor, n: int, n_clusters: int) -> None:
    shape = tuple(getattr(logits, "shape", ()))
    if not isinstance(logits, Tensor) or shape != (n, n_clusters) or not logits.is_floating_point():
        raise ValueError(
            f"The model must return one logit for each sample and cluster: a tensor of shape ({n}, {n_clusters}) "
            f"for {n} samples and n_clusters={n_clusters}. It returned {type(logits).__name__} {shape} "
            f"of {getattr(logits, 'dtype', 'no type')}."
        )


@contextlib.contextmanager
def _frozen_statistics(module: nn.Module) -> Iterator[None]:
    norms = [
        layer
        for layer in module.modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm | nn.modules.instancenorm._InstanceNorm)
        and layer.track_running_stats
        and layer.training
    ]
    for layer in norms:
        layer.track_running_stats = False
    try:
        yield
    finally:
        for layer in norms:
            layer.track_running_stats = True

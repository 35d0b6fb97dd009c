"""Training steps, and the metrics of an epoch of them.

Model, objective and penalties only meet in a step, and only a step negates the objective.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from pollux.errors import unknown
from pollux.geometry.affinity import Features
from pollux.objectives.gemini import Gemini
from pollux.objectives.gradients import DISTRIBUTED_FORMS, as_arrays, is_compiled, value_and_gradient
from pollux.objectives.penalties import Penalty
from pollux.ranks import Ranks
from pollux.training.batches import Batch
from pollux.training.trainable import DenseModels, SingleModel, StackedModels

Factory = Callable[..., torch.optim.Optimizer]

OPTIMISERS: dict[str, Factory] = {
    "adam": partial(torch.optim.Adam, fused=True),
    "adamw": partial(torch.optim.AdamW, fused=True),
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
    "lbfgs": torch.optim.LBFGS,
}
_PENDING_ROWS = 10_000
_SEPARATE = 32
# A placeholder, where it only matters that the affinity has features.
_FEATURES = Features(torch.empty(0, 1))
# Optimisers that treat each element separately, so that stacked models are trained as they would be alone.
_ELEMENTWISE = (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop)


class NotFiniteError(ValueError):
    """The objective, or the named penalty, is NaN or infinite, and there are no good weights to restore."""

    def __init__(self, value: float, penalty: str = "") -> None:
        self.value = value
        what, advice = f"penalty {penalty}", "It must be finite at the first step, as the objective is."
        if not penalty:
            what = "objective"
            advice = (
                "Either X holds values too large for this arithmetic (scale them, for instance with StandardScaler), "
                "or the learning rate is far too large, or the kernel or distance holds NaN, or the model itself "
                "returns NaN, or a penalty does."
            )
        super().__init__(f"The {what} is {value}: nothing can be learned. {advice}")


class EpochMetrics:
    """The mean objective (R,) of an epoch; subclasses add metrics from the outputs of steps.

    Attributes
    ----------
    names : tuple of str
        Names of the metrics that :meth:`compute` returns.
    """

    names: tuple[str, ...] = ("objective",)

    def __init__(self) -> None:
        self._values: list[Tensor] = []
        self._earlier: Tensor | None = None
        self._n_earlier = 0

    def update(self, outputs: Any, values: Tensor) -> None:
        """Add the outputs and objectives of a step, () or (R,), or of several steps, (steps, R)."""
        _append(self._values, values if values.ndim == 2 else values.reshape(1, -1))

    def mean_since_last(self) -> Tensor:
        """Mean objective (R,) of the steps since the last call."""
        values = torch.cat(self._values)
        total = values.sum(0)
        self._earlier = total if self._earlier is None else self._earlier + total
        self._n_earlier += len(values)
        self._values = []
        return values.mean(0)

    def mean(self) -> Tensor:
        """Mean objective (R,) of all steps."""
        values = torch.cat(self._values) if self._values else None
        if self._earlier is None:
            assert values is not None
            return values.mean(0)
        total = self._earlier if values is None else self._earlier + values.sum(0)
        return total / (self._n_earlier + (0 if values is None else len(values)))

    def compute(self, ranks: Ranks | None = None) -> dict[str, Tensor]:
        """The metrics (R,) by name."""
        return {"objective": self.mean()}

    @staticmethod
    def of_epochs(outputs: Any, values: Tensor) -> dict[str, Tensor]:
        """The metrics (S, R) by name of S epochs of a single step each."""
        return {"objective": values}

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        values = torch.cat(self._values) if self._values else None
        return {"values": values, "earlier": self._earlier, "n_earlier": self._n_earlier}

    def load_state(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Restore a :meth:`state`."""
        values, earlier = state["values"], state["earlier"]
        # Earlier versions stored no column for a single model.
        self._values = [] if values is None else [values.to(device).reshape(len(values), -1)]
        self._earlier = None if earlier is None else earlier.to(device).reshape(-1)
        self._n_earlier = state["n_earlier"]

    def widths(self) -> set[int]:
        """Numbers of models of the metrics that were loaded; empty if there are none."""
        return {each.shape[-1] for each in (*self._values, self._earlier) if each is not None}


def _append(tensors: list[Tensor], rows: Tensor) -> None:
    """Append rows (steps, R), concatenated to earlier ones: many small tensors would fragment memory."""
    tensors.append(rows)
    if len(tensors) >= _SEPARATE:
        tensors[:] = [torch.cat(tensors)]


class Predicted(NamedTuple):
    """Summary of predictions: sums of entropies (S, R), samples in each cluster (S, R, K), and numbers of samples."""

    entropy: Tensor
    counts: Tensor
    rows: int


class ClusterMetrics(EpochMetrics):
    """Mean objective, number of non-empty clusters, and mean entropy of the predictions; each (R,).

    Predictions are collected and reduced many at a time, which costs fewer operations than after each step.
    """

    names = ("objective", "clusters", "entropy")

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[Tensor] = []
        self._rows = self._seen = 0
        self._counts: Tensor | None = None
        # Summed at the end, so that the result does not depend on how many steps run in one call.
        self._entropy: list[Tensor] = []

    def update(self, outputs: Tensor | Predicted, values: Tensor) -> None:
        """Add the predictions (…, n, K) and objectives of a step, or a summary of those of several steps."""
        super().update(outputs, values)
        if isinstance(outputs, Predicted):
            self._add(outputs)
            return
        self._pending.append(outputs)
        self._rows += outputs.shape[-2]
        if self._rows >= _PENDING_ROWS:
            self._flush()

    def _add(self, predicted: Predicted) -> None:
        counts = predicted.counts.sum(0)
        self._counts = counts if self._counts is None else self._counts + counts
        _append(self._entropy, predicted.entropy)
        self._seen += predicted.rows

    def _flush(self) -> None:
        if not self._pending:
            return
        log_p = torch.cat(self._pending, -2).log_softmax(-1)
        log_p = log_p.reshape(-1, *log_p.shape[-2:])
        R, n, K = log_p.shape
        offsets = torch.arange(0, R * K, K, device=log_p.device)[:, None]
        counts = torch.bincount((log_p.argmax(-1) + offsets).flatten(), minlength=R * K).reshape(R, K)
        self._add(Predicted(-(log_p.exp() * log_p).sum((-2, -1))[None], counts[None], n))
        self._pending, self._rows = [], 0

    def compute(self, ranks: Ranks | None = None) -> dict[str, Tensor]:
        self._flush()
        assert self._counts is not None
        counts, entropy, seen = self._counts, torch.cat(self._entropy).sum(0), torch.tensor(self._seen)
        if ranks is not None:
            counts, entropy, seen = ranks.sum(counts), ranks.sum(entropy), ranks.sum(seen)
        return {"objective": self.mean(), "clusters": (counts > 0).sum(-1), "entropy": entropy / int(seen)}

    @staticmethod
    def of_epochs(outputs: Predicted, values: Tensor) -> dict[str, Tensor]:
        entropy = outputs.entropy / (outputs.rows // len(values))
        return {"objective": values, "clusters": (outputs.counts > 0).sum(-1), "entropy": entropy}

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint. Pending predictions stay pending: the order of sums changes the last digits."""
        return {
            **super().state(),
            "pending": torch.cat(self._pending, -2) if self._pending else None,
            "counts": self._counts,
            "entropy": torch.cat(self._entropy) if self._entropy else None,
            "seen": self._seen,
        }

    def load_state(self, state: Mapping[str, Any], device: torch.device) -> None:
        super().load_state(state, device)
        pending, self._counts, entropy = (
            None if state[name] is None else state[name].to(device) for name in ("pending", "counts", "entropy")
        )
        self._pending, self._rows = ([], 0) if pending is None else ([pending], pending.shape[-2])
        # Earlier versions stored one sum for each model.
        self._entropy = [] if entropy is None else [entropy if entropy.ndim == 2 else entropy[None]]
        self._seen = state["seen"]

    def widths(self) -> set[int]:
        pending = {len(each) if each.ndim == 3 else 1 for each in self._pending}
        counts = set() if self._counts is None else {len(self._counts)}
        return super().widths() | pending | counts | {each.shape[-1] for each in self._entropy}


class Step(Protocol):
    """A training step on one batch, with the optimiser's state."""

    new_metrics: type[EpochMetrics] = ClusterMetrics
    """Creates the metrics of an epoch, which collect the outputs of steps."""

    def __call__(self, batch: Any) -> tuple[Any, Tensor]:
        """Take a step; returns outputs for the metrics, and the objective (…) of each model, which is maximised.

        Steps of a clustering return predictions (…, n, K), up to a constant for each sample.
        """

    def steps_at_once(self, batch_size: int) -> int:
        """Number of batches of this size that one call takes, as ``Batches.groups`` gives them; 0: only single ones."""
        return 0

    def scale_learning_rate(self, *factors: float) -> None:
        """Set the learning rate to this share of the initial one; or to several, one for each step of the next call."""

    def state(self) -> Any:
        """The optimiser's state, as plain data and tensors."""

    def load_state(self, state: Any) -> None:
        """Restore a :meth:`state`."""


class OptimiserStep(Step):
    """A step that uses a torch optimiser."""

    def __init__(self, optimiser: torch.optim.Optimizer) -> None:
        self._optimiser = optimiser
        self._rates, self._factor = [group["lr"] for group in optimiser.param_groups], 1.0

    def scale_learning_rate(self, *factors: float) -> None:
        (factor,) = factors
        if factor == self._factor:
            # A custom optimiser may change its rates by itself.
            return
        self._factor = factor
        for group, rate in zip(self._optimiser.param_groups, self._rates, strict=True):
            group["lr"] = factor * rate

    def state(self) -> Any:
        return self._optimiser.state_dict()

    @torch.no_grad()
    def load_state(self, state: Any) -> None:
        self._optimiser.load_state_dict(state)
        is_fused = any(group.get("fused") for group in self._optimiser.param_groups)
        for parameter, memory in self._optimiser.state.items():
            for name, value in memory.items():
                # Files hold contiguous tensors, and fused optimisers assume the strides of the parameter.
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    memory[name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
                elif is_fused and not (
                    isinstance(value, Tensor) and value.numel() == 1 and value.dtype == torch.float32
                ):
                    # Fused optimisers do not check shapes and types: they would read beyond the end of the tensor.
                    raise ValueError(f"the optimiser's {name} is of another shape or type than its parameter")


class AutogradStep(OptimiserStep):
    """Steps of any optimiser on any model, by autograd.

    Parameters
    ----------
    model : SingleModel or StackedModels
        The model to train.
    objective : Gemini
        The objective to maximise.
    optimiser : torch.optim.Optimizer
        The optimiser of the model's parameters.
    penalties : sequence of (penalty, weight)
        Penalties that are added to the loss.
    generator : torch.Generator, optional
        Random numbers of the objective; the same in all processes.
    ranks : Ranks, optional
        The processes that share each batch. The objective is computed on the whole batch.
    noise : torch.Generator, optional
        Random numbers of penalties, for the samples of this process alone; ``generator`` by default.
    """

    def __init__(
        self,
        model: SingleModel | StackedModels,
        objective: Gemini,
        optimiser: torch.optim.Optimizer,
        penalties: Sequence[tuple[Penalty, float]] = (),
        generator: torch.Generator | None = None,
        ranks: Ranks | None = None,
        noise: torch.Generator | None = None,
    ) -> None:
        super().__init__(optimiser)
        self._model, self._objective, self._penalties = model, objective, penalties
        self._generator, self._noise, self._ranks = generator, noise or generator, ranks
        # Whether penalties were finite at the first step; reading values would synchronise with other devices.
        self._is_checked = any(each.device.type != "cpu" for each in model.parameters())

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        seen: list[tuple[Tensor, Tensor]] = []

        def closure() -> Any:
            self._optimiser.zero_grad()
            log_p = self._model(batch.inputs)
            values, loss = self._backward(batch, log_p)
            seen.append((log_p.detach(), values.detach()))
            if self._ranks is None:
                return loss.detach()
            return add_gradients(self._model.parameters(), loss.detach(), self._ranks)

        self._optimiser.step(closure)
        if self._ranks is not None:
            self._model.broadcast_statistics(self._ranks)
        # An optimiser may evaluate the closure several times; the first evaluation is at the weights before the step.
        return seen[0]

    def _backward(self, batch: Batch, log_p: Tensor) -> tuple[Tensor, Tensor]:
        """Run the backward pass; returns objective and loss, with several processes this one's share of the loss."""
        ranks, size = self._ranks, 1 if self._ranks is None else self._ranks.size
        is_plain = not self._penalties and batch.sample_weight is None and batch.sizes is not None
        if ranks is not None and is_plain and self._objective.name in DISTRIBUTED_FORMS:
            # The closed form sends fewer messages than autograd would.
            with torch.no_grad():
                values, gradient = value_and_gradient(
                    self._objective, log_p, batch.affinity, None, self._generator, ranks, batch.sizes
                )
            # Log-probabilities are valid logits.
            log_p.backward(gradient.neg())  # type: ignore[no-untyped-call]
            return values, -values.sum() / size
        values = self._objective(
            log_p, batch.affinity, sample_weight=batch.sample_weight, generator=self._generator, ranks=ranks
        )
        loss, share = -values.sum() / size, 1.0
        if ranks is not None and self._penalties:
            # A penalty is a mean over the local samples, so it is weighted by their number.
            own = torch.tensor(float(len(batch.inputs)), dtype=torch.float64)
            if batch.sample_weight is not None:
                own = batch.sample_weight.sum().double()
            share = float(own / ranks.sum(own))
        for penalty, weight in self._penalties:
            also = {"spacing": batch.spacing} if getattr(penalty, "uses_spacing", False) else {}
            value = penalty(self._model, batch.inputs, log_p, batch.sample_weight, self._noise, **also)
            if not self._is_checked:
                _check_penalty(penalty, value.detach() if ranks is None else ranks.sum(value.detach()), values)
            loss = loss + weight * share * value.sum()
        self._is_checked = True
        loss.backward()  # type: ignore[no-untyped-call]
        return values, loss

    def load_state(self, state: Any) -> None:
        super().load_state(state)
        # A training that is resumed had finite penalties when it began.
        self._is_checked = True


def _check_penalty(penalty: Penalty, value: Tensor, objective: Tensor) -> None:
    """Raise a NotFiniteError if models have a finite objective () or (R,), but none of them a finite penalty."""
    is_finite = objective.isfinite()
    if bool(is_finite.any()) and not bool((is_finite & value.isfinite()).any()):
        name = getattr(penalty, "name", getattr(penalty, "__name__", repr(penalty)))
        raise NotFiniteError(float(value[~value.isfinite()][0]), name)


class CompiledStep(Step):
    """Compiled steps of Adam on small dense networks, on several batches in one call.

    Parameters
    ----------
    model : DenseModels
        The models to train.
    objective : Gemini, optional
        The objective to maximise. One that is not compiled, such as Wasserstein, passes its gradient to the network.
        Without one, steps are those of :class:`LabelStep`: towards the ``targets`` of a batch, by cross-entropy; with
        targets (n, R), each network has its own.
    generator : torch.Generator, optional
        Random numbers of the objective.
    label_smoothing : float
        The share of a label's probability that is spread over all clusters.
    """

    def __init__(
        self,
        model: DenseModels,
        objective: Gemini | None = None,
        generator: torch.Generator | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        self._model, self._objective, self._generator, self._smoothing = model, objective, generator, label_smoothing
        self._factors: tuple[float, ...] = (1.0,)
        self._has_compiled_form = objective is None or is_compiled(objective, _FEATURES, model.parameters)
        self._needs_features = objective is not None and objective.needs is not None
        # The samples of the last call, and the arrays made from them, which the next call may reuse.
        self._last: tuple[Any, ...] = ()
        self._arrays: tuple[Any, ...] = ()
        self.new_metrics = EpochMetrics if objective is None else ClusterMetrics

    def steps_at_once(self, batch_size: int) -> int:
        if not self._has_compiled_form:
            return 0
        # A few hundredths of a second per call, so that Ctrl-C is handled promptly.
        return next((count for count in (100, 20, 5) if count * batch_size * self._model.parameters.numel() < 2e8), 1)

    @torch.no_grad()
    def __call__(self, batch: Batch) -> tuple[Tensor | Predicted, Tensor]:
        model, objective, inputs = self._model, self._objective, batch.inputs
        is_given = not self._needs_features or isinstance(batch.affinity, Features)
        if objective is not None and not (self._has_compiled_form and is_given):
            logits = model.forward(inputs)
            values, gradient = value_and_gradient(
                objective, logits, batch.affinity, batch.sample_weight, self._generator
            )
            model.ascend(inputs, gradient, *self._factors)
            return logits, values
        samples = (inputs, batch.affinity, batch.sample_weight, batch.targets)
        if len(self._last) != len(samples) or any(a is not b for a, b in zip(self._last, samples, strict=True)):
            rows = inputs.flatten(1).to(model.parameters.dtype).contiguous().numpy()
            labels = np.empty(0, np.int64) if batch.targets is None else batch.targets.contiguous().numpy()
            arrays = (
                *(rows, *as_arrays(objective, batch.affinity, batch.sample_weight, model.parameters.dtype), labels),
                *(np.arange(len(rows), dtype=np.int64), np.array([len(rows)], dtype=np.int64)),
            )
            if batch.order is not None:
                # The next batches have the same samples; those of other batches must not be kept in memory.
                self._last, self._arrays = samples, arrays
        else:
            arrays = self._arrays
        rows, features, weight, labels, index, ends = arrays
        if batch.order is not None and batch.ends is not None:
            index, ends = batch.order.numpy(), batch.ends.numpy()
        values, entropy, counts = model.take_steps(
            "labels" if objective is None else objective.name,
            *(rows, features, weight, labels, index, ends, self._factors),
            clip=0.0 if objective is None else objective.clip or 0.0,
            label_smoothing=self._smoothing,
        )
        return Predicted(entropy, counts, len(index)), values

    def scale_learning_rate(self, *factors: float) -> None:
        self._factors = factors

    def state(self) -> Any:
        return self._model.optimiser_state()

    def load_state(self, state: Any) -> None:
        self._model.load_optimiser_state(state)


class LabelStep(OptimiserStep):
    """Steps towards labels, the ``targets`` of a batch, by cross-entropy."""

    new_metrics = EpochMetrics

    def __init__(self, model: SingleModel, optimiser: torch.optim.Optimizer, label_smoothing: float = 0.0) -> None:
        super().__init__(optimiser)
        self._model, self._smoothing = model, label_smoothing

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        assert batch.targets is not None
        log_p = self._model(batch.inputs)
        losses = nn.functional.cross_entropy(
            log_p, batch.targets.to(log_p.device), reduction="none", label_smoothing=self._smoothing
        )
        weight = torch.ones_like(losses) if batch.sample_weight is None else batch.sample_weight.to(losses)
        loss = (losses * weight).sum() / weight.sum()
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return log_p.detach(), -loss.detach()


def make_optimiser(
    optimiser: str | Factory, parameters: Iterable[Tensor], learning_rate: float
) -> torch.optim.Optimizer:
    """The named optimiser, or ``optimiser(parameters, lr=learning_rate)``."""
    if isinstance(optimiser, str):
        if optimiser not in OPTIMISERS:
            raise ValueError(unknown("optimiser", optimiser, OPTIMISERS))
        optimiser = OPTIMISERS[optimiser]
    parameters = list(parameters)
    if not parameters:
        raise ValueError("The model has no parameters that could be trained.")
    return optimiser(parameters, lr=learning_rate)


def is_elementwise(optimiser: torch.optim.Optimizer) -> bool:
    """Whether the optimiser treats each element separately; False for a user's subclass, of which that is not known."""
    return type(optimiser) in _ELEMENTWISE


@torch.no_grad()
def add_gradients(parameters: Sequence[Tensor], loss: Tensor, ranks: Ranks) -> Tensor:
    """Sum the gradients over all processes, in one message, and return the sum of the losses."""
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in parameters]
    total = ranks.sum_in_place(torch.cat([*(gradient.flatten() for gradient in gradients), loss.flatten()]))
    *parts, losses = torch.split(total, [*(gradient.numel() for gradient in gradients), 1])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
    return losses[0]

"""The metrics of an epoch, gathered from its steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pollux.ranks import Ranks

_PENDING_ROWS = 10_000


class EpochMetrics:
    """The mean objective (R,) of an epoch; subclasses add metrics of what a step returns beside it.

    Attributes
    ----------
    names : tuple of str
        Of the metrics that :meth:`compute` gives.
    """

    names: tuple[str, ...] = ("objective",)

    def __init__(self) -> None:
        self._values: list[Tensor] = []
        self._earlier: Tensor | None = None
        self._n_earlier = 0

    def update(self, outputs: Tensor, values: Tensor) -> None:
        """Outputs and objectives (…) of a step."""
        self._values.append(values)

    def mean_since_last(self) -> Tensor:
        """Mean objective (R,) of the steps since the last call, of which only the sum is kept."""
        values = torch.stack(self._values)
        total = values.sum(0)
        self._earlier = total if self._earlier is None else self._earlier + total
        self._n_earlier += len(values)
        self._values = []
        return values.mean(0).reshape(-1)

    def mean(self) -> Tensor:
        """Mean objective (R,) of all steps."""
        if self._earlier is None:
            return torch.stack(self._values).mean(0).reshape(-1)
        total = self._earlier + torch.stack(self._values).sum(0) if self._values else self._earlier
        return (total / (self._n_earlier + len(self._values))).reshape(-1)

    def compute(self, ranks: Ranks | None = None) -> dict[str, Tensor]:
        """The metrics (R,) by name."""
        return {"objective": self.mean()}

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "values": torch.stack(self._values) if self._values else None,
            "earlier": self._earlier,
            "n_earlier": self._n_earlier,
        }

    def load_state(self, state: Mapping[str, Any], device: torch.device) -> None:
        """Continue from a :meth:`state`."""
        self._values = [] if state["values"] is None else list(state["values"].to(device).unbind(0))
        self._earlier = on_device(state["earlier"], device)
        self._n_earlier = state["n_earlier"]


class ClusterMetrics(EpochMetrics):
    """Mean objective, clusters that at least one sample prefers, and mean entropy of the predictions; each (R,).

    Predictions wait until there are many: their metrics then cost a few operations, not a few a step.
    """

    names = ("objective", "clusters", "entropy")

    def __init__(self) -> None:
        super().__init__()
        self._pending: list[Tensor] = []
        self._rows = 0
        self._seen = 0
        self._counts: Tensor | None = None
        self._entropy: Tensor | None = None

    def update(self, outputs: Tensor, values: Tensor) -> None:
        """Predictions (…, n, K) and objectives (…) of a step."""
        self._values.append(values)
        self._pending.append(outputs)
        self._rows += outputs.shape[-2]
        if self._rows >= _PENDING_ROWS:
            self._flush()

    def _flush(self) -> None:
        if not self._pending:
            return
        log_p = torch.cat(self._pending, -2).log_softmax(-1)
        log_p = log_p.reshape(-1, *log_p.shape[-2:])
        R, n, K = log_p.shape
        offsets = torch.arange(0, R * K, K, device=log_p.device)[:, None]
        counts = torch.bincount((log_p.argmax(-1) + offsets).flatten(), minlength=R * K).reshape(R, K)
        entropy = -(log_p.exp() * log_p).sum((-2, -1))
        self._counts = counts if self._counts is None else self._counts + counts
        self._entropy = entropy if self._entropy is None else self._entropy + entropy
        self._seen += n
        self._pending, self._rows = [], 0

    def compute(self, ranks: Ranks | None = None) -> dict[str, Tensor]:
        self._flush()
        assert self._counts is not None
        assert self._entropy is not None
        counts, entropy, seen = self._counts, self._entropy, torch.tensor(self._seen)
        if ranks is not None:
            counts, entropy, seen = ranks.sum(counts), ranks.sum(entropy), ranks.sum(seen)
        return {"objective": self.mean(), "clusters": (counts > 0).sum(-1), "entropy": entropy / int(seen)}

    def state(self) -> dict[str, Any]:
        """For a checkpoint. Pending predictions stay pending: sums in another order differ in their last digits."""
        return {
            **super().state(),
            "pending": torch.cat(self._pending, -2) if self._pending else None,
            "counts": self._counts,
            "entropy": self._entropy,
            "seen": self._seen,
        }

    def load_state(self, state: Mapping[str, Any], device: torch.device) -> None:
        super().load_state(state, device)
        pending = on_device(state["pending"], device)
        self._pending, self._rows = ([], 0) if pending is None else ([pending], pending.shape[-2])
        self._counts, self._entropy = on_device(state["counts"], device), on_device(state["entropy"], device)
        self._seen = state["seen"]


def on_device(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    """The tensor on the device, where there is one."""
    return None if tensor is None else tensor.to(device)

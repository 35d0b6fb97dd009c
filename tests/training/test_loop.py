"""The loop: any step, its metrics and its threads."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pollux import Gemini, GeminiClustering
from pollux.ranks import Ranks
from pollux.training import (
    Epoch,
    EpochMetrics,
    OptimiserStep,
    RowBatches,
    SingleModel,
    evaluate,
    learn_labels,
    starting,
    train,
)
from pollux.training.batches import Batch
from pollux.training.problem import log_probabilities

X = torch.linspace(-1, 1, 120).reshape(30, 4)


class Spy(nn.Module):
    """Notes how many threads torch has in its forward pass."""

    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.linear = nn.Linear(4, width)
        self.seen: set[int] = set()

    def forward(self, inputs: Tensor) -> Tensor:
        self.seen.add(torch.get_num_threads())
        logits: Tensor = self.linear(inputs)
        return logits[:, :3]


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    after = torch.get_num_threads()
    torch.set_num_threads(before)
    assert after == 2


def test_the_start_at_labels_runs_on_one_thread(two_threads: None) -> None:
    spy = Spy()
    learn_labels([spy], 3, [torch.arange(30) % 3], X.__getitem__, 10, 1e-2)
    assert spy.seen == {1}


def test_evaluation_runs_on_one_thread(two_threads: None) -> None:
    spy = Spy()
    evaluate(spy, 3, Gemini("mi"), [(Batch(X, None, None), 1.0)])
    assert spy.seen == {1}


def test_prediction_runs_on_one_thread(two_threads: None) -> None:
    spy = Spy()
    log_probabilities(spy, X, 3)
    assert spy.seen == {1}


@pytest.mark.parametrize("init", ["random", "kmeans"])
def test_a_fit_runs_on_one_thread_from_its_start_to_its_evaluation(two_threads: None, init: str) -> None:
    spy = Spy()
    clustering = GeminiClustering(3, model=spy, init=init, max_epochs=2, random_state=0).fit(X.numpy())
    clustering.predict(X.numpy())
    assert spy.seen | clustering.module_.seen == {1}


def test_large_matrix_products_have_all_threads(two_threads: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_FEWEST_STEPS", 1)
    monkeypatch.setattr("pollux.threads._SMALL", 1_000)
    spy, rows = Spy(width=1_000), X[:2]
    learn_labels([spy], 3, [torch.arange(2)], rows.__getitem__, 2, 1e-2)
    evaluate(spy, 3, Gemini("mi"), [(Batch(rows, None, None), 1.0)])
    log_probabilities(spy, rows, 3)
    assert spy.seen == {2}


class LargestError(EpochMetrics):
    names = ("objective", "largest")

    def __init__(self) -> None:
        super().__init__()
        self._largest: list[Tensor] = []

    def update(self, outputs: Tensor, values: Tensor) -> None:
        super().update(outputs, values)
        self._largest.append(outputs)

    def compute(self, ranks: Ranks | None = None) -> dict[str, Tensor]:
        return {**super().compute(ranks), "largest": torch.stack(self._largest).amax().reshape(1)}


class Regression(OptimiserStep):
    """A step that has nothing to do with clusters."""

    new_metrics = LargestError

    def __init__(self, module: nn.Module) -> None:
        super().__init__(torch.optim.SGD(module.parameters(), lr=0.1))
        self._module = module

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor]:
        errors = self._module(batch.inputs).squeeze(1) - batch.inputs.sum(1)
        loss = errors.square().mean()
        self._optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimiser.step()
        return errors.detach().abs().max(), -loss.detach()


def test_any_step_can_be_trained() -> None:
    torch.manual_seed(0)
    module, epochs = nn.Linear(4, 1), list[Epoch]()
    batches = RowBatches(30, 10, X.__getitem__)
    result = train(
        SingleModel(module, 1),
        Regression(module),
        batches,
        max_epochs=20,
        callbacks=[epochs.append],
        generator=torch.Generator().manual_seed(0),
    )
    history = result.history.of_model(0)
    assert history.keys() == {"objective", "largest"}
    assert len(history["largest"]) == len(epochs) == 20
    assert np.all(np.diff(history["objective"]) > 0)
    assert history["largest"][-1] < history["largest"][0]
    assert epochs[-1].metrics == {name: values[-1] for name, values in history.items()}


def test_a_schedule_may_be_a_function() -> None:
    seen: list[float] = []

    class Paced(Regression):
        def scale_learning_rate(self, factor: float) -> None:
            seen.append(factor)

    module = nn.Linear(4, 1)
    batches = RowBatches(30, 15, X.__getitem__)
    train(SingleModel(module, 1), Paced(module), batches, max_epochs=2, schedule=lambda of, done: 1 - done / of)
    assert seen == pytest.approx([1, 0.75, 0.5, 0.25])

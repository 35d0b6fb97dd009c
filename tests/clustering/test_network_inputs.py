"""Networks of the user's own: whole numbers, several inputs, and what they return."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import pollux
from pollux import GeminiClustering
from pollux.errors import InputError
from pollux.io import tensors as tensor_files

RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(0, 9, size=(40, 5))
NUMBERS = RANDOM.normal(size=(40, 3)).astype(np.float32)
# Float32 holds neither of two such neighbours.
LARGE = 2**24 + 1


class Tokens(nn.Module):
    """Embeds tokens, and notes what it was given."""

    def __init__(self, n_clusters: int = 3, size: int = 9) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size, 4)
        self.last = nn.Linear(4, n_clusters)
        self.seen: set[torch.dtype] = set()

    def forward(self, tokens: Tensor) -> Tensor:
        self.seen.add(tokens.dtype)
        logits: Tensor = self.last(self.embedding(tokens).mean(1))
        return logits


class Pair(Tokens):
    """Of tokens and numbers."""

    def __init__(self, n_clusters: int = 3) -> None:
        super().__init__(n_clusters)
        self.other = nn.Linear(3, n_clusters)

    def forward(self, tokens: Tensor, numbers: Tensor | None = None) -> Tensor:
        assert numbers is not None
        return super().forward(tokens) + self.other(numbers)


def clustering(model: Any, **options: Any) -> GeminiClustering:
    usual: dict[str, Any] = {"objective": "mi", "max_epochs": 2, "batch_size": 10, "random_state": 0}
    return GeminiClustering(3, model=model, **{**usual, **options})


def same_weights(one: GeminiClustering, other: GeminiClustering) -> bool:
    states = [list(each.module_.state_dict().values()) for each in (one, other)]
    return all(torch.equal(*pair) for pair in zip(*states, strict=True))


@pytest.mark.parametrize("n_init", [1, 2])
@pytest.mark.parametrize("kind", ["int64", "int32", "uint8", "tensor"])
def test_tokens_reach_a_network_as_whole_numbers(kind: str, n_init: int) -> None:
    X = torch.as_tensor(TOKENS) if kind == "tensor" else TOKENS.astype(kind)
    fitted = clustering(lambda shape, k: Tokens(k), n_init=n_init).fit(X)
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)
    assert fitted.module_.seen <= {torch.int64}
    assert np.isfinite(fitted.score(X))
    fitted.partial_fit(X)
    with pytest.raises(ValueError, match="trained on whole numbers"):
        fitted.predict(TOKENS + 0.5)


def test_large_tokens_keep_all_digits() -> None:
    class Parity(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(1, 2)

        def forward(self, tokens: Tensor) -> Tensor:
            assert not tokens.is_floating_point()
            logits: Tensor = self.last((tokens % 2).float())
            return logits

    X = LARGE + np.arange(20)[:, None] % 2
    fitted = GeminiClustering(2, model=Parity(), objective="mi", max_epochs=50, random_state=0).fit(X)
    assert len(set(zip(X[:, 0].tolist(), fitted.labels_.tolist(), strict=True))) == 2


def test_a_network_of_numbers_still_gets_numbers() -> None:
    fitted = clustering(nn.Linear(5, 3)).fit(TOKENS)
    assert fitted.predict(TOKENS.astype(float)).shape == (40,)
    assert clustering(Tokens(), preprocessing=None).fit(TOKENS).n_iter_ == 2


def test_a_loader_of_tokens() -> None:
    loader = DataLoader(TensorDataset(torch.as_tensor(TOKENS)), batch_size=10)
    fitted = clustering(Tokens()).fit(loader)
    assert fitted.predict(TOKENS).shape == (40,)


class Items(Dataset[Tensor]):
    def __len__(self) -> int:
        return len(TOKENS)

    def __getitem__(self, index: int) -> Tensor:
        return torch.as_tensor(LARGE + TOKENS[index] % 2)


@pytest.mark.filterwarnings("ignore:Everything fell into one cluster")
@pytest.mark.parametrize("form", ["path", "table", "stream", "dataset"])
def test_streamed_tokens_keep_all_digits(tmp_path: Path, form: str) -> None:
    """Float32 holds none of two neighbours."""
    X = LARGE + TOKENS % 2
    np.save(tmp_path / "tokens.npy", X)
    pd.DataFrame(X, columns=list("abcde")).to_parquet(tmp_path / "tokens.parquet")
    forms = {"path": tmp_path / "tokens.npy", "table": tmp_path / "tokens.parquet", "dataset": Items()}
    forms["stream"] = pollux.open_stream(tmp_path / "tokens.npy")

    class Parity(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(5, 3)

        def forward(self, tokens: Tensor) -> Tensor:
            assert tokens.dtype == torch.int64
            logits: Tensor = self.last((tokens - LARGE).float())
            return logits

    fitted = clustering(Parity()).fit(forms[form])
    rows = pd.DataFrame(X, columns=list("abcde")) if form == "table" else X
    np.testing.assert_array_equal(fitted.predict(rows), fitted.labels_)
    # A network of numbers is given these.
    assert clustering(nn.Linear(5, 3)).fit(forms[form]).n_iter_ == 2
    assert {weight.dtype for weight in fitted.module_.state_dict().values()} == {torch.float32}


def test_a_model_of_tokens_comes_back_from_its_file(tmp_path: Path) -> None:
    fitted = clustering(Tokens()).fit(TOKENS)
    fitted.save(tmp_path / "model.safetensors")
    for again in (pollux.load(tmp_path / "model.safetensors", model=Tokens()), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(again.predict_proba(TOKENS), fitted.predict_proba(TOKENS))


FORMS: dict[str, Any] = {
    "by position": (TOKENS, NUMBERS),
    "by name": {"numbers": NUMBERS, "tokens": TOKENS},
    "tensors": (torch.as_tensor(TOKENS), torch.as_tensor(NUMBERS)),
}


@pytest.mark.parametrize("form", FORMS)
def test_several_inputs_reach_a_network(form: str, tmp_path: Path) -> None:
    X = FORMS[form]
    fitted, other = (clustering(lambda shapes, k: Pair(k), n_init=2).fit(each) for each in (X, FORMS["by position"]))
    assert same_weights(fitted, other)
    np.testing.assert_array_equal(fitted.predict(X), fitted.labels_)
    assert fitted.predict_proba(X).shape == (40, 3)
    assert np.isfinite(fitted.score(X))
    np.testing.assert_array_equal(copy.deepcopy(fitted).predict(X), fitted.labels_)
    fitted.partial_fit(X, sample_weight=np.arange(40) % 3)
    with pytest.raises(ValueError, match="was trained on samples of shape"):
        fitted.predict(X[::-1] if isinstance(X, tuple) else {"numbers": NUMBERS, "words": TOKENS})
    fitted.save(tmp_path / "model.safetensors")
    again = pollux.load(tmp_path / "model.safetensors", model=lambda shapes, k: Pair(k))
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    np.testing.assert_array_equal(again.labels_, fitted.labels_)
    with pytest.raises(ValueError, match="X has several: join them"):
        pollux.select_n_clusters(X)
    with pytest.raises(ValueError, match="was trained on samples of shape"):
        again.predict(X[::-1] if isinstance(X, tuple) else {"numbers": NUMBERS, "words": TOKENS})
    assert again.partial_fit(X).n_iter_ > fitted.n_iter_


class Records(Dataset[Any]):
    """Items of several inputs, as users write them."""

    def __init__(self, wrap: Callable[[int], Any]) -> None:
        self.wrap = wrap

    def __len__(self) -> int:
        return len(TOKENS)

    def __getitem__(self, index: int) -> Any:
        return self.wrap(index)


class Flow(IterableDataset[Any]):
    def __init__(self, records: Records) -> None:
        self.records = records

    def __iter__(self) -> Iterator[Any]:
        return map(self.records.wrap, range(len(self.records)))


ITEMS: dict[str, Callable[[int], Any]] = {
    "mapping": lambda index: {"tokens": TOKENS[index], "numbers": NUMBERS[index]},
    "mapping with more": lambda index: {
        "labels": index,
        "weight": 2.0,
        "tokens": TOKENS[index],
        "numbers": NUMBERS[index],
    },
    "mapping and label": lambda index: ({"tokens": TOKENS[index], "numbers": NUMBERS[index]}, index),
    "tuple and label": lambda index: ((TOKENS[index], NUMBERS[index]), index),
}


@pytest.mark.parametrize("items", ITEMS)
@pytest.mark.parametrize("form", ["dataset", "loader", "flow"])
def test_several_inputs_of_a_dataset_or_a_loader_reach_a_network(items: str, form: str, tmp_path: Path) -> None:
    dataset = Records(ITEMS[items])
    X: Any = dataset
    if form != "dataset":
        X = DataLoader(dataset, batch_size=20, shuffle=True) if form == "loader" else Flow(dataset)
    whole = (TOKENS, NUMBERS) if items.startswith("tuple") else {"tokens": TOKENS, "numbers": NUMBERS}
    pair = Pair()
    fitted = clustering(copy.deepcopy(pair), batch_size=20).fit(X)
    assert fitted.predict_proba(whole).shape == (40, 3)
    if form == "dataset":
        np.testing.assert_array_equal(fitted.labels_, fitted.predict(whole))
    # Batches are the same whatever gives them.
    again = clustering(copy.deepcopy(pair), batch_size=20).fit(dataset if form == "loader" else X)
    assert same_weights(fitted, again)
    fitted.save(tmp_path / "model.safetensors")
    loaded = pollux.load(tmp_path / "model.safetensors", model=Pair())
    np.testing.assert_array_equal(loaded.predict_proba(whole), fitted.predict_proba(whole))
    with pytest.raises(InputError, match="needs a kernel between samples"):
        clustering(Pair(), objective="mmd_ova").fit(X)


def test_a_mapping_of_one_input_is_that_input() -> None:
    dataset = Records(lambda index: {"label": index, "inputs": NUMBERS[index].astype(np.float32)})

    class Single(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs)

    for X in (DataLoader(dataset, batch_size=20), dataset):
        assert clustering(Single(3, 3)).fit(X).predict(NUMBERS).shape == (40,)


def test_a_model_file_of_several_inputs_says_their_shapes_once(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    clustering(Pair()).fit((TOKENS, NUMBERS)).save(path)
    tensors, data = tensor_files.read(path, "pollux-model", ("4",), "model file")
    assert data["inputs"] == [[5], [3]]
    assert data["shape"] == []
    for change in ({"inputs": None}, {"shape": [5]}, {"inputs": [[0]]}, {"inputs": {"tokens": "5"}}):
        tensor_files.write(path, "pollux-model", "4", tensors, {**data, **change})
        with pytest.raises(InputError, match="is not a whole model file"):
            pollux.load(path, model=Pair())


def test_several_inputs_with_weights_and_an_affinity() -> None:
    kernel = NUMBERS @ NUMBERS.T
    weight = np.arange(40) % 4
    fitted = clustering(Pair(), objective="mmd_ova").fit((TOKENS, NUMBERS), affinity=kernel, sample_weight=weight)
    assert (fitted.labels_ >= 0).all()
    assert len(fitted.labels_) == 40
    with pytest.raises(InputError, match="a single input"):
        fitted.assess((TOKENS, NUMBERS))


@pytest.mark.parametrize(
    ("X", "options", "answer"),
    [
        ((TOKENS, NUMBERS), {"model": "mlp"}, "takes one: join them"),
        ({"a": TOKENS}, {"model": "linear"}, "takes one: join them"),
        ((TOKENS, NUMBERS[:-1]), {}, "their lengths differ"),
        ({}, {}, "empty mapping"),
        ([TOKENS, NUMBERS], {}, "X is a list of arrays of different shapes.*pass a tuple"),
        ([NUMBERS, NUMBERS[:-1]], {"model": "mlp"}, "X is a list of arrays of different shapes"),
        ((TOKENS, NUMBERS), {"preprocessing": "standard"}, "scaling='standard' is for one"),
        ((TOKENS, NUMBERS), {"init": "kmeans"}, "init='kmeans' is for one"),
        ((TOKENS, NUMBERS), {"penalties": {"vat": 1.0}}, "the penalty 'vat' is for one"),
        ((TOKENS, NUMBERS), {"objective": "mmd_ova"}, "needs a kernel between samples"),
        (torch.as_tensor(NUMBERS).requires_grad_(), {"model": "mlp"}, r"pass X\.detach\(\)"),
    ],
    ids=str,
)
def test_what_cannot_be_done_with_inputs_is_said(X: Any, options: dict[str, Any], answer: str) -> None:
    with pytest.raises(InputError, match=answer):
        clustering(**{"model": Pair(), **options}).fit(X)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_to_be_padded() -> None:
    nested = torch.nested.nested_tensor([torch.ones(3), torch.ones(4)])
    with pytest.raises(InputError, match="pad them"):
        clustering("mlp").fit(nested)


class Wrapped(nn.Module):
    """A network that wraps what it returns."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.layer, self.form = nn.Linear(3, 3), form

    def forward(self, inputs: Tensor) -> Any:
        logits = self.layer(inputs)
        forms = {
            "object": lambda: SimpleNamespace(logits=logits, loss=None),
            "mapping": lambda: OrderedDict(loss=logits.sum(), logits=logits),
            "tuple": lambda: (logits, inputs),
            "probabilities": lambda: logits.softmax(-1),
        }
        return forms[self.form]()

    def reset_parameters(self) -> None:
        self.layer.reset_parameters()


@pytest.mark.parametrize("n_init", [1, 2])
@pytest.mark.parametrize("form", ["object", "mapping", "tuple"])
def test_logits_are_found_in_what_a_network_returns(form: str, n_init: int) -> None:
    def make(cls: Any) -> GeminiClustering:
        return clustering(cls, n_init=n_init).fit(NUMBERS)

    wrapped, plain = make(lambda d, k: Wrapped(form)), make(lambda d, k: nn.Linear(d, k))
    assert same_weights(wrapped, plain)
    np.testing.assert_array_equal(wrapped.predict_proba(NUMBERS), plain.predict_proba(NUMBERS))


@pytest.mark.parametrize("n_init", [1, 2])
def test_a_network_of_probabilities_is_refused(n_init: int) -> None:
    with pytest.raises(InputError, match="leave out the softmax"):
        clustering(lambda d, k: Wrapped("probabilities"), n_init=n_init).fit(NUMBERS)

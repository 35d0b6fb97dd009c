"""Files whose checksum is right and whose contents are not: each is refused by an InputError, or loads what it says.

Every place of a description, and every tensor, becomes what its type has at its edges; ``make test-faults`` tries more
than 10,000 files, ``make test`` a sample of them.
"""

from __future__ import annotations

import copy
import json
import math
import random
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from coverings import IS_FULL
from pollux import MLP, Gemini, GeminiClustering, GeminiTree, KernelModel, Scaling, SoftTree, Training, load
from pollux.errors import InputError
from pollux.geometry import resolve
from pollux.io import tensors as tensor_files
from pollux.spec import Spec

resource = pytest.importorskip("resource", reason="this system does not tell how much memory was used")
MODEL_FILES = 12_000 if IS_FULL else 80
CHECKPOINTS = 1_000 if IS_FULL else 12
TREES = 3_000 if IS_FULL else 60

GOLDEN = Path(__file__).parent.parent / "io" / "golden"
X = np.random.default_rng(0).normal(size=(30, 4))

EDGES: list[Any] = [
    *(None, True, False, "", "x", "../../elsewhere", "meta", [], {}, [[]], {"a": 1}, [None], ["x"], [-1], [0.5]),
    *(0, 1, -1, 2, 2.5, -0.5, 1e300, -1e300, 1e-300, math.nan, math.inf, -math.inf, 999, 2**31, 2**63, 10**30),
]


def mutate_plain(data: Any, moments: random.Random) -> Any:
    """Plain data with something else in one place of it."""
    data = copy.deepcopy(data)
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        # Of long lists the ends: their items are alike.
        for key in node if isinstance(node, dict) else {0, len(node) - 1} & {*range(len(node))}:
            places.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(data)
    node, key = moments.choice(places)
    kind = moments.randrange(8)
    if kind == 0:
        del node[key]
    elif kind == 1 and isinstance(node, list):
        node.insert(key, copy.deepcopy(node[key]))
    elif kind == 2 and isinstance(node, dict):
        other = moments.choice(list(node))
        node[key], node[other] = node[other], node[key]
    elif kind == 3 and isinstance(node[key], int | float):
        node[key] = moments.choice([-node[key], node[key] + 1, node[key] - 1, float(node[key]), str(node[key])])
    else:
        node[key] = copy.deepcopy(moments.choice(EDGES))
    return data


DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


def mutate_tensors(tensors: dict[str, Tensor], moments: random.Random) -> dict[str, Tensor]:
    """The tensors with one of them of another type, shape or value, without it, or with one more."""
    name = moments.choice(sorted(tensors))
    value = tensors[name].clone()
    changes: list[Callable[[], Tensor]] = [
        lambda: value.to(moments.choice(DTYPES)),
        lambda: value.flatten()[:-1],
        lambda: value[None],
        lambda: torch.cat([value.flatten(), value.flatten()[:1]]),
        lambda: value.flatten()[:0],
        lambda: value.mT.contiguous() if value.ndim > 1 else value.flip(0) if value.ndim else value.flatten(),
        lambda: torch.zeros((), dtype=value.dtype),
        lambda: value.bitwise_not() if value.dtype == torch.bool else -value - 1,
    ]
    change = moments.randrange(len(changes) + 6)
    if change < len(changes):
        value = changes[change]()
    elif change == len(changes):
        return {other: tensor for other, tensor in tensors.items() if other != name}
    elif change == len(changes) + 1:
        return {**tensors, moments.choice(["more", "module.more", "scaling.more", "scaling.scale"]): value}
    elif value.numel():
        limits = torch.finfo(value.dtype) if value.is_floating_point() else torch.iinfo(torch.int64)
        extreme = [math.nan, math.inf, -math.inf, limits.max] if value.is_floating_point() else [-1, 3, limits.min]
        if value.dtype == torch.bool or not value.is_signed():
            extreme = [1]
        value.view(-1)[moments.randrange(value.numel())] = moments.choice(extreme)
    return {**tensors, name: value}


def read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name).clone() for name in file.keys()}, file.metadata()  # noqa: SIM118


def seal(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str], description: Any) -> None:
    text = json.dumps(description)
    checksum = tensor_files.checksum(tensors, text)
    save_file(tensors, path, metadata={**metadata, "description": text, "sha256": checksum})


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Any]]:
    """Files of every kind, and samples for them; a free table has none."""
    folder = tmp_path_factory.mktemp("models")
    made = {
        "options": GeminiClustering(
            3,
            model=MLP(hidden=(3, 2), activation=("tanh", "relu"), norm="batch"),
            objective=Gemini("mmd_ovo", sampled_pairs=2),
            geometry=resolve("rbf", gamma=0.5),
            preprocessing=Scaling("standard", n_components=2, missing="mean"),
            max_epochs=2,
            penalties={"entropy": 0.1},
            random_state=0,
        ),
        "graph": GeminiClustering(
            2, model="linear", geometry=resolve("graph", neighbours=5), max_epochs=1, random_state=0
        ),
        "tree": GeminiClustering(
            2, model=SoftTree(cuts=2, features=[0, 2]), objective="mi", max_epochs=1, random_state=0
        ),
        "kernel": GeminiClustering(
            2, model=KernelModel(5, resolve("rbf", gamma=0.5)), objective="mi", max_epochs=1, random_state=0
        ),
        "own": GeminiClustering(2, model="linear", geometry=lambda x, y: x @ y.mT, max_epochs=1, random_state=0),
    }
    files: list[tuple[Path, Any]] = []
    for name, clustering in made.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clustering.fit(X).save(folder / name)
        files.append((folder / name, X))
    for version in ("1-first", "3", "4"):
        expected = json.loads((GOLDEN / version / "expected.json").read_text())
        for name, values in expected.items():
            rows = values.get("rows")
            samples = pd.DataFrame(rows) if isinstance(rows, dict) else None if rows is None else np.asarray(rows)
            files.append((GOLDEN / version / f"{name}.pollux", samples))
    return files


def hostile_models(
    models: list[tuple[Path, Any]], path: Path, moments: random.Random
) -> Iterator[tuple[Any, Callable[[], str]]]:
    """Writes file after file; gives samples for it, and what tells what was changed."""
    whole = [(*read(model), samples) for model, samples in models]
    while True:
        tensors, metadata, samples = moments.choice(whole)
        was = json.loads(metadata["description"])
        description = was
        changes = moments.choice([1, 1, 1, 2, 3])
        for _ in range(changes):
            if moments.random() < 0.3:
                tensors = mutate_tensors(tensors, moments)
            else:
                description = mutate_plain(description, moments)
        seal(path, tensors, metadata, description)
        now = description
        yield samples, lambda was=was, now=now, tensors=tensors: f"{difference(was, now)}; {summary(tensors)}"


def difference(was: Any, now: Any, place: str = "") -> list[str]:
    """The places where plain data differ, for a message."""
    if isinstance(was, dict) and isinstance(now, dict):
        keys = [*was, *(key for key in now if key not in was)]
        return [line for key in keys for line in difference(was.get(key), now.get(key), f"{place}.{key}")]
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        return [line for index in range(len(was)) for line in difference(was[index], now[index], f"{place}[{index}]")]
    return [] if repr(was) == repr(now) else [f"{place}: {was!r:.60} -> {now!r:.60}"]


def summary(tensors: dict[str, Tensor]) -> str:
    return ", ".join(f"{name} {tensor.dtype} {tuple(tensor.shape)}" for name, tensor in tensors.items())


def check_model(clustering: GeminiClustering, samples: Any) -> None:
    """What was loaded is a clustering that could have been fitted, and acts on nothing."""
    fitted, K = clustering.fitted_, clustering.n_clusters
    assert clustering.device == fitted.device == "cpu"
    assert len(clustering.callbacks) == 0
    training = clustering.training or Training()
    assert training.checkpoint is None
    assert training.compile is False
    assert sorted(fitted.order.tolist()) == list(range(K))
    assert 1 <= clustering.n_clusters_ <= K
    assert len({len(values) for values in clustering.history_.values()}) == 1
    assert all(0 <= count <= K for count in clustering.history_["clusters"])
    assert math.isfinite(clustering.objective_)
    assert all(bool(tensor.isfinite().all()) for tensor in clustering.module_.state_dict().values())
    if fitted.given_labels is not None:
        assert fitted.given_labels.dtype == np.int64
        assert fitted.given_labels.ndim == 1
        assert -fitted.is_free <= fitted.given_labels.min() <= fitted.given_labels.max() < K
    if fitted.scaling is not None:
        assert all(bool(tensor.isfinite().all()) for tensor in fitted.scaling.tensors().values())
        assert bool((fitted.scaling.scale > 0).all())
    if fitted.encoding is not None:
        assert fitted.encoding.encoded_shape == fitted.shape
        assert all(0 < scale < math.inf for scale in fitted.encoding.scales)
    if "not in the file" not in (clustering.objective, clustering.geometry):
        Spec.of(clustering).resolve_geometry() if clustering.geometry != "precomputed" else None
    if fitted.is_free:
        assert np.isfinite(clustering.probabilities_).all()
    elif samples is not None:
        try:
            probabilities = clustering.predict_proba(samples)
        except ValueError as error:
            # Columns, shapes or magnitudes may be others now.
            assert str(error)  # noqa: PT017
        else:
            assert np.isfinite(probabilities).all()
            assert (clustering.predict(samples) < K).all()


def test_a_model_file_is_refused_or_holds_what_it_says(models: list[tuple[Path, Any]], tmp_path: Path) -> None:
    moments = random.Random(0)
    path = tmp_path / "model.pollux"
    files = hostile_models(models, path, moments)
    refused, messages = 0, set[str]()
    for number in range(MODEL_FILES):
        samples, told = next(files)
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                clustering = load(path)
                check_model(clustering, samples)
                if not (number - refused) % 10:
                    clustering.save(tmp_path / "again")
                    load(tmp_path / "again")
        except InputError as error:
            refused += 1
            messages.add(str(error))
        except Exception as error:
            raise AssertionError(f"file {number}: {error!r}: {told()}") from error
        # Of the processor's time, which other programs do not take; and kilobytes.
        assert time.process_time() - began < 1, told()
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000, told()
    assert not [message for message in messages if str(path) not in message]
    # Neither all nor none.
    assert MODEL_FILES / 3 < refused < MODEL_FILES
    assert sorted(each.name for each in tmp_path.iterdir()) == ["again", "model.pollux"]


def test_a_file_of_a_tree_is_refused_or_holds_what_it_says(tmp_path: Path) -> None:
    moments, path, refused = random.Random(0), tmp_path / "tree", 0
    names = [f"column {index}" for index in range(4)]
    frame = pd.DataFrame(X, columns=names)
    GeminiTree(3, max_depth=4, preprocessing=Scaling("standard")).fit(frame).save(path)
    whole, metadata = read(path)
    was = json.loads(metadata["description"])
    for number in range(TREES):
        tensors, description = whole, was
        for _ in range(moments.choice([1, 1, 2])):
            if moments.random() < 0.5:
                tensors = mutate_tensors(tensors, moments)
            else:
                description = mutate_plain(description, moments)
        seal(path, tensors, metadata, description)
        try:
            tree = load(path)
            assert isinstance(tree, GeminiTree)
            assert ((tree.labels_ >= 0) & (tree.labels_ < tree.n_clusters_)).all()
            assert tree.n_clusters_ <= tree.n_clusters
            assert tree.export_text()
            if tree.n_features_in_ == 4:
                # Names may be others now.
                assert (tree.predict(pd.DataFrame(X, columns=tree.__dict__.get("feature_names_in_"))) < 999).all()
            tree.save(tmp_path / "again")
            load(tmp_path / "again")
        except InputError:
            refused += 1
        except Exception as error:
            raise AssertionError(
                f"tree {number}: {error!r}: {difference(was, description)}; {summary(tensors)}"
            ) from error
    assert TREES / 3 < refused < TREES


@pytest.mark.parametrize("penalties", [None, {"entropy": 0.1}], ids=["closed form", "autograd"])
def test_a_checkpoint_is_refused_or_resumes_a_training_that_ends(tmp_path: Path, penalties: Any) -> None:
    def fit(folder: Path, max_epochs: int) -> GeminiClustering:
        training = Training(checkpoint=folder)
        clustering = GeminiClustering(
            2,
            model="linear",
            penalties=penalties,
            max_epochs=max_epochs,
            batch_size=10,
            training=training,
            random_state=0,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return clustering.fit(X)

    fit(tmp_path / "good", 2)
    good = max((tmp_path / "good").glob("*.safetensors"))
    tensors, metadata = read(good)
    whole = json.loads(metadata["description"])
    moments, refused = random.Random(0), 0
    for number in range(CHECKPOINTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        if moments.random() < 0.3:
            changed, description = mutate_tensors(tensors, moments), whole
        else:
            changed, description = tensors, mutate_plain(whole, moments)
        seal(folder / good.name, changed, metadata, description)
        try:
            fitted = fit(folder, 3)
        except InputError:
            refused += 1
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            # Of what an optimiser remembers torch itself says that it does not fit.
            assert "optim" in "".join(traceback.format_exception(error))  # noqa: PT017
        except Exception as error:
            raise AssertionError(f"checkpoint {number}: {error!r}: {difference(whole, description)}") from error
        else:
            assert all(bool(tensor.isfinite().all()) for tensor in fitted.module_.state_dict().values())
            assert math.isfinite(fitted.objective_)
    assert CHECKPOINTS / 3 < refused < CHECKPOINTS

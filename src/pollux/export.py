"""Models for other programs: one ONNX file from the columns of a table, in their own units, to clusters.

The network alone is translated by torch. What comes before it (standardising, text) and after it (the numbers of
clusters, softmax) is a dozen operators, which are written out here: they need no tracing, and text has no tensors.
"""

from __future__ import annotations

import copy
import importlib.metadata
import itertools
import json
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pollux.atomic import in_place
from pollux.errors import InputError
from pollux.estimators import GeminiClustering
from pollux.preprocessing import ArrayPreprocessing, Category, Number, Preprocessing, TablePreprocessing

OPSET, ML_OPSET, IR_VERSION = 18, 2, 8
"""Versions of ONNX that programs of 2023 and later read."""

TOLERANCE = 1e-5
"""How far a probability of the file may be from our own."""

_ML = "ai.onnx.ml"
_MOST_BYTES = 2_000_000_000
_SPELLINGS = {"true": ("true", "True", "TRUE", "1"), "false": ("false", "False", "FALSE", "0")}


def to_onnx(clustering: GeminiClustering, path: str | Path) -> str:
    """Write a clustering and its preprocessing as one ONNX file, and tell what goes in and out.

    Inputs, with any number n of rows:

    - ``numbers`` (n, d), float64: the columns of numbers, in their own units; or ``images`` (n, C, H, W), float32;
    - ``categories`` (n, c), text: the columns of text, where the model reads any; "" is a missing value.

    Outputs: ``probabilities`` (n, K), float32, and ``cluster`` (n,), int64. A row that ``predict`` would refuse, for
    values that are missing or infinite, has probabilities NaN and cluster −1. The metadata name the columns.

    The file takes its place only after it has passed ONNX's checker and, where onnxruntime is installed, has given the
    probabilities that the clustering gives.

    Parameters
    ----------
    clustering : GeminiClustering
        A fitted clustering of any model but a free table.
    path : path
        The file to write.
    """
    check_is_fitted(clustering)
    if clustering._is_free():
        raise InputError(
            "A free table of probabilities has no opinion on new rows, so there is nothing to export: train another "
            "model, such as 'linear'."
        )
    if sum(tensor.nbytes for tensor in clustering.module_.state_dict().values()) > _MOST_BYTES:
        raise InputError("The model has more than 2 GB of weights, which one ONNX file cannot hold.")
    _onnx()
    with in_place(path) as temporary:
        temporary.write_bytes(_checked_model(clustering))
    return _told(clustering)


def _onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise InputError("ONNX files are written by onnx: pip install 'pollux[onnx]'.") from error
    return onnx


def _checked_model(clustering: GeminiClustering) -> bytes:
    """The file's bytes, from the first way of translating the network that gives what the network gives."""
    failures = []
    for translate, dtype in itertools.product(_translators(clustering), _precisions(clustering)):
        try:
            with _silence():
                network = translate(_copy(clustering.module_, dtype), torch.zeros(3, *clustering._shape, dtype=dtype))
                model = _whole(clustering, network, dtype)
                content: bytes = model.SerializeToString(deterministic=True)
                _onnx().checker.check_model(content, full_check=True)
                _compare(clustering, content)
            return content
        except InputError:
            raise
        # Each translator has errors of its own, and so has each runtime.
        except Exception as error:
            failures.append(error)
    first_lines = [f"{type(error).__name__}: {error}".partition("\n")[0] for error in failures]
    reasons = "; ".join(dict.fromkeys(first_lines))
    if isinstance(clustering.model, str):
        raise RuntimeError(f"The model cannot be written as ONNX. {reasons}") from failures[0]
    raise InputError(
        "This network cannot be written as ONNX: what it does must not depend on the values of its inputs or on their "
        f"number, and must have ONNX operators. {reasons}"
    ) from failures[0]


# From the network to ONNX.


def _translators(clustering: GeminiClustering) -> tuple[Callable[..., Any], ...]:
    """The two ways that torch has, in the order in which to try them.

    Tracing is fast, needs no further package and knows all layers of our own models, but torch is to part with it.
    It cannot see where a program branches: networks of users are read by torch.export first.
    """
    return (_traced, _exported) if isinstance(clustering.model, str) else (_exported, _traced)


def _precisions(clustering: GeminiClustering) -> list[torch.dtype]:
    """That of the model; runtimes lack convolutions and some others in float64."""
    own = [] if len(clustering._shape) == 3 else [clustering._dtype]
    return list(dict.fromkeys([*own, torch.float32]))


def _copy(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    return copy.deepcopy(module).to("cpu", dtype).eval()


_NAMED: dict[str, Any] = {"input_names": ["features"], "output_names": ["logits"], "opset_version": OPSET}


@torch.no_grad()
def _traced(module: nn.Module, example: Tensor) -> Any:
    batch = {"features": {0: "n"}, "logits": {0: "n"}}
    with TemporaryDirectory() as folder:
        file = f"{folder}/network.onnx"
        torch.onnx.export(module, (example,), file, dynamic_axes=batch, dynamo=False, **_NAMED)
        return _onnx().load(file)


@torch.no_grad()
def _exported(module: nn.Module, example: Tensor) -> Any:
    batch = ({0: torch.export.Dim("n")},)
    program = torch.onnx.export(module, (example,), dynamic_shapes=batch, verbose=False, dynamo=True, **_NAMED)
    assert program is not None
    return program.model_proto


@contextmanager
def _silence() -> Iterator[None]:
    """Neither warnings nor log lines: what torch says of its own packages is no concern of the user's."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


# What comes before and after the network.


class Graph:
    """Operators and constants in the order in which they were added; each is known by the name of its result."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def input(self, name: str, kind: Any, *shape: int) -> str:
        self.inputs.append(_onnx().helper.make_tensor_value_info(name, _kind(kind), ["n", *shape]))
        return name

    def constant(self, value: Any, kind: Any) -> str:
        name = f"pollux/constant_{len(self.constants)}"
        self.constants.append(_onnx().numpy_helper.from_array(np.asarray(value, dtype=kind), name))
        return name

    def add(self, operator: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        name = name or f"pollux/{operator}_{len(self.nodes)}"
        self.nodes.append(_onnx().helper.make_node(operator, inputs, [name], name=f"pollux/{name}", **attributes))
        return name

    def cast(self, value: str, kind: Any, **attributes: Any) -> str:
        return self.add("Cast", value, to=_kind(kind), **attributes)


def _kind(kind: Any) -> Any:
    """The type of a numpy type (that of text is str) in ONNX."""
    onnx = _onnx()
    return onnx.TensorProto.STRING if kind is str else onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))


def _whole(clustering: GeminiClustering, network: Any, dtype: torch.dtype) -> Any:
    """The network between what encodes its features and what makes probabilities of its logits."""
    onnx = _onnx()
    # Names of the network's own never meet ours.
    model = onnx.compose.add_prefix(network, "network/")
    graph, kind = Graph(), np.float64 if dtype == torch.float64 else np.float32
    raw = _features(graph, clustering.preprocessing_, clustering._shape)
    features = graph.cast(raw, kind, name="network/features")
    _forget_sources(model.graph)
    graph.nodes.extend(model.graph.node)
    _predictions(graph, features, "network/logits", clustering._order.tolist(), kind)
    outputs = [
        onnx.helper.make_tensor_value_info("probabilities", _kind(np.float32), ["n", clustering.n_clusters]),
        onnx.helper.make_tensor_value_info("cluster", _kind(np.int64), ["n"]),
    ]
    for field, values in {"node": graph.nodes, "input": graph.inputs, "output": outputs}.items():
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(values)
    model.graph.initializer.extend(graph.constants)
    model.graph.name = "pollux"
    if any(node.domain == _ML for node in graph.nodes):
        model.opset_import.append(onnx.helper.make_opsetid(_ML, ML_OPSET))
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version = "pollux", importlib.metadata.version("pollux")
    onnx.helper.set_model_props(model, _metadata(clustering))
    return model


def _forget_sources(graph: Any) -> None:
    """Take out the lines of source code, and the paths of them, that torch.export leaves at each operator."""
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")


def _features(graph: Graph, preprocessing: Preprocessing | None, shape: Sequence[int]) -> str:
    """What the network reads, (n, d) or (n, C, H, W), from the inputs of the file."""
    if isinstance(preprocessing, TablePreprocessing):
        return _columns(graph, preprocessing)
    if preprocessing is None:
        return graph.input(*_named(shape), *shape)
    values = graph.input(*_named(preprocessing.shape), *preprocessing.shape)
    if preprocessing.kept is not None:
        values = graph.add("Gather", values, graph.constant(preprocessing.kept, np.int64), axis=1)
    return _standardised(graph, values, *_moments(preprocessing), preprocessing.missing)


def _named(shape: Sequence[int]) -> tuple[str, Any]:
    """The input for samples of this shape, and its type: pixels are small, so that float32 holds them."""
    return ("images", np.float32) if len(shape) == 3 else ("numbers", np.float64)


def _moments(preprocessing: ArrayPreprocessing) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and scale in shapes that go with samples."""
    by_column = (-1, *(1 for _ in preprocessing.shape[1:]))
    return np.asarray(preprocessing.mean).reshape(by_column), np.asarray(preprocessing.scale).reshape(by_column)


def _standardised(graph: Graph, values: str, mean: Any, scale: Any, missing: str) -> str:
    """(x − mean) / scale; in float64, because digits of a large x would be lost before the difference."""
    x = graph.cast(values, np.float64)
    difference = graph.add("Sub", x, graph.constant(mean, np.float64))
    standardised = graph.add("Div", difference, graph.constant(scale, np.float64))
    if missing == "mean":
        standardised = graph.add("Where", graph.add("IsNaN", x), graph.constant(0, np.float64), standardised)
    return graph.cast(standardised, np.float32)


def _columns(graph: Graph, preprocessing: TablePreprocessing) -> str:
    """(n, d) of a table: its numbers, then its texts, put into the order of the model."""
    numbers, texts = _numbers(preprocessing), _texts(preprocessing)
    parts = []
    if numbers:
        mean, scale = [column.mean for column in numbers], [column.scale for column in numbers]
        values = graph.input("numbers", np.float64, len(numbers))
        parts.append(_standardised(graph, values, mean, scale, preprocessing.missing))
    if texts:
        values = graph.input("categories", str, len(texts))
        for index, category in enumerate(texts):
            text = graph.add("Gather", values, graph.constant(index, np.int64), axis=1)
            parts.append(_ones(graph, text, category, preprocessing.missing))
    together = graph.add("Concat", *parts, axis=1)
    read: tuple[Number | Category, ...] = (*numbers, *texts)
    ends = list(itertools.accumulate((len(TablePreprocessing((column,)).feature_names) for column in read), initial=0))
    places = {column.name: range(*ends[index : index + 2]) for index, column in enumerate(read)}
    order = [place for name in preprocessing.names for place in places[name]]
    return graph.add("Gather", together, graph.constant(order, np.int64), axis=1)


def _ones(graph: Graph, text: str, column: Category, missing: str) -> str:
    """Zeros and a one at the value of each text (n,) → (n, values): a row of a table, which has two further rows.

    The last but one is for text that is none of the values, the last for a missing one.
    """
    count = len(column.values)
    rows = {
        spelling: index
        for index, value in enumerate(column.values)
        for spelling in (_SPELLINGS.get(value, (value,)) if column.boolean else (value,))
    }
    # The empty text may be a value like others.
    rows.setdefault("", count + 1)
    refused = [math.nan] * count
    table = [
        *np.eye(count),
        refused if column.boolean else np.zeros(count),
        column.shares if missing == "mean" else refused,
    ]
    position = graph.add(
        "LabelEncoder",
        text,
        domain=_ML,
        keys_strings=list(rows),
        values_int64s=list(rows.values()),
        default_int64=count,
    )
    return graph.add("Gather", graph.constant(table, np.float32), position, axis=0)


def _predictions(graph: Graph, features: str, logits: str, order: Sequence[int], kind: Any) -> None:
    """The outputs, from features (n, …) and logits (n, K); without those of rows that are not finite."""
    ordered = graph.add("Gather", logits, graph.constant(order, np.int64), axis=1)
    softmax = graph.add("Softmax", ordered, axis=1)
    # Some layers turn NaN into numbers, so it is the features that are asked.
    magnitudes = graph.add("Abs", graph.add("Flatten", features, axis=1))
    is_finite = graph.cast(graph.add("Less", magnitudes, graph.constant(math.inf, kind)), np.float32)
    second = graph.constant([1], np.int64)
    all_finite = graph.cast(graph.add("ReduceMin", is_finite, second, keepdims=1), np.bool_)
    sound = graph.add("Where", all_finite, softmax, graph.constant(math.nan, kind))
    graph.cast(sound, np.float32, name="probabilities")
    unsound = graph.add("IsNaN", graph.add("ReduceSum", sound, second, keepdims=0))
    largest = graph.add("ArgMax", sound, axis=1, keepdims=0)
    graph.add("Where", unsound, graph.constant(-1, np.int64), largest, name="cluster")


def _numbers(preprocessing: TablePreprocessing) -> tuple[Number, ...]:
    return tuple(column for column in preprocessing.columns if isinstance(column, Number))


def _texts(preprocessing: TablePreprocessing) -> tuple[Category, ...]:
    return tuple(column for column in preprocessing.columns if isinstance(column, Category))


# What is said of the file, and what it must keep.


def _metadata(clustering: GeminiClustering) -> dict[str, str]:
    preprocessing = clustering.preprocessing_
    told: dict[str, Any] = {"clusters": list(range(clustering.n_clusters)), "clusters_in_use": clustering.n_clusters_}
    if isinstance(preprocessing, TablePreprocessing):
        texts = _texts(preprocessing)
        told["numbers"] = [column.name for column in _numbers(preprocessing)]
        told["categories"] = [column.name for column in texts]
        told["values"] = {column.name: list(column.values) for column in texts}
    elif preprocessing is not None and preprocessing.kept is not None:
        told["numbers"] = [str(index) for index in range(preprocessing.shape[0])]
        told["ignored"] = [name for name in told["numbers"] if name not in preprocessing.feature_names]
    elif hasattr(clustering, "feature_names_in_"):
        told["numbers"] = list(clustering.feature_names_in_)
    described = {name: json.dumps(value, ensure_ascii=False) for name, value in told.items()}
    missing = "error" if preprocessing is None else preprocessing.missing
    return {**described, "missing": missing, "pollux_version": importlib.metadata.version("pollux")}


def _told(clustering: GeminiClustering) -> str:
    """What goes in and out, for people."""
    preprocessing = clustering.preprocessing_
    if isinstance(preprocessing, TablePreprocessing):
        counts = {"number": len(_numbers(preprocessing)), "text": len(_texts(preprocessing))}
        taken = " and ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items() if count)
    else:
        shape = clustering._shape if preprocessing is None else preprocessing.shape
        sizes = " × ".join(map(str, shape))
        taken = f"images of {sizes}" if len(shape) == 3 else f"{sizes} number{'' if shape == (1,) else 's'}"
    return f"{taken} in, {clustering.n_clusters:,} probabilities out"


def _compare(clustering: GeminiClustering, content: bytes) -> None:
    """Raise where onnxruntime does not find our own probabilities, of some rows and of one."""
    try:
        import onnxruntime
    except ImportError:
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    rows, inputs = _made_up_rows(clustering)
    expected = clustering.predict_proba(rows)
    tolerance = TOLERANCE * _conditioning(clustering, rows)
    for n in (len(expected), 1):
        found, cluster = session.run(["probabilities", "cluster"], {name: x[:n] for name, x in inputs.items()})
        error = np.abs(found - expected[:n]).max()
        # Not "error > …", which is false of NaN.
        if not error <= tolerance or (cluster != found.argmax(1)).any():
            raise RuntimeError(f"onnxruntime finds other probabilities than pollux: they differ by {error:.1e}.")


@torch.no_grad()
def _conditioning(clustering: GeminiClustering, rows: Any) -> float:
    """At least 1; more for logits so large that float32 rounds them, and so their softmax, more coarsely."""
    X = rows if clustering.preprocessing_ is None else clustering.preprocessing_.encode(rows)
    logits = _copy(clustering.module_, clustering._dtype)(torch.as_tensor(X, dtype=clustering._dtype))
    return max(1.0, float(logits.abs().max()) / 10)


def _made_up_rows(clustering: GeminiClustering, n: int = 6) -> tuple[Any, dict[str, NDArray[Any]]]:
    """n rows as they are given to predict_proba, and as they are given to the file."""
    random = np.random.default_rng(0)
    preprocessing = clustering.preprocessing_
    if isinstance(preprocessing, TablePreprocessing):
        lacking = preprocessing.missing == "mean"
        columns = {column.name: _made_up_values(column, random, n, lacking) for column in preprocessing.columns}
        return columns, _table_inputs(preprocessing, columns)
    shape = clustering._shape if preprocessing is None else preprocessing.shape
    values: NDArray[Any] = random.normal(size=(n, *shape))
    if isinstance(preprocessing, ArrayPreprocessing):
        kept = list(range(shape[0]) if preprocessing.kept is None else preprocessing.kept)
        mean, scale = _moments(preprocessing)
        values[:, kept] = mean + scale * values[:, kept]
        if preprocessing.missing == "mean":
            values.reshape(n, -1)[np.arange(n), np.arange(n) % math.prod(shape)] = math.nan
    name, kind = _named(shape)
    values = values.astype(kind)
    return values, {name: values}


def _made_up_values(column: Number | Category, random: np.random.Generator, n: int, lacking: bool) -> list[Any]:
    """n values of a column, the first of them missing and the second unknown where such are taken."""
    if isinstance(column, Number):
        return [*([None] if lacking else []), *(column.mean + column.scale * random.normal(size=n))][:n]
    missing = [None] if lacking and "" not in column.values else []
    unknown = [] if column.boolean else ["none of " + ", ".join(column.values)]
    return [*missing, *unknown, *random.choice(column.values, size=n)][:n]


def _table_inputs(preprocessing: TablePreprocessing, columns: dict[str, list[Any]]) -> dict[str, NDArray[Any]]:
    numbers = [np.array(columns[column.name], dtype=np.float64) for column in _numbers(preprocessing)]
    texts = [["" if text is None else text for text in columns[column.name]] for column in _texts(preprocessing)]
    inputs: dict[str, NDArray[Any]] = {}
    if numbers:
        inputs["numbers"] = np.stack(numbers, axis=1)
    if texts:
        inputs["categories"] = np.array(texts, dtype=object).T
    return inputs

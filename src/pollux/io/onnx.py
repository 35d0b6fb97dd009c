"""Export to ONNX: one file that maps the columns of a table, in their own units, to clusters."""

from __future__ import annotations

import copy
import itertools
import json
import logging
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from pollux import __version__
from pollux.data.encoding import ArrayEncoding, ColumnEncoding, Date, Number, TableEncoding
from pollux.data.scaling import FittedScaling, FittedTransformer, prepared
from pollux.errors import InputError
from pollux.fitted import Fitted
from pollux.io.atomic import in_place
from pollux.io.onnx_graph import (
    IR_VERSION,
    ML,
    ML_OPSET,
    OPSET,
    Graph,
    add_features,
    add_predictions,
    add_scaling,
    add_score,
    dates_of,
    input_of,
    moments_of,
    numbers_of,
    onnx_library,
    tensor_type,
    texts_of,
)
from pollux.models import KernelNetwork
from pollux.spec import name_model
from pollux.trees.growth import NO_CHILD
from pollux.trees.tree import GeminiTree

if TYPE_CHECKING:
    from pollux.clustering import GeminiClustering

__all__ = ["to_onnx"]

_TOLERANCE = 1e-5
"""Tolerance for the difference of probabilities from those of the clustering."""

_SHARES = (0.005, 0.01, 0.02, 0.05, 0.1)
"""Shares of the training samples whose scores are stored in the metadata."""

_MAX_BYTES = 2_000_000_000
_NO_OPERATORS = ("fourier", "laplacian", "chi2")


def to_onnx(clustering: GeminiClustering | GeminiTree, path: str | Path) -> str:
    """Write a clustering and its preprocessing as one ONNX file; returns a line about its inputs and outputs.

    Inputs, with any number n of rows:

    - ``numbers`` (n, d), float64: the columns of numbers, in their own units; or ``images`` (n, C, H, W), float32;
    - ``categories`` (n, c), text: the columns of text, if the model uses any; "" is a missing value;
    - ``times`` (n, t), float64: the columns of dates, in seconds since the start of 1970, if the model uses any.

    Outputs: ``probabilities`` (n, K), float32, ``cluster`` (n,), int64, and, but for a tree, ``score`` (n,), float32,
    as ``score_samples`` gives it. A row that ``predict`` would refuse, because of missing or infinite values, has
    probabilities NaN and cluster −1. The metadata contain the names of the columns.

    The file is put in place only after it has passed ONNX's checker and, if onnxruntime is installed, has reproduced
    the probabilities of the clustering.

    Parameters
    ----------
    clustering : GeminiClustering or GeminiTree
        A fitted clustering of any model but a free table. For a tree, probabilities are 0 or 1, and numbers may be NaN.
    path : path
        The file to write.
    """
    check_is_fitted(clustering)
    if isinstance(clustering, GeminiTree):
        if clustering.encoding_ is not None:
            raise InputError(
                "A tree of columns of text or dates cannot be exported: fit it to numbers, such as those of "
                "pandas.get_dummies(X, prefix_sep='='), whose values it names all the same."
            )
        with in_place(path) as temporary:
            temporary.write_bytes(_make_tree(clustering))
        return f"{clustering.n_features_in_:,} numbers in, {clustering.n_clusters_:,} probabilities out"
    fitted = clustering.fitted_
    if fitted.is_free:
        raise InputError(
            "A free table of probabilities cannot predict new samples, so there is nothing to export: train another "
            "model, such as 'linear'."
        )
    if isinstance(fitted.scaling, FittedTransformer):
        raise InputError("A transformer of scikit-learn cannot be exported: use Scaling(…), or export it by itself.")
    if sum(tensor.nbytes for tensor in fitted.module.state_dict().values()) > _MAX_BYTES:
        raise InputError("The model has more than 2 GB of weights, which one ONNX file cannot hold.")
    if isinstance(fitted.module, KernelNetwork) and fitted.module.kernel.name in _NO_OPERATORS:
        raise InputError(
            f"ONNX has no operators for the {fitted.module.kernel.name} kernel: use another, such as 'rbf'."
        )
    onnx_library()
    with in_place(path) as temporary:
        temporary.write_bytes(_make_model(fitted, is_own_network=not isinstance(name_model(clustering.model)[0], str)))
    return _describe(fitted)


def _make_tree(tree: GeminiTree) -> bytes:
    """The bytes of the file: evaluates all splits at once, and finds the leaf whose conditions hold; in float64."""
    onnx, graph, nodes, d = onnx_library(), Graph(), tree.nodes_, tree.n_features_in_
    paths = list(tree.paths())
    # A tree without splits gets one that has no effect.
    inner = np.flatnonzero(nodes.left != NO_CHILD) if len(paths) > 1 else np.array([0])
    place = {int(node): row for row, node in enumerate(inner)}
    signs, counts = np.zeros((len(inner), len(paths))), np.zeros(len(paths))
    for column, (_, path) in enumerate(paths):
        for node, goes_left in path:
            signs[place[node], column] = 1 if goes_left else -1
            counts[column] += goes_left
    numbers = graph.input("numbers", np.float64, d)
    values = graph.add("Gather", numbers, graph.constant(nodes.feature[inner], np.int64), axis=1)
    below = graph.add("LessOrEqual", values, graph.constant(nodes.threshold[inner], np.float64))
    # Comparisons with NaN are false, so missing values are handled separately.
    missing = graph.add("And", graph.add("IsNaN", values), graph.constant(nodes.missing_left[inner], np.bool_))
    below = graph.add("Or", below, missing)
    score = graph.add("MatMul", graph.cast(below, np.float32), graph.constant(signs, np.float32))
    holds = graph.cast(graph.add("Equal", score, graph.constant(counts, np.float32)), np.float32)
    leaf = graph.add("ArgMax", holds, axis=1, keepdims=0)
    clusters = nodes.cluster[[leaf for leaf, _ in paths]]
    graph.add("Gather", graph.constant(clusters, np.int64), leaf, axis=0, name="cluster")
    table = np.eye(tree.n_clusters_)[clusters]
    graph.add("Gather", graph.constant(table, np.float32), leaf, axis=0, name="probabilities")
    outputs = [
        onnx.helper.make_tensor_value_info("probabilities", tensor_type(np.float32), ["n", tree.n_clusters_]),
        onnx.helper.make_tensor_value_info("cluster", tensor_type(np.int64), ["n"]),
    ]
    made = onnx.helper.make_graph(graph.nodes, "pollux", graph.inputs, outputs, graph.constants)
    opset = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(made, opset_imports=opset, ir_version=IR_VERSION, producer_name="pollux")
    names = json.dumps(list(map(str, getattr(tree, "feature_names_in_", range(d)))), ensure_ascii=False)
    onnx.helper.set_model_props(model, {"numbers": names, "missing": "tree", "pollux_version": __version__})
    content: bytes = model.SerializeToString(deterministic=True)
    onnx.checker.check_model(content, full_check=True)
    return content


def _make_model(fitted: Fitted, is_own_network: bool) -> bytes:
    """The bytes of the file, by the first conversion of the network that reproduces its outputs.

    Tracing is fast, needs no further package and supports all layers of our models, but is deprecated in torch. It
    does not see control flow: a custom network is converted by torch.export first.
    """
    translations = (_export, _trace) if is_own_network else (_trace, _export)
    # Runtimes lack convolutions and some other operators in float64.
    dtypes = dict.fromkeys([torch.float32] if len(fitted.shape) == 3 else [fitted.dtype, torch.float32])
    failures = []
    for translate, dtype in itertools.product(translations, dtypes):
        try:
            with _silence():
                example = torch.zeros(3, *fitted.network_shape, dtype=dtype)
                model = _assemble(fitted, translate(_copy(fitted.module, dtype), example), dtype)
                content: bytes = model.SerializeToString(deterministic=True)
                onnx_library().checker.check_model(content, full_check=True)
                _compare(fitted, content)
            return content
        except InputError:
            raise
        # Each converter has exceptions of its own, and so has each runtime.
        except Exception as error:
            failures.append(error)
    first_lines = [f"{type(error).__name__}: {error}".partition("\n")[0] for error in failures]
    reasons = "; ".join(dict.fromkeys(first_lines))
    if not is_own_network:
        raise RuntimeError(f"The model cannot be written as ONNX. {reasons}") from failures[0]
    raise InputError(
        "This network cannot be written as ONNX: what it does must not depend on the values of its inputs or on their "
        f"number, and must have ONNX operators. {reasons}"
    ) from failures[0]


_NAMES: dict[str, Any] = {"input_names": ["features"], "output_names": ["logits"], "opset_version": OPSET}


@torch.no_grad()
def _trace(module: nn.Module, example: Tensor) -> Any:
    batch = {"features": {0: "n"}, "logits": {0: "n"}}
    with TemporaryDirectory() as folder:
        file = f"{folder}/network.onnx"
        torch.onnx.export(module, (example,), file, dynamic_axes=batch, dynamo=False, **_NAMES)
        return onnx_library().load(file)


@torch.no_grad()
def _export(module: nn.Module, example: Tensor) -> Any:
    batch = ({0: torch.export.Dim("n")},)
    program = torch.onnx.export(module, (example,), dynamic_shapes=batch, verbose=False, dynamo=True, **_NAMES)
    assert program is not None
    return program.model_proto


def _copy(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    return copy.deepcopy(module).to("cpu", dtype).eval()


@contextmanager
def _silence() -> Iterator[None]:
    """Suppress warnings and log lines of torch's exporters, which are of no use to the user."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _assemble(fitted: Fitted, translated: Any, dtype: torch.dtype) -> Any:
    """Connect the encoding of features, the network, and the probabilities from its logits."""
    onnx = onnx_library()
    # A prefix, so that names in the network do not collide with ours.
    model = onnx.compose.add_prefix(translated, "network/")
    graph, kind = Graph(), np.float64 if dtype == torch.float64 else np.float32
    values = add_features(graph, fitted.encoding, fitted.shape)
    if isinstance(fitted.scaling, FittedScaling):
        values = add_scaling(graph, values, fitted.scaling, fitted.missing)
    features = graph.cast(values, kind, name="network/features")
    _remove_sources(model.graph)
    graph.nodes.extend(model.graph.node)
    add_predictions(graph, features, "network/logits", fitted.order.tolist(), kind, fitted.temperature)
    outputs = [
        onnx.helper.make_tensor_value_info("probabilities", tensor_type(np.float32), ["n", len(fitted.order)]),
        onnx.helper.make_tensor_value_info("cluster", tensor_type(np.int64), ["n"]),
    ]
    if fitted.prototypes is not None:
        add_score(graph, features, fitted.prototypes)
        outputs.append(onnx.helper.make_tensor_value_info("score", tensor_type(np.float32), ["n"]))
    for field, values_of_field in {"node": graph.nodes, "input": graph.inputs, "output": outputs}.items():
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(values_of_field)
    model.graph.initializer.extend(graph.constants)
    model.graph.name = "pollux"
    if any(node.domain == ML for node in graph.nodes):
        model.opset_import.append(onnx.helper.make_opsetid(ML, ML_OPSET))
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version = "pollux", __version__
    onnx.helper.set_model_props(model, _metadata(fitted))
    return model


def _remove_sources(graph: Any) -> None:
    """Remove the source lines, and their paths, that torch.export attaches to each operator."""
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")


def _metadata(fitted: Fitted) -> dict[str, str]:
    encoding = fitted.encoding
    content: dict[str, Any] = {"clusters": list(range(len(fitted.order))), "clusters_in_use": fitted.n_clusters}
    if isinstance(encoding, TableEncoding):
        texts = texts_of(encoding)
        content["numbers"] = [column.name for column in numbers_of(encoding)]
        content["categories"] = [column.name for column in texts]
        if dates_of(encoding):
            content["times"] = [column.name for column in dates_of(encoding)]
        content["values"] = {column.name: list(column.values) for column in texts}
    elif isinstance(encoding, ArrayEncoding) and encoding.kept is not None:
        content["numbers"] = [str(index) for index in range(encoding.shape[0])]
        content["ignored"] = [name for name in content["numbers"] if name not in encoding.feature_names]
    elif fitted.feature_names:
        content["numbers"] = list(fitted.feature_names)
    if fitted.prototypes is not None:
        content["outliers"] = {str(share): fitted.prototypes.threshold(share) for share in _SHARES}
    texts_by_key = {name: json.dumps(value, ensure_ascii=False) for name, value in content.items()}
    missing = fitted.missing if encoding is None else encoding.missing
    return {**texts_by_key, "missing": missing, "pollux_version": __version__}


def _describe(fitted: Fitted) -> str:
    """A description of inputs and outputs."""
    encoding = fitted.encoding
    if isinstance(encoding, TableEncoding):
        counts = {"number": len(numbers_of(encoding)), "text": len(texts_of(encoding))}
        counts["time"] = len(dates_of(encoding))
        named = [f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items() if count]
        taken = " and ".join(filter(None, [", ".join(named[:-1]), *named[-1:]]))
    else:
        shape = encoding.shape if isinstance(encoding, ArrayEncoding) else fitted.shape
        sizes = " × ".join(map(str, shape))
        taken = f"images of {sizes}" if len(shape) == 3 else f"{sizes} number{'' if shape == (1,) else 's'}"
    return f"{taken} in, {len(fitted.order):,} probabilities out"


def _compare(fitted: Fitted, content: bytes) -> None:
    """Raise if onnxruntime does not reproduce our probabilities, for several rows and for one."""
    try:
        import onnxruntime
    except ImportError:
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    X, inputs = _example_rows(fitted)
    expected = fitted.probabilities(X)
    tolerance = _TOLERANCE * _conditioning(fitted, X)
    for n in (len(expected), 1):
        found, cluster, *score = session.run(None, {name: x[:n] for name, x in inputs.items()})
        error = np.abs(found - expected[:n]).max()
        # Not "error > …", which is false for NaN.
        if not error <= tolerance or (cluster != found.argmax(1)).any():
            raise RuntimeError(f"onnxruntime gives other probabilities than pollux: they differ by {error:.1e}.")
        if score and not np.allclose(score[0], fitted.scores(X)[:n], rtol=1e-4):
            raise RuntimeError("onnxruntime gives other scores than pollux.")


@torch.no_grad()
def _conditioning(fitted: Fitted, X: Any) -> float:
    """At least 1; more for logits so large that float32 rounds them, and so their softmax, more coarsely."""
    seen = prepared(X, fitted.scaling, fitted.dtype, "cpu")[torch.arange(len(X))]
    return max(1.0, float(_copy(fitted.module, fitted.dtype)(seen).abs().max()) / 10)


def _example_rows(fitted: Fitted, n: int = 6) -> tuple[Any, dict[str, NDArray[Any]]]:
    """n random samples as the clustering takes them, and as the file takes them."""
    random, encoding = np.random.default_rng(0), fitted.encoding
    if isinstance(encoding, TableEncoding):
        columns = {column.name: _example_values(column, random, n, encoding.missing) for column in encoding.columns}
        return encoding.encode(columns), _table_inputs(encoding, columns)
    shape = encoding.shape if isinstance(encoding, ArrayEncoding) else fitted.shape
    values: NDArray[Any] = random.normal(size=(n, *shape))
    missing = fitted.missing
    if isinstance(encoding, ArrayEncoding):
        kept = list(range(shape[0]) if encoding.kept is None else encoding.kept)
        mean, scale = moments_of(encoding)
        values[:, kept] = mean + scale * values[:, kept]
        missing = encoding.missing
    elif isinstance(fitted.scaling, FittedScaling):
        values = fitted.scaling.centre.numpy() + fitted.scaling.scale.numpy() * values
    if missing == "mean":
        values.reshape(n, -1)[np.arange(n), np.arange(n) % math.prod(shape)] = math.nan
    name, kind = input_of(shape)
    values = values.astype(kind)
    return values if encoding is None else encoding.encode(values), {name: values}


def _example_values(column: ColumnEncoding, random: np.random.Generator, n: int, missing: str) -> list[Any]:
    """n values of a column, the first of them missing and the second unknown if these are accepted."""
    if isinstance(column, Number):
        return [*([None] if missing == "mean" else []), *(column.mean + column.scale * random.normal(size=n))][:n]
    if isinstance(column, Date):
        times = random.integers(0, 2**31, size=n).astype("datetime64[s]")
        return [*([None] if missing == "mean" else []), *times.tolist()][:n]
    lacking = [None] if missing == "mean" and "" not in column.values else []
    unknown = [] if column.boolean else ["none of " + ", ".join(column.values)]
    return [*lacking, *unknown, *random.choice(column.values, size=n)][:n]


def _table_inputs(encoding: TableEncoding, columns: dict[str, list[Any]]) -> dict[str, NDArray[Any]]:
    numbers = [np.array(columns[column.name], dtype=np.float64) for column in numbers_of(encoding)]
    texts = [["" if text is None else text for text in columns[column.name]] for column in texts_of(encoding)]
    inputs: dict[str, NDArray[Any]] = {}
    times = [np.array(columns[column.name], dtype="datetime64[s]") for column in dates_of(encoding)]
    if times:
        together = np.stack(times, axis=1)
        inputs["times"] = np.where(np.isnat(together), np.nan, together.astype(np.float64))
    if numbers:
        inputs["numbers"] = np.stack(numbers, axis=1)
    if texts:
        inputs["categories"] = np.array(texts, dtype=object).T
    return inputs

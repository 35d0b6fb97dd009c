"""One ONNX file from the columns of a table, in their own units, to clusters."""

from __future__ import annotations

import importlib.metadata
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from pollux.clustering import GeminiClustering
from pollux.data.preprocessing import TablePreprocessing
from pollux.errors import InputError
from pollux.io.atomic import in_place
from pollux.io.onnx.check import compare
from pollux.io.onnx.graph import ML, Graph, add_features, add_predictions, add_scaling, kind_of, numbers_of, texts_of
from pollux.io.onnx.library import IR_VERSION, ML_OPSET, onnx_library
from pollux.io.onnx.network import copied, precisions, silence, translators

_MOST_BYTES = 2_000_000_000


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
    if clustering.fitted_.is_free:
        raise InputError(
            "A free table of probabilities has no opinion on new rows, so there is nothing to export: train another "
            "model, such as 'linear'."
        )
    if sum(tensor.nbytes for tensor in clustering.module_.state_dict().values()) > _MOST_BYTES:
        raise InputError("The model has more than 2 GB of weights, which one ONNX file cannot hold.")
    onnx_library()
    with in_place(path) as temporary:
        temporary.write_bytes(_checked_model(clustering))
    return _told(clustering)


def _checked_model(clustering: GeminiClustering) -> bytes:
    """The file's bytes, from the first way of translating the network that gives what the network gives."""
    failures = []
    for translate, dtype in itertools.product(translators(clustering), precisions(clustering)):
        try:
            with silence():
                example = torch.zeros(3, *clustering.fitted_.network_shape, dtype=dtype)
                model = _whole(clustering, translate(copied(clustering.module_, dtype), example), dtype)
                content: bytes = model.SerializeToString(deterministic=True)
                onnx_library().checker.check_model(content, full_check=True)
                compare(clustering, content)
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


def _whole(clustering: GeminiClustering, translated: Any, dtype: torch.dtype) -> Any:
    """The network between what encodes its features and what makes probabilities of its logits."""
    onnx = onnx_library()
    # Names of the network's own never meet ours.
    model = onnx.compose.add_prefix(translated, "network/")
    graph, kind = Graph(), np.float64 if dtype == torch.float64 else np.float32
    raw = add_features(graph, clustering.fitted_.encoding, clustering.fitted_.shape)
    if clustering.scaling_ is not None:
        raw = add_scaling(graph, raw, clustering.scaling_, clustering.fitted_.missing)
    features = graph.cast(raw, kind, name="network/features")
    _forget_sources(model.graph)
    graph.nodes.extend(model.graph.node)
    add_predictions(graph, features, "network/logits", clustering.fitted_.order.tolist(), kind)
    outputs = [
        onnx.helper.make_tensor_value_info("probabilities", kind_of(np.float32), ["n", clustering.n_clusters]),
        onnx.helper.make_tensor_value_info("cluster", kind_of(np.int64), ["n"]),
    ]
    for field, values in {"node": graph.nodes, "input": graph.inputs, "output": outputs}.items():
        model.graph.ClearField(field)
        getattr(model.graph, field).extend(values)
    model.graph.initializer.extend(graph.constants)
    model.graph.name = "pollux"
    if any(node.domain == ML for node in graph.nodes):
        model.opset_import.append(onnx.helper.make_opsetid(ML, ML_OPSET))
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version = "pollux", importlib.metadata.version("pollux")
    onnx.helper.set_model_props(model, _metadata(clustering))
    return model


def _forget_sources(graph: Any) -> None:
    """Take out the lines of source code, and the paths of them, that torch.export leaves at each operator."""
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        part.ClearField("doc_string")
        part.ClearField("metadata_props")


def _metadata(clustering: GeminiClustering) -> dict[str, str]:
    preprocessing = clustering.fitted_.encoding
    told: dict[str, Any] = {"clusters": list(range(clustering.n_clusters)), "clusters_in_use": clustering.n_clusters_}
    if isinstance(preprocessing, TablePreprocessing):
        texts = texts_of(preprocessing)
        told["numbers"] = [column.name for column in numbers_of(preprocessing)]
        told["categories"] = [column.name for column in texts]
        told["values"] = {column.name: list(column.values) for column in texts}
    elif preprocessing is not None and preprocessing.kept is not None:
        told["numbers"] = [str(index) for index in range(preprocessing.shape[0])]
        told["ignored"] = [name for name in told["numbers"] if name not in preprocessing.feature_names]
    elif hasattr(clustering, "feature_names_in_"):
        told["numbers"] = list(clustering.feature_names_in_)
    described = {name: json.dumps(value, ensure_ascii=False) for name, value in told.items()}
    missing = clustering.fitted_.missing if preprocessing is None else preprocessing.missing
    return {**described, "missing": missing, "pollux_version": importlib.metadata.version("pollux")}


def _told(clustering: GeminiClustering) -> str:
    """What goes in and out, for people."""
    preprocessing = clustering.fitted_.encoding
    if isinstance(preprocessing, TablePreprocessing):
        counts = {"number": len(numbers_of(preprocessing)), "text": len(texts_of(preprocessing))}
        taken = " and ".join(f"{count:,} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items() if count)
    else:
        shape = clustering.fitted_.shape if preprocessing is None else preprocessing.shape
        sizes = " × ".join(map(str, shape))
        taken = f"images of {sizes}" if len(shape) == 3 else f"{sizes} number{'' if shape == (1,) else 's'}"
    return f"{taken} in, {clustering.n_clusters:,} probabilities out"

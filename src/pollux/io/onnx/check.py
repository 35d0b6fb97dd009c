"""Whether a file says what the clustering says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pollux.clustering import GeminiClustering
from pollux.data.preprocessing import ArrayPreprocessing, Category, Number, TablePreprocessing
from pollux.data.scaling import prepared
from pollux.io.onnx.graph import input_named, moments_of, numbers_of, texts_of
from pollux.io.onnx.network import copied

TOLERANCE = 1e-5
"""How far a probability of the file may be from our own."""


def compare(clustering: GeminiClustering, content: bytes) -> None:
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
    X = rows if clustering.fitted_.encoding is None else clustering.fitted_.encoding.encode(rows)
    fitted = clustering.fitted_
    seen = prepared(X, fitted.scaling, fitted.dtype, "cpu")[torch.arange(len(X))]
    logits = copied(fitted.module, fitted.dtype)(seen)
    return max(1.0, float(logits.abs().max()) / 10)


def _made_up_rows(clustering: GeminiClustering, n: int = 6) -> tuple[Any, dict[str, NDArray[Any]]]:
    """n rows as they are given to predict_proba, and as they are given to the file."""
    random = np.random.default_rng(0)
    preprocessing = clustering.fitted_.encoding
    if isinstance(preprocessing, TablePreprocessing):
        lacking = preprocessing.missing == "mean"
        columns = {column.name: _made_up_values(column, random, n, lacking) for column in preprocessing.columns}
        return columns, _table_inputs(preprocessing, columns)
    shape = clustering.fitted_.shape if preprocessing is None else preprocessing.shape
    values: NDArray[Any] = random.normal(size=(n, *shape))
    if isinstance(preprocessing, ArrayPreprocessing):
        kept = list(range(shape[0]) if preprocessing.kept is None else preprocessing.kept)
        mean, scale = moments_of(preprocessing)
        values[:, kept] = mean + scale * values[:, kept]
        if preprocessing.missing == "mean":
            values.reshape(n, -1)[np.arange(n), np.arange(n) % math.prod(shape)] = math.nan
    elif clustering.scaling_ is not None:
        centre, scale = clustering.scaling_.centre.numpy(), clustering.scaling_.scale.numpy()
        values = centre + scale * values
        if clustering.fitted_.missing == "mean":
            values.reshape(n, -1)[np.arange(n), np.arange(n) % math.prod(shape)] = math.nan
    name, kind = input_named(shape)
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
    numbers = [np.array(columns[column.name], dtype=np.float64) for column in numbers_of(preprocessing)]
    texts = [["" if text is None else text for text in columns[column.name]] for column in texts_of(preprocessing)]
    inputs: dict[str, NDArray[Any]] = {}
    if numbers:
        inputs["numbers"] = np.stack(numbers, axis=1)
    if texts:
        inputs["categories"] = np.array(texts, dtype=object).T
    return inputs

"""The ONNX operators before and after the network, written explicitly, because torch cannot trace text."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pollux.data.encoding import (
    BEGINNINGS,
    ArrayEncoding,
    Category,
    ColumnEncoding,
    Date,
    Encoding,
    Number,
    TableEncoding,
)
from pollux.data.scaling import FittedScaling
from pollux.data.spellings import CYCLES, YEAR
from pollux.errors import InputError
from pollux.inspection.outliers import NEAREST, Prototypes

OPSET, ML_OPSET, IR_VERSION = 18, 2, 8
"""Versions of ONNX that are supported by software from 2023 on."""

ML = "ai.onnx.ml"
_SPELLINGS = {"true": ("true", "True", "TRUE", "1"), "false": ("false", "False", "FALSE", "0")}


def onnx_library() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise InputError("ONNX files are written by onnx: pip install 'pollux[onnx]'.") from error
    return onnx


class Graph:
    """Operators and constants in the order in which they were added; each is named by its result."""

    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def input(self, name: str, kind: Any, *shape: int) -> str:
        self.inputs.append(onnx_library().helper.make_tensor_value_info(name, tensor_type(kind), ["n", *shape]))
        return name

    def constant(self, value: Any, kind: Any) -> str:
        name = f"pollux/constant_{len(self.constants)}"
        self.constants.append(onnx_library().numpy_helper.from_array(np.asarray(value, dtype=kind), name))
        return name

    def add(
        self, operator: str, *inputs: str, name: str | None = None, further: Sequence[str] = (), **attributes: Any
    ) -> str:
        """Add an operator; returns the name of its first result; ``further`` are the names of other results."""
        name = name or f"pollux/{operator}_{len(self.nodes)}"
        self.nodes.append(
            onnx_library().helper.make_node(operator, inputs, [name, *further], name=f"pollux/{name}", **attributes)
        )
        return name

    def cast(self, value: str, kind: Any, **attributes: Any) -> str:
        return self.add("Cast", value, to=tensor_type(kind), **attributes)


def tensor_type(kind: Any) -> Any:
    """The ONNX type of a NumPy type; that of text is str."""
    onnx = onnx_library()
    return onnx.TensorProto.STRING if kind is str else onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))


def add_features(graph: Graph, encoding: Encoding | None, shape: Sequence[int]) -> str:
    """Add the inputs of the file, and the features (n, d) or (n, C, H, W) that the network takes."""
    if isinstance(encoding, TableEncoding):
        return _encode_columns(graph, encoding)
    if encoding is None:
        return graph.input(*input_of(shape), *shape)
    assert isinstance(encoding, ArrayEncoding)
    values = graph.input(*input_of(encoding.shape), *encoding.shape)
    if encoding.kept is not None:
        values = graph.add("Gather", values, graph.constant(encoding.kept, np.int64), axis=1)
    mean, scale = moments_of(encoding)
    fill = mean if encoding.fill is None else encoding.by_column(encoding.fill)
    return graph.cast(_scale(graph, values, mean, scale, fill, encoding.missing), np.float32)


def add_scaling(graph: Graph, values: str, scaling: FittedScaling, missing: str) -> str:
    """Add the scaling of features, in float64."""
    fill = scaling.centre if scaling.fill is None else scaling.fill
    scaled = _scale(graph, values, scaling.centre, scaling.scale, fill, missing)
    if scaling.axes is None:
        return scaled
    return graph.add("MatMul", graph.add("Flatten", scaled, axis=1), graph.constant(scaling.axes, np.float64))


def _scale(graph: Graph, values: str, centre: Any, scale: Any, fill: Any, missing: str) -> str:
    """(x − centre) / scale, with ``fill`` for a missing x; in float64, as float32 has too few digits for large x."""
    x = graph.cast(values, np.float64)
    if missing == "mean":
        x = graph.add("Where", graph.add("IsNaN", x), graph.constant(fill, np.float64), x)
    difference = graph.add("Sub", x, graph.constant(centre, np.float64))
    return graph.add("Div", difference, graph.constant(scale, np.float64))


def input_of(shape: Sequence[int]) -> tuple[str, Any]:
    """Name and type of the input for samples of this shape: float32 is enough for pixels, dates need float64."""
    return ("images", np.float32) if len(shape) == 3 else ("numbers", np.float64)


def moments_of(encoding: ArrayEncoding) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and scale in shapes that broadcast over samples."""
    return encoding.by_column(encoding.mean), encoding.by_column(encoding.scale)


def _encode_columns(graph: Graph, encoding: TableEncoding) -> str:
    """Features (n, d) of a table: its numbers, then its texts, reordered as in the model."""
    numbers, texts, dates = numbers_of(encoding), texts_of(encoding), dates_of(encoding)
    parts = []
    if numbers:
        mean, scale = [column.mean for column in numbers], [column.scale for column in numbers]
        fill = [column.mean if column.fill is None else column.fill for column in numbers]
        values = graph.input("numbers", np.float64, len(numbers))
        parts.append(graph.cast(_scale(graph, values, mean, scale, fill, encoding.missing), np.float32))
    if texts:
        values = graph.input("categories", str, len(texts))
        for index, category in enumerate(texts):
            text = graph.add("Gather", values, graph.constant(index, np.int64), axis=1)
            parts.append(_one_hot(graph, text, category, encoding.missing))
    if dates:
        times = graph.input("times", np.float64, len(dates))
        for index, date in enumerate(dates):
            parts.append(
                _facets(
                    graph, graph.add("Gather", times, graph.constant([index], np.int64), axis=1), date, encoding.missing
                )
            )
    together = graph.add("Concat", *parts, axis=1)
    read: tuple[ColumnEncoding, ...] = (*numbers, *texts, *dates)
    ends = list(itertools.accumulate((len(column.feature_names) for column in read), initial=0))
    places = {column.name: range(*ends[index : index + 2]) for index, column in enumerate(read)}
    order = [place for name in encoding.names for place in places[name]]
    return graph.add("Gather", together, graph.constant(order, np.int64), axis=1)


def _facets(graph: Graph, times: str, column: Date, missing: str) -> str:
    """Facets (n, features) of times (n, 1), in seconds since the start of 1970."""

    def turned(facet: str) -> str:
        begun = graph.add("Sub", times, graph.constant(BEGINNINGS.get(facet, 0.0), np.float64))
        turns = graph.add("Div", begun, graph.constant(CYCLES[facet], np.float64))
        part = graph.add("Sub", turns, graph.add("Floor", turns))
        return graph.cast(graph.add("Mul", part, graph.constant(2 * math.pi, np.float64)), np.float32)

    parts = []
    for facet in column.facets:
        if facet == "year":
            years = graph.add("Div", times, graph.constant(YEAR, np.float64))
            parts.append(graph.add("Add", years, graph.constant(1970.0, np.float64)))
        else:
            angle = turned(facet)
            parts += [graph.cast(graph.add(function, angle), np.float64) for function in ("Cos", "Sin")]
    values = graph.add("Concat", *parts, axis=1)
    fill = column.mean if column.fill is None else column.fill
    return graph.cast(_scale(graph, values, column.mean, column.scale, fill, missing), np.float32)


def _one_hot(graph: Graph, text: str, column: Category, missing: str) -> str:
    """One-hot encoding of text (n,) → (n, features), by lookup in a table of codes.

    The second to last row is for unknown text, the last one for missing text.
    """
    count = len(column.values)
    rows = {
        spelling: index
        for index, value in enumerate(column.values)
        for spelling in (_SPELLINGS.get(value, (value,)) if column.boolean else (value,))
    }
    # The empty text means missing, unless it is a value of the column.
    rows.setdefault("", count + 1)
    table = column.codes
    if column.boolean:
        table[count] = math.nan
    if missing != "mean":
        table[count + 1] = math.nan
    position = graph.add(
        "LabelEncoder",
        text,
        domain=ML,
        keys_strings=list(rows),
        values_int64s=list(rows.values()),
        default_int64=count,
    )
    return graph.add("Gather", graph.constant(table, np.float32), position, axis=0)


def add_predictions(
    graph: Graph, features: str, logits: str, order: Sequence[int], kind: Any, temperature: float = 1.0
) -> None:
    """Add the outputs, from features (n, …) and logits (n, K); NaN and −1 for rows that are not finite."""
    ordered = graph.add("Gather", logits, graph.constant(order, np.int64), axis=1)
    if temperature != 1:
        ordered = graph.add("Div", ordered, graph.constant(temperature, kind))
    softmax = graph.add("Softmax", ordered, axis=1)
    # The features are checked, because some layers turn NaN into numbers.
    magnitudes = graph.add("Abs", graph.add("Flatten", features, axis=1))
    is_finite = graph.cast(graph.add("Less", magnitudes, graph.constant(math.inf, kind)), np.float32)
    second = graph.constant([1], np.int64)
    all_finite = graph.cast(graph.add("ReduceMin", is_finite, second, keepdims=1), np.bool_)
    sound = graph.add("Where", all_finite, softmax, graph.constant(math.nan, kind))
    graph.cast(sound, np.float32, name="probabilities")
    unsound = graph.add("IsNaN", graph.add("ReduceSum", sound, second, keepdims=0))
    largest = graph.add("ArgMax", sound, axis=1, keepdims=0)
    graph.add("Where", unsound, graph.constant(-1, np.int64), largest, name="cluster")


def add_score(graph: Graph, features: str, prototypes: Prototypes) -> None:
    """Add the output ``score`` (n,): minus the mean distance of features (n, …) to the nearest prototypes; float64."""
    point = graph.cast(graph.add("Flatten", features, axis=1), np.float64)
    point = graph.add("Sub", point, graph.constant(prototypes.centre, np.float64))
    # The scale is applied at the end: before the product onnxruntime would fuse it, in single precision.
    second, means = graph.constant([1], np.int64), (prototypes.means * prototypes.unit).numpy()
    # ‖x‖² + ‖m‖² − 2 x·m: differences of all pairs would need d times the memory.
    own = graph.add("ReduceSum", graph.add("Mul", point, point), second, keepdims=1)
    squares = graph.add("Add", own, graph.constant(np.square(means).sum(1), np.float64))
    squares = graph.add("Add", squares, graph.add("MatMul", point, graph.constant(-2 * means.T, np.float64)))
    distances = graph.add("Sqrt", graph.add("Max", squares, graph.constant(0, np.float64)))
    count = graph.constant([min(NEAREST, len(means))], np.int64)
    nearest = graph.add("TopK", distances, count, further=["pollux/places"], axis=1, largest=0)
    mean = graph.add("ReduceMean", nearest, second, keepdims=0)
    score = graph.add("Neg", graph.add("Div", mean, graph.constant(prototypes.unit, np.float64)))
    graph.cast(score, np.float32, name="score")


def numbers_of(encoding: TableEncoding) -> tuple[Number, ...]:
    return tuple(column for column in encoding.columns if isinstance(column, Number))


def dates_of(encoding: TableEncoding) -> tuple[Date, ...]:
    return tuple(column for column in encoding.columns if isinstance(column, Date))


def texts_of(encoding: TableEncoding) -> tuple[Category, ...]:
    return tuple(column for column in encoding.columns if isinstance(column, Category))

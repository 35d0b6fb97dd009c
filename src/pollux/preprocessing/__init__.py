"""From the columns of a table, or an array, to the numbers a model reads."""

from pollux.preprocessing.encoding import (
    MISSING,
    ArrayPreprocessing,
    Category,
    Number,
    Preprocessing,
    TablePreprocessing,
    from_json,
)
from pollux.preprocessing.planning import Choices, plan_array, plan_table, split_names

__all__ = [
    "MISSING",
    "ArrayPreprocessing",
    "Category",
    "Choices",
    "Number",
    "Preprocessing",
    "TablePreprocessing",
    "from_json",
    "plan_array",
    "plan_table",
    "split_names",
]

"""From the columns of a table, or an array, to the numbers a model reads."""

from pollux.preprocessing.array import ArrayPreprocessing
from pollux.preprocessing.arrow import as_text, plain
from pollux.preprocessing.common import CODE, MISSING
from pollux.preprocessing.planning import Choices, plan_array, plan_table, split_names
from pollux.preprocessing.stored import Preprocessing, from_json
from pollux.preprocessing.table import Category, Number, TablePreprocessing, UnseenWarning

__all__ = [
    "CODE",
    "MISSING",
    "ArrayPreprocessing",
    "Category",
    "Choices",
    "Number",
    "Preprocessing",
    "TablePreprocessing",
    "UnseenWarning",
    "as_text",
    "from_json",
    "plain",
    "plan_array",
    "plan_table",
    "split_names",
]

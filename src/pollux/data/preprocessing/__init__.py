"""From the columns of a table, or an array, to the numbers a model reads."""

from pollux.data.preprocessing.array import ArrayPreprocessing
from pollux.data.preprocessing.array_survey import ArraySurvey
from pollux.data.preprocessing.arrow import as_text, plain
from pollux.data.preprocessing.choices import Choices, split_names
from pollux.data.preprocessing.columns import kind_of, same_kind
from pollux.data.preprocessing.common import CODE, MISSING
from pollux.data.preprocessing.planning import plan_array, plan_table
from pollux.data.preprocessing.scales import SCALINGS
from pollux.data.preprocessing.stored import Preprocessing, from_json
from pollux.data.preprocessing.survey import Survey
from pollux.data.preprocessing.table import Category, Number, TablePreprocessing, UnseenWarning

__all__ = [
    "CODE",
    "MISSING",
    "SCALINGS",
    "ArrayPreprocessing",
    "ArraySurvey",
    "Category",
    "Choices",
    "Number",
    "Preprocessing",
    "Survey",
    "TablePreprocessing",
    "UnseenWarning",
    "as_text",
    "from_json",
    "kind_of",
    "plain",
    "plan_array",
    "plan_table",
    "same_kind",
    "split_names",
]

"""From the columns of a table, or an array, to the numbers a model reads."""

from pollux.preprocessing.array import ArrayPreprocessing
from pollux.preprocessing.array_survey import ArraySurvey
from pollux.preprocessing.arrow import as_text, plain
from pollux.preprocessing.choices import Choices, split_names
from pollux.preprocessing.columns import kind_of, same_kind
from pollux.preprocessing.common import CODE, MISSING
from pollux.preprocessing.planning import plan_array, plan_table
from pollux.preprocessing.scales import SCALINGS
from pollux.preprocessing.stored import Preprocessing, from_json
from pollux.preprocessing.survey import Survey
from pollux.preprocessing.table import Category, Number, TablePreprocessing, UnseenWarning

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

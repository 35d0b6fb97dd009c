"""Which columns a model is to read, and how: decided by looking at all of their values at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pollux.data.preprocessing.array import ArrayPreprocessing
from pollux.data.preprocessing.array_survey import ArraySurvey
from pollux.data.preprocessing.choices import Choices
from pollux.data.preprocessing.survey import Survey
from pollux.data.preprocessing.table import TablePreprocessing


def plan_table(table: Any, choices: Choices) -> TablePreprocessing:
    """How to read an Arrow table: numbers scaled, text of few values as zeros and ones, the rest left out."""
    survey = Survey(table.column_names, choices)
    survey.add(table)
    return survey.plan()


def plan_array(array: Any, choices: Choices, columns: Sequence[str] | None = None) -> ArrayPreprocessing:
    """How to read rows (n, d) of numbers, or images (n, C, H, W); ``columns`` are names of the d columns."""
    survey = ArraySurvey(array.shape[1:], choices, columns)
    survey.add(array)
    return survey.plan()

"""What is decided of columns of real tables, of packages that nobody here had prepared, stays decided."""

from __future__ import annotations

import pyarrow as pa
import pytest

from coverings import IS_FULL
from data_files import plan_table
from pollux.data.survey import Choices
from real_tables import TABLES, column_of


# Those of very many rows are made anew in seconds.
@pytest.mark.parametrize("name", [name for name in TABLES if IS_FULL or TABLES[name]["rows"] <= 9_000])
def test_columns_of_real_tables_are_decided_as_before(name: str) -> None:
    table = TABLES[name]
    columns = {column: column_of(evidence, table["rows"]) for column, evidence, _, _ in table["columns"]}
    plan = plan_table(pa.table(columns), Choices(missing="mean", scaling="auto"))
    found = {each.name: (each.kind, each.used) for each in plan.decisions}
    assert found == {column: (kind, used) for column, _, kind, used in table["columns"]}

"""Findings of a clustering that was fitted in Python."""

from typing import Any

import numpy as np
import pytest

from pollux.report import describe


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["a", None, "b", float("nan")], ["a", "", "b", ""]),
        ([1.0, np.nan, 2.0, 1.0], ["1", "", "2", "1"]),
        ([1.5, np.nan, 2.0, 1.0], ["1.5", "", "2.0", "1.0"]),
        ([3, 1, 2, 1], ["3", "1", "2", "1"]),
    ],
)
def test_missing_classes_are_described_as_not_known(given: list[Any], expected: list[str]) -> None:
    class Fitted:
        probabilities_, history_ = np.eye(4), {}

        def get_params(self, deep: bool) -> dict[str, Any]:
            return {}

    findings = describe(Fitted(), np.eye(4), classes=np.array(given, dtype=object if None in given else None))
    assert findings.classes is not None
    assert findings.classes.tolist() == expected

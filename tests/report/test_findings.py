"""The record of a report refuses what cannot be shown."""

import numpy as np
import pytest

from report_pages import make_findings


def test_what_differs_from_sample_to_sample_is_not_a_class() -> None:
    make_findings(n=1001, classes=np.array(["", *(str(j) for j in range(1000))]))
    with pytest.raises(ValueError, match=r"1,001 different values for 1,001 samples.*is not a class"):
        make_findings(n=1001, classes=np.array([str(j) for j in range(1001)]))

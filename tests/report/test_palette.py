"""Colours of clusters."""

import pytest

from pollux.report.palette import ON_DARK, READABLE, colours, contrast, on_dark


def test_colours_stand_out_from_a_dark_background() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert all(contrast(on_dark(colour), ON_DARK) >= READABLE for colour in colours(60))

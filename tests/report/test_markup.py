"""Numbers and names are short and never mislead."""

import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from jinja2 import UndefinedError

import pollux.report
from pollux.data.encoding import Feature
from pollux.report.markup import environment, plain, shortened
from pollux.trees.words import as_date, number, percent, write_value
from report_pages import HOSTILE

TEMPLATES = Path(pollux.report.__file__).parent / "templates"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"),
        (5.1, "5.1"),
        (-0.12345, "−0.123"),
        (1234.5, "1,234"),
        (2.5e7, "25 million"),
        (3e-5, "3e−5"),
        (99.97, "100"),
    ],
)
def test_numbers_are_short(value: float, expected: str) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(
    ("value", "extent", "expected"),
    [
        (9.44e-16, 1.0, "0"),
        (-118.31, 0.5, "−118.31"),
        (-118.42, 0.5, "−118.42"),
        (1234.5678, 900, "1,235"),
        (2.0, 4, "2"),
    ],
)
def test_numbers_have_the_digits_that_matter_in_their_range(value: float, extent: float, expected: str) -> None:
    assert number(value, extent) == expected


def test_years_and_dates_are_written_as_such() -> None:
    assert write_value(1992.4, Feature("year"), 40) == write_value(1992.4, Feature("Model_Year"), 40) == "1992"
    assert write_value(1992.4, Feature("weight"), 4000) == "1,992"
    assert as_date(1970.0) == "1970-01-01"
    assert write_value(2019.5, Feature("day", is_date=True)) == "2019-07-02"
    assert write_value(np.nan, Feature("day", is_date=True)) == "–"


def test_percentages_never_round_to_nothing_or_everything() -> None:
    shown = [percent(share, 1) for share in (0, 0.0001, 0.5, 0.99999, 1, np.nan)]
    assert shown == ["0%", "<0.1%", "50.0%", ">99.9%", "100%", "–"]
    assert shortened("abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    "template", ["{{ text }}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(text) }}", "{{ [text][0] }}"]
)
def test_whatever_a_template_prints_is_inert_and_can_be_written(template: str) -> None:
    page = plain(environment().from_string(template).render(text=HOSTILE))
    assert not set(page) & set("<>\"'\x00\ud800")
    page.encode("utf-8")


def test_a_template_cannot_print_what_does_not_exist_nor_turn_escaping_off() -> None:
    with pytest.raises(UndefinedError):
        environment().from_string("{{ nothing }}").render()
    for path in TEMPLATES.rglob("*.html"):
        assert not re.search(r"\bsafe\b|autoescape|Markup", path.read_text(encoding="utf-8")), path.name


def test_all_templates_and_assets_are_part_of_the_distribution() -> None:
    pyproject = Path(pollux.__file__).parents[2] / "pyproject.toml"
    globs = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["setuptools"]["package-data"]["pollux"]
    package = Path(pollux.__file__).parent
    packaged = {path for pattern in globs for path in package.glob(pattern)}
    parts = [path for path in package.rglob("*") if path.suffix in (".html", ".css", ".js")]
    assert {"page.html", "page.css", "page.js"} <= {path.name for path in parts}
    assert packaged >= set(parts)

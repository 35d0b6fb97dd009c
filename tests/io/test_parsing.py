"""Records of files: the typed object, or an InputError that names the file and the field."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from pollux.errors import InputError
from pollux.io.parsing import Count, Finite, Positive, Share, Size, parse, parse_json, parse_parameters


class Run(msgspec.Struct):
    epochs: Size
    rate: Positive = 0.1
    shares: tuple[Share, ...] = ()
    by_name: dict[str, Finite] = {}

    def __post_init__(self) -> None:
        if self.epochs > 10 and self.rate > 1:
            raise ValueError("a rate of more than 1 is for few epochs")


@dataclass
class Pair:
    left: Count
    right: Run


HALVES = ['{"notes": ["\\ud800"]}', '{"\\uDFFF": 1}', b'{"notes": "\xed\xa0\x80"}', '["\\\\\\ud800x"]']
"""Half a character in free text, in a name, in bytes that are no UTF-8."""


def test_two_halves_are_a_character_and_a_backslash_is_none() -> None:
    assert parse_json(r'["\ud83d\ude00", "\\ud800"]', list[str], "file") == ["\N{GRINNING FACE}", "\\ud800"]


def test_what_fits_is_the_record() -> None:
    assert parse({"epochs": 3, "rate": 2}, Run, "run") == Run(3, 2.0)
    assert parse_json('{"left": 0, "right": {"epochs": 1}, "more": []}', Pair, "pair") == Pair(0, Run(1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"epochs": 0}, "file: in epochs, expected `int` >= 1."),
        ({"epochs": True}, "file: in epochs, expected `int`, got `bool`."),
        ({"epochs": 1, "rate": float("nan")}, "in rate, "),
        ({"epochs": 1, "rate": float("inf")}, "in rate, "),
        ({"epochs": 1, "shares": [0.5, -1e-9]}, r"in shares\[1\], "),
        ({"epochs": 1, "by_name": {"a": float("-inf")}}, r"in by_name\[...\], "),
        ({"epochs": 20, "rate": 2}, "file: a rate of more than 1 is for few epochs."),
        ({}, "file: object missing required field `epochs`."),
        ([], "file: expected `object`, got `array`."),
    ],
    ids=str,
)
def test_file_and_field_are_named(data: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse(data, Run, "file")


@pytest.mark.parametrize(
    "text", ["{", '{"epochs": 1, "epochs": 2}', 100_000 * "[", b"\xff", *HALVES], ids=lambda text: text[:9]
)
def test_what_is_not_json_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"^summary.json: it is not JSON "):
        parse_json(text, Run, "summary.json")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("3", 3), ("-2", -2), ("0.5", 0.5), (".5", 0.5), ("1e-3", 1e-3), ("1e1", 10.0)),
        *((text, text) for text in ("", "NaN", "inf", "-Infinity", "1e999", 5_000 * "9", 400 * "9", "true", "[1]")),
        (100_000 * "[", 100_000 * "["),
    ],
    ids=lambda value: str(value)[:9],
)
def test_parameters_are_finite_numbers_or_texts(text: str, value: Any) -> None:
    found = parse_parameters(f"gamma={text},name={text}", texts=["name"])
    assert found == {"gamma": value, "name": text}
    assert type(found["gamma"]) is type(value)


def test_half_a_character_is_the_files_fault() -> None:
    with pytest.raises(InputError, match=r"^run\.json: "):
        parse_json('{"epochs": "\\ud800"}', Run, "run.json")

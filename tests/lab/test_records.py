"""Records outlive any end: torn lines, foreign lines, several writers, a full disk."""

from __future__ import annotations

import json
import math
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pollux.errors import InputError
from pollux.lab import records
from pollux.lab.records import Record, Run


def record(seed: int = 0, **changed: Any) -> Record:
    fields: dict[str, Any] = {"metrics": {"adjusted_rand_index": 0.5, "clusters": 3}, "seconds": 1.5}
    fields |= {"versions": {"python": "3"}, "warnings": ["CollapseWarning: ℓ2 “fewer”"], "finished": "2026"}
    run = Run("toy", {"objective": "kl_ova", "ε": 1e-06, "on": True, "epochs": 5}, seed)
    return Record(run, **(fields | changed))


def test_records_come_back(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    assert records.read(path) == {}
    written = [record(seed) for seed in range(3)]
    for one in written:
        records.append(path, one)
    assert list(records.read(path).values()) == written
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["seed"] for line in lines] == [0, 1, 2]
    assert "ℓ2" in lines[0]
    names = ["experiment", "settings", "seed", "metrics", "seconds", "versions", "warnings", "finished"]
    assert list(json.loads(lines[0])) == names


def test_of_a_run_done_twice_the_later_record_counts(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    for seconds in (1.0, 2.0):
        records.append(path, record(seconds=seconds))
    assert [one.seconds for one in records.read(path).values()] == [2.0]


def test_what_is_not_finite_is_null_and_read_as_nan(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    metrics = {"objective": math.nan, "curve": [1.0, math.inf, -math.inf], "clusters": np.int64(3)}
    metrics |= {"ratio": np.float32(0.5), "part": np.arange(2), "tensor": torch.tensor(2.0)}
    records.append(path, record(metrics=metrics))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    line = json.loads(path.read_text(), parse_constant=refuse)
    assert line["metrics"]["curve"] == [1.0, None, None]
    (found,) = (one.metrics for one in records.read(path).values())
    assert math.isnan(found["objective"])
    assert [math.isnan(value) for value in found["curve"]] == [False, True, True]
    assert (found["clusters"], found["ratio"], found["part"], found["tensor"]) == (3, 0.5, [0, 1], 2.0)


def test_a_line_torn_anywhere_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    path = tmp_path / "toy.jsonl"
    for seed in range(2):
        records.append(path, record(seed))
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for end in range(first, len(whole) + 1):
        # A record that only lacks the end of its line, as after an editor, is a record.
        complete = end >= len(whole) - 1
        path.write_bytes(whole[:end])
        assert [one.run.seed for one in records.read(path).values()] == ([0, 1] if complete else [0])
        records.append(path, record(2))
        assert [one.run.seed for one in records.read(path).values()] == ([0, 1, 2] if complete else [0, 2])
        assert path.read_bytes().startswith(whole if complete else whole[:first])
    path.write_bytes(whole[:-9] + b"\0" * 50)
    assert len(records.read(path)) == 1


NO_RECORDS = {
    "words": b"hello\n",
    "words without an end": b"my notes",
    "a list": b"[1]\n",
    "a number": b"7",
    "another object": b'{"experiment": "toy", "a": 1}\n',
    "a field too many": None,
    "fields of other kinds": None,
    "no text": b"\xff\xfe\n",
}


@pytest.mark.parametrize("kind", NO_RECORDS)
def test_a_foreign_line_is_named_and_kept(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    records.append(path, record())
    good = json.loads(path.read_text())
    made = {"a field too many": {**good, "more": 1}, "fields of other kinds": {**good, "metrics": [], "seconds": "x"}}
    foreign = NO_RECORDS[kind] or json.dumps(made[kind]).encode() + b"\n"
    with path.open("ab") as file:
        file.write(foreign)
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"Line 2 of .*toy\.jsonl"):
        records.read(path)
    assert path.read_bytes() == before


def test_several_programs_may_append_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "toy.jsonl"
    long = {"note": "ε" * 20_000}

    def write(number: int) -> None:
        for seed in range(number, number + 10):
            records.append(path, record(seed, metrics=long))

    threads = [threading.Thread(target=write, args=(number,)) for number in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.run.seed for one in records.read(path).values()) == [
        *range(10),
        *range(100, 110),
        *range(200, 210),
    ]


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "toy.jsonl"
    records.append(path, record())
    before = path.read_bytes()

    def full(file: Any, line: bytes) -> None:
        file.write(line[:20])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(records, "_write", full)
        with pytest.raises(OSError, match="No space"):
            records.append(path, record(1))
    assert path.read_bytes() == before

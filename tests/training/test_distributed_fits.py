"""Fits by several processes: real ones, which must end where a single one does on the same batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

import distributed_fits as fits
from coverings import IS_FULL, every_other
from distributed_fits import Together, estimator, rows
from pollux.data.streams import open_stream
from pollux.objectives import GEMINIS
from pollux.training import CheckpointWarning
from pollux.training import problem as streamed
from rank_processes import Team

# The smallest step is far larger: what differs by less has taken the same steps.
SAME = {"rtol": 0, "atol": 1e-6}


def assert_same(answers: list[Any], expected: dict[str, Any]) -> None:
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
        assert answer.keys() == expected.keys()
        for name, values in expected.items():
            np.testing.assert_allclose(answer[name], values, err_msg=name, **SAME)


WAYS: dict[str, dict[str, Any]] = {
    "mmd_ova, rbf": {"objective": "mmd_ova", "geometry": "rbf"},
    "mmd_ovo, fourier": {"objective": "mmd_ovo", "geometry": "fourier"},
    "wasserstein_ovo, manhattan": {"objective": "wasserstein_ovo", "geometry": "manhattan"},
    "shortest paths": {"objective": "wasserstein_ova", "geometry": "shortest_path"},
    "restarts": {"objective": "mmd_ova", "n_init": 3},
    "a linear model": {"objective": "mi", "model": "linear"},
    "a free table": {"objective": "mmd_ovo", "model": "free"},
    "penalties": {"objective": "mmd_ova", "penalties": {"entropy": 0.1, "weight_decay": 0.01}},
    "sgd": {"objective": "tv_ova", "optimiser": "sgd"},
    "lbfgs": {"objective": "mmd_ova", "optimiser": "lbfgs", "batch_size": None, "max_epochs": 1},
    "one batch": {"objective": "hellinger_ovo", "batch_size": None, "max_epochs": 20},
}


# One that is summed over processes, and the two that ask the others themselves, each in its own way.
SENT = ("kl_ova", "mmd_ovo", "wasserstein_ova")


@pytest.mark.parametrize("objective", every_other(GEMINIS))
def test_a_fit_ends_where_a_single_process_does(two: Team, objective: str) -> None:
    options = {"objective": objective}
    assert_same(two.run(fits.fit_rows, options), fits.fit_rows(None, options))


@pytest.mark.parametrize("objective", every_other(SENT, 1))
def test_so_does_one_by_three(three: Team, objective: str) -> None:
    options = {"objective": objective}
    assert_same(three.run(fits.fit_rows, options), fits.fit_rows(None, options))


@pytest.mark.parametrize("way", every_other(WAYS))
def test_so_does_any_other(two: Team, way: str) -> None:
    assert_same(two.run(fits.fit_rows, WAYS[way]), fits.fit_rows(None, WAYS[way]))


def test_weights_count_as_they_do_alone(team: Team) -> None:
    options = {"objective": "mmd_ovo", "penalties": {"entropy": 0.1}}
    assert_same(team.run(fits.fit_rows, options, True), fits.fit_rows(None, options, True))


def test_a_kernel_of_all_rows_is_that_of_the_first_process(two: Team) -> None:
    assert_same(two.run(fits.fit_unevenly), fits.fit_unevenly(None))
    for answer in two.run(fits.fit_unevenly_with_different_rows):
        assert "have different rows" in str(answer)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Row groups of 5 rows, the last one smaller."""
    path = tmp_path_factory.mktemp("stream") / "rows.parquet"
    table = pa.table({f"x{index}": column for index, column in enumerate(rows().T)})
    parquet.write_table(table, path, row_group_size=5)
    return path


@pytest.mark.parametrize("objective", every_other(GEMINIS, 1))
def test_a_streamed_fit_ends_where_a_single_process_does_on_the_same_batches(
    two: Team, file: Path, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_streams_agree(two, file, objective, monkeypatch)


@pytest.mark.parametrize("objective", SENT if IS_FULL else SENT[:1])
def test_so_does_a_streamed_one_by_three(
    three: Team, file: Path, objective: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_streams_agree(three, file, objective, monkeypatch)


def test_streams_are_scaled_by_all_processes_together(two: Team, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_streams_agree(two, file, "mmd_ova", monkeypatch, preprocessing="standard")


def assert_streams_agree(
    team: Team, file: Path, objective: str, monkeypatch: pytest.MonkeyPatch, **further: Any
) -> None:
    size = len(team.lines)
    options = {"objective": objective, **further}
    answers = team.run(fits.fit_stream, str(file), options)
    stream = open_stream(file, dtype="float64")
    monkeypatch.setattr(
        streamed.StreamProblem,
        "batches",
        lambda problem, *_, **__: Together(problem, stream, size, 11),
    )
    alone = fits.fit_stream(None, str(file), options)
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
        for name in (*alone.keys() - {"objective", "labels", "order"},):
            np.testing.assert_allclose(answer[name], alone[name], err_msg=name, **SAME)
        # The objective at the end is a mean over batches that each process has of its own.
        np.testing.assert_array_equal(answer["labels"], answers[0]["labels"])


def test_each_row_is_seen_once_an_epoch(team: Team, file: Path) -> None:
    stream = open_stream(file, dtype="float64")
    batches = Together(streamed.StreamProblem(stream, None, fits.torch.float64, "cpu"), stream, len(team.lines), 11)
    seen = np.concatenate([batch.inputs.numpy() for batch in batches.epoch()])
    assert len(seen) == len(rows())
    np.testing.assert_allclose(np.sort(seen, 0), np.sort(rows(), 0))


def test_loaders_of_one_s_own_are_shared_too(team: Team) -> None:
    first, *others = team.run(fits.fit_loader, {"objective": "mmd_ova"})
    assert_same(others, first)


def test_statistics_and_dropout_stay_the_same_in_all_processes(two: Team) -> None:
    first, *others = two.run(fits.fit_rows, {"objective": "mmd_ova", "model": "normalised"})
    assert_same(others, first)


@pytest.mark.parametrize("model", ["mlp", "normalised"])
def test_a_fit_goes_on_from_its_checkpoint(two: Team, tmp_path: Path, model: str) -> None:
    options = {"objective": "mmd_ova", "model": model, "penalties": {"vat": 0.1}}
    for answer in two.run(fits.fit_in_two_parts, str(tmp_path), options):
        if isinstance(answer, Exception):
            raise answer
        whole, resumed = answer
        for name, values in whole.items():
            np.testing.assert_array_equal(values, resumed[name], err_msg=name)


@pytest.mark.parametrize("options", [{"objective": "mmd_ova"}, {"objective": "mi", "n_init": 2}], ids=str)
def test_more_or_fewer_processes_go_on_from_a_checkpoint(
    two: Team, three: Team, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Two, three, and then one, on the batches that a single process has."""
    whole = fits.fit_rows(None, options)
    two.run(fits.break_off, str(tmp_path), options, "1 epoch")
    three.run(fits.break_off, str(tmp_path), options, "1 epoch", 4)
    with pytest.warns(CheckpointWarning, match="are of 3 processes, and now there are 1"):
        fitted = fits.fit_rows(None, {**options, "checkpoint": tmp_path})
    assert_same([fitted], whole)
    # What several have begun a single process can take up any number of times.
    assert_same([fits.fit_rows(None, {**options, "checkpoint": tmp_path})], whole)


def test_an_epoch_that_was_under_way_begins_anew(two: Team, tmp_path: Path) -> None:
    options = {"objective": "mmd_ova", "penalties": {"entropy": 0.1}}
    fits.break_off(None, str(tmp_path), options)
    answers = two.run(fits.fit_rows, {**options, "checkpoint": str(tmp_path)})
    assert_same(answers[1:], answers[0])
    assert answers[0]["history"].shape == (3, 5)
    assert np.isfinite(answers[0]["history"]).all()


def test_what_several_processes_cannot_take_up_is_said_with_a_way_out(two: Team, tmp_path: Path) -> None:
    """A small network is trained in closed form by one process only."""
    estimator(checkpoint=tmp_path, max_epochs=1).fit(rows())
    answers = two.run(fits.fit_rows, {"checkpoint": str(tmp_path)})
    assert all("go on with 1 (torchrun --nproc-per-node 1)" in str(answer) for answer in answers)


def test_processes_without_a_seed_draw_the_same_one(two: Team) -> None:
    assert len(set(two.run(fits.seeds))) == 1


def test_one_of_several_processes_assesses_by_itself(two: Team) -> None:
    assert all(0 < answer <= 1 for answer in two.run(fits.assess_in_the_first))


def test_processes_that_have_different_rows_say_so(two: Team) -> None:
    for fit in (fits.fit_with_different_data, fits.fit_with_different_affinities):
        assert all("have different rows" in str(answer) for answer in two.run(fit))


def test_batches_that_are_too_small_are_refused(three: Team) -> None:
    answers = three.run(fits.fit_rows, {"batch_size": 2})
    assert all("processes share batches" in str(answer) for answer in answers)

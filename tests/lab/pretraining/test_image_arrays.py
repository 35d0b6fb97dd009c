"""Images of any range and layout, read from data sets, files and folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from data_files import write_bytes, write_images
from pollux.errors import InputError
from pollux.lab.pretraining.image_arrays import Images, read_images
from pretraining_images import noise


@pytest.mark.parametrize("scale", [1, 255])
def test_encoders_are_given_images_as_they_are(scale: float) -> None:
    """Mean and deviation are those of the numbers that the user has."""
    unit = np.random.default_rng(0).random((30, 3, 9, 9)).astype(np.float32)
    images = Images(unit * scale - scale / 4)
    index = torch.arange(5)
    batch = images.batch(index)
    assert 0 <= batch.min() <= batch.max() <= 1
    torch.testing.assert_close(images.as_given(batch), torch.from_numpy(unit[:5] * scale - scale / 4))
    assert images.mean == pytest.approx((unit.mean((0, 2, 3)) * scale - scale / 4).tolist(), rel=1e-4)
    assert images.std == pytest.approx((unit.std((0, 2, 3)) * scale).tolist(), rel=1e-4)


@pytest.mark.parametrize(("scale", "offset"), [(1e-6, 0), (1e-6, 1e-3), (1e-30, 0), (10, 1e7), (1e12, -1e12)])
def test_channels_are_standardised_whatever_their_scale_and_offset(scale: float, offset: float) -> None:
    unit = np.random.default_rng(0).random((30, 3, 9, 9))
    images = Images(unit * scale + offset)
    assert images.std == pytest.approx((unit.std((0, 2, 3)) * scale).tolist(), rel=1e-4)
    assert images.mean == pytest.approx((unit.mean((0, 2, 3)) * scale + offset).tolist(), rel=1e-4)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e7, -1e-9])
def test_a_channel_that_never_changes_is_not_divided_by_rounding(value: float) -> None:
    pixels = np.full((20, 3, 9, 9), value)
    assert Images(pixels).std == [1, 1, 1]
    pixels[:, 1] += np.random.default_rng(0).random((20, 9, 9))
    assert [deviation == 1 for deviation in Images(pixels).std] == [True, False, True]


def test_bytes_count_from_0_to_1_wherever_their_channels_are() -> None:
    last, first = Images(noise()), Images(np.moveaxis(noise(), 3, 1))
    assert last.shape == first.shape == (3, 12, 12)
    assert last.digest == first.digest
    assert torch.equal(last.batch(torch.tensor([3])), torch.from_numpy(noise()[[3]] / 255).float().permute(0, 3, 1, 2))
    assert Images(noise(5, 9, 10)).shape == (1, 9, 10)
    assert Images(torch.from_numpy(noise(5, 9, 10))).shape == (1, 9, 10)


@pytest.mark.parametrize(
    ("images", "complaint"),
    [
        (np.zeros((5, 9)), "Images are numbers"),
        (np.zeros((5, 9, 9), dtype=complex), "Images are numbers"),
        (np.zeros((1, 9, 9)), "at least 2"),
        (np.zeros((5, 4, 9)), "4 × 9"),
        (np.full((5, 9, 9), np.nan), "not finite"),
        (np.zeros((5, 5, 9, 9)), "1, 3 or 4 channels"),
        (np.zeros((5, 9, 9, 2)), "1, 3 or 4 channels"),
    ],
)
def test_arrays_that_are_not_images(images: NDArray[Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Images(images)


def test_where_images_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("images.npy", noise())
    assert read_images("images.npy").shape == (40, 3, 12, 12)
    np.savez("several.npz", x_train=noise(), x_test=noise(7), y=np.arange(40))
    assert read_images("several.npz", array="x_test").shape == (7, 3, 12, 12)
    write_images(tmp_path / "folder", list(noise(6)))
    assert read_images("folder").shape == (6, 3, 12, 12)
    assert read_images("folder", image_size=9).shape == (6, 3, 9, 9)
    labels = np.arange(40) % 10
    np.savez("mnist.npz", x_train=noise(40, 28, 28), y_train=labels, x_test=noise(40, 28, 28), y_test=labels)
    monkeypatch.setenv("POLLUX_DATA", str(tmp_path))
    assert read_images("mnist").shape == (40, 28, 28)
    with pytest.raises(InputError, match="'mnist'"):
        read_images("minst")
    np.save("rows.npy", np.zeros((5, 4)))
    write_bytes(tmp_path / "table.csv", "a,b\n1,2\n")
    for name in ("rows.npy", "table.csv"):
        with pytest.raises(InputError, match="does not hold images"):
            read_images(name)

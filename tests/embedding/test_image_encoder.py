"""Encoders: what they read, and their files, those of earlier code among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from data_files import write_bytes
from pollux.errors import InputError
from pollux.lab.pretraining import ImageEncoder, load_encoder, pretrain_simclr, save_encoder, stored_settings
from pretraining_images import SMALL, noise

GOLDEN = Path(__file__).parent / "encoders"


@pytest.mark.parametrize(
    "images", [torch.zeros(2, 3, 9, 9, dtype=torch.uint8), torch.zeros(2, 1, 9, 9), torch.zeros(3, 9, 9)]
)
def test_what_an_encoder_does_not_read(images: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"floats \(n, 3, H, W\)"):
        ImageEncoder(3, (4,), (1,))(images)


@pytest.mark.parametrize("name", ["finished", "unfinished"])
def test_files_of_earlier_code_give_the_same_features(name: str) -> None:
    """Both were written by the first code; the second one holds the state of an unfinished training too."""
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    encoder = load_encoder(GOLDEN / f"{name}.safetensors")
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    features = encoder(torch.from_numpy(images / 255).float().permute(0, 3, 1, 2))
    # Of length 1; sums of a few hundred products in single precision.
    np.testing.assert_allclose(features, np.load(GOLDEN / f"{name}.npy"), atol=1e-5)
    assert stored_settings(GOLDEN / f"{name}.safetensors")["widths"] == [2, 4]


def test_a_training_that_earlier_code_began_is_not_begun_anew_unnoticed(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    for name, epochs in (("finished", 1), ("unfinished", 2)):
        path = tmp_path / name
        path.write_bytes((GOLDEN / f"{name}.safetensors").read_bytes())
        settings = {**stored_settings(path), "epochs": epochs}
        if name == "finished":
            assert len(pretrain_simclr(images, **settings, out=path, resume=True).history["loss"]) == 1
        else:
            with pytest.raises(InputError, match="cannot go on"):
                pretrain_simclr(images, **settings, out=path, resume=True)


def test_an_encoder_of_ones_own_in_a_file(tmp_path: Path) -> None:
    encoder = ImageEncoder(2, (4, 8), (1, 1), mean=[1, 2], std=[3, 4]).eval()
    save_encoder(tmp_path / "encoder", encoder, {"trained on": "nothing"})
    images = torch.rand(3, 2, 9, 9)
    assert torch.equal(load_encoder(tmp_path / "encoder")(images), encoder(images))
    with pytest.raises(InputError, match="does not say how it was trained"):
        stored_settings(tmp_path / "encoder")
    with pytest.raises(InputError, match="does not say how it was trained"):
        pretrain_simclr(noise(), **SMALL, out=tmp_path / "encoder", resume=True)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_encoder(tmp_path / "encoder", ImageEncoder(3, (8, 16), (1, 1)))
    return tmp_path / "encoder"


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.99])
def test_torn_files(file: Path, share: float) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match="not a whole encoder file"):
        load_encoder(file)
    with pytest.raises(InputError, match="not a whole encoder file"):
        pretrain_simclr(noise(), epochs=3, **SMALL, out=file, resume=True)


def test_one_changed_byte_is_found(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        load_encoder(file)


def test_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no encoder file"):
        load_encoder(tmp_path / "none")
    with pytest.raises(InputError, match="There is no encoder file"):
        load_encoder(tmp_path)
    other = tmp_path / "other"
    save_file({"weight": torch.zeros(2)}, other, metadata={"format": "pt"})
    with pytest.raises(InputError, match="not an encoder file of this library"):
        load_encoder(other)
    torch.save({"weight": torch.zeros(2)}, other)
    with pytest.raises(InputError, match="not a whole encoder file"):
        load_encoder(other)
    write_bytes(tmp_path / "text.csv", "a,b\n1,2\n")
    with pytest.raises(InputError, match="not a whole encoder file"):
        load_encoder(tmp_path / "text.csv")


@pytest.mark.parametrize(
    "design",
    [
        *(None, {}, {"channels": 3}, {"channels": 3, "widths": [10**6, 10**6], "blocks": [1, 1]}),
        *({"channels": 3, "widths": [8, 16], "blocks": [10**5, 1]}, {"channels": "3", "widths": "a", "blocks": 1}),
        {"channels": 3, "widths": [8, 16], "blocks": [1, 1], "device": "cuda"},
    ],
)
def test_files_that_claim_what_they_do_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, design: dict[str, Any] | None
) -> None:
    encoder = ImageEncoder(3, (8, 16), (1, 1))
    monkeypatch.setattr(ImageEncoder, "design", design)
    save_encoder(tmp_path / "encoder", encoder)
    with pytest.raises(InputError, match="not a whole encoder file"):
        load_encoder(tmp_path / "encoder")

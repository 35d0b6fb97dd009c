"""Pretraining: the loss, random views, encoders in files, trainings that stop and go on, and that they learn."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from data_files import write_bytes, write_images
from pollux import GeminiClustering
from pollux.app.console import GOOD, STOPPED
from pollux.errors import InputError
from pollux.geometry import resolve
from pollux.lab import pretrain_command as pretrain
from pollux.lab.datasets import IMAGES
from pollux.lab.pretraining import (
    Augmentation,
    Encoder,
    Step,
    load_encoder,
    nt_xent,
    pretrain_simclr,
    save_encoder,
    stored_settings,
)
from pollux.lab.pretraining.images import Images
from pollux.lab.pretraining.progress import EpochLines, ProgressBar
from pollux.lab.pretraining.reading import read_images
from pollux.threads import at_most

SMALL: dict[str, Any] = {"widths": (8, 16), "blocks": (1, 1), "batch_size": 16, "projection": 8}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(n: int = 40, *shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (n, *(shape or (12, 12, 3))), dtype=np.uint8)


def blotches(n: int = 64) -> NDArray[np.uint8]:
    """Images (n, 16, 16, 3), each of broad stripes and a shade of its own."""
    random = np.random.default_rng(0)
    across = np.linspace(0, 1, 16)
    phase, pace, shade = (random.random((3, n, 3)) * np.array([1, 3, 1])[:, None, None])[:, :, None, None, :]
    down = across[None, :, None, None]
    waves = np.sin(2 * np.pi * (phase + pace * down + pace[:, :, :, ::-1] * across[None, None, :, None]))
    return ((0.3 * waves + 0.35 + 0.3 * shade).clip(0, 1) * 255).astype(np.uint8)


# The loss


def slow_nt_xent(projections: NDArray[np.float64], temperature: float) -> float:
    """The definition, one pair at a time."""
    count = len(projections)
    unit = [row / np.sqrt((row**2).sum()) for row in projections]
    total = 0.0
    for i in range(count):
        partner = (i + count // 2) % count
        others = sum(math.exp(unit[i] @ unit[k] / temperature) for k in range(count) if k != i)
        total -= math.log(math.exp(unit[i] @ unit[partner] / temperature) / others)
    return total / count


@pytest.mark.parametrize("temperature", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("images", [1, 2, 7])
def test_the_loss_is_its_definition(images: int, temperature: float) -> None:
    projections = torch.randn(2 * images, 5, dtype=torch.float64, generator=generator())
    expected = slow_nt_xent(projections.numpy(), temperature)
    assert nt_xent(projections, temperature).item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_gradients_of_the_loss() -> None:
    projections = torch.randn(8, 3, dtype=torch.float64, generator=generator(), requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: nt_xent(values, 0.5), (projections,))


def test_the_loss_of_views_that_look_alike_and_of_perfect_ones() -> None:
    assert nt_xent(torch.ones(16, 4), 0.5).item() == pytest.approx(math.log(15))
    assert nt_xent(torch.eye(8).repeat(2, 1), 0.01).item() == pytest.approx(0, abs=1e-6)


def test_the_loss_is_computed_where_the_projections_are() -> None:
    # The device without memory stands for all that are not the processor.
    assert nt_xent(torch.ones(16, 4, device="meta"), 0.5).device.type == "meta"


# Views


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [None, 7])
def test_views_keep_shape_and_range(channels: int, size: int | None) -> None:
    images = torch.rand(9, channels, 12, 10, generator=generator())
    views = Augmentation(size=size, brightness=1, contrast=1)(images, generator(1))
    assert views.shape == (9, channels, size or 12, size or 10)
    assert views.dtype == images.dtype
    assert 0 <= views.min() <= views.max() <= 1


def test_views_come_from_the_generator_alone() -> None:
    images = torch.rand(6, 3, 12, 12, generator=generator())
    before, state = images.clone(), torch.get_rng_state()
    views = Augmentation()(images, generator(1))
    assert torch.equal(views, Augmentation()(images, generator(1)))
    assert not torch.equal(views, Augmentation()(images, generator(2)))
    assert torch.equal(images, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_each_image_draws_its_own_view() -> None:
    images = torch.rand(1, 3, 12, 12, generator=generator()).expand(20, -1, -1, -1)
    assert len(Augmentation()(images, generator(1)).flatten(1).unique(dim=0)) == 20


def test_one_image_alone_has_a_view() -> None:
    assert Augmentation()(torch.rand(1, 3, 9, 9), generator()).shape == (1, 3, 9, 9)


def plain(**changes: Any) -> Augmentation:
    still = {"scale": (1, 1), "ratio": 1, "flip": False, "jitter": 0, "grey": 0}
    return Augmentation(**{**still, **changes})


def test_without_changes_views_are_the_images() -> None:
    images = torch.rand(5, 3, 12, 8, generator=generator())
    torch.testing.assert_close(plain()(images, generator()), images)


def test_half_of_the_views_are_mirrored() -> None:
    images = torch.rand(200, 3, 8, 8, generator=generator())
    views = plain(flip=True)(images, generator())
    mirrored = (views - images.flip(3)).abs().amax((1, 2, 3)) < 1e-5
    same = (views - images).abs().amax((1, 2, 3)) < 1e-5
    assert (mirrored ^ same).all()
    assert 70 < mirrored.sum() < 130


def test_crops_take_the_share_that_is_asked_for() -> None:
    """The slope of a ramp tells how much of the image is in the view."""
    ramp = torch.linspace(0, 1, 64).expand(300, 1, 64, 64)
    images = torch.cat([ramp, ramp.transpose(2, 3)], dim=1)
    views = Augmentation(scale=(0.25, 0.5), flip=False).cropped(images, generator())
    width = (views[:, 0, :, -1] - views[:, 0, :, 0]).mean(1)
    height = (views[:, 1, -1] - views[:, 1, 0]).mean(1)
    area, ratio = width * height, width / height
    assert 0.22 < area.min() < 0.3
    assert 0.45 < area.max() < 0.53
    assert 0.7 < ratio.min() < 0.8
    assert 1.25 < ratio.max() < 1.4


def test_views_without_colours_are_grey() -> None:
    views = plain(grey=1)(torch.rand(5, 3, 8, 8), generator())
    torch.testing.assert_close(views[:, 0], views[:, 1])
    torch.testing.assert_close(views[:, 0], views[:, 2])


def test_grey_pixels_have_no_hue() -> None:
    greys = torch.rand(20, 1, 8, 8, generator=generator()).expand(-1, 3, -1, -1)
    colours = plain(jitter=1, hue=0.5, saturation=1, brightness=0, contrast=0)
    torch.testing.assert_close(colours(greys, generator()), greys)


def test_brightness_and_contrast_of_grey_images() -> None:
    images = 0.4 + 0.2 * torch.rand(50, 1, 8, 8, generator=generator())
    brighter = plain(jitter=1, brightness=0.3, contrast=0)(images, generator())
    factor = brighter / images
    torch.testing.assert_close(factor, factor[:, :, :1, :1].expand_as(factor))
    assert 0.7 <= factor.min() < 0.8
    assert 1.2 < factor.max() <= 1.3
    harder = plain(jitter=1, brightness=0, contrast=0.5)(images, generator())
    torch.testing.assert_close(harder.mean((1, 2, 3)), images.mean((1, 2, 3)))
    assert (harder.std((1, 2, 3)) / images.std((1, 2, 3)) - 1).abs().max() <= 0.501


@pytest.mark.parametrize(
    "wrong", [{"scale": (0, 1)}, {"scale": (0.5, 0.2)}, {"ratio": 0.5}, {"size": 0}, {"hue": -0.1}, {"grey": 2}]
)
def test_views_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Augmentation(**wrong)


# Images


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
    assert last.fingerprint == first.fingerprint
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
def test_what_are_no_images(images: NDArray[Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        pretrain_simclr(images)


def test_images_of_a_file_that_is_read_in_place(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", noise(8))
    images = np.load(tmp_path / "images.npy", mmap_mode="r")
    # Warnings are errors here, such as those of arrays that may not be written to.
    assert len(pretrain_simclr(images, epochs=1, batch_size=4, widths=(4,), blocks=(1,)).history["loss"]) == 1


def test_views_too_small_to_show_anything_are_refused() -> None:
    with pytest.raises(InputError, match="Views of 4 pixels a side show nothing: 8 is the least"):
        pretrain_simclr(noise(8), epochs=1, augmentation=Augmentation(size=4))


def test_a_constant_channel_does_no_harm() -> None:
    images = noise(20, 3, 8, 8)
    images[:, 1] = 7
    assert pretrain_simclr(images, epochs=1, **SMALL).encoder.std.flatten()[1] == 1


# Learning


VIEWS = Augmentation(scale=(0.4, 1), jitter=0.5, grey=0)


@pytest.fixture(scope="module")
def learned() -> Any:
    return pretrain_simclr(
        blotches(), epochs=40, **{**SMALL, "batch_size": 32}, learning_rate=0.005, temperature=0.2, augmentation=VIEWS
    )


def test_it_learns(learned: Any) -> None:
    history = learned.history
    assert len(history["loss"]) == len(history["matched"]) == 40
    # Of 63 other views, one is the partner.
    assert np.mean(history["loss"][-5:]) < math.log(63) - 1.2
    assert np.mean(history["matched"][-5:]) > 15 / 63


def test_views_of_one_image_are_nearer_than_others(learned: Any) -> None:
    unit = torch.from_numpy(blotches() / 255).float().permute(0, 3, 1, 2)
    features = [learned.encoder(VIEWS(unit, generator(seed))) for seed in (1, 2)]
    cosines = features[0] @ features[1].T
    own = cosines.diagonal()
    assert (own > cosines.mean(1)).double().mean() > 0.9
    assert own.mean() > cosines.mean() + 0.2


def test_the_encoder_is_a_geometry(learned: Any) -> None:
    unit = torch.from_numpy(blotches() / 255).float().permute(0, 3, 1, 2)
    features = learned.encoder(unit)
    torch.testing.assert_close(features.norm(dim=1), torch.ones(64))
    geometry = resolve("linear", encoder=learned.encoder)
    affinity: Any = geometry.bind(unit)(torch.arange(64))
    centred = features - features.mean(0)
    torch.testing.assert_close(affinity.values @ affinity.values.T, centred @ centred.T)
    clustering = GeminiClustering(3, geometry=geometry, model="mlp", max_epochs=2, n_init=1, random_state=0)
    assert clustering.fit(unit.numpy()).labels_.shape == (64,)


def test_grey_images_and_other_sizes() -> None:
    encoder = pretrain_simclr(noise(20, 9, 10), epochs=1, **SMALL).encoder
    assert encoder(torch.rand(3, 1, 14, 8)).shape == (3, 16)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert not encoder.training


@pytest.mark.parametrize(
    "images", [torch.zeros(2, 3, 9, 9, dtype=torch.uint8), torch.zeros(2, 1, 9, 9), torch.zeros(3, 9, 9)]
)
def test_what_an_encoder_does_not_read(images: torch.Tensor) -> None:
    with pytest.raises(InputError, match=r"floats \(n, 3, H, W\)"):
        Encoder(3, (4,), (1,))(images)


def test_the_global_generator_is_left_alone(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    pretrain_simclr(noise(), epochs=1, **SMALL, checkpoint=tmp_path / "encoder")
    load_encoder(tmp_path / "encoder")
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"epochs": 0}, "epochs must be above 0"),
        ({"epochs": 2.9}, r"epochs must be a whole number, not 2\.9"),
        ({"epochs": True}, "epochs must be a whole number"),
        ({"epochs": "3"}, "epochs must be a whole number"),
        ({"batch_size": 1}, "at least 2 images"),
        ({"batch_size": 16.5}, "batch_size must be a whole number"),
        ({"temperature": 0}, "temperature must be a finite number above 0"),
        ({"temperature": "warm"}, "temperature must be a finite number above 0"),
        ({"learning_rate": math.nan}, "learning_rate must be a finite number above 0"),
        ({"learning_rate": 1e38}, "try 0.002"),
        ({"weight_decay": -1}, "weight_decay must be a finite number from 0 up"),
        ({"weight_decay": math.inf}, "weight_decay must be a finite number from 0 up"),
        ({"weight_decay": math.nan}, "weight_decay must be a finite number from 0 up"),
        ({"widths": ()}, "Each stage needs"),
        ({"widths": (8,)}, "Each stage needs"),
        ({"widths": (8, 16.5)}, "widths must be a whole number"),
        ({"blocks": (1, 0)}, "Each stage needs"),
        ({"projection": 0}, "projection must be above 0"),
        ({"random_state": -1}, "seed"),
        ({"random_state": 0.5}, "random_state must be a whole number"),
    ],
)
def test_settings_that_cannot_be(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        pretrain_simclr(noise(), **{**SMALL, **wrong})


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    numbers = {"epochs": np.int64(1), "weight_decay": np.float32(0), "widths": np.array([8, 16])}
    pretrain_simclr(noise(), **{**SMALL, **numbers}, checkpoint=tmp_path / "encoder")
    assert stored_settings(tmp_path / "encoder")["widths"] == [8, 16]


def test_a_loss_that_explodes_is_told() -> None:
    with pytest.raises(InputError, match="lower learning rate"):
        pretrain_simclr(noise(), epochs=30, **SMALL, learning_rate=1e6)


# Files


class KilledError(Exception):
    """Nothing of ours is run after it."""


def killed_in(epoch: int, number: int = 1) -> Any:
    def callback(step: Step) -> None:
        if (step.epoch, step.number) == (epoch, number):
            raise KilledError

    return callback


def same_weights(a: Encoder, b: Encoder) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("moments", [[(2, 1)], [(3, 2)], [(1, 2), (2, 2), (4, 1)]])
def test_a_training_that_was_killed_goes_on_as_if_nothing_had_been(
    tmp_path: Path, moments: list[tuple[int, int]]
) -> None:
    whole = pretrain_simclr(noise(), epochs=4, **SMALL, random_state=3)
    path = tmp_path / "encoder.safetensors"
    for moment in moments:
        with pytest.raises(KilledError):
            pretrain_simclr(
                noise(), epochs=4, **SMALL, random_state=3, checkpoint=path, resume=True, callbacks=[killed_in(*moment)]
            )
    seen: list[Step] = []
    result = pretrain_simclr(
        noise(), epochs=4, **SMALL, random_state=3, checkpoint=path, resume=True, callbacks=[seen.append]
    )
    assert result.history == whole.history
    assert same_weights(result.encoder, whole.encoder)
    assert same_weights(load_encoder(path), whole.encoder)
    # It went on from the last whole epoch, and the one file is all there is.
    assert [step.epoch for step in seen] == [epoch for epoch in range(moments[-1][0], 5) for _ in range(2)]
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """Of a training of three epochs, killed in its third."""
    path = tmp_path / "encoder.safetensors"
    with pytest.raises(KilledError):
        pretrain_simclr(noise(), epochs=3, **SMALL, checkpoint=path, callbacks=[killed_in(3)])
    return path


def test_a_checkpoint_can_be_used(checkpoint: Path) -> None:
    encoder = load_encoder(checkpoint)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert not any(module.training for module in encoder.modules())
    assert encoder(torch.rand(2, 3, 12, 12)).shape == (2, 16)


def test_a_training_that_ended_is_not_trained_again(tmp_path: Path) -> None:
    path = tmp_path / "encoder"
    result = pretrain_simclr(noise(), epochs=2, **SMALL, checkpoint=path)
    again = pretrain_simclr(noise(), epochs=2, **SMALL, checkpoint=path, resume=True, callbacks=[killed_in(1)])
    assert again.history == result.history
    assert same_weights(again.encoder, result.encoder)
    with pytest.raises(InputError, match="has ended"):
        pretrain_simclr(noise(), epochs=3, **SMALL, checkpoint=path, resume=True)


def test_epochs_that_were_done_cannot_be_undone(checkpoint: Path) -> None:
    before = checkpoint.read_bytes()
    with pytest.raises(InputError, match="has 2 epochs behind it, more than the 1 asked for"):
        pretrain_simclr(noise(), epochs=1, **SMALL, checkpoint=checkpoint, resume=True)
    assert checkpoint.read_bytes() == before


def test_as_many_epochs_as_were_done_end_a_training(checkpoint: Path) -> None:
    learned, size = load_encoder(checkpoint), checkpoint.stat().st_size
    result = pretrain_simclr(noise(), epochs=2, **SMALL, checkpoint=checkpoint, resume=True, callbacks=[killed_in(3)])
    assert same_weights(result.encoder, learned)
    assert len(result.history["loss"]) == 2
    # The file now holds the encoder alone.
    assert same_weights(load_encoder(checkpoint), learned)
    assert checkpoint.stat().st_size < size / 2
    with pytest.raises(InputError, match="has ended"):
        pretrain_simclr(noise(), epochs=3, **SMALL, checkpoint=checkpoint, resume=True)


def test_a_training_goes_on_with_its_own_images_and_settings(checkpoint: Path) -> None:
    before = checkpoint.read_bytes()
    with pytest.raises(InputError, match="other images"):
        pretrain_simclr(noise()[::-1], epochs=3, **SMALL, checkpoint=checkpoint, resume=True)
    with pytest.raises(InputError, match=r"temperature 0\.5"):
        pretrain_simclr(noise(), epochs=3, **SMALL, checkpoint=checkpoint, resume=True, temperature=0.1)
    assert checkpoint.read_bytes() == before
    settings = stored_settings(checkpoint)
    assert settings["widths"] == [8, 16]
    longer = pretrain_simclr(noise(), **{**settings, "epochs": 5}, checkpoint=checkpoint, resume=True)
    assert len(longer.history["loss"]) == 5


def test_a_write_that_fails_leaves_the_last_checkpoint(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = checkpoint.read_bytes()

    def half(tensors: Any, path: Path, **_: Any) -> None:
        path.write_bytes(before[:1000])
        raise OSError("No space left on device")

    monkeypatch.setattr("pollux.io.tensors.save_file", half)
    with pytest.raises(OSError, match="No space"):
        pretrain_simclr(noise(), epochs=3, **SMALL, checkpoint=checkpoint, resume=True)
    assert checkpoint.read_bytes() == before
    assert list(checkpoint.parent.iterdir()) == [checkpoint]


def test_a_place_that_cannot_be_written_is_told_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "encoder", tmp_path / "file" / "below" / "encoder"):
        with pytest.raises(InputError, match="folder"):
            pretrain_simclr(noise(), **SMALL, checkpoint=path, callbacks=[killed_in(1)])


def test_the_folder_of_the_file_is_made_when_all_is_well(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "encoder"
    with pytest.raises(InputError):
        pretrain_simclr(np.zeros((5, 9)), **SMALL, checkpoint=path)
    with pytest.raises(InputError):
        pretrain_simclr(noise(), **{**SMALL, "epochs": 0}, checkpoint=path)
    assert not (tmp_path / "a").exists()
    with pytest.raises(KilledError):
        pretrain_simclr(noise(), epochs=1, **SMALL, checkpoint=path, callbacks=[killed_in(1)])
    assert (tmp_path / "a" / "b").is_dir()
    pretrain_simclr(noise(), epochs=1, **SMALL, checkpoint=path)
    load_encoder(path)


def test_an_encoder_of_ones_own_in_a_file(tmp_path: Path) -> None:
    encoder = Encoder(2, (4, 8), (1, 1), mean=[1, 2], std=[3, 4]).eval()
    save_encoder(tmp_path / "encoder", encoder, {"trained on": "nothing"})
    images = torch.rand(3, 2, 9, 9)
    assert torch.equal(load_encoder(tmp_path / "encoder")(images), encoder(images))
    with pytest.raises(InputError, match="does not say how it was trained"):
        stored_settings(tmp_path / "encoder")
    with pytest.raises(InputError, match="not the whole state"):
        pretrain_simclr(noise(), **SMALL, checkpoint=tmp_path / "encoder", resume=True)


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.99])
def test_torn_files(checkpoint: Path, share: float) -> None:
    whole = checkpoint.read_bytes()
    checkpoint.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputError, match="not a whole encoder file"):
        load_encoder(checkpoint)
    with pytest.raises(InputError, match="not a whole encoder file"):
        pretrain_simclr(noise(), epochs=3, **SMALL, checkpoint=checkpoint, resume=True)


def test_one_changed_byte_is_found(checkpoint: Path) -> None:
    content = bytearray(checkpoint.read_bytes())
    content[-1] ^= 1
    checkpoint.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        load_encoder(checkpoint)


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
    encoder = Encoder(3, (8, 16), (1, 1))
    monkeypatch.setattr(Encoder, "design", design)
    save_encoder(tmp_path / "encoder", encoder)
    with pytest.raises(InputError, match="not a whole encoder file"):
        load_encoder(tmp_path / "encoder")


# The command line


def command(*words: object) -> int:
    parser = argparse.ArgumentParser()
    pretrain.add(parser.add_subparsers(dest="command"))
    options = parser.parse_args(["pretrain", "simclr", *map(str, words)])
    return int(options.run(options))


FAST = ("--epochs", 2, "--batch-size", 16, "--widths", "8,16", "--blocks", "1,1", "--threads", 1)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.save("images.npy", noise())
    return tmp_path


def test_the_command(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command("images.npy", *FAST) == GOOD
    told = capsys.readouterr()
    assert told.err == ""
    lines = told.out.splitlines()
    assert lines[0] == "40 images of 3×12×12"
    assert lines[1].startswith("epoch 1/2  loss ")
    assert "images/s" in lines[1]
    assert lines[-5:-3] == ["saved in images-simclr.safetensors", "next, in Python:"]
    # Bits are those of a number of threads, which the command was told.
    with at_most(1):
        expected = pretrain_simclr(noise(), epochs=2, batch_size=16, widths=(8, 16), blocks=(1, 1)).encoder
    assert same_weights(load_encoder("images-simclr.safetensors"), expected)


def test_the_command_makes_the_folder_and_says_what_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A path that no quotes of ours would survive.
    out = here / "new" / 'it\'s "mine" \\n' / "x.safetensors"
    assert command("images.npy", *FAST, "--out", out) == GOOD
    _, _, lines = capsys.readouterr().out.partition("next, in Python:\n")
    namespace: dict[str, Any] = {}
    exec(lines, namespace)
    unit = torch.from_numpy(noise() / 255).float().permute(0, 3, 1, 2)
    assert len(namespace["geometry"].bind(unit)(torch.arange(5)).values) == 5


def test_the_command_makes_no_folder_for_bad_input(here: Path) -> None:
    np.save("rows.npy", np.zeros((5, 4)))
    for words in (("rows.npy", *FAST), ("images.npy", *FAST, "--epochs", 0), ("none.npy", *FAST)):
        with pytest.raises(InputError):
            command(*words, "--out", "new/x.safetensors")
    assert not Path("new").exists()


def test_the_command_spares_what_is_there(here: Path) -> None:
    (here / "images-simclr.safetensors").write_text("old")
    with pytest.raises(InputError, match="exists"):
        command("images.npy", *FAST)
    with pytest.raises(InputError, match="give one of them"):
        command("images.npy", *FAST, "--resume", "--overwrite")
    assert (here / "images-simclr.safetensors").read_text() == "old"
    assert command("images.npy", *FAST, "--overwrite", "--quiet") == GOOD
    load_encoder("images-simclr.safetensors")


def interrupt(monkeypatch: pytest.MonkeyPatch, epoch: int) -> None:
    """Ctrl-C strikes in that epoch."""

    def strike(self: EpochLines, step: Step) -> None:
        if step.epoch == epoch:
            raise KeyboardInterrupt

    monkeypatch.setattr(EpochLines, "__call__", strike)


def test_the_command_stops_and_goes_on(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("images.npy", *FAST, "--view-size", 9, "--no-flip", "--seed", 4)
    assert command(*words, "--out", "whole") == GOOD
    with monkeypatch.context() as patch:
        interrupt(patch, 1)
        assert command(*words, "--out", "in parts") == STOPPED
        assert "nothing was written" in capsys.readouterr().err
        assert not Path("in parts").exists()
        Path("in parts").write_text("old")
        assert command(*words, "--out", "in parts", "--overwrite") == STOPPED
        assert "nothing was written" in capsys.readouterr().err
        Path("in parts").unlink()
        interrupt(patch, 2)
        assert command(*words, "--out", "in parts") == STOPPED
        told = capsys.readouterr().err
        assert "To go on: pollux pretrain simclr images.npy --out 'in parts' --resume" in told
        np.savez("several.npz", images=noise(), others=noise(5))
        assert command("several.npz", *FAST, "--array", "images") == STOPPED
        told = capsys.readouterr().err
        assert "several.npz --array=images --out several-simclr.safetensors --resume" in told
    # What was given before need not be said again, but for the threads, which are none of the settings.
    assert command("images.npy", "--out", "in parts", "--resume", "--threads", 1) == GOOD
    assert same_weights(load_encoder("in parts"), load_encoder("whole"))
    assert command("images.npy", "--out", "in parts", "--resume") == GOOD


def test_where_images_come_from(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_images("images.npy").shape == (40, 3, 12, 12)
    np.savez("several.npz", x_train=noise(), x_test=noise(7), y=np.arange(40))
    assert read_images("several.npz", array="x_test").shape == (7, 3, 12, 12)
    write_images(here / "folder", list(noise(6)))
    assert read_images("folder").shape == (6, 3, 12, 12)
    assert read_images("folder", image_size=9).shape == (6, 3, 9, 9)
    labels = np.arange(40) % 10
    np.savez("mnist.npz", x_train=noise(40, 28, 28), y_train=labels, x_test=noise(40, 28, 28), y_test=labels)
    monkeypatch.setenv("POLLUX_DATA", str(here))
    assert read_images("mnist").shape == (40, 28, 28)
    with pytest.raises(InputError, match="'mnist'"):
        read_images("minst")
    np.save("rows.npy", np.zeros((5, 4)))
    write_bytes(here / "table.csv", "a,b\n1,2\n")
    for name in ("rows.npy", "table.csv"):
        with pytest.raises(InputError, match="holds no images"):
            read_images(name)


def test_digits_are_not_mirrored(here: Path) -> None:
    def flips(*words: str) -> bool:
        parser = argparse.ArgumentParser()
        pretrain.add(parser.add_subparsers(dest="command"))
        options = parser.parse_args(["pretrain", "simclr", *words])
        return bool(pretrain._settings(options, Path("none"))["augmentation"].flip)

    assert [flips("mnist"), flips("cifar10"), flips("mnist", "--flip"), flips("cifar10", "--no-flip")] == [
        *(False, True, True, False)
    ]


def test_help_names_the_data_sets_there_are() -> None:
    assert set(pretrain.DATA_SETS.split(", ")) == set(IMAGES)


def test_words_that_cannot_be(here: Path) -> None:
    with pytest.raises(SystemExit):
        command("images.npy", "--widths", "8,x")
    with pytest.raises(InputError, match="--threads"):
        command("images.npy", "--threads", 0)
    with pytest.raises(SystemExit):
        command("images.npy", "--epoch", 3)


def test_the_live_line(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressBar() as bar:
        bar(Step(epoch=2, epochs=3, number=1, of=4, images=16, loss=1.234, matched=0.5))
    told = capsys.readouterr().err
    assert "epoch 2/3  loss 1.234  matched 50%" in " ".join(told.split("\n"))

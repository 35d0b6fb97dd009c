"""SimCLR: it learns, and a training that was killed goes on as if nothing had happened."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from coverings import rotated
from pollux import GeminiClustering
from pollux.errors import InputError
from pollux.geometry import resolve
from pollux.lab.pretraining import Augmentation, load_encoder, pretrain_simclr, stored_settings
from pollux.lab.pretraining.simclr import checkpoint_folder
from pollux.training import Checkpoints, CheckpointWarning, Epoch, Stopped
from pretraining_images import SMALL, blotches, generator, noise, same_weights


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


def test_the_global_generator_is_left_alone(tmp_path: Path) -> None:
    state = torch.get_rng_state()
    pretrain_simclr(noise(), epochs=1, **SMALL, out=tmp_path / "encoder")
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
    pretrain_simclr(noise(), **{**SMALL, **numbers}, out=tmp_path / "encoder")
    assert stored_settings(tmp_path / "encoder")["widths"] == [8, 16]


def test_a_loss_that_explodes_is_an_error() -> None:
    with pytest.raises(InputError, match="lower learning rate"):
        pretrain_simclr(noise(), epochs=30, **SMALL, learning_rate=1e6)


# Checkpoints


class KilledError(Exception):
    """Nothing of ours is run after it."""


class KilledAt:
    """Ends a training after a step; epochs have three."""

    def __init__(self, epochs: float) -> None:
        self.epochs = epochs

    def __call__(self, epoch: Epoch) -> None:
        """Goes on."""

    def after_step(self, epochs: float, max_epochs: int) -> None:
        if epochs > self.epochs - 1e-9:
            raise KilledError


@pytest.fixture(scope="module")
def whole() -> Any:
    """A training of four epochs that nothing has interrupted."""
    return pretrain_simclr(noise(), epochs=4, **SMALL, random_state=3)


@pytest.mark.parametrize(
    ("moments", "every"), rotated([[2 / 3, 1, 10 / 3], [4 / 3], [3]], ["1 step", "1 epoch", "1 hour"])
)
def test_a_training_that_was_killed_goes_on_as_if_nothing_had_been(
    tmp_path: Path, whole: Any, moments: list[float], every: str
) -> None:
    path = tmp_path / "encoder.safetensors"
    settings: dict[str, Any] = {**SMALL, "epochs": 4, "random_state": 3, "out": path, "resume": True}
    for moment in moments:
        checkpoints = Checkpoints(checkpoint_folder(path), every=every)
        with pytest.raises(KilledError):
            pretrain_simclr(noise(), **settings, checkpoints=checkpoints, callbacks=[KilledAt(moment)])
    seen: list[Epoch] = []
    result = pretrain_simclr(noise(), **settings, callbacks=[seen.append])
    assert result.history == whole.history
    assert same_weights(result.encoder, whole.encoder)
    assert same_weights(load_encoder(path), whole.encoder)
    # It went on from the last checkpoint, and the one file is all there is.
    done = {"1 step": math.ceil(moments[-1] - 1 / 3) - 1, "1 epoch": math.ceil(moments[-1]) - 1, "1 hour": 0}[every]
    assert [epoch.number for epoch in seen] == list(range(done + 1, 5))
    assert [epoch.metrics["matched"] for epoch in seen] == whole.history["matched"][done:]
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """Of a training of three epochs, killed in its third."""
    path = tmp_path / "encoder.safetensors"
    checkpoints = Checkpoints(checkpoint_folder(path), every="1 step")
    with pytest.raises(KilledError):
        pretrain_simclr(noise(), epochs=3, **SMALL, out=path, checkpoints=checkpoints, callbacks=[KilledAt(8 / 3)])
    return path


def test_a_training_that_is_asked_to_stop_goes_on(tmp_path: Path, whole: Any) -> None:
    path = tmp_path / "encoder"
    checkpoints = Checkpoints(checkpoint_folder(path), every="1 hour")

    class Asks(KilledAt):
        def after_step(self, epochs: float, max_epochs: int) -> None:
            checkpoints.stop_requested = epochs > self.epochs - 1e-9

    settings: dict[str, Any] = {**SMALL, "epochs": 4, "random_state": 3, "out": path}
    with pytest.raises(Stopped) as stopped:
        pretrain_simclr(noise(), **settings, checkpoints=checkpoints, callbacks=[Asks(4 / 3)])
    assert stopped.value.epochs == 1
    result = pretrain_simclr(noise(), **settings, resume=True)
    assert result.history == whole.history
    assert same_weights(result.encoder, whole.encoder)


def test_the_encoder_of_an_unfinished_training_can_be_used(unfinished: Path) -> None:
    encoder = load_encoder(unfinished)
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert not any(module.training for module in encoder.modules())
    assert encoder(torch.rand(2, 3, 12, 12)).shape == (2, 16)


def test_a_training_that_ended_is_not_trained_again(tmp_path: Path) -> None:
    path = tmp_path / "encoder"
    result = pretrain_simclr(noise(), epochs=2, **SMALL, out=path)
    again = pretrain_simclr(noise(), epochs=2, **SMALL, out=path, resume=True, callbacks=[KilledAt(0)])
    assert again.history == result.history
    assert same_weights(again.encoder, result.encoder)
    with pytest.raises(InputError, match="has ended"):
        pretrain_simclr(noise(), epochs=3, **SMALL, out=path, resume=True)
    with pytest.raises(InputError, match="2 epochs behind it, more than the 1 asked for"):
        pretrain_simclr(noise(), epochs=1, **SMALL, out=path, resume=True)
    with pytest.raises(InputError, match="other images"):
        pretrain_simclr(noise()[::-1], epochs=2, **SMALL, out=path, resume=True)
    with pytest.raises(InputError, match=r"temperature 0\.5"):
        pretrain_simclr(noise(), epochs=2, **SMALL, out=path, resume=True, temperature=0.1)


def test_epochs_that_were_done_cannot_be_undone(unfinished: Path) -> None:
    before = unfinished.read_bytes()
    with pytest.raises(InputError, match="has had 2 epochs already, more than 1"):
        pretrain_simclr(noise(), epochs=1, **SMALL, out=unfinished, resume=True)
    assert unfinished.read_bytes() == before


def test_as_many_epochs_as_were_done_end_a_training(unfinished: Path) -> None:
    learned = load_encoder(unfinished)
    result = pretrain_simclr(noise(), epochs=2, **SMALL, out=unfinished, resume=True, callbacks=[KilledAt(0)])
    # Without the steps of the third epoch.
    assert same_weights(result.encoder, learned)
    assert len(result.history["loss"]) == 2
    assert same_weights(load_encoder(unfinished), learned)
    assert list(unfinished.parent.iterdir()) == [unfinished]
    with pytest.raises(InputError, match="has ended"):
        pretrain_simclr(noise(), epochs=3, **SMALL, out=unfinished, resume=True)


def test_a_training_goes_on_with_its_own_images_and_settings(unfinished: Path) -> None:
    before = unfinished.read_bytes()
    with pytest.raises(InputError, match="images was"):
        pretrain_simclr(noise()[::-1], epochs=3, **SMALL, out=unfinished, resume=True)
    with pytest.raises(InputError, match=r"temperature was 0\.5 and is 0\.1"):
        pretrain_simclr(noise(), epochs=3, **SMALL, out=unfinished, resume=True, temperature=0.1)
    assert unfinished.read_bytes() == before
    settings = stored_settings(unfinished)
    assert (settings["widths"], settings["epochs"]) == ([8, 16], 3)
    longer = pretrain_simclr(noise(), **{**settings, "epochs": 5}, out=unfinished, resume=True)
    assert len(longer.history["loss"]) == 5


def test_a_training_that_begins_anew_leaves_nothing_of_the_old_one(unfinished: Path) -> None:
    again = pretrain_simclr(noise(), epochs=1, **SMALL, out=unfinished, temperature=0.1)
    assert same_weights(load_encoder(unfinished), again.encoder)
    assert list(unfinished.parent.iterdir()) == [unfinished]


def test_a_write_that_fails_leaves_the_last_encoder(unfinished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = unfinished.read_bytes()

    def half(tensors: Any, path: Path, **_: Any) -> None:
        path.write_bytes(before[:1000])
        raise OSError("No space left on device")

    checkpoints = Checkpoints(checkpoint_folder(unfinished), every="1 step")
    settings = {**SMALL, "epochs": 3, "out": unfinished, "resume": True, "checkpoints": checkpoints}
    with monkeypatch.context() as patch, pytest.warns(CheckpointWarning, match="No space"):  # noqa: PT031
        patch.setattr("pollux.io.tensors.save_file", half)
        with pytest.raises(OSError, match="No space"):
            pretrain_simclr(noise(), **settings)
    assert unfinished.read_bytes() == before
    assert len(list(unfinished.parent.iterdir())) == 2
    pretrain_simclr(noise(), epochs=3, **SMALL, out=unfinished, resume=True)
    assert list(unfinished.parent.iterdir()) == [unfinished]


def test_a_file_that_cannot_be_written_is_refused_before_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "encoder", tmp_path / "file" / "below" / "encoder"):
        with pytest.raises(InputError, match="folder"):
            pretrain_simclr(noise(), **SMALL, out=path, callbacks=[KilledAt(0)])


def test_the_folder_of_the_file_is_made_when_all_is_well(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "encoder"
    with pytest.raises(InputError):
        pretrain_simclr(np.zeros((5, 9)), **SMALL, out=path)
    with pytest.raises(InputError):
        pretrain_simclr(noise(), **{**SMALL, "epochs": 0}, out=path)
    assert not (tmp_path / "a").exists()
    with pytest.raises(KilledError):
        pretrain_simclr(noise(), epochs=1, **SMALL, out=path, callbacks=[KilledAt(0)])
    assert (tmp_path / "a" / "b").is_dir()
    pretrain_simclr(noise(), epochs=1, **SMALL, out=path)
    load_encoder(path)

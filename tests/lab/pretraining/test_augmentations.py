"""Random views of images."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from pollux.errors import InputError
from pollux.lab.pretraining import Augmentation
from pretraining_images import generator


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

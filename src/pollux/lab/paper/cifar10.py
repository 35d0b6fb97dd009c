"""CIFAR-10 with and without a kernel or distance of SimCLR features."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from pollux.errors import InputError
from pollux.geometry import Geometry, resolve
from pollux.geometry.affinity import Block
from pollux.geometry.pairwise import Kind
from pollux.lab.datasets import load_images
from pollux.lab.grid import RunContext
from pollux.lab.paper.comparisons import (
    Comparison,
    ComparisonRow,
    ComparisonTable,
    compare,
    draw_bars,
    draw_curves,
    epochs_of,
)
from pollux.lab.paper.experiment import OBJECTIVES, Experiment, Protocol, fit_in_stages, score_kmeans
from pollux.lab.pretraining import load_encoder
from pollux.lab.records import Record, Run, Settings
from pollux.spec import LeNet5, ResNet18

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GEOMETRIC = ("mmd_ova", "mmd_ovo", "wasserstein_ova", "wasserstein_ovo")
COLUMNS = (("kl_ova", ""), *((name, "pixels") for name in GEOMETRIC), *((name, "simclr") for name in GEOMETRIC))
PUBLISHED = {
    "lenet5": (0.026, 0.049, 0.048, 0.043, 0.041, 0.157, 0.145, 0.079, 0.138),
    "resnet18": (0.008, 0.047, 0.044, 0.037, 0.036, 0.122, 0.145, 0.052, 0.080),
}
PUBLISHED_KMEANS = {"pixels": 0.041, "simclr": 0.147}
TITLES = {"pixels": "pixels", "simclr": "SimCLR features"}
MODEL_NAMES = {"lenet5": "LeNet-5", "resnet18": "ResNet-18"}
PAPERS_EPOCHS = 200
# The paper's networks: the last hidden layer of LeNet-5 has 250 units here.
NETWORKS: dict[str, Any] = {
    "lenet5": LeNet5(width=250, activation="tanh", pooling="average"),
    "resnet18": ResNet18(stem="imagenet"),
}
ENCODER = "cifar10-simclr.safetensors"


@functools.lru_cache(maxsize=1)
def pixels() -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """Training and test images (n, 3, 32, 32) from 0 to 1, and the classes of the latter."""
    images = load_images("cifar10")
    train, test = (
        np.ascontiguousarray(np.moveaxis(part, -1, 1)).astype(np.float32) / np.float32(255)
        for part in (images.x_train, images.x_test)
    )
    return train, test, images.y_test


@functools.lru_cache(maxsize=1)
def pictures() -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int64]]:
    """What the networks see: the same with each channel standardised by the training images."""
    train, test, classes = pixels()
    mean, deviation = (statistic(train, axis=(0, 2, 3), keepdims=True) for statistic in (np.mean, np.std))
    return (train - mean) / deviation, (test - mean) / deviation, classes


@functools.lru_cache(maxsize=1)
def features(encoder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """What a frozen encoder makes of training and test images, (n, r) each."""
    train, test, _ = pixels()
    network = load_encoder(encoder)
    batches = [torch.split(torch.from_numpy(images), 500) for images in (train, test)]
    with torch.no_grad():
        made = [torch.cat([network(batch) for batch in part]) for part in batches]
    return made[0], made[1]


@dataclass(frozen=True)
class OfFeatures(Geometry):
    """A kernel or distance between features of the samples that are known already."""

    values: torch.Tensor
    geometry: Geometry

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        """That of what compares the features."""
        return self.geometry.kind

    @property
    def gives_features(self) -> bool:
        return self.geometry.gives_features

    def bind(self, X: Any) -> Block:
        return self.geometry.bind(self.values)


def measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """Train on the 50,000 images, score on the 10,000 others."""
    encoder = find_encoder(context.folder) if settings.get("geometry") == "simclr" else None
    of_encoder = {"encoder": _digest(encoder)} if encoder else {}
    if settings.get("baseline") == "kmeans":
        train, test, classes = pixels()
        rows = [part.reshape(len(part), -1) for part in (train, test)]
        if encoder is not None:
            rows = [part.numpy() for part in features(encoder)]
        return {**score_kmeans(rows[0], rows[1], classes, 10, seed), **of_encoder}
    train, test, classes = pictures()
    needs: Kind = "distance" if settings["objective"].startswith("wasserstein") else "kernel"
    options: dict[str, Any] = {
        "model": NETWORKS[settings["model"]],
        "geometry": "auto" if encoder is None else OfFeatures(features(encoder)[0], resolve("auto", needs)),
        "batch_size": 500,
        "learning_rate": 1e-3,
        # Features of another encoder are another training, which its checkpoints do not know.
        "fit": "-".join(["fit", *of_encoder.values()]),
    }
    return {**fit_in_stages(train, 10, settings, seed, context, test, classes, **options), **of_encoder}


def find_encoder(folder: Path) -> Path:
    """The encoder in the folder of the results."""
    path = folder / ENCODER
    if not path.exists():
        raise InputError(
            f"There is no SimCLR encoder of CIFAR-10 in {folder}. Train one (hours): pollux pretrain simclr cifar10 "
            f"--out {path}; or leave its settings out: --only geometry=none --only geometry=pixels."
        )
    return path


def check(runs: Sequence[Run], folder: Path) -> None:
    """Complain of an encoder that is not there, or no encoder of such images, before hours of other runs."""
    if any(run.settings.get("geometry") == "simclr" for run in runs):
        path = find_encoder(folder)
        if (channels := load_encoder(path).channels) != 3:
            raise InputError(f"{path} is an encoder of images of {channels} channels; those of CIFAR-10 have 3.")


def _digest(path: Path) -> str:
    return _digest_at(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=2)
def _digest_at(path: Path, changed: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def outdated(record: Record, folder: Path) -> bool:
    """Whether the features were those of another encoder than the one that is here."""
    path, used = folder / ENCODER, record.metrics.get("encoder")
    return used is not None and path.exists() and used != _digest(path)


def grid(epochs: Mapping[str, int], geometries: Sequence[str]) -> Iterator[Settings]:
    """The MI, which needs no geometry, MMD and Wasserstein on pixels and on features; epochs by model."""
    for model, number in epochs.items():
        for objective, geometry in COLUMNS:
            if not geometry or geometry in geometries:
                common = {"model": model, "objective": objective, "geometry": geometry or "none"}
                yield {**common, "network": "paper", "epochs": number}
    yield from ({"baseline": "kmeans", "geometry": geometry} for geometry in geometries)


def tables(records: Sequence[Record]) -> list[ComparisonTable]:
    """The table of the paper, a row for each of its columns."""
    rows = []
    for column, (objective, geometry) in enumerate(COLUMNS):
        wanted = {"objective": objective, "geometry": geometry or "none"}
        cells = [compare(records, {**wanted, "model": model}, PUBLISHED[model][column]) for model in MODEL_NAMES]
        rows.append(ComparisonRow(f"{OBJECTIVES[objective]}{f', {TITLES[geometry]}' if geometry else ''}", cells))
    for geometry, published in PUBLISHED_KMEANS.items():
        kmeans = compare(records, {"baseline": "kmeans", "geometry": geometry}, published)
        rows.append(ComparisonRow(f"k-means of {TITLES[geometry]}, without a network", [kmeans, Comparison()]))
    columns = [name + epochs_of(records, {"model": model}) for model, name in MODEL_NAMES.items()]
    return [ComparisonTable("ARI on the test images of CIFAR-10 (clusters in use)", columns, rows)]


def draw(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """The tables as bars, and how the scores came about."""
    panels = {
        f"{name}, {TITLES[geometry]}": [
            record
            for record in records
            # The MI sees neither geometry, and is shown beside both.
            if record.run.has({"model": model}) and record.run.settings["geometry"] in (geometry, "none")
        ]
        for model, name in MODEL_NAMES.items()
        for geometry in TITLES
    }
    shown = {name: OBJECTIVES[name] for name in ("kl_ova", *GEOMETRIC)}
    note = "KL OvA sees neither pixels nor features: its line is the same in both."
    return {**draw_bars(tables)(records, folder), **draw_curves(panels, shown, PAPERS_EPOCHS, note=note)}


EXPERIMENT = Experiment(
    name="cifar10",
    title="CIFAR-10 clustering using a SimCLR-derived kernel",
    place="section 4.5",
    protocols={
        "paper": Protocol(list(grid(dict.fromkeys(MODEL_NAMES, PAPERS_EPOCHS), [*TITLES])), runs=1),
        "cpu": Protocol(
            list(grid({"lenet5": 50, "resnet18": 5}, [*TITLES])),
            runs=1,
            remark="50 epochs of LeNet-5 and 5 of ResNet-18 instead of 200",
        ),
        "quick": Protocol(
            list(grid({"lenet5": 2}, ["pixels"])),
            runs=1,
            remark="2 epochs instead of 200, LeNet-5 and pixels only: no encoder is needed",
        ),
    },
    measure=measure,
    tables=tables,
    figures=draw,
    outdated=outdated,
    data=("cifar10",),
    check=check,
)

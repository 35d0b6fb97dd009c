"""The speed and memory of Pollux, side by side with its peers in one run.

python benchmarks/core.py [--only NAME ...] [--quick] [--threads N]

The peer is GemClus, called through its public interface, unless a row names another. Ratios are of
medians over alternating calls with equal thread counts; the long epoch of the peer runs once. Both
sides compute in double precision, but for the training step. Threads that wait for a busy core distort
the figures: on a machine that others use, run with --threads 1.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import gemclus.gemini
import gemclus.linear
import numpy as np
import torch
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import adjusted_rand_score
from torch import Tensor, nn

import pollux
from measure import (
    Row,
    Run,
    Work,
    alternate,
    environment,
    limit_threads,
    record,
    significant,
    take_turns,
    text_table,
)
from pollux.geometry.affinity import Affinity, Features
from pollux.models import lenet5, mlp, resnet18
from probes import in_own_process, linear_clustering

MEGABYTE = 1_000_000
STEP_OBJECTIVES = (
    *(f"{divergence}_{mode}" for divergence in ("kl", "tv", "hellinger", "mmd") for mode in ("ova", "ovo")),
    "chi2_ova",
)


def value_and_gradient(objective: str, logits: Tensor, affinity: Affinity | None = None) -> float:
    """The GEMINI at `logits` (n, K), its gradient left in `logits.grad`."""
    logits.grad = None
    value = pollux.Gemini(objective)(logits.log_softmax(1), affinity)
    value.backward()  # type: ignore[no-untyped-call]
    return float(value.detach())


def check_agreement(work: str, logits: Tensor, value: float, peer: tuple[float, np.ndarray]) -> None:
    """Both sides must have computed the same value and, through the softmax, the same gradient."""
    peer_value, peer_gradient = float(peer[0]), torch.from_numpy(peer[1])
    if abs(value - peer_value) > 1e-8 * abs(peer_value):
        raise AssertionError(f"{work}: ours is {value!r}, the peer's {peer_value!r}")
    (expected,) = torch.autograd.grad(logits.softmax(1), logits, peer_gradient)
    assert logits.grad is not None
    torch.testing.assert_close(logits.grad, expected, rtol=1e-6, atol=1e-8 * float(expected.abs().max()))


def random_logits(n: int, K: int) -> Tensor:
    return torch.randn(n, K, dtype=torch.float64, requires_grad=True)


def mmd(n: int, turns: int, goal: float, features_goal: float | None, quick: bool) -> list[Row]:
    """Value and gradient of MMD one-vs-all, from the dense linear kernel and from its features."""
    n = n // 4 if quick else n
    logits, values = random_logits(n, 10), torch.randn(n, 64, dtype=torch.float64)
    kernel = values @ values.T
    prediction, peer_kernel = logits.detach().softmax(1).numpy(), kernel.numpy()
    dense = partial(value_and_gradient, "mmd_ova", logits, kernel)
    featured = partial(value_and_gradient, "mmd_ova", logits, Features(values=values))
    results = []

    def peer() -> None:
        results.append(gemclus.gemini.MMDGEMINI(ovo=False).evaluate(prediction, peer_kernel, return_grad=True))

    dense_seconds, featured_seconds, peer_seconds = alternate([dense, featured, peer], turns=turns, at_least=0.5)
    work = f"value + gradient, mmd_ova, N={n}, K=10"
    for ours in (dense, featured):
        check_agreement(work, logits, ours(), results[-1])
    rows = [Row(f"{work}, dense kernel", dense_seconds, peer_seconds, goal)]
    if features_goal is not None:
        rows.append(Row(f"{work}, linear kernel, d=64", featured_seconds, peer_seconds, features_goal))
    return rows


def tv_ovo(quick: bool) -> list[Row]:
    """Value and gradient of the total variation between clusters, and the memory they take."""
    n, K = (2_000 if quick else 20_000), 20
    logits = random_logits(n, K)
    prediction = logits.detach().softmax(1).numpy()
    gemini = gemclus.gemini.TVGEMINI(ovo=True)
    ours = partial(value_and_gradient, "tv_ovo", logits)
    peer = partial(gemini.evaluate, prediction, None, return_grad=True)
    ours_seconds, peer_seconds = alternate([ours, peer], turns=3 if quick else 7, at_least=0.5)
    work = f"value + gradient, tv_ovo, N={n}, K={K}"
    check_agreement(work, logits, ours(), peer())
    ours_extra, peer_extra = (in_own_process(f"tv_ovo_{side}", n).extra_bytes for side in ("ours", "peer"))
    note = f"peer: an N x K x K array of doubles; GemClus adds {peer_extra / MEGABYTE:.0f} MB"
    memory = ours_extra / MEGABYTE, 8 * n * K * K / MEGABYTE
    return [
        Row(work, ours_seconds, peer_seconds, 5),
        Row(f"{work}, peak extra memory", *memory, 1, faster=False, unit="MB", note=note),
    ]


Loss = Callable[[Tensor, Tensor, Tensor], Tensor]
Network = Callable[[Sequence[int], int], nn.Module]


def cross_entropy(logits: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits, labels)


def gemini_loss(objective: str) -> Loss:
    """The negated GEMINI, with the linear kernel of the batch where it needs one."""
    gemini = pollux.Gemini(objective)
    needs_kernel = objective.startswith("mmd")

    def loss(logits: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        return -gemini(logits.log_softmax(1), Features(values=inputs) if needs_kernel else None)

    return loss


def training_step(loss_function: Loss, batches: list[tuple[Tensor, Tensor]]) -> Work:
    """A plain torch loop's body with its own MLP 784-1200-10; each call takes the next batch."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 1200), nn.ReLU(), nn.Linear(1200, 10))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    position = 0

    def step() -> None:
        nonlocal position
        inputs, labels = batches[position % len(batches)]
        position += 1
        optimiser.zero_grad()
        loss = loss_function(model(inputs), inputs, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def mlp_step(quick: bool) -> list[Row]:
    """One training step with every objective, against the same step with cross-entropy."""
    batches = [(torch.rand(500, 784), torch.randint(10, (500,))) for _ in range(10)]
    rows = []
    for objective in STEP_OBJECTIVES:
        ours, peer = training_step(gemini_loss(objective), batches), training_step(cross_entropy, batches)
        alternate([ours, peer], turns=3, pause=0)  # the first steps allocate Adam's state
        ours_seconds, peer_seconds = alternate([ours, peer], turns=20 if quick else 150, pause=0)
        rows.append(Row(objective, ours_seconds, peer_seconds, 1.10, faster=False))
    worst = max(rows, key=lambda row: row.ratio)
    note = "peer: cross-entropy; " + ", ".join(f"{row.work} {row.ratio:.3f}x" for row in rows)
    work = f"step, MLP 784-1200-10, batch 500, worst of {len(rows)} ({worst.work})"
    return [Row(work, worst.ours, worst.peer, 1.10, faster=False, note=note)]


def epochs_of_fit(network: Network, images: Tensor, objective: str, batch_size: int) -> Run:
    """A fit of three epochs, which takes as long as its last two do on average: the first has to allocate."""

    def run() -> float:
        ends: list[float] = []
        pollux.GeminiClustering(
            10,
            model=network,
            objective=objective,
            batch_size=batch_size,
            max_epochs=3,
            learning_rate=1e-3,
            preprocessing=None,
            n_init=1,
            random_state=0,
            callbacks=[lambda epoch: ends.append(time.perf_counter())],
        ).fit(images.numpy())
        return (ends[2] - ends[0]) / 2

    return run


def epochs_by_hand(
    network: Network,
    images: Tensor,
    batch_size: int,
    change: Callable[[Any], Any] = lambda model: model,
    fused: bool | None = None,
    dtype: torch.dtype = torch.float32,
) -> Run:
    """The same by a loop as one writes it, with cross-entropy on labels that are given; the model may be changed."""
    torch.manual_seed(0)
    model, labels = change(network(images.shape[1:], 10)), torch.randint(10, (len(images),))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=fused)

    def run() -> float:
        ends = []
        for _ in range(3):
            for batch in torch.split(torch.randperm(len(images)), batch_size):
                optimiser.zero_grad()
                with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                    loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
                loss.backward()  # type: ignore[no-untyped-call]
                optimiser.step()
            ends.append(time.perf_counter())
        return (ends[2] - ends[0]) / 2

    return run


def large_digits(n: int, shape: tuple[int, ...]) -> Tensor:
    """Images (n, C, H, W): scikit-learn's digits, magnified, each with noise of its own."""
    digits = torch.from_numpy(load_digits().images).float()[torch.arange(n) % 1797, None] / 8 - 1
    return nn.functional.interpolate(digits, shape[1:]).expand(n, *shape) + 0.1 * torch.randn(n, *shape)


# Name, network, shape and number of images, batch size, turns.
IMAGE_NETWORKS: list[tuple[str, Network, tuple[int, ...], int, int, int]] = [
    ("MLP 784-1200-10", partial(mlp, hidden=(1200,)), (1, 28, 28), 10_000, 250, 9),
    ("LeNet-5", partial(lenet5, activation="tanh", pooling="average"), (1, 32, 32), 10_000, 250, 9),
    ("ResNet-18", partial(resnet18, stem="imagenet"), (3, 32, 32), 2_000, 500, 3),
]


def image_networks(quick: bool) -> list[Row]:
    """An epoch of the paper's networks for images, objective, batches and all, against a loop written by hand."""
    rows = []
    for name, network, shape, n, batch_size, turns in IMAGE_NETWORKS:
        images = large_digits(n // 10 if quick else n, shape)
        works = [epochs_of_fit(network, images, objective, batch_size) for objective in ("kl_ova", "mmd_ova")]
        works += [epochs_by_hand(network, images, batch_size)]
        # The fastest, because other programs only ever make an epoch slower.
        *ours, peer = take_turns(works, turns=1 if quick else turns, summary=min)
        note = f"peer: cross-entropy; kl_ova {ours[0] / peer:.3f}x, mmd_ova {ours[1] / peer:.3f}x"
        work = f"one epoch, {name} of the paper, {n:,} images, batch {batch_size}, the worse of 2 objectives"
        rows.append(Row(work, max(ours), peer, 1.10, faster=False, note=note))
    return rows


def image_choices(quick: bool) -> list[Row]:
    """What fits of images do, each beside what they could do instead, in the loop that is written by hand."""
    rows = []
    for name, network, shape, n, batch_size, turns in IMAGE_NETWORKS[1:]:
        images = large_digits(n // 10 if quick else n, shape)
        loop = partial(epochs_by_hand, network, images, batch_size)
        others = {
            "channels last, not first": (loop(), loop(channels_first), 0.95),
            "Adam fused, not by torch's default": (loop(fused=True), loop(), 1.0),
            "single precision, not bfloat16": (loop(), loop(dtype=torch.bfloat16), 0.95),
            # Compiling takes as long as some epochs do: it is worth it only if it saves more than a fifth.
            "not compiled": (loop(), loop(torch.compile), 0.8),
        }
        for what, (run, instead, goal) in others.items():
            ours, other = take_turns([run, instead], turns=1 if quick else turns, summary=min)
            rows.append(Row(f"one epoch by hand, {name}, {what}", ours, other, goal))
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            at_once = partial(slower_of_two, pool, partial(epoch_on_a_thread, network, len(images), shape, batch_size))
            ours, other = take_turns([at_once, loop()], turns=1 if quick else 3, summary=min)
        rows.append(
            Row(f"two epochs by hand, {name}, at once on a thread each, not in turn on two", ours, 2 * other, 1.0)
        )
    return rows


def channels_first(model: nn.Module) -> nn.Module:
    """The library's networks keep their weights with channels last."""
    return model.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload,no-any-return]


def epoch_on_a_thread(network: Network, n: int, shape: tuple[int, ...], batch_size: int, number: int) -> float:
    """Seconds of an epoch in a process of its own, the one of this number."""
    limit_threads(1)
    return epochs_by_hand(network, large_digits(n, shape), batch_size)()


def slower_of_two(pool: ProcessPoolExecutor, epoch: Callable[[int], float]) -> float:
    """Seconds until both of two processes are through."""
    return max(pool.map(epoch, range(2)))


def fit_digits(quick: bool) -> list[Row]:
    """A whole fit in mini-batches."""
    X, y = load_digits(return_X_y=True)
    epochs = 20 if quick else 200
    ours = linear_clustering(10, "mmd_ova", epochs=epochs, batch_size=100)
    peer = gemclus.linear.LinearMMD(n_clusters=10, max_iter=epochs, batch_size=100, random_state=0)
    ours_seconds, peer_seconds = alternate([partial(ours.fit, X), partial(peer.fit, X)], turns=3)
    note = (
        f"epochs {ours.n_iter_} and {peer.n_iter_}, adjusted Rand index "
        f"{adjusted_rand_score(y, ours.labels_):.2f} and {adjusted_rand_score(y, peer.labels_):.2f}"
    )
    return [
        Row(
            f"fit, digits, linear, mmd_ova, batch 100, {epochs} epochs",
            ours_seconds,
            peer_seconds,
            4,
            note=note,
        )
    ]


def fit_iris(quick: bool) -> list[Row]:
    """Ten starts in full batches: ours in one fit, the peer's in ten."""
    X, y = load_iris(return_X_y=True)
    epochs = 100 if quick else 1000
    ours = linear_clustering(3, "kl_ova", epochs=epochs, batch_size=len(X), starts=10)
    peers = [
        gemclus.linear.LinearModel(n_clusters=3, gemini="mi", max_iter=epochs, random_state=seed) for seed in range(10)
    ]

    def fit_peers() -> None:
        for peer in peers:
            peer.fit(X)

    ours_seconds, peer_seconds = alternate([partial(ours.fit, X), fit_peers], turns=3)
    best = max(peers, key=lambda peer: peer.score(X))
    note = (
        f"epochs {ours.n_iter_} and {best.n_iter_}, mutual information {ours.score(X):.3f} and "
        f"{best.score(X):.3f}, adjusted Rand index {adjusted_rand_score(y, ours.labels_):.2f} and "
        f"{adjusted_rand_score(y, best.labels_):.2f}"
    )
    return [Row(f"fit, iris, linear, kl_ova, 10 starts, {epochs} epochs", ours_seconds, peer_seconds, 4, note=note)]


def epoch(quick: bool) -> list[Row]:
    """One epoch where the whole kernel matrix would take 12.8 GB."""
    n = 5_000 if quick else 40_000
    sides = [in_own_process(f"epoch_{side}", n) for side in ("ours", "peer", "ours", "ours")]
    peer = sides.pop(1)
    ours_seconds = sorted(ours.seconds for ours in sides)[1]
    ours_extra = max(ours.extra_bytes for ours in sides)
    work = f"one epoch, n={n}, d=20, K=10, linear, mmd_ova, batch 500"
    memory = ours_extra / MEGABYTE, peer.extra_bytes / MEGABYTE
    return [
        Row(work, ours_seconds, peer.seconds, 200),
        Row(f"{work}, peak extra memory", *memory, 1 / 20, faster=False, unit="MB"),
    ]


def million(quick: bool) -> list[Row]:
    """One epoch over a million rows: the process may hold the data and 600 MB."""
    n = 1_000_000
    ours = in_own_process("epoch_ours", n)
    budget = 8 * n * 20 + 600 * MEGABYTE
    note = f"peer: the data and 600 MB; the epoch took {significant(ours.seconds)} s"
    work = f"one epoch, n={n}, d=20, K=10, linear, mmd_ova, batch 1000, peak memory"
    memory = ours.peak_bytes / MEGABYTE, budget / MEGABYTE
    return [Row(work, *memory, 1, faster=False, unit="MB", note=note)]


BENCHMARKS: dict[str, Callable[[bool], list[Row]]] = {
    "mmd-2000": partial(mmd, 2000, 5, 30, None),
    "mmd-8000": partial(mmd, 8000, 2, 100, 1000),
    "tv-ovo": tv_ovo,
    "mlp-step": mlp_step,
    "images": image_networks,
    "image-choices": image_choices,
    "fit-digits": fit_digits,
    "fit-iris": fit_iris,
    "epoch": epoch,
    "million": million,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run? The goals are not meant")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="for both sides (default: all cores)")
    options = parser.parse_args()
    limit_threads(options.threads)
    where = environment(options.threads) + ("; quick: too small for the goals" if options.quick else "")
    print(where, flush=True)
    rows = []
    for number, name in enumerate(options.only, 1):
        print(f"[{number}/{len(options.only)}] {name} ...", flush=True)
        torch.manual_seed(0)
        made = BENCHMARKS[name](options.quick)
        print("\n".join("    " + "  ".join(row.cells()) for row in made), flush=True)
        if not options.quick:
            record("core", name, made, where)
        rows += made
    print("\n" + text_table(rows))


if __name__ == "__main__":
    main()

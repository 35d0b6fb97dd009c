"""Workloads whose memory is measured, each in a process of its own.

`python benchmarks/probes.py NAME N` prints one line of JSON: the fields of Measurement.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from measure import Work, forget_peak, resident_bytes, seconds

if TYPE_CHECKING:  # each side is imported only if it is measured
    from pollux import GeminiClustering


@dataclass(frozen=True)
class Measurement:
    """Time of the work, memory it added to what was resident before, and the peak of the process."""

    seconds: float
    extra_bytes: int
    peak_bytes: int


def in_own_process(name: str, n: int) -> Measurement:
    """Run one probe in a new interpreter."""
    command = [sys.executable, __file__, name, str(n)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Measurement(**json.loads(output.splitlines()[-1]))


def measured(prepare: Callable[[int], Work], n: int, *, small: int, warm_first: bool) -> Measurement:
    """Time and memory of `prepare(n)()`, after a `small` run that triggers lazy imports.

    With `warm_first` that small run comes before memory is counted: right for a single call, whose
    own arrays are of interest. Otherwise lazily loaded code and the data count as memory, too.
    """
    if warm_first:
        prepare(small)()
        work = prepare(n)
    forget_peak()
    before = resident_bytes()
    if not warm_first:
        prepare(small)()
        work = prepare(n)
    elapsed = seconds(work)
    peak = resident_bytes("VmHWM")
    return Measurement(elapsed, peak - before, peak)


def points(n: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    """Return n standard normal points in 20 dimensions."""
    return np.random.default_rng(0).normal(size=(n, 20))


def tv_ovo_ours(n: int) -> Measurement:
    """Value and gradient of the one-vs-one total variation, K = 20."""
    import torch

    import pollux

    gemini = pollux.Gemini("tv_ovo")

    def prepare(n: int) -> Work:
        logits = torch.randn(n, 20, dtype=torch.float64, requires_grad=True)
        return lambda: gemini(logits.log_softmax(1)).backward()  # type: ignore[no-untyped-call]

    return measured(prepare, n, small=50, warm_first=True)


def tv_ovo_peer(n: int) -> Measurement:
    """The same with GemClus."""
    from gemclus.gemini import TVGEMINI
    from scipy.special import softmax

    gemini = TVGEMINI(ovo=True)

    def prepare(n: int) -> Work:
        prediction = softmax(np.random.default_rng(0).normal(size=(n, 20)), axis=1)
        return lambda: gemini.evaluate(prediction, None, return_grad=True)

    return measured(prepare, n, small=50, warm_first=True)


def linear_clustering(
    n_clusters: int, objective: str, *, epochs: int, batch_size: int, starts: int = 1
) -> GeminiClustering:
    """Return our linear model, configured as GemClus' linear models are."""
    from pollux import GeminiClustering

    return GeminiClustering(
        n_clusters=n_clusters,
        model="linear",
        objective=objective,
        geometry="linear" if objective.startswith("mmd") else "auto",
        max_epochs=epochs,
        batch_size=batch_size,
        learning_rate=1e-3,
        preprocessing=None,
        n_init=starts,
        random_state=0,
    )


def epoch_ours(n: int) -> Measurement:
    """One epoch of a linear model with MMD one-vs-all, K = 10, in batches of 500, or of 1000 for a million rows."""
    model = linear_clustering(10, "mmd_ova", epochs=1, batch_size=1000 if n >= 1_000_000 else 500)

    def prepare(n: int) -> Work:
        X = points(n)
        return lambda: model.fit(X)

    return measured(prepare, n, small=1000, warm_first=False)


def epoch_peer(n: int) -> Measurement:
    """The same with GemClus, in batches of 500."""
    from gemclus.linear import LinearMMD

    model = LinearMMD(n_clusters=10, max_iter=1, batch_size=500, learning_rate=1e-3, random_state=0)

    def prepare(n: int) -> Work:
        X = points(n)
        return lambda: model.fit(X)

    return measured(prepare, n, small=1000, warm_first=False)


PROBES: dict[str, Callable[[int], Measurement]] = {
    "tv_ovo_ours": tv_ovo_ours,
    "tv_ovo_peer": tv_ovo_peer,
    "epoch_ours": epoch_ours,
    "epoch_peer": epoch_peer,
}


if __name__ == "__main__":
    print(json.dumps(asdict(PROBES[sys.argv[1]](int(sys.argv[2])))))

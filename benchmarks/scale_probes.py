"""The measurements of benchmarks/scale.py, each in processes of its own.

`python benchmarks/scale_probes.py '{"probe": NAME, …}'` prints one line of JSON. Below torchrun the first process does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from measure import THREAD_VARIABLES, resident_bytes, seconds

Found = dict[str, Any]
CLUSTERS = 10


def in_own_process(probe: str, *, threads: int = 1, processes: int = 1, cores: int = 0, **arguments: Any) -> Found:
    """Run a probe in this many new interpreters with this many threads; with ``cores``, on this many cores only."""
    task = json.dumps({"probe": probe, "cores": cores, "threads": threads, **arguments})
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launcher if processes > 1 else []), __file__, task]
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(threads))
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
    found: Found = json.loads(output.splitlines()[-1])
    return found


class Clock:
    """A callback that records when training begins and when each epoch ends, and stops it after ``at_most`` seconds."""

    def __init__(self, at_most: float = float("inf")) -> None:
        self.times: list[float] = []
        self._at_most = at_most

    def __enter__(self) -> Clock:
        self.times.append(time.perf_counter())
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __call__(self, epoch: object) -> bool:
        self.times.append(time.perf_counter())
        return len(self.times) > 2 and self.times[-1] - self.times[1] > self._at_most

    @property
    def epochs(self) -> list[float]:
        """Seconds of each epoch but the first, which also loads and allocates."""
        return np.diff(self.times[1:]).tolist()


def samples(source: str, held: str, n: int) -> Any:
    """Return the input of ``fit``: a file's path, the file memory-mapped or in memory, or n rows as wide as images."""
    if held == "random":
        return blobs(n, 784)
    if held == "path":
        return source
    return np.load(source, mmap_mode="r" if held == "memmap" else None)


def fit(held: str, source: str = "", n: int = 0, checkpoint: bool = False, **parameters: Any) -> Found:
    """Return the seconds of a whole fit and of its later epochs, and the peak memory of the process."""
    from pollux import GeminiClustering, Training
    from pollux.ranks import joining
    from pollux.training import Checkpoints

    clock, folder = Clock(), tempfile.mkdtemp()
    keep = Checkpoints(folder, every="1 epoch") if checkpoint else None
    with joining():
        X = samples(source, held, n)
        model = GeminiClustering(
            CLUSTERS,
            random_state=0,
            training=Training(checkpoint=keep),
            callbacks=[clock],
            **{"preprocessing": None, "n_init": 1, **parameters},
        )
        total = seconds(lambda: model.fit(X))
    shutil.rmtree(folder, ignore_errors=True)
    return {"seconds": total, "epochs": clock.epochs, "peak": resident_bytes("VmHWM")}


def kmeans(source: str, way: str) -> Found:
    """One pass of scikit-learn's MiniBatchKMeans over a memory map, by ``fit`` or by ``partial_fit`` of batches."""
    from sklearn.cluster import MiniBatchKMeans

    X = np.load(source, mmap_mode="r")
    # Otherwise it stops before it has seen as many rows as there are.
    model = MiniBatchKMeans(CLUSTERS, max_iter=1, n_init=1, max_no_improvement=None, random_state=0)

    def pass_over() -> None:
        if way == "fit":
            model.fit(X)
        else:
            for start in range(0, len(X), model.batch_size):
                model.partial_fit(X[start : start + model.batch_size])

    return {"seconds": seconds(pass_over), "peak": resident_bytes("VmHWM")}


def blobs(n: int, d: int = 20) -> NDArray[np.float32]:
    """Return n rows around random centres."""
    random = np.random.default_rng(0)
    centres = 3 * np.random.default_rng(1).standard_normal((CLUSTERS, d), dtype=np.float32)
    return centres[random.integers(CLUSTERS, size=n)] + random.standard_normal((n, d), dtype=np.float32)


def step(objective: str, geometry: str, batch: int, at_most: float) -> Found:
    """Return the seconds of a training step of an MLP 20-100-10 on reshuffled rows: those of the median epoch."""
    from pollux import GeminiClustering, Training

    steps = 4 if "wasserstein" in objective else 40
    clock = Clock(at_most)
    model = GeminiClustering(
        CLUSTERS,
        objective=objective,
        geometry=geometry,
        preprocessing=None,
        n_init=1,
        batch_size=batch,
        training=Training(reshuffle_every=1),
        max_epochs=1000,
        random_state=0,
        callbacks=[clock],
    )
    model.fit(blobs(steps * batch))
    return {"seconds": float(np.median(clock.epochs)) / steps}


class Post:
    """Counts the messages that this process sends, the bytes of their tensors and their seconds, by kind."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def of(self, kind: str, send: Callable[..., Any], argument: int) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            tensor, start = arguments[argument], time.perf_counter()
            answer = send(*arguments, **options)
            self.counts[f"{kind} seconds"] += time.perf_counter() - start  # type: ignore[assignment]
            self.counts["messages"] += 1
            self.counts["bytes"] += tensor.numel() * tensor.element_size()
            return answer

        return counted


@contextmanager
def opened_post() -> Iterator[Post]:
    """Count the messages that torch's collectives send."""
    import torch.distributed as dist

    post, argument = Post(), {"all_reduce": 0, "all_gather": 1, "broadcast": 0}
    own = {kind: getattr(dist, kind) for kind in argument}
    for kind, send in own.items():
        setattr(dist, kind, post.of(kind, send, argument[kind]))
    try:
        yield post
    finally:
        for kind, send in own.items():
            setattr(dist, kind, send)


def messages(tasks: list[tuple[str, str]], batch: int) -> Found:
    """Return what one process of a streamed training sends in a step, for each objective and geometry.

    It is the difference between an epoch of twice as many steps and one of so many, so that other messages cancel.
    """
    from pollux import GeminiClustering
    from pollux.ranks import joining

    found: list[Found] = []
    with tempfile.TemporaryDirectory() as folder, joining() as ranks, opened_post() as post:
        assert ranks is not None
        few = 10
        for objective, geometry in tasks:
            model = GeminiClustering(
                CLUSTERS,
                objective=objective,
                geometry=geometry,
                n_init=1,
                batch_size=batch,
                max_epochs=1,
                random_state=0,
            )
            epochs = []
            for steps in (few, few, 2 * few):  # the first one also sets up the connections
                np.save(f"{folder}/{steps}.npy", blobs(steps * batch))
                post.counts.clear()
                model.fit(f"{folder}/{steps}.npy")
                epochs.append(dict(post.counts))
            found.append({kind: (number - epochs[1].get(kind, 0)) / few for kind, number in epochs[2].items()})
    return {"steps": found}


def latency(floats: int, times: int) -> Found:
    """Return the seconds of a sum over the processes."""
    import torch

    from pollux.ranks import joining

    with joining() as ranks:
        assert ranks is not None
        numbers = torch.ones(floats)
        spent = [seconds(lambda: ranks.sum(numbers)) for _ in range(times)]
    return {"seconds": float(np.median(spent))}


def decode(source: str) -> Found:
    """Return the rows per second that are read from a Parquet file, and its bytes per row."""
    from pollux.data.streams import FileChunks

    chunks = FileChunks(source)
    chunks.read(0)
    n, start = int(chunks.lengths.sum()), time.perf_counter()
    for chunk in range(len(chunks.lengths)):
        chunks.read(chunk)
    return {"rows a second": n / (time.perf_counter() - start), "bytes": Path(source).stat().st_size / n}


PROBES: dict[str, Callable[..., Found]] = {
    probe.__name__: probe for probe in (fit, kmeans, step, messages, latency, decode)
}


def main() -> None:
    task = json.loads(sys.argv[1])
    cores = task.pop("cores")
    if cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    import torch

    torch.set_num_threads(task.pop("threads"))
    # Warnings about the quality of so short a training do not matter here.
    warnings.simplefilter("ignore")
    found = PROBES[task.pop("probe")](**task)
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(found))


if __name__ == "__main__":
    main()

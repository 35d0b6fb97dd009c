"""Wasserstein objectives: the speed of exact optimal transport, side by side with GemClus in one run.

python benchmarks/transport.py [--only NAME ...] [--quick] [--verbose] [--cells FILE]
python benchmarks/transport.py --plot FILE

The peer is GemClus, called through its public interface, unless a row names another; it solves each transport
problem by one call of POT's `ot.emd2`. If an evaluation would take the peer longer than a few seconds, its time is
estimated from a random sample of those calls, without its other work. Both sides compute in double precision,
except in the training step of the network, and where both were evaluated their values must agree.

Work on one thread is measured by the CPU time of that thread, the median over alternating calls; work on two
threads by wall-clock time, the fastest of alternating calls. The times on two threads need an idle machine.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import NamedTuple, TypeVar

import gemclus.gemini
import numpy as np
import ot
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from torch import Tensor, nn

from core import cross_entropy, training_step
from measure import (
    Row,
    Run,
    aligned,
    alternate,
    environment,
    limit_threads,
    record,
    significant,
    take_turns,
    text_table,
)
from pollux import Gemini
from pollux.geometry import ShortestPath, resolve
from pollux.geometry.affinity import Paths
from pollux.objectives.gradients import value_and_gradient
from pollux.transport import engine, prepare, solve

Array = NDArray[np.float64]
Clock = Callable[[], float]
Result = TypeVar("Result")

MODES = ("OvA", "OvO")
STAGES = ("early", "mid", "late")
FEATURES = 16
THREADS = 2
# If the peer would take longer than the budget, its time is estimated from this many seconds of its problems.
BUDGET, SAMPLE = 10.0, 3.0
# GemClus clips predictions at this value, according to its documentation.
CLIPPED = 1e-12
INK, QUIET = "#1f2933", "#616e7c"
CURVES = {"GemClus (POT)": "#c2452d", "Pollux, cold": "#2f6fb3", "Pollux, warm": "#2a9d6f"}


class Task(NamedTuple):
    """The value and gradient of one objective at logits (n, K), for costs (n, n)."""

    name: str
    mode: str
    logits: Tensor
    cost: Tensor | Paths

    @property
    def gemini(self) -> Gemini:
        return Gemini(f"wasserstein_{self.mode.lower()}")

    def evaluate(self) -> float:
        return float(value_and_gradient(self.gemini, self.logits, self.cost)[0])

    def anew(self) -> Task:
        """Return the task with a copy of the costs, for which nothing is cached yet."""
        if isinstance(self.cost, Paths):
            return self._replace(cost=replace(self.cost, graph=self.cost.graph.copy()))
        return self._replace(cost=self.cost.clone())

    def matrix(self) -> Array:
        return (self.cost.matrix() if isinstance(self.cost, Paths) else self.cost).numpy()

    def problems(self) -> tuple[Array, Array]:
        """Return the transport problems of the objective: from each row (m, n) to each row (m, n)."""
        prediction = self.logits.softmax(1).numpy().clip(CLIPPED)
        weights = np.ascontiguousarray((prediction / prediction.sum(0)).T)
        if self.mode == "OvA":
            return weights, np.full_like(weights, 1 / len(prediction))
        first, second = np.triu_indices(len(weights), 1)
        return weights[first], weights[second]


class Cell(NamedTuple):
    """One comparison of a grid: seconds of both sides, and whether the peer's are estimated."""

    name: str
    ours: float
    peer: float
    sampled: bool = False

    @property
    def ratio(self) -> float:
        return self.peer / self.ours


def timed(clock: Clock, work: Callable[[], Result]) -> tuple[float, Result]:
    start = clock()
    result = work()
    return clock() - start, result


class Peer:
    """GemClus on one task; a call returns its seconds, measured or estimated."""

    def __init__(self, task: Task, clock: Clock, budget: float = BUDGET) -> None:
        self._clock, self._cost, self.value = clock, task.matrix(), math.nan
        self._prediction = task.logits.softmax(1).numpy()
        self._gemini = gemclus.gemini.WassersteinGEMINI(ovo=task.mode == "OvO")
        self._p, self._q = task.problems()
        self._order = np.random.default_rng(0).permutation(len(self._p)).tolist()
        self.estimate = self._estimate(problems=3)
        self.sampled = self.estimate > budget

    def __call__(self) -> float:
        if self.sampled:
            return self._estimate(at_least=SAMPLE)
        work = partial(self._gemini.evaluate, self._prediction, self._cost, return_grad=True)
        seconds, (value, _) = timed(self._clock, work)
        self.value = float(value)
        return seconds

    def _estimate(self, problems: int = 0, at_least: float = 0.0) -> float:
        """Estimate the time of all problems from this many of them, or from as many as take ``at_least`` seconds."""
        spent: list[float] = []
        for which in self._order:
            work = partial(ot.emd2, self._p[which], self._q[which], self._cost, log=True)
            spent.append(timed(self._clock, work)[0])
            if len(spent) >= problems and sum(spent) >= at_least:
                break
        return sum(spent) / len(spent) * len(self._order)

    def check(self, name: str, value: float) -> None:
        """Assert that the value agrees with the peer's, if the peer was evaluated."""
        if not self.sampled and not abs(value - self.value) <= 1e-8 * abs(self.value):
            raise AssertionError(f"{name}: ours is {value!r}, the peer's {self.value!r}")


def cold(task: Task, clock: Clock) -> float:
    """Return the seconds for new costs, which are checked and prepared, without a warm start of any problem."""
    return timed(clock, task.anew().evaluate)[0]


def warm(task: Task, clock: Clock) -> float:
    """Return the seconds after all predictions have moved a little."""
    task = task.anew()
    for _ in range(12):  # by then the check whether the costs are a metric is done
        task.evaluate()
    moved = task._replace(logits=task.logits + 0.01 * torch.randn_like(task.logits))
    return timed(clock, moved.evaluate)[0]


def compare(task: Task, ours: Callable[[Task, Clock], float] = cold, clock: Clock = time.thread_time) -> Cell:
    """Time both sides alternately; what takes seconds is run once, what takes milliseconds in many short turns."""
    peer = Peer(task, clock)
    turns = 1 if peer.estimate > 1 else 3 if peer.estimate > 0.1 else 10
    runs: list[Run] = [partial(ours, task, clock), peer]
    if clock is time.thread_time:
        ours_seconds, peer_seconds = take_turns(runs, turns=turns, at_least=0.01, pause=0)
    else:
        ours_seconds, peer_seconds = take_turns(runs, turns=max(turns, 5), at_least=0.05, pause=0.05, summary=min)
    peer.check(task.name, task.anew().evaluate())
    return Cell(task.name, ours_seconds, peer_seconds, peer.sampled)


def blobs(n: int, K: int) -> Array:
    X, _ = make_blobs(n, FEATURES, centers=K, cluster_std=1.0, center_box=(-4, 4), random_state=0)
    return np.asarray(X, dtype=np.float64)


def digits(n: int) -> Array:
    X, _ = load_digits(return_X_y=True)
    return np.asarray(X[:n], dtype=np.float64)


def logits_of(X: Array, K: int, stage: str) -> Tensor:
    """Return logits (n, K) as a model gives them at this stage of its training."""
    random = np.random.default_rng(0)
    noise = random.standard_normal((len(X), K))
    if stage == "early":
        return torch.from_numpy(0.05 * noise)
    if stage == "mid":
        spread = X.std(0)
        standardised = (X - X.mean(0)) / np.where(spread > 0, spread, 1)
        directions = random.standard_normal((X.shape[1], K)) / math.sqrt(X.shape[1])
        return torch.from_numpy(3 * standardised @ directions + 0.3 * noise)
    mixture = GaussianMixture(K, covariance_type="spherical", reg_covar=1e-2, max_iter=50, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return torch.from_numpy(np.log(mixture.fit(X).predict_proba(X).clip(1e-300)))


def distances(X: Array, name: str = "euclidean") -> Tensor:
    cost = resolve(name, "distance")(torch.from_numpy(X))  # type: ignore[operator]
    assert isinstance(cost, Tensor)
    return cost


def blob_tasks(n: int, K: int, modes: Iterable[str] = MODES, cost: str = "euclidean") -> Iterator[Task]:
    """Yield tasks of every stage and mode on the same blobs."""
    X = blobs(n, K)
    for stage, mode in product(STAGES, modes):
        yield Task(f"N={n}, K={K}, {stage}, {mode}", mode, logits_of(X, K, stage), distances(X, cost))


def cold_grid(largest: int) -> Iterator[Cell]:
    """Value and gradient for new costs, on one thread."""
    for n, K in product((100, 200, 500, 1000), (3, 10, 50)):
        if n <= largest:
            yield from map(compare, blob_tasks(n, K))


def train(n: int, K: int, mode: str, steps: int = 200) -> Cell:
    """All steps of a full-batch training: ours with the same costs, the peer's interpolated from a few of the steps."""
    X = blobs(n, K)
    torch.manual_seed(0)
    model, inputs = nn.Linear(FEATURES, K, dtype=torch.float64), torch.from_numpy(X)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, maximize=True)
    task = Task(f"N={n}, K={K}, {mode}", mode, inputs, distances(X))
    looked_at = np.unique(np.geomspace(1, steps, 5).round().astype(int)) - 1
    ours, sampled = 0.0, False
    peers: list[float] = []
    for step in range(steps):
        logits = model(inputs)
        work = partial(value_and_gradient, task.gemini, logits.detach(), task.cost)
        seconds, (value, gradient) = timed(time.thread_time, work)
        ours += seconds
        if step in looked_at:
            peer = Peer(task._replace(logits=logits.detach()), time.thread_time, SAMPLE)
            peers += take_turns([peer], turns=1, at_least=0.05, pause=0)
            peer.check(f"{task.name}, step {step}", float(value))
            sampled |= peer.sampled
        optimiser.zero_grad()
        logits.backward(gradient)
        optimiser.step()
    return Cell(task.name, ours, float(np.interp(range(steps), looked_at, peers).sum()), sampled)


def training(sizes: Sequence[int], clusters: Sequence[int], largest: int) -> Iterator[Cell]:
    """200 steps of Adam with a linear model, full batch."""
    for n, K, mode in product(sizes, clusters, MODES):
        if n <= largest:
            repeated = [train(n, K, mode) for _ in range(5 if n <= 100 else 1)]  # too short for a single measurement
            yield sorted(repeated, key=lambda cell: cell.ratio)[len(repeated) // 2]


def against_pot(steps: int, sizes: Sequence[int], largest: int) -> Iterator[Cell]:
    """Our solver against POT on the problems of a training: ours from its last state, POT from its last potentials."""
    for n, mode in product(sizes, MODES):
        if n > largest:
            continue
        X, K = blobs(n, 10), 10
        torch.manual_seed(0)
        model, inputs = nn.Linear(FEATURES, K, dtype=torch.float64), torch.from_numpy(X)
        optimiser = torch.optim.Adam(model.parameters(), lr=1e-2, maximize=True)
        task, state = Task(f"N={n}, K={K}, {mode}", mode, inputs, distances(X)), None
        matrix = task.matrix()
        seconds, ground = timed(time.thread_time, partial(prepare, matrix))
        spent = [seconds, 0.0]
        potentials: list[tuple[Array, Array] | None] = [None] * (K if mode == "OvA" else K * (K - 1) // 2)
        for _ in range(steps):
            logits = model(inputs)
            p, q = task._replace(logits=logits.detach()).problems()
            seconds, solution = timed(time.thread_time, partial(solve, p, q, ground, state))
            spent[0], state = spent[0] + seconds, solution.state if steps > 1 else None
            for number in range(len(p)):
                start = {} if potentials[number] is None else {"potentials_init": potentials[number]}
                work = partial(ot.emd2, p[number], q[number], matrix, log=True, **start)
                seconds, (value, log) = timed(time.thread_time, work)
                spent[1], potentials[number] = spent[1] + seconds, (log["u"], log["v"])
                if not abs(value - solution.values[number]) <= 1e-8 * abs(value):
                    raise AssertionError(f"{task.name}: ours is {solution.values[number]!r}, the peer's {value!r}")
            optimiser.zero_grad()
            logits.backward(value_and_gradient(task.gemini, logits.detach(), task.cost)[1])
            optimiser.step()
        yield Cell(task.name, spent[0], spent[1])


def paths(ours: Callable[[Task, Clock], float], n: int) -> Iterator[Cell]:
    """Shortest paths in a neighbour graph; the peer gets the matrix of them precomputed."""
    for name, X in (("blobs", blobs(n, 10)), ("digits", digits(n))):
        cost = ShortestPath(neighbours=10, weighted=True).bind(X)(torch.arange(n))
        assert isinstance(cost, Paths)
        for stage, mode in product(STAGES, MODES):
            yield compare(Task(f"{name}, {stage}, {mode}", mode, logits_of(X, 10, stage), cost), ours)


def two_threads(mode: str, n: int) -> Iterator[Cell]:
    """The first solution for prepared costs: our solver on two threads, against itself on one."""

    def run(task: Task, threads: int) -> float:
        ground = prepare(task.matrix())
        return timed(time.perf_counter, partial(solve, *task.problems(), ground, threads=threads))[0]

    for task in blob_tasks(n, 10, [mode]):
        runs = [partial(run, task, THREADS), partial(run, task, 1)]
        ours, peer = take_turns(runs, turns=5, at_least=0.1, pause=0.02, summary=min)
        yield Cell(task.name, ours, peer)


def squared(mode: str, n: int) -> Iterator[Cell]:
    """Costs that are not a metric, on two threads."""
    limit_threads(THREADS)
    yield from (compare(task, clock=time.perf_counter) for task in blob_tasks(n, 10, [mode], "sqeuclidean"))


def mlp_step(batch: int) -> Iterator[Cell]:
    """A training step with the distances of its batch, against the same step with cross-entropy."""
    limit_threads(THREADS)
    labels = torch.arange(20 * batch) % 10
    X = torch.randn(len(labels), 784) + torch.randn(10, 784)[labels]
    shuffled = torch.cat([torch.randperm(len(X)).reshape(-1, batch) for _ in range(2)])
    batches = [(X[index], labels[index]) for index in shuffled]
    gemini, euclidean = Gemini("wasserstein_ova"), resolve("euclidean", "distance")

    def loss(logits: Tensor, inputs: Tensor, labels: Tensor) -> Tensor:
        return -gemini(logits.log_softmax(1), euclidean(inputs))  # type: ignore[operator]

    works = [training_step(loss, batches), training_step(cross_entropy, batches)]
    alternate(works, turns=3, pause=0)  # the first steps allocate Adam's state
    ours, peer = alternate(works, turns=2 * batch // 5, pause=0)
    yield Cell("wasserstein_ova", ours, peer)


@dataclass(frozen=True)
class Benchmark:
    """A grid of comparisons, and the goals for the geometric mean and for the worst of its ratios.

    ``sizes`` are the number of samples in the cells, and in those of a quick run.
    """

    work: str
    cells: Callable[[int], Iterator[Cell]]
    sizes: tuple[int, int]
    mean: float | None = None
    worst: float | None = None
    faster: bool = True
    note: str = ""

    def rows(self, cells: Sequence[Cell], size: int) -> list[Row]:
        work, rows = self.work.format(n=size), []
        if self.mean is not None:
            ours, peer = (math.exp(np.log(side).mean()) for side in list(zip(*cells, strict=True))[1:3])
            grid = f", mean of {len(cells)}" if len(cells) > 1 else ""
            rows.append(Row(work + grid, ours, peer, self.mean, self.faster, note=self._note(cells)))
        if self.worst is not None:
            worst = min(cells, key=lambda cell: cell.ratio)
            note = "" if rows else self._note(cells)
            rows.append(Row(f"{work}, worst: {worst.name}", worst.ours, worst.peer, self.worst, self.faster, note=note))
        return rows

    def _note(self, cells: Sequence[Cell]) -> str:
        sampled = sum(cell.sampled for cell in cells)
        estimates = f"{sampled} of the peer's {len(cells)} times are estimated from a sample of its problems"
        return "; ".join(filter(None, [self.note, estimates if sampled else ""]))


BENCHMARKS = {
    "cold": Benchmark("value + gradient, cold", cold_grid, (1000, 100), mean=15, worst=5),
    "training": Benchmark(
        "training, 200 steps",
        partial(training, (200, 500, 1000), (10, 20)),
        (1000, 200),
        mean=150,
        worst=100,
        note="the peer's time is interpolated between five of the steps",
    ),
    "training-small": Benchmark(
        "training, 200 steps",
        partial(training, (100,), (3,)),
        (100, 100),
        worst=20,
        note="the peer's time is interpolated between five of the steps",
    ),
    "pot-cold": Benchmark(
        "transport problems, K=10, cold, against POT", partial(against_pot, 1, (100, 250, 500)), (500, 100), mean=3
    ),
    "pot-training": Benchmark(
        "transport problems of 100 steps, K=10, against POT with potentials_init",
        partial(against_pot, 100, (100, 250)),
        (250, 100),
        mean=10,
    ),
    "paths-cold": Benchmark("shortest paths, N={n}, K=10, cold", partial(paths, cold), (1000, 100), mean=50),
    "paths-warm": Benchmark("shortest paths, N={n}, K=10, warm", partial(paths, warm), (1000, 100), mean=300),
    **{
        f"threads-{mode.lower()}": Benchmark(
            f"2 threads, N={{n}}, K=10, {mode}, cold",
            partial(two_threads, mode),
            (500, 100),
            mean=1.7,
            note="peer: ours on one thread",
        )
        for mode in MODES
    },
    "mlp-step": Benchmark(
        "step, MLP 784-1200-10, batch {n}, 2 threads",
        mlp_step,
        (250, 50),
        mean=2,
        faster=False,
        note="peer: cross-entropy",
    ),
    **{
        f"squared-{mode.lower()}": Benchmark(
            f"squared distances, N={{n}}, K=10, {mode}, 2 threads", partial(squared, mode), (250, 100), mean=2
        )
        for mode in MODES
    },
}


def random_task(n: int, K: int, mode: str) -> Task:
    """Random predictions, and distances between random samples, as in the paper's figure of times."""
    random = np.random.default_rng(0)
    cost = distances(random.standard_normal((n, FEATURES)))
    return Task(f"N={n}, K={K}, {mode}", mode, torch.from_numpy(random.standard_normal((n, K))), cost)


def curves(n: int, clusters: Sequence[int], mode: str) -> dict[str, list[float]]:
    """Return the seconds for each number of clusters: the peer's, ours cold, ours warm."""
    found: dict[str, list[float]] = {name: [] for name in CURVES}
    for K in clusters:
        task = random_task(n, K, mode)
        cell = compare(task)
        (ours_warm,) = take_turns([partial(warm, task, time.thread_time)], turns=5)
        for name, seconds in zip(CURVES, (cell.peer, cell.ours, ours_warm), strict=True):
            found[name].append(seconds)
        print(
            f"    {task.name}: {', '.join(f'{name} {significant(found[name][-1])} s' for name in CURVES)}", flush=True
        )
    return found


def plot(file: Path, n: int, clusters: Sequence[int]) -> None:
    """Plot time against the number of clusters, one-vs-all beside one-vs-one."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(8.4, 3.8), sharey=True, layout="constrained")
    for panel, mode in zip(panels, MODES, strict=True):
        for (name, seconds), colour in zip(curves(n, clusters, mode).items(), CURVES.values(), strict=True):
            panel.plot(clusters, seconds, color=colour, linewidth=2.2, marker="o", markersize=4)
            label = panel.annotate(name, (clusters[-1], seconds[-1]), (8, 0), textcoords="offset points", va="center")
            label.set(color=colour, weight="bold", annotation_clip=False)
        panel.set(yscale="log", xticks=clusters)
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:g} s")
        panel.set_title(f"Wasserstein-{mode}, {n} samples per batch", loc="left", color=INK, fontsize=10)
        panel.set_xlabel("number of clusters", color=QUIET)
        panel.grid(axis="y", color="#e4e7eb")
        panel.tick_params(which="both", colors=QUIET, length=0)
        panel.spines[:].set_visible(False)
    panels[0].set_ylabel("time for value and gradient", color=QUIET)
    figure.savefig(file, dpi=160)


def listing(cells: Sequence[tuple[str, Cell]]) -> str:
    """Return every cell of every grid as plain text."""
    lines = [
        (
            name,
            cell.name,
            *(f"{significant(s * 1000)} ms" for s in cell[1:3]),
            f"{significant(cell.ratio)}x",
            "estimated" if cell.sampled else "measured",
        )
        for name, cell in cells
    ]
    return aligned([("benchmark", "cell", "ours", "peer", "peer / ours", "the peer is"), *lines], left=(0, 1, 5))


def first_calls() -> None:
    """Warm up: work that is done once per process is not timed."""
    for mode in MODES:
        task = random_task(20, 3, mode)
        task.evaluate()
        Peer(task, time.thread_time)()


def measure(names: Sequence[str], quick: bool, verbose: bool, where: str) -> tuple[list[Row], list[tuple[str, Cell]]]:
    """Return the rows of the table, and the cells behind them."""
    rows, every = [], []
    for number, name in enumerate(names, 1):
        print(f"[{number}/{len(names)}] {name} ...", flush=True)
        torch.manual_seed(0)
        limit_threads(1)
        first_calls()
        benchmark, cells = BENCHMARKS[name], []
        size = benchmark.sizes[quick]
        for cell in benchmark.cells(size):
            cells.append(cell)
            if verbose:
                print(f"        {cell.name}: {significant(cell.ratio)}x", flush=True)
        made = benchmark.rows(cells, size)
        print("\n".join("    " + "  ".join(row.cells()) for row in made), flush=True)
        if not quick:
            record("transport", name, made, where)
        rows += made
        every += [(name, cell) for cell in cells]
    return rows, every


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=BENCHMARKS, default=list(BENCHMARKS), metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="small sizes: does it run? The goals are not meant")
    parser.add_argument("--verbose", action="store_true", help="print every cell of every grid")
    parser.add_argument("--cells", type=Path, metavar="FILE", help="where to write every cell")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="only draw time against the number of clusters")
    options = parser.parse_args()
    limit_threads(1)
    if options.plot:
        first_calls()
        plot(options.plot, 100 if options.quick else 500, (2, 5, 10) if options.quick else (2, 5, 10, 15, 20))
        return
    where = f"{environment(1)}, pot {version('pot')}; engine: {engine()}"
    where += "; quick: too small for the goals" if options.quick else ""
    print(where, flush=True)
    rows, cells = measure(options.only, options.quick, options.verbose, where)
    if options.verbose:
        print("\n" + listing(cells))
    print("\n" + text_table(rows))
    if options.cells:
        options.cells.write_text(listing(cells) + "\n")


if __name__ == "__main__":
    main()

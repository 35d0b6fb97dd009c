"""The compiled part, built with sanitizers of addresses and undefined behaviour, on arrays of every kind.

``make fuzz`` builds it in a temporary folder and calls it some 100,000 times: with problems and networks that make
sense, and with arrays of wrong types and sizes, numbers that are not finite, parents that form no tree, samples and
labels that are not there, and extreme integers. A call returns or raises an error; what a sanitizer finds ends the
process.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

NATIVE = Path(__file__).parents[2] / "src" / "pollux" / "native" / "module.cpp"
INTEGERS = (-(2**31), -1, 0, 1, 2, 3, 7, 2**30, 2**31 - 2, 2**31 - 1)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-300, 1e300, -1e300, np.nan, np.inf, -np.inf)
TRANSPORT = ("solve_metric", "solve_graph", "solve_general", "describe", "triangles_hold")
STEPS = ("train_steps", "forward", "ascend", "gemini_gradient")
SPLITS = ("square_sides", "scan_splits")
CENTRES = ("seed_centres", "iterate_centres")
WASSERSTEIN = ("predict_clusters", "transport_gradient")
OBJECTIVES = (
    *("kl_ova", "kl_ovo", "tv_ova", "tv_ovo", "hellinger_ova", "hellinger_ovo", "chi2_ova", "mmd_ova", "mmd_ovo"),
    *("labels", "wasserstein_ova", ""),
)
ERRORS = (ValueError, TypeError, RuntimeError, MemoryError, BufferError, OverflowError)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--library", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.library:
        fuzz(options.library, options.calls, options.seed)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "_compiled.so"
        sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        flags = ["-std=c++17", "-O1", "-g", "-fPIC", "-shared", "-fopenmp-simd", "-pthread", *sanitizers]
        include = f"-I{sysconfig.get_paths()['include']}"
        subprocess.run(["g++", *flags, include, str(NATIVE), "-o", str(library)], check=True)
        # The interpreter itself is not instrumented: the runtime must come first, and leaks are not ours.
        runtimes = [
            subprocess.run(
                ["g++", f"-print-file-name={name}"], check=True, capture_output=True, text=True
            ).stdout.strip()
            for name in ("libasan.so", "libstdc++.so")
        ]
        sound = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1"}
        command = [sys.executable, __file__, "--calls", str(options.calls), "--seed", str(options.seed)]
        environment = {**os.environ, "LD_PRELOAD": ":".join(runtimes), **sound}
        return subprocess.run([*command, "--library", str(library)], env=environment).returncode


def fuzz(library: str, calls: int, seed: int) -> None:
    spec = importlib.util.spec_from_file_location("_compiled", library)
    assert spec is not None
    assert spec.loader is not None
    native: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(native)
    random = np.random.default_rng(seed)
    names = sorted(name for name in vars(native) if not name.startswith("_"))
    assert set(names) == {*TRANSPORT, *STEPS, *SPLITS, *CENTRES, *WASSERSTEIN}, "all that is compiled is called"
    done: Counter[str] = Counter()
    for number in range(calls):
        name = names[number % len(names)]
        arguments = problem(name, random)
        for _ in range(random.choice([0, 1, 1, 2])):
            spoil(arguments, random)
        if name == "iterate_centres":
            # Rounding may move centres for ever: so many iterations as are asked for are made.
            arguments[-1] = min(arguments[-1], 100)
        try:
            getattr(native, name)(*arguments)
            done[f"{name} returned"] += 1
        except ERRORS:
            done[f"{name} refused"] += 1
    print(f"{calls:,} calls, nothing found:", ", ".join(f"{what} {count:,}" for what, count in sorted(done.items())))


def steps(name: str, random: np.random.Generator) -> list[Any]:
    """Arguments of a function of networks that make sense."""
    dtype = random.choice(np.array(["f4", "f8"]))
    n, R, layers = (int(random.integers(1, most)) for most in (40, 4, 4))
    widths = random.integers(1, 20, size=layers + 1).astype(np.intc)
    d, K = int(widths[0]), int(widths[-1])

    def numbers(*shape: int) -> Any:
        return (random.normal(size=shape) * random.choice([1e-30, 1.0, 1e4])).astype(dtype)

    objective, clip = str(random.choice(np.array(OBJECTIVES))), float(random.choice([0.0, 1e-7, 0.3]))
    features = numbers(n, int(random.integers(0, 40)))
    weight = random.choice([0.0, 1.0, 1e300], size=n) if random.random() < 0.3 else np.empty(0)
    if name == "gemini_gradient":
        logits = numbers(R, n, K)
        return [objective, clip, K, logits, features, weight, np.empty(R), np.empty_like(logits)]
    parameters = numbers(R, int(((widths[:-1].astype(int) + 1) * widths[1:]).sum()))
    network = [widths, random.integers(0, 4, size=layers - 1).astype(np.intc), parameters]
    inputs = numbers(n, d)
    if name == "forward":
        return [*network, inputs, np.empty((R, n, K), dtype)]
    adam = [np.zeros_like(parameters), np.zeros_like(parameters), int(random.integers(0, 5)), 0.9, 0.999]
    if name == "ascend":
        return [*network, *adam, inputs, numbers(R, n, K), 0.01]
    labels = random.integers(0, K, size=(n, R) if random.random() < 0.5 else n)
    sizes = random.integers(1, 9, size=int(random.integers(0, 4)))
    index = random.integers(0, n, size=int(sizes.sum()))
    S = len(sizes)
    of_samples = [inputs, features, weight, labels, index, sizes.cumsum(), np.full(S, 0.01)]
    written = [np.empty((S, R)), np.empty((S, R)), np.zeros((R, K), np.int64)]
    return [*network, *adam, objective, clip, 0.1, *of_samples, *written]


def splits(name: str, random: np.random.Generator) -> list[Any]:
    """Arguments of a function of a leaf of a tree that make sense."""
    n, d, r, K = (int(random.integers(1, most)) for most in (40, 5, 6, 6))
    order = np.argsort(random.normal(size=(d, n)), axis=1).astype(np.intc)
    start = int(random.integers(n))
    stop = int(random.integers(start, n)) + 1
    columns = np.flatnonzero(random.random(d) < 0.7).astype(np.intc)
    last = np.flatnonzero(random.random(len(columns) * (stop - start)) < 0.7)
    t, leaf = len(last), [order, columns, last, start, stop]
    if name == "square_sides":
        numbers = [random.normal(size=(n, r)), random.random(n), random.normal(size=r)]
        return [*leaf, *numbers, np.empty(t), np.empty((2, t))]
    sides = [random.random(t), random.random((2, t))]
    clusters = [random.normal(size=(n, K)), random.random(K) + 1, random.random(K), random.normal(size=K)]
    targets = np.flatnonzero(random.random(K) < 0.7).astype(np.intc)
    asked = [int(random.integers(K)), 1.5, -1.0, targets, 1e-9, bool(random.random() < 0.5)]
    return [*leaf, *sides, *clusters, *asked, np.empty(K + 4), np.empty(K + 4, np.int64)]


def centres(name: str, random: np.random.Generator) -> list[Any]:
    """Arguments of k-means that make sense: samples far off, equal ones, centres that nothing is near to."""
    dtype = random.choice(np.array(["f4", "f8"]))
    # Products are taken of 128 samples at a time, and of up to 32 centres.
    n, r, K = (int(random.integers(1, most)) for most in random.choice([[9, 4, 4], [300, 20, 70]]))
    samples = (random.normal(size=(n, r)) * random.choice([1e-30, 1.0, 1e4]) + random.choice([0, 1e6])).astype(dtype)
    samples[random.random(n) < random.choice([0.0, 0.5])] = samples[0]
    starts = samples[random.integers(0, n, size=K)] if random.random() < 0.7 else np.full((K, r), 1e9, dtype)
    squares = (samples.astype(float) ** 2).sum(1)
    weight = random.choice([0.0, 1.0, 3.0], size=n) if random.random() < 0.5 else np.ones(n)
    if name == "seed_centres":
        return [samples, squares, weight, random.random((K - 1, random.integers(1, 7))), random.integers(0, n, size=K)]
    limits = [float(random.choice([0.0, 1e-4])), int(random.integers(0, 50))]
    return [samples, squares, weight, starts, np.empty(n, np.int64), *limits]


def wasserstein(name: str, random: np.random.Generator) -> list[Any]:
    """Arguments of what surrounds the transport problems of an objective that make sense."""
    R, n, K = (int(random.integers(1, most)) for most in (4, 30, 6))
    clusters, shares = random.random((R, K, n)), random.random((R, K))
    if name == "predict_clusters":
        return [K, random.normal(size=(R, n, K)) * random.choice([1.0, 1e4]), clusters, shares]
    one_vs_one = bool(random.random() < 0.5)
    m = K * (K - 1) // 2 if one_vs_one else K
    solved = [random.random((R, m)), random.normal(size=(R, m, n)), random.normal(size=(R, m, n))]
    return [one_vs_one, clusters, shares, *solved, np.empty(R), np.empty((R, n, K))]


def problem(name: str, random: np.random.Generator) -> list[Any]:
    """Arguments that make sense."""
    if name in STEPS:
        return steps(name, random)
    if name in SPLITS:
        return splits(name, random)
    if name in CENTRES:
        return centres(name, random)
    if name in WASSERSTEIN:
        return wasserstein(name, random)
    n, count = int(random.integers(0, 9)), int(random.integers(0, 4))
    points = random.normal(size=(n, 2)) * random.choice([1e-3, 1.0, 1e6])
    cost = np.linalg.norm(points[:, None] - points[None], axis=2)
    threads = int(random.integers(1, 4))
    if name == "describe":
        return [cost]
    if name == "triangles_hold":
        return [cost, int(random.integers(1, 4)), 1e-9, threads]
    p, q = (random.dirichlet(np.ones(max(n, 1)), size=count)[:, :n].copy() for _ in range(2))
    # Samples without mass are frequent in training.
    p[random.random(p.shape) < 0.3] = 0
    if random.random() < 0.3 and count:
        q = q[0].copy()
    values, gaps, report = np.empty(count), np.empty(count), np.empty((count, 3), dtype=np.intc)
    potentials = np.empty((count, n))
    if name == "solve_general":
        return [p, q, cost, values, potentials, np.empty((count, n)), gaps, report, threads]
    parent = random.integers(-3, max(n, 1) + 1, size=(count, n)).astype(np.intc)
    parent[random.random(count) < 0.5] = -2
    common = [p, q, parent, random.integers(0, 2, size=(count, n)).astype(np.int8), values, potentials, gaps, report]
    if name == "solve_metric":
        largest = float(cost.max(initial=0.0))
        return [*common, cost, cost.astype(np.float32), largest, float(random.choice([0.0, 1e-9])), threads]
    near = random.random((n, n)) < 0.5
    near |= near.T | (np.abs(np.subtract.outer(np.arange(n), np.arange(n))) == 1)
    np.fill_diagonal(near, False)
    starts = np.concatenate([[0], near.sum(1).cumsum()]).astype(np.intc)
    return [*common, starts, np.nonzero(near)[1].astype(np.intc), cost[near], threads]


def spoil(arguments: list[Any], random: np.random.Generator) -> None:
    """Put something else into one of the arguments."""
    place = int(random.integers(len(arguments)))
    value = arguments[place]
    if isinstance(value, str):
        arguments[place] = random.choice(np.array([*OBJECTIVES, "mmd", None, 3], dtype=object))
        return
    if not isinstance(value, np.ndarray):
        # So many threads are started as there are problems, at most.
        arguments[place] = random.choice(FLOATS) if isinstance(value, float) else int(random.choice(INTEGERS))
        return
    way = int(random.integers(8))
    if way < 4 and value.size:
        extreme = FLOATS if value.dtype.kind == "f" else (-(2**31), -2, -1, 0, value.size, 2**31 - 1)
        if value.dtype == np.int8:
            extreme = (-128, -1, 2, 127)
        if value.dtype == np.int64:
            extreme = (*extreme, -(2**63), 2**62, 2**63 - 1)
        with np.errstate(over="ignore"):
            value.reshape(-1)[int(random.integers(value.size))] = random.choice(np.array(extreme))
    elif way == 4:
        arguments[place] = value.reshape(-1)[:-1].copy()
    elif way == 5:
        arguments[place] = np.concatenate([value.reshape(-1), value.reshape(-1)[:1], value.reshape(-1)[:1]])
    elif way == 6:
        with np.errstate(invalid="ignore", over="ignore"):
            arguments[place] = value.astype(random.choice(np.array(["f4", "f8", "i1", "i4", "i8", "u1"])))
    else:
        arguments[place] = random.choice(np.array([b"", b"12345678", None], dtype=object))


if __name__ == "__main__":
    raise SystemExit(main())

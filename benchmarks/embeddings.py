"""Embeddings: clusters of texts and photographs beside those of peers, encoding, a million rows, maps, the page.

python benchmarks/embeddings.py [texts|photos|encode|million|map|page …]

Texts are first paragraphs of docstrings, with their modules as classes, embedded by the encoders that are installed
(pollux[texts], pollux[minilm]); umap-learn, hdbscan and evoc are peers if they are installed. Values are adjusted
Rand indices over all rows, with the noise of HDBSCAN as a cluster of its own. Photographs are the 10,000 test images
of CIFAR-10, embedded by EfficientNet-Lite0 (pollux[photos]), which was trained on the labels of ImageNet. Times are
process times on one thread, ratios are between times of the same run. The page is that of ``pollux report`` for
20,000 texts, opened by Chromium through playwright; its time is elapsed time.
"""

from __future__ import annotations

import os

# Must be set before the libraries that read it are imported.
os.environ["OMP_NUM_THREADS"] = "1"

import argparse
import importlib
import importlib.util
import inspect
import pkgutil
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.preprocessing import normalize

from pollux import GeminiClustering, embed
from pollux.embedding import resolve_encoder
from pollux.metrics import adjusted_rand_index

Array = NDArray[np.float32]
Method = Callable[[Array, int, int], NDArray[np.int64]]

HELD_OUT = {
    "sympy": "algebras calculus codegen combinatorics concrete crypto diffgeom geometry holonomic integrals "
    "liealgebras logic matrices ntheory physics.quantum physics.mechanics physics.optics polys plotting series sets "
    "solvers stats tensor vector",
    "networkx": "algorithms.approximation algorithms.bipartite algorithms.centrality algorithms.community "
    "algorithms.connectivity algorithms.flow algorithms.isomorphism algorithms.shortest_paths algorithms.tree classes "
    "drawing generators readwrite utils",
    "matplotlib": "axes backends colors contour dates figure font_manager image legend lines patches projections "
    "ticker transforms tri widgets",
}
DEVELOPMENT = {
    "sklearn": "cluster covariance datasets decomposition ensemble feature_extraction feature_selection "
    "gaussian_process linear_model metrics model_selection neighbors preprocessing utils",
    "scipy": "cluster fft integrate interpolate io linalg ndimage optimize signal sparse spatial special stats",
}
MOST, LEAST, WORDS = 150, 20, 8


def read_docstrings(package: str, modules: str) -> tuple[list[str], list[str]]:
    """Return first paragraphs of at least eight words, and their modules; at most 150 of each module."""
    by_module: dict[str, list[str]] = {}
    seen: set[str] = set()
    for module in modules.split():
        top = importlib.import_module(f"{package}.{module}")
        every = [top]
        for found in pkgutil.iter_modules(getattr(top, "__path__", []), f"{top.__name__}."):
            if "test" not in found.name:
                try:
                    every.append(importlib.import_module(found.name))
                except (ImportError, RuntimeError):
                    # It needs a package that is not installed.
                    continue
        for one in every:
            for thing in [thing for _, thing in sorted(vars(one).items())]:
                members = [member for _, member in sorted(vars(thing).items())] if inspect.isclass(thing) else []
                if not str(getattr(thing, "__module__", "")).startswith(top.__name__):
                    continue
                for each in filter(callable, [thing, *members]):
                    text = " ".join((inspect.getdoc(each) or "").strip().split("\n\n")[0].split())[:1000]
                    if len(text.split()) >= WORDS and text not in seen:
                        seen.add(text)
                        by_module.setdefault(module, []).append(text)
    drawn = random.Random(0)
    kept = [
        (text, module)
        for module, texts in by_module.items()
        if len(texts) >= LEAST
        for text in drawn.sample(texts, min(MOST, len(texts)))
    ]
    return [text for text, _ in kept], [module for _, module in kept]


def methods() -> dict[str, Method]:
    """Return our method and the peers that are installed."""
    found: dict[str, Method] = {
        "for_embeddings": lambda X, K, seed: GeminiClustering.for_embeddings(K, random_state=seed).fit(X).labels_,
        "KMeans(n_init=10)": lambda X, K, seed: KMeans(K, n_init=10, random_state=seed).fit_predict(X),
        "spherical k-means": lambda X, K, seed: KMeans(K, n_init=10, random_state=seed).fit_predict(normalize(X)),
    }

    def umap_hdbscan(X: Array, K: int, seed: int) -> NDArray[np.int64]:
        umap, hdbscan = importlib.import_module("umap"), importlib.import_module("hdbscan")
        place = umap.UMAP(n_components=5, metric="cosine", min_dist=0.0, random_state=seed).fit_transform(X)
        return np.asarray(hdbscan.HDBSCAN(min_cluster_size=15).fit_predict(place))

    def evoc(X: Array, K: int, seed: int) -> NDArray[np.int64]:
        return np.asarray(importlib.import_module("evoc").EVoC(random_state=seed).fit_predict(X))

    for name, package, method in (("UMAP + HDBSCAN", "umap", umap_hdbscan), ("EVoC", "evoc", evoc)):
        if importlib.util.find_spec(package) is not None:
            found[name] = method
        else:
            print(f"not measured: {name} ({package} is not installed)")
    return found


def score(sets: dict[str, tuple[Array, NDArray[Any]]], seeds: int = 2) -> None:
    """Print a line for each method: its mean index, that of each set, and its process time beside ours."""
    print(f"{'':20} {'mean':>6}  {'  '.join(sets)}")
    own = None
    for name, method in methods().items():
        begun, values = time.process_time(), []
        for X, classes in sets.values():
            K = len(np.unique(classes))
            values.append(np.mean([adjusted_rand_index(classes, method(X, K, seed)) for seed in range(seeds)]))
        taken = time.process_time() - begun
        own = own or taken
        listed = "  ".join(f"{value:.3f}" for value in values)
        print(f"{name:20} {np.mean(values):6.3f}  {listed}  {taken / own:.2f}x our time", flush=True)


def installed(*names: str) -> list[str]:
    """Return those of these encoders that are installed."""
    found = []
    for name in names:
        try:
            resolve_encoder(name, of_texts=name != "efficientnet-lite0")
            found.append(name)
        except ImportError as error:
            print(f"not measured: {error}")
    return found


def measure_texts() -> None:
    for encoder in installed("wordllama", "minilm"):
        for title, packages in (("held out", HELD_OUT), ("development", DEVELOPMENT)):
            print(f"\n{title}, {encoder}")
            sets = {}
            for package, modules in packages.items():
                if importlib.util.find_spec(package) is None:
                    print(f"not measured: {package} is not installed")
                    continue
                texts, classes = read_docstrings(package, modules)
                sets[package] = embed(texts, encoder), np.array(classes)
            score(sets)


def measure_photos() -> None:
    from pollux.lab.datasets import load_images

    for encoder in installed("efficientnet-lite0"):
        images = load_images("cifar10")
        print("\nCIFAR-10, test images, EfficientNet-Lite0")
        score({"cifar10": (embed(images.x_test, encoder), images.y_test)}, seeds=1)


def measure_encoding() -> None:
    """Samples per second of ``embed``, and of the bare encoder with batches of the same size."""
    texts, _ = read_docstrings("scipy", DEVELOPMENT["scipy"])
    pictures = np.random.default_rng(0).integers(0, 256, size=(64, 3, 224, 224), dtype=np.uint8)
    for name in installed("wordllama", "minilm", "efficientnet-lite0"):
        samples: Any = pictures if name == "efficientnet-lite0" else sorted(texts[:512], key=len, reverse=True)
        encoder = resolve_encoder(name, of_texts=name != "efficientnet-lite0")
        times: dict[str, list[float]] = {"embed": [], "bare": []}
        for _ in range(3):
            begun = time.process_time()
            for start in range(0, len(samples), encoder.batch_size):
                encoder.encode(samples[start : start + encoder.batch_size])
            times["bare"].append(time.process_time() - begun)
            begun = time.process_time()
            embed(samples, encoder)
            times["embed"].append(time.process_time() - begun)
        own, bare = (len(samples) / min(times[key]) for key in ("embed", "bare"))
        print(f"{name:20} {own:9.0f} a second, {own / bare:.2f} of the bare encoder")


def measure_million(n: int = 1_000_000, d: int = 384, K: int = 20) -> None:
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(K, d)).astype(np.float32)
    X = np.empty((n, d), dtype=np.float32)
    for start in range(0, n, 50_000):
        part = X[start : start + 50_000]
        noise = generator.normal(size=part.shape).astype(np.float32)
        part[:] = normalize(centres[generator.integers(0, K, len(part))] + 2 * noise)
    begun = time.process_time()
    MiniBatchKMeans(K, n_init="auto", random_state=0).fit(X)
    peer, begun = time.process_time() - begun, time.process_time()
    GeminiClustering.for_embeddings(K, random_state=0).fit(X)
    own = time.process_time() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{n:,} x {d}: {own:.1f} s, {own / peer:.2f}x MiniBatchKMeans, peak {peak:.2f} GB, X included")


def measure_map() -> None:
    """The map of the report: time, preservation of neighbours, and how well neighbours predict the class."""
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA
    from sklearn.manifold import trustworthiness
    from sklearn.model_selection import cross_val_score
    from sklearn.neighbors import KNeighborsClassifier

    from pollux.lab.datasets import load_images
    from pollux.report import neighbour_map

    maps: dict[str, Callable[[Array], Any]] = {"principal components": PCA(2).fit_transform, "pollux": neighbour_map}
    if importlib.util.find_spec("umap"):
        maps["umap"] = lambda X: importlib.import_module("umap").UMAP(n_jobs=1).fit_transform(X)
    if importlib.util.find_spec("pacmap"):
        maps["pacmap"] = lambda X: importlib.import_module("pacmap").PaCMAP().fit_transform(X)
    images = load_images("mnist")
    pixels = images.x_test.reshape(len(images.x_test), -1).astype(np.float32)
    sets = {"digits": load_digits(return_X_y=True), "mnist": (pixels, images.y_test)}
    for name, (X, y) in sets.items():
        seen = PCA(min(50, X.shape[1]), random_state=0).fit_transform(X)
        whole = cross_val_score(KNeighborsClassifier(15), seen, y, cv=5).mean()
        for method, draw in maps.items():
            began = time.process_time()
            points = np.asarray(draw(X))
            seconds = time.process_time() - began
            share = cross_val_score(KNeighborsClassifier(15), points, y, cv=5).mean() / whole
            trust = trustworthiness(seen, points, n_neighbors=15)
            print(f"{name:8} {method:22} {seconds:6.1f} s  trustworthiness {trust:.3f}  15-NN {share:.3f}", flush=True)


def measure_page(n: int = 20_000) -> None:
    """The report on many texts, made of docstrings: its size, its requests, and the time until it is displayed."""
    from playwright.sync_api import sync_playwright

    paragraphs = [
        text for sets in (HELD_OUT, DEVELOPMENT) for name in sets for text in read_docstrings(name, sets[name])[0]
    ]
    drawn = random.Random(0)
    # Two paragraphs each, so that there are enough texts and all are different.
    pairs = (f"{drawn.choice(paragraphs)} {drawn.choice(paragraphs)}" for _ in range(n + n // 100))
    texts = list(dict.fromkeys(pairs))[:n]
    with tempfile.TemporaryDirectory() as folder:
        pd.DataFrame({"text": texts}).to_csv(Path(folder) / "texts.csv", index=False)
        for words in (
            ("fit", "texts.csv", "--text", "text", "--clusters", "20", "--out", "run"),
            ("report", "run"),
        ):
            subprocess.run([sys.executable, "-m", "pollux", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        page = Path(folder) / "run" / "report.html"
        requests, paints = set(), []
        with sync_playwright() as play:
            browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for _ in range(5):
                tab = browser.new_page(viewport={"width": 1200, "height": 850})
                tab.on("request", lambda request: requests.add(request.url.partition(":")[0]))
                tab.goto(page.as_uri())
                entries = "performance.getEntriesByName('first-contentful-paint').map(each => each.startTime)"
                paints += tab.evaluate(entries)
                tab.close()
            browser.close()
        size = page.stat().st_size / 1e6
    asked = ", ".join(sorted(requests - {"file", "data"})) or "nothing"
    print(f"{len(texts):,} texts: {size:.1f} MB, first paint after {min(paints) / 1e3:.2f} s, asks for {asked}")


CASES = {
    "texts": measure_texts,
    "photos": measure_photos,
    "encode": measure_encoding,
    "million": measure_million,
    "map": measure_map,
    "page": measure_page,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES])
    warnings.simplefilter("ignore")
    for case in parser.parse_args().cases or CASES:
        CASES[case]()

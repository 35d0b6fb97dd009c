"""What users know and want to know, beside other libraries: outliers, hints, sizes, confidence.

python benchmarks/guide.py [--markdown FILE] [--only outliers|hints|pairs|sizes|confidence]

Outliers: ROC AUC of ``score_samples`` after the recipe, beside IsolationForest and LocalOutlierFactor on standardised
columns, and GLOSH if the package hdbscan is installed. In labelled sets one class is made rare, 3 % of the others
(of a few hundred rows 5 %), and is to be found; or uniform noise between the minimum and the maximum of each column is
added. In the paper's mixture the outliers are samples of the Student-t cluster beyond the reach of a Gaussian.

Hints: adjusted Rand index on the unlabelled rows of the development sets (up to 2,000 rows), where 1 % or 5 % of the
rows and at least one of each class are labelled, the mean of five draws: the recipe without and with hints,
LabelSpreading (neighbours), self-training of a logistic regression, and the semi-supervised clusters of fast_hdbscan
if it is installed. Pairs: the share of 100 + 100 random pairs that hold in the result. Sizes: process time of
assignments of 100,000 rows to 10 clusters.

Confidence: half of the rows of a development set are fitted and assessed. Twenty further fits, to other samples of
them, label the other half: how often they agree with the clustering, beside its confidence and its probability. The
expected calibration error uses ten bins.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import warnings
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax
from sklearn.ensemble import IsolationForest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from sklearn.neighbors import LocalOutlierFactor
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

from measure import aligned, environment, limit_threads, piped
from pollux import GeminiClustering
from pollux.inspection.confidence import align_labels
from pollux.lab.datasets import gaussian_student_mixture, load_table, table_names
from pollux.lab.quality.labelled_sets import DEVELOPMENT
from pollux.transport.assignment import assign, resolve_sizes

Line = tuple[str, ...]
MOST_ROWS, FEW_ROWS = 3_000, 500
SHARES, DRAWS = (0.01, 0.05), 5
# The class of each set that is made rare.
_OF_SETS = (
    "pendigits 0, optdigits 7, digits 4, breast_cancer 0, wine 2, vehicle 0, glass 5, new_thyroid 1, ionosphere 0"
)
_OF_SETS += ", dermatology 4, yeast 4, seeds 1"
RARE = {name: int(number) for name, number in map(str.split, _OF_SETS.split(", "))}
NOISY = ("iris", "pendigits", "seeds", "vehicle", "avila")


def _numbers(name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    table = load_table(name)
    X = np.asarray(table.X, dtype=np.float64)
    return np.where(np.isnan(X), np.nanmean(X, axis=0), X), table.y


def with_rare_class(name: str, rare: int) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
    """Return rows, a mask of the rare class, and the number of classes of the others."""
    (X, y), rng = _numbers(name), np.random.default_rng(0)
    usual = rng.permutation(np.flatnonzero(y != rare))[:MOST_ROWS]
    few = max(5, round((0.05 if len(usual) < FEW_ROWS else 0.03) * len(usual)))
    index = rng.permutation(np.concatenate([usual, rng.permutation(np.flatnonzero(y == rare))[:few]]))
    return X[index], y[index] == rare, len(np.unique(y[usual]))


def with_noise(name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_], int]:
    """Return rows, a mask of the noise, and the number of classes of the others."""
    (X, y), rng = _numbers(name), np.random.default_rng(0)
    X = X[rng.permutation(len(X))[:MOST_ROWS]]
    few = max(5, round((0.05 if len(X) < FEW_ROWS else 0.03) * len(X)))
    noise = rng.uniform(X.min(0), X.max(0), (few, X.shape[1]))
    return np.concatenate([X, noise]), np.arange(len(X) + few) >= len(X), len(np.unique(y))


def outlier_sets() -> dict[str, tuple[NDArray[np.float64], NDArray[np.bool_], int]]:
    """Return rows, a mask of the outliers, and the number of clusters to find."""
    X, y = gaussian_student_mixture(random_state=0)
    # One in a thousand samples of a Gaussian lies that far out.
    far = (y == 3) & (np.square(X + 5).sum(1) > 2 * np.log(1_000))
    sets = {"Student-t mixture": (X, far, 4)}
    sets |= {
        f"{name}, a rare class": with_rare_class(name, rare) for name, rare in RARE.items() if name in table_names()
    }
    return sets | {f"{name}, noise": with_noise(name) for name in NOISY if name in table_names()}


def outliers() -> list[Line]:
    """ROC AUC of each method on each set."""
    # Optional: not a dependency of the benchmarks.
    hdbscan: Any = importlib.import_module("hdbscan") if importlib.util.find_spec("hdbscan") else None
    names = ["Pollux", "IsolationForest", "LOF", *(["GLOSH"] if hdbscan else [])]
    lines: list[Line] = [("set", "rows", "outliers", *names)]
    found = []
    for name, (X, is_outlier, K) in outlier_sets().items():
        Z = StandardScaler().fit_transform(X)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = [
                GeminiClustering(max(2, K), random_state=0).fit(X).score_samples(X),
                IsolationForest(random_state=0).fit(Z).score_samples(Z),
                LocalOutlierFactor().fit(Z).negative_outlier_factor_,
                *([-np.nan_to_num(hdbscan.HDBSCAN(min_cluster_size=10).fit(Z).outlier_scores_)] if hdbscan else []),
            ]
        found.append([roc_auc_score(is_outlier, -score) for score in scores])
        lines.append((name, f"{len(X):,}", str(is_outlier.sum()), *(f"{value:.3f}" for value in found[-1])))
    return [*lines, ("mean", "", "", *(f"{value:.3f}" for value in np.mean(found, axis=0)))]


def _development(name: str) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    X, y = _numbers(name)
    index = np.random.default_rng(0).permutation(len(X))[:2_000]
    return X[index], np.unique(y[index], return_inverse=True)[1]


def _known_labels(y: NDArray[np.int64], share: float, draw: int) -> NDArray[np.int64]:
    """Return the classes of a share of the rows and of at least one of each class, −1 for the others."""
    rng, known = np.random.default_rng(draw), np.full(len(y), -1)
    some = np.append(
        rng.permutation(len(y))[: int(share * len(y))], [rng.choice(np.flatnonzero(y == k)) for k in np.unique(y)]
    )
    known[some] = y[some]
    return known


def _self_training(Z: NDArray[np.float64], known: NDArray[np.int64]) -> NDArray[Any]:
    return np.asarray(SelfTrainingClassifier(LogisticRegression(max_iter=500)).fit(Z, known).predict(Z))


def hints() -> list[Line]:
    """Mean adjusted Rand indices on unlabelled rows."""
    # Optional: not a dependency of the benchmarks.
    fast: Any = importlib.import_module("fast_hdbscan") if importlib.util.find_spec("fast_hdbscan") else None
    others = {
        "LabelSpreading": lambda Z, known: LabelSpreading(kernel="knn", max_iter=100).fit(Z, known).transduction_,
        "SelfTraining": _self_training,
    }
    if fast:
        others["fast_hdbscan"] = lambda Z, known: (
            fast.HDBSCAN(min_cluster_size=10, semi_supervised=True).fit(Z, known).labels_
        )
    lines: list[Line] = [("known", "set", "rows", "classes", "no hints", "hints", *others)]
    for share in SHARES:
        found = []
        for name in (name for name in DEVELOPMENT if name in table_names()):
            X, y = _development(name)
            K, Z = len(np.unique(y)), StandardScaler().fit_transform(X)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                plain, scores = GeminiClustering(K, random_state=0).fit(X).labels_, []
                for draw in range(DRAWS):
                    known = _known_labels(y, share, draw)
                    hinted = GeminiClustering(K, random_state=0).fit(X, known=known).labels_
                    every = [plain, hinted, *(method(Z, known) for method in others.values())]
                    scores.append([adjusted_rand_score(y[known < 0], labels[known < 0]) for labels in every])
            found.append(np.mean(scores, axis=0))
            lines.append((f"{share:.0%}", name, f"{len(X):,}", str(K), *(f"{value:.3f}" for value in found[-1])))
            print(*lines[-1], file=sys.stderr, flush=True)
        means = np.array(found)
        lines.append((f"{share:.0%}", "mean", "", "", *(f"{value:.3f}" for value in means.mean(0))))
        raised = int((means[:, 1] > means[:, 0]).sum())
        lines.append((f"{share:.0%}", f"raised by hints: {raised} of {len(means)}", *[""] * (3 + len(others) + 1)))
    return lines


def pairs() -> list[Line]:
    """How many of 100 pairs of each kind hold, and how they change the score."""
    lines: list[Line] = [("set", "ARI without", "ARI with", "hold, of 200")]
    found = []
    for name in (name for name in DEVELOPMENT if name in table_names()):
        (X, y), rng = _development(name), np.random.default_rng(0)
        drawn = rng.integers(0, len(y), (20_000, 2))
        drawn, K = drawn[drawn[:, 0] != drawn[:, 1]], len(np.unique(y))
        same = y[drawn[:, 0]] == y[drawn[:, 1]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plain = GeminiClustering(K, random_state=0).fit(X).labels_
            hinted = GeminiClustering(K, random_state=0)
            hinted.fit(X, must_link=drawn[same][:100], cannot_link=drawn[~same][:100])
        kept = 200 - sum((hinted.hint_violations_ or {}).values())
        found.append([*(adjusted_rand_score(y, labels) for labels in (plain, hinted.labels_)), kept])
        lines.append((name, f"{found[-1][0]:.3f}", f"{found[-1][1]:.3f}", str(kept)))
    means = np.mean(found, axis=0)
    return [*lines, ("mean", f"{means[0]:.3f}", f"{means[1]:.3f}", f"{means[2]:.1f}")]


def sizes() -> list[Line]:
    """Seconds of assignments of 100,000 rows to 10 clusters."""
    lines: list[Line] = [("certainty", "at least", "at most", "seconds")]
    rng, n, K = np.random.default_rng(0), 100_000, 10
    for certainty in (1, 8):
        scores = log_softmax(certainty * rng.normal(size=(n, K)) + np.linspace(0, 3, K), axis=1)
        for low, high in ((0.1, 0.1), (0.05, 0.15), (0.0, 0.1)):
            start = process_time()
            labels = assign(scores, *resolve_sizes(low, high, n, K))
            seconds = process_time() - start
            assert low * n <= np.bincount(labels, minlength=K).min()
            lines.append((str(certainty), f"{low:.0%}", f"{high:.0%}", f"{seconds:.2f}"))
    return lines


def calibration_error(predicted: NDArray[np.floating], agreement: NDArray[np.float64]) -> float:
    """Return the absolute difference of both (n,) in ten bins of the prediction, averaged with the rows as weights."""
    bins = np.minimum((predicted * 10).astype(int), 9)
    sums = [abs((predicted[bins == b] - agreement[bins == b]).sum()) for b in np.unique(bins)]
    return float(sum(sums) / len(predicted))


def confidence() -> list[Line]:
    """Expected calibration errors against the agreement of other fits on held-out rows."""
    lines: list[Line] = [("set", "rows", "agreement", "confidence", "error", "probability", "error")]
    found = []
    for name in (name for name in DEVELOPMENT if name in table_names()):
        (X, y), rng = _development(name), np.random.default_rng(1)
        K, X, held_out = len(np.unique(y)), X[::2], X[1::2]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            clustering = GeminiClustering(K, random_state=0).fit(X).assess(X)
            labels, agreement = clustering.predict(held_out), np.zeros(len(held_out))
            for seed in range(20):
                some = rng.permutation(len(X))[: round(0.8 * len(X))]
                others = GeminiClustering(K, random_state=100 + seed).fit(X[some]).predict(held_out)
                agreement += (align_labels(labels, others, K) == labels) / 20
            predicted = clustering.predict_confidence(held_out), clustering.predict_proba(held_out).max(1)
        errors = [calibration_error(each, agreement) for each in predicted]
        sure, likely = (float(each.mean()) for each in predicted)
        found.append([agreement.mean(), sure, errors[0], likely, errors[1]])
        lines.append((name, f"{len(held_out):,}", *(f"{value:.3f}" for value in found[-1])))
        print(*lines[-1], file=sys.stderr, flush=True)
    return [*lines, ("mean", "", *(f"{value:.3f}" for value in np.mean(found, axis=0)))]


TABLES = {"outliers": outliers, "hints": hints, "pairs": pairs, "sizes": sizes, "confidence": confidence}


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there, too")
    parser.add_argument("--only", choices=TABLES, help="one of the tables")
    options = parser.parse_args()
    limit_threads(1)
    made = []
    for name, table in TABLES.items():
        if options.only in (None, name):
            made.append(table())
            print(aligned(made[-1]), flush=True)
    where = environment(threads=1)
    print(where)
    if options.markdown:
        options.markdown.write_text("\n\n".join([*map(piped, made), where, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

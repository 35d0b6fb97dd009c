"""The figures: what they draw is right, they leave matplotlib's state alone, and bad input is explained."""

import io
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pollux.metrics import renyi_entropy
from pollux.report import canvas, figures
from pollux.report.canvas import GREY, ON_DARK, READABLE, colours, contrast, on_dark
from pollux.report.figures import (
    plot_confusion,
    plot_decision_regions,
    plot_entropy_map,
    plot_images,
    plot_map,
    plot_profiles,
    plot_training,
)

Array = NDArray[Any]
RNG = np.random.default_rng(0)
CENTRES = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
LABELS = np.arange(60) % 3
POINTS = CENTRES[LABELS] + RNG.normal(size=(60, 2)) / 2
FEATURES = np.c_[POINTS, RNG.normal(size=(60, 3))]
NAMES = ["left", "up", "noise", "more", "most"]
IMAGES = RNG.random((60, 6, 5))
HISTORY = {"objective": [0.1, 0.5, 0.9], "clusters": [5.0, 4.0, 3.0], "entropy": [1.2, 0.7, 0.2]}


def predict_proba(X: Array) -> Array:
    """A softmax of distances to the centres, (n, 2) → (n, 3)."""
    p = np.exp(-((X[:, None] - CENTRES) ** 2).sum(2))
    return np.asarray((p + 1e-9) / (p + 1e-9).sum(1, keepdims=True))


FIGURES: dict[str, Callable[[], Figure]] = {
    "map": lambda: plot_map(POINTS, LABELS, probabilities=predict_proba(POINTS), axes_names=("a", "b")),
    "training": lambda: plot_training(HISTORY, n_clusters=5),
    "profiles": lambda: plot_profiles(FEATURES, LABELS, NAMES),
    "images": lambda: plot_images(IMAGES, LABELS, classes=LABELS),
    "regions": lambda: plot_decision_regions(predict_proba, POINTS, resolution=20),
    "entropy": lambda: plot_entropy_map(predict_proba, POINTS, resolution=20),
    "confusion": lambda: plot_confusion(LABELS, LABELS),
}
every_figure = pytest.mark.parametrize("draw", FIGURES.values(), ids=FIGURES.keys())


def texts(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.texts]


def grid_of(image: Any) -> Array:
    """Middles of the pixels of an image whose first row is at the bottom, (r, r, 2)."""
    left, right, bottom, top = image.get_extent()
    r = len(image.get_array())
    at = (np.arange(r) + 0.5) / r
    return np.stack(np.meshgrid(left + at * (right - left), bottom + at * (top - bottom)), axis=-1)


# State


@pytest.mark.parametrize(("name", "form"), [*((name, "png") for name in FIGURES), ("map", "pdf"), ("regions", "svg")])
def test_figures_are_saved_in_any_form(name: str, form: str) -> None:
    file = io.BytesIO()
    FIGURES[name]().savefig(file, format=form, dpi=40)
    assert file.getvalue()[:4] == {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xm"}[form]


@every_figure
def test_settings_are_left_alone(draw: Callable[[], Figure]) -> None:
    before = dict(matplotlib.rcParams)
    assert isinstance(draw(), Figure)
    assert dict(matplotlib.rcParams) == before


def test_a_figure_loads_matplotlib_without_pyplot_and_without_torch() -> None:
    script = """
import sys
import pollux.report
from pollux.report.figures import plot_training
assert "matplotlib" not in sys.modules
assert "torch" not in sys.modules
figure = plot_training({"objective": [1.0, 2.0]})
figure.savefig(sys.stderr.buffer, format="png")
assert "matplotlib" in sys.modules and "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, capture_output=True)


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'pollux\[report\]'"):
        plot_training(HISTORY)


# The map


def test_the_map_has_every_sample_in_its_colour_and_every_number() -> None:
    labels = np.where(np.arange(60) < 7, -1, LABELS)
    ax = plot_map(POINTS, labels).axes[0]
    samples, *numbers = ax.collections
    np.testing.assert_allclose(samples.get_offsets(), POINTS)
    expected = [to_rgb((*colours(3), GREY)[label]) for label in labels]
    np.testing.assert_allclose(samples.get_facecolor()[:, :3], expected)
    assert sorted(texts(ax)) == ["0", "1", "2"]
    for number, name in zip(numbers, texts(ax), strict=True):
        at = number.get_offsets()[0]
        assert np.linalg.norm(CENTRES - at, axis=1).argmin() == int(name)
        assert to_hex(number.get_facecolor()[0]) == colours(3)[int(name)]


def test_uncertain_samples_are_paler() -> None:
    p = np.array([[1.0, 0.0], [0.75, 0.25], [0.5, 0.5]])
    alpha = plot_map(CENTRES, [0, 0, 0], probabilities=p).axes[0].collections[0].get_facecolor()[:, 3]
    np.testing.assert_allclose(alpha, [0.75, 0.45, 0.15])


def test_the_axes_of_a_map_are_named_or_hidden() -> None:
    ax = plot_map(POINTS, LABELS, axes_names=("first", "second $x$ of $3")).axes[0]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("first", r"second \$x\$ of \$3")
    assert ax.get_aspect() == 1
    assert not plot_map(POINTS, LABELS).axes[0].axison
    assert plot_map(POINTS * [1, 100], LABELS).axes[0].get_aspect() == "auto"


@pytest.mark.parametrize(
    ("points", "labels"),
    [
        ([[1, 2]], [0]),
        ([[1, 2], [1, 2], [1, 2]], [0, 1, -1]),
        ([[0, 0], [1, 1]], [-1, -1]),
        ([[0, 0], [0, 1]], [3, 24]),
    ],
)
def test_tiny_maps_are_drawn(points: list[list[int]], labels: list[int]) -> None:
    figure = plot_map(points, labels)
    figure.savefig(io.BytesIO(), dpi=30)
    assert sorted(texts(figure.axes[0])) == sorted({str(label) for label in labels if label >= 0})


def test_the_numbers_of_many_clusters_lie_apart() -> None:
    points, labels = RNG.random((1000, 2)), np.arange(1000) % 25
    spots = np.array([number.get_offsets()[0] for number in plot_map(points, labels).axes[0].collections[1:]])
    gaps = np.linalg.norm(spots[:, None] - spots, axis=2) + 9 * np.eye(25)
    assert gaps.min() > 0.05


# Training


def test_training_shows_each_curve_and_what_was_asked_for() -> None:
    axes = plot_training(HISTORY, n_clusters=8).axes
    assert [ax.get_title("left").split(" ")[0] for ax in axes] == ["Objective", "Clusters", "Entropy"]
    for ax, values in zip(axes, HISTORY.values(), strict=True):
        np.testing.assert_allclose(ax.lines[0].get_xydata(), np.c_[1:4, values])
    assert list(axes[1].lines[1].get_ydata()) == [8, 8]
    assert axes[1].get_ylim()[1] > 8


@pytest.mark.parametrize("values", [[3.0], [0.0, 0.0], [-2.0, -1.0], [1.0, float("nan")], [float("nan")]])
def test_short_and_odd_histories_are_drawn(values: list[float]) -> None:
    figure = plot_training({"objective": values, "clusters": []})
    figure.savefig(io.BytesIO(), dpi=30)
    assert len(figure.axes) == 1
    bottom, top = figure.axes[0].get_ylim()
    assert bottom <= min(0, np.nan_to_num(values).min()) <= np.nan_to_num(values).max() <= top


@pytest.mark.parametrize("history", [{}, {"objective": []}, {"loss": [1.0]}])
def test_no_history_is_an_error(history: dict[str, list[float]]) -> None:
    with pytest.raises(ValueError, match="no epochs to draw: give the history_"):
        plot_training(history)


# Profiles


def test_profiles_are_standardised_differences() -> None:
    X = FEATURES.copy()
    X[3:9, 1] = np.nan
    X[11, 2] = np.inf
    X = np.c_[X, np.full(60, 0.1)]
    figure = plot_profiles(X, LABELS, [*NAMES, "constant"], top=6)
    X[11, 2] = np.nan
    spread = np.nanstd(X, axis=0)
    spread[5] = 1
    expected = np.array([np.nanmean(X[k == LABELS], axis=0) - np.nanmean(X, axis=0) for k in range(3)]) / spread
    order = np.argsort(-np.abs(expected).max(0))
    ax = figure.axes[0]
    np.testing.assert_allclose(ax.images[0].get_array(), expected[:, order].T, atol=1e-10)
    assert [tick.get_text() for tick in ax.get_yticklabels()] == [[*NAMES, "constant"][j] for j in order]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0\n20", "1\n20", "2\n20"]
    assert [tick.get_color() for tick in ax.get_xticklabels()] == colours(3)
    assert texts(ax) == [f"{np.round(value, 1) + 0.0:+.1f}" for value in expected[:, order].T.ravel()]
    low, high = ax.images[0].get_clim()
    assert low == -high


def test_profiles_show_the_strongest_features_and_what_is_missing() -> None:
    X = RNG.normal(size=(200, 100))
    labels = np.arange(200) % 20 - 1
    X[labels == 4, 70] += 9
    X[labels == 7, 70] = np.nan
    ax = plot_profiles(X, labels, [f"a very long name of feature number {j}" for j in range(100)], top=5).axes[0]
    values = ax.images[0].get_array()
    assert values.shape == (5, 20)
    assert values.mask.sum() == 1
    assert values.mask[0, 7]
    first = ax.get_yticklabels()[0].get_text()
    assert first.endswith("number 70")
    assert len(first) == 30
    assert ax.get_xticklabels()[-1].get_text() == "none\n10"
    assert ax.get_xticklabels()[-1].get_color() == GREY
    assert texts(ax) == []


def test_shares_are_written_as_shares() -> None:
    X = np.c_[POINTS[:, 0], LABELS == 1]
    ax = plot_profiles(X, LABELS, ["left", "kind=b"], shares={"kind=b"}).axes[0]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["kind=b (share)", "left"]
    assert texts(ax)[:3] == ["0%", "100%", "0%"]


def test_a_share_that_rounding_takes_below_nothing_is_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of zeros and ones about their mean may miss 0 on either side, as the processor has it."""
    found = SimpleNamespace(from_mean=np.array([[1.0, -2.0], [-1.0, 2.0]]), inside=np.array([[0.5, -1e-17], [0.5, 1]]))
    monkeypatch.setattr(figures, "compare_clusters", lambda *_: found)
    ax = plot_profiles(np.eye(2), [0, 1], ["left", "kind=b"], shares={"kind=b"}).axes[0]
    assert texts(ax)[:2] == ["0%", "100%"]


def test_one_cluster_differs_in_nothing() -> None:
    ax = plot_profiles(FEATURES, np.zeros(60, int), NAMES).axes[0]
    assert texts(ax) == ["+0.0"] * 5
    assert [tick.get_text() for tick in ax.get_yticklabels()] == NAMES


# Images


@pytest.mark.parametrize(
    ("images", "means"),
    [
        (IMAGES, IMAGES),
        (IMAGES[:, None], IMAGES),
        (IMAGES[..., None], IMAGES),
        (IMAGES * 20 - 10, IMAGES),
        ((IMAGES * 255).astype(np.uint8), (IMAGES * 255).astype(np.uint8) / 255),
        (np.stack([IMAGES] * 3, 1), np.stack([IMAGES] * 3, 3)),
        (np.stack([IMAGES] * 3, 3), np.stack([IMAGES] * 3, 3)),
    ],
)
def test_images_are_means_of_clusters(images: Array, means: Array) -> None:
    if images.min() < 0:
        means = (images - images.min()) / np.ptp(images)
    axes = plot_images(images, LABELS).axes
    assert [ax.get_title() for ax in axes] == [f"{k}: 20 images" for k in range(3)]
    for k, ax in enumerate(axes):
        np.testing.assert_allclose(ax.images[0].get_array(), means[k == LABELS].mean(0), atol=1e-12)
        assert to_hex(ax.spines["left"].get_edgecolor()) == colours(3)[k]


def test_images_name_the_commonest_class_and_show_those_without_a_cluster() -> None:
    labels = [0, 0, 0, 25, -1]
    axes = plot_images(IMAGES[:5], labels, classes=["cat", "cat", "dog", "dog", "a very long name"]).axes
    assert [ax.get_title() for ax in axes] == ["0: 3 images", "25: 1 image", "none: 1 image"]
    assert [ax.get_xlabel() for ax in axes] == ["67% are cat", "100% are dog", "100% are a very …name"]
    assert to_hex(axes[2].spines["left"].get_edgecolor()) == GREY


@pytest.mark.parametrize(("count", "shape"), [(1, (1, 1)), (6, (1, 6)), (7, (2, 4)), (25, (5, 5))])
def test_images_fill_a_grid(count: int, shape: tuple[int, int]) -> None:
    axes = plot_images(IMAGES, np.arange(60) % count).axes
    assert len(axes) == count
    assert axes[0].get_subplotspec().get_gridspec().get_geometry() == shape


# The plane


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_regions_have_the_colour_of_the_argmax(dtype: type) -> None:
    seen = []

    def recording(X: Array) -> Array:
        seen.append(X.dtype)
        return predict_proba(X)

    X = (POINTS * 10).astype(dtype) / 10 if dtype != np.int64 else POINTS.round().astype(int)
    ax = plot_decision_regions(recording, X, resolution=25).axes[0]
    assert set(seen) == {np.dtype(dtype if dtype != np.int64 else float)}
    p = predict_proba(grid_of(ax.images[0]).reshape(-1, 2))
    own = np.array([to_rgb(colour) for colour in colours(3)])[p.argmax(1)]
    strength = 0.06 + 0.34 * (p.max(1, keepdims=True) * 3 - 1) / 2
    drawn = np.asarray(ax.images[0].get_array()).reshape(-1, 3)
    np.testing.assert_allclose(drawn, 1 - strength * (1 - own), atol=1e-4)
    spread = np.ptp(X, axis=0)
    middles = grid_of(ax.images[0])
    np.testing.assert_allclose(middles[0, 0], X.min(0) - 0.1 * spread, atol=1e-5)
    np.testing.assert_allclose(middles[-1, -1], X.max(0) + 0.1 * spread, atol=1e-5)


def test_boundaries_lie_where_two_clusters_are_equally_likely() -> None:
    ax = plot_decision_regions(predict_proba, POINTS, resolution=120).axes[0]
    lines = [vertices for kind in ax.collections if "Contour" in type(kind).__name__ for vertices in kind.get_paths()]
    on_them = np.sort(predict_proba(np.concatenate([line.vertices for line in lines if len(line.vertices)])), axis=1)
    assert len(on_them) > 100
    assert np.abs(on_them[:, 2] - on_them[:, 1]).max() < 0.02


def test_samples_of_a_plane_have_the_given_or_predicted_colours() -> None:
    def shown(**given: Any) -> Array:
        ax = plot_decision_regions(predict_proba, POINTS, resolution=5, **given).axes[0]
        (samples,) = [kind for kind in ax.collections if len(kind.get_offsets()) == 60]
        return np.asarray(samples.get_facecolor()[:, :3])

    palette = np.array([to_rgb(colour) for colour in (*colours(3), GREY)])
    np.testing.assert_allclose(shown(), palette[predict_proba(POINTS).argmax(1)])
    np.testing.assert_allclose(shown(labels=LABELS - 1), palette[LABELS - 1])


@pytest.mark.parametrize("order", [1.0, 2.0, float("inf")])
def test_the_entropy_map_is_renyis(order: float) -> None:
    figure = plot_entropy_map(predict_proba, POINTS, order=order, resolution=30)
    image = figure.axes[0].images[0]
    expected = renyi_entropy(predict_proba(grid_of(image).reshape(-1, 2)), order).reshape(30, 30)
    np.testing.assert_allclose(image.get_array(), expected, atol=1e-6)
    assert image.get_clim() == (0, np.log(3))
    (bar,) = figure.axes[0].child_axes
    assert bar.get_ylabel() == ("Shannon entropy (nats)" if order == 1 else f"Rényi entropy of order {order:g} (nats)")
    assert len(figure.axes[0].collections[0].get_offsets()) == 60


def test_predictions_are_made_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canvas, "ROWS_AT_ONCE", 7)
    sizes = []

    def recording(X: Array) -> Array:
        sizes.append(len(X))
        return predict_proba(X)

    plot_entropy_map(recording, POINTS, resolution=6)
    assert sizes == [7, 7, 7, 7, 7, 1]


@pytest.mark.parametrize("X", [[[1, 1]], [[1, 1], [1, 2], [1, 3]]])
def test_planes_of_few_samples_and_one_cluster(X: Any) -> None:
    for figure in (
        plot_decision_regions(lambda rows: np.ones((len(rows), 1)), X, resolution=4),
        plot_entropy_map(lambda rows: np.ones((len(rows), 1)), X, resolution=4),
    ):
        figure.savefig(io.BytesIO(), dpi=30)


# Confusion


def test_confusion_counts_and_shades_by_share_of_the_class() -> None:
    classes = ["b", "b", "b", "b", "a", "a", "a"]
    ax = plot_confusion(classes, [0, 0, 0, 2, 1, 1, -1]).axes[0]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["a", "b"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1\n2", "0\n3", "2\n1", "none\n1"]
    np.testing.assert_allclose(ax.images[0].get_array(), [[2 / 3, 0, 0, 1 / 3], [0, 3 / 4, 1 / 4, 0]])
    assert texts(ax) == ["2", "", "", "1", "", "3", "1", ""]


def test_confusion_takes_classes_of_any_type() -> None:
    ax = plot_confusion(np.array(["x", None, 3], dtype=object), [0, 1, 1]).axes[0]
    assert {tick.get_text() for tick in ax.get_yticklabels()} == {"x", "None", "3"}


# Axes and errors


def test_figures_are_drawn_into_given_axes() -> None:
    figure = Figure(layout="constrained")
    axes = figure.subfigures(1, 2)[1].subplots(5, 1)
    calls: list[Callable[[Any], Figure]] = [
        lambda ax: plot_map(POINTS, LABELS, ax=ax),
        lambda ax: plot_decision_regions(predict_proba, POINTS, resolution=5, ax=ax),
        lambda ax: plot_entropy_map(predict_proba, POINTS, resolution=5, ax=ax),
        lambda ax: plot_confusion(LABELS, LABELS, ax=ax),
        lambda ax: plot_profiles(FEATURES, LABELS, NAMES, ax=ax),
    ]
    for call, ax in zip(calls, axes, strict=True):
        ax.set_title("kept", loc="left")
        assert call(ax) is figure
        assert ax.get_title("left") == "kept"
        assert ax.has_data()


def test_titles_stand_on_the_left() -> None:
    for draw in (FIGURES[name] for name in FIGURES if name != "images"):
        assert all(ax.get_title("left") and not ax.get_title() for ax in draw().axes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_map(FEATURES, LABELS), r"points must be \(n, 2\), but has shape \(60, 5\).*PCA"),
        (lambda: plot_map(np.empty((0, 2)), []), r"\(n, 2\), but has shape \(0, 2\)"),
        (lambda: plot_map([[0, np.nan]], [0]), "missing or infinite values: leave those"),
        (lambda: plot_map(POINTS, LABELS[1:]), "59 labels for 60 samples"),
        (lambda: plot_map(POINTS, LABELS / 2), r"integers from 0, or −1 for none; got float64"),
        (lambda: plot_map(POINTS, LABELS - 2), "integers from 0"),
        (lambda: plot_map(POINTS, LABELS, probabilities=np.ones(60)), r"must be \(60, K\)"),
        (lambda: plot_profiles(FEATURES, LABELS, NAMES[1:]), "d names"),
        (lambda: plot_profiles(FEATURES, LABELS, NAMES, top=0), "top ≥ 1"),
        (lambda: plot_profiles(FEATURES[:0], [], NAMES), r"got \(0, 5\)"),
        (lambda: plot_images(IMAGES[0], LABELS), r"images must be \(n, H, W\).*\(6, 5\)"),
        (lambda: plot_images(IMAGES, LABELS[1:]), "59 labels"),
        (lambda: plot_images(IMAGES, LABELS, classes=LABELS[1:]), "one for each of 60 samples"),
        (lambda: plot_decision_regions(predict_proba, FEATURES), r"X must be \(n, 2\).*two columns"),
        (lambda: plot_decision_regions(predict_proba, POINTS, LABELS[:5]), "5 labels for 60"),
        (lambda: plot_decision_regions(predict_proba, POINTS, resolution=1), "resolution must be at least 2"),
        (lambda: plot_decision_regions(predict_proba, POINTS, margin=-1), "margin at least 0"),
        (lambda: plot_entropy_map(lambda X: X[:, 0], POINTS), r"must be \(10000, K\)"),
        (lambda: plot_entropy_map(predict_proba, POINTS, order=-1), "from 0 to infinity"),
        (lambda: plot_entropy_map(predict_proba, POINTS[:, :1]), r"has shape \(60, 1\)"),
        (lambda: plot_confusion(LABELS[1:], LABELS), r"classes must be \(n,\)"),
        (lambda: plot_confusion([], []), "integers from 0"),
    ],
)
def test_bad_input_is_explained(call: Callable[[], Figure], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_colours_stand_out_from_a_dark_background() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert all(contrast(on_dark(colour), ON_DARK) >= READABLE for colour in colours(60))

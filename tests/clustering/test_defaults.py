"""What a clustering does of which nothing, or only a part, was said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from pollux import MLP, GeminiClustering, Scaling, Training, load
from pollux.data.samples import draw_samples, recognise_samples, select_samples
from pollux.geometry import Features, Mixtures
from pollux.recipes import RECIPES, UNKNOWN, DataKind
from pollux.spec import Spec, flatten_params
from small_models import quick_starts

pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")

random = np.random.default_rng(0)
X = (np.repeat([[0, 0, 0], [9, 0, 0], [0, 9, 0]], 20, axis=0) + random.normal(size=(60, 3))) * [1, 100, 0.1]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Starts that are not as good as they could be."""
    quick_starts(monkeypatch, steps=20)


def bare(**given: Any) -> GeminiClustering:
    return GeminiClustering(3, **{"max_epochs": 2, "random_state": 0, **given})


def test_a_bare_clustering_is_the_recipe_of_its_kind() -> None:
    one, named = bare().fit(X), GeminiClustering.for_tables(3, max_epochs=2, random_state=0).fit(X)
    assert one.recipe_ == "tables"
    assert isinstance(one.geometry_, Mixtures)
    np.testing.assert_array_equal(one.predict_proba(X), named.predict_proba(X))
    pixels = random.random((12, 1, 6, 6))
    images, named = bare(n_init=1).fit(pixels), GeminiClustering.for_images(3, max_epochs=2, n_init=1, random_state=0)
    assert images.recipe_ == "images"
    np.testing.assert_array_equal(images.predict_proba(pixels), named.fit(pixels).predict_proba(pixels))


def encoded_like(n: int, d: int = 64, lengths: tuple[float, float] = (1.0, 1.0)) -> NDArray[np.float64]:
    """Vectors in all directions, of lengths from the first to the second."""
    drawn = np.random.default_rng(1).normal(size=(n, d))
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * np.linspace(*lengths, n)[:, None]


EMBEDDED: dict[str, tuple[NDArray[Any], str]] = {
    "of length one": (encoded_like(30), "embeddings"),
    "of length one, narrow": (encoded_like(30, 63), "tables"),
    "of length one, too few": (encoded_like(19), "tables"),
    "of other lengths": (encoded_like(600, lengths=(2.0, 5.0)), "tables"),
    # The length of a row of standardised columns tells something.
    "standardised": (np.random.default_rng(1).normal(size=(600, 80)), "tables"),
    "of one kind": (np.round(encoded_like(1_000, lengths=(2.0, 5.0)), 1), "images"),
}


@pytest.mark.parametrize("case", EMBEDDED)
@pytest.mark.parametrize("make", [np.asarray, scipy.sparse.csr_array])
def test_embeddings_are_recognised(case: str, make: Any) -> None:
    values, expected = EMBEDDED[case]
    assert recognise_samples(select_samples(make(values), None, "cpu")).recipe == expected


def test_vectors_of_length_one_are_clustered_by_their_angles() -> None:
    # The same vectors in any order of the tests: few short steps do not learn all of them.
    random = np.random.default_rng(0)
    directions = np.repeat(np.eye(3, 64), 20, axis=0) + random.normal(scale=0.02, size=(60, 64))
    found = bare().fit(directions / np.linalg.norm(directions, axis=1, keepdims=True))
    assert found.recipe_ == "embeddings"
    named = GeminiClustering.for_embeddings(3, max_epochs=2, random_state=0)
    # Lengths, which angles do not know, change nothing that the graph sees.
    longer = named.fit(directions * random.uniform(1, 9, size=(60, 1)))
    assert (found.labels_.reshape(3, 20) == found.labels_[::20, None]).all()
    assert (longer.labels_.reshape(3, 20) == longer.labels_[::20, None]).all()


@pytest.mark.parametrize("recipe", RECIPES)
def test_parts_of_training_and_preprocessing_leave_the_rest_to_the_recipe(recipe: str) -> None:
    given = bare(n_init=7, training=Training(patience=3), preprocessing=Scaling("standard"))
    spec, expected = Spec.of(given, DataKind(recipe)), RECIPES[recipe]
    assert spec.recipe == recipe
    assert (spec.n_init, spec.training.patience, spec.preprocessing.scaling) == (7, 3, "standard")
    assert spec.training.schedule == expected["training__schedule"]
    assert spec.max_samples == expected["training__max_samples"]
    assert spec.init == expected["init"]
    # What a user holds is theirs.
    assert (given.training.schedule, given.model) == ("auto", "auto")


@pytest.mark.parametrize(
    "named",
    [{"model": "linear"}, {"objective": "mi"}, {"geometry": "rbf"}, {"init": "random"}, {"penalties": None}],
    ids=str,
)
def test_who_names_a_part_of_the_method_gets_plain_values(named: dict[str, Any]) -> None:
    spec = Spec.of(bare(**named), DataKind("images", 10_000))
    assert spec.recipe is None
    assert (spec.learning_rate, spec.training.schedule, spec.training.trial_epochs) == (0.01, "constant", None)
    assert (spec.n_init, spec.max_samples, spec.penalties) == (5, None, ())
    assert spec.model == named.get("model", "mlp")
    assert spec.objective.name == {"mi": "kl_ova"}.get(named.get("objective", ""), "mmd_ova")
    assert (spec.preprocessing.scaling, spec.preprocessing.missing) == ("auto", "mean")


class Own(nn.Module):
    """A network of the user's, for numbers or for tokens."""

    def __init__(self, is_of_tokens: bool = False) -> None:
        super().__init__()
        self.first = nn.Embedding(50, 3) if is_of_tokens else nn.Identity()
        self.last = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        seen = self.first(x)
        logits: Tensor = self.last(seen.mean(1) if seen.ndim > 2 else seen)
        return logits


class Both(nn.Module):
    """A network of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(6, 3)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        logits: Tensor = self.last(torch.cat([one, other], 1))
        return logits


def test_parameters_of_a_geometry_are_written_behind_its_name() -> None:
    with pytest.raises(ValueError, match=r"'gamma' that can be set alone: .* geometry='rbf:gamma=0\.5'"):
        bare(geometry="rbf").set_params(geometry__gamma=0.7)


def test_values_for_networks_of_the_user_s_are_as_they_are() -> None:
    for model in (Own(), Own, "lenet5", "resnet18"):
        spec = Spec.of(bare(model=model))
        assert (spec.preprocessing.scaling, spec.preprocessing.missing, spec.n_init) == ("none", "error", 1)
    assert bare(model=Own()).fit(X).scaling_ is None
    with pytest.raises(ValueError, match="contains NaN: preprocessing='standard'"):
        bare(model=Own()).fit(np.where(X > 8, np.nan, X))
    tokens = random.integers(0, 50, (30, 4))
    assert bare(model=Own(is_of_tokens=True), objective="mi").fit(tokens).fitted_.takes_integers
    both = bare(model=Both(), objective="mi").fit((X, X))
    assert both.recipe_ is None
    assert both.predict((X, X)).shape == (60,)


def test_gaps_are_filled_and_it_is_known() -> None:
    gaps = X.copy()
    gaps[::7, 1] = np.nan
    for given in ({}, {"model": "linear"}):
        one = bare(**given)
        assert one.__sklearn_tags__().input_tags.allow_nan
        assert one.fit(gaps).fitted_.missing == "mean"
        assert np.isfinite(one.predict_proba(gaps)).all()
        assert one.scaling_ is not None
        # What is masked is missing, whatever it hides.
        masked = np.ma.array(np.nan_to_num(gaps, nan=1e6), mask=np.isnan(gaps))
        np.testing.assert_array_equal(one.predict_proba(masked), one.predict_proba(gaps))
    assert not bare(model=Own()).__sklearn_tags__().input_tags.allow_nan
    assert not bare(preprocessing=None).__sklearn_tags__().input_tags.allow_nan


def test_predictions_resolve_no_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fit has resolved is known."""
    one = bare(model="linear").fit(X)
    expected = one.predict(X)

    def refuse(*_: object) -> None:
        raise AssertionError("parameters are resolved again")

    monkeypatch.setattr("pollux.clustering.choose_parameters", refuse)
    np.testing.assert_array_equal(one.predict(X), expected)
    assert one.__sklearn_tags__().input_tags.allow_nan


def test_every_kind_of_samples_has_a_bare_default(tmp_path: Path) -> None:
    sparse = bare().fit(scipy.sparse.csr_matrix(X))
    assert sparse.recipe_ == "tables"
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    loader: Any = DataLoader(TensorDataset(torch.as_tensor(X, dtype=torch.float32)), batch_size=20)
    for streamed in (tmp_path / "X.npy", loader):
        assert bare().fit(streamed).recipe_ == "tables"
        # Only what a loader gives keeps its units.
        assert (bare(model="linear").fit(streamed).scaling_ is None) == (streamed is loader)
    given = bare().fit(X, affinity=Features(torch.as_tensor(X)))
    assert (given.recipe_, given.fitted_.chosen["objective"], given.fitted_.chosen["n_init"]) == (None, "mmd_ova", 5)
    parts = bare().partial_fit(X[:30]).partial_fit(X[30:])
    assert (parts.recipe_, parts.fitted_.chosen["objective"], parts.n_iter_) == (None, "mmd_ova", 2)
    free = bare(model="free").fit(X)
    assert (free.fitted_.chosen["n_init"], free.scaling_ is None) == (5, False)


def test_what_was_chosen_stays_what_it_is_for(tmp_path: Path) -> None:
    one = bare().fit(X)
    assert one.score(X) == pytest.approx(one.objective_, rel=1e-5)
    assert one.partial_fit(X).recipe_ == "tables"
    one.fit(X).save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.recipe_ == "tables"
    assert again.get_params()["objective"] == "mmd_ovo"
    assert flatten_params(again) == flatten_params(one)
    assert again.score(X) == one.score(X)
    assert clone(one).get_params(deep=False) == bare().get_params(deep=False)


def test_wide_rows_are_of_one_kind_where_their_ranges_are_alike() -> None:
    wide = random.random((1_000, 64))
    assert recognise_samples(select_samples(wide, None, "cpu")) == DataKind("images", 1_000, False)
    assert recognise_samples(select_samples(wide * np.arange(1, 65) ** 2, None, "cpu")).recipe == "tables"
    assert recognise_samples(select_samples(wide[:999], None, "cpu")).recipe == "tables"
    assert recognise_samples(select_samples(scipy.sparse.csr_matrix(wide), None, "cpu")).recipe == "images"


def test_drawn_samples_follow_the_seed() -> None:
    samples = select_samples(X, None, "cpu")
    one, same, other = (draw_samples(samples, 20, seed).X for seed in (1, 1, 2))  # type: ignore[union-attr]
    assert (one == same).all()
    assert not (one == other).all()
    fits = [bare(model="linear", random_state=seed, training=Training(max_samples=30)).fit(X) for seed in (0, 0, 1)]
    first, second, third = (fit.scaling_.centre for fit in fits)  # type: ignore[union-attr]
    assert torch.equal(first, second)
    assert not torch.equal(first, third)


def test_a_layer_that_is_named_makes_the_model_one_s_own() -> None:
    one = bare().set_params(model__hidden=(5,))
    assert isinstance(one.model, MLP)
    assert Spec.of(one, UNKNOWN).recipe is None


def test_the_number_of_clusters_may_be_left_to_us(tmp_path: Path) -> None:
    found = GeminiClustering("auto", max_epochs=2, random_state=0).fit(X)
    assert found.n_clusters_ == found.selection_.n_clusters == len(found.fitted_.order) == 3
    assert found.selection_.is_clear
    assert found.fitted_.chosen["n_clusters"] == 3
    assert np.isfinite(found.score(X))
    found.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.n_clusters == 3
    np.testing.assert_array_equal(loaded.predict(X), found.labels_)
    assert found.partial_fit(X).n_clusters_ == 3
    # It is sought anew for other samples.
    assert found.fit(X[:40]).n_clusters_ == 2


def test_a_few_samples_do_not_tell_the_number_of_clusters() -> None:
    with pytest.raises(ValueError, match="say n_clusters"):
        GeminiClustering(n_clusters="auto").partial_fit(X)
    with pytest.raises(ValueError, match="a single input"):
        GeminiClustering("auto").fit(X, affinity=X @ X.T)
    known = np.full(len(X), -1)
    known[0] = 7
    assert len(GeminiClustering("auto", max_epochs=2, random_state=0).fit(X, known=known).fitted_.order) >= 8


def test_restarts_that_start_at_the_same_clusters_are_one() -> None:
    clustering = GeminiClustering.for_tables(3, random_state=0).fit(X)
    assert clustering.stability_ == 1
    assert clustering.n_iter_ < 200

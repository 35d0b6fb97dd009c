"""``pollux embed``: vectors of a column or a folder, in a file that ``pollux fit`` reads."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

from commands import good, refused, summary_of
from pollux import GeminiClustering
from pollux.embedding import ENCODERS, Encoder
from pollux.embedding import encoders as own_encoders

random = np.random.default_rng(0)
WORDS = ("apples", "trains", "banks")
TOPICS = random.normal(size=(3, 64))


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[int]:
    """An encoder of texts by their topic, and one of pictures by their colour; how many each call had."""
    calls: list[int] = []

    def encode(texts: list[str]) -> np.ndarray:
        calls.append(len(texts))
        return np.array([TOPICS[int(text[:1] or 0)] + 0.1 * np.cos(np.arange(64) * len(text)) for text in texts])

    def colour(pictures: list[np.ndarray]) -> np.ndarray:
        calls.append(len(pictures))
        assert pictures[0].shape == (3, 224, 224)
        return np.array([picture.reshape(3, -1).mean(1) + 1 for picture in pictures])

    monkeypatch.setitem(ENCODERS, "wordllama", lambda: Encoder("wordllama", encode, "texts", 64, "topics"))
    monkeypatch.setitem(
        ENCODERS, "efficientnet-lite0", lambda: Encoder("efficientnet-lite0", colour, "pictures", 64, "colours")
    )
    monkeypatch.setattr(own_encoders, "cache_folder", lambda: tmp_path / "cache")
    return calls


def reviews(n: int = 60) -> pd.DataFrame:
    texts = [f"{i % 3} about {WORDS[i % 3]}, and {'again ' * (1 + i // 3)}" for i in range(n)]
    return pd.DataFrame({"stars": np.arange(n), "review": texts})


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_column_of_texts_becomes_vectors_that_are_clustered(suffix: str, letters: list[int]) -> None:
    table = reviews()
    table.to_csv("r.csv", index=False) if suffix == "csv" else table.to_parquet("r.parquet")
    answer = good("embed", f"r.{suffix}", "--keep", "stars", "--out", "e.parquet")
    assert "60 vectors written to e.parquet" in answer.out
    written = pq.read_table("e.parquet").to_pandas()
    assert list(written.columns[:4]) == ["review", "stars", "e00", "e01"]
    assert written["review"].tolist() == table["review"].tolist()
    np.testing.assert_allclose(np.linalg.norm(written.iloc[:, 2:], axis=1), 1, atol=1e-5)
    again = len(letters)
    good("embed", f"r.{suffix}", "--text", "review", "--out", "again.parquet")
    assert len(letters) == again
    good("embed", f"r.{suffix}", "--text", "review", "--no-cache", "--out", "again.parquet")
    assert len(letters) > again
    good("fit", "e.parquet", "--drop", "stars", "--clusters", 3, "--epochs", 2, "--out", "run")
    assert summary_of("run")["recipe"] == "embeddings"
    clusters = summary_of("run")["clusters"]
    assert [cluster["rows"] for cluster in clusters] == [20, 20, 20]
    # Words of the texts, which the file has beside their vectors, name clusters.
    assert {cluster["name"].split(", ")[0].split()[0] for cluster in clusters} == set(WORDS)


def test_a_gap_is_an_empty_text() -> None:
    table = reviews(4)
    table.loc[1, "review"] = None
    table.to_parquet("r.parquet")
    good("embed", "r.parquet", "--out", "e.csv")
    assert len(pd.read_csv("e.csv")) == 4


def test_empty_and_repeated_texts_change_nothing_of_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    encode = ENCODERS["wordllama"]().encode
    silent = Encoder("wordllama", lambda texts: np.array(encode(texts)) * np.array([[bool(t)] for t in texts]), "texts")
    monkeypatch.setitem(ENCODERS, "wordllama", lambda: silent)
    table = reviews()
    table.loc[4, "review"], table.loc[7, "review"] = "", table.loc[10, "review"]
    table.to_csv("r.csv", index=False)
    good("embed", "r.csv", "--out", "e.parquet")
    for words in (["r.csv", "--text", "review"], ["e.parquet"]):
        good("fit", *words, "--clusters", 3, "--epochs", 2, "--out", "run", "--overwrite")
        assert summary_of("run")["recipe"] == "embeddings"
        assert {each["name"].split(", ")[0].split()[0] for each in summary_of("run")["clusters"]} == set(WORDS)


def test_a_column_of_sentences_that_is_not_used_says_how_it_could_be() -> None:
    reviews().to_csv("r.csv", index=False)
    assert (
        "to cluster by what its texts say: --text review" in good("fit", "r.csv", "--use", "stars", "--clusters", 2).out
    )


def test_a_column_of_texts_that_is_dropped_is_not_clustered() -> None:
    table = reviews()
    table["stars"] = [f"s{i}x" for i in range(len(table))]
    table.to_csv("r.csv", index=False)
    assert "texts of 'review' are clustered" in good("fit", "r.csv", "--clusters", 2, "--out", "run").out
    answer = refused("fit", "r.csv", "--clusters", 2, "--drop", "review")
    assert "stars" in answer
    assert "--text" not in answer


def test_pictures_of_a_folder_become_vectors() -> None:
    Path("photos/a").mkdir(parents=True)
    for name, colour in (("a/red.png", (255, 0, 0)), ("blue.png", (0, 0, 255)), ("grey.png", (90, 90, 90))):
        Image.new("RGB", (30, 20), colour).save(Path("photos") / name)
    (Path("photos") / "broken.png").write_bytes(b"no picture")
    answer = good("embed", "photos", "--out", "e.parquet")
    assert "broken.png" in answer.out + answer.err
    written = pq.read_table("e.parquet").to_pandas().set_index("file")
    assert sorted(written.index) == ["a/red.png", "blue.png", "grey.png"]
    assert written.loc["a/red.png"].to_numpy().argmax() == 0
    assert written.loc["blue.png"].to_numpy().argmax() == 2
    good("fit", "e.parquet", "--clusters", 2, "--epochs", 2, "--out", "run")
    good("predict", "run", "photos", "--out", "p.csv")
    assert pd.read_csv("p.csv")["cluster"].tolist() == pd.read_csv("run/clusters.csv")["cluster"].tolist()


@pytest.mark.parametrize(
    ("encoder", "message"),
    [(Encoder("wordllama", np.array, "texts", 64, "newer"), "another version here"), (None, "not one of Pollux's own")],
)
def test_new_texts_need_the_encoder_of_training(
    monkeypatch: pytest.MonkeyPatch, encoder: Encoder | None, message: str
) -> None:
    reviews().to_csv("r.csv", index=False)
    good("fit", "r.csv", "--text", "review", "--clusters", 3, "--epochs", 2)
    if encoder is None:
        summary = Path("runs/r/summary.json")
        summary.write_text(summary.read_text().replace('"encoder": "wordllama"', '"encoder": "/some/folder"'))
    else:
        monkeypatch.setitem(ENCODERS, "wordllama", lambda: encoder)
    assert message in refused("predict", "runs/r", "r.csv")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["r.csv", "--text", "reviews"], "review"),
        (["r.csv", "--text", "review", "--keep", "star"], "stars"),
        (["two.csv"], "several columns of text (review, title): name the one to encode, --text COLUMN"),
        (["numbers.csv"], "no column of text"),
        (["a.npy"], "array of numbers, which has no texts"),
        (["r.csv", "--encoder", "efficientnet-lite0"], "efficientnet-lite0 is for pictures"),
        (["r.csv", "--encoder", "nobody"], "Unknown encoder 'nobody'"),
        (["r.csv", "--batch-size", "0"], "positive number of samples"),
        (["no.csv"], "There is no file no.csv"),
    ],
)
def test_what_cannot_be_embedded_is_refused(words: list[str], message: str) -> None:
    reviews(6).to_csv("r.csv", index=False)
    reviews(6).assign(title=list("abcdef")).to_csv("two.csv", index=False)
    pd.DataFrame({"x": [1.0, 2.0]}).to_csv("numbers.csv", index=False)
    np.save("a.npy", np.zeros((4, 3)))
    assert message in refused("embed", *words, "--out", "e.parquet")
    assert not Path("e.parquet").exists()


def test_a_table_of_texts_is_clustered_by_the_shortest_command() -> None:
    table = reviews().assign(id=np.arange(100, 160), topic=[WORDS[i % 3] for i in range(60)])[["id", "review", "topic"]]
    table[["id", "review"]].to_csv("r.csv", index=False)
    table.to_csv("classes.csv", index=False)
    answer = good("fit", "r.csv", "--clusters", 3, "--epochs", 2)
    assert (
        "texts of 'review' are clustered by the vectors of wordllama, which go to runs/r.vectors.parquet" in answer.out
    )
    summary = summary_of("runs/r")
    assert summary["recipe"] == "embeddings"
    assert {cluster["name"].split(", ")[0].split()[0] for cluster in summary["clusters"]} == set(WORDS)
    # The table and the page are about the file of the texts.
    assert "  review     text      by its vectors, e00 … e63 (wordllama)\n" in answer.out
    assert "  id         not used  texts are clustered by their vectors alone\n" in answer.out
    assert "60 rows, 64 features: e00, e01" in answer.out
    good("report", "runs/r")
    assert "<title>r.csv" in Path("runs/r/report.html").read_text()
    good("embed", "r.csv", "--text", "review", "--out", "new.parquet")
    good("predict", "runs/r", "new.parquet", "--out", "p.csv")
    assert sorted(pd.read_csv("p.csv")["cluster"].value_counts()) == [20, 20, 20]
    # New texts become vectors as those of training did.
    good("predict", "runs/r", "classes.csv", "--id", "topic", "--out", "q.csv")
    found = pd.read_csv("q.csv")
    assert found["cluster"].tolist() == pd.read_csv("p.csv")["cluster"].tolist()
    assert found["topic"].tolist() == table["topic"].tolist()
    good("predict", "runs/r", "classes.csv", "--with-data", "--out", "d.csv")
    assert "e00" not in pd.read_csv("d.csv").columns
    pd.DataFrame({"x": [1.0]}).to_csv("other.csv", index=False)
    assert "neither texts (in a column 'review') nor their vectors" in refused("predict", "runs/r", "other.csv")
    # Columns that are named stay beside the vectors; vectors of an earlier run stay where they are.
    good(
        "fit", "classes.csv", "--text", "review", "--label", "topic", "--clusters", 3, "--epochs", 2, "--out", "runs/r2"
    )
    assert summary_of("runs/r2")["scores"]["adjusted_rand_index"] == 1
    good("fit", "r.csv", "--text", "review", "--clusters", 3, "--epochs", 2)
    assert Path("runs/r-2.vectors.parquet").exists()


def beside_texts() -> pd.DataFrame:
    shops = [["north", "south"][i % 2] for i in range(60)]
    return reviews().assign(
        shop=shops, stars=np.arange(60) % 5, day=pd.date_range("2024-01-01", periods=60).astype(str)
    )


def test_texts_beside_which_little_is_are_clustered_by_the_shortest_command() -> None:
    beside_texts().to_csv("r.csv", index=False)
    answer = good("fit", "r.csv", "--clusters", 3, "--epochs", 2)
    said = "which go to runs/r.vectors.parquet; by the other columns: --use stars,shop,day"
    assert answer.out.startswith("texts of 'review' are clustered by the vectors of wordllama, ")
    assert said in answer.out
    assert summary_of("runs/r")["recipe"] == "embeddings"
    answer = good("select", "r.csv", "--to", 3, "--subsamples", 3)
    assert answer.out.startswith("texts of 'review' are clustered by the vectors of wordllama, ")
    answer = good("fit", "r.csv", "--use", "stars,shop,day", "--clusters", 3, "--epochs", 2, "--out", "others")
    assert "vectors of" not in answer.out
    answer = good("fit", "r.csv", "--drop", "shop", "--clusters", 3, "--epochs", 2, "--out", "dropped")
    assert answer.out.startswith("texts of 'review' are clustered by the vectors of wordllama, ")
    assert "by the other columns: --use stars,day" in answer.out
    answer = good("fit", "r.csv", "--drop", "review", "--clusters", 3, "--epochs", 2, "--out", "without")
    assert "vectors of" not in answer.out
    beside_texts().assign(price=np.arange(60) / 7).to_csv("p.csv", index=False)
    answer = good("fit", "p.csv", "--clusters", 3, "--epochs", 2)
    assert "vectors of" not in answer.out
    assert "to cluster by what its texts say: --text review" in answer.out


def test_without_an_encoder_texts_beside_which_little_is_are_named_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODERS, "wordllama", own_encoders._wordllama)
    monkeypatch.setitem(sys.modules, "wordllama", None)
    beside_texts().to_csv("r.csv", index=False)
    answer = good("fit", "r.csv", "--clusters", 2, "--epochs", 2)
    said = answer.err.splitlines()[0]
    assert "the texts of 'review' tell more than the other columns, which are used alone" in said
    assert "pip install 'pollux[texts]'" in said
    assert "There is no column 'reviw' (--text)" in refused("select", "r.csv", "--text", "reviw")


def test_the_number_of_kinds_of_texts_is_found_by_their_vectors() -> None:
    reviews().to_csv("r.csv", index=False)
    answer = good("select", "r.csv", "--to", 4, "--subsamples", 3)
    assert "texts of 'review' are clustered by the vectors of wordllama" in answer.out
    assert "3 clusters: subsamples agree on them" in answer.out
    # The texts are not encoded again.
    assert "next: pollux fit selections/r.vectors.parquet --kinds id review --n-clusters 3" in answer.out
    assert Path("selections/r/selection.json").exists()
    good("select", "r.csv", "--text", "review", "--to", 3, "--subsamples", 3, "--out", "s")
    assert Path("s.vectors.parquet").exists()
    assert "There is no column 'other' (--text)" in refused("select", "r.csv", "--text", "other")


def test_what_is_known_stays_beside_the_vectors() -> None:
    topics = [WORDS[i % 3] if i < 12 else None for i in range(60)]
    reviews().assign(topic=topics)[["review", "topic"]].to_csv("r.csv", index=False)
    good("fit", "r.csv", "--text", "review", "--known", "topic", "--clusters", 3, "--epochs", 2, "--out", "run")
    assert summary_of("run")["known"] == sorted(WORDS)


@pytest.mark.parametrize("role", ["--known", "--label"])
def test_what_is_wrong_is_said_before_texts_are_encoded(role: str, letters: list[int]) -> None:
    reviews(6).to_csv("r.csv", index=False)
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    fit = ("fit", "r.csv", "--text", "review", "--clusters", 2)
    assert "not empty" in refused(*fit, "--out", "full")
    assert f"There is no column 'topic' ({role})" in refused(*fit, role, "topic", "--out", "new")
    assert "There is no column 'reviw' (--text)" in refused("fit", "r.csv", "--text", "reviw", "--clusters", 2)
    assert letters == []


def test_without_an_encoder_the_command_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENCODERS, "wordllama", own_encoders._wordllama)
    monkeypatch.setitem(sys.modules, "wordllama", None)
    reviews()[["review"]].to_csv("r.csv", index=False)
    message = refused("fit", "r.csv", "--clusters", 3)
    assert "The column 'review' holds texts, which must become vectors." in message
    assert "pip install 'pollux[texts]'" in message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["r.csv", "--text", "review", "--use", "stars"], "leave out --columns and --use. To use other"),
        (["r.csv", "--text", "review", "--drop", "starz"], "There is no column 'starz' (--drop)"),
        (["r.csv", "--text", "review", "--drop", "review"], "The texts of 'review' are what is clustered (--text)"),
        (["r.csv", "--encoder", "minilm"], "name their column too, --text COLUMN"),
        (["codes.csv"], "No column is left to cluster by"),
    ],
)
def test_texts_that_cannot_be_clustered_are_refused(words: list[str], message: str) -> None:
    reviews(6).to_csv("r.csv", index=False)
    pd.DataFrame({"code": [f"k{i}" for i in range(40)]}).to_csv("codes.csv", index=False)
    assert message in refused("fit", *words)


def test_columns_beside_vectors_are_used_where_they_are_asked_for() -> None:
    table = reviews().assign(topic=[WORDS[i % 3] for i in range(60)], half=[i // 30 for i in range(60)])
    table.to_csv("r.csv", index=False)
    good("embed", "r.csv", "--text", "review", "--keep", "topic,half", "--out", "e.parquet")
    fit = ("fit", "e.parquet", "--clusters", 3, "--epochs", 2, "--overwrite", "--out", "run")
    answer = good(*fit).out
    assert summary_of("run")["recipe"] == "embeddings"
    assert "  half       not used  it stands beside vectors (--use half takes it too)\n" in answer
    assert "  review     text      by its vectors, e00 … e63 (wordllama)\n" in answer
    # Neither their units nor single ones of their numbers tell something.
    assert "--scaling" not in answer
    assert "to change this" not in answer
    assert "the numbers of vectors mean nothing by themselves" in refused("explain", "run")
    good(*fit, "--label", "topic")
    assert summary_of("run")["scores"]["adjusted_rand_index"] == 1
    used = good(*fit, "--use", "half").out
    assert "  half       number" in used
    assert "by its vectors, e00 … e63 (wordllama)" in used


def test_columns_beside_vectors_are_known_in_any_file_and_in_python() -> None:
    table = reviews().assign(half=[i // 30 for i in range(60)])
    table.to_csv("r.csv", index=False)
    for out in ("e.csv", "e.parquet"):
        good("embed", "r.csv", "--text", "review", "--keep", "half", "--out", out)
    answer = good("fit", "e.csv", "--clusters", 3, "--epochs", 2, "--out", "run").out
    assert "  half       not used  it stands beside vectors (--use half takes it too)\n" in answer
    numbers = pd.read_csv("e.csv").drop(columns="review")
    for X in ("e.parquet", pd.read_parquet("e.parquet"), numbers):
        clustering = GeminiClustering(3, max_epochs=2, random_state=0).fit(X)
        assert [(each.name, each.reason) for each in clustering.columns_ if each.name == "half"] == [
            ("half", "it stands beside vectors")
        ]
        assert clustering.encoding_ is not None
        assert len(clustering.encoding_.names) == 64
    # Columns of such names that are not of length one are measurements.
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 64)), columns=[f"e{i:02}" for i in range(64)])
    measured = GeminiClustering(2, max_epochs=1).fit(wide.assign(half=table["half"][:40]))
    assert measured.encoding_ is not None
    assert "half" in measured.encoding_.names


def test_folders_of_pictures_stay_beside_their_vectors() -> None:
    for name, colour in (("red", (255, 0, 0)), ("blue", (0, 0, 255))):
        Path("photos", name).mkdir(parents=True)
        for i in range(4):
            Image.new("RGB", (30, 20), colour).save(Path("photos", name, f"{i}.png"))
    good("embed", "photos", "--keep", "folder", "--out", "e.parquet")
    good("fit", "e.parquet", "--label", "folder", "--clusters", 2, "--epochs", 2, "--out", "run")
    assert summary_of("run")["scores"]["adjusted_rand_index"] == 1
    assert "There is no column 'size' (--keep)" in refused("embed", "photos", "--keep", "size", "--out", "f.parquet")


def test_reports_take_new_texts_as_predictions_do() -> None:
    reviews().to_csv("r.csv", index=False)
    reviews(30).to_csv("new.csv", index=False)
    good("fit", "r.csv", "--text", "review", "--clusters", 3, "--epochs", 2, "--out", "run")
    good("report", "run", "new.csv", "--out", "new.html")
    assert "<title>new.csv" in Path("new.html").read_text()
    good("report", "run", "--against", "new.csv")
    assert "Beside new.csv" in Path("run/report.html").read_text()
    pd.DataFrame({"x": [1.0]}).to_csv("other.csv", index=False)
    assert "neither texts (in a column 'review')" in refused("report", "run", "other.csv")


def test_pictures_of_vectors_are_read_for_predictions_and_pages() -> None:
    Path("photos").mkdir()
    for i, colour in enumerate(("red", "blue", "grey")):
        Image.new("RGB", (30, 20), colour).save(f"photos/{i}.png")
    Path("photos/broken.png").write_bytes(b"no picture")
    good("embed", "photos", "--out", "e.parquet")
    good("fit", "e.parquet", "--clusters", 2, "--epochs", 2, "--out", "run")
    answer = good("predict", "run", "photos", "--out", "p.csv")
    assert "1 of the pictures cannot be read and was left out: broken.png" in answer.err
    # The vectors do not show what they are of; the folder does.
    assert "pollux report run FOLDER shows them" in good("report", "run").err
    assert "data:image" not in Path("run/report.html").read_text()
    assert "FOLDER" not in good("report", "run", "photos").err
    assert "data:image" in Path("run/report.html").read_text()

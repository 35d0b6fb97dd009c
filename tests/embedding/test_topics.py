"""Names of clusters of texts."""

from __future__ import annotations

import pandas as pd
import pytest

import pollux
from pollux.embedding import topics
from pollux.errors import InputError

CATS = ["The cat sleeps.", "A cat chases mice.", "Cats and mice at home.", "The cat is at home."]
BANKS = ["The bank raised interest rates.", "Interest rates of the bank fell.", "A bank in the city.", "Rates rise."]
LABELS = [0] * 4 + [2] * 4


def test_terms_tell_clusters_apart_and_repeat_nothing() -> None:
    cats, banks = pollux.name_clusters(LABELS, [*CATS, *BANKS])
    assert (cats.cluster, banks.cluster) == (0, 2)
    assert cats.terms[0] == "cat"
    # The plural of a term, and a pair with a word of it, say nothing new.
    assert "cats" not in cats.terms
    words = [word for term in banks.terms for word in term.split()]
    assert len(words) == len(set(words))
    assert {"bank", "interest", "rates"} & set(words)
    assert cats.name == ", ".join(cats.terms)
    assert set(cats.texts) <= set(CATS)
    assert len(cats.texts) == 3


def test_rows_without_a_cluster_and_further_copies_change_nothing() -> None:
    plain = pollux.name_clusters(LABELS, [*CATS, *BANKS])
    noisy = pollux.name_clusters([*LABELS, -1, -1], [*CATS, *BANKS, "noise noise", "bank bank"])
    assert noisy == plain
    (found,) = pollux.name_clusters([0] * 6, ["one apple"] * 5 + ["another apple"], n_texts=3)
    assert found.texts == ("one apple", "another apple") or set(found.texts) == {"one apple", "another apple"}


def test_a_word_that_one_text_repeats_names_nothing() -> None:
    texts = [
        "spam " * 50,
        "green apples grow",
        "apples and pears",
        "red apples",
        "trains run",
        "a train late",
        "trains",
    ]
    fruit, _ = pollux.name_clusters([0, 0, 0, 0, 1, 1, 1], texts)
    assert fruit.terms == ("apples",)


@pytest.mark.parametrize("texts", [["", " "], ["the and", "of"], ["12 34", "--"]])
def test_texts_without_words_have_no_name(texts: list[str]) -> None:
    assert [topic.name for topic in pollux.name_clusters([0, 1], texts)] == ["", ""]


def test_each_text_has_a_label() -> None:
    with pytest.raises(InputError, match="one label for each"):
        pollux.name_clusters([0, 1], ["a text"])


def test_texts_of_pandas_are_taken_in_their_order() -> None:
    texts = pd.Series([*CATS, *BANKS], index=range(7, -1, -1))
    assert pollux.name_clusters(LABELS, texts) == pollux.name_clusters(LABELS, [*CATS, *BANKS])


def test_what_all_speak_of_names_no_cluster_unless_there_is_nothing_else() -> None:
    texts = [f"unto shall {word}" for word in ["sheep", "sheep", "goat", "goat"] * 5]
    named = pollux.name_clusters([0, 0, 1, 1] * 5, texts)
    assert [topic.terms[0].split()[-1] for topic in named] == ["sheep", "goat"]
    assert not any("unto" in topic.terms or "shall" in topic.terms for topic in named)
    assert pollux.name_clusters([0, 1, 0, 1], ["unto shall"] * 4)[0].name


def test_half_a_word_names_nothing() -> None:
    texts = ["I don't like trains", "we don’t like trains", "the bank's rates", "a bank, and rates"]
    named = pollux.name_clusters([0, 0, 1, 1], texts, n_terms=9)
    assert not any("don" in term.split() for topic in named for term in topic.terms)
    assert "bank" in named[1].terms


def test_texts_are_drawn_at_random_whatever_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_MOST_TEXTS", 50)
    texts = ["the cat sat down", "rates of banks"] * 100
    assert [topic.cluster for topic in pollux.name_clusters([0, 1] * 100, texts)] == [0, 1]

"""The answer from the metrics of the candidates, and how it is shown."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from pollux import Selection
from pollux.selection import Candidate
from pollux.selection.result import CLEAR, decide


def candidate(n_clusters: int, score: float, **changes: Any) -> Candidate:
    metrics: dict[str, Any] = {field.name: 0.5 for field in dataclasses.fields(Candidate)}
    metrics |= {"n_clusters": n_clusters, "score": score, "in_use": float(n_clusters), "adjusted_rand_index": None}
    return Candidate(**(metrics | changes))


def test_the_finest_clear_candidate_that_is_not_much_worse_than_the_best_is_chosen() -> None:
    assert decide([candidate(2, 1.0), candidate(3, 0.7), candidate(5, 0.61), candidate(6, 0.59)]).n_clusters == 5
    assert decide([candidate(2, CLEAR + 0.01), candidate(3, CLEAR - 0.01)]).n_clusters == 2
    assert decide([candidate(2, CLEAR - 0.01), candidate(3, 0.1)])[:2] == (1, "none")
    assert "agree on little" in decide([candidate(2, 0.3, separation=0.9, stability=0.3)]).reason
    assert "little room" in decide([candidate(2, 0.32, separation=0.4, stability=0.8)]).reason
    assert "4 clusters" in decide([candidate(2, 0.0, stability=0.1), candidate(4, 0.0, stability=0.9)]).reason


def test_without_gaps_the_most_stable_of_the_likely_is_chosen() -> None:
    touching = [candidate(2, 0.1, stability=0.99), candidate(3, 0.1, stability=0.8), candidate(4, 0.1, stability=0.9)]
    found = decide(touching, (3, 4), 0.01)
    assert found[:2] == (4, "likely")
    assert "Mixtures speak for 3 to 4" in found.reason
    assert "a null model of one cluster explains the data as well" in decide(touching).reason


def test_a_coarse_view_that_explains_little_gives_way() -> None:
    coarse = [candidate(2, 0.5, gain=0.1), candidate(6, 0.2, gain=1.0)]
    assert decide(coarse, (6, 6)).n_clusters == 6
    assert "gaps between 2 groups" in decide(coarse, (6, 6)).reason
    assert decide(coarse).n_clusters == 2
    assert decide([candidate(2, 0.9, gain=0.1), *coarse[1:]], (6, 6)).n_clusters == 2


def test_groups_far_apart_that_explain_little_give_way_to_clear_clusters_within_them() -> None:
    far = candidate(2, 0.9, gain=1.7)
    assert decide([far, candidate(5, 0.3, gain=5.0), candidate(8, 0.45, gain=5.6)], (8, 9))[:2] == (8, "clear")
    # Where the clusters within are not clear, or the groups explain much, it is the groups.
    assert decide([far, candidate(8, 0.35, gain=5.6)], (8, 9))[:2] == (2, "clear")
    assert decide([candidate(2, 0.9, gain=4.0), candidate(8, 0.45, gain=5.6)], (8, 9))[:2] == (2, "clear")


def test_a_candidate_that_leaves_clusters_empty_stands_for_fewer() -> None:
    filled = [candidate(2, 0.5), candidate(3, 0.99), candidate(8, 1.0, in_use=3.0)]
    assert decide(filled).n_clusters == 3
    assert decide([candidate(8, 1.0, in_use=3.0)]).n_clusters == 3


def test_the_largest_candidate_is_told_to_be_so() -> None:
    assert "try larger ones" in decide([candidate(2, 0.5), candidate(3, 1.0)]).reason
    assert "try larger ones" not in decide([candidate(2, 1.0), candidate(3, 0.5)]).reason
    assert "into 2 groups" in decide([candidate(2, 1.0), candidate(3, 1.0), candidate(4, 0.5)]).reason


def test_the_table_tells_all(found: Selection) -> None:
    lines = str(found).splitlines()
    assert lines[0].split()[:2] == ["clusters", "stability"]
    assert lines[0].endswith("ARI")
    assert [line.endswith("←") for line in lines[1:3]] == [True, False]
    assert lines[-1] == found.reason
    assert found.as_markdown().count("**3**") == 1


def test_metrics_are_given_as_json_and_csv(found: Selection, noise: Selection) -> None:
    content = json.loads(found.as_json())
    assert content["n_clusters"] == 3
    assert content["candidates"][0]["score"] == found[3].score
    assert {int(used): count for used, count in content["in_use"].items()} == found.in_use
    header, *rows = found.as_csv().splitlines()
    assert header.split(",")[0] == "n_clusters"
    assert len(rows) == 2
    assert "adjusted_rand_index" in header
    assert "adjusted_rand_index" not in noise.as_csv()


@pytest.mark.parametrize("name", ["answer.png", "answer.svg"])
def test_the_figure_is_drawn(found: Selection, noise: Selection, tmp_path: Path, name: str) -> None:
    figure = found.plot(tmp_path / name)
    assert (tmp_path / name).stat().st_size > 5_000
    assert figure.get_suptitle() == "3 clusters"
    assert noise.plot().get_suptitle() == "No clear structure"


def test_an_unknown_candidate_is_named(found: Selection) -> None:
    with pytest.raises(KeyError, match="9 is not among"):
        found[9]

"""Model files that earlier code wrote load, and predict what that code predicted."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

from pollux import GeminiClustering, load

GOLDEN = Path(__file__).parent / "golden"
FOLDERS = sorted(folder.name for folder in GOLDEN.iterdir() if folder.is_dir())
FILES = sorted(str(path.relative_to(GOLDEN)) for path in GOLDEN.glob("*/*.pollux"))

# Sums of a few products of order 10 in single precision, stored with eight digits; an objective adds 900 pairs.
TOLERANCE = 1e-5
OBJECTIVE_TOLERANCE = 1e-4


@pytest.fixture(params=FILES)
def golden(request: pytest.FixtureRequest) -> tuple[GeminiClustering, dict[str, Any]]:
    path = GOLDEN / request.param
    return load(path), json.loads((path.parent / "expected.json").read_text())[path.stem]


def samples(rows: Any) -> Any:
    return pd.DataFrame(rows) if isinstance(rows, dict) else np.asarray(rows)


def test_predictions_are_those_of_the_code_that_wrote_the_file(
    golden: tuple[GeminiClustering, dict[str, Any]],
) -> None:
    clustering, expected = golden
    assert clustering.n_clusters_ == expected["n_clusters"]
    assert clustering.n_iter_ == len(clustering.history_["objective"]) == expected["n_iter"]
    assert clustering.objective_ == pytest.approx(expected["objective"], rel=1e-7)
    if "labels" in expected:
        np.testing.assert_array_equal(clustering.labels_, expected["labels"])
    if "known_probabilities" in expected:
        np.testing.assert_allclose(clustering.probabilities_, expected["known_probabilities"], atol=TOLERANCE)
    if "rows" in expected:
        X = samples(expected["rows"])
        np.testing.assert_allclose(clustering.predict_proba(X), expected["probabilities"], atol=TOLERANCE)
        np.testing.assert_array_equal(clustering.predict(X), expected["predicted"])
    # The first files of version 1 do not say whether their geometry is the one of the parameters.
    if "score" in expected and clustering.geometry_ is None and clustering.objective != "mi":
        with pytest.raises(ValueError, match="geometry"):
            clustering.score(X)
    elif "score" in expected:
        assert clustering.score(X) == pytest.approx(expected["score"], rel=OBJECTIVE_TOLERANCE)


def test_a_loaded_model_is_written_again_in_the_present_format(
    golden: tuple[GeminiClustering, dict[str, Any]], tmp_path: Path
) -> None:
    clustering, expected = golden
    clustering.save(tmp_path / "again.pollux")
    again = load(tmp_path / "again.pollux")
    if "rows" in expected:
        X = samples(expected["rows"])
        np.testing.assert_array_equal(again.predict_proba(X), clustering.predict_proba(X))
    else:
        np.testing.assert_array_equal(again.probabilities_, clustering.probabilities_)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_folder_of_a_format_holds_files_of_it(folder: str) -> None:
    paths = sorted((GOLDEN / folder).glob("*.pollux"))
    expected = json.loads((GOLDEN / folder / "expected.json").read_text())
    assert [path.stem for path in paths] == sorted(expected)
    for path in paths:
        with safe_open(path, framework="pt") as file:
            assert file.metadata()["version"] == folder.partition("-")[0]

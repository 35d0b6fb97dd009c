"""All of scikit-learn's conventions, for every kind of model and of objective; none is expected to fail."""

import os
import subprocess
import sys
from typing import Any

import pytest
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_dense_data as on_dense_data
from sklearn.utils.estimator_checks import check_sample_weight_equivalence_on_sparse_data as on_sparse_data
from sklearn.utils.estimator_checks import parametrize_with_checks

from coverings import IS_FULL, in_full
from pollux import GeminiClustering

# Small and odd data do fall into one cluster; that it is said so has a test of its own.
pytestmark = pytest.mark.filterwarnings("ignore::pollux.clustering.CollapseWarning")

# Conventions that a model breaks it breaks for any objective: each is there, but not each with each.
KINDS = [("mlp", "mmd_ova")]
KINDS += (
    [("free", "wasserstein_ova"), ("linear", "mmd_ovo"), ("mlp", "kl_ova"), ("kernel", "mmd_ova")] if IS_FULL else []
)

# The checks fit some sixty times for each estimator. The most demanding of them wants three blobs found with an
# adjusted Rand index of 0.4: twenty long steps do it for every objective, in a third of the time of sixty.
ESTIMATORS = [
    GeminiClustering(3, model=model, objective=objective, max_epochs=20, learning_rate=0.05, random_state=0)
    for model, objective in KINDS
]
# All that is named above composes the method: this one is the recipe.
ESTIMATORS += [GeminiClustering(random_state=0)] if IS_FULL else []


@parametrize_with_checks(ESTIMATORS)
def test_every_check_of_scikit_learn_passes(estimator: GeminiClustering, check) -> None:
    check(estimator)


@pytest.mark.parametrize("check", [on_dense_data, on_sparse_data])
def test_samples_of_the_default_are_equal_by_weight_and_by_number(check) -> None:
    check("GeminiClustering", GeminiClustering(random_state=0))


@in_full
def test_the_check_that_needs_scipys_array_api_passes() -> None:
    # Skipped above: scipy reads this switch when it is imported, so the check needs a process of its own.
    program = f"""
import warnings
from sklearn.utils.estimator_checks import estimator_checks_generator
from pollux.clustering import CollapseWarning, GeminiClustering
warnings.simplefilter("error")
warnings.simplefilter("ignore", CollapseWarning)
for parameters in {[estimator.get_params(deep=False) for estimator in ESTIMATORS]!r}:
    for estimator, check in estimator_checks_generator(GeminiClustering(**parameters), mark=None):
        if check.func.__name__ == "check_array_api_input":
            check(estimator)
            print("passed")
"""
    how: dict[str, Any] = {"env": {**os.environ, "SCIPY_ARRAY_API": "1"}, "capture_output": True, "text": True}
    result = subprocess.run([sys.executable, "-c", program], check=False, **how)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "passed\n" * len(ESTIMATORS)

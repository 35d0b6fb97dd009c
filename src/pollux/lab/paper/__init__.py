"""The experiments of the paper: what is run, and what was published."""

from pollux.lab.paper import (
    categorical,
    cifar10,
    complexity,
    mi_boundaries,
    mnist,
    model_selection,
    moons,
    outliers,
    ova_vs_ovo,
)
from pollux.lab.paper.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    module.EXPERIMENT.name: module.EXPERIMENT
    for module in (
        *(categorical, outliers, moons, mnist, cifar10),
        *(mi_boundaries, ova_vs_ovo, model_selection, complexity),
    )
}

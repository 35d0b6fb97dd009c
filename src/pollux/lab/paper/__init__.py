"""The experiments of the paper: their settings and the published results."""

from pollux.lab.paper import cifar10, complexity, mi_boundaries, mnist, outliers, plane
from pollux.lab.paper.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *(plane.CATEGORICAL, outliers.EXPERIMENT, plane.MOONS, mnist.EXPERIMENT, cifar10.EXPERIMENT),
        *(mi_boundaries.EXPERIMENT, plane.OVA_VS_OVO, mnist.MODEL_SELECTION, complexity.EXPERIMENT),
    )
}

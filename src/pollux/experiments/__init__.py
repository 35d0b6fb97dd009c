"""The experiments of the paper: what is run, and what was published."""

from pollux.experiments import mnist, outliers
from pollux.experiments.experiment import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (outliers.EXPERIMENT, mnist.EXPERIMENT)
}

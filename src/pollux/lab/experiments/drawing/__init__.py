"""The figures of the experiments, drawn from their records and the models that they kept."""

from pollux.lab.experiments.drawing.bars import draw_bars
from pollux.lab.experiments.drawing.curves import draw_complexity, draw_mi_boundaries, draw_model_selection
from pollux.lab.experiments.drawing.planes import draw_categorical, draw_moons, draw_outliers, draw_ova_vs_ovo

__all__ = [
    "draw_bars",
    "draw_categorical",
    "draw_complexity",
    "draw_mi_boundaries",
    "draw_model_selection",
    "draw_moons",
    "draw_outliers",
    "draw_ova_vs_ovo",
]

"""Reports of a clustering: a page, and figures."""

from pollux.report.comparison import Comparison, compare
from pollux.report.description import as_pictures, describe, describe_training
from pollux.report.figures import (
    plot_confusion,
    plot_decision_regions,
    plot_entropy_map,
    plot_images,
    plot_map,
    plot_profiles,
    plot_training,
)
from pollux.report.findings import Findings, Places
from pollux.report.maps import neighbour_map, principal_map
from pollux.report.notebook import show
from pollux.report.page import render_page, write_page

__all__ = [
    "Comparison",
    "Findings",
    "Places",
    "as_pictures",
    "compare",
    "describe",
    "describe_training",
    "neighbour_map",
    "plot_confusion",
    "plot_decision_regions",
    "plot_entropy_map",
    "plot_images",
    "plot_map",
    "plot_profiles",
    "plot_training",
    "principal_map",
    "render_page",
    "show",
    "write_page",
]

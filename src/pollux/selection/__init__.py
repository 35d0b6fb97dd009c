"""Selection of the number of clusters, by stability and gaps, and of columns, by a regularisation path."""

from pollux.selection.features import FeaturePath, FeatureStep, select_features
from pollux.selection.result import Candidate, Selection
from pollux.selection.search import select_n_clusters

__all__ = ["Candidate", "FeaturePath", "FeatureStep", "Selection", "select_features", "select_n_clusters"]

"""How many clusters: stability of subsamples and gaps between clusters. Which columns: a path of penalties."""

from pollux.selection.features import FeaturePath, FeatureStep, select_features
from pollux.selection.result import Candidate, Selection
from pollux.selection.search import select_n_clusters

__all__ = ["Candidate", "FeaturePath", "FeatureStep", "Selection", "select_features", "select_n_clusters"]

"""How many clusters: stability of subsamples and gaps between clusters, beside data that have none."""

from pollux.selection.search import select_n_clusters
from pollux.selection.selection import Candidate, Selection

__all__ = ["Candidate", "Selection", "select_n_clusters"]

"""How many clusters: stability of subsamples and gaps between clusters."""

from pollux.selection.result import Candidate, Selection
from pollux.selection.search import select_n_clusters

__all__ = ["Candidate", "Selection", "select_n_clusters"]

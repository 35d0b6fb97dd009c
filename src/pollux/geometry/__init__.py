"""How samples relate: kernels, distances, neighbour graphs, encoders."""

from pollux.affinity import Affinity, Features, Paths
from pollux.geometry.distances import DISTANCES
from pollux.geometry.geometry import Precomputed, check_affinity, resolve
from pollux.geometry.graphs import ShortestPath
from pollux.geometry.kernels import KERNELS
from pollux.geometry.pairwise import Encoded, Geometry, Kind, Pairwise

__all__ = [
    "DISTANCES",
    "KERNELS",
    "Affinity",
    "Encoded",
    "Features",
    "Geometry",
    "Kind",
    "Pairwise",
    "Paths",
    "Precomputed",
    "ShortestPath",
    "check_affinity",
    "resolve",
]

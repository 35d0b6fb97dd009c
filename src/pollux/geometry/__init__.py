"""How samples relate: kernels, distances, neighbour graphs, encoders."""

from pollux.geometry.affinity import Affinity, Features, Paths
from pollux.geometry.centres import k_means
from pollux.geometry.distances import DISTANCES
from pollux.geometry.geometry import OF_ALL_SAMPLES, Precomputed, check_affinity, resolve
from pollux.geometry.graphs import ShortestPath
from pollux.geometry.kernels import KERNELS
from pollux.geometry.mixtures import Mixtures
from pollux.geometry.neighbours import Neighbours, nearest
from pollux.geometry.pairwise import Encoded, Geometry, Kind, Pairwise
from pollux.geometry.spectral import CosineGraph, Mixed, NeighbourGraph, eigenvectors, unit_rows

__all__ = [
    "DISTANCES",
    "KERNELS",
    "OF_ALL_SAMPLES",
    "Affinity",
    "CosineGraph",
    "Encoded",
    "Features",
    "Geometry",
    "Kind",
    "Mixed",
    "Mixtures",
    "NeighbourGraph",
    "Neighbours",
    "Pairwise",
    "Paths",
    "Precomputed",
    "ShortestPath",
    "check_affinity",
    "eigenvectors",
    "k_means",
    "nearest",
    "resolve",
    "unit_rows",
]

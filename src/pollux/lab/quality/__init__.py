"""How good clusterings are: this library's and its peers', on sets with known classes."""

from pollux.lab.quality.benchmark import Request, compare
from pollux.lab.quality.labelled_sets import DataSet, Samples, read_file
from pollux.lab.quality.leaderboard import Leaderboard, bootstrap_interval, rank_methods
from pollux.lab.quality.peers import METHODS, Method

__all__ = [
    "METHODS",
    "DataSet",
    "Leaderboard",
    "Method",
    "Request",
    "Samples",
    "bootstrap_interval",
    "compare",
    "rank_methods",
    "read_file",
]

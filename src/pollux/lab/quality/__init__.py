"""How good clusterings are: this library's and its peers', on sets with known classes."""

from pollux.lab.quality.comparing import Request, compare
from pollux.lab.quality.methods import METHODS, Method
from pollux.lab.quality.sets import DataSet, Samples, read_file
from pollux.lab.quality.summary import Board, board_of, bootstrap_interval, standings

__all__ = [
    "METHODS",
    "Board",
    "DataSet",
    "Method",
    "Request",
    "Samples",
    "board_of",
    "bootstrap_interval",
    "compare",
    "read_file",
    "standings",
]

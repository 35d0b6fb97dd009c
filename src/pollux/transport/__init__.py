"""Optimal transport between distributions over the same samples: exact, and an entropic approximation."""

from pollux.transport.cost import check_symmetric, solve_warm, transport_cost
from pollux.transport.engine import SlowTransportWarning, engine
from pollux.transport.entropic import sinkhorn_cost
from pollux.transport.exact import Solution, State, prepare, solve

__all__ = [
    "SlowTransportWarning",
    "Solution",
    "State",
    "check_symmetric",
    "engine",
    "prepare",
    "sinkhorn_cost",
    "solve",
    "solve_warm",
    "transport_cost",
]

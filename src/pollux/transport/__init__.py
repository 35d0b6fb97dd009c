"""Exact optimal transport between distributions over the same samples."""

from pollux.transport.cost import transport_cost

__all__ = ["transport_cost"]

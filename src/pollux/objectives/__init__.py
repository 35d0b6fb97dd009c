"""Objectives: GEMINIs, their divergences, and penalties."""

from pollux.objectives.divergences import DIVERGENCES, Divergence, f_divergence, sinkhorn
from pollux.objectives.gemini import GEMINIS, Gemini
from pollux.objectives.penalties import PENALTIES, LocalVat

__all__ = ["DIVERGENCES", "GEMINIS", "PENALTIES", "Divergence", "Gemini", "LocalVat", "f_divergence", "sinkhorn"]

"""What is maximised: GEMINIs, the divergences they are made of, and the penalties that may join them."""

from pollux.objectives.divergences import DIVERGENCES, Divergence, f_divergence, sinkhorn
from pollux.objectives.gemini import GEMINIS, Gemini
from pollux.objectives.penalties import PENALTIES, LocalVat

__all__ = ["DIVERGENCES", "GEMINIS", "PENALTIES", "Divergence", "Gemini", "LocalVat", "f_divergence", "sinkhorn"]

"""Vectors of texts and pictures by an encoder: something to cluster."""

from pollux.embedding.encoders import ENCODERS, Encoder, resolve_encoder
from pollux.embedding.vectors import embed, embed_chunks

__all__ = ["ENCODERS", "Encoder", "embed", "embed_chunks", "resolve_encoder"]

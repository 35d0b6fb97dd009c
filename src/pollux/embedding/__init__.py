"""Embeddings of texts and pictures by an encoder, to be clustered."""

from pollux.embedding.encoders import ENCODERS, Encoder, resolve_encoder
from pollux.embedding.topics import Topic, name_clusters
from pollux.embedding.vectors import embed, embed_chunks

__all__ = ["ENCODERS", "Encoder", "Topic", "embed", "embed_chunks", "name_clusters", "resolve_encoder"]

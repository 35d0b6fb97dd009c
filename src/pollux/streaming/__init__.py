"""Data that do not fit in memory: rows in chunks, and shuffled batches of them."""

from pollux.streaming.arrays import ArrayChunks
from pollux.streaming.chunks import Chunks, Slices
from pollux.streaming.datasets import DatasetChunks
from pollux.streaming.opening import Stream, open_stream
from pollux.streaming.parquet import ParquetChunks
from pollux.streaming.shuffling import WINDOW_BYTES, BatchSizes, batch_sizes, in_order, shards, shuffled
from pollux.streaming.surveying import survey_array, survey_chunks, survey_parquet, survey_row_groups

__all__ = [
    "WINDOW_BYTES",
    "ArrayChunks",
    "BatchSizes",
    "Chunks",
    "DatasetChunks",
    "ParquetChunks",
    "Slices",
    "Stream",
    "batch_sizes",
    "in_order",
    "open_stream",
    "shards",
    "shuffled",
    "survey_array",
    "survey_chunks",
    "survey_parquet",
    "survey_row_groups",
]

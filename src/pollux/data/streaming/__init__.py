"""Data that do not fit in memory: rows in chunks, and shuffled batches of them."""

from pollux.data.streaming.arrays import ArrayChunks
from pollux.data.streaming.chunks import Chunks, Slices
from pollux.data.streaming.datasets import DatasetChunks
from pollux.data.streaming.opening import Stream, open_stream
from pollux.data.streaming.parquet import ParquetChunks
from pollux.data.streaming.shuffling import WINDOW_BYTES, BatchSizes, batch_sizes, in_order, shards, shuffled
from pollux.data.streaming.surveying import survey_array, survey_chunks, survey_parquet, survey_row_groups

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

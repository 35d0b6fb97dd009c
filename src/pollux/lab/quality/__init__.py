"""The quality of clusterings, by this library and by others, on data sets with known classes."""

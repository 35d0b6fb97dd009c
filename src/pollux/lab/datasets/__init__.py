"""Data sets with known classes: synthetic, images, tables."""

from pollux.lab.datasets.image_sets import IMAGES, ImageSet, fetch, load_images
from pollux.lab.datasets.synthetic import (
    SYNTHETIC,
    blobs,
    celeux_one,
    celeux_two,
    circles,
    gaussian_student_mixture,
    gaussian_student_oracle,
    moons,
    multivariate_student,
)
from pollux.lab.datasets.table_sets import TABLES, TableSet, load_table, table_names

__all__ = [
    "IMAGES",
    "SYNTHETIC",
    "TABLES",
    "ImageSet",
    "TableSet",
    "blobs",
    "celeux_one",
    "celeux_two",
    "circles",
    "fetch",
    "gaussian_student_mixture",
    "gaussian_student_oracle",
    "load_images",
    "load_table",
    "moons",
    "multivariate_student",
    "table_names",
]

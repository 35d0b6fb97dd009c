"""Data with known classes: made up, of images, of tables."""

from pollux.datasets.catalogue import SYNTHETIC
from pollux.datasets.celeux import celeux_one, celeux_two
from pollux.datasets.fetching import fetch
from pollux.datasets.images import IMAGES, ImageSet, load_images
from pollux.datasets.mixtures import gaussian_student_mixture, gaussian_student_oracle, multivariate_student
from pollux.datasets.synthetic import blobs, circles, moons
from pollux.datasets.tables import TABLES, TableSet, load_table, table_names

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

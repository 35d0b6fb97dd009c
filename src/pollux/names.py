"""Valid names of options, for registries, checks, the command line and its help; without importing torch."""

from __future__ import annotations

OBJECTIVES = (
    *("mi", "kl_ova", "kl_ovo", "tv_ova", "tv_ovo", "hellinger_ova", "hellinger_ovo", "chi2_ova"),
    *("mmd_ova", "mmd_ovo", "wasserstein_ova", "wasserstein_ovo"),
)
KERNELS = ("linear", "polynomial", "rbf", "fourier", "laplacian", "cosine", "sigmoid", "chi2")
DISTANCES = ("euclidean", "sqeuclidean", "manhattan", "cosine")
KERNELS_OF_ALL_SAMPLES = ("graph", "mixed", "cosine_graph", "mixtures")
DISTANCES_OF_ALL_SAMPLES = ("shortest_path",)
PARAMETERS: dict[str, dict[str, tuple[str, ...]]] = {
    "model": {
        "kernel": ("gamma", "kernel", "landmarks"),
        "soft_tree": ("cuts", "features", "temperature"),
        "lenet5": ("activation", "pooling", "width"),
        "resnet18": ("stem",),
    },
    "geometry": {
        "polynomial": ("degree", "gamma", "coef0"),
        "fourier": ("gamma", "n_features", "random_state"),
        **dict.fromkeys(("rbf", "laplacian", "chi2"), ("gamma",)),
        "sigmoid": ("gamma", "coef0"),
        "graph": ("neighbours", "components", "weights", "diffusion", "search_components"),
        **dict.fromkeys(
            ("mixed", "cosine_graph"),
            ("neighbours", "components", "weights", "diffusion", "search_components", "share"),
        ),
        "mixtures": ("components", "neighbours", "dimensions", "regularisation"),
        "shortest_path": ("quantile", "neighbours", "weighted"),
    },
}
"""Parameters that may stand behind a name, as in rbf:gamma=0.5; other names take none."""
MODELS = ("free", "linear", "mlp", "kernel", "soft_tree", "lenet5", "resnet18")
ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu", "silu", "leaky_relu", "elu", "identity")
NORMS = ("none", "batch")
"""In Python "none" is None."""
INITS = ("auto", "random", "kmeans++", "kmeans", "graph")
PENALTIES = ("vat", "local_vat", "entropy", "balance", "weight_decay")
OPTIMISERS = ("adam", "adamw", "sgd", "rmsprop", "lbfgs")
SCHEDULES = ("constant", "cosine")
DTYPES = ("auto", "float32", "float64", "bfloat16")
SCALINGS = ("none", "auto", "standard", "global")
MISSING = ("error", "mean")
"""Missing values raise an error, or are replaced by the means of the training data."""
MISSING_IN_FILES = (*MISSING, "drop")
"""Rows of a file can also be dropped; those of an array cannot, as each has a label."""
KINDS = ("text", "number", "date", "id")
"""Kinds that a user can declare a column to be."""
RECIPES = ("tables", "images", "embeddings")

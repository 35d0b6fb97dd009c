"""Resolution of a user's argument to a geometry; affinities that were computed before."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from pollux.data.rows import as_rows, share
from pollux.errors import InputError, advised, did_you_mean, unknown
from pollux.geometry.affinity import Affinity, Block, Features
from pollux.geometry.distances import DISTANCES
from pollux.geometry.graphs import ShortestPath
from pollux.geometry.kernels import KERNELS
from pollux.geometry.mixtures import Mixtures
from pollux.geometry.pairwise import Encoded, Geometry, Kind, Pairwise, is_whole
from pollux.geometry.spectral import CosineGraph, Mixed, NeighbourGraph
from pollux.io.parsing import parse_parameters

OF_ALL_SAMPLES: dict[Kind, dict[str, type[ShortestPath | NeighbourGraph | Mixed | Mixtures]]] = {
    "kernel": {"graph": NeighbourGraph, "mixed": Mixed, "cosine_graph": CosineGraph, "mixtures": Mixtures},
    "distance": {"shortest_path": ShortestPath},
}
"""Geometries that need all samples in memory, by kind and name."""

DEFAULTS: dict[Kind, str] = {"kernel": "linear", "distance": "euclidean"}
_CHECKED_ROWS = 256
_ROUNDING = 1e-5


@dataclass(frozen=True)
class Precomputed(Geometry):
    """A matrix (n, n), or features (n, r) of a kernel, that the user already has."""

    affinity: Tensor | Features
    kind: Kind

    @staticmethod
    def of_selected(affinity: Any, kind: Kind | None, selected: NDArray[np.bool_]) -> Precomputed | None:
        """Check the user's affinity of n samples, and restrict it to the selected ones (n,)."""
        if affinity is None:
            return None
        if kind is None:
            raise ValueError("The objective compares predictions only: it needs no affinity, so leave it out.")
        checked = check_affinity(affinity, kind)
        if len(checked) != len(selected):
            raise ValueError(
                f"The affinity is of {len(checked)} samples, but X has {len(selected)} rows; "
                f"row i of X must be row and column i of the affinity."
            )
        geometry = Precomputed(checked, kind)
        if selected.all():
            return geometry
        return Precomputed(geometry.select(torch.from_numpy(np.flatnonzero(selected))), kind)

    @property
    def gives_features(self) -> bool:
        return isinstance(self.affinity, Features)

    @property
    def values(self) -> Tensor:
        """The features, or the matrix."""
        return self.affinity.values if isinstance(self.affinity, Features) else self.affinity

    def bind(self, X: Any) -> Block:
        rows = as_rows(X)
        if len(self.affinity) != len(rows):
            raise ValueError(
                f"The affinity is of {len(self.affinity)} samples, but X has {len(rows)} rows; "
                f"row i of X must be row and column i of the affinity."
            )

        def block(index: Tensor) -> Affinity:
            part = self.select(index)
            if isinstance(part, Features):
                return Features(part.values.to(rows.device, rows.dtype)).centre()
            # Not cast: the objective centres a kernel in the kernel's own precision, before rounding.
            return part.to(rows.device) if self.kind == "kernel" else part.to(rows.device, rows.dtype)

        return block

    def select(self, index: Tensor) -> Tensor | Features:
        """The affinity of some of the samples."""
        if isinstance(self.affinity, Features):
            return Features(self.affinity.values[index.to(self.affinity.values.device)])
        index = index.to(self.affinity.device)
        return self.affinity[index[:, None], index]


def resolve(
    geometry: str | Geometry | Callable[..., Tensor],
    kind: Kind = "kernel",
    *,
    affinity: Any = None,
    encoder: Callable[[Tensor], Tensor] | None = None,
    **parameters: Any,
) -> Geometry:
    """The geometry for a name, a function or an object.

    Parameters
    ----------
    geometry : str, callable or Geometry
        The name of a kernel or distance (``pollux.geometry.KERNELS``, ``DISTANCES``, ``OF_ALL_SAMPLES``), also with
        parameters as in ``"rbf:gamma=0.5"``; ``"precomputed"``, ``"auto"``; or a function of x (n, d) and y (m, d) that
        returns (n, m).
    kind : {"kernel", "distance"}
        What the objective needs.
    affinity : array or Tensor of shape (n, n), or Features, optional
        The precomputed kernel or distances.
    encoder : callable, optional
        Compare the features of this frozen network rather than the samples.
    **parameters
        Parameters of the named geometry, such as ``gamma=0.5``.

    Examples
    --------
    >>> import torch
    >>> resolve("rbf", gamma=0.5)(torch.tensor([[0.0], [2.0]])).round(decimals=2)
    tensor([[1.0000, 0.1400],
            [0.1400, 1.0000]])
    """
    if kind not in DEFAULTS:
        raise ValueError(f"A geometry is a 'kernel' or a 'distance', not {kind!r}.")
    if affinity is not None or geometry == "precomputed":
        return Precomputed(check_affinity(affinity, kind), kind)
    found = _find(geometry, kind, parameters)
    if found.kind != kind:
        raise ValueError(f"The objective needs a {kind}, but {geometry!r} is a {found.kind}.")
    return found if encoder is None else Encoded(encoder, found)


def _find(geometry: str | Geometry | Callable[..., Tensor], kind: Kind, parameters: dict[str, Any]) -> Geometry:
    if isinstance(geometry, str):
        name, _, written = geometry.partition(":")
        name = DEFAULTS[kind] if name == "auto" else name
        parameters = _read_parameters(written, OF_ALL_SAMPLES[kind].get(name)) | parameters
        named = KERNELS if kind == "kernel" else DISTANCES
        if name == "precomputed":
            raise ValueError("'precomputed' takes no parameters: pass the matrix as affinity=….")
        if name in named:
            return named[name].with_parameters(**parameters)
        if name in OF_ALL_SAMPLES[kind]:
            return _of_all_samples(name, kind, parameters)
        valid = [*named, *OF_ALL_SAMPLES[kind]]
        other: Kind = "distance" if kind == "kernel" else "kernel"
        is_other = name in (DISTANCES if kind == "kernel" else KERNELS) or name in OF_ALL_SAMPLES[other]
        is_gaussian = name.lower() == "gaussian" and kind == "kernel"
        meant = " The Gaussian kernel is 'rbf'." if is_gaussian else did_you_mean(name, valid)
        found = f"{name!r} is not one of them.{meant}"
        if is_other:
            found = f"{name!r} is a {other}{advised(f': resolve({name!r}, {other!r})', '')}."
            found += " Kernels go with mmd objectives, distances with wasserstein."
        also = advised("; or 'precomputed', or a function", "")
        raise ValueError(f"The objective needs a {kind}: {', '.join(valid)}{also}. {found}")
    if parameters:
        raise TypeError(f"Parameters {sorted(parameters)} belong to a named geometry; bind them yourself.")
    if isinstance(geometry, Geometry):
        return geometry
    if callable(geometry):
        return Pairwise(getattr(geometry, "__name__", type(geometry).__name__), kind, geometry)
    raise TypeError(f"A geometry is a name, a function or a Geometry, not {type(geometry).__name__}.")


def check_name(geometry: str) -> None:
    """Raise a ValueError if no kernel and no distance has this name, for geometries that the objective does not use."""
    valid = {"auto", "precomputed", *KERNELS, *DISTANCES}.union(*OF_ALL_SAMPLES.values())
    name = geometry.partition(":")[0]
    if name not in valid:
        raise ValueError(unknown("geometry", name, sorted(valid), "or a function"))


def _read_parameters(written: str, made: type | None) -> dict[str, Any]:
    """The parameters of a geometry in "gamma=0.5,degree=2"; one that takes a sequence is repeated for each value."""
    several = [name for name, default in vars(made or object).items() if isinstance(default, tuple)]
    parameters = parse_parameters(written, several)
    for name, value in parameters.items():
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, str):
                item = f"{name}={each}" if each else name
                raise InputError(f"Parameters of a geometry are numbers, as in rbf:gamma=0.5; {item!r} is not one.")
    return parameters


def spell(geometry: Geometry) -> str:
    """A geometry as text, with the parameters that are not the defaults; one of the user's by its name alone.

    Examples
    --------
    >>> spell(resolve("rbf", gamma=0.5)), spell(NeighbourGraph(neighbours=7))
    ('rbf:gamma=0.5', 'graph:neighbours=7')
    """
    if isinstance(geometry, Pairwise):
        name, given = geometry.name, dict(geometry.parameters)
    else:
        names = {made: name for known in OF_ALL_SAMPLES.values() for name, made in known.items()}
        if type(geometry) not in names:
            return str(getattr(geometry, "name", type(geometry).__name__))
        made: Any = type(geometry)
        name, usual = names[made], made()
        shown = [each.name for each in fields(usual) if each.init]
        given = {each: getattr(geometry, each) for each in shown if getattr(geometry, each) != getattr(usual, each)}
    pairs = [(key, each) for key, value in given.items() for each in (value if isinstance(value, tuple) else (value,))]
    written = ",".join(f"{key}={each}" for key, each in pairs if isinstance(each, str | Real))
    return f"{name}:{written}" if written else name


def _of_all_samples(name: str, kind: Kind, parameters: dict[str, Any]) -> Geometry:
    make = OF_ALL_SAMPLES[kind][name]
    valid = [parameter.name for parameter in fields(make) if parameter.init]
    others = sorted(set(parameters) - set(valid))
    if others:
        raise ValueError(f"The {name} {kind} takes {', '.join(valid)}; not {', '.join(others)}.")
    for parameter in fields(make):
        if parameter.name in parameters:
            _check_whole(parameter.name, str(parameter.type), parameters[parameter.name])
    return make(**parameters)


def _check_whole(name: str, annotation: str, value: Any) -> None:
    """Raise a ValueError if a parameter that is annotated as int, or a sequence of int, is not."""
    if annotation.startswith("tuple[int"):
        if isinstance(value, str) or not (isinstance(value, Iterable) and all(map(is_whole, value))):
            raise ValueError(f"{name} is a sequence of whole numbers, not {value!r}.")
    elif annotation.split(" | ")[0] == "int" and not (is_whole(value) or (value is None and "None" in annotation)):
        raise ValueError(f"{name} is a whole number, not {value!r}.")


def check_affinity(affinity: Any, kind: Kind) -> Tensor | Features:
    """Validate the user's kernel or distances; returns a tensor or features."""
    if affinity is None:
        raise ValueError(f"geometry='precomputed' needs the {kind} matrix: pass it as affinity=….")
    if isinstance(affinity, Features):
        if kind == "distance":
            raise ValueError("Features define a kernel; the objective needs a distance matrix (n, n).")
        if affinity.values.ndim != 2 or not bool(affinity.values.isfinite().all()):
            raise ValueError("Features must be finite and of shape (n, r).")
        return affinity
    matrix = affinity if isinstance(affinity, Tensor) else _as_matrix(affinity, kind)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"The precomputed {kind} matrix must be square; its shape is {tuple(matrix.shape)}.")
    if not matrix.is_floating_point():
        matrix = matrix.to(torch.get_default_dtype())
    # Contiguous, because rows of batches are read over and over.
    matrix = matrix.contiguous()
    # In blocks of rows: the matrix may be as large as memory allows.
    for start in range(0, len(matrix), _CHECKED_ROWS):
        _check_part(matrix, slice(start, start + _CHECKED_ROWS), kind)
    # Up to rounding: distances from a matrix product are rarely exactly 0 on the diagonal.
    from_itself = float(matrix.diagonal().abs().max()) > _ROUNDING * float(matrix.abs().max())
    if kind == "distance" and from_itself:
        raise ValueError("The precomputed distance of a sample to itself must be 0.")
    if kind == "kernel" and not from_itself and bool((matrix > 0).any()):
        raise ValueError(
            "The precomputed kernel is 0 on its diagonal but not elsewhere, as distances are: give those to a "
            "Wasserstein objective, or make a kernel of them, such as exp(-d**2)."
        )
    return matrix


def _as_matrix(affinity: Any, kind: Kind) -> Tensor:
    if scipy.sparse.issparse(affinity):
        raise TypeError(f"The precomputed {kind} matrix must be dense; this one is sparse: use .toarray().")
    array = np.asarray(affinity)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"The precomputed {kind} matrix must hold real numbers; its type is {array.dtype}.")
    return share(array)


def _check_part(matrix: Tensor, part: slice, kind: Kind) -> None:
    rows, columns = matrix[part], matrix[:, part].mT
    if not bool(rows.isfinite().all()):
        raise ValueError(f"The precomputed {kind} matrix holds NaN or infinity.")
    tolerance = _ROUNDING * float(rows.abs().max())
    if float((rows - columns).abs().max()) > tolerance:
        raise ValueError(f"The precomputed {kind} matrix must be symmetric.")
    if kind == "distance" and bool((rows < 0).any()):
        raise ValueError("The precomputed distance matrix holds negative distances.")

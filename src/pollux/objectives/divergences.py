"""Divergences between clusters, with the contract of ``torch.cdist``.

Each function takes log-weights ``log_p`` (…, K, n) and ``log_q`` (…, L, n), whose rows are distributions
over the same n samples, and returns (…, K, L). One-vs-one passes the same tensor twice; the two
divergences that are costly use that (``log_q is log_p``) to do the work once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from pollux.errors import InputError
from pollux.geometry.affinity import Affinity, Features, Paths, centre_kernel, is_traced
from pollux.objectives.batch_samples import LOCAL, BatchSamples
from pollux.transport import check_symmetric, sinkhorn_cost, transport_cost

Needs = Literal["kernel", "distance"]
Across = Literal["gathered", "summed", "shared"]

_FEW_ROWS = 4
# Numbers that the backward pass of an f-divergence may store rather than recompute.
_KEPT_NUMBERS = 1_000_000


@dataclass(frozen=True)
class Divergence:
    """A divergence between distributions over samples.

    Parameters
    ----------
    name : str
        What it is called in names such as ``"kl_ova"``.
    function : callable
        ``function(log_p, log_q)``, or ``function(log_p, log_q, affinity)`` if ``needs`` is given.
    needs : {"kernel", "distance"}, optional
        What it must know about the samples.
    refuses_one_vs_one : str
        The reason why clusters cannot be compared with each other; empty if they can.
    takes_paths : bool
        Whether the function accepts ``Paths`` in a graph; otherwise it is given their matrix of distances.
    across : {"gathered", "summed", "shared"}
        How it is computed when samples are distributed over processes. ``"gathered"``, which is right for any: each
        process computes it for all samples. ``"summed"``, if it is a constant and a sum over samples: each computes it
        for its own, and only numbers (…, K, L) are sent. ``"shared"``: the function takes ``BatchSamples`` too.
    """

    name: str
    function: Callable[..., Tensor]
    needs: Needs | None = None
    refuses_one_vs_one: str = ""
    takes_paths: bool = False
    across: Across = "gathered"

    def __post_init__(self) -> None:
        for option, valid in (("needs", (None, *get_args(Needs))), ("across", get_args(Across))):
            value = getattr(self, option)
            if value not in valid:
                raise ValueError(
                    f"{option} of the divergence {self.name!r} is one of {', '.join(map(repr, valid))}; not {value!r}."
                )

    def __call__(
        self, log_p: Tensor, log_q: Tensor, affinity: Affinity | None = None, samples: BatchSamples = LOCAL
    ) -> Tensor:
        """The divergence of each distribution of ``log_p`` from each of ``log_q``.

        Parameters
        ----------
        log_p, log_q : Tensor of shape (…, K, n) and (…, L, n)
            Logarithms of distributions over the same n samples.
        affinity : Tensor of shape (n, n), Features or Paths, optional
            The kernel or the distances between the samples, where it ``needs`` them.
        samples : BatchSamples
            Where the samples are; all are in this process by default.

        Returns
        -------
        Tensor of shape (…, K, L)

        Raises
        ------
        ValueError
            If the function returns another shape, or something else than a tensor.
        """
        if isinstance(affinity, Paths) and not self.takes_paths:
            affinity = affinity.matrix()
        if samples is LOCAL:
            return self._here(log_p, log_q, affinity)
        if self.across == "shared":
            return self.function(log_p, log_q, affinity, samples)
        same = log_q is log_p
        if self.across == "summed":
            no_p = log_p.detach()[..., :0]
            constant = self._here(no_p, no_p if same else log_q.detach()[..., :0], affinity)
            (total,) = samples.sums(self._here(log_p, log_q, affinity) - constant)
            return total + constant
        log_p = samples.whole(log_p)
        log_q = log_p if same else samples.whole(log_q)
        return self._here(log_p, log_q, samples.whole_affinity(affinity))

    def _here(self, log_p: Tensor, log_q: Tensor, affinity: Affinity | None) -> Tensor:
        found = self.function(log_p, log_q) if self.needs is None else self.function(log_p, log_q, affinity)
        K, L = log_p.shape[-2], log_q.shape[-2]
        if not isinstance(found, Tensor) or found.ndim < 2 or found.shape[-2:] != (K, L):
            shape = f" {tuple(found.shape)}" if hasattr(found, "shape") else ""
            raise InputError(
                f"The divergence {self.name!r} must give a tensor (…, {K}, {L}) for log-weights (…, {K}, n) and "
                f"(…, {L}, n), by torch operations, as torch.cdist does; it gave {type(found).__name__}{shape}."
            )
        return found


def kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Σ p log(p / q)."""
    p = log_p.exp()
    return (p * log_p).sum(-1)[..., None] - p @ log_q.mT


def total_variation(log_p: Tensor, log_q: Tensor) -> Tensor:
    """½ Σ |p − q|."""
    p = log_p.exp()
    if log_q is not log_p or is_traced():
        return (p[..., :, None, :] - log_q.exp()[..., None, :, :]).abs().sum(-1) / 2
    pairs: Tensor = _PairwiseL1.apply(p)  # type: ignore[no-untyped-call]
    return _symmetric(pairs, p.shape[-2]) / 2


def hellinger(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Squared Hellinger distance 1 − Σ √(pq), in [0, 1]."""
    return 1 - (log_p / 2).exp() @ (log_q / 2).exp().mT


def chi2(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Σ p² / q − 1."""
    return (2 * log_p[..., :, None, :] - log_q[..., None, :, :]).exp().sum(-1) - 1


def mmd(log_p: Tensor, log_q: Tensor, kernel: Tensor | Features, samples: BatchSamples = LOCAL) -> Tensor:
    """Distance between mean embeddings, √((p − q)ᵀ κ (p − q)), for a symmetric kernel."""
    p = log_p.exp()
    q = p if log_q is log_p else log_q.exp()
    K, L = p.shape[-2], q.shape[-2]
    # Only differences count, so weights are measured from one origin, which keeps float32 accurate (features are
    # centred already); a single q is that origin, and needs no row of its own.
    if q is p:
        rows = p if isinstance(kernel, Features) else p - p.mean(-2, keepdim=True)
    elif L == 1:
        rows = p - q
    else:
        rows = torch.cat([p, q.expand(*p.shape[:-2], *q.shape[-2:])], -2) - q.mean(-2, keepdim=True)
    if isinstance(kernel, Features):
        values = samples.centre(kernel).values.to(p.dtype)
        n, r = values.shape
        if (
            samples is LOCAL
            and r > 2 * n
            and rows.shape[:-1].numel() >= n
            and not (values.requires_grad or is_traced())
        ):
            # For many clusters, and for more features than samples, the kernel matrix is smaller.
            gram, _ = _Gram.apply(rows, values @ values.mT, samples)  # type: ignore[no-untyped-call]
        else:
            (means,) = samples.sums(rows @ values)
            gram = means.double() @ means.double().mT
    elif is_traced():
        gram = (rows @ centre_kernel(kernel, p.dtype)).double() @ rows.double().mT
    else:
        gram, _ = _Gram.apply(rows, centre_kernel(kernel, p.dtype), samples)  # type: ignore[no-untyped-call]
    # Not by Tensor.diagonal, whose gradient inductor compiles wrongly.
    is_own = torch.eye(gram.shape[-1], dtype=torch.bool, device=gram.device)
    squares = torch.where(is_own, gram, 0).sum(-1)
    if L == 1 and q is not p:
        return _safe_sqrt(squares)[..., None].to(p.dtype)
    squared = squares[..., :K, None] + squares[..., None, -L:] - 2 * gram[..., :K, -L:]
    return _safe_sqrt(squared).to(p.dtype)


def wasserstein(log_p: Tensor, log_q: Tensor, distance: Affinity, samples: BatchSamples = LOCAL) -> Tensor:
    """Cost of the optimal transport of p to q, for costs (n, n) between samples or paths in a graph."""
    if isinstance(distance, Features):
        raise TypeError("Wasserstein needs a distance matrix (n, n); features only define a kernel.")
    check_symmetric(distance)
    p = samples.whole(log_p.exp())
    if log_q is not log_p:
        q = samples.whole(log_q.exp())
        return samples.share_out(transport_cost, p[..., :, None, :], q[..., None, :, :], distance)
    # The cost is symmetric: each pair is solved once.
    K = p.shape[-2]
    first, second = torch.triu_indices(K, K, offset=1, device=p.device)
    costs = samples.share_out(transport_cost, p.index_select(-2, first), p.index_select(-2, second), distance)
    return _symmetric(costs, K)


def sinkhorn(regularisation: float = 0.01, iterations: int = 200) -> Divergence:
    """An approximate Wasserstein distance, by Sinkhorn's iterations: for devices where only tensors are fast.

    On a CPU the exact ``"wasserstein_ova"`` and ``"wasserstein_ovo"`` are faster. See
    :func:`pollux.transport.sinkhorn_cost` for the parameters.

    Examples
    --------
    >>> import torch, pollux
    >>> from pollux.objectives import sinkhorn
    >>> log_p = torch.tensor([[9.0, 0.0], [0.0, 9.0]]).log_softmax(-1)
    >>> distances = torch.tensor([[0.0, 4.0], [4.0, 0.0]])
    >>> round(float(pollux.Gemini(sinkhorn(), one_vs_one=True)(log_p, distances)), 1)
    2.0
    """

    def divergence(log_p: Tensor, log_q: Tensor, distance: Tensor | Features) -> Tensor:
        if isinstance(distance, Features):
            raise TypeError("Sinkhorn needs a distance matrix (n, n); features only define a kernel.")
        p, q = log_p.exp()[..., :, None, :], log_q.exp()[..., None, :, :]
        return sinkhorn_cost(p, q, distance, regularisation=regularisation, iterations=iterations)

    return Divergence("sinkhorn", divergence, needs="distance")


def f_divergence(f: Callable[[Tensor], Tensor], name: str = "f") -> Divergence:
    """The divergence Σ q f(p / q) of any convex f with f(1) = 0.

    Parameters
    ----------
    f : callable
        Maps a tensor of ratios p/q > 0 to a tensor of the same shape, by torch operations.
    name : str
        A name for messages.

    Examples
    --------
    >>> import torch, pollux
    >>> jensen_shannon = pollux.f_divergence(lambda t: (t * t.log() - (t + 1) * ((t + 1) / 2).log()) / 2)
    >>> log_p = torch.tensor([[4.0, 0.0], [0.0, 4.0]]).log_softmax(-1)
    >>> round(float(pollux.Gemini(jensen_shannon, one_vs_one=True)(log_p)), 3)
    0.302
    """
    if not callable(f):
        raise TypeError(f"f is a function of a tensor of ratios, such as lambda t: t * t.log(); not {f!r}.")
    at_one = f(torch.ones(1, dtype=torch.float64))
    if not isinstance(at_one, Tensor) or at_one.shape != (1,):
        raise ValueError("f must map a tensor of ratios to a tensor of the same shape.")
    if not abs(at_one.item()) <= 1e-9:
        raise ValueError(f"An f-divergence needs f(1) = 0; here f(1) = {at_one.item():g}.")

    def against(log_p: Tensor, log_q: Tensor) -> Tensor:
        # f is the user's: ratios are kept where f, its square and its gradient are finite. Where q vanishes beside
        # p, q is raised and p kept: q f(p / q) tends to p times the slope of f at infinity.
        limit = math.log(torch.finfo(log_p.dtype).max) / 3
        log_q = torch.maximum(log_q[..., None, :], log_p - limit)
        ratio = (log_p - log_q).clamp_min(-limit).exp()
        return (log_q.exp() * f(ratio)).sum(-1)

    def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
        rows = log_q.unbind(-2)
        if log_p.numel() * len(rows) <= _KEPT_NUMBERS:
            return torch.stack([against(log_p, row) for row in rows], -1)
        # One row of q at a time, recomputed in the backward pass: memory stays K·n, never K·L·n.
        return torch.stack([checkpoint(against, log_p, row, use_reentrant=False) for row in rows], -1)

    return Divergence(name, divergence, across="summed")


class _PairwiseL1(torch.autograd.Function):
    """p (…, K, n) → Σ |p_a − p_b| of all pairs a < b, (…, K(K − 1)/2), without the differences of all pairs at once."""

    @staticmethod
    def forward(ctx: Any, p: Tensor) -> Tensor:
        pairs = torch.stack([torch.pdist(rows, p=1) for rows in p[None].flatten(0, -3)])
        ctx.save_for_backward(p, pairs)
        return pairs.reshape(*p.shape[:-2], -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        p, pairs = ctx.saved_tensors
        if not torch.is_grad_enabled():
            each = zip(gradient.reshape(pairs.shape), p[None].flatten(0, -3), pairs, strict=True)
            by_p = [torch.ops.aten._pdist_backward(by_pairs, rows, 1.0, of_rows) for by_pairs, rows, of_rows in each]
            return torch.stack(by_p).reshape(p.shape)
        K = p.shape[-2]
        # Signs are constants almost everywhere: what is left to differentiate is linear in the gradient.
        first, second = torch.triu_indices(K, K, offset=1, device=p.device)
        signs = (p.index_select(-2, first) - p.index_select(-2, second)).detach().sign()
        signed = gradient[..., None] * signs
        return torch.zeros_like(p).index_add(-2, first, signed).index_add(-2, second, signed, alpha=-1)


class _Gram(torch.autograd.Function):
    """rows (…, R, n), symmetric kernel (n, n) → rows κ rowsᵀ (…, R, R) in float64, and rows κ (…, R, n).

    The one product with the kernel serves the value and the gradient; it is an output so that this gradient has a
    gradient too. If samples are distributed, so is that product: rows and their gradient are of the local samples.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor, kernel: Tensor, samples: BatchSamples) -> tuple[Tensor, Tensor]:
        product = _product(rows, kernel, samples)
        ctx.save_for_backward(rows, kernel, product)
        ctx.samples = samples
        ctx.set_materialize_grads(False)
        (gram,) = samples.sums(product.double() @ rows.double().mT)
        return gram, product

    @staticmethod
    def backward(ctx: Any, by_gram: Tensor | None, by_product: Tensor | None) -> Any:
        rows, kernel, product = ctx.saved_tensors
        samples: BatchSamples = ctx.samples
        if by_gram is None and by_product is None:
            return None, None, None
        by_rows: Any = 0
        by_kernel: Any = 0
        if by_gram is not None:
            by_gram = samples.sums(by_gram)[0].to(rows.dtype)
            by_rows, by_kernel = (by_gram + by_gram.mT) @ product, by_gram @ rows
        if by_product is not None:
            by_rows, by_kernel = by_rows + _product(by_product, kernel, samples), by_kernel + by_product
        if not ctx.needs_input_grad[1]:
            return by_rows, None, None
        by_kernel = samples.whole(rows).mT @ by_kernel
        by_kernel = by_kernel.reshape(-1, *by_kernel.shape[-2:]).sum(0)
        return by_rows, samples.own_columns_of_zeros(by_kernel), None


def _product(rows: Tensor, kernel: Tensor, samples: BatchSamples) -> Tensor:
    """rows κ, for the local samples."""
    every, R = samples.whole(rows), rows.shape[-2]
    # A symmetric kernel may be multiplied from either side: from the left it is up to three times faster for very few
    # rows. From the right, four rows at a time are up to twice as fast.
    if rows.ndim == 2 and R <= _FEW_ROWS:
        return (samples.own(kernel, 0) @ every.mT).mT
    return (pad(every, (0, 0, 0, -R % 4)) @ samples.own(kernel, 1))[..., :R, :]


def _symmetric(pairs: Tensor, K: int) -> Tensor:
    """The matrix (…, K, K) with zero diagonal whose upper triangle, row by row, is given (…, K(K − 1)/2)."""
    first, second = torch.triu_indices(K, K, offset=1, device=pairs.device)
    upper = pairs.new_zeros(*pairs.shape[:-1], K, K)
    upper[..., first, second] = pairs
    return upper + upper.mT


def _safe_sqrt(x: Tensor) -> Tensor:
    """√x; where x ≤ 0 (a distance of zero, up to rounding) zero with a zero gradient. NaN stays NaN."""
    none = x <= 0
    return torch.where(none, 0, torch.where(none, 1, x).sqrt())


DIVERGENCES = {
    divergence.name: divergence
    for divergence in (
        Divergence("kl", kl, across="summed"),
        Divergence("tv", total_variation, across="summed"),
        Divergence("hellinger", hellinger, across="summed"),
        Divergence(
            "chi2",
            chi2,
            refuses_one_vs_one="between two clusters the chi-square divergence is unbounded: one sample that "
            "only one of them claims makes it infinite. Use chi2_ova, or hellinger_ovo or tv_ovo",
            across="summed",
        ),
        Divergence("mmd", mmd, needs="kernel", across="shared"),
        Divergence("wasserstein", wasserstein, needs="distance", takes_paths=True, across="shared"),
    )
}
"""The divergences by name, each a :class:`pollux.Divergence`.

p and q are distributions over the same n samples: that of a cluster, and that of all the data (one-vs-all) or of
another cluster (one-vs-one). κ is a kernel and δ a distance between samples.

.. list-table::
   :header-rows: 1

   * - Name
     - Formula
     - Meaning
     - Needs
   * - ``kl``
     - Σ p log(p / q)
     - Kullback–Leibler divergence; one-vs-all it is the mutual information
     - –
   * - ``tv``
     - ½ Σ \\|p − q\\|
     - total variation, from 0 to 1
     - –
   * - ``hellinger``
     - 1 − Σ √(p q)
     - squared Hellinger distance, from 0 to 1
     - –
   * - ``chi2``
     - Σ p² / q − 1
     - chi-square divergence; one-vs-all only, since between two clusters it is unbounded
     - –
   * - ``mmd``
     - √((p − q)ᵀ κ (p − q))
     - maximum mean discrepancy: distance between the mean features
     - kernel
   * - ``wasserstein``
     - min Σ T δ over plans T ≥ 0 from p to q
     - least cost of moving p onto q
     - distance

:func:`pollux.f_divergence` and :func:`pollux.objectives.sinkhorn` make others.
"""

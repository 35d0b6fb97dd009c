"""The GEMINI: the expected divergence between clusters and data, or between two clusters."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from pollux.data.rows import share
from pollux.errors import InputError, unknown
from pollux.geometry.affinity import Affinity, Features, Paths, is_traced
from pollux.geometry.pairwise import is_whole
from pollux.objectives.batch_samples import LOCAL, NO_WEIGHT, BatchSamples, DistributedSamples
from pollux.objectives.divergences import DIVERGENCES, Divergence, Needs
from pollux.ranks import Ranks

ALIASES = {"mi": "kl_ova"}
DEFAULT_CLIPS = {"kl_ovo": 1e-7}
"""Default ``clip`` of unbounded objectives, which would push probabilities to zero: the precision of float32."""

# At import, because torch 2.6 cannot trace the query.
_AUTOCAST = [name for name in ("cpu", "cuda", "mps", "xpu", "hpu", "mtia") if torch.amp.is_autocast_available(name)]
_LOG_ROUNDING = 1e-3
# Tolerances for the sum of probabilities, in single and in half precision; and how many samples are checked.
_ROUNDING, _HALF_ROUNDING, _LOOKED_AT = 1e-2, 0.2, 128
# log 0 as a share of the most negative float, so that a sum over this many samples does not overflow.
_LOG_ZERO = 2.0**-32
GEMINIS = tuple(
    f"{name}_{mode}"
    for name, divergence in DIVERGENCES.items()
    for mode in ("ova", "ovo")
    if mode == "ova" or not divergence.refuses_one_vs_one
)
"""The names of all GEMINIs, as :class:`pollux.Gemini` and the ``objective`` of an estimator take them.

Each is the name of a divergence D of :data:`pollux.objectives.DIVERGENCES` and a mode. ``"mi"`` is another name of
``"kl_ova"``. Let p(y) be the share of cluster y, and p(x|y) the distribution of its samples.

.. list-table::
   :header-rows: 1

   * - Names
     - Formula
     - Meaning
   * - ``kl_ova``, ``tv_ova``, ``hellinger_ova``, ``chi2_ova``, ``mmd_ova``, ``wasserstein_ova``
     - Σ_y p(y) D(p(x|y), p(x))
     - one-vs-all: each cluster is compared with all the data
   * - ``kl_ovo``, ``tv_ovo``, ``hellinger_ovo``, ``mmd_ovo``, ``wasserstein_ovo``
     - Σ_a Σ_b p(a) p(b) D(p(x|a), p(x|b))
     - one-vs-one: clusters are compared with each other

There is no ``chi2_ovo``, since it is unbounded. The MMD needs a kernel between the samples, Wasserstein a distance.
"""


class Gemini:
    """A generalised mutual information between samples and clusters, to be maximised.

    One-vs-all is E_y[D(p(x|y) ‖ p(x))]; one-vs-one is E_{a,b}[D(p(x|a) ‖ p(x|b))].

    Parameters
    ----------
    objective : str or Divergence
        ``"mmd_ova"``, ``"kl_ovo"``, … (see ``pollux.objectives.GEMINIS``), ``"mi"`` for ``"kl_ova"``; or a
        divergence of your own, see :func:`pollux.f_divergence` and ``pollux.objectives.Divergence``.
    one_vs_one : bool
        With a divergence (or its bare name): compare clusters with each other rather than with the data.
    clip : float, None or "auto"
        Probabilities below this count as this, and get no gradient. Objectives that would push probabilities towards
        zero without end then leave certain ones alone. By default 1e-7, the resolution of single precision, for
        ``"kl_ovo"``, and none for all others; the paper's authors used 1e-12 throughout; ``None`` is the definition.
        As in their code, clipped probabilities are not normalised again, so a large clip makes the value larger.
    sampled_pairs : int, optional
        One-vs-one only: an unbiased estimate from this many random ordered pairs of clusters, instead of
        all of them. It pays off if a pair is costly (Wasserstein). The ``generator`` of a call seeds them.

    Examples
    --------
    >>> import torch
    >>> from pollux import Gemini
    >>> log_p = torch.tensor([[9.0, 0.0], [0.0, 9.0]]).log_softmax(-1)
    >>> round(float(Gemini("mi")(log_p)), 2)
    0.69

    Pairs of clusters that are drawn at random, the same in each run:

    >>> sampled = Gemini("tv_ovo", sampled_pairs=4)
    >>> first, second = (sampled(log_p, generator=torch.Generator().manual_seed(0)) for _ in range(2))
    >>> bool(first == second)
    True
    """

    def __init__(
        self,
        objective: str | Divergence,
        one_vs_one: bool = False,
        *,
        clip: float | Literal["auto"] | None = "auto",
        sampled_pairs: int | None = None,
    ) -> None:
        if isinstance(objective, str):
            objective, one_vs_one = _parse(objective, one_vs_one)
        if not isinstance(objective, Divergence):
            raise TypeError(
                f"An objective is a name such as 'mmd_ova' or a pollux.Divergence, which pollux.f_divergence(f) makes "
                f"of a function; not {type(objective).__name__}."
            )
        if one_vs_one and objective.refuses_one_vs_one:
            raise ValueError(f"{objective.name}_ovo is refused: {objective.refuses_one_vs_one}.")
        if sampled_pairs is not None and not (one_vs_one and is_whole(sampled_pairs) and sampled_pairs >= 1):
            raise ValueError(
                f"sampled_pairs is a positive whole number of pairs, for a one-vs-one objective only; not "
                f"{sampled_pairs!r} of {objective.name}_{'ovo' if one_vs_one else 'ova'}."
            )
        if clip not in (None, "auto") and not (isinstance(clip, int | float) and 0 < clip < 1):
            raise ValueError(f"clip is the smallest probability to tell from zero, such as 1e-12; not {clip!r}.")
        self.divergence = objective
        self.one_vs_one = one_vs_one
        if clip == "auto":
            clip = DEFAULT_CLIPS.get(self.name) if self.is_registered else None
        self.clip: float | None = clip
        self.sampled_pairs = sampled_pairs

    @property
    def name(self) -> str:
        """The name, such as ``"mmd_ova"``."""
        return f"{self.divergence.name}_{'ovo' if self.one_vs_one else 'ova'}"

    @property
    def is_registered(self) -> bool:
        """Whether the divergence is one of ``DIVERGENCES``; a custom one may have the same name."""
        return DIVERGENCES.get(self.divergence.name) == self.divergence

    @property
    def needs(self) -> Needs | None:
        """What it needs to know about the samples: a kernel, a distance, or nothing."""
        return self.divergence.needs

    def __repr__(self) -> str:
        clip = "" if self.clip is None and self.name not in DEFAULT_CLIPS else f", clip={self.clip}"
        pairs = "" if self.sampled_pairs is None else f", sampled_pairs={self.sampled_pairs}"
        return f"Gemini({self.name!r}{clip}{pairs})"

    def __call__(
        self,
        log_p: Tensor,
        affinity: Affinity | None = None,
        *,
        sample_weight: Tensor | ArrayLike | None = None,
        generator: torch.Generator | None = None,
        ranks: Ranks | None = None,
    ) -> Tensor:
        """The value of the GEMINI, to be maximised.

        It is differentiable with respect to ``log_p``, and the MMD with respect to its kernel or features too.

        Parameters
        ----------
        log_p : Tensor of shape (…, n, K)
            Log-probabilities log p(y|x) of n samples and K clusters, as ``log_softmax(-1)`` gives them. In half
            precision, or under autocast, all is computed in float32.
        affinity : Tensor of shape (n, n), Features or Paths, optional
            How the n samples relate. The MMD needs a kernel: a matrix, or ``Features`` (n, r) whose products it is.
            Wasserstein needs distances: a matrix, or ``Paths`` in a graph. They are constants. All other objectives
            ignore it. In a loop, pass the same tensor each time: what is computed from it (a kernel's centre, the last
            solutions of transport problems) is cached as long as it lives and is not modified.
        sample_weight : Tensor or array-like of shape (n,), optional
            Finite, non-negative weights of the samples; equal ones by default.
        generator : torch.Generator, optional
            Draws the pairs of ``sampled_pairs``, on the CPU: ``torch.Generator().manual_seed(0)`` makes them the same
            in each run. Without it the global generator of torch does, which ``torch.manual_seed`` seeds. An estimator
            draws them by its ``random_state``.
        ranks : Ranks, optional
            The processes over which the samples are distributed. ``log_p``, ``sample_weight`` and features are then of
            the local samples, of which there may be none; a matrix or paths are of all samples, in the order of the
            ranks. All processes get the value of all samples, and the gradient of value / size, summed over the
            processes, is that of this value.

        Returns
        -------
        Tensor of shape (…)
            One value for each of the leading dimensions of ``log_p``: a scalar for (n, K). It is float64 if
            ``log_p`` is, else float32.

        Raises
        ------
        ValueError
            If ``log_p`` does not hold log-probabilities of a shape (…, n, K); if there are no samples; if the objective
            needs an affinity and there is none, or it is not of n samples, or not symmetric; if distances require a
            gradient; if weights are not one per sample, negative, infinite or all zero. Values are checked on the CPU
            only, and never while torch traces.
        TypeError
            If ``log_p`` is not a tensor, or the affinity is not of a type that the objective takes.
        """
        if isinstance(log_p, Tensor) and sample_weight is not None and not isinstance(sample_weight, Tensor):
            sample_weight = share(np.asarray(sample_weight)).to(log_p.device)
        samples = self._samples(log_p, affinity, sample_weight, ranks)
        device = log_p.device.type
        if device in _AUTOCAST and torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                return self._value(log_p, affinity, sample_weight, generator, samples)
        return self._value(log_p, affinity, sample_weight, generator, samples)

    def _value(
        self,
        log_p: Tensor,
        affinity: Affinity | None,
        sample_weight: Tensor | None,
        generator: torch.Generator | None,
        samples: BatchSamples,
    ) -> Tensor:
        log_p = log_p.to(torch.promote_types(log_p.dtype, torch.float32))
        # log 0 = −inf becomes a large negative number, which can be added and subtracted.
        log_zero = torch.finfo(log_p.dtype).min * _LOG_ZERO
        log_p = log_p.clamp_min(log_zero if self.clip is None else math.log(self.clip))
        log_x = samples.log_shares(log_p, sample_weight)
        log_joint = log_p + log_x[:, None]
        log_y = samples.log_sum(log_joint)
        # From here on the samples of a cluster are contiguous in memory.
        log_x_given_y = (log_joint - log_y[..., None, :]).mT.contiguous()
        p_y = log_y.exp()
        if not self.one_vs_one:
            distances = self.divergence(log_x_given_y, log_x[None], affinity, samples)[..., 0]
            return (p_y * distances).sum(-1)
        if self.sampled_pairs is not None:
            return self._sampled(p_y, log_x_given_y, affinity, generator, samples)
        distances = self.divergence(log_x_given_y, log_x_given_y, affinity, samples)
        itself = torch.eye(p_y.shape[-1], dtype=torch.bool, device=p_y.device)
        return (p_y[..., :, None] * p_y[..., None, :] * distances.masked_fill(itself, 0)).sum((-2, -1))

    def _sampled(
        self,
        p_y: Tensor,
        log_x_given_y: Tensor,
        affinity: Affinity | None,
        generator: torch.Generator | None,
        samples: BatchSamples,
    ) -> Tensor:
        K, m = p_y.shape[-1], self.sampled_pairs
        assert m is not None
        if K < 2:
            return (p_y * 0).sum(-1)
        first = samples.same(torch.randint(K, (m,), generator=generator)).to(p_y.device)
        step = samples.same(torch.randint(1, K, (m,), generator=generator)).to(p_y.device)
        second = (first + step) % K
        one, other = log_x_given_y[..., first, None, :], log_x_given_y[..., second, None, :]
        distances = self.divergence(one, other, affinity, samples)[..., 0, 0]
        return (p_y[..., first] * p_y[..., second] * distances).mean(-1) * (K * (K - 1))

    def _samples(
        self, log_p: Tensor, affinity: Affinity | None, sample_weight: Tensor | None, ranks: Ranks | None
    ) -> BatchSamples:
        """Validate the arguments, and return the samples of the batch."""
        if ranks is None:
            self._check(log_p, affinity, sample_weight)
            if sample_weight is not None and _is_seen(sample_weight) and len(sample_weight) and not sample_weight.any():
                raise InputError(NO_WEIGHT)
            self._check_length(affinity, log_p.shape[-2])
            if not log_p.shape[-2]:
                raise InputError(f"There are no samples: log_p is of shape {tuple(log_p.shape)}.")
            return LOCAL
        if is_traced():
            raise InputError(
                "Samples that are spread over processes (ranks) cannot be traced or transformed: compile the network, "
                "not the objective."
            )
        error: Exception | None = None
        try:
            self._check(log_p, affinity, sample_weight)
            if isinstance(affinity, Features):
                self._check_length(affinity, log_p.shape[-2])
        except (TypeError, ValueError) as found:
            error = found
        spread = DistributedSamples.meet(ranks, log_p, affinity, sample_weight, error)
        if not isinstance(affinity, Features):
            self._check_length(affinity, spread.n)
        return spread

    def _check(self, log_p: Tensor, affinity: Affinity | None, sample_weight: Tensor | None) -> None:
        if not isinstance(log_p, Tensor):
            raise TypeError(f"log_p must be a tensor of log-probabilities, not {type(log_p).__name__}.")
        if log_p.ndim < 2 or not log_p.is_floating_point():
            raise ValueError(
                f"log_p must hold log-probabilities of shape (…, n, K); got {log_p.dtype} {tuple(log_p.shape)}."
            )
        check_log_probabilities(log_p)
        n = log_p.shape[-2]
        if sample_weight is not None and sample_weight.shape != (n,):
            raise ValueError(
                f"sample_weight must have shape ({n},), one weight a sample; got {tuple(sample_weight.shape)}."
            )
        if _is_seen(log_p) and sample_weight is not None and n:
            least, most = map(float, sample_weight.detach().aminmax())
            if not 0 <= least <= most < math.inf:
                raise InputError("sample_weight must be finite and not negative: leave a sample out by a weight of 0.")
        if self.needs is None:
            return
        if affinity is None:
            raise ValueError(f"{self.name} needs a {self.needs} between the samples: pass it as affinity.")
        # Not a union of types, which torch 2.6 cannot trace.
        if not isinstance(affinity, (Tensor, Features, Paths)):
            raise TypeError(f"The affinity must be a tensor, Features or Paths, not {type(affinity).__name__}.")

    def _check_length(self, affinity: Affinity | None, n: int) -> None:
        if self.needs is None or affinity is None:
            return
        is_matrix = not isinstance(affinity, Features) or affinity.values.ndim == 2
        if len(affinity) != n or not is_matrix or (isinstance(affinity, Tensor) and affinity.shape != (n, n)):
            raise ValueError(
                f"The affinity of {n} samples must be a tensor ({n}, {n}), or Features(x) of pollux.geometry for x "
                f"({n}, r); got a {type(affinity).__name__} of {_shape(affinity)}."
            )


def check_log_probabilities(log_p: Tensor) -> None:
    """Raise a ValueError if (…, n, K) are logits or probabilities; values are checked on the CPU only."""
    if not _is_seen(log_p) or not log_p.numel():
        return
    # Without a softmax the loss would still rise, so the mistake would go unnoticed.
    if bool(log_p.detach().amax() > _LOG_ROUNDING):
        raise ValueError("log_p holds positive numbers, so they are not log-probabilities: call .log_softmax(-1).")
    # A missing softmax affects all samples, so checking some is enough.
    some = log_p.detach()[..., :: max(1, log_p.shape[-2] // _LOOKED_AT), :].float().exp().sum(-1)
    wrong = (some - 1).abs() > (_ROUNDING if log_p.dtype.itemsize > 2 else _HALF_ROUNDING)
    if bool(wrong.any()):
        raise ValueError(
            f"log_p holds no log-probabilities: those of a sample sum to {float(some[wrong][0]):.3g} over the "
            "clusters, and must to 1: call .log_softmax(-1)."
        )


def _is_seen(tensor: Tensor) -> bool:
    """Whether values may be inspected; on other devices that would wait for the device."""
    return tensor.device.type == "cpu" and not is_traced()


def _shape(affinity: Affinity) -> tuple[int, ...]:
    if isinstance(affinity, Paths):
        return (len(affinity), len(affinity))
    return tuple((affinity.values if isinstance(affinity, Features) else affinity).shape)


def _parse(name: str, one_vs_one: bool) -> tuple[Divergence, bool]:
    """'mmd_ovo' → (mmd, True); a bare 'mmd' leaves the mode to ``one_vs_one``."""
    divergence, _, mode = ALIASES.get(name, name).rpartition("_")
    if not divergence and name in DIVERGENCES:
        return DIVERGENCES[name], one_vs_one
    if divergence not in DIVERGENCES or mode not in ("ova", "ovo"):
        raise ValueError(unknown("objective", name, (*ALIASES, *GEMINIS)))
    if one_vs_one and mode == "ova":
        raise ValueError(f"{name!r} is one-vs-all by name, but one_vs_one=True was given.")
    return DIVERGENCES[divergence], mode == "ovo"

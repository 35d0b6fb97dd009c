"""Linear layers of any module by oneDNN, where it multiplies faster than what torch uses."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter, functional
from torch.overrides import TorchFunctionMode

# Multiplications, and columns, from which a product gains more than what differentiating it in Python adds.
_LARGE, _WIDE = 10_000_000, 64


def _multiply(a: Tensor, b: Tensor) -> Tensor:
    """a bᵀ, of a (n, d) and b (m, d)."""
    product: Tensor = _Product.apply(a, b)  # type: ignore[no-untyped-call]
    return product


class _Product(torch.autograd.Function):
    """a bᵀ, of a (n, d) and b (m, d): differentiable any number of times, also under ``torch.func``."""

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        product: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
        return product

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        by_a = _multiply(gradient, b.mT) if ctx.needs_input_grad[0] else None
        by_b = _multiply(gradient.mT, a.mT) if ctx.needs_input_grad[1] else None
        return by_a, by_b

    @staticmethod
    def jvp(ctx: Any, tangent_a: Tensor | None, tangent_b: Tensor | None) -> Tensor:
        a, b = ctx.saved_tensors
        by_a = 0.0 if tangent_a is None else tangent_a @ b.mT
        by_b = 0.0 if tangent_b is None else a @ tangent_b.mT
        return by_a + by_b  # type: ignore[return-value]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], a: Tensor, b: Tensor) -> tuple[Tensor, int]:
        all_a, all_b = (
            [each] * info.batch_size if dim is None else each.unbind(dim)
            for each, dim in zip((a, b), in_dims, strict=True)
        )
        return torch.stack([_multiply(*pair) for pair in zip(all_a, all_b, strict=True)]), 0


class _OneDNNMode(TorchFunctionMode):
    """In this context, large ``torch.nn.functional.linear`` in single precision are computed by oneDNN."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is functional.linear and not kwargs and _is_large(*args):
            product = _multiply(*args[:2])
            return product if args[2:] in ((), (None,)) else product + args[2]
        return func(*args, **(kwargs or {}))


def _is_large(inputs: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    """Whether the arguments are those of a large layer, as torch would accept them; it refuses the others better."""
    given = (inputs, weight) if bias is None else (inputs, weight, bias)
    return (
        # Tensors of other types may be traced, distributed or quantised.
        all(type(each) in (Tensor, Parameter) for each in given)
        and all(each.dtype == torch.float32 and each.device.type == "cpu" for each in given)
        and all(each.layout == torch.strided for each in given)
        and inputs.ndim == weight.ndim == 2
        and inputs.shape[1] == weight.shape[1]
        and (bias is None or bias.shape == weight.shape[:1])
        and min(inputs.shape[1], weight.shape[0]) >= _WIDE
        and inputs.shape[0] * weight.numel() >= _LARGE
        # Compilers and exporters record what they see, and autocast casts the inputs of torch's own operator.
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()  # type: ignore[no-untyped-call, attr-defined]
        and not torch.is_autocast_enabled("cpu")
    )


def fast_linear_layers() -> AbstractContextManager[Any]:
    """A context in which large linear layers are computed by the fastest library for this processor.

    Torch multiplies by MKL, which does without AVX-512 on AMD's processors: there oneDNN is twice as fast.
    """
    return _OneDNNMode() if _is_slow_by_mkl() and _is_enabled() else nullcontext()


def _is_enabled() -> bool:
    return bool(torch.backends.mkldnn.enabled)


@functools.cache
def _is_slow_by_mkl() -> bool:
    return (
        torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and _vendor() == "AuthenticAMD"
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )


def _vendor() -> str | None:
    """The vendor of the processor on Linux; None elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), None)

"""From a torch network to ONNX."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn

from pollux.clustering import GeminiClustering
from pollux.io.onnx.library import OPSET, onnx_library


def translators(clustering: GeminiClustering) -> tuple[Callable[..., Any], ...]:
    """The two ways that torch has, in the order in which to try them.

    Tracing is fast, needs no further package and knows all layers of our own models, but torch is to part with it.
    It cannot see where a program branches: networks of users are read by torch.export first.
    """
    return (_traced, _exported) if isinstance(clustering.model, str) else (_exported, _traced)


def precisions(clustering: GeminiClustering) -> list[torch.dtype]:
    """That of the model; runtimes lack convolutions and some others in float64."""
    own = [] if len(clustering.fitted_.shape) == 3 else [clustering.fitted_.dtype]
    return list(dict.fromkeys([*own, torch.float32]))


def copied(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    return copy.deepcopy(module).to("cpu", dtype).eval()


_NAMED: dict[str, Any] = {"input_names": ["features"], "output_names": ["logits"], "opset_version": OPSET}


@torch.no_grad()
def _traced(module: nn.Module, example: Tensor) -> Any:
    batch = {"features": {0: "n"}, "logits": {0: "n"}}
    with TemporaryDirectory() as folder:
        file = f"{folder}/network.onnx"
        torch.onnx.export(module, (example,), file, dynamic_axes=batch, dynamo=False, **_NAMED)
        return onnx_library().load(file)


@torch.no_grad()
def _exported(module: nn.Module, example: Tensor) -> Any:
    batch = ({0: torch.export.Dim("n")},)
    program = torch.onnx.export(module, (example,), dynamic_shapes=batch, verbose=False, dynamo=True, **_NAMED)
    assert program is not None
    return program.model_proto


@contextmanager
def silence() -> Iterator[None]:
    """Neither warnings nor log lines: what torch says of its own packages is no concern of the user's."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)

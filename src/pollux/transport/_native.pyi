"""The compiled solvers and training steps: arrays in, answers written into the arrays given for them."""

from typing_extensions import Buffer

def solve_metric(
    p: Buffer,
    q: Buffer,
    parent: Buffer,
    up: Buffer,
    values: Buffer,
    potentials: Buffer,
    gaps: Buffer,
    report: Buffer,
    cost: Buffer,
    single: Buffer,
    largest: float,
    tolerance: float,
    threads: int,
    /,
) -> None: ...
def solve_graph(
    p: Buffer,
    q: Buffer,
    parent: Buffer,
    up: Buffer,
    values: Buffer,
    potentials: Buffer,
    gaps: Buffer,
    report: Buffer,
    starts: Buffer,
    ends: Buffer,
    lengths: Buffer,
    threads: int,
    /,
) -> None: ...
def solve_general(
    p: Buffer,
    q: Buffer,
    cost: Buffer,
    values: Buffer,
    potentials_p: Buffer,
    potentials_q: Buffer,
    gaps: Buffer,
    report: Buffer,
    threads: int,
    /,
) -> None: ...
def describe(cost: Buffer, /) -> tuple[bool, float, float, float, float]: ...
def triangles_hold(cost: Buffer, step: int, tolerance: float, threads: int, /) -> bool: ...
def train_steps(
    widths: Buffer,
    activations: Buffer,
    parameters: Buffer,
    mean: Buffer,
    square: Buffer,
    steps: int,
    beta1: float,
    beta2: float,
    objective: str,
    clip: float,
    smoothing: float,
    inputs: Buffer,
    features: Buffer,
    weight: Buffer,
    labels: Buffer,
    index: Buffer,
    ends: Buffer,
    rates: Buffer,
    values: Buffer,
    entropy: Buffer,
    counts: Buffer,
    /,
) -> None: ...
def forward(widths: Buffer, activations: Buffer, parameters: Buffer, inputs: Buffer, logits: Buffer, /) -> None: ...
def ascend(
    widths: Buffer,
    activations: Buffer,
    parameters: Buffer,
    mean: Buffer,
    square: Buffer,
    steps: int,
    beta1: float,
    beta2: float,
    inputs: Buffer,
    gradient: Buffer,
    rate: float,
    /,
) -> None: ...
def gemini_gradient(
    objective: str,
    clip: float,
    clusters: int,
    logits: Buffer,
    features: Buffer,
    weight: Buffer,
    values: Buffer,
    gradient: Buffer,
    /,
) -> None: ...

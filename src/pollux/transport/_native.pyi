"""The compiled solvers: arrays in, answers written into the arrays given for them."""

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

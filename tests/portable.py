"""Run all tests as on other machines: ``python tests/portable.py``, followed by further arguments of pytest.

==================  ===========================================================
an old processor    no AVX and no fused products, two threads each
a common processor  no AVX-512, one thread each, every core kept busy by others,
                    and a user who may not write everywhere
==================  ===========================================================

Both in a random order, which is printed and can be repeated with ``SEED=…``.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

TESTS = (sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-q", "-p", "no:cacheprovider")
NOBODY = 65534

OLD = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "OPENBLAS_CORETYPE": "Prescott",
}
COMMON = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "OPENBLAS_CORETYPE": "Haswell"}


def processor(limits: dict[str, str], *, is_old: bool) -> dict[str, str]:
    """Return variables that make torch and NumPy avoid instructions of this processor; only x86 is affected."""
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return {}
    from numpy._core import _multiarray_umath as umath

    # NumPy warns about unknown names, which differ between versions.
    known = [name for name in umath.__cpu_dispatch__ if umath.__cpu_features__[name]]
    refused = [name for name in known if is_old or name == "X86_V4" or name.startswith("AVX512")]
    return limits | ({"NPY_DISABLE_CPU_FEATURES": " ".join(refused)} if refused else {})


@contextmanager
def busy_cores() -> Iterator[None]:
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def may_be_nobody() -> bool:
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        print("Not started by root: no other user can be taken, the tests run as this one.", flush=True)
        return False
    try:
        tried = [sys.executable, "-c", "import pytest, torch"]
        subprocess.run(tried, check=True, capture_output=True, user=NOBODY, group=NOBODY, extra_groups=[])
    except (OSError, subprocess.CalledProcessError):
        print(f"Other users than root may not run {sys.executable}: the tests run as root.", flush=True)
        return False
    return True


def run(environment: dict[str, str], given: list[str], *, is_nobody: bool = False) -> int:
    with tempfile.TemporaryDirectory() as home:
        own: dict[str, str] = {"HYPOTHESIS_STORAGE_DIRECTORY": f"{home}/hypothesis", "OMP_WAIT_POLICY": "PASSIVE"}
        user = {}
        if is_nobody:
            os.chown(home, NOBODY, NOBODY)
            own |= {"HOME": home, "TMPDIR": home, "PYTHONDONTWRITEBYTECODE": "1"}
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        seed = os.environ.get("SEED") or str(int(time.time()))
        print(*(f"{name}={value!r}" for name, value in (environment | {"SEED": seed}).items()), flush=True)
        command = [*TESTS, "--shuffle", seed, *given]
        return subprocess.run(command, env=os.environ | own | environment, **user).returncode


def main(given: list[str]) -> int:
    print("An old processor, two threads:", flush=True)
    ended = [run(processor(OLD, is_old=True) | {"OMP_NUM_THREADS": "2"}, given)]
    print("A common processor, busy cores, another user:", flush=True)
    with busy_cores():
        common = processor(COMMON, is_old=False) | {"OMP_NUM_THREADS": "1"}
        ended.append(run(common, given, is_nobody=may_be_nobody()))
    return max(ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

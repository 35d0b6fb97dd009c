"""The one thing that pyproject.toml cannot say: how to build the compiled part, and that it is optional."""

import sys

from setuptools import Extension, setup

windows = sys.platform == "win32"
native = "src/pollux/transport/native"
headers = ["bipartite", "centres", "complete", "general", "graph", "products", "scan"]
headers += ["simplex", "splits", "steps", "tree"]
flags = ["-std=c++17", "-O3", "-g0", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-pthread"]
if windows:
    flags = ["/std:c++17", "/O2", "/EHsc", "/utf-8"]

setup(
    ext_modules=[
        Extension(
            "pollux.transport._native",
            [f"{native}/module.cpp"],
            depends=[f"{native}/{name}.hpp" for name in headers],
            language="c++",
            extra_compile_args=flags,
            extra_link_args=[] if windows else ["-pthread"],
            py_limited_api=True,
            # Without a compiler the installation succeeds, and POT and autograd do the work.
            optional=True,
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)

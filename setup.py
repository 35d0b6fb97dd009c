"""What pyproject.toml cannot say: how to build the compiled part, that it is optional, where README's links lead."""

import re
import sys
from pathlib import Path

from setuptools import Extension, setup

windows = sys.platform == "win32"
native = "src/pollux/native"
headers = ["bipartite", "centres", "complete", "general", "graph", "products", "scan"]
headers += ["simplex", "splits", "steps", "tree", "wasserstein"]
flags = ["-std=c++17", "-O3", "-g0", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math", "-pthread"]
if windows:
    flags = ["/std:c++17", "/O2", "/EHsc", "/utf-8"]

# A package index shows the README without the files beside it.
source = "https://github.com/pollux-clustering/pollux"
readme = Path("README.md").read_text(encoding="utf-8")
readme = re.sub(r"(!\[[^]]*\])\((?!https:)([^)]+)\)", rf"\1({source}/raw/main/\2)", readme)
readme = re.sub(r"\]\((?!https:|#)([^)]+)\)", rf"]({source}/blob/main/\1)", readme)

setup(
    long_description=readme,
    long_description_content_type="text/markdown",
    ext_modules=[
        Extension(
            "pollux.native._compiled",
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

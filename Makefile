# make demo            clusters scikit-learn's digits, prints what was found and writes a report into demo/
# make test            all tests; those of the report in a browser only where Chromium is installed
# make test-faults     all tests of kills, signals, damaged files, full disks, lost processes, and others that take long
# make test-portable   all tests twice, as on other machines: processors, threads, order, user, busy cores
# make test-laws       the laws that hold for any data, on random data that no run has tried before
# make test-lowest     all tests with the oldest releases that pyproject.toml allows, in an environment of their own
# make test-browser    installs Chromium (Debian, Ubuntu) and runs those
# make fuzz            the compiled part under sanitizers, with arrays of every kind; needs g++
# make check           style, types
# make bench           the table of speed and memory, side by side with GemClus
# make bench-speed     defaults and recipes beside k-means, idle and on busy cores: time and memory
# make bench-embeddings  clusters of embedded texts and photographs beside peers; encoders; a million rows
# make bench-transport the same for Wasserstein objectives and their solver
# make bench-files     the command line on large files: time and memory
# make bench-scale     many rows and several processes: time, memory, messages
# make bench-accuracy  the table of adjusted Rand indices: k-means, GemClus, Pollux
# make bench-quality   clusters against known classes, side by side with scikit-learn and GemClus
# make bench-explain   trees beside GemClus's, and how true the rules of clusters are
# make bench-guide     outliers, hints and sizes, side by side with scikit-learn and, where it is installed, hdbscan
# make bench-selection numbers of clusters that are known, side by side with silhouette, BIC and HDBSCAN
# make docs            builds the site of documentation into docs/_build/html, its gallery included
# make pages           puts what results/ records of experiments, quality and speed into docs/ and README.md
# Each builds its own environment in .venv; nothing needs to be installed first but Python 3.11+ and make.

PYTHON ?= python3
BIN := .venv/bin
# Two test processes share the cores; one thread each, and none that spins while it waits, keeps them from fighting.
# Bytecode is kept, whatever the environment says: the tests start many processes, and each would compile everything.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n 2 --dist loadgroup -q

.PHONY: demo test test-faults test-portable test-laws test-lowest test-browser fuzz check bench bench-speed bench-embeddings bench-transport bench-files bench-scale bench-accuracy bench-quality bench-explain bench-guide bench-selection docs pages clean

NATIVE := $(wildcard src/pollux/transport/native/*)

.venv/installed-%: pyproject.toml constraints.txt setup.py $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$*]"
	touch $@

demo: .venv/installed-report
	$(BIN)/python examples/demo.py

test: .venv/installed-dev
	$(PYTEST)

test-faults: .venv/installed-dev
	POLLUX_FAULTS=full $(PYTEST) tests/faults tests/docs tests/geometry/test_neighbours.py tests/app/test_command_line.py tests/app/test_console.py tests/clustering/test_estimator_checks.py tests/training/test_forked_fits.py tests/objectives

test-portable: .venv/installed-dev
	$(BIN)/python tests/portable.py

test-laws: .venv/installed-dev
	$(PYTEST) -m hypothesis --hypothesis-profile=new_examples

# pip has no way to ask for the oldest releases; uv has.
test-lowest:
	test -x .venv-lowest/bin/python || $(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct --editable ".[test]"
	$(subst $(BIN),.venv-lowest/bin,$(PYTEST))

test-browser: .venv/installed-dev
	command -v chromium || (apt-get update && apt-get install --yes chromium)
	$(PYTEST) tests/report/test_report_browser.py

fuzz: .venv/installed-dev
	$(BIN)/python tests/faults/fuzz_transport.py

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/installed-docs
	OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

bench: .venv/installed-bench
	$(BIN)/python benchmarks/core.py

bench-speed: .venv/installed-bench .venv/installed-files
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/speed.py --busy

bench-embeddings: .venv/installed-bench .venv/installed-files
	$(BIN)/python benchmarks/embeddings.py

bench-transport: .venv/installed-bench .venv/installed-report
	$(BIN)/python benchmarks/transport.py
	$(BIN)/python benchmarks/transport.py --plot docs/images/transport.png

bench-files: .venv/installed-bench .venv/installed-files
	$(BIN)/python benchmarks/files.py

bench-scale: .venv/installed-bench .venv/installed-files
	$(BIN)/python benchmarks/scale.py

# It shares the demo's data, kernel and settings, and so needs what the demo needs.
bench-accuracy: .venv/installed-bench .venv/installed-report
	$(BIN)/python benchmarks/accuracy.py

bench-quality: .venv/installed-bench .venv/installed-report
	$(BIN)/pollux bench quality
	$(BIN)/python benchmarks/quality.py

bench-explain: .venv/installed-bench
	$(BIN)/python benchmarks/explain.py

bench-guide: .venv/installed-bench
	$(BIN)/python benchmarks/guide.py

bench-selection: .venv/installed-bench
	$(BIN)/python benchmarks/selection.py

pages: .venv/installed-report
	$(BIN)/python benchmarks/reproduction.py
	$(BIN)/python benchmarks/quality.py
	$(BIN)/python benchmarks/measure.py

clean:
	rm -rf .venv .venv-lowest build dist demo docs/_build docs/gallery docs/reference/generated docs/reference/*.rst src/pollux/transport/_native*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis

# First
#   make demo             cluster scikit-learn's digits and write a report of them into demo/
#   make docs             build the site into docs/_build/html, its gallery included
#
# Before a commit
#   make check            style and types
#   make test             the tests, in minutes
#
# Before a release
#   make dist             the source archive and the wheel, into dist/
#   make test-lowest      all tests with the oldest releases that pyproject.toml allows, in .venv-lowest
#   make test-newest      all tests with the newest releases, in .venv-newest; PYTHON=python3.13 for another Python
#   make test-faults      all tests with all kills, signals, damaged files and full disks, and those that take long
#   make test-portable    all tests twice, as on other machines: processors, threads, order, user, busy cores
#   make test-laws        the laws that hold for any data, on random data that no run has tried before
#   make test-browser     installs Chromium (Debian, Ubuntu) and tests the report and the built site in it
#   make fuzz             the compiled part under sanitizers, with arrays of every kind; needs g++
#
# Speed: recorded in results/speed with the commit and the machine
#   make bench            the next five, one after the other, and one table of all
#   make bench-speed      the recipes beside k-means, idle and on busy cores
#   make bench-core       objectives, steps and fits beside GemClus
#   make bench-transport  Wasserstein objectives beside GemClus, the solver beside POT
#   make bench-files      the command line on large files
#   make bench-scale      many rows and several processes
#
# Quality: are the clusters right?
#   make bench-quality    against known classes, beside scikit-learn and GemClus
#   make bench-accuracy   at equal settings, beside GemClus
#   make bench-selection  numbers of clusters, beside silhouette, BIC and HDBSCAN
#   make bench-explain    trees beside GemClus's, and how true the rules are
#   make bench-guide      outliers, hints and sizes, beside scikit-learn and hdbscan
#   make bench-embeddings embedded texts and photographs, beside UMAP with HDBSCAN and others
#   make pages            put what results/ records into docs/ and README.md
#
# Each builds its own environment in .venv; nothing needs to be installed first but Python 3.11+ and make.

PYTHON ?= python3
BIN := .venv/bin
# Two test processes share the cores; one thread each, and none that spins while it waits, keeps them from fighting.
# Bytecode is kept, whatever the environment says: the tests start many processes, and each would compile everything.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -n 2 --dist loadgroup -q
SPEED := speed core transport files scale
QUALITY := quality accuracy selection explain guide embeddings

.PHONY: help demo docs check test dist test-lowest test-newest test-faults test-portable test-laws test-browser fuzz bench $(addprefix bench-,$(SPEED) $(QUALITY)) pages clean

help:
	@sed -n 's/^# \{0,1\}//p; /^PYTHON/q' Makefile

NATIVE := $(wildcard src/pollux/native/*pp)

.venv/installed-%: pyproject.toml constraints.txt setup.py $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[$*]"
	touch $@

demo: .venv/installed-report
	$(BIN)/python examples/demo.py

docs: .venv/installed-docs
	OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build/html

check: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: .venv/installed-dev
	$(PYTEST)

dist: .venv/installed-dev
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

# pip has no way to ask for the oldest releases; uv has.
test-lowest: RESOLUTION := lowest-direct
test-newest: RESOLUTION := highest
test-lowest test-newest: test-%:
	test -x .venv-$*/bin/python || $(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --quiet uv
	.venv-$*/bin/uv pip install --quiet --python .venv-$*/bin/python --upgrade --resolution $(RESOLUTION) --editable ".[test]"
	$(subst $(BIN),.venv-$*/bin,$(PYTEST))

test-faults: .venv/installed-dev
	POLLUX_FAULTS=full $(PYTEST)

test-portable: .venv/installed-dev
	$(BIN)/python tests/portable.py

test-laws: .venv/installed-dev
	POLLUX_FAULTS=full $(PYTEST) -m hypothesis --hypothesis-profile=new_examples

test-browser: .venv/installed-dev
	command -v chromium || (apt-get update && apt-get install --yes chromium)
	POLLUX_FAULTS=full $(PYTEST) tests/report/test_report_browser.py tests/docs/test_site.py

fuzz: .venv/installed-dev
	$(BIN)/python tests/faults/fuzz_transport.py

bench: $(addprefix bench-,$(SPEED))
	$(BIN)/python benchmarks/measure.py

$(addprefix bench-,$(SPEED) $(QUALITY)): bench-%: .venv/installed-bench
	$(if $(filter quality,$*),$(BIN)/pollux bench quality)
	$(BIN)/python benchmarks/$*.py
	$(if $(filter speed,$*),$(BIN)/python benchmarks/speed.py --busy)
	$(if $(filter transport,$*),$(BIN)/python benchmarks/transport.py --plot docs/images/transport.png)

pages: .venv/installed-report
	$(BIN)/python benchmarks/reproduction.py
	$(BIN)/python benchmarks/quality.py
	$(BIN)/python benchmarks/measure.py

clean:
	rm -rf .venv .venv-lowest build dist demo docs/_build docs/gallery docs/reference/generated docs/reference/*.rst src/pollux/native/_compiled*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis

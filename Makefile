# Every target sets up what it needs, from a fresh clone too. `make help` lists them.
MAKEFLAGS += --no-print-directory
python := .venv/bin/python
# Bytecode is kept, whatever the shell says: without it every process compiles khot and all tests again.
pytest := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= PYTHONPATH=tools $(python) -m pytest -p quick_tests_first \
	-n logical --maxprocesses 4 --ignore=tests/extra

.PHONY: help venv demo test test-full test-extra test-gpu test-all test-matrix test-aarch64 format bench bench-peers docs \
	sanitize dist clean distclean \
	check check-lint check-format check-types check-doctest check-imports check-tables

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile
	@echo ''
	@echo '  PYTHON=python3.12     the interpreter that makes .venv (3.10 or newer; default python3)'
	@echo '  PIP_ARGS="..."        passed to every pip install, e.g. "--index-url URL" or'
	@echo '                        "--no-index --find-links FOLDER"'
	@echo '  TORCH="torch==2.14.*" another torch than the one pinned in constraints.txt'
	@echo '  PYTEST_ARGS="-k name" passed to pytest by make test and test-full ("-n 0": one process)'
	@echo '  SUITE=name            the suite that make bench and make bench-peers run (default all)'
	@echo '  KHOT_REQUIRE_NATIVE=1 fail when the kernels cannot be compiled; KHOT_NO_NATIVE=1 do not compile'
	@echo '  MATRIX_TORCH=2.14.1   the torch of make test-matrix; MATRIX_CUDA=1: also one with CUDA libraries'
	@echo ''
	@echo '  PIP_ARGS and TORCH are remembered in .venv until others are given; make distclean forgets them.'

venv: ## .venv with khot and its laboratory (editable), their tools and the compiled kernels
	@tools/set_up_venv.sh

demo: venv ## soft top-k in one screen: what it does, what it finds, who wins on this machine
	@$(python) -m khot demo
	@$(python) -m khot compare --quick --brief

test: venv ## every property on well chosen combinations, quick ones first (at most 5 minutes)
	@$(pytest) -m 'not full' $(PYTEST_ARGS)

test-full: venv ## the costly combinations that make test leaves out
	@$(pytest) -m full $(PYTEST_ARGS)

test-extra: venv ## the tests that need more: R, a browser, several processes, peers
	@tools/test_extra.sh

test-gpu: venv ## the operators and kernels on a GPU: a result file to send in (nobody has run them yet)
	@KHOT_TRITON=1 $(python) -m pytest -n 0 tests/extra/gpu $(PYTEST_ARGS)
	@KHOT_TRITON=1 $(python) -m khot bench gpu

test-matrix: ## one wheel on every Python that is here, oldest and newest torch and NumPy (minutes each)
	@tools/test_matrix.sh

test-aarch64: venv ## the kernels on aarch64: cross-compiled, run by qemu
	@tools/test_cross.sh aarch64

test-all: ## test, test-full, then test-extra
	@$(MAKE) test
	@$(MAKE) test-full
	@$(MAKE) test-extra

check: check-lint check-format check-types check-doctest check-imports check-tables ## all checks but the tests

check-lint: venv
	@echo 'check: ruff check'
	@$(python) -m ruff check .

check-format: venv
	@echo 'check: ruff format'
	@$(python) -m ruff format --check .

check-types: venv
	@echo 'check: pyright'
	@$(python) -m pyright

check-doctest: venv
	@echo 'check: the examples in docstrings'
	@$(python) -m pytest -q --doctest-modules src/khot --ignore=src/khot/kernels/triton

check-imports: venv
	@echo 'check: imports point one way'
	@$(python) -m pytest -q tests/unit/test_import_direction.py

check-tables: venv
	@echo 'check: generated tables are up to date'
	@$(python) -m khot bench tables --check

format: venv ## ruff: sort imports, correct what it can, format
	@$(python) -m ruff check --fix .
	@$(python) -m ruff format .

bench: venv ## measure: python -m khot bench all (SUITE=name for one)
	@$(python) -m khot bench $(or $(SUITE),all)

bench-peers: ## measure beside the peers, in their own environment .venv-peers
	@tools/set_up_peers.sh
	@.venv-peers/bin/python -m khot bench $(or $(SUITE),all)

docs: ## the documentation, into docs/_build/html
	@tools/set_up_venv.sh docs
	@$(python) -m sphinx -W --keep-going -b html docs docs/_build/html

sanitize: venv ## the kernels under the address and undefined-behaviour sanitizers
	@PYTHON=$(python) tools/sanitize.sh

dist: ## the source archive and the wheel, into dist/; installed and tested in empty environments
	@tools/build_dist.sh
	@tools/test_dist.sh

clean: ## remove build products and caches, keep .venv
	@rm -rf build dist src/*.egg-info src/khot/_native*.so .pytest_cache .ruff_cache .hypothesis
	@rm -rf benchmarks/build benchmarks/*.egg-info
	@rm -rf docs/_build docs/gallery docs/sg_execution_times.rst
	@find . -path './.venv*' -prune -o -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## clean, and remove .venv and the environments of peers
	@rm -rf .venv .venv-*

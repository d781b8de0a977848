# Everything is set up in .venv on the way; a second run starts at once. `make help` says what there is.

# The Python to make .venv with; left empty, deploy/python.sh finds one.
PYTHON ?=
# Which CUDA extra to install (none, cuda12, cuda13); left empty, the driver decides.
export PINHOLE_CUDA_EXTRA ?=
# What else to hand to the command: make serve ARGS='--port 9000', make test ARGS='tests/kernels -k gamma'.
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
INSTALL = python=$(or $(PYTHON),$$(sh deploy/python.sh)) && \
	{ command -v "$$python" >/dev/null || { echo "PYTHON=$$python is no program here" >&2; exit 1; }; } && $$python deploy/install.py --venv $(VENV)

.DEFAULT_GOAL := help
.PHONY: help serve test test-v4l2 setup setup-dev setup-bench programs check format bench clean

help:  ## say what there is
	@sed -n 's/^\([a-z][a-z0-9-]*\):.*##  *\(.*\)/make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16
	@echo "ARGS='...' is handed on: make serve ARGS='--port 9000 --chain \"testcard=gamma(gamma=2) | sobel\"'"
	@echo "PYTHON=/path/to/python3 chooses the Python."

serve: setup  ## set up what is missing and serve http://127.0.0.1:8080 (Ctrl-C ends it)
	@$(BIN)/pinhole serve $(ARGS)

# Pictures and kernels have neither clocks nor ports, so they are tested side by side; the rest has the machine to itself.
test: setup-dev programs  ## set up what is missing and run all tests
ifeq ($(strip $(ARGS)),)
	@code=0; $(BIN)/python -m pytest -n auto --dist worksteal tests/kernels || code=1; \
	$(BIN)/python -m pytest --ignore=tests/kernels || code=1; exit $$code
else
	@$(BIN)/python -m pytest $(ARGS)
endif

test-v4l2: setup-dev  ## run the tests of V4L2 against virtual cameras, in a virtual machine that is made on the way (Debian, root)
	@tests/v4l2/run.sh $(ARGS)

setup:  ## install alone: what serving needs, with CUDA if there is a GPU
	@$(INSTALL) --cuda fit video

setup-dev:  ## install alone: what tests and linters need
	@$(INSTALL) --cuda any video dev

setup-bench:
	@$(INSTALL) --cuda any video dev bench

programs: setup-dev
	@sh deploy/programs.sh $(VENV)/pinhole-programs

check: setup-dev  ## run the linters alone
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup-dev  ## format the code and apply the linters' safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup-bench  ## run the benchmarks; tables and JSON go to build/benchmarks
	$(BIN)/python -m tests.benchmarks $(ARGS)

clean:  ## remove everything that was made here, the virtual environments too
	rm -rf $(VENV) $(VENV)-3.* build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Every target sets up what it needs: a virtual environment in .venv, made anew when pyproject.toml changes.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo reproduce test test-slow bench chromium docs format clean

demo: .venv/ready
	$(BIN)/python examples/breast_cancer.py

reproduce: .venv/ready
	$(BIN)/dlrd reproduce

# The tests of one file stay in one process, for they share what they compile and draw; the short files come
# last. With a thread of BLAS and of PyTorch each, the two processes do not wait for each other. ArviZ notes the
# day on which it was first imported, and two processes that do so at once get in each other's way: hence once
# before. The site is built, strictly, by the test that looks at its pages; and what one process of Python has
# parsed, those that tests start need not parse again.
test: .venv/ready chromium
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/python -W ignore -c 'import arviz'
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# All tests, also those that take minutes, with programs compiled as users have them.
test-slow: .venv/ready chromium
	$(BIN)/python -W ignore -c 'import arviz'
	XLA_FLAGS= PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m ''

bench: .venv/ready
	$(BIN)/dlrd bench steps

docs: .venv/ready
	$(BIN)/mkdocs build --strict

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf .venv site .pytest_cache .ruff_cache .hypothesis

# The tests look at the pages in a real browser.
chromium:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null \
		|| { apt-get update -qq && apt-get install -qq -y chromium >/dev/null; } \
		|| { echo "make test needs Chromium: install it with your system's package manager"; exit 1; }

.venv/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "dlrd needs Python 3.11 or newer, $(PYTHON) is older: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

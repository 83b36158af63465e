# Everything a newcomer needs: `make demo` and `make test`. Both set up `.venv` first, with the Python named here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FOLDERS := bus actors languages projections runtime

# The tests start hundreds of processes: none should compile the house anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test lint format bench clean

setup: $(VENV)/.ready

$(VENV)/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# pyright follows links, not the import hook of an editable install.
.links: Makefile
	mkdir -p .links/callboard
	for folder in $(FOLDERS); do ln -sfn ../../$$folder .links/callboard/$$folder; done

demo: setup
	$(BIN)/python -m examples.demo

# Most tests wait for servers and processes: more of them than cores.
test: setup
	$(BIN)/python -m pytest -q -n 4 --dist worksteal

lint: setup .links
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) .venv-* .links .callboard build dist *.egg-info

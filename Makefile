# What a newcomer needs: `make demo` and `make test`. Both set up `.venv` first, with the Python named here.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FOLDERS := lib bus actors languages adapters projections runtime features service surfaces

# The tests start hundreds of processes. With bytecode files, none has to compile the modules again.
unexport PYTHONDONTWRITEBYTECODE

# Tests without servers and processes: of the structure of the code, and of pure code. The longest of these are left out.
QUICK := $(addprefix tests/, $(addsuffix .py, structure/test_layers structure/test_packages docs/test_errors bus/test_events bus/test_subjects \
	lib/json_schema/test_check bus/log/test_memory runtime/interpreter/test_driver languages/cel/test_core \
	languages/cel/test_data languages/cel/test_doc languages/cel/test_comparison languages/cel/test_profiles \
	languages/cel/test_syntax languages/flow/test_context languages/flow/test_document \
	languages/flow/test_expressions languages/flow/test_outline languages/flow/test_provider_document \
	languages/flow/test_published languages/flow/test_requirements languages/flow/test_roots \
	languages/flow/test_targets languages/flow/test_temporal languages/flow/test_validation \
	languages/graph/test_document languages/graph/test_engine languages/graph/test_expressions \
	languages/graph/test_order languages/playbook/test_cases languages/playbook/test_convert \
	languages/playbook/test_parse languages/playbook/test_state projections/run/test_causes \
	projections/test_fold projections/results/test_graph projections/spans/test_metrics \
	projections/spans/test_otlp projections/run/test_run_result projections/lists/test_runs \
	projections/spans/test_spans projections/trace/test_trace projections/results/test_workflow \
	languages/workflow/test_admit languages/workflow/test_checks languages/workflow/test_document \
	languages/workflow/test_deaths languages/workflow/test_routes languages/workflow/test_text \
	runtime/interpreter/test_golden))

.PHONY: setup browser validators conformance demo test sweep quick test-mcp test-backends coverage matrix pythons lint docs release format bench bench-page bench-peers lock clean

# uv installs faster than pip, where it is installed.
UV := $(shell command -v uv)
ifdef UV
INSTALL = $(UV) pip install --quiet --python $(BIN)/python --no-deps
else
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps
endif

setup: $(VENV)/.ready

# What users have. Nothing is compiled before it is imported: most modules never are. Of what development needs, this
# takes pip and setuptools, which install the rest. Setuptools would warn of every editable installation.
$(VENV)/.runtime: requirements.lock pyproject.toml setup.py
	$(PYTHON) -m venv $(VENV)
	sed -nE '/^(pip|setuptools)==/,/[^\\]$$/p' requirements-dev.lock >$(VENV)/tools.lock
	$(INSTALL) --require-hashes --requirement $(VENV)/tools.lock
	$(INSTALL) --require-hashes --requirement requirements.lock
	PYTHONWARNINGS=ignore $(INSTALL) --no-build-isolation --editable .
	touch $@

# What the image has besides.
$(VENV)/.image: $(VENV)/.runtime deploy/requirements.lock
	$(INSTALL) --require-hashes --requirement deploy/requirements.lock
	touch $@

$(VENV)/.ready: $(VENV)/.image requirements-dev.lock
	$(INSTALL) --require-hashes --requirement requirements-dev.lock
	touch $@

# A browser for the tests of the page: of the system where we may install, from npm where there is none at all then; and
# axe-core, by which they look whether anybody is barred from it.
browser: setup
	$(BIN)/python -m tests.support.browser

# Versions that pyproject.toml allows, with the hashes of all their files: for any Python and any system. Those that the
# locks have stay, unless UPGRADE=--upgrade. A package is in one lock only. Each lock has all that its packages need, or
# the locks before it have it: nothing is left to resolve.
LOCK = .venv-lock/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --custom-compile-command "make lock" --quiet
WITHOUT = $$(sed -n 's/^\([a-z][^=]*\)==.*/--no-emit-package \1/p' $(1))
lock:
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	cat requirements.lock deploy/requirements.lock requirements-dev.lock >.venv-lock/all.lock
	$(LOCK) --extra dev $(UPGRADE) --output-file .venv-lock/all.lock
	$(LOCK) --constraint .venv-lock/all.lock --output-file requirements.lock
	$(LOCK) --constraint .venv-lock/all.lock --extra gemini --extra oidc --extra openai --extra otlp --extra pgvector --extra s3 \
		$(call WITHOUT,requirements.lock) --output-file deploy/requirements.lock
	$(LOCK) --constraint .venv-lock/all.lock --extra dev \
		$(call WITHOUT,requirements.lock deploy/requirements.lock) --output-file requirements-dev.lock

# An exporter of spans is one of the things that the image has besides.
demo: $(VENV)/$(if $(OTEL_EXPORTER_OTLP_ENDPOINT),.image,.runtime)
	$(BIN)/python -m examples.demo

# Most tests wait for servers and processes: more lanes than cores. A shared machine can stand still for longer than
# a test has patience: what fails is run once more, and the summary names it as RERUN. What is named there is a fault.
test: setup
	$(BIN)/python -m pytest -q --lanes 6 --reruns 1 -rR

# A worker that dies after every event of a run: `make test` performs a selection for long runs (tests/support/sweeps.py).
sweep: setup
	EVERY_CRASH=1 $(BIN)/python -m pytest -q --lanes 6 --reruns 1 -rR \
		$$(grep -rlE --include='test_*.py' 'crash_everywhere|check_deaths|die_everywhere|crashing_everywhere|import .*deaths|support.sweeps|^@given' tests)

# Validators and generators of others, which the tests of the published schemas use: from npm, and for Python into an
# environment of their own.
validators: setup
	$(BIN)/python -m tests.maintenance.validators

# The public data by which languages are tested, from the repositories that publish it.
conformance: setup
	$(BIN)/python -m tests.maintenance.conformance

# Each adapter with the oldest and the newest version of its library that it is tested with; needs the network. `make test`
# has the newest: VERSIONS=oldest leaves those out.
matrix: setup
	$(BIN)/python -m tests.maintenance.adapter_versions $(VERSIONS)

# The official conformance suite of MCP, against `callboard mcp` and our client; needs Node 22 and the network.
test-mcp: setup
	$(BIN)/python -m tests.maintenance.mcp_conformance

# Spans as MLflow and Phoenix have them, of those that are installed: tests/maintenance/backends.py says how to have them.
test-backends: setup
	$(BIN)/python -m pytest -q -rs tests/maintenance/backends.py

# In a minute: what most changes break first.
quick: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -q --lanes 2 $(QUICK)

# What the tests execute in their own processes; what only a worker process or a tool does, counts as not executed.
coverage: setup
	$(BIN)/python -m pytest -q --lanes 4 --cov --cov-report=term:skip-covered

# The whole suite with every Python of this machine, each in an environment of its own.
pythons:
	.ci/pythons | while read -r version python; do \
		$(MAKE) test PYTHON="$$python" VENV=".venv-$$version" </dev/null || exit 1; done

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m tests.support.page_types
	$(BIN)/python -m tests.maintenance.wording
	$(BIN)/python -m tests.maintenance.seconds

# The reference of the public Python API, from its docstrings, as HTML in build/api.
docs: setup
	$(BIN)/python -m tests.maintenance.api_reference build/api

# `make release VERSION=1.2.0`: checks, writes version and change log, builds into dist/, commits and tags.
release: setup
	$(BIN)/python -m tests.maintenance.release $(VERSION)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python -m benchmarks

# The page in a browser: how soon, how smoothly.
bench-page: setup
	$(BIN)/python -m benchmarks.page

# Beside other systems, which get an environment of their own; without npm, Restate is left out, and without PostgreSQL
# those that store their runs there. `make bench-peers SYSTEMS="callboard restate"` measures these.
bench-peers: setup
	test -d .venv-peers || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check \
		--requirement benchmarks/peers/requirements.txt
	-npm install --silent --no-save --no-package-lock --prefix .venv-peers @restatedev/restate-server@1.7.12
	$(BIN)/python -m benchmarks.peers $(SYSTEMS)

clean:
	rm -rf $(VENV) .venv-* .browser .validators .conformance .callboard .coverage .coverage.* build dist *.egg-info

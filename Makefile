# make demo, make test: all that a newcomer needs. Both install first when needed.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.demo-installed
POSTGRES := $(strip $(wildcard /usr/lib/postgresql/*/bin/initdb) $(shell command -v initdb 2>/dev/null))
# As many tests at a time as there are processors, from two to four.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); echo $$((n < 2 ? 2 : n > 4 ? 4 : n)))
NODE_MODULES := sdk/js/node_modules/.package-lock.json
ROLES := shared client shuffler issuer server lab papers
# The files with tests of a marker: collecting all the others takes longer than some of the runs.
marked = $(shell grep -rlF --include='test_*.py' 'mark.$(1)' tests)

# Tests start hundreds of processes: these read bytecode where they may write it, and need not compile all sources again.
export PYTHONDONTWRITEBYTECODE =

.PHONY: install packages-of test coverage check demo nightly examples kernels bench benchmark browser pictures postgres data documents wheels packages site interop sdk sdkcheck release version lock format clean

install: $(STAMP)

$(STAMP): requirements/dev.txt $(ROLES:%=%/pyproject.toml)
	@test -n "$(PYTHON)" || { echo "Privateer needs Python 3.11 or newer as python3 (or: make install PYTHON=path)."; exit 1; }
	$(MAKE) --no-print-directory packages-of REQUIREMENTS=dev
	@touch $@

packages-of:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --require-hashes -r requirements/$(REQUIREMENTS).txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation $(ROLES:%=-e ./%)

# What the demo needs, a third of the whole; make test adds the rest.
$(DEMO_STAMP): requirements/demo.txt $(ROLES:%=%/pyproject.toml)
	@test -n "$(PYTHON)" || { echo "Privateer needs Python 3.11 or newer as python3 (or: make demo PYTHON=path)."; exit 1; }
	test -e $(STAMP) || $(MAKE) --no-print-directory packages-of REQUIREMENTS=demo
	@touch $@

demo: $(DEMO_STAMP)
	$(BIN)/privateer demo

test: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(TESTS)

# The same, half as slow again, with branch coverage.
coverage: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --cov --cov-report=term $(TESTS)

data: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "data and not nightly" $(call marked,data)

# With a search for bytes that decoders neither read nor refuse, which needs atheris.
nightly: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/fuzz.txt
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "nightly$(if $(PRIVATEER_ADULT),, and not data)$(if $(POSTGRES),, and not postgres)"
	$(MAKE) kernels

# Every example on the composed services with its own people, for a night. Needs Docker and docker-compose.
examples: $(STAMP)
	PRIVATEER_ADMIN_TOKEN=none PRIVATEER_REVISION=$$(git rev-parse HEAD) docker-compose --profile load build --quiet
	$(BIN)/python tests/e2e/examples.py

# What make test runs, with the arithmetic of an old processor: older kernels of BLAS, instructions of numpy and C library.
kernels: $(STAMP)
	$(BIN)/python -m tests.support.processors $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal $(TESTS)

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini tests
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.documents.prose
	$(BIN)/python -m tests.documents.names

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/privateer bench

# With the libraries that privateer peers compares with.
benchmark: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/benchmark.txt
	$(BIN)/python -m pytest -q -m benchmark

# The dashboard in the system's Chromium; axe-core checks that everybody can use it. Pages with the packed SDK, also in Firefox
# where it is. Needs Node.
browser: $(STAMP) $(NODE_MODULES)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/browser.txt
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m browser $(call marked,browser)

# Servers that share their data, on a PostgreSQL that the tests start in a temporary folder. Needs PostgreSQL's binaries.
postgres: $(STAMP)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "postgres and not nightly" $(call marked,postgres)

# The README's pictures of the dashboard, of experiments with simulated people.
pictures: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/browser.txt
	$(BIN)/python -m tests.documents.pictures

# Writes what is made from the code: the vectors of the wire format and the notebook's outputs, which are in git, and, where
# git ignores them, all vectors, OpenAPI documents, the schema of a review and the pages of commands and endpoints.
documents: $(STAMP)
	$(BIN)/python -m tests.documents

# All seven distributions as wheels, in dist/.
wheels: $(STAMP)
	rm -f dist/privateer_*.whl
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist $(ROLES:%=./%)

# What the docs say of the wheels' installation, into an environment that has nothing, with third parties from the package index.
packages: $(STAMP)
	$(BIN)/python -m pytest -q -m nightly tests/packages

# The documentation as a site, in site/. A dead link, a missing anchor, a page that is nowhere listed or a wrong formula
# fails; tests plant such formulas. Needs Node.
site: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	$(BIN)/python -m tests.documents commands endpoints openapi schemas
	cd requirements/katex && npm ci --ignore-scripts --no-fund --no-audit --silent
	$(BIN)/python -m pytest -q -m site $(call marked,site)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# The SDK for JavaScript: its tests on the vectors of docs/wire, then on all vectors, and what it reports to real services;
# and the modules of the dashboard that need no browser. Needs Node.
sdk: $(STAMP)
	@node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' || { echo "the SDK for JavaScript needs Node 20 or newer as node"; exit 1; }
	cd sdk/js && node --test test/
	node --test tests/dashboard/
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m node $(call marked,node)

# Others read what we write: two generated clients call a server, libraries of HPKE and canonical JSON agree, web frameworks
# serve the recipes, a device in Go takes part, and manifests of Kubernetes fit its schemas. Needs Node.
interop: $(STAMP) $(VENV)-interop/.installed
	cd requirements/interop && npm ci --ignore-scripts --no-fund --no-audit --silent
	$(BIN)/python -m pytest -q -m interop tests/interop

$(VENV)-interop/.installed: requirements/interop.txt | $(STAMP)
	$(BIN)/python -m venv $(VENV)-interop
	$(VENV)-interop/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/interop.txt
	@touch $@

# Types of the SDK, its declarations, the documentation's examples, and its providers in the real packages of OpenFeature.
sdkcheck: $(NODE_MODULES)
	cd sdk/js && npm run check

$(NODE_MODULES): sdk/js/package-lock.json
	cd sdk/js && npm ci --ignore-scripts --no-fund --no-audit --silent

# Everything that a release consists of, in dist/VERSION/, made and checked. It publishes nothing. Needs Node, Docker and the
# base image python:3.12-slim.
release: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/release.txt
	$(BIN)/python -m deploy.release

# make version VERSION=0.2.0: a new version everywhere, and a date for the changelog's entry.
version: $(STAMP)
	$(BIN)/python -m deploy.release.version $(VERSION)

# Needs uv; writes no registry address.
lock:
	for role in dev demo benchmark browser docs fuzz interop issuer load release server shuffler; do \
		uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --no-annotate --no-strip-extras \
			requirements/$$role.in -o requirements/$$role.txt; done

clean:
	rm -rf $(VENV) $(VENV)-interop .mypy_cache .ruff_cache .pytest_cache

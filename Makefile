# Everything a developer or a newcomer types. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CACHE ?= $(or $(NUMASERVE_CACHE),$(HOME)/.cache/numaserve)
PYTHON ?= python3.11
KEY := $(shell cat requirements/dev.txt pyproject.toml 2>/dev/null | sha256sum | cut -c1-12)
VENV := $(CACHE)/venv-$(KEY)
BIN := $(VENV)/bin
PY := $(BIN)/python
export PYTHONPATH := $(CURDIR)/crds:$(CURDIR)/operator:$(CURDIR)/serving_image:$(CURDIR)/deploy/local
export PYTHONDONTWRITEBYTECODE := 1
NETNS := $(or $(NUMASERVE_CLUSTER),numaserve)
SOURCES := crds operator serving_image deploy/local tests

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | awk -F':.*?## ' '{printf "  %-14s %s\n", $$1, $$2}'

$(VENV)/.ready: requirements/dev.txt
	@mkdir -p $(CACHE)
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed ($(PYTHON) not found)"; exit 1; }
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }
	@$(BIN)/pip install --quiet --require-hashes -r requirements/bootstrap.txt
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(PY) --require-hashes -r requirements/dev.txt
	@touch $@

.PHONY: venv
venv: $(VENV)/.ready ## Make the Python environment

.PHONY: demo
demo: venv ## Tell the whole story on a real local cluster
	@$(PY) -m demo

.PHONY: up
up: venv ## Start the local cluster
	@$(PY) -m localcluster up

.PHONY: down
down: venv ## Remove everything the local cluster made
	@$(PY) -m localcluster down

.PHONY: images
images: venv ## Build the operator and serving images
	@$(PY) -m localcluster build-images

.PHONY: test
test: lint unit integration e2e ## Everything CI runs, fast parts first

.PHONY: lint
lint: venv verify ## Format, types, layers, prose, YAML, chart
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy crds/numaserve_api operator/numaserve_operator serving_image deploy/local/localcluster deploy/local/demo tests
	$(BIN)/lint-imports --no-cache
	$(BIN)/yamllint --strict .
	$(BIN)/pymarkdown --config .pymarkdown.json scan README.md CONTRIBUTING.md CHANGELOG.md docs deploy
	@helm=$$($(PY) -c 'from localcluster import binaries; print(binaries.helm())'); \
	  $$helm lint --quiet charts/numaserve --set operatorImage=o,servingImage=s

.PHONY: format
format: venv ## Format the code
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

.PHONY: unit
unit: venv ## Unit tests: no network, seconds
	$(PY) -m pytest tests/unit

.PHONY: integration
integration: venv ## Tests on a real API server
	$(PY) -m pytest tests/integration

.PHONY: e2e
e2e: venv ## Tests on real kubelets
	$(PY) -m localcluster up
	@# Everything that needs the network, before the tests enter the cluster's own, which has no way out.
	$(PY) -m localcluster load-images
	$(PY) -m demo.artifacts
	$(PY) -m localcluster exec -- $(PY) -m pytest tests/e2e

.PHONY: bench
bench: venv ## Speed and memory, minutes on an idle machine
	$(PY) -m pytest tests/bench

.PHONY: generate
generate: venv ## Write the CRD and schemas from the models
	$(PY) -m numaserve_api.crd

.PHONY: verify
verify: venv ## Fail when a generated file is stale
	$(PY) -m numaserve_api.crd --check

.PHONY: requirements
requirements: venv ## Pin the requirement files anew
	UV=$(BIN)/uv requirements/build.sh

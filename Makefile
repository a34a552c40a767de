# The two commands of the README, and the few that a contributor needs.
# Everything happens inside .venv; nothing is installed on the machine.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# Without a GPU the CPU build of torch does, at a twentieth of the download. Where this index
# cannot be reached pip goes on with the one it has. Set TORCH_INDEX= to leave it out.
TORCH_INDEX ?= $(shell command -v nvidia-smi >/dev/null 2>&1 || echo https://download.pytorch.org/whl/cpu)
TORCH_ARGS := $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo serve test properties soak check format bench docs clean system browser pictures

help:  ## Say what there is
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

demo: $(VENV)/installed  ## Install, then watch handwritten digits arrive as five sub-tasks
	$(BIN)/gmr demo $(ARGS)

serve: $(VENV)/installed  ## Install, then run the service
	$(BIN)/gmr serve $(ARGS)

# Tests start a hundred processes, each of which would compile every module that it imports where
# nothing compiled may be written. One worker more than there are cores: many tests wait for these.
WORKERS ?= $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) + 1 )))
test: $(VENV)/installed-dev browser  ## Install, then run every test, doctests included
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal $(ARGS)

properties: $(VENV)/installed-dev  ## Tests of properties by other examples than `make test` tries
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses=$(WORKERS) --dist=worksteal -m hypothesis --hypothesis-profile=others $(ARGS)

check: $(VENV)/installed-dev  ## Format, lint and types, in seconds
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(VENV)/installed-dev  ## Put the code into the house's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/installed  ## Every benchmark at its quick size
	$(BIN)/gmr bench all --quick $(ARGS)

docs: $(VENV)/installed-dev  ## The documentation site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Open site/index.html."

soak: $(VENV)/installed-dev  ## Kill, stop and damage a service a hundred times, and look for what was lost
	$(BIN)/python -m tests.chaos.soak $(ARGS)

pictures: $(VENV)/installed-dev browser  ## The pictures of the dashboard in the documentation, taken anew
	$(BIN)/python -m pytest tests/service/dashboard/test_story.py --pictures docs/images

clean:  ## Remove the virtual environment and what the demo left
	rm -rf $(VENV) .gmr site

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is too old: Python 3.11 or newer is needed. Try: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV) (once; torch is the large one) ..."
	$(PIP) install --quiet --retries 1 $(TORCH_ARGS) torch==2.13.0
	$(PIP) install --quiet --editable '.[serve]'
	@echo "Compiling the detector's loops (once; half a minute) ..."
	@$(BIN)/gmr compile
	@touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(PIP) install --quiet --editable '.[dev]'
	@touch $@

# What the dashboard is tested in. Where it cannot be installed these tests skip, and say so.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    apt-get update -q && apt-get install -y -q --no-install-recommends chromium; } || \
	  echo "No Chromium, and no root on Debian to install it: tests of the dashboard will skip."

system:  ## Optional system parts that some tests use (Debian, as root): Prometheus, another Redis, Chromium, an MQTT broker, proxies
	apt-get update -q && apt-get install -y -q --no-install-recommends prometheus redis-server chromium mosquitto haproxy nginx-light

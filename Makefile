# The doors: demo test check bench docs. A fresh machine needs only `make demo` and `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
VENV ?= .venv
PY := $(VENV)/bin/python
RUST_MIN := 1.88
RUST_SOURCES := $(shell find crates -name '*.rs' -not -path '*/fuzz/*') Cargo.toml $(wildcard crates/*/Cargo.toml)
# Tests that measure have the machine to themselves; the others wait most of the time.
MEASURING := $(addprefix tests/,ablation cliff instruments load startup)
-include mk/*.mk

.PHONY: help setup demo test check bench docs clean
help:
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(VENV)/.tools: pyproject.toml examples/chat/requirements.txt examples/embed/requirements.txt
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust $(RUST_MIN) or newer, see https://rustup.rs"; exit 2; }
	@printf '%s\n' $(RUST_MIN) "$$(cargo --version | cut -d' ' -f2)" | sort -VC || { echo "$$(cargo --version) is too old: Rust $(RUST_MIN) or newer is needed, see https://rustup.rs"; exit 2; }
	@command -v cc >/dev/null || { echo "a C compiler is missing: Debian: apt install build-essential"; exit 2; }
	@python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; this is $$(python3 --version)"; exit 2; }
	python3 -m venv $(VENV)
	$(PY) -m pip install -q --disable-pip-version-check "pip>=25.1"
	$(PY) -m pip install -q --disable-pip-version-check --group dev
	$(PY) -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r examples/chat/requirements.txt -r examples/embed/requirements.txt
	touch $@

$(VENV)/.built: $(VENV)/.tools pyproject.toml crates/bin/pyproject.toml $(RUST_SOURCES)
	cargo build --release --quiet -p preroll-bin
	$(PY) -m pip install -q --disable-pip-version-check --no-deps --force-reinstall ./crates/bin
	VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/maturin develop --release --quiet --extras asgi,plan
	touch $@

setup: $(VENV)/.built ## virtual environment and build, nothing else

test: setup ## all tests that fit in ten minutes
	cargo test --workspace --quiet
	$(PY) -m pytest -n 2 --dist loadfile $(MEASURING:%=--ignore=%)
	$(PY) -m pytest $(MEASURING)

check: setup ## format, lints, types
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

clean: ## remove what was built
	rm -rf build $(VENV) target

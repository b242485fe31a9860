# The two commands of the README are `make run` and `make test`; both set up what they need.

CARGO ?= cargo
DATA ?= .data

.PHONY: run test lint bench ci setup help

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-7s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what building and testing needs
	@scripts/setup

run: setup ## run Fairlead on this machine (DATA=dir to keep its state elsewhere)
	$(CARGO) run --bin fairlead -- up --data $(DATA)

test: setup ## run every test
	scripts/test

lint: setup ## formatting, clippy with warnings as errors, shell scripts
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	shellcheck scripts/* .ci/run

bench: setup ## every benchmark, as ratios against named rivals
	$(CARGO) bench -p replay

ci: lint test ## what must pass before anything lands


# The two commands of the README are `make run` and `make test`; both set up what they need.

CARGO ?= cargo
DATA ?= .data

.PHONY: help run test lint bench simulate fuzz image dist ci

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## run Fairlead on this machine (DATA=dir keeps its state elsewhere)
	@scripts/setup run
	$(CARGO) run --bin fairlead -- up --data $(DATA)

test: ## every test
	@scripts/setup test
	scripts/test

lint: ## formatting, clippy with warnings as errors, shell scripts
	@scripts/setup lint
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --features fairlead/replay -- -D warnings
	$(CARGO) clippy -p stallproof --all-targets --features shuttle -- -D warnings
	shellcheck scripts/* .ci/run crates/testkit/src/cluster/*.sh

bench: ## every benchmark, RUNS times: one table of ratios against named rivals
	@scripts/setup bench
	KUBEBUILDER_ASSETS=$$(scripts/kube-assets) $(CARGO) run --quiet --release -p bench -- --runs $(or $(RUNS),5)

simulate: ## the simulated worlds, SCHEDULES of each (SEED=n prints one; docs/endurance.md)
	@scripts/setup test
	SCHEDULES=$(or $(SCHEDULES),100000) $(if $(SEED),SEED=$(SEED)) $(CARGO) nextest run --profile long --no-capture \
		--workspace --features fairlead/replay --test simulation $(if $(TEST),-E 'test($(TEST))')

fuzz: ## fuzzes parsers of outside bytes, ten million inputs each (TARGET=name, RUNS=n; docs/endurance.md)
	@scripts/setup fuzz
	RUNS=$(or $(RUNS),10000000) scripts/fuzz $(TARGET)

image: ## the container image from the programs of `make dist`: target/dist/fairlead.tar
	@scripts/setup dist
	scripts/image target/dist/fairlead.tar

dist: ## what is released, into target/dist: programs, image, packages, checksums
	@scripts/setup dist
	scripts/dist $(DISTFLAGS)

# clippy is the compiler here: it lints what it builds, and nothing is built twice.
ci: export RUSTC_WORKSPACE_WRAPPER = clippy-driver
ci: export RUSTFLAGS = -D warnings
# Built once and thrown away: nothing that only helps the next build, or a debugger.
ci: export CARGO_INCREMENTAL = 0
ci: export CARGO_PROFILE_DEV_DEBUG = none
ci: ## what must pass before anything lands: what lint and test check, in one build
	@scripts/setup lint
	$(CARGO) fmt --all --check
	shellcheck scripts/* .ci/run crates/testkit/src/cluster/*.sh
	$(MAKE) test
	$(CARGO) build --workspace --features fairlead/replay --benches

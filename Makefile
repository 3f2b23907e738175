# The commands of this repository. `make check` and `make test` are what CI runs; nothing else gates.

PYTHON := .venv/bin/python
export PATH := $(CURDIR)/.tools/bin:$(PATH)

.PHONY: run test test-all test-rust test-blackbox check bench bench-smoke fmt setup

## Build the release binary and serve ./forebay-data on 127.0.0.1:9000.
run:
	cargo build --release -p forebay
	./target/release/forebay serve $(ARGS)

## Unit, contract and property tests, then the built binary with real clients.
test: test-rust test-blackbox

test-rust:
	scripts/setup test
	cargo test --workspace --quiet

test-blackbox:
	scripts/setup test
	cargo build -p forebay
	$(PYTHON) -m pytest tests $(PYTEST_ARGS)

## `test`, and the slow ones: large uploads, and doc tests and examples of every crate with all features.
test-all: test
	cargo test --workspace --all-features --quiet
	FOREBAY_REDIS_SLOW=1 cargo test -p forebay-redis --quiet
	FOREBAY_MODEL_CASES=900 cargo test -p forebay-cache --lib --quiet -- tests::model
	$(PYTHON) -m pytest tests -m slow $(PYTEST_ARGS)

## Format, lints, licences, unused dependencies, dependency direction, house style. Of the fuzz
## targets only those are linted that link the S3 crate alone: the three others cost minutes when cold.
check:
	scripts/setup check
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --manifest-path fuzz/Cargo.toml --no-default-features --quiet -- -D warnings
	cargo deny --log-level error check bans licenses sources
	cargo machete --with-metadata
	scripts/tidy

## The figures of docs/benchmarks.md; `make bench BENCH_ARGS="hit-path"` runs one table of them,
## BENCH_ARGS="cache", "tier" or "origin" all gates of that.
bench:
	scripts/setup bench
	cargo build --release -p forebay
	PYTHONPATH=scripts:tests $(PYTHON) -m bench $(BENCH_ARGS)

## The matrix of `bench`, half of the cache's gates and those of the origin, short and with the debug
## build: that everything works, not how fast.
bench-smoke:
	scripts/setup bench
	cargo build -p forebay
	FOREBAY_BIN=$(CURDIR)/target/debug/forebay PYTHONPATH=scripts:tests $(PYTHON) -m bench --smoke

fmt:
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml

setup:
	scripts/setup check
	scripts/setup test

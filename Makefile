# Every target works on a Debian machine with nothing but Rust.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: test bench redis examples check deny

# All tests, against redis-servers that they start themselves on free ports and stop again.
test: redis
	cargo test --all-features

# What a decision costs beside what people use today: writes benches/REPORT.md and the charts beside it.
bench: redis
	cargo bench --bench report

# The whole gate, as CI runs it.
check:
	bash .ci/run

redis:
	@command -v redis-server >/dev/null || { \
		$(SUDO) apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends redis-server; }

# Licences, duplicates and sources of the dependencies; needs cargo-deny.
deny:
	cargo deny check bans licenses sources

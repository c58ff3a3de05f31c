# The commands of the project. `make demo` shows it, `make test` proves it.
CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto
PREFIX ?= /usr

.PHONY: build demo test check bench install

build:
	$(CARGO) build --release --package vmdrain-agent

# Needs Rust and dbus-daemon, nothing else.
demo:
	@command -v dbus-daemon >/dev/null || { echo "make demo needs dbus-daemon: apt install dbus-daemon (Debian), dnf install dbus-daemon (Fedora)"; exit 1; }
	$(CARGO) build --workspace --bins
	@target=$$($(CARGO) metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'); \
	  "$$target/debug/clustersim" demo --agent "$$target/debug/vmdrain-agent"

test:
	tests/run

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --workspace --no-deps
	$(CARGO) test --workspace --test it -- layering
	$(CARGO) deny --all-features check licenses bans sources

bench:
	tests/bench

install: build
	install -Dm755 "$$($(CARGO) metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/vmdrain-agent" $(DESTDIR)$(PREFIX)/bin/vmdrain-agent

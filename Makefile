# The commands of the project. `make demo` shows it, `make test` proves it.
CARGO ?= cargo
export CARGO_TERM_COLOR ?= auto

.PHONY: build demo test check bench control-plane packages install

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

# The real servers of the tests (etcd, Kubernetes, three KubeVirts), built from Go modules into a cache, once.
control-plane:
	tests/control-plane/build

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings $(CARGO) doc --workspace --no-deps
	$(CARGO) test --workspace --test it -- layering
	$(CARGO) deny --all-features check licenses bans sources

bench:
	tests/bench

# .deb and .rpm, checked, with their sizes.
packages:
	packaging/build

# By hand: `make install`, then /usr/lib/vmdrain-agent/host-setup and `systemctl enable --now vmdrain-agent vmdrain-hold`.
# The units name /usr/bin/vmdrain-agent, so there is no PREFIX; DESTDIR is for building a package. BINARY names one that is
# built already.
install: $(if $(BINARY),,build)
	@binary='$(BINARY)'; target=$$($(CARGO) metadata --no-deps --format-version 1 | sed 's/.*"target_directory":"\([^"]*\)".*/\1/'); \
	  binary=$${binary:-$$target/release/vmdrain-agent}; \
	  packaging/generate "$$binary" && install -Dm755 "$$binary" $(DESTDIR)/usr/bin/vmdrain-agent
	install -Dm755 packaging/host-setup $(DESTDIR)/usr/lib/vmdrain-agent/host-setup
	test -e $(DESTDIR)/etc/vmdrain-agent/config.toml || install -Dm644 packaging/etc/config.toml $(DESTDIR)/etc/vmdrain-agent/config.toml
	for root in systemd packaging/generated; do \
	  (cd $$root && find usr -type f) | while read -r file; do install -Dm644 "$$root/$$file" "$(DESTDIR)/$$file" || exit 1; done || exit 1; done
	install -Dm644 packaging/generated/zsh/_vmdrain-agent $(DESTDIR)/usr/share/zsh/site-functions/_vmdrain-agent
	install -Dm644 -t $(DESTDIR)/usr/share/vmdrain-agent/rbac packaging/rbac/*
	install -Dm644 -t $(DESTDIR)/usr/share/doc/vmdrain-agent README.md CHANGELOG.md LICENSE docs/*
	(cd packaging/examples && find . -type f) | while read -r file; do \
	  install -Dm644 "packaging/examples/$$file" "$(DESTDIR)/usr/share/doc/vmdrain-agent/examples/$$file" || exit 1; done
ifeq ($(DESTDIR),)
	@echo "copied; now run: /usr/lib/vmdrain-agent/host-setup && systemctl enable --now vmdrain-agent vmdrain-hold"
endif

# What a person or a machine does with Flashyard. `make help` lists it.

CARGO ?= cargo
TARGET = $(or $(CARGO_TARGET_DIR),target)
BINARY = $(TARGET)/release/flashyard

# What makes the guide.
MDBOOK_VERSION = 0.5.4
MDBOOK_ROOT = $(TARGET)/tools/mdbook-$(MDBOOK_VERSION)
MDBOOK = $(MDBOOK_ROOT)/bin/mdbook

# What `make install` installs, and where; DESTDIR stands before all of it. PROFILE=dev is what tests have built.
PROFILE ?= release
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
BUILT = $(TARGET)/$(patsubst dev,debug,$(PROFILE))/flashyard
BINDIR = $(DESTDIR)$(PREFIX)/bin
SHARE = $(DESTDIR)$(PREFIX)/share
MANDIR = $(SHARE)/man/man1
DOCDIR = $(SHARE)/doc/flashyard
MONITORING = $(SHARE)/flashyard/monitoring
CONFIG = $(DESTDIR)$(SYSCONFDIR)/flashyard/flashyard.toml
BASH_COMPLETION = $(SHARE)/bash-completion/completions/flashyard
ZSH_COMPLETION = $(SHARE)/zsh/site-functions/_flashyard
UNIT = $(DESTDIR)$(PREFIX)/lib/systemd/system/flashyard.service
SYSUSERS = $(DESTDIR)$(PREFIX)/lib/sysusers.d/flashyard.conf
FISH_COMPLETION = $(SHARE)/fish/vendor_completions.d/flashyard.fish

.PHONY: help demo build test quick lint bench soak soak-pools soak-functions asan docs documents guide install uninstall deb

help:
	@echo "make build   the program, optimised: $(BINARY)"
	@echo "make demo    build, then show three tenants on one target over real NVMe/TCP on loopback; on a terminal, a dashboard of it"
	@echo "make install     what was built, with manual and completions: PREFIX=$(PREFIX), DESTDIR=; make uninstall removes it"
	@echo "make deb     a Debian package of it, in target/debian"
	@echo "make test    everything: tools, tidy, lints, unit and simulation tests, a real Linux host"
	@echo "make quick   the same without the Linux host"
	@echo "make lint    tidy, format and lints only"
	@echo "make soak    millions of connects and commands, and thousands of lives in virtual time; SOAK=--full for all"
	@echo "make soak-pools   power cuts, silent faults and kills under mapped pools; SOAK=--full for 100,000, 1,000,000 and 1,000"
	@echo "make soak-functions   guests of functions that do anything by chance; SOAK=--full for 1,000,000 steps of each kind"
	@echo "make asan    the tests of functions with a guest, hostile ones among them, under AddressSanitizer"
	@echo "make docs    write docs/configuration.md, docs/commands.md, docs/openapi.json and packaging/monitoring, from the program's types"
	@echo "make guide   make a book of docs in target/guide; builds mdBook first if it is not there"
	@echo "make bench   measure, and write the table of docs/performance.md"

build:
	$(CARGO) build --release --locked --package flashyard-app

demo: build
	$(BINARY) demo $(DEMO)

test:
	tests/all.sh

quick:
	tests/all.sh --quick

lint:
	$(CARGO) xtask tidy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

soak:
	tests/soak.sh $(SOAK)

soak-pools:
	tests/soak-pools.sh $(SOAK)

soak-functions:
	tests/soak-functions.sh $(SOAK)

# With this toolchain, whose standard library stays as it is: what that and the kernel do is not looked at.
asan:
	RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address CARGO_TARGET_DIR=target/asan $(CARGO) test --locked \
		--package flashyard-vfio --test guest --target x86_64-unknown-linux-gnu

bench: build
	$(CARGO) xtask bench $(BINARY)
	bench/costs.sh

docs:
	FLASHYARD_WRITE_DOCS=1 $(CARGO) test --quiet --package flashyard-app page_of_

# All that there is to read, laid out so that links between pages lead somewhere.
documents:
	install -d $(DOCDIR)/docs/experiments $(DOCDIR)/docs/dashboard $(DOCDIR)/docs/guide
	install -m 644 LICENSE README.md ARCHITECTURE.md CHANGELOG.md SECURITY.md CONTRIBUTING.md $(DOCDIR)
	install -m 644 docs/*.md docs/*.json $(DOCDIR)/docs
	install -m 644 docs/experiments/*.md $(DOCDIR)/docs/experiments
	install -m 644 docs/guide/*.md $(DOCDIR)/docs/guide
	install -m 644 docs/dashboard/*.png $(DOCDIR)/docs/dashboard
	install -D -m 644 -t $(DOCDIR)/examples examples/*.toml

# mdBook wants the contents at the top of its pages, and so does the README.
guide: $(MDBOOK)
	rm -rf $(TARGET)/guide-pages $(TARGET)/guide
	$(MAKE) --no-print-directory documents DOCDIR=$(TARGET)/guide-pages
	install -m 644 docs/book.toml $(TARGET)/guide-pages
	sed 's|](|](docs/|; s|](docs/\.\./|](|' docs/SUMMARY.md >$(TARGET)/guide-pages/SUMMARY.md
	rm $(TARGET)/guide-pages/docs/SUMMARY.md
	$(MDBOOK) build --dest-dir $(abspath $(TARGET)/guide) $(TARGET)/guide-pages
	@# It makes index.html of README.md, and leaves links to that as they are.
	find $(TARGET)/guide -name index.html -execdir cp {} README.html ';'
	@echo "the guide: $(abspath $(TARGET)/guide)/index.html"

# Without what serves and watches pages: that needs fewer crates.
$(MDBOOK):
	$(CARGO) install --locked --root $(MDBOOK_ROOT) --no-default-features --features search --version $(MDBOOK_VERSION) mdbook

# Builds nothing, so that it can run as a user who has no Rust.
install:
	@test -x $(BUILT) || { echo "there is no $(BUILT): run make build first"; exit 1; }
	install -d $(BINDIR) $(MANDIR) $(dir $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION))
	install --strip $(BUILT) $(BINDIR)/flashyard
	$(MAKE) --no-print-directory documents
	$(BUILT) generate man $(MANDIR)
	$(BUILT) generate completions bash >$(BASH_COMPLETION)
	$(BUILT) generate completions zsh >$(ZSH_COMPLETION)
	$(BUILT) generate completions fish >$(FISH_COMPLETION)
	chmod 644 $(MANDIR)/flashyard*.1 $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION)
	install -d $(MONITORING)
	$(BUILT) generate alerts >$(MONITORING)/flashyard.rules.yml
	$(BUILT) generate grafana >$(MONITORING)/flashyard-dashboard.json
	chmod 644 $(MONITORING)/*
	install -d $(dir $(UNIT))
	sed 's|@PREFIX@|$(PREFIX)|g; s|@SYSCONFDIR@|$(SYSCONFDIR)|g' packaging/flashyard.service.in >$(UNIT)
	chmod 644 $(UNIT)
	install -D -m 644 packaging/sysusers.conf $(SYSUSERS)
	@# What an administrator has written stays.
	test -e $(CONFIG) || install -D -m 644 packaging/flashyard.toml $(CONFIG)

deb: build
	packaging/deb.sh $(TARGET)/debian

uninstall:
	rm -f $(BINDIR)/flashyard $(MANDIR)/flashyard.1 $(MANDIR)/flashyard-*.1
	rm -f $(BASH_COMPLETION) $(ZSH_COMPLETION) $(FISH_COMPLETION) $(UNIT) $(SYSUSERS)
	rm -rf $(DOCDIR) $(SHARE)/flashyard
	@echo "configuration and state stay: $(CONFIG), /var/lib/flashyard"

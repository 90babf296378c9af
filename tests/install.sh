#!/usr/bin/env bash
# Makes sure that the tools of the tests are there: installs Debian packages when it may, else says what is missing.
#
#   install.sh [--quick]      without what only the Linux host test needs
#
# Exit status 1 when the tests cannot run without what is missing.
set -euo pipefail

# A program or file to look for, and the Debian package that brings it.
build_tools=(gcc:gcc make:make pkg-config:pkg-config /usr/include/openssl/evp.h:libssl-dev)
host_test_tools=(qemu-system-x86_64:qemu-system-x86 cpio:cpio depmod:kmod xz:xz-utils zstd:zstd ip:iproute2
    unshare:util-linux curl:curl jq:jq shellcheck:shellcheck lintian:lintian)

main() {
    local tools=("${build_tools[@]}") packages
    [[ ${1:-} == --quick ]] || tools+=("${host_test_tools[@]}")
    mapfile -t packages < <(missing_packages "${tools[@]}")
    if ((${#packages[@]} > 0)) && [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
        echo "installing ${packages[*]}"
        apt-get -qq update
        DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null
        mapfile -t packages < <(missing_packages "${tools[@]}")
    fi
    if ((${#packages[@]} > 0)); then
        echo "missing; install by hand what these Debian packages hold: ${packages[*]}"
    fi
    check_compiler && [[ -z $(missing_packages "${build_tools[@]}") ]]
}

# The package of every program and file that is not there.
missing_packages() {
    local tool
    for tool in "$@"; do
        # Tools of the administrator are not on everybody's path.
        [[ -e ${tool%%:*} ]] || PATH=$PATH:/usr/sbin:/sbin command -v "${tool%%:*}" >/dev/null || echo "${tool#*:}"
    done
}

check_compiler() {
    local wanted
    if ! command -v cargo >/dev/null; then
        echo "missing: Rust (cargo); see https://rustup.rs"
        return 1
    fi
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    if [[ $(printf '%s\n' "$wanted" "$(rustc --version | cut -d' ' -f2)" | sort -V | head -n 1) != "$wanted" ]]; then
        echo "missing: Rust $wanted or later, here is $(rustc --version)"
        return 1
    fi
    if ! cargo clippy --version >/dev/null 2>&1 || ! cargo fmt --version >/dev/null 2>&1; then
        echo "missing: parts of Rust; run: rustup component add clippy rustfmt"
        return 1
    fi
}

cd "$(dirname "$0")/.."
main "$@"

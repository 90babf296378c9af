#!/usr/bin/env bash
# Finds a QEMU whose machines can have vfio-user devices (10.1 or later): this machine's own if it is one, else Debian's,
# unpacked in the cache and never installed.
#
#   qemu.sh CACHE       prints the program; fetched once, then reused
#
# FLASHYARD_QEMU names the program to be used, FLASHYARD_QEMU_SUITE another Debian release, FLASHYARD_DEBIAN_MIRROR another
# mirror than the machine's own.
set -Eeuo pipefail
trap 'echo "qemu.sh:$LINENO: $BASH_COMMAND failed" >&2' ERR

cache=${1:?usage: qemu.sh CACHE}
here=$(cd "$(dirname "$0")" && pwd)
suite=${FLASHYARD_QEMU_SUITE:-forky}
# shellcheck source=packages.sh
. "$here/packages.sh"

packages=(qemu-system-x86 seabios ovmf)

main() {
    local key program=${FLASHYARD_QEMU:-qemu-system-x86_64}
    if has_device "$program"; then
        echo "$program"
        return
    fi
    if [[ -n ${FLASHYARD_QEMU:-} ]]; then
        echo "$FLASHYARD_QEMU has no vfio-user-pci: 10.1 or later is needed" >&2
        return 1
    fi
    key=$(cat "$0" "$here/packages.sh" <(echo "$suite") | sha256sum | cut -c1-12)
    mkdir -p "$cache"
    cache=$(cd "$cache" && pwd)
    build_once "$cache" "qemu-$suite" "$key"
    echo "$cache/qemu-$suite-$key/qemu-system-x86_64"
}

# QEMU says in words that it does not know a device, and ends as if all were well.
has_device() {
    "$1" -device vfio-user-pci,help 2>/dev/null | grep 'socket=' >/dev/null
}

build() {
    local work=$1
    echo "unpacking QEMU of Debian $suite"
    download "$work" "$suite" "${packages[@]}"
    unpack "$work"
    mv "$work/unpacked" "$work/result"
    starter >"$work/result/qemu-system-x86_64"
    chmod +x "$work/result/qemu-system-x86_64"
    has_device "$work/result/qemu-system-x86_64"
}

# A script that runs the program with the loader, libraries, modules and firmware that it came with.
starter() {
    cat <<'STARTER'
#!/bin/sh
root=$(dirname "$(realpath "$0")")
export QEMU_MODULE_DIR="$root/usr/lib/x86_64-linux-gnu/qemu"
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" \
    "$root/usr/bin/qemu-system-x86_64" -L "$root/usr/share/qemu" -L "$root/usr/share/seabios" "$@"
STARTER
}

main

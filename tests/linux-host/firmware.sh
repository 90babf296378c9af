#!/usr/bin/env bash
# What a machine needs to boot from a disk as firmware does: OVMF, a boot loader, and tools that make such a disk. Debian's,
# unpacked in the cache and never installed.
#
#   firmware.sh CACHE       prints the folder; fetched once, then reused
#
# FLASHYARD_QEMU_SUITE names another Debian release, FLASHYARD_DEBIAN_MIRROR another mirror than the machine's own.
set -Eeuo pipefail
trap 'echo "firmware.sh:$LINENO: $BASH_COMMAND failed" >&2' ERR

cache=${1:?usage: firmware.sh CACHE}
here=$(cd "$(dirname "$0")" && pwd)
suite=${FLASHYARD_QEMU_SUITE:-forky}
# shellcheck source=packages.sh
. "$here/packages.sh"

packages=(ovmf systemd-boot-efi fdisk mtools)

main() {
    local key
    key=$(cat "$0" "$here/packages.sh" <(echo "$suite") | sha256sum | cut -c1-12)
    mkdir -p "$cache"
    cache=$(cd "$cache" && pwd)
    build_once "$cache" "firmware-$suite" "$key"
    echo "$cache/firmware-$suite-$key"
}

build() {
    local work=$1
    echo "unpacking firmware of Debian $suite"
    download "$work" "$suite" "${packages[@]}"
    unpack "$work"
    mv "$work/unpacked" "$work/result"
    make_disk >"$work/result/make-disk"
    chmod +x "$work/result/make-disk"
    mkdir "$work/result/firmware"
    cp "$work"/result/usr/share/OVMF/OVMF_{CODE,VARS}_4M.fd "$work/result/firmware/"
    cp "$work/result/usr/lib/systemd/boot/efi/systemd-bootx64.efi" "$work/result/firmware/loader.efi"
}

# A script that makes a disk with a GPT and an EFI system partition on it:
# make-disk DISK BLOCK_SIZE KERNEL INITRAMFS CMDLINE
make_disk() {
    cat <<'MAKE'
#!/bin/bash
set -euo pipefail
root=$(dirname "$(realpath "$0")")
disk=$1 size=$2 kernel=$3 initramfs=$4 cmdline=$5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
start=$(((1 << 20) / size))
blocks=$(($(stat -c %s "$disk") / size - 2 * start))

run() {
    "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$@"
}

# PROGRAM OPTION...: of mtools, on the partition
on_partition() {
    run "$root/usr/bin/mtools" -c "$1" -i "$disk@@$((start * size))" "${@:2}"
}

printf 'label: gpt\nstart=%s, size=%s, type=uefi\n' $start $blocks | run "$root/usr/sbin/sfdisk" --quiet --sector-size "$size" "$disk"
export MTOOLS_SKIP_CHECK=1
# The size of a sector is 2 to this number and 7 more.
case $size in 512) code=2 ;; 4096) code=5 ;; esac
on_partition mformat -S $code -T $blocks -F ::
on_partition mmd ::/EFI ::/EFI/BOOT ::/loader ::/loader/entries
printf 'timeout 0\ndefault guest.conf\n' >"$work/loader.conf"
printf 'title guest\nlinux /vmlinuz\ninitrd /initramfs\noptions %s\n' "$cmdline" >"$work/guest.conf"
on_partition mcopy "$root/firmware/loader.efi" ::/EFI/BOOT/BOOTX64.EFI
on_partition mcopy "$kernel" ::/vmlinuz
on_partition mcopy "$initramfs" ::/initramfs
on_partition mcopy "$work/loader.conf" ::/loader/loader.conf
on_partition mcopy "$work/guest.conf" ::/loader/entries/guest.conf
MAKE
}

main

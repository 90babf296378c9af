#!/usr/bin/env bash
# Builds what the guests boot: an unpacked Debian kernel and an initramfs with its NVMe/TCP host, nvme-cli, fio
# and file system tools. Packages are downloaded and unpacked in the cache, never installed; no root is needed.
#
#   image.sh CACHE      prints the folder that holds vmlinux, vmlinuz and initramfs.cpio; built once, then reused
#
# FLASHYARD_GUEST_SUITE names another Debian release, FLASHYARD_DEBIAN_MIRROR another mirror than the machine's own.
set -Eeuo pipefail
trap 'echo "image.sh:$LINENO: $BASH_COMMAND failed" >&2' ERR

cache=${1:?usage: image.sh CACHE}
here=$(cd "$(dirname "$0")" && pwd)
suite=${FLASHYARD_GUEST_SUITE:-trixie}
# shellcheck source=packages.sh
. "$here/packages.sh"

# Programs of the guest, and the packages they come in.
programs=(bash busybox nvme fio jq mkfs.ext4 e2fsck resize2fs blkdiscard blkzone fstrim blockdev cmp dd head tail)
packages=(bash busybox nvme-cli fio jq e2fsprogs util-linux diffutils coreutils)
# Modules of the guest; what they need comes along.
modules=(virtio_pci virtio_net virtio_console nvme nvme-tcp ext4 crc32c-intel crc32c-generic vfat nls_cp437 nls_ascii)

main() {
    local key
    key=$(cat "$0" "$here"/{packages.sh,guest/init} <(echo "$suite") | sha256sum | cut -c1-12)
    mkdir -p "$cache"
    cache=$(cd "$cache" && pwd)
    build_once "$cache" "image-$suite" "$key"
    echo "$cache/image-$suite-$key"
}

build() {
    local work=$1
    echo "building the guest image from Debian $suite"
    download "$work" "$suite" "${packages[@]}"
    download_kernel "$work"
    unpack "$work"
    mkdir "$work/result"
    unpack_kernel "$work"
    copy_modules "$work"
    copy_programs "$work"
    link_applets "$work"
    cp -r "$here/guest/init" "$work/initramfs/init"
    chmod +x "$work/initramfs/init"
    (cd "$work/initramfs" && find . | cpio --quiet -o -H newc -R 0:0) >"$work/result/initramfs.cpio"
}

# The newest kernel of the release, without what it needs to be installed.
download_kernel() {
    local work=$1 kernel
    kernel=$(private_apt_cache "$work" depends linux-image-amd64 | awk '/Depends: linux-image-[0-9]/ {print $2}')
    (cd "$work/apt/cache/archives" && private_apt "$work" download "$kernel")
}

# The ELF file inside the bzImage: QEMU enters it directly, and nothing is decompressed under emulation.
unpack_kernel() {
    local work=$1 image setup offset length
    image=$(echo "$work"/unpacked/boot/vmlinuz-*)
    echo "${image##*/vmlinuz-}" >"$work/result/kernel-release"
    # As firmware takes it.
    cp "$image" "$work/result/vmlinuz"
    # Fields of the boot protocol: setup_sects, payload_offset, payload_length (the last 4 bytes are a size).
    setup=$(od -An -tu1 -j $((0x1f1)) -N1 "$image")
    offset=$((($(od -An -tu4 -j $((0x248)) -N4 "$image")) + (setup + 1) * 512))
    length=$(($(od -An -tu4 -j $((0x24c)) -N4 "$image") - 4))
    head -c $((offset + length)) "$image" | tail -c "$length" >"$work/payload"
    case $(od -An -tx1 -N4 "$work/payload" | tr -d ' ') in
        fd377a58) xz -dc <"$work/payload" >"$work/result/vmlinux" ;;
        28b52ffd) zstd -dc <"$work/payload" >"$work/result/vmlinux" ;;
        1f8b*) gzip -dc <"$work/payload" >"$work/result/vmlinux" ;;
        *) echo "the kernel is compressed in a way this script does not know" >&2 && return 1 ;;
    esac
}

copy_modules() {
    local work=$1 release path
    release=$(cat "$work/result/kernel-release")
    local from=$work/unpacked/usr/lib/modules/$release to=$work/initramfs/usr/lib/modules/$release
    [[ -d $from ]] || from=$work/unpacked/lib/modules/$release
    mkdir -p "$to"
    # depmod looks below lib/modules.
    depmod -b "${from%/lib/modules/*}" "$release"
    for path in $(modules_and_needs "$from/modules.dep"); do
        mkdir -p "$to/$(dirname "$path")"
        case $path in
            *.xz) xz -dc <"$from/$path" >"$to/${path%.xz}" ;;
            *) cp "$from/$path" "$to/$path" ;;
        esac
    done
    cp "$from"/modules.{order,builtin,builtin.modinfo} "$to/"
    depmod -b "$work/initramfs/usr" "$release"
}

# Paths of the modules and of all they depend on. A module that is built in has no line.
modules_and_needs() {
    local module
    for module in "${modules[@]}"; do
        grep -E "(^|/)${module//[-_]/[-_]}\.ko[^:]*:" "$1" || true
    done | tr -d ':' | tr ' ' '\n' | sort -u
}

copy_programs() {
    local work=$1 program path
    local root=$work/unpacked to=$work/initramfs
    mkdir -p "$to"/{dev,proc,sys,run,tmp,mnt,etc/nvme,usr/bin,usr/lib,usr/lib64}
    ln -s usr/bin "$to/bin"
    ln -s usr/bin "$to/sbin"
    ln -s bin "$to/usr/sbin"
    ln -s usr/lib "$to/lib"
    ln -s usr/lib64 "$to/lib64"
    cp -L "$root/usr/lib64/ld-linux-x86-64.so.2" "$to/usr/lib64/"
    for program in "${programs[@]}"; do
        path=$(find_program "$root" "$program")
        cp -L "$path" "$to/usr/bin/$program"
        copy_libraries "$root" "$path" "$to"
    done
    cp "$root/etc/mke2fs.conf" "$to/etc/"
    echo "root:x:0:0:root:/:/bin/bash" >"$to/etc/passwd"
}

find_program() {
    local folder
    for folder in usr/bin usr/sbin bin sbin; do
        if [[ -e $1/$folder/$2 ]]; then
            echo "$1/$folder/$2"
            return
        fi
    done
    echo "no package brought the program $2" >&2
    return 1
}

# Asks the guest's own loader, which need not be this machine's.
copy_libraries() {
    local root=$1 program=$2 to=$3 libraries library
    libraries=$("$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$(library_path "$root")" --list "$program" | awk '$2 == "=>" {print $3}')
    for library in $libraries; do
        mkdir -p "$to/$(dirname "${library#"$root"}")"
        cp -Ln "$library" "$to/${library#"$root"}"
    done
}

# A name for every program of busybox that the guest does not have for real.
link_applets() {
    local work=$1 applets applet
    applets=$("$work/unpacked/usr/lib64/ld-linux-x86-64.so.2" --library-path "$work/initramfs/usr/lib/x86_64-linux-gnu" \
        "$work/unpacked/usr/bin/busybox" --list)
    for applet in $applets; do
        [[ -e $work/initramfs/usr/bin/$applet ]] || ln -s busybox "$work/initramfs/usr/bin/$applet"
    done
}

main

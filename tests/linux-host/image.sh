#!/usr/bin/env bash
# Builds what the guests boot: an unpacked Debian kernel and an initramfs with its NVMe/TCP host, nvme-cli, fio
# and file system tools. Packages are downloaded and unpacked in the cache, never installed; no root is needed.
#
#   image.sh CACHE      prints the folder that holds vmlinux and initramfs.cpio; built once, then reused
#
# FLASHYARD_GUEST_SUITE names another Debian release, FLASHYARD_DEBIAN_MIRROR another mirror than the machine's own.
set -Eeuo pipefail
trap 'echo "image.sh:$LINENO: $BASH_COMMAND failed" >&2' ERR

cache=${1:?usage: image.sh CACHE}
here=$(cd "$(dirname "$0")" && pwd)
suite=${FLASHYARD_GUEST_SUITE:-trixie}

# Programs of the guest, and the packages they come in.
programs=(bash busybox nvme fio jq mkfs.ext4 e2fsck resize2fs blkdiscard blkzone fstrim blockdev cmp dd head tail)
packages=(bash busybox nvme-cli fio jq e2fsprogs util-linux diffutils coreutils)
# Modules of the guest; what they need comes along.
modules=(virtio_pci virtio_net virtio_console nvme nvme-tcp ext4 crc32c-intel crc32c-generic)

main() {
    local key image work
    key=$(cat "$0" "$here/guest/init" <(echo "$suite") | sha256sum | cut -c1-12)
    mkdir -p "$cache"
    cache=$(cd "$cache" && pwd)
    image=$cache/image-$suite-$key
    if [[ ! -e $image/initramfs.cpio ]]; then
        work=$(mktemp -d "$cache/build.XXXXXX")
        # Expanded now: the trap runs when `work` is gone.
        # shellcheck disable=SC2064
        trap "rm -rf '$work'" EXIT
        build "$work" >&2
        mkdir "$work/image"
        mv "$work/vmlinux" "$work/initramfs.cpio" "$work/kernel-release" "$work/image/"
        rm -rf "$cache/image-$suite-"*
        # Another run may have been quicker.
        mv -T "$work/image" "$image" 2>/dev/null || [[ -e $image/initramfs.cpio ]]
    fi
    echo "$image"
}

build() {
    local work=$1 archive
    echo "building the guest image from Debian $suite"
    download "$work"
    mkdir "$work/unpacked"
    for archive in "$work"/apt/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$archive" | tar -x -C "$work/unpacked" --no-same-owner --exclude=./usr/share/doc \
            --exclude=./usr/share/locale --exclude=./usr/share/man --exclude=./dev
    done
    unpack_kernel "$work"
    copy_modules "$work"
    copy_programs "$work"
    link_applets "$work"
    cp -r "$here/guest/init" "$work/initramfs/init"
    chmod +x "$work/initramfs/init"
    (cd "$work/initramfs" && find . | cpio --quiet -o -H newc -R 0:0) >"$work/initramfs.cpio"
}

# Fetches the packages with apt's resolver, signatures checked, into a private root that knows of no package.
download() {
    local work=$1 mirror kernel
    mirror=${FLASHYARD_DEBIAN_MIRROR:-$(own_mirror)}
    mkdir -p "$work"/apt/{state/lists/partial,cache/archives/partial}
    : >"$work/apt/state/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$work/apt/sources.list"
    private_apt "$work" update
    private_apt "$work" install --download-only --no-install-recommends -y "${packages[@]}"
    kernel=$(private_apt_cache "$work" depends linux-image-amd64 | awk '/Depends: linux-image-[0-9]/ {print $2}')
    (cd "$work/apt/cache/archives" && private_apt "$work" download "$kernel")
}

private_options() {
    printf '%s\n' -o "Dir::State=$1/apt/state" -o "Dir::State::status=$1/apt/state/status" -o "Dir::Cache=$1/apt/cache" \
        -o "Dir::Etc::sourcelist=$1/apt/sources.list" -o Dir::Etc::sourceparts=- -o Debug::NoLocking=1 \
        -o "APT::Sandbox::User=" -o APT::Architecture=amd64 -o APT::Architectures=amd64
}

private_apt() {
    local options
    mapfile -t options < <(private_options "$1")
    apt-get -qq "${options[@]}" "${@:2}"
}

private_apt_cache() {
    local options
    mapfile -t options < <(private_options "$1")
    apt-cache "${options[@]}" "${@:2}"
}

# The mirror this machine gets Debian from.
own_mirror() {
    local mirror
    # apt fills in what stands in parentheses.
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" {print $2; exit}')
    if [[ -z $mirror ]]; then
        echo "no Debian mirror in this machine's apt sources; name one in FLASHYARD_DEBIAN_MIRROR" >&2
        return 1
    fi
    echo "$mirror"
}

# The ELF file inside the bzImage: QEMU enters it directly, and nothing is decompressed under emulation.
unpack_kernel() {
    local work=$1 image setup offset length
    image=$(echo "$work"/unpacked/boot/vmlinuz-*)
    echo "${image##*/vmlinuz-}" >"$work/kernel-release"
    # Fields of the boot protocol: setup_sects, payload_offset, payload_length (the last 4 bytes are a size).
    setup=$(od -An -tu1 -j $((0x1f1)) -N1 "$image")
    offset=$((($(od -An -tu4 -j $((0x248)) -N4 "$image")) + (setup + 1) * 512))
    length=$(($(od -An -tu4 -j $((0x24c)) -N4 "$image") - 4))
    head -c $((offset + length)) "$image" | tail -c "$length" >"$work/payload"
    case $(od -An -tx1 -N4 "$work/payload" | tr -d ' ') in
        fd377a58) xz -dc <"$work/payload" >"$work/vmlinux" ;;
        28b52ffd) zstd -dc <"$work/payload" >"$work/vmlinux" ;;
        1f8b*) gzip -dc <"$work/payload" >"$work/vmlinux" ;;
        *) echo "the kernel is compressed in a way this script does not know" >&2 && return 1 ;;
    esac
}

copy_modules() {
    local work=$1 release path
    release=$(cat "$work/kernel-release")
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
    local root=$1 program=$2 to=$3 paths libraries library
    # Some keep private libraries in a folder below.
    paths=$(find "$root/usr/lib/x86_64-linux-gnu" -maxdepth 2 -name 'lib*.so*' -printf '%h\n' | sort -u | paste -sd:)
    libraries=$("$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$paths" --list "$program" | awk '$2 == "=>" {print $3}')
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

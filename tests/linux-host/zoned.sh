#!/usr/bin/env bash
# The target on a real zoned block device: boots a Debian kernel under QEMU's emulation with a ZNS drive, runs the program
# inside of the guest, and has the guest's own NVMe/TCP host connect to it. Prints "ok NAME" or "FAILED NAME: why" for
# every scenario, as run.sh does.
#
#   zoned.sh [BINARY]     BINARY is the program under test, else the release build
#
# At last the program and its host do what two pages of the guide say, since both are here.
#
# The guest has no network. KEEP=1 leaves logs and the drive in the cache, ONLY="serve_zones" runs these scenarios, SHOW=1 shows
# what they print, FLASHYARD_ACCEL chooses another accelerator than tcg.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cache=${FLASHYARD_CACHE:-$top/target/linux-host}
binary=$(realpath -m "${1:-${CARGO_TARGET_DIR:-$top/target}/release/flashyard}")
# Seconds after which a guest counts as hung; it needs a quarter of that on an idle machine.
deadline=1500

plan=(refuse_others serve_zones fio_verify_zones overwrite_zones kill_under_io stop_and_start neighbour_untouched
    kernel_log guide)
if [[ -n ${ONLY:-} ]]; then
    read -r -a plan <<<"$ONLY"
fi

main() {
    prepare
    run=$(mktemp -d "$cache/zoned.XXXXXX") || exit 1
    trap clean_up EXIT
    trap 'exit 130' INT TERM
    pack_program
    start_guest
    while ((SECONDS < deadline)) && kill -0 "$guest" 2>/dev/null; do
        sleep 0.2
        show
    done
    show
    finish
}

prepare() {
    local tool name
    for tool in qemu-system-x86_64 cpio ldd; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || skip_all "$tool is not installed"
    done
    qemu-system-x86_64 -device nvme-ns,help 2>/dev/null | grep -q 'zoned=' ||
        skip_all "this qemu-system-x86_64 has no zoned drives: use 6.0 or later"
    if [[ ! -x $binary ]]; then
        echo "FAILED build: no program at $binary; run: cargo build --release"
        exit 1
    fi
    if ! image=$("$here/image.sh" "$cache"); then
        skip_all "the guest image cannot be built here, see above"
    fi
}

skip_all() {
    local name
    for name in "${plan[@]}"; do
        echo "skipped $name: $1"
    done
    exit 0
}

# The program with the libraries and the loader of this machine, which need not be those of the guest.
pack_program() {
    local to=$run/archive/test library
    mkdir -p "$to/lib"
    cp "$here"/guest/{lib,main,guide}.sh "$top"/docs/guide/{first-tenant,linux-host}.md "$to/"
    cp "$here/guest/zoned.sh" "$to/scenarios.sh"
    # Symbols would take the guest's memory.
    strip -o "$to/flashyard.bin" "$binary" 2>/dev/null || cp "$binary" "$to/flashyard.bin"
    for library in $(ldd "$binary" | awk '$2 == "=>" {print $3} $1 ~ /^\// {print $1}'); do
        cp -L "$library" "$to/lib/"
    done
    cat >"$to/environment" <<ENVIRONMENT
ADDRESS=127.0.0.1
PREFIX=nqn.2026-11.dev.flashyard
HOST_ID=5d0b7a10-0000-4000-8000-000000000009
HOST_NQN=nqn.2014-08.org.nvmexpress:uuid:5d0b7a10-0000-4000-8000-000000000009
SCENARIOS="${plan[*]}"
SHOW=${SHOW:-}
ENVIRONMENT
}

# A drive of 128 zones of 4 MiB, 3 MiB of each usable, of which 14 may be partly written; and one without zones.
start_guest() {
    truncate -s 512M "$run/zoned.img"
    truncate -s 64M "$run/plain.img"
    : >"$run/output"
    printed=0
    (cat "$image/initramfs.cpio" && cd "$run/archive" && find . | cpio --quiet -o -H newc) >"$run/initramfs"
    qemu-system-x86_64 -M q35 -accel "${FLASHYARD_ACCEL:-tcg,thread=multi}" -cpu max,la57=off -smp 2 -m 1536 \
        -nodefaults -display none -no-reboot -kernel "$image/vmlinux" -initrd "$run/initramfs" \
        -append "console=ttyS0 mitigations=off no_timer_check random.trust_cpu=on cryptomgr.notests tsc=reliable panic=-1" \
        -drive "file=$run/zoned.img,if=none,format=raw,cache=unsafe,id=zoned" \
        -drive "file=$run/plain.img,if=none,format=raw,cache=unsafe,id=plain" \
        -device nvme,serial=zoned,id=nvme0 \
        -device "nvme-ns,drive=zoned,bus=nvme0,nsid=1,zoned=true,zoned.zone_size=4M,zoned.zone_capacity=3M,zoned.max_active=14,zoned.max_open=14,logical_block_size=4096,physical_block_size=4096" \
        -device nvme-ns,drive=plain,bus=nvme0,nsid=2 \
        -device virtio-serial-pci -chardev "file,id=output,path=$run/output" -device virtconsole,chardev=output \
        -serial "file:$run/kernel.log" >"$run/qemu.log" 2>&1 &
    guest=$!
}

# Prints the whole lines that the guest has written since the last time.
show() {
    local written
    written=$(wc -l <"$run/output")
    if ((written > printed)); then
        tr -d '\r' <"$run/output" | sed -n "$((printed + 1)),${written}p"
        printed=$written
    fi
}

# Scenarios that said nothing have failed too.
finish() {
    local name
    for name in "${plan[@]}"; do
        if ! grep -qE "^(ok|FAILED) $name\b" "$run/output"; then
            echo "FAILED $name: it did not end; last words: $(tail -n 1 "$run/kernel.log") $(tail -n 1 "$run/qemu.log")"
        fi
    done
}

clean_up() {
    [[ -z ${guest:-} ]] || kill -9 "$guest" 2>/dev/null
    wait 2>/dev/null
    if [[ -n ${KEEP:-} ]]; then
        echo "kept $run"
    else
        rm -rf "$run"
    fi
}

main

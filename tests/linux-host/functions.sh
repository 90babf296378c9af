#!/usr/bin/env bash
# NVMe functions in unmodified virtual machines: boots Debian kernels under a QEMU with vfio-user, each with a function of
# the target as its disk, and prints "ok NAME" or "FAILED NAME: why" for every scenario.
#
#   functions.sh [BINARY]     BINARY is the program under test, else the release build
#
# The machines are emulated, and nothing depends on how fast they are. What a guest wants from outside (grow a volume, take
# its disk out, kill the target) it asks for over a virtio port; see `answer`.
#
# KEEP=1 leaves logs and disks in the cache, ONLY="detect grow" runs these scenarios alone, FLASHYARD_ACCEL
# chooses another accelerator than tcg, FLASHYARD_QEMU another QEMU (qemu.sh).
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cache=${FLASHYARD_CACHE:-$top/target/linux-host}
binary=$(realpath -m "${1:-${CARGO_TARGET_DIR:-$top/target}/release/flashyard}")
# shellcheck source=guests.sh
. "$here/guests.sh"

prefix=nqn.2026-11.dev.flashyard
# Seconds after which a guest counts as hung; it needs a quarter of that on an idle machine.
deadline=1000

plan_1=(detect function_identify list function_logs_and_features interrupts fio_4k fio_512 fio_large partition ext4
    discard commands grow hot_add_and_remove moved_under_io reset_under_io function_level_reset rebind function_kernel_log
    machine_reset hot_plug function_recreated target_restarted)
plan_2=(two_detect two_io two_ext4 two_kernel_log)
plan_3=(booted_from_function)
plan_4=(booted_from_blocks_of_4k)
plan_outside=(function_target_survived function_target_stopped)
if [[ -n ${ONLY:-} ]]; then
    plan_1=() plan_2=() plan_3=() plan_4=()
    for name in $ONLY; do
        case $name in
            two_*) plan_2+=("$name") ;;
            booted_from_blocks_*) plan_4+=("$name") ;;
            booted_*) plan_3+=("$name") ;;
            *) plan_1+=("$name") ;;
        esac
    done
fi

main() {
    if [[ -z ${FLASHYARD_INSIDE:-} ]]; then
        prepare cpio unshare ip jq
        if ! FLASHYARD_QEMU=$("$here/qemu.sh" "$cache"); then
            skip_all "there is no QEMU with vfio-user here (10.1 or later), see above"
        fi
        export FLASHYARD_QEMU
        FLASHYARD_FIRMWARE=$("$here/firmware.sh" "$cache") || true
        export FLASHYARD_FIRMWARE
        enter_own_network "$@"
    fi
    ip link set lo up
    run=$(mktemp -d "$cache/functions.XXXXXX") || exit 1
    # The name of a socket has to be short.
    sockets=$(mktemp -d) || exit 1
    trap 'clean_up; rm -rf "$sockets"' EXIT
    trap 'exit 130' INT TERM
    write_config
    if ! start_target; then
        echo "FAILED function_target_start: $(tail -n 1 "$run/target.log")"
        exit 1
    fi
    if ((${#plan_1[@]} > 0)); then
        start_guest 1 vm1
    fi
    if ((${#plan_2[@]} > 0)); then
        start_guest 2 vm2
    fi
    if [[ -z $FLASHYARD_FIRMWARE ]]; then
        printf 'skipped %s: there is no firmware here, see above\n' "${plan_3[@]}" "${plan_4[@]}"
        plan_3=() plan_4=()
    fi
    if ((${#plan_3[@]} > 0)); then
        start_from_function 3 gamma 512
    fi
    if ((${#plan_4[@]} > 0)); then
        start_from_function 4 delta 4096
    fi
    serve_guests
    finish
}

# --- the target ---

# Sizes name the volumes in the scenarios. Files, because what was written must survive the program.
write_config() {
    cat >"$run/target.toml" <<TOML
[target]
listen = ["127.0.0.1:4420"]
nqn_prefix = "$prefix"

[[device]]
name = "disk4k"
kind = "file"
path = "$run/disk4k"
size = "1GiB"
block_size = 4096

[[device]]
name = "disk512"
kind = "file"
path = "$run/disk512"
size = "512MiB"
block_size = 512

[[device]]
name = "other4k"
kind = "file"
path = "$run/other4k"
size = "1GiB"
block_size = 4096

[[pool]]
name = "large"
devices = ["disk4k"]

[[pool]]
name = "spare"
devices = ["other4k"]

[[pool]]
name = "small"
devices = ["disk512"]

[[tenant]]
name = "alpha"

[[tenant]]
name = "beta"

[[volume]]
name = "data"
pool = "large"
size = "256MiB"
tenant = "alpha"

[[volume]]
name = "old"
pool = "small"
size = "128MiB"
tenant = "alpha"

[[volume]]
name = "other"
pool = "large"
size = "96MiB"
tenant = "beta"

[[function]]
name = "vm1"
tenant = "alpha"
socket = "$sockets/vm1"

[[function]]
name = "vm2"
tenant = "beta"
socket = "$sockets/vm2"
TOML
}

# Whether all functions are offered.
listening() {
    [[ $(cli function list | grep -c ' online$') == "$functions" ]]
}

# --- guests ---

# start_guest NUMBER FUNCTION
start_guest() {
    make_guest "$1" "PREFIX=$prefix
NUMBER=$1"
    mkfifo "$run/guest$1"/monitor.{in,out}
    power_on "$1" "$2"
}

# A machine whose firmware finds all that it boots on the volume of a function: a GPT and an EFI system partition. It has
# been written outside, and is given to a tenant as it is: start_from_function NUMBER TENANT BLOCK_SIZE
start_from_function() {
    local folder=$run/guest$1 function=vm$1 tenant=$2 block=$3 firmware=$FLASHYARD_FIRMWARE/firmware disk=$run/boot$1
    make_guest "$1" "PREFIX=$prefix
NUMBER=$1
BOOT_TENANT=$tenant
BOOT_BLOCK=$block"
    # FAT32 has 65,525 clusters at least.
    truncate -s $((block << 19)) "$disk"
    "$FLASHYARD_FIRMWARE/make-disk" "$disk" "$block" "$FLASHYARD_IMAGE/vmlinuz" "$folder/initramfs" "$cmdline" &&
        cli device create "boot$1" --kind file --path "$disk" --block-size "$block" >/dev/null &&
        cli tenant create "$tenant" >/dev/null &&
        cli volume create "system$1" --device "boot$1" --tenant "$tenant" --keep >/dev/null &&
        cli function create "$function" --tenant "$tenant" --socket "$sockets/$function" >/dev/null || return
    functions=$((functions + 1))
    cp "$firmware/OVMF_VARS_4M.fd" "$folder/variables"
    run_machine "$1" "$FLASHYARD_QEMU" "${memory[@]}" \
        -drive "if=pflash,format=raw,readonly=on,file=$firmware/OVMF_CODE_4M.fd" \
        -drive "if=pflash,format=raw,file=$folder/variables" \
        -device pcie-root-port,id=first,chassis=1 -device "$(disk "$function" first ', "bootindex": 1')"
}

# A machine with two slots, and a function in the first.
power_on() {
    local folder=$run/guest$1
    run_guest "$1" "$FLASHYARD_QEMU" "${memory[@]}" \
        -chardev "pipe,id=monitor,path=$folder/monitor" -mon chardev=monitor,mode=control \
        -device pcie-root-port,id=first,chassis=1 -device pcie-root-port,id=second,chassis=2 \
        -device "$(disk "$2" first)"
    [[ $1 == 1 ]] || return 0
    exec {to_monitor}<>"$folder/monitor.in" {from_monitor}<>"$folder/monitor.out"
    monitor '{"execute": "qmp_capabilities"}'
}

# What QEMU calls the device of a function: disk FUNCTION SLOT [MORE]
disk() {
    echo "{\"driver\": \"vfio-user-pci\", \"bus\": \"$2\"${3:-},
        \"socket\": {\"type\": \"unix\", \"path\": \"$sockets/$1\"}}" | tr -d '\n'
}

# Has the monitor of the first guest's machine do something: monitor COMMAND
monitor() {
    local line
    echo "$1" >&"$to_monitor"
    # Events come between.
    while read -r -t 20 -u "$from_monitor" line; do
        case $line in
            *'"return"'*) return ;;
            *'"error"'*) jq -r .error.desc <<<"$line" && return 1 ;;
        esac
    done
    echo "the monitor does not answer" && return 1
}

recreate() {
    cli function delete vm1 --yes && cli function create vm1 --tenant alpha --socket "$sockets/vm1"
}

# What a guest is to do: all, or what was not done when its machine began anew.
plan() {
    local -n plan=plan_$1
    local names=" ${plan[*]} "
    [[ $1 != 1 || -z $resumed ]] || names="$resumed ${names#* "$resumed" }"
    echo "$names"
}

# One line of reply: "ok ..." or "no ...".
answer() {
    local reply=
    # Words of a request are arguments.
    # shellcheck disable=SC2086
    set -- $1
    case $1 in
        plan) reply=$(plan "$2") ;;
        cli) reply=$(cli "${@:2}") ;;
        sockets) reply=$sockets ;;
        plug) reply=$(monitor "{\"execute\": \"device_add\", \"arguments\": $(disk "$2" second)}") ;;
        recreate) reply=$(recreate) ;;
        kill) kill_target ;;
        start) start_target ;;
        go_on_with) resumed=$2 mark=$3 ;;
        mark) [[ $resumed != "$2" ]] || reply=$mark ;;
        # Whoever asks is not there any more to hear an answer.
        reset) monitor '{"execute": "system_reset"}' >&2 && return ;;
        power_cycle) power_off 1; power_on 1 vm1 && return ;;
        finish) finished=1 ;;
        finished) [[ -n $finished ]] ;;
        alone) ! { running 2 || running 3 || running 4; } ;;
        *) false ;;
    esac && echo "ok ${reply//$'\n'/ }" || echo "no ${reply//$'\n'/ }"
}

# The guest's memory has to be one that another process can map.
memory=(-M "q35,memory-backend=ram" -m 1024 -object "memory-backend-memfd,id=ram,size=1G,share=on")
# Functions that there are.
functions=2
# A scenario that a machine goes on with when it begins anew, and what it has to find then.
resumed='' mark=''
main "$@"

#!/usr/bin/env bash
# The target against unmodified Linux hosts: boots Debian kernels under QEMU's emulation, lets their NVMe/TCP host
# discover, connect, format and suffer, and prints "ok NAME" or "FAILED NAME: why" for every scenario.
#
#   run.sh [BINARY]       BINARY is the program under test, else the release build
#
# Everything runs in a network namespace of its own, so nothing here is visible outside, and several runs at once
# do not meet. Guests reach the target through QEMU's user networking at an alias on lo. What a guest wants from
# outside (grow a volume, kill the target) it asks for over a second virtio port; see `answer`.
#
# KEEP=1 leaves logs and disks in the cache, ONLY="connect_alpha grow" runs these scenarios on a single guest,
# FLASHYARD_ACCEL chooses another accelerator than tcg.
set -uo pipefail

here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
cache=${FLASHYARD_CACHE:-$top/target/linux-host}
binary=$(realpath -m "${1:-${CARGO_TARGET_DIR:-$top/target}/release/flashyard}")

address=10.99.0.1
prefix=nqn.2026-11.dev.flashyard
# Hosts have NQNs and identifiers that differ in the last digit.
host_id=5d0b7a10-0000-4000-8000-00000000000
# Seconds after which a guest counts as hung; it needs a quarter of that on an idle machine.
deadline=1500

plan_1=(discover connect_alpha identify list logs_and_features fio_4k fio_512 fio_large ext4 discard trim commands grow
    hot_add_and_remove priority reset restart_under_io
    state_lost digests refuse reconnect_often leave kernel_log)
plan_2=(two_connect two_io two_ext4 two_kernel_log)
plan_outside=(target_survived target_stopped)
if [[ -n ${ONLY:-} ]]; then
    read -r -a plan_1 <<<"$ONLY"
    plan_2=()
fi

main() {
    if [[ -z ${FLASHYARD_INSIDE:-} ]]; then
        prepare
        enter_own_network "$@"
    fi
    ip link set lo up
    ip address add "$address/32" dev lo || skip_all "cannot add an address to lo"
    run=$(mktemp -d "$cache/run.XXXXXX") || exit 1
    trap clean_up EXIT
    trap 'exit 130' INT TERM
    write_config
    if ! start_target; then
        echo "FAILED target_start: $(tail -n 1 "$run/target.log")"
        exit 1
    fi
    start_guest 1 "${plan_1[@]}"
    if ((${#plan_2[@]} > 0)); then
        start_guest 2 "${plan_2[@]}"
    fi
    serve_guests
    finish
}

# What needs the world outside: tools and the guest image.
prepare() {
    local tool
    for tool in qemu-system-x86_64 cpio unshare ip ss; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || skip_all "$tool is not installed"
    done
    if [[ ! -x $binary ]]; then
        echo "FAILED build: no program at $binary; run: cargo build --release"
        exit 1
    fi
    if ! FLASHYARD_IMAGE=$("$here/image.sh" "$cache"); then
        skip_all "the guest image cannot be built here, see above"
    fi
    export FLASHYARD_IMAGE
}

# Runs this script again where addresses may be added to lo: as root, or as root of a user namespace.
enter_own_network() {
    local way=(unshare --net)
    [[ $(id -u) == 0 ]] || way=(unshare --map-root-user --net)
    "${way[@]}" true 2>/dev/null || skip_all "network namespaces are not allowed here"
    FLASHYARD_INSIDE=1 PATH=$PATH:/usr/sbin:/sbin exec "${way[@]}" "$here/run.sh" "$@"
}

skip_all() {
    local name
    for name in "${plan_1[@]}" "${plan_2[@]}" "${plan_outside[@]}"; do
        echo "skipped $name: $1"
    done
    exit 0
}

# --- the target ---

# Sizes name the volumes in the scenarios. Files, because what was written must survive the program.
write_config() {
    cat >"$run/target.toml" <<TOML
[target]
listen = ["$address:4420", "$address:8009"]
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

[[pool]]
name = "large"
devices = ["disk4k"]

[[pool]]
name = "small"
devices = ["disk512"]

[[tenant]]
name = "alpha"
hosts = ["nqn.2014-08.org.nvmexpress:uuid:${host_id}1"]
class = "latency"

[[tenant]]
name = "beta"
hosts = ["nqn.2014-08.org.nvmexpress:uuid:${host_id}2"]
class = "throughput"

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
TOML
}

start_target() {
    "$binary" serve --config "$run/target.toml" --state "$run/state" >>"$run/target.log" 2>&1 &
    target=$!
    for _ in {1..300}; do
        if listening; then return 0; fi
        kill -0 "$target" 2>/dev/null || break
        sleep 0.1
    done
    return 1
}

listening() {
    [[ -n $(ss -ltnH "src ${1:-$address} and sport = :4420") ]]
}

# Runs the program on an empty state directory, where no guest looks for it.
lose_state() {
    rm -rf "$run/state"
    "$binary" serve --state "$run/state" --listen 127.0.0.1:4420 >>"$run/target.log" 2>&1 &
    target=$!
    for _ in {1..300}; do
        if listening 127.0.0.1; then return 0; fi
        kill -0 "$target" 2>/dev/null || break
        sleep 0.1
    done
    return 1
}

# Adds devices and tenants by hand and imports what is on the disks. What the disks do not know comes from the guest: the
# numbers that it has of the two volumes of alpha; beta has had one volume only.
import() {
    local host=nqn.2014-08.org.nvmexpress:uuid:$host_id
    cli tenant create alpha --host "${host}1" --class latency &&
        cli tenant create beta --host "${host}2" --class throughput &&
        cli device create disk4k --kind file --path "$run/disk4k" --size 1GiB --block-size 4096 &&
        cli device create disk512 --kind file --path "$run/disk512" --size 512MiB --block-size 512 &&
        cli pool import large --device disk4k && cli pool import small --device disk512 &&
        cli volume import data --pool large --tenant alpha --nsid "$1" &&
        cli volume import old --pool small --tenant alpha --nsid "$2" &&
        cli volume import other --pool large --tenant beta --nsid 1
}

cli() {
    "$binary" "$@" --state "$run/state" 2>&1
}

# What the kernel did for a killed process may keep its sockets a little longer.
kill_target() {
    kill -9 "$target"
    wait "$target" 2>/dev/null
    for _ in {1..100}; do
        listening || return 0
        sleep 0.1
    done
    return 1
}

# --- guests ---

# start_guest NUMBER SCENARIO...
start_guest() {
    local number=$1 folder=$run/guest$1
    shift
    mkdir -p "$folder/archive/test"
    cp "$here"/guest/*.sh "$folder/archive/test/"
    cat >"$folder/archive/test/environment" <<ENVIRONMENT
ADDRESS=$address
PREFIX=$prefix
HOST_ID=$host_id$number
HOST_NQN=nqn.2014-08.org.nvmexpress:uuid:$host_id$number
SCENARIOS="$*"
ENVIRONMENT
    # The kernel takes two archives one behind the other.
    (cat "$FLASHYARD_IMAGE/initramfs.cpio" && cd "$folder/archive" && find . | cpio --quiet -o -H newc) >"$folder/initramfs"
    mkfifo "$folder/control.in" "$folder/control.out"
    : >"$folder/output"
    printed[number]=0
    qemu-system-x86_64 -M q35 -accel "${FLASHYARD_ACCEL:-tcg,thread=multi}" -cpu max,la57=off -smp 2 -m 1024 \
        -nodefaults -display none -no-reboot -kernel "$FLASHYARD_IMAGE/vmlinux" -initrd "$folder/initramfs" \
        -append "console=ttyS0 mitigations=off no_timer_check random.trust_cpu=on cryptomgr.notests tsc=reliable panic=-1" \
        -netdev user,id=net -device virtio-net-pci,netdev=net -device virtio-serial-pci \
        -chardev "file,id=output,path=$folder/output" -device virtconsole,chardev=output \
        -chardev "pipe,id=control,path=$folder/control" -device virtserialport,chardev=control,name=control \
        -serial "file:$folder/kernel.log" >"$folder/qemu.log" 2>&1 &
    guests[number]=$!
    # Open on both sides for as long as we live: opening a pipe waits for its other end.
    # shellcheck disable=SC1083
    exec {to_guest[number]}<>"$folder/control.in" {from_guest[number]}<>"$folder/control.out"
}

# Until the guests are done: answers what they ask, shows what they print.
serve_guests() {
    local number words half=()
    finished=
    while ((SECONDS < deadline)) && any_running; do
        for number in "${!guests[@]}"; do
            if read -r -t 0.1 -u "${from_guest[number]}" words; then
                answer "${half[number]:-}$words" >&"${to_guest[number]}"
                half[number]=
            else
                # Time may run out in the middle of a line.
                half[number]+=$words
            fi
            show "$number"
        done
        running 1 || finished=1
    done
    for number in "${!guests[@]}"; do
        show "$number"
    done
}

any_running() {
    local number
    for number in "${!guests[@]}"; do
        ! running "$number" || return 0
    done
    return 1
}

running() {
    kill -0 "${guests[$1]}" 2>/dev/null
}

# One line of reply: "ok ..." or "no ...".
answer() {
    local reply=
    # Words of a request are arguments.
    # shellcheck disable=SC2086
    set -- $1
    case $1 in
        cli) reply=$(cli "${@:2}") ;;
        lose_state) lose_state ;;
        import) reply=$(import "$2" "$3") ;;
        listen) reply=$(cli target set --listen "$address:4420" --listen "$address:8009") ;;
        kill) kill_target ;;
        start) start_target ;;
        finish) finished=1 ;;
        finished) [[ -n $finished ]] ;;
        *) false ;;
    esac && echo "ok ${reply//$'\n'/ }" || echo "no ${reply//$'\n'/ }"
}

# Prints the whole lines that a guest has written since the last time.
show() {
    local output=$run/guest$1/output written
    written=$(wc -l <"$output")
    if ((written > printed[$1])); then
        tr -d '\r' <"$output" | sed -n "$((printed[$1] + 1)),${written}p"
        printed[$1]=$written
    fi
}

# --- the end ---

# Scenarios that said nothing have failed too.
finish() {
    local number name
    for number in "${!guests[@]}"; do
        local -n plan=plan_$number
        for name in "${plan[@]}"; do
            if ! grep -qE "^(ok|FAILED) $name\b" "$run/guest$number/output"; then
                echo "FAILED $name: it did not end; last words of guest $number: $(tail -n 1 "$run/guest$number/kernel.log")"
            fi
        done
    done
    verdict target_survived no_panic
    verdict target_stopped stop_target
    if grep -qhE '^FAILED ' "$run"/guest?/output; then
        tail -n 20 "$run/target.log" | sed 's/^/    target | /'
    fi
}

verdict() {
    reason=
    if "$2"; then echo "ok $1"; else echo "FAILED $1: $reason"; fi
}

no_panic() {
    reason="it is not running any more"
    kill -0 "$target" 2>/dev/null || return
    reason=$(grep -m1 'panicked at' "$run/target.log")
    [[ -z $reason ]]
}

# A target that is asked to end does so soon and without complaint.
stop_target() {
    reason="it was not running"
    kill -TERM "$target" 2>/dev/null || return
    reason="still running 5 s after SIGTERM"
    for _ in {1..50}; do
        # What has ended but was not waited for is a zombie.
        if ! grep -q '^State:\s[^Z]' "/proc/$target/status" 2>/dev/null; then
            reason="exit status not 0 after SIGTERM"
            wait "$target"
            return
        fi
        sleep 0.1
    done
    return 1
}

clean_up() {
    local process
    for process in "${target:-}" "${guests[@]}"; do
        [[ -z $process ]] || kill -9 "$process" 2>/dev/null
    done
    wait 2>/dev/null
    if [[ -n ${KEEP:-} ]]; then
        echo "kept $run"
    else
        rm -rf "$run"
    fi
}

guests=() printed=() to_guest=() from_guest=()
main "$@"

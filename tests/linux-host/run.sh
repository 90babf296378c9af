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
# shellcheck source=guests.sh
. "$here/guests.sh"

address=10.99.0.1
prefix=nqn.2026-11.dev.flashyard
# Hosts have NQNs and identifiers that differ in the last digit.
host_id=5d0b7a10-0000-4000-8000-00000000000
# Seconds after which a guest counts as hung; it needs a quarter of that on an idle machine.
deadline=1500

plan_1=(discover connect_alpha identify list logs_and_features fio_4k fio_512 fio_large ext4 discard trim commands grow
    hot_add_and_remove priority reset restart_under_io taken_over_under_io
    state_lost digests refuse reconnect_often leave kernel_log)
plan_2=(two_connect two_io two_ext4 two_kernel_log)
plan_outside=(target_survived target_stopped)
if [[ -n ${ONLY:-} ]]; then
    read -r -a plan_1 <<<"$ONLY"
    plan_2=()
fi

main() {
    if [[ -z ${FLASHYARD_INSIDE:-} ]]; then
        prepare qemu-system-x86_64 cpio unshare ip ss
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

listening() {
    [[ -n $(ss -ltnH "sport = :4420") ]]
}

# Another process takes over from the target, which ends in good order.
take_over() {
    local before=$target
    "$binary" serve --config "$run/target.toml" --state "$run/state" --take-over >>"$run/target.log" 2>&1 &
    target=$!
    wait "$before" || return 1
    for _ in {1..300}; do
        cli status >/dev/null && return
        kill -0 "$target" 2>/dev/null || break
        sleep 0.1
    done
    return 1
}

# Runs the program on an empty state directory, where no guest looks for it.
lose_state() {
    rm -rf "$run/state"
    serve --listen 127.0.0.1:4420
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

# --- guests ---

# start_guest NUMBER SCENARIO...
start_guest() {
    make_guest "$1" "ADDRESS=$address
PREFIX=$prefix
HOST_ID=$host_id$1
HOST_NQN=nqn.2014-08.org.nvmexpress:uuid:$host_id$1
SCENARIOS=\"${*:2}\""
    run_guest "$1" qemu-system-x86_64 -M q35 -m 1024 -no-reboot \
        -netdev user,id=net -device virtio-net-pci,netdev=net
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
        take_over) take_over ;;
        finish) finished=1 ;;
        finished) [[ -n $finished ]] ;;
        *) false ;;
    esac && echo "ok ${reply//$'\n'/ }" || echo "no ${reply//$'\n'/ }"
}

main "$@"

#!/usr/bin/env bash
# 1 MiB reads and writes on a mirror of two null devices, through a function over vfio-user and over NVMe/TCP on
# loopback in turns, and what of the one's rate the other one has (Figure 4 of the FlexBSO study). Prints a Markdown
# table of medians.
#
#   bench/mirror.sh [BINARY]       BINARY is the program under test, else the release build
#
# ROUNDS (3) and SECONDS_EACH (3) say how long. A job has 32 commands in flight on a queue of its own.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
binary=$(realpath "${1:-${CARGO_TARGET_DIR:-$top/target}/release/flashyard}")
rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-3}

main() {
    folder=$(mktemp -d)
    trap clean_up EXIT
    cd "$folder"
    echo '| policy | load | jobs | vfio-user, GB/s | NVMe/TCP, GB/s | rate, of NVMe/TCP |'
    echo '| --- | --- | --- | --- | --- | --- |'
    for policy in fifo fair; do
        start "$policy"
        for rw in read write; do
            for jobs in 1 4; do
                compare "$policy" "$rw" "$jobs"
            done
        done
        stop
    done
}

start() {
    : >log
    "$binary" serve --state state --listen 127.0.0.1:0 >log &
    target=$!
    until grep -q listening log; do
        kill -0 "$target"
        sleep 0.1
    done
    address=$(sed -n 's/^listening on \([^ ]*\) .*/\1/p' log)
    {
        ask device create n0 --kind null --size 64GiB
        ask device create n1 --kind null --size 64GiB
        ask pool create safe --devices n0,n1 --redundancy mirror
        ask tenant create t --host '*'
        ask volume create v --pool safe --size 32GiB --tenant t
        ask device set safe --policy "$1"
        ask function create vm --tenant t
    } >/dev/null
}

ask() {
    "$binary" "$@" --state state
}

stop() {
    kill "$target"
    wait "$target"
    rm -rf state
}

# compare POLICY RW JOBS: a row.
compare() {
    local vfio=() tcp=() round
    for ((round = 0; round < rounds; round++)); do
        vfio+=("$(rate "$2" --connect vfio-user:state/functions/vm.sock --queues "$3" --qd $((32 * $3)))")
        tcp+=("$(rate "$2" --connect "$address" --subnqn nqn.2026-11.dev.flashyard:t --jobs "$3" --qd 32)")
    done
    awk -v policy="$1" -v rw="$2" -v jobs="$3" -v a="$(median "${vfio[@]}")" -v b="$(median "${tcp[@]}")" \
        'BEGIN { printf "| `%s` | 1 MiB %s | %d | %.1f | %.1f | %.1f |\n", policy, rw, jobs, a / 1e9, b / 1e9, a / b }'
}

# Bytes per second.
rate() {
    "$binary" perf --rw "$1" --bs 1MiB --seconds "$seconds" --json "${@:2}" | jq '.bytes_per_second'
}

median() {
    printf '%s\n' "$@" | sort -g | sed -n "$(($# / 2 + 1))p"
}

clean_up() {
    if kill -0 "$target" 2>/dev/null; then
        kill "$target"
    fi
    rm -rf "$folder"
}

main

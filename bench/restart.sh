#!/usr/bin/env bash
# What a host sees of a restart of its target: ended and started again, and taken over (`serve --take-over`), in turns. The
# host is another target with a remote device, which connects again by itself; `perf` reads there at a low rate, and its
# longest I/O is the pause. Somebody else connects all the time, and counts how often that is refused. Prints a Markdown
# table for docs/performance.md. Needs a release build (`make build`).
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
usage: bench/restart.sh [OPTION VALUE]...

  --volumes N     of 1 MiB each, in a pool on a file: a start takes longer with more (default 1)
  --rounds N      restarts of each kind (default 7)
  --binary FILE   the program (default target/release/flashyard)
TEXT
}

fail() {
    echo "restart: $1; see bench/restart.sh --help" >&2
    exit 2
}

volumes=1 rounds=7 binary=${CARGO_TARGET_DIR:-target}/release/flashyard
while (($#)); do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --binary) binary=${2:?} ;;
    --volumes | --rounds)
        [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "$1 wants a number, not '${2:-}'"
        declare "${1#--}=$2"
        ;;
    *) fail "there is no option '$1'" ;;
    esac
    shift 2
done
[[ -x $binary ]] || fail "there is no program $binary: run make build"
command -v jq >/dev/null || fail "jq is not installed"
binary=$(realpath "$binary")
subnqn=nqn.2026-11.dev.flashyard:db
pids=() pid_target=

main() {
    local round how address far
    work=$(mktemp -d "$(realpath "${CARGO_TARGET_DIR:-target}")/restart.XXXXXX")
    trap clean_up EXIT
    cd "$work"
    describe >many.toml
    start target 127.0.0.1:0 --config many.toml
    address=$(listens target)
    start host 127.0.0.1:0
    far=$(listens host)
    ask host device create far --kind nvme-tcp --address "$address" --subnqn "$subnqn" --nsid 1
    ask host tenant create db --host '*'
    ask host volume create v --device far --tenant db --keep
    for ((round = 0; round < rounds; round++)); do
        for how in again over; do
            measure "$how" "$address" "$far"
        done
    done
    echo "| $volumes volumes, $rounds restarts of each kind | pause of a host, median, ms | least | most | connects refused, all | start until it listens, median, ms |"
    echo "| --- | --- | --- | --- | --- | --- |"
    row "ended and started again" again
    row "taken over" over
}

describe() {
    local i
    printf '[[device]]\nname = "d"\nkind = "file"\npath = "d.img"\nsize = "%dMiB"\n[[pool]]\nname = "p"\ndevices = ["d"]\n' $((volumes + 64))
    printf '[[tenant]]\nname = "db"\nhosts = ["*"]\n'
    for ((i = 0; i < volumes; i++)); do
        printf '[[volume]]\nname = "v%d"\npool = "p"\nsize = "1MiB"\ntenant = "db"\n' "$i"
    done
}

# start NAME ADDRESS OPTION...: with a state directory of its own, until it listens.
start() {
    rm -f "$1.log"
    "$binary" serve --state "$1" --listen "$2" "${@:3}" >"$1.log" 2>&1 &
    pids+=($!)
    declare -g "pid_$1=$!"
    until grep -qs '^listening on' "$1.log"; do
        kill -0 $! 2>/dev/null || { cat "$1.log" >&2 && exit 1; }
        sleep 0.01
    done
}

listens() {
    sed -n 's/^listening on \([^ ]*\) .*/\1/p' "$1.log" | head -n 1
}

ask() {
    "$binary" "${@:2}" --state "$1" >answer 2>&1 || { cat answer >&2 && exit 1; }
}

# measure HOW ADDRESS FAR: one restart in the middle of a load.
measure() {
    local before=$pid_target load prober
    "$binary" perf --connect "$3" --subnqn "$subnqn" --rw randread --bs 4KiB --qd 1 --rate 500 --warmup 0 --seconds 8 --json >load &
    load=$!
    rm -f over
    connects "$2" >refused &
    prober=$!
    pids+=("$load" "$prober")
    sleep 2
    if [[ $1 == over ]]; then
        start target "$2" --take-over
        wait "$before"
    else
        kill "$before"
        wait "$before"
        start target "$2"
    fi
    wait "$load"
    touch over
    wait "$prober"
    jq '.latency_us.max / 1000' load >>"pause.$1"
    cat refused >>"refused.$1"
    sed -n 's/.* after \([0-9]*\) ms$/\1/p' target.log | head -n 1 >>"start.$1"
}

# Connects again and again; how often that was refused.
connects() {
    local count=0
    until [[ -e over ]]; do
        { exec 9<>"/dev/tcp/${1%:*}/${1##*:}" && exec 9>&-; } 2>/dev/null || count=$((count + 1))
        sleep 0.005
    done
    echo "$count"
}

row() {
    local pauses
    mapfile -t pauses < <(sort -g "pause.$2")
    printf '| %s | %.0f | %.0f | %.0f | %d | %d |\n' "$1" "${pauses[rounds / 2]}" "${pauses[0]}" "${pauses[-1]}" \
        "$(awk '{n += $1} END {print n + 0}' "refused.$2")" "$(sort -g "start.$2" | sed -n "$((rounds / 2 + 1))p")"
}

clean_up() {
    local pid
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
    done
    rm -rf "$work"
}

main

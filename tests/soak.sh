#!/usr/bin/env bash
# A target on the real machine under hosts of every kind, for long: descriptors and memory must stay flat, nothing may
# hang, and SIGTERM must end it within a second. `make soak` runs it; `make test` does not.
#
#   soak.sh [--connects N] [--random N] [--valid N] [--cores LIST] [--lives A..B] [--kills N] [--full]
#
# The counts are for each number of cores; --full takes 1,000,000 connects, 10,000,000 random and 1,000,000 mostly valid
# commands, on 1 and on 2 cores, 20,000 lives in the simulated world, and kills 200 targets of which a volume moves
# between pools under a verifying load. Without it a tenth of a percent of that, and 8 kills.
# With FLASHYARD=PROGRAM nothing is built, and no volume moves.
set -uo pipefail

connects=1000 random=10000 valid=1000 cores="1 2" lives=0..500 kills=8
# What may be open and in memory beyond what there was after the first tenth, once all hosts have gone.
more_descriptors=8 more_memory_kib=16384
failed=0 target='' operator=''

usage() {
    sed -n '5,10s/^# \{0,1\}//p' "$0"
    exit 2
}

while (($#)); do
    case $1 in
    --full) connects=1000000 random=10000000 valid=1000000 lives=0..20000 kills=200 && shift && continue ;;
    --connects | --random | --valid | --cores | --lives | --kills) (($# > 1)) || usage ;;
    *) usage ;;
    esac
    declare "${1#--}=$2"
    shift 2
done

main() {
    local out=${CARGO_TARGET_DIR:-target}/release
    if [[ -z ${FLASHYARD-} ]]; then
        cargo build --release --locked --package flashyard-app || exit 1
        cargo build --release --locked --package flashyard-lab --example soak || exit 1
    fi
    program=$(realpath "${FLASHYARD:-$out/flashyard}") hosts=$(realpath "$out/examples/soak")
    # Enough for the hosts at a time, and too few to leak.
    ulimit -n 1024
    for count in $cores; do
        soak "$count"
    done
    if [[ $lives != none ]]; then
        headline "lives $lives in the simulated world"
        "$program" sim --seeds "$lives" || fail "a life has a finding"
    fi
    if ((kills > 0)) && [[ -z ${FLASHYARD-} ]]; then
        headline "a volume that moves, $kills kills"
        # The test kills eight times in a round.
        FLASHYARD_ROUNDS=$(((kills + 7) / 8)) FLASHYARD_TEST_SECONDS=$((24 * 3600)) cargo test --release --quiet --locked \
            --package flashyard-app --test command_line a_volume_that_moves_is_whole || fail "a volume was lost in a move"
    fi
    ((failed == 0)) && echo "the soak passed"
    ((failed == 0))
}

# Everything on a target with so many cores.
soak() {
    headline "$1 cores: $connects connects, $random random, $valid mostly valid commands"
    scratch=$(mktemp -d)
    trap 'kill -KILL $target $operator 2>/dev/null; rm -rf "$scratch"' EXIT
    configuration >"$scratch/flashyard.toml"
    "$program" serve --config "$scratch/flashyard.toml" --state "$scratch/state" --cores "$1" \
        --buffers 64MiB >"$scratch/out" 2>"$scratch/err" &
    target=$!
    addresses=$(await_addresses) || { fail "the target does not start: $(cat "$scratch/err")"; end; return; }
    measure "start"
    part connects $((connects / 10)) 1
    part random $((random / 10)) 2
    part valid $((valid / 10)) 3
    await_idle
    measure "warm"
    local warm_descriptors=$descriptors warm_memory=$memory
    part connects $((connects - connects / 10)) 4
    part random $((random - random / 10)) 5
    operator &
    operator=$!
    part valid $((valid - valid / 10)) 6
    kill "$operator" 2>/dev/null
    wait "$operator" 2>/dev/null
    operator=
    await_idle
    measure "end"
    ((descriptors <= warm_descriptors + more_descriptors)) || fail "descriptors grew from $warm_descriptors to $descriptors"
    ((memory <= warm_memory + more_memory_kib)) || fail "memory grew from $warm_memory to $memory KiB"
    part fresh 1 7
    end
}

configuration() {
    cat <<END
[target]
listen = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0", "127.0.0.4:0"]
[[device]]
name = "ram"
kind = "memory"
size = "256MiB"
[[device]]
name = "disk"
kind = "file"
path = "$scratch/disk.img"
size = "256MiB"
[[pool]]
name = "fast"
devices = ["ram"]
[[pool]]
name = "safe"
devices = ["disk"]
[[tenant]]
name = "a"
hosts = ["*"]
[[tenant]]
name = "b"
hosts = ["*"]
[[volume]]
name = "a1"
pool = "fast"
size = "16MiB"
tenant = "a"
[[volume]]
name = "a2"
pool = "safe"
size = "16MiB"
tenant = "a"
[[volume]]
name = "b1"
pool = "safe"
size = "16MiB"
tenant = "b"
END
}

# The addresses the target listens on, when it does.
await_addresses() {
    for _ in $(seq 200); do
        if (($(grep -c '^listening on ' "$scratch/out") == 4)); then
            sed -n 's/^listening on \([^ ]*\) .*/\1/p' "$scratch/out"
            return
        fi
        kill -0 "$target" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# Hosts of one kind.
part() {
    local name=nqn.2026-11.dev.flashyard
    (($2 > 0)) || return
    printf '%-9s' "$1"
    # A part that takes longer than that hangs.
    # shellcheck disable=SC2086
    timeout $((300 + $2 / 50)) "$hosts" "$1" "$2" "$3" "$name:a" "$name:b" $addresses ||
        fail "$1: the target does what it may not, or hangs (status $?)"
    kill -0 "$target" 2>/dev/null || fail "the target has ended: $(tail -3 "$scratch/err")"
    sample
    ((descriptors <= peak)) || peak=$descriptors
}

# Changes what can be changed, until it is killed.
operator() {
    local policies=(fair fifo gimbal caps) round=0
    while sleep 0.05; do
        round=$((round + 1))
        ask volume create extra --pool safe --size 4MiB --tenant a
        ask device set ram --policy "${policies[round % 4]}"
        ask volume set extra --size 8MiB
        ask tenant set a --weight $((1 + round % 5))
        ask volume delete extra --yes
    done
}

# A change may be refused, with an answer.
ask() {
    timeout 60 "$program" "$@" --state "$scratch/state" >/dev/null 2>"$scratch/asked"
    (($? < 124)) || fail "'flashyard $*' is not answered"
}

# Waits until the target has noticed that all hosts have gone: the longest deadline of a connection, and some.
await_idle() {
    for _ in $(seq 60); do
        sample
        ((connections == 0)) && return
        sleep 1
    done
    fail "$connections connections are left a minute after all hosts have gone"
}

# Open descriptors, those of them that are connections, and memory in KiB.
sample() {
    descriptors=$(find "/proc/$target/fd" -mindepth 1 2>/dev/null | wc -l)
    memory=$(awk '/^VmRSS/ {print $2}' "/proc/$target/status" 2>/dev/null)
    memory=${memory:-0}
    connections=$("$program" status --json --state "$scratch/state" 2>/dev/null |
        awk '/"connections"/ {gsub(/[^0-9]/, ""); sum += $0} END {print sum + 0}')
}

measure() {
    sample
    echo "$1: $descriptors descriptors, $memory KiB"
    [[ $1 != start ]] || peak=$descriptors
}

# SIGTERM ends the target within a second.
end() {
    local began ended
    began=$(date +%s%N)
    kill -TERM "$target" 2>/dev/null
    for _ in $(seq 500); do
        kill -0 "$target" 2>/dev/null || break
        sleep 0.02
    done
    ended=$((($(date +%s%N) - began) / 1000000))
    echo "ended $ended ms after SIGTERM; at most $peak descriptors between the parts"
    if kill -0 "$target" 2>/dev/null; then
        kill -KILL "$target"
    fi
    wait "$target" 2>/dev/null
    ((ended <= 1000)) || fail "the target took $ended ms to end"
    target=
    rm -rf "$scratch"
}

fail() {
    echo "FAILED $1"
    failed=1
}

headline() {
    printf '\n== %s\n' "$1"
}

cd "$(dirname "$0")/.." || exit 1
main

#!/usr/bin/env bash
# A target with many volumes and tenants, made of one configuration file: how long it takes to make, to list and to
# ask, how much memory it has, and what it costs while nothing happens. Prints a Markdown table for
# docs/performance.md. Needs a release build (`make build`). The processor time says the same on a busy machine.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
usage: bench/scale.sh [OPTION VALUE]...

  --volumes N     of 1 MiB each, in ten pools on memory devices (default 10000)
  --tenants N     half of them with a guarantee (default 1000)
  --rounds N      each question is asked so many times, and the table has the median (default 7)
  --idle S        seconds over which the idle target is watched (default 20)
  --binary FILE   the program (default target/release/flashyard)
TEXT
}

fail() {
    echo "scale: $1; see bench/scale.sh --help" >&2
    exit 2
}

volumes=10000 tenants=1000 rounds=7 idle=20 binary=${CARGO_TARGET_DIR:-target}/release/flashyard
while (($#)); do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --binary) binary=${2:?} ;;
    --volumes | --tenants | --rounds | --idle)
        [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "$1 wants a number, not '${2:-}'"
        declare "${1#--}=$2"
        ;;
    *) fail "there is no option '$1'" ;;
    esac
    shift 2
done
[[ -x $binary ]] || fail "there is no program $binary: run make build"
binary=$(realpath "$binary")

main() {
    work=$(mktemp -d "$(realpath "${CARGO_TARGET_DIR:-target}")/scale.XXXXXX")
    trap clean_up EXIT
    cd "$work"
    describe >many.toml
    echo "| $volumes volumes, $tenants tenants | | processor time of the target, s |"
    echo "| --- | --- | --- |"
    start_target
    once "\`apply\` of all of it at an empty target" ask apply many.toml
    often "\`apply\` again (nothing changes)" ask apply many.toml
    often "\`apply --plan\`" ask apply many.toml --plan
    often "\`volume list\`" ask volume list
    often "\`tenant list\`" ask tenant list
    often "\`status\`" ask status
    often "\`health\`" ask health
    often "\`metrics\`" ask metrics
    row "lines of \`metrics\`" "$(wc -l <answer)"
    once "\`volume create\`, one more" ask volume create more --pool p0 --size 1MiB --tenant t0
    row "memory, resident" "$(resident) MiB"
    row "processor while idle" "$(busy) % of one"
    { kill -KILL "$pid" && wait "$pid"; } 2>/dev/null || true
    measure start_target
    row "start after \`kill -9\`" "$took s" "$(since 0 1)"
    row "memory, resident, after it" "$(resident) MiB"
}

# The configuration file.
describe() {
    local i
    for ((i = 0; i < 10; i++)); do
        printf '[[device]]\nname = "m%d"\nkind = "memory"\nsize = "%dMiB"\npolicy = "fair"\n' "$i" $((volumes / 10 + 100))
        printf '[[pool]]\nname = "p%d"\ndevices = ["m%d"]\n' "$i" "$i"
    done
    for ((i = 0; i < tenants; i++)); do
        printf '[[tenant]]\nname = "t%d"\nhosts = ["nqn.2014-08.org.example:h%d"]\n' "$i" "$i"
        ((i % 2)) || echo 'guarantee = { read_iops = "1" }'
    done
    for ((i = 0; i < volumes; i++)); do
        printf '[[volume]]\nname = "v%d"\npool = "p%d"\nsize = "1MiB"\ntenant = "t%d"\n' "$i" $((i % 10)) $((i % tenants))
    done
}

# It is there when it answers: memory devices forget, so that after a kill it makes its volumes anew.
start_target() {
    rm -f log
    "$binary" serve --state state --listen 127.0.0.1:0 >log 2>&1 &
    pid=$!
    until grep -qs '^listening on' log; do
        kill -0 "$pid" 2>/dev/null || { cat log >&2 && exit 1; }
        sleep 0.01
    done
}

ask() {
    "$binary" "$@" --state state
}

row() {
    echo "| $1 | $2 | ${3:-} |"
}

# once TEXT COMMAND...: how long a command takes.
once() {
    local used
    used=$(ticks)
    measure "${@:2}"
    row "$1" "$took s" "$(since "$used" 1)"
}

# often TEXT COMMAND...: the median of so many rounds.
often() {
    local i used all=()
    used=$(ticks)
    for ((i = 0; i < rounds; i++)); do
        measure "${@:2}"
        all+=("$took")
    done
    row "$1" "$(printf '%s\n' "${all[@]}" | sort -n | sed -n "$(((rounds + 1) / 2))p") s" "$(since "$used" "$rounds")"
}

measure() {
    local from=${EPOCHREALTIME/./}
    "$@" >answer 2>&1 || { cat answer >&2 && exit 1; }
    took=$(awk -v us=$((${EPOCHREALTIME/./} - from)) 'BEGIN {printf "%.3f", us / 1e6}')
}

resident() {
    awk '/^VmRSS/ {print int($2 / 1024)}' "/proc/$pid/status"
}

# Processor time of the target in percent of one processor.
busy() {
    local before after
    before=$(ticks)
    sleep "$idle"
    after=$(ticks)
    awk -v t=$((after - before)) -v hz="$(getconf CLK_TCK)" -v s="$idle" 'BEGIN {printf "%.2f", 100 * t / hz / s}'
}

# since TICKS N: what it has used since then, each of N times.
since() {
    awk -v t=$(($(ticks) - $1)) -v hz="$(getconf CLK_TCK)" -v n="$2" 'BEGIN {printf "%.2f", t / hz / n}'
}

ticks() {
    awk '{print $14 + $15}' "/proc/$pid/stat"
}

clean_up() {
    [[ -z ${pid:-} ]] || ! kill -0 "$pid" 2>/dev/null || kill -KILL "$pid"
    rm -rf "$work"
}

main

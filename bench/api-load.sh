#!/usr/bin/env bash
# What questions to the API cost the hosts, and what a target costs that is only watched. Three things in turns, round by
# round: nobody asks; somebody asks another target, which shows what asking costs on this machine; somebody asks this one.
# Meanwhile `perf` reads at a fixed rate, and its p99 is compared within each round. Then nobody reads, and the dashboard's
# stream of events, `iostat` and a scrape each 15 s go on. Prints Markdown tables for docs/performance.md. Needs a release
# build (`make build`).
set -euo pipefail
# Before whatever else this machine does, where that is allowed: a session of its own has a share of its own.
if [[ -z ${API_LOAD_FIRST:-} && -w /proc/self/autogroup ]]; then
    API_LOAD_FIRST=1 exec setsid --wait "$0" "$@"
fi
[[ -z ${API_LOAD_FIRST:-} ]] || echo -20 2>/dev/null >/proc/self/autogroup || true
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
usage: bench/api-load.sh [OPTION VALUE]...

  --asks N        questions a second: status, volumes, tenants and metrics in turns (default 100)
  --rate N        reads a second, 4 KiB of a null device (default 5000)
  --volumes N     of the target, of ten tenants (default 100)
  --rounds N      (default 15)
  --seconds S     of a measurement (default 5)
  --idle S        seconds over which the watched target is looked at (default 30)
  --binary FILE   the program (default target/release/flashyard)

The core of the target runs on processor 0, its API where the system puts it; perf and whoever asks run on processor 1.
TEXT
}

fail() {
    echo "api-load: $1; see bench/api-load.sh --help" >&2
    exit 2
}

asks=100 rate=5000 volumes=100 rounds=15 seconds=5 idle=30 binary=${CARGO_TARGET_DIR:-target}/release/flashyard
while (($#)); do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --binary) binary=${2:?} ;;
    --asks | --rate | --volumes | --rounds | --seconds | --idle)
        [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || fail "$1 wants a number, not '${2:-}'"
        declare "${1#--}=$2"
        ;;
    *) fail "there is no option '$1'" ;;
    esac
    shift 2
done
[[ -x $binary ]] || fail "there is no program $binary: run make build"
for tool in jq curl python3 taskset; do
    command -v $tool >/dev/null || fail "$tool is not installed"
done
binary=$(realpath "$binary")
pids=() pid_target=

main() {
    local round arm
    work=$(mktemp -d "$(realpath "${CARGO_TARGET_DIR:-target}")/api-load.XXXXXX")
    trap clean_up EXIT
    cd "$work"
    describe >many.toml
    start target
    start other
    for ((round = 0; round < rounds; round++)); do
        for arm in nobody other target; do
            measure "$arm"
        done
    done
    echo "| $rate reads a second, $volumes volumes, $rounds rounds of $seconds s | p50, us | p99, us: median | half of the rounds | p99 to that of the same round without: median | half of the rounds |"
    echo "| --- | --- | --- | --- | --- | --- |"
    row "nobody asks" nobody
    row "$asks questions a second, at another target" other
    row "$asks questions a second, at this one" target
    echo
    echo "| over $idle s | processor, % of one |"
    echo "| --- | --- |"
    echo "| nobody asks | $(busy) |"
    watch_it
    echo "| the stream of events, \`iostat 1\`, a scrape each 15 s | $(busy) |"
    ask_often target "$idle" &
    pids+=($!)
    echo "| the same, and $asks questions a second | $(busy) |"
}

describe() {
    local i
    echo '[[device]]
name = "n"
kind = "null"
size = "64GiB"
[[pool]]
name = "p"
devices = ["n"]'
    for ((i = 0; i < 10; i++)); do
        printf '[[tenant]]\nname = "t%d"\nhosts = ["*"]\n' "$i"
    done
    for ((i = 0; i < volumes; i++)); do
        printf '[[volume]]\nname = "v%d"\npool = "p"\nsize = "16MiB"\ntenant = "t%d"\n' "$i" $((i % 10))
    done
}

start() {
    "$binary" serve --state "$1" --listen 127.0.0.1:0 --processor 0 --config many.toml >"$1.log" 2>&1 &
    pids+=($!)
    declare -g "pid_$1=$!"
    until grep -qs '^listening on' "$1.log"; do
        kill -0 $! 2>/dev/null || { cat "$1.log" >&2 && exit 1; }
        sleep 0.01
    done
}

# measure WHO: the load, while WHO is asked.
measure() {
    local asker='' address
    if [[ $1 != nobody ]]; then
        ask_often "$1" $((seconds + 2)) &
        asker=$!
        sleep 0.5
    fi
    address=$(sed -n 's/^listening on \([^ ]*\) .*/\1/p' target.log | head -n 1)
    taskset --cpu-list 1 "$binary" perf --connect "$address" --subnqn nqn.2026-11.dev.flashyard:t0 --rw randread --bs 4KiB --qd 4 \
        --rate "$rate" --warmup 1 --seconds "$seconds" --json >load
    jq '.latency_us.p99' load >>"p99.$1"
    jq '.latency_us.p50' load >>"p50.$1"
    [[ -z $asker ]] || wait "$asker"
}

# ask_often WHO SECONDS: over one connection, in step with the clock.
ask_often() {
    exec taskset --cpu-list 1 python3 - "$1/api.sock" "$2" "$asks" <<'PY'
import http.client, socket, sys, time

path, seconds, rate = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
connection = http.client.HTTPConnection("localhost")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(path)
questions = ["status", "volumes", "tenants", "metrics"]
began, asked = time.monotonic(), 0
while time.monotonic() < began + seconds:
    connection.request("GET", "/api/v1/" + questions[asked % len(questions)])
    answer = connection.getresponse()
    answer.read()
    if answer.status != 200:
        sys.exit(f"{questions[asked % len(questions)]} is answered {answer.status}")
    asked += 1
    time.sleep(max(0, began + asked / rate - time.monotonic()))
if asked < 0.9 * rate * seconds:
    sys.exit(f"{asked} questions in {seconds} s are too few")
PY
}

watch_it() {
    curl -sN --unix-socket target/api.sock -H 'Accept: text/event-stream' http://localhost/api/v1/events >/dev/null &
    pids+=($!)
    "$binary" iostat 1 --state target >/dev/null &
    pids+=($!)
    while curl -s --unix-socket target/api.sock http://localhost/api/v1/metrics >/dev/null; do
        sleep 15
    done &
    pids+=($!)
    sleep 1
}

# Processor time of the target in percent of one processor.
busy() {
    local before after
    before=$(ticks)
    sleep "$idle"
    after=$(ticks)
    awk -v t=$((after - before)) -v hz="$(getconf CLK_TCK)" -v s="$idle" 'BEGIN {printf "%.2f", 100 * t / hz / s}'
}

ticks() {
    awk '{print $14 + $15}' "/proc/$pid_target/stat"
}

# quartile N: of the numbers that come.
quartile() {
    sort -g | awk -v n="$1" '{all[NR] = $1} END {print all[int((NR - 1) * n / 4) + 1]}'
}

row() {
    paste "p99.$2" p99.nobody | awk '{print $1 / $2}' >ratios
    printf '| %s | %.1f | %.1f | %.1f to %.1f | %.3f | %.3f to %.3f |\n' "$1" "$(quartile 2 <"p50.$2")" \
        "$(quartile 2 <"p99.$2")" "$(quartile 1 <"p99.$2")" "$(quartile 3 <"p99.$2")" \
        "$(quartile 2 <ratios)" "$(quartile 1 <ratios)" "$(quartile 3 <ratios)"
}

clean_up() {
    local pid
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    rm -rf "$work"
}

main

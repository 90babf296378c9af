#!/bin/sh
# What an I/O costs the target, in figures that do not depend on how busy the machine is: user instructions by
# callgrind (the difference of two runs of different lengths over the difference of their I/Os; the target runs in
# one thread and does not poll, so waiting costs nothing) and system calls by strace. Prints a Markdown table.
#
#   bench/costs.sh            needs valgrind and strace, takes a few minutes
set -eu
cd "$(dirname "$0")/.."

port=${PORT:-4498}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

binary=$(cargo bench -p flashyard-engine --bench path --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"executable":"\([^"]*path-[^"]*\)".*/\1/p' | tail -n 1)
[ -x "$binary" ] || { echo "costs: the bench of flashyard-engine does not build; run cargo bench -p flashyard-engine --bench path --no-run" >&2; exit 1; }

# run KIND DEPTH COUNT COMMAND...: so many I/Os to a target that runs under COMMAND until its host has gone.
run() {
    kind=$1 depth=$2 count=$3
    shift 3
    "$@" "$binary" serve "$port" 0 >"$work/serve.log" 2>&1 &
    target=$!
    tries=0
    until timeout 240 "$binary" load "$port" "$kind" "$depth" "$count" >"$work/load.log" 2>&1; do
        tries=$((tries + 1))
        if [ $tries -ge 40 ]; then
            kill "$target" 2>/dev/null || :
            echo "costs: the target does not answer:" >&2
            cat "$work/serve.log" "$work/load.log" >&2
            exit 1
        fi
        sleep 0.25
    done
    wait "$target" || :
}

# Instructions of one run.
instructions() {
    run "$1" "$2" "$3" valgrind --tool=callgrind "--callgrind-out-file=$work/callgrind"
    sed -n 's/^\(totals\|summary\): \([0-9]*\).*/\2/p' "$work/callgrind" | head -n 1
}

# System calls of one run.
calls() {
    run "$1" "$2" "$3" strace -f -c -o "$work/strace"
    awk '$NF == "total" { print $4 }' "$work/strace" | head -n 1
}

echo "| load, null device | user instructions per I/O | system calls per I/O |"
echo "| --- | --- | --- |"
for load in "read 1 2000 12000" "read 32 20000 120000" "read 128 20000 120000" \
    "write 1 2000 12000" "write 32 20000 120000" "write 128 20000 120000"; do
    set -- $load
    few=$(instructions "$1" "$2" "$3")
    many=$(instructions "$1" "$2" "$4")
    cost=$(((many - few) / ($4 - $3)))
    few=$(calls "$1" "$2" "$3")
    many=$(calls "$1" "$2" "$4")
    rate=$(awk -v few="$few" -v many="$many" -v ios="$(($4 - $3))" 'BEGIN { printf "%.3f", (many - few) / ios }')
    echo "| 4 KiB $1, QD$2 | $cost | $rate |"
done

#!/bin/sh
# What an I/O costs the target, in figures that do not depend on how busy the machine is: user
# instructions by callgrind and system calls by strace, as the difference of two runs of different
# lengths over the difference of their I/Os. The target runs in one thread. Prints a Markdown table.
set -eu
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
usage: bench/costs.sh [OPTION VALUE]...

Needs valgrind and strace; takes a few minutes.

  --policy NAME   what is in front of the device: fifo (the default), fair, gimbal or caps
  --tenants N     tenants, each with a queue of its own that has QD commands in flight (default 1)
  --poll US       how long the target polls before it sleeps (default 0: not at all, so waiting
                  costs nothing). Empty polls are taken off, at QD1: a third run, in which the
                  target waits longer, says what one of them costs. Host and target then share a
                  processor, and the host goes first, so that there are few of them
  --loads LIST    of read:QD and write:QD, separated by spaces
                  (default "read:1 read:32 read:128 write:1 write:32 write:128")
  --bytes N       of an I/O (default 4096)
  --count N       I/Os of the short run at QD1; deeper queues do ten times as many, and the long
                  run does six times as many (default 2000)
  --binary FILE   the bench `path` of flashyard-tcp, if it is built already
TEXT
}

# fail TEXT: a usage that cannot be.
fail() {
    echo "costs: $1; see bench/costs.sh --help" >&2
    exit 2
}

# number OPTION VALUE LEAST: refuses what is no number.
number() {
    case $2 in
    '' | *[!0-9]*) fail "$1 wants a number, not '$2'" ;;
    esac
    [ "$2" -ge "$3" ] || fail "$1 has to be at least $3"
}

policy=fifo tenants=1 poll=0 bytes=4096 count=2000 binary=
loads="read:1 read:32 read:128 write:1 write:32 write:128"
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help) usage && exit 0 ;;
    --policy | --tenants | --poll | --loads | --bytes | --count | --binary)
        [ $# -ge 2 ] || fail "$1 needs a value"
        ;;
    *) fail "there is no option '$1'" ;;
    esac
    case $1 in
    --policy) policy=$2 ;;
    --tenants) number "$1" "$2" 1 && tenants=$2 ;;
    --poll) number "$1" "$2" 0 && poll=$2 ;;
    --loads) loads=$2 ;;
    --bytes) number "$1" "$2" 4096 && bytes=$2 ;;
    --count) number "$1" "$2" 100 && count=$2 ;;
    --binary) binary=$2 ;;
    esac
    shift 2
done
case $policy in
fifo | fair | gimbal | caps) ;;
*) fail "--policy is fifo, fair, gimbal or caps, not '$policy'" ;;
esac
[ $((bytes % 4096)) -eq 0 ] || fail "--bytes has to be a multiple of 4096"
[ -n "$loads" ] || fail "--loads is empty"
for load in $loads; do
    case $load in
    read:* | write:*) number "the depth of $load" "${load#*:}" 1 ;;
    *) fail "a load is read:QD or write:QD, not '$load'" ;;
    esac
done
for tool in valgrind strace; do
    command -v $tool >/dev/null || fail "$tool is not installed"
done

port=${PORT:-4498}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ -z "$binary" ]; then
    binary=$(cargo bench -p flashyard-tcp --bench path --no-run --message-format=json 2>/dev/null |
        sed -n 's/.*"executable":"\([^"]*path-[^"]*\)".*/\1/p' | tail -n 1)
fi
[ -x "$binary" ] || {
    echo "costs: the bench of flashyard-tcp does not build; run cargo bench -p flashyard-tcp --bench path --no-run" >&2
    exit 1
}

# The processor that the target chooses by itself, and a host that is before it there. Where that is
# not allowed, the same with more empty polls.
first=
if [ "$poll" -gt 0 ] && nice -n -20 taskset -c 0 true 2>/dev/null; then
    first="nice -n -20 taskset -c 0"
fi

# run KIND DEPTH COUNT PAUSE COMMAND...: so many I/Os to a target that runs under COMMAND until its
# host has gone.
run() {
    kind=$1 depth=$2 ios=$3 pause=$4
    shift 4
    "$@" "$binary" serve --port "$port" --poll "$poll" --policy "$policy" --tenants "$tenants" \
        >"$work/serve.log" 2>&1 &
    target=$!
    tries=0
    # shellcheck disable=SC2086 # it is several words, or none
    until timeout 240 $first "$binary" load --port "$port" --rw "$kind" --qd "$depth" --count "$ios" \
        --bytes "$bytes" --tenants "$tenants" --pause "$pause" >"$work/load.log" 2>&1; do
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

# Instructions of one run, and how often it called the kernel.
instructions() {
    run "$1" "$2" "$3" "$4" valgrind --tool=callgrind "--callgrind-out-file=$work/callgrind"
    awk '
        /^(totals|summary):/ { total = $2 }
        /^c?fn=/ {
            name = $0
            sub(/^c?fn=/, "", name)
            number = name
            sub(/ .*/, "", number)
            if (name ~ / /) names[number] = substr(name, length(number) + 2)
            if (/^cfn=/) called = names[number]
        }
        /^calls=/ && called ~ /^(syscall|(__)?(recv|recvmsg|sendmsg))$/ { sub(/^calls=/, "", $1); tries += $1 }
        END { print total, tries + 0 }
    ' "$work/callgrind"
}

# System calls of one run, without receives in vain.
calls() {
    run "$1" "$2" "$3" 0 strace -f -c -o "$work/strace"
    awk '
        $NF == "recvfrom" || $NF == "recvmsg" { empty += (NF == 6 ? $5 : 0) }
        $NF == "total" { print $4 - empty }
    ' "$work/strace" | head -n 1
}

echo "Policy $policy, tenants: $tenants, I/Os of $bytes bytes, polling for $poll us."
echo
echo "| load, null device | user instructions per I/O | system calls per I/O |"
echo "| --- | --- | --- |"
for load in $loads; do
    kind=${load%:*} depth=${load#*:}
    short=$count
    [ "$depth" -eq 1 ] || short=$((count * 10))
    [ "$bytes" -le 16384 ] || short=$count
    long=$((short * 6))
    few=$(instructions "$kind" "$depth" "$short" 0)
    many=$(instructions "$kind" "$depth" "$long" 0)
    slow="0 0"
    [ "$poll" -eq 0 ] || [ "$depth" -gt 1 ] || slow=$(instructions "$kind" "$depth" "$long" 50)
    few_calls=$(calls "$kind" "$depth" "$short")
    many_calls=$(calls "$kind" "$depth" "$long")
    # At QD1 what the kernel was called for beyond the system calls that strace has counted, which
    # are without receives in vain, was an empty poll; the slow run has more of those and does the
    # same otherwise.
    echo "$few $many $slow $few_calls $many_calls $short $long $kind $depth $bytes" | awk '
        {
            ios = $10 - $9
            cost = $5 > 0 && $6 > $4 ? ($5 - $3) / ($6 - $4) : 0
            calls = ($8 - $7) / ios
            polls = $12 == 1 && $5 > 0 ? ($4 - $2) / ios - calls : 0
            if (polls < 0) polls = 0
            printf "| %d KiB %s, QD%d | %.0f | %.3f |", $13 / 1024, $11, $12, \
                ($3 - $1) / ios - cost * polls, calls
            if (cost > 0) printf " (%.2f empty polls of %.0f taken off)", polls, cost
            print ""
        }'
done

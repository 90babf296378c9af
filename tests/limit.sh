#!/usr/bin/env bash
# Runs a program for cargo, and ends tests that hang: with their names and a failure, instead of never.
#
#   limit.sh PROGRAM [ARGUMENT...]
#
# .cargo/config.toml names it as the runner of every test of the workspace. A binary of tests of which no test has
# ended for FLASHYARD_TEST_SECONDS (600, more than 60) hangs; it is killed after twice that time at the latest. What is
# no test (`cargo run`, `cargo bench`) just runs.
set -u

seconds=${FLASHYARD_TEST_SECONDS:-600}
case $1 in
    */deps/*) ;;
    */rustdoctest*/*) exec timeout "$seconds" "$@" ;;
    *) exec "$@" ;;
esac
for argument; do
    [[ $argument != --bench ]] || exec "$@"
done

log=$(mktemp) || exit 1
# With job control, so that the tests do not inherit that they are deaf for Ctrl-C.
set -m
exec {out}> >(exec tee "$log")
copy=$!
"$@" >&"$out" &
tests=$!
exec {out}>&-

# Tests of which the binary says that they run for over 60 s, or that they have begun, and not how they ended.
hanging() {
    awk '/^test .* has been running for over / { late[$2] = 1 }
        /^test .* \.\.\. $/ { late[$2] = 1 }
        /^test .* \.\.\. ./ { delete late[$2] }
        END { for (name in late) print name }' "$log"
}

# Ends the tests when none of them has ended for so long, and leaves their names in `$log.hanging`. A process beside
# them, since `wait -n` misses a job that has ended before it is called.
watch() {
    local before=-1 now
    while sleep "$seconds"; do
        now=$(stat --format %s "$log") || return
        if [[ $now == "$before" ]]; then
            hanging >"$log.hanging"
            kill -KILL -- "-$tests"
            return
        fi
        before=$now
    done
}

watch >/dev/null 2>&1 &
watch=$!
# Bash then says nothing of its end.
disown "$watch"
trap 'kill -KILL -- "-$tests" "-$watch" 2>/dev/null; rm -f "$log" "$log.hanging"' EXIT
trap 'exit 130' INT TERM HUP

# Their end, and not that somebody has stopped them for a while.
wait -f "$tests"
status=$?
# What tests left running would keep the copy open.
kill -KILL -- "-$tests" "-$watch" 2>/dev/null
wait "$copy"
if [[ -e $log.hanging ]]; then
    mapfile -t names <"$log.hanging"
    printf '\n'
    printf 'test %s ... FAILED: it hangs\n' "${names[@]:-"(of unknown name: run without --quiet)"}"
    printf '\ntest result: FAILED. 0 passed; %d failed; hung: no test of %s has ended for %d s\n' \
        "${#names[@]}" "$1" "$seconds"
    status=101
fi
exit "$status"

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
trap 'kill -KILL -- "-$tests" 2>/dev/null; rm -f "$log"' EXIT
trap 'exit 130' INT TERM HUP

# Tests of which the binary says that they run for over 60 s, or that they have begun, and not how they ended.
hanging() {
    awk '/^test .* has been running for over / { late[$2] = 1 }
        /^test .* \.\.\. $/ { late[$2] = 1 }
        /^test .* \.\.\. ./ { delete late[$2] }
        END { for (name in late) print name }' "$log"
}

while :; do
    before=$(stat --format %s "$log")
    sleep "$seconds" &
    clock=$!
    wait -n "$tests" "$clock"
    if ! kill -0 "$tests" 2>/dev/null; then
        kill "$clock" && wait "$clock" 2>/dev/null
        break
    fi
    if [[ $(stat --format %s "$log") == "$before" ]]; then
        mapfile -t names < <(hanging)
        printf '\n'
        printf 'test %s ... FAILED: it hangs\n' "${names[@]:-"(of unknown name: run without --quiet)"}"
        printf '\ntest result: FAILED. 0 passed; %d failed; hung: no test of %s has ended for %d s\n' \
            "${#names[@]}" "$1" "$seconds"
        exit 101
    fi
done
wait "$tests"
status=$?
# What tests left running would keep the copy open.
kill -KILL -- "-$tests" 2>/dev/null
wait "$copy"
exit "$status"

#!/usr/bin/env bash
# Guests that do anything by chance, by seed: registers, doorbells, commands and lists, mappings and interrupts, while a
# second thread writes over their memory; the same with queues on three cores in simulated worlds, and lives of busy
# guests there. `make soak-functions` runs it, `make test` does not.
#
#   soak-functions.sh [--steps N] [--profile dev|release] [--full]
#
# The steps are of each kind of guest, and busy ones are changed a fiftieth as often; rounded up to whole rounds; --full takes 1,000,000.
set -uo pipefail

steps=60000 profile=release
# What one round of a test does.
steps_each=6000 spread_each=3000 lives_each=300
failed=0 log=

usage() {
    sed -n '6,8s/^# \{0,1\}//p' "$0"
    exit 2
}

while (($#)); do
    case $1 in
    --full) steps=1000000 && shift && continue ;;
    --steps | --profile) (($# > 1)) || usage ;;
    *) usage ;;
    esac
    declare "${1#--}=$2"
    shift 2
done

main() {
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    run "$steps_each" guest a_guest_that_does_anything_at_random
    echo "$(sum) steps on one core"
    run "$spread_each" cores a_guest_that_does_anything_at_random
    echo "$(sum) steps with queues on three cores"
    run "$lives_each" cores lives_of_guests "$((steps / 50))"
    echo "$(sum) resets and changes under busy guests on three cores"
    ((failed == 0)) && echo "the soak of functions passed"
    ((failed == 0))
}

# So many rounds of a test that they make what is wanted.
run() {
    local each=$1 test=$2 name=$3 wanted=${4:-$steps}
    : >"$log"
    FLASHYARD_ROUNDS=$(((wanted + each - 1) / each)) FLASHYARD_TEST_SECONDS=$((24 * 3600)) cargo test --quiet --locked \
        --profile "$profile" --package flashyard-vfio --test "$test" -- --nocapture "$name" >"$log" 2>&1 ||
        fail "$test: $(grep -m1 -A2 panicked "$log" || tail -n 4 "$log")"
}

# Adds up what lines of the log say that begin with "steps".
sum() {
    awk '$1 == "steps" {sum += $2} END {print sum + 0}' "$log"
}

fail() {
    echo "FAILED $1"
    failed=1
}

cd "$(dirname "$0")/.." || exit 1
main

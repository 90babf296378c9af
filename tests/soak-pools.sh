#!/usr/bin/env bash
# Mapped pools, encrypted and compressed ones among them: cut in simulated worlds on a disk, on mirrors and on parity,
# with a member that lies in silence; and a target on the real machine that is killed. `make soak-pools` runs it,
# `make test` does not.
#
#   soak-pools.sh [--cuts N] [--faults N] [--kills N] [--profile dev|release] [--full]
#
# Every cut is followed by one in its recovery, and a loss of members after that where there are any. A quarter of them
# are of pools on a disk. The counts are rounded up to whole rounds; what was really done is said at the end. --full takes
# 100,000 cuts, 1,000,000 faults and 1,000 kills.
set -uo pipefail
# Memory that is given back is taken again at once: it stays with the process.
export MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=$((32 << 20)) MALLOC_TRIM_THRESHOLD_=$((1 << 30))

cuts=48 faults=20000 kills=20 profile=release
# What one round of the tests does; of faults, and of cuts of a pool on a disk, it is about that.
cuts_each=48 disk_cuts_each=220 faults_each=2000 kills_each=20
failed=0 log=

usage() {
    sed -n '6,10s/^# \{0,1\}//p' "$0"
    exit 2
}

while (($#)); do
    case $1 in
    --full) cuts=100000 faults=1000000 kills=1000 && shift && continue ;;
    --cuts | --faults | --kills | --profile) (($# > 1)) || usage ;;
    *) usage ;;
    esac
    declare "${1#--}=$2"
    shift 2
done

main() {
    log=$(mktemp)
    trap 'rm -f "$log"' EXIT
    local on_disk=$((cuts / 4)) on_disks
    run "$((cuts - on_disk))" "$cuts_each" flashyard-block mapped_array_power_cut ""
    on_disks=$(sum cut)
    run "$on_disk" "$disk_cuts_each" flashyard-block mapped_power_cut ""
    echo "$((on_disks + $(sum cut))) cuts, $on_disks of them of pools on mirrors and parity"
    run "$faults" "$faults_each" flashyard-block mapped_mirror one_member_lies
    local injected
    injected=$(sum injected)
    run "$faults" "$faults_each" flashyard-block mapped_parity one_member_lies
    echo "$((injected + $(sum injected))) faults injected"
    run "$kills" "$kills_each" flashyard-app command_line every_acknowledged_change_survives
    ((failed == 0)) && echo "the soak of pools passed: no wrong byte was read, and nothing acknowledged was lost"
    ((failed == 0))
}

# So many rounds of a test that they make what is wanted: one test for hours, which is no sign that it hangs.
run() {
    local wanted=$1 each=$2 package=$3 test=$4 name=$5
    : >"$log"
    ((wanted > 0)) || return
    FLASHYARD_ROUNDS=$(((wanted + each - 1) / each)) FLASHYARD_TEST_SECONDS=$((24 * 3600)) cargo test --quiet --locked \
        --profile "$profile" --package "$package" --test "$test" -- --nocapture "$name" >"$log" 2>&1 || fail "$test: $(why)"
}

# Why the tests failed that the log is of: what the first panic said, else how they ended.
why() {
    grep -m1 -A2 panicked "$log" || tail -n 4 "$log"
}

# Adds up what lines of the log say that begin with a word.
sum() {
    # Dots of tests that have passed may stand before it.
    awk -v word="$1" '{sub(/^\.+/, "")} $1 == word {sum += $2} END {print sum + 0}' "$log"
}

fail() {
    echo "FAILED $1"
    failed=1
}

cd "$(dirname "$0")/.." || exit 1
main

#!/usr/bin/env bash
# Every test there is, one after the other, and how many passed.
#
#   all.sh [--quick]      without the Linux host, which takes minutes
#
# A part that fails does not keep the next from running; a test that hangs is ended with its name (limit.sh). Exit status
# 1 when anything failed.
set -uo pipefail

passed=0 failed=0 skipped=0
quick=${1:-}

main() {
    tests/install.sh "$quick" || exit 1
    mkdir -p "$log"
    check "tidy" cargo xtask tidy
    check "format" cargo fmt --all --check
    check "lints" cargo clippy --workspace --all-targets --locked -- -D warnings
    cargo_tests
    packaging
    monitoring
    api
    dashboard
    if [[ $quick != --quick ]]; then
        linux_host
    fi
    printf '\n'
    ((skipped == 0)) || echo "$skipped skipped"
    echo "$passed passed, $failed failed"
    ((failed == 0))
}

# A command that passes or fails as a whole.
check() {
    local name=$1
    headline "$name"
    if "${@:2}"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $name"
    fi
}

# Each line of a test binary ends in "N passed; N failed; N ignored ...".
cargo_tests() {
    local status ok bad ignored
    headline "cargo test"
    cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log/cargo-test"
    status=$?
    read -r ok bad ignored < <(awk '/^test result:/ {ok += $4; bad += $6; ignored += $8}
        END {print ok + 0, bad + 0, ignored + 0}' "$log/cargo-test")
    # It may also fail without a test that did: by not compiling, or by dying.
    if ((status != 0 && bad == 0)); then
        bad=1
    fi
    add "cargo test" "$ok" "$bad" "$ignored"
}

packaging() {
    headline "packaging"
    tests/packaging.sh 2>&1 | tee "$log/packaging"
    count packaging
}

monitoring() {
    headline "monitoring"
    tests/monitoring.sh 2>&1 | tee "$log/monitoring"
    count monitoring
}

api() {
    headline "REST API"
    tests/api/run.sh 2>&1 | tee "$log/api"
    count api
}

dashboard() {
    headline "dashboard in a browser"
    tests/dashboard/run.sh 2>&1 | tee "$log/dashboard"
    count dashboard
}

linux_host() {
    headline "Linux host, and virtual machines"
    # The program that the other tests have built: its assertions hold with real hosts, too. A release build takes 12
    # minutes of these machines; the scripts test one if nothing is given.
    local script binary=${CARGO_TARGET_DIR:-target}/debug/flashyard
    : >"$log/linux-host"
    for script in run zoned functions; do
        tests/linux-host/$script.sh "$binary" 2>&1 | tee -a "$log/linux-host"
    done
    count linux-host
}

# Counts what a script has printed: "ok NAME", "FAILED NAME: why" or "skipped NAME: why" for each of its parts.
count() {
    local ok bad ignored
    read -r ok bad ignored < <(awk '/^ok / {ok++} /^FAILED / {bad++} /^skipped / {ignored++}
        END {print ok + 0, bad + 0, ignored + 0}' "$log/$1")
    if ((ok + bad + ignored == 0)); then
        bad=1
    fi
    add "$1" "$ok" "$bad" "$ignored"
}

headline() {
    printf '\n== %s\n' "$1"
}

# The counts of one part.
add() {
    local also=
    (($4 == 0)) || also=", $4 skipped"
    echo "$1: $2 passed, $3 failed$also"
    passed=$((passed + $2)) failed=$((failed + $3)) skipped=$((skipped + $4))
}

cd "$(dirname "$0")/.." || exit 1
log=${CARGO_TARGET_DIR:-target}/test-log
main

#!/usr/bin/env bash
# What the program gives to Prometheus: promtool checks and tests every alert rule, and a Prometheus of its own takes the
# figures of a target, loads the rules, and finds an alert that is made true. All on loopback, on ports that are free.
# Prints "ok NAME", "FAILED NAME" behind what went wrong, or "skipped NAME: why".
#
#   monitoring.sh      uses the program that the tests have built (target/debug)
#
# Prometheus is that of Debian, unpacked into a folder: nothing is installed, and no service is started.
set -uo pipefail

plan=(rules_are_understood every_rule_fires_and_is_silent prometheus_takes_figures_and_finds_alerts
    prometheus_takes_native_histograms)
[[ -z ${ONLY:-} ]] || read -r -a plan <<<"$ONLY"

main() {
    local part
    target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
    built=$target/debug/flashyard
    [[ -x $built ]] || cargo build --locked --package flashyard-app || exit 1
    tools=$target/monitoring-tools
    mkdir -p "$target/tmp" "$tools"
    scratch=$(mktemp -d "$target/tmp/monitoring.XXXXXX") || exit 1
    trap clean_up EXIT
    trap 'exit 130' INT TERM
    if ! get_prometheus; then
        for part in "${plan[@]}"; do
            echo "skipped $part: there is no prometheus, and apt-get cannot download its package"
        done
        return
    fi
    "$built" generate alerts >"$scratch/flashyard.rules.yml"
    for part in "${plan[@]}"; do
        if (set -e && "$part") >"$scratch/log" 2>&1; then
            echo "ok $part"
        else
            cat "$scratch/log" && echo "FAILED $part"
        fi
    done
}

# That of this machine, or of the package.
get_prometheus() {
    PATH=$tools/root/usr/bin:$PATH
    command -v promtool prometheus && return
    (cd "$tools" && { apt-get -qq download prometheus || { apt-get -qq update && apt-get -qq download prometheus; }; } &&
        dpkg-deb --extract prometheus_*.deb root)
    command -v promtool prometheus
} >/dev/null 2>&1

rules_are_understood() {
    promtool check rules "$scratch/flashyard.rules.yml"
}

# The codes by their table in the documentation, and the others by a file.
every_rule_fires_and_is_silent() {
    local code state severity tested rules
    cp tests/monitoring/rules.test.yml "$scratch"
    printf 'rule_files: [flashyard.rules.yml]\nevaluation_interval: 1m\ntests:\n' >"$scratch/codes.test.yml"
    # shellcheck disable=SC2016 # in the table a code stands between backquotes
    while read -r code state; do
        case $code in
            GUARANTEE_MISSED | LATENCY_TARGET_MISSED) continue ;;
            GUARANTEE_UNVERIFIED | GUARANTEE_IGNORED | EMULATION_LATE | FAULTS_INJECTED) severity=info ;;
            *) severity=warning ;;
        esac
        [[ $state != failed ]] || severity=critical
        test_of_code no "[{ labels: 'ALERTS{alertname=\"$(name_of "$code")\",alertstate=\"firing\",code=\"$code\",instance=\"a\",job=\"flashyard\",muted=\"no\",severity=\"$severity\"}', value: 1 }]"
        test_of_code yes "[]"
    done < <(sed -n 's/^| `\([A-Z_]*\)` | \(failed\|degraded\) |.*/\1 \2/p' docs/monitoring.md) >>"$scratch/codes.test.yml"
    promtool test rules "$scratch/rules.test.yml" "$scratch/codes.test.yml"
    tested=$(cat "$scratch"/*.test.yml | grep -o 'Flashyard[A-Za-z]*' | sort -u)
    rules=$(sed -n 's/^ *- alert: //p' "$scratch/flashyard.rules.yml" | sort)
    diff <(echo "$tested") <(echo "$rules")
}

# A problem of $code that is muted or not, and what it is to lead to.
test_of_code() {
    cat <<END
  - name: $code, muted $1
    interval: 1m
    input_series:
      - { series: 'up{job="flashyard",instance="a"}', values: '1+0x20' }
      - { series: 'flashyard_build_info{job="flashyard",instance="a",version="1"}', values: '1+0x20' }
      - { series: 'flashyard_health_problems{job="flashyard",instance="a",code="$code",muted="$1"}', values: '2+0x20' }
    promql_expr_test:
      - { expr: 'ALERTS{alertstate="firing"}', eval_time: 0m, exp_samples: [] }
      - { expr: 'ALERTS{alertstate="firing"}', eval_time: 15m, exp_samples: $2 }
END
}

# POOL_FULL as FlashyardPoolFull.
name_of() {
    echo "$1" | tr '[:upper:]' '[:lower:]' | sed 's/\(^\|_\)\([a-z]\)/\u\2/g; s/^/Flashyard/'
}

prometheus_takes_figures_and_finds_alerts() {
    begin
    truncate --size 64M d0.img d1.img
    start_target 127.0.0.1:0
    make_mirror
    start_prometheus
    wait_for answers 'up{job="flashyard"} == 1'
    wait_for answers 'flashyard_build_info'
    # Of each form: a counter, a figure of a volume, and the end of the page was found.
    wait_for answers 'flashyard_io_operations_total{tenant="db",op="read"}'
    wait_for answers 'flashyard_volume_size_bytes{volume="v"} == 16777216'
    # What was looked at before the first scrape is over; nothing is wrong with a target that is well.
    wait_for gone 'ALERTS{alertname!="FlashyardGuaranteeUnverified"}'
    # It dies, and comes back without a member of its mirror.
    kill -KILL "$(cat target.pid)"
    wait_for answers 'ALERTS{alertname="FlashyardDown"}'
    mv d1.img away.img
    start_target "$api"
    flashyard pool start safe --degraded
    wait_for answers 'ALERTS{alertname="FlashyardUnsafeShutdown",alertstate="firing"}'
    wait_for answers 'ALERTS{alertname="FlashyardRedundancyLost",severity="warning"}'
    wait_for gone 'ALERTS{alertname="FlashyardDown"}'
    # A wrong token is refused, and that is no figure.
    echo no-token >token
    wait_for answers 'up{job="flashyard"} == 0'
}

# It asks for protobuf then, and what it finds is what it reads of that.
prometheus_takes_native_histograms() {
    local nvme times='flashyard_io_duration_seconds{tenant="db",device="m",op="read"}'
    begin
    start_target 127.0.0.1:0
    flashyard device create m --kind memory --size 64MiB
    flashyard tenant create db --host '*'
    flashyard volume create v --device m --tenant db
    nvme=$(sed -n 's|^listening on \(.*\) (nvme-tcp).*|\1|p' target.log)
    "$built" perf --connect "$nvme" --subnqn nqn.2026-11.dev.flashyard:db --rw randread --qd 1 --seconds 600 >perf.log 2>&1 &
    echo $! >perf.pid
    start_prometheus --enable-feature=native-histograms
    wait_for answers "histogram_count($times) > 100"
    wait_for answers "histogram_quantile(0.5, rate(${times}[10s])) > 0"
    # A quantile and the mean are of the same times, and no read of memory takes a minute.
    wait_for answers "histogram_quantile(1, rate(${times}[10s])) < 60"
    answers "histogram_sum($times) / histogram_count($times) < 60"
    # Counters and figures come the same way; of text, classic buckets would be there.
    answers 'flashyard_io_operations_total{tenant="db",op="read"} > 100'
    answers 'flashyard_volume_size_bytes{volume="v"} == 67108864'
    gone 'flashyard_io_duration_seconds_bucket'
}

# What ran for another part ends, and nothing is left of it.
begin() {
    local file
    cd "$scratch"
    for file in *.pid; do
        [[ ! -e $file ]] || kill -KILL "$(cat "$file")" 2>/dev/null || true
    done
    rm -rf -- *.pid state data
    (umask 077 && printf 'read %s\n' "$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')" >tokens)
    cut -d ' ' -f 2 tokens >token
}

# It takes the figures of the target that was started last.
start_prometheus() {
    api=$(sed -n 's|^listening on \(.*\) (API)|\1|p' target.log)
    write_configuration
    promtool check config prometheus.yml
    prometheus --config.file=prometheus.yml --storage.tsdb.path=data --web.listen-address=127.0.0.1:0 "$@" >prometheus.log 2>&1 &
    echo $! >prometheus.pid
    wait_for grep -q 'msg="Listening on"' prometheus.log
    at=http://$(sed -n 's/.*msg="Listening on" address=//p' prometheus.log | head -n 1)
}

flashyard() {
    "$built" "$@" --state state
}

start_target() {
    rm -f target.log
    "$built" serve --state state --listen 127.0.0.1:0 --api "$1" --api-tokens tokens >target.log 2>&1 &
    echo $! >target.pid
    wait_for grep -qs '(API)$' target.log
}

make_mirror() {
    flashyard device create d0 --kind file --path d0.img --size 64MiB
    flashyard device create d1 --kind file --path d1.img --size 64MiB
    flashyard pool create safe --devices d0,d1 --redundancy mirror
    flashyard tenant create db --host '*'
    flashyard volume create v --pool safe --size 16MiB --tenant db
}

write_configuration() {
    cat >prometheus.yml <<END
global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: [flashyard.rules.yml]
scrape_configs:
  - job_name: flashyard
    metrics_path: /api/v1/metrics
    authorization: { credentials_file: token }
    static_configs: [{ targets: ["$api"] }]
END
}

# Whether Prometheus has an answer to a question.
answers() {
    [[ -n $(promtool query instant "$at" "$1") ]]
}

gone() {
    ! answers "$1"
}

# Until a command succeeds; a machine may be slow, but not for a minute and a half.
wait_for() {
    local tries
    for ((tries = 0; tries < 450; tries++)); do
        ! "$@" || return 0
        sleep 0.2
    done
    echo "never: $*"
    tail -n 20 ./*.log
    return 1
}

clean_up() {
    local file
    for file in "$scratch"/*.pid; do
        [[ ! -e $file ]] || kill -KILL "$(cat "$file")" 2>/dev/null
    done
    rm -rf "$scratch"
}

cd "$(dirname "$0")/.." || exit 1
main

#!/bin/bash
# Runs the scenarios of one guest in order and tells of each "ok NAME" or "FAILED NAME: why". Where connecting
# fails there is no sense in trying the rest.
# shellcheck source=lib.sh
. /test/lib.sh

main() {
    local name
    if is_fabrics; then
        echo "$HOST_NQN" >/etc/nvme/hostnqn
        echo "$HOST_ID" >/etc/nvme/hostid
    else
        # It may have been reset in the middle of its scenarios.
        wait_for 20 has_control
        SCENARIOS=$(host plan "$NUMBER")
    fi
    for name in $SCENARIOS; do
        run "$name" || [[ $name != *connect* && $name != *detect* ]] || return
    done
}

run() {
    local name=$1 began=$SECONDS limit status
    limit=$(limit_of "$name")
    : >/tmp/why
    timeout -k 5 "$limit" bash /test/scenarios.sh "$name" >/tmp/log 2>&1
    status=$?
    if ((status == 0)); then
        echo "ok $name ($((SECONDS - began)) s)"
        if [[ -n ${SHOW:-} ]]; then
            sed 's/^/    | /' /tmp/log
        else
            sed -n 's/^figure: /    | /p' /tmp/log
        fi
        return
    fi
    echo "FAILED $name: $(why "$status" "$limit")"
    tail -n 25 /tmp/log | sed 's/^/    | /'
    dmesg | tail -n 8 | sed 's/^/    # /'
    return 1
}

# Longest a scenario may take, in seconds; emulation under load is slow. One accompanies all the others, one waits for them.
limit_of() {
    case $1 in
        two_io | target_restarted | guide) echo 540 ;;
        *) echo 150 ;;
    esac
}

why() {
    case $1 in
        124 | 137) echo "not done after $2 s" ;;
        *) head -n 1 /tmp/why ;;
    esac
}

main

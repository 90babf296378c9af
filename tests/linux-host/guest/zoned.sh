#!/bin/bash
# What the target must be able to do on a zoned drive: one function each, run as `scenarios.sh NAME`. The program runs in
# here, on a drive with zones, of which 14 of 128 may be partly written, beside one without. Each scenario goes on where the
# one before has stopped.
set -Eeuo pipefail
# shellcheck source=lib.sh
. /test/lib.sh

data_mib=24

# The drive that says this of its zones. Which of them is found first, and named so, is a matter of chance.
drive() {
    local queue
    for queue in /sys/block/nvme0n*/queue; do
        if [[ $(cat "$queue/zoned") == "$1" ]]; then
            queue=${queue%/queue}
            echo "/dev/${queue##*/}"
        fi
    done
}

has_drive() {
    [[ -b $(drive "$1") ]]
}

# The program with its own libraries.
flashyard() {
    /test/lib/ld-linux-x86-64.so.2 --library-path /test/lib /test/flashyard.bin "$@"
}

cli() {
    flashyard "$@" --state /tmp/state
}

start_target() {
    cat >/tmp/target.toml <<TOML
[target]
listen = ["127.0.0.1:$port"]
nqn_prefix = "$PREFIX"

[[tenant]]
name = "alpha"
hosts = ["*"]

[[tenant]]
name = "beta"
hosts = ["*"]
TOML
    /test/lib/ld-linux-x86-64.so.2 --library-path /test/lib /test/flashyard.bin serve --config /tmp/target.toml \
        --state /tmp/state >>/tmp/target.log 2>&1 </dev/null &
    echo $! >/tmp/target.pid
    wait_for 30 cli device list || fail "the target did not start: $(tail -n 1 /tmp/target.log)"
}

end_target() {
    kill "-$1" "$(cat /tmp/target.pid)"
    wait_for 20 gone "$(cat /tmp/target.pid)"
}

gone() {
    ! grep -q '^State:\s[^Z]' "/proc/$1/status" 2>/dev/null
}

# Something must be refused for a reason: refused REASON COMMAND...
refused() {
    local reason=$1 message
    shift
    ! message=$(cli "$@" 2>&1) || fail "not refused: $*"
    [[ $message == *"$reason"* ]] || fail "refused for another reason: $message"
}

# The drive must be sound, looked at where it lies.
sound() {
    local message
    message=$(flashyard check "$(drive host-managed)" 2>&1) || fail "not sound: $message"
    [[ $message == *"partition one: 2 units"* ]] || fail "what is there is not shown: $message"
}

# It must not be looked at for a reason.
unchecked() {
    local message
    ! message=$(flashyard check "$(drive host-managed)" 2>&1) || fail "it can be checked: $message"
    [[ $message == *"$1"* ]] || fail "not checked for another reason: $message"
}

online() {
    [[ $(cli "$1" show "$2" --json | jq -r .state) == online ]] || fail "$1 $2: $(cli "$1" show "$2" --json)"
}

data() {
    device alpha $data_mib
}

refuse_others() {
    local zoned
    modprobe nvme
    wait_for 30 has_drive host-managed
    wait_for 30 has_drive none
    zoned=$(drive host-managed)
    [[ $(cat "/sys/block/${zoned##*/}/queue/max_active_zones") == 14 ]] || fail "any number of its zones may be active"
    start_target
    refused "has no zones" device create bad --kind zoned --path "$(drive none)"
    refused "is a regular file" device create bad --kind zoned --path /tmp/target.toml
    # What somebody else has written.
    dd if=/dev/urandom of="$zoned" bs=64k count=2 oflag=direct status=none
    refused "blkzone reset" device create bad --kind zoned --path "$zoned"
    unchecked "holds something else"
    blkzone reset "$zoned"
    unchecked "nothing was ever on it"
}

serve_zones() {
    cli device create zns --kind zoned --path "$(drive host-managed)" --units 8
    refused "partition create" pool create bad --device zns
    cli partition create one --device zns --count 2
    cli partition create two --device zns --count 1
    refused "partitions can have 4 units in all" partition grow two --count 2
    cli pool create fast --device one
    cli volume create data --pool fast --size ${data_mib}MiB --tenant alpha
    cli volume create whole --device two --tenant beta
    unchecked "another program uses it"
    connect alpha
    connect beta
    data
    [[ $(namespaces beta | wc -l) == 1 ]] || fail "the other tenant has no volume"
}

fio_verify_zones() {
    fio_verify "$(data)" --size=${data_mib}M --io_size=12M --bsrange=4k-128k
    head -c 8M /dev/urandom >/tmp/theirs
    dd if=/tmp/theirs of="$(namespaces beta | awk '{print $1}')" bs=256k oflag=direct conv=fsync status=none
}

# More than the flash holds: zones have to be collected and reset.
overwrite_zones() {
    local round erased
    for round in 1 2 3 4; do
        fio --name=fill --filename="$(data)" --direct=1 --ioengine=libaio --iodepth=4 --rw=randwrite --bs=128k \
            --size=${data_mib}M --randseed="$round" --minimal >/dev/null
    done
    fio_verify "$(data)" --size=${data_mib}M --io_size=4M --bs=16k
    erased=$(cli partition show one --json | jq -r .wear)
    [[ ${erased#*-} -gt 0 ]] || fail "no zone was ever erased: wear is $erased"
}

# The target dies twice while fio writes; fio must not notice, and every block must be what was written last. What is in
# the write buffer dies with it, so each write asks to be durable.
kill_under_io() {
    fio --name=restart --filename="$(data)" --direct=1 --sync=1 --ioengine=libaio --iodepth=8 --rw=randwrite --bs=16k \
        --size=8M --rate_iops=,30 --verify=crc32c --verify_fatal=1 --do_verify=1 --minimal >/tmp/fio 2>&1 &
    local fio=$!
    sleep 4
    end_target KILL
    sound
    start_target
    sleep 5
    end_target KILL
    start_target
    online partition one
    wait $fio || fail "fio: $(tail -n 1 /tmp/fio | cut -c1-300)"
    wait_for 30 is_live alpha
}

stop_and_start() {
    head -c 4M /dev/urandom >/tmp/ours
    # Not flushed: a stop in good order does that.
    dd if=/tmp/ours of="$(data)" bs=256k oflag=direct status=none
    end_target TERM
    sound
    start_target
    online device zns
    wait_for 30 is_live alpha
    cmp <(part "$(data)" 0 4096) /tmp/ours
}

neighbour_untouched() {
    wait_for 30 is_live beta
    cmp <(part "$(namespaces beta | awk '{print $1}')" 0 8192) /tmp/theirs
    disconnect beta
    disconnect alpha
    cli volume delete whole --yes
    cli partition delete two --yes
    cli partition create three --device zns --count 1
    [[ $(cli partition show three --json | jq .bytes_written) == 0 ]] || fail "a new partition is not new"
    end_target TERM
}

kernel_log() {
    ! grep -E 'panicked' /tmp/target.log || fail "the target panicked"
    ! dmesg | grep -E 'BUG:|WARNING:|Call Trace|blocked for more than|critical (medium|target) error' ||
        fail "the kernel complained"
}

guide() {
    bash /test/guide.sh
}

# The reason for a failure that no `fail` gave a reason for. Functions above hand failures on by `set -e`.
trap '[[ -s /tmp/why ]] || echo "line $LINENO: $BASH_COMMAND" >/tmp/why' ERR
"$1"

#!/bin/bash
# What an unmodified Linux host must be able to do: one function each, run as `scenarios.sh NAME`.
# The volumes are described in run.sh; each has a size of its own, by which it is found here.
set -Eeuo pipefail
# shellcheck source=lib.sh
. /test/lib.sh
# shellcheck source=functions.sh
. /test/functions.sh

discover() {
    local where
    for where in 4420 8009; do
        nvme discover -t tcp -a "$ADDRESS" -s "$where" -o json >/tmp/log.json
        expect /tmp/log.json ".records | map(select(.subnqn == \"$(subsystem alpha)\" and .subtype == \"nvme subsystem\"))
            | any(.traddr == \"$ADDRESS\" and .trsvcid == (\"4420\", \"$where\") and .trtype == \"tcp\" and .adrfam == \"ipv4\")"
        # Names of others are nobody's business.
        expect /tmp/log.json ".records | all(.subnqn != \"$(subsystem beta)\")"
    done
}

connect_alpha() {
    connect alpha
    device alpha 256
    device alpha 128
}

identify() {
    local controller size device
    ensure_connected alpha
    controller=/dev/$(controllers alpha)
    nvme id-ctrl "$controller" -o json >/tmp/ctrl.json
    expect /tmp/ctrl.json ".subnqn == \"$(subsystem alpha)\" and .cntrltype == 1 and .ver >= 66560"
    # Entry sizes of 64 and 16 bytes, one in-capsule unit more than a command, keep-alive, enough namespaces.
    expect /tmp/ctrl.json '.sqes == 102 and .cqes == 68 and .ioccsz > 4 and .iorcsz == 1 and .kas > 0 and .nn >= 2'
    # Compare, Dataset Management and Write Zeroes; fused Compare and Write; news of namespaces.
    expect_bits /tmp/ctrl.json oncs 0x0d
    expect_bits /tmp/ctrl.json fuses 0x01
    expect_bits /tmp/ctrl.json oaes 0x100
    for size in 256 128; do
        device=$(device alpha "$size")
        nvme id-ns "$device" -o json >/tmp/ns.json
        expect /tmp/ns.json "(.nguid | test(\"[1-9a-f]\")) and .ncap <= .nsze"
        nvme ns-descs "$device" -o json >/tmp/descs.json
        expect /tmp/descs.json '[.. | strings] | any(test("[0-9a-f]{8}-[0-9a-f]{4}-"))'
    done
    [[ $(blockdev --getss "$(device alpha 256)") == 4096 && $(blockdev --getss "$(device alpha 128)") == 512 ]] ||
        fail "block sizes are not 4096 and 512"
}

list() {
    local size
    ensure_connected alpha
    nvme list -o json >/tmp/list.json
    for size in 256 128; do
        expect /tmp/list.json "[.. | objects | select(.PhysicalSize? == $((size << 20)))] | length == 1"
    done
    nvme list-ns "/dev/$(controllers alpha)" -o json >/tmp/ns.json
    expect /tmp/ns.json '[.nsid_list[]] | length == 2'
    nvme list-subsys -o json | found "$(subsystem alpha)" || fail "list-subsys does not show the subsystem"
}

logs_and_features() {
    local controller log feature
    ensure_connected alpha
    controller=/dev/$(controllers alpha)
    for log in smart-log error-log fw-log changed-ns-list-log effects-log; do
        nvme "$log" "$controller" -o json >/tmp/log.json || fail "nvme $log failed"
        jq . /tmp/log.json >/dev/null || fail "nvme $log has no sensible answer"
    done
    # Number of queues, asynchronous events, keep-alive.
    for feature in 0x07 0x0b 0x0f; do
        nvme get-feature "$controller" -f "$feature" || fail "feature $feature"
    done
    statistics_log "$controller"
    # What nobody knows is refused, and the controller lives on.
    ! nvme get-log "$controller" --log-id=0xc5 --log-len=512 || fail "log C5h exists"
    ! nvme get-feature "$controller" -f 0xd5 || fail "feature D5h exists"
    ! nvme admin-passthru "$controller" --opcode=0xc7 || fail "opcode C7h exists"
    is_live alpha
}

fio_4k() {
    ensure_connected alpha
    fio_verify "$(data_device)" --size=8M --bs=4k --iodepth=32
    fio_verify "$(data_device)" --size=16M --offset=32M --bsrange=4k-256k
}

fio_512() {
    ensure_connected alpha
    fio_verify "$(device alpha 128)" --size=512k --bs=512
    fio_verify "$(device alpha 128)" --size=6M --offset=16M --bsrange=512-64k
}

# Larger than any transfer: the host divides it.
fio_large() {
    ensure_connected alpha
    fio_verify "$(data_device)" --size=32M --offset=64M --bs=4M --iodepth=4
}

ext4() {
    local device
    ensure_connected alpha
    device=$(data_device)
    mkfs.ext4 -q -F "$device"
    fill_and_check "$device"
}

discard() {
    local device
    ensure_connected alpha
    device=$(device alpha 128)
    head -c 4M /dev/urandom >/tmp/pattern
    dd if=/tmp/pattern of="$device" bs=64k oflag=direct status=none
    blkdiscard -o 1M -l 1M "$device"
    blkdiscard -z -o 2M -l 1M "$device"
    # The middle is gone, its neighbours are not.
    cmp <(part "$device" 1024 2048) <(zeroes 2048)
    cmp <(part "$device" 0 1024) <(head -c 1M /tmp/pattern)
    cmp <(part "$device" 3072 1024) <(tail -c 1M /tmp/pattern)
    # A single block and a range across the end of the hole.
    blkdiscard -z -o 512 -l 512 "$device"
    cmp <(dd if="$device" bs=512 count=3 iflag=direct status=none) \
        <(head -c 512 /tmp/pattern && head -c 512 /dev/zero && head -c 1536 /tmp/pattern | tail -c 512)
}

trim() {
    local device
    ensure_connected alpha
    device=$(data_device)
    mkfs.ext4 -q -F -E nodiscard "$device"
    mount -t ext4 "$device" /mnt
    head -c 24M /dev/urandom >/mnt/garbage
    head -c 4M /dev/urandom >/mnt/kept
    sha256sum /mnt/kept >/tmp/sums
    sync
    rm /mnt/garbage
    sync
    fstrim -v /mnt | tee /tmp/trimmed
    grep -qE '\([1-9][0-9]+ bytes\)' /tmp/trimmed || fail "fstrim gave nothing back"
    umount /mnt
    e2fsck -fn "$device"
    mount -t ext4 "$device" /mnt
    sha256sum -c /tmp/sums
    umount /mnt
}

# Commands that the block layer does not use, sent by hand.
commands() {
    local device blocks
    ensure_connected alpha
    device=$(device alpha 128)
    blocks=$((128 << 11))
    head -c 4096 /dev/urandom >/tmp/a
    head -c 4096 /dev/urandom >/tmp/b
    nvme write "$device" --start-block=8 --block-count=7 --data-size=4096 --data=/tmp/a --force-unit-access
    nvme flush "$device"
    nvme compare "$device" --start-block=8 --block-count=7 --data-size=4096 --data=/tmp/a
    ! nvme compare "$device" --start-block=8 --block-count=7 --data-size=4096 --data=/tmp/b || fail "compared equal"
    nvme read "$device" --start-block=8 --block-count=7 --data-size=4096 --data=/tmp/c --force-unit-access
    cmp /tmp/a /tmp/c
    nvme write-zeroes "$device" --start-block=8 --block-count=3
    nvme dsm "$device" --ad --slbs=12 --blocks=4
    nvme read "$device" --start-block=8 --block-count=7 --data-size=4096 --data=/tmp/c
    cmp -n 4096 /tmp/c /dev/zero
    # Past the end, and across it.
    ! nvme read "$device" --start-block=$blocks --block-count=0 --data-size=512 --data=/tmp/c || fail "read past the end"
    ! nvme write "$device" --start-block=$((blocks - 4)) --block-count=7 --data-size=4096 --data=/tmp/a ||
        fail "wrote across the end"
    is_live alpha
}

grow() {
    local device before
    ensure_connected alpha
    device=$(device alpha 256)
    mkfs.ext4 -q -F "$device"
    mount -t ext4 "$device" /mnt
    head -c 4M /dev/urandom >/mnt/kept
    sha256sum /mnt/kept >/tmp/sums
    sync
    before=$(disturbances)
    host cli volume set data --size 384MiB
    wait_for 20 has_device alpha 384
    [[ $(device alpha 384) == "$device" ]] || fail "the device has another name now"
    resize2fs "$device"
    (($(df -m /mnt | awk 'END {print $2}') > 300)) || fail "the file system did not grow"
    head -c 16M /dev/urandom >/mnt/more
    sha256sum -c /tmp/sums
    umount /mnt
    e2fsck -fn "$device"
    [[ $(disturbances) == "$before" ]] || fail "the host had to reconnect"
}

hot_add_and_remove() {
    local before
    ensure_connected alpha
    before=$(disturbances)
    host cli volume create extra --pool large --size 48MiB --tenant alpha
    wait_for 20 has_device alpha 48
    fio_verify "$(device alpha 48)" --size=4M --bs=16k
    host cli volume delete extra --yes
    wait_for 20 has_no_device alpha 48
    [[ $(namespaces alpha | wc -l) == 2 ]] || fail "other devices went with it"
    [[ $(disturbances) == "$before" ]] || fail "the host had to reconnect"
    fio_verify "$(device alpha 128)" --size=2M --bs=16k
}

# A tenant that reads one block at a time beside another's large reads, on a slow drive, while the policy changes under
# both: nothing fails and nobody has to reconnect. How long a read takes depends on the machine that is emulated; who goes
# first is judged in virtual time (crates/host/tests/sharing/urgent.rs).
priority() {
    local quick bulk before beside_fifo beside_fair
    ensure_connected alpha
    host cli device create drive --kind flash --profile dct983 --condition clean --size 1GiB --dilation 100 --policy fifo
    host cli pool create flash --device drive
    host cli tenant create gamma --host "$HOST_NQN"
    host cli volume create quick --pool flash --size 160MiB --tenant alpha
    host cli volume create bulk --pool flash --size 640MiB --tenant gamma
    connect gamma
    quick=$(device alpha 160)
    bulk=$(device gamma 640)
    before=$(disturbances)
    fio --name=bulk --filename="$bulk" --direct=1 --ioengine=libaio --iodepth=32 --rw=randread --bs=128k \
        --time_based --runtime=120 --minimal >/tmp/bulk 2>&1 &
    local load=$!
    sleep 3
    beside_fifo=$(mean_us "$quick")
    host cli device set drive --policy fair
    # Some trials, until it is known what reads cost.
    sleep 6
    beside_fair=$(mean_us "$quick")
    kill -INT $load
    wait $load || true
    echo "mean of a read: $beside_fifo us first in, first out, $beside_fair us behind the fair switch"
    ((beside_fifo > 0 && beside_fair > 0)) || fail "a policy under which nothing was read"
    [[ $(disturbances) == "$before" ]] || fail "the host had to reconnect"
    disconnect gamma
    for volume in quick bulk; do
        host cli volume delete "$volume" --yes
    done
    host cli pool delete flash
    host cli device delete drive
    host cli tenant delete gamma
    wait_for 20 has_no_device alpha 160
}

# What a read of 4 KiB takes in the mean, one at a time for some seconds, in microseconds.
mean_us() {
    fio --name=quick --filename="$1" --direct=1 --ioengine=libaio --iodepth=1 --rw=randread --bs=4k \
        --time_based --runtime=5 --output-format=json | jq '.jobs[0].read.clat_ns.mean / 1000 | floor'
}

reset() {
    ensure_connected alpha
    nvme reset "/dev/$(controllers alpha)"
    wait_for 30 is_live alpha
    fio_verify "$(data_device)" --size=4M --bs=16k
}

# The target dies twice while fio writes; fio must not notice, and every block must be what was written last.
restart_under_io() {
    local device before job
    ensure_connected alpha
    device=$(data_device)
    before=$(nvme ns-descs "$device")
    job=(fio --name=restart --filename="$device" --direct=1 --ioengine=libaio --iodepth=8 --rw=randwrite --bs=16k
        --size=40M --verify=crc32c --verify_fatal=1 --minimal)
    # It verifies in a run of its own, for which it keeps no list while it writes: with such a list fio itself was
    # seen to abort ("double free detected") while the path was gone.
    "${job[@]}" --rate_iops=,100 --do_verify=0 >/tmp/fio 2>&1 &
    sleep 5
    host kill
    sleep 3
    host start
    sleep 8
    host kill
    host start
    wait $! || fail "fio: $(tail -n 1 /tmp/fio | cut -c1-300)"
    "${job[@]}" --verify_only >/tmp/fio 2>&1 || fail "fio verifies: $(grep -m 1 verify /tmp/fio | cut -c1-300)"
    wait_for 30 is_live alpha
    # The rescan after a reconnect goes on when the controller is live.
    wait_for 30 has_namespaces alpha 2
    [[ $(nvme ns-descs "$device") == "$before" ]] || fail "the namespace is known by another name now"
}

# Another process takes over from the target while it is written to: this host is never refused, and what it wrote is there.
taken_over_under_io() {
    local device job round
    ensure_connected alpha
    device=$(data_device)
    job=(fio --name=takeover --filename="$device" --direct=1 --ioengine=libaio --iodepth=8 --rw=randwrite --bs=16k
        --size=40M --verify=crc32c --verify_fatal=1 --output-format=json)
    "${job[@]}" --rate_iops=,100 --do_verify=0 >/tmp/fio 2>&1 &
    sleep 3
    echo "taken over from here on" >/dev/kmsg
    for round in 1 2; do
        host take_over
        wait_for 60 is_live alpha
        # The loss of the connection may be noticed later than the target was asked.
        sleep 3
    done
    wait $! || fail "fio: $(tail -n 1 /tmp/fio | cut -c1-300)"
    dmesg | sed '1,/taken over from here on/d' >/tmp/since
    grep -q 'Reconnecting in' /tmp/since || fail "the connection was never lost"
    ! grep 'failed to connect socket' /tmp/since || fail "it was refused"
    "${job[@]}" --verify_only >/tmp/verified 2>&1 || fail "fio verifies: $(grep -m 1 verify /tmp/verified | cut -c1-300)"
    echo "figure: the longest write took $(jq '.jobs[0].write.clat_ns.max / 1e9' /tmp/fio) s"
}

# The target is killed and its state directory is gone, the disks are not. While this host tries to reconnect, the pools are
# imported; it comes back to the same disks, and never had to give one up.
state_lost() {
    local device data old before
    ensure_connected alpha
    data=$(data_device)
    old=$(device alpha 128)
    for device in "$data" "$old"; do
        head -c 4M /dev/urandom >"/tmp/pattern-${device##*/}"
        dd if="/tmp/pattern-${device##*/}" of="$device" bs=64k seek=16 oflag=direct conv=fsync status=none
    done
    before=$(disks "$data" "$old")
    host kill
    wait_for 60 is_reconnecting alpha
    host lose_state
    host import "$(nsid "$data")" "$(nsid "$old")"
    ! is_live alpha || fail "somebody listened before all was imported"
    host listen
    wait_for 60 is_live alpha
    # The rescan after a reconnect goes on when the controller is live.
    nvme ns-rescan "/dev/$(controllers alpha)"
    wait_for 30 has_namespaces alpha 2
    [[ $(disks "$data" "$old") == "$before" ]] || fail "these are other disks: $(disks "$data" "$old"), before: $before"
    for device in "$data" "$old"; do
        dd if="$device" bs=64k skip=16 count=64 iflag=direct status=none | cmp - "/tmp/pattern-${device##*/}" ||
            fail "$device does not hold what was written"
    done
    fio_verify "$data" --size=4M --bs=16k
}

digests() {
    local options
    ! is_live alpha || disconnect alpha
    for options in "--hdr-digest" "--data-digest" "--hdr-digest --data-digest"; do
        # Split into options on purpose.
        # shellcheck disable=SC2086
        connect alpha $options
        fio_verify "$(data_device)" --size=4M --bsrange=4k-128k
        disconnect alpha
    done
    connect alpha --hdr-digest --data-digest
    mkfs.ext4 -q -F "$(data_device)"
    fill_and_check "$(data_device)"
    disconnect alpha
}

refuse() {
    local stranger=nqn.2014-08.org.nvmexpress:uuid:5d0b7a10-0000-4000-8000-00000000dead
    local identity=(--hostnqn="$stranger" --hostid=5d0b7a10-0000-4000-8000-00000000dead)
    ! nvme connect -t tcp -a "$ADDRESS" -s "$port" -n "$(subsystem alpha)" "${identity[@]}" || fail "a stranger came in"
    # As one that is not there, so that names cannot be found out.
    dmesg | found -F "Connect Invalid Data Parameter, subsysnqn \"$(subsystem alpha)\"" || fail "refused, but not so"
    nvme discover -t tcp -a "$ADDRESS" -s "$port" "${identity[@]}" -o json >/tmp/log.json || true
    ! grep -q "$(subsystem alpha)" /tmp/log.json || fail "a stranger sees the subsystem"
    # Nor may we go where others are, or where nobody is.
    ! nvme connect -t tcp -a "$ADDRESS" -s "$port" -n "$(subsystem beta)" || fail "a host came in to another tenant"
    ! nvme connect -t tcp -a "$ADDRESS" -s "$port" -n "$(subsystem nobody)" || fail "connected to what does not exist"
}

# In and out again: nothing may be left over on either side.
reconnect_often() {
    local round
    is_gone alpha || disconnect alpha
    for ((round = 0; round < 5; round++)); do
        connect alpha
        data_device >/dev/null
        disconnect alpha
    done
}

leave() {
    ! is_live alpha || disconnect alpha
    is_gone alpha || fail "devices are left over"
    host finish
}

kernel_log() {
    ! dmesg | grep -E 'BUG:|WARNING:|Call Trace|blocked for more than|Buffer I/O error|critical (medium|target) error' ||
        fail "the kernel complained"
}

# --- the second host, at the same time ---

two_connect() {
    connect beta
    device beta 96
    [[ $(namespaces beta | wc -l) == 1 ]] || fail "more than its own volume"
    ! nvme connect -t tcp -a "$ADDRESS" -s "$port" -n "$(subsystem alpha)" || fail "came in to the other tenant"
}

# Until the first host is done, through everything that happens to the target meanwhile.
two_io() {
    local device rounds=0
    device=$(device beta 96)
    until ((rounds >= 2)) && host finished; do
        fio_verify "$device" --size=8M --offset=$((rounds % 4 * 16))M --bsrange=4k-64k --randseed=$rounds --rate_iops=60,60
        rounds=$((rounds + 1))
    done
    echo "$rounds rounds"
}

two_ext4() {
    wait_for 30 is_live beta
    mkfs.ext4 -q -F "$(device beta 96)"
    fill_and_check "$(device beta 96)"
    disconnect beta
}

two_kernel_log() {
    kernel_log
}

# The reason for a failure that no `fail` gave a reason for. Functions above hand failures on by `set -e`.
trap '[[ -s /tmp/why ]] || echo "line $LINENO: $BASH_COMMAND" >/tmp/why' ERR
"$1"

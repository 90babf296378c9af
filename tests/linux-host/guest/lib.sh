#!/bin/bash
# What the scenarios are written with. Every function returns failure, and leaves the reason in /tmp/why, when
# what it is for does not come true.

# shellcheck source=/dev/null # the host writes it
. /test/environment

port=4420

fail() {
    echo "$*" | tee /tmp/why >&2
    return 1
}

# A pattern of grep in the input. `grep -q` would not read to the end, and the writer would die of it.
found() {
    grep "$@" >/dev/null
}

# Whether the guest is a host of NVMe/TCP; else it has its volumes as a PCIe device.
is_fabrics() {
    [[ -n ${ADDRESS:-} ]]
}

has_control() {
    grep -lx control /sys/class/virtio-ports/*/name
}

# Asks the machine outside for something, prints its reply; fails when it refuses.
host() {
    local channel status reply
    channel=$(has_control | cut -d/ -f5)
    exec 3<>"/dev/$channel"
    echo "$*" >&3
    read -r status reply <&3
    exec 3>&-
    echo "$reply"
    [[ $status == ok ]] || fail "outside, '$*' failed: $reply"
}

# Tries a command again until it succeeds: wait_for SECONDS COMMAND...
wait_for() {
    local seconds=$1 end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < end)) || fail "not within $seconds s: $*" || return
        sleep 0.3
    done
}

subsystem() {
    echo "$PREFIX:$1"
}

# Connects to a tenant's subsystem; further arguments go to nvme connect. Emulation under load misses the default
# keep-alive of 5 s.
connect() {
    local tenant=$1
    shift
    if ! is_fabrics; then
        modprobe nvme
        wait_for 30 is_live "$tenant"
        return
    fi
    nvme connect -t tcp -a "$ADDRESS" -s "$port" -n "$(subsystem "$tenant")" --nr-io-queues=2 --keep-alive-tmo=30 \
        --ctrl-loss-tmo=600 --reconnect-delay=1 "$@" || fail "nvme connect to $tenant failed"
    wait_for 20 is_live "$tenant"
}

# For scenarios that need a connection and do not care how it came to be.
ensure_connected() {
    is_live "$1" || connect "$1"
}

disconnect() {
    if is_fabrics; then
        nvme disconnect -n "$(subsystem "$1")"
    else
        rmmod nvme
    fi
    wait_for 20 is_gone "$1"
}

# The controllers of a tenant's subsystem, by name: nvme0.
controllers() {
    local controller
    for controller in /sys/class/nvme/nvme*; do
        if [[ $(cat "$controller/subsysnqn" 2>/dev/null) == "$(subsystem "$1")" ]]; then
            echo "${controller##*/}"
        fi
    done
}

is_live() {
    local controller
    controller=$(controllers "$1")
    [[ -n $controller && $(cat "/sys/class/nvme/$controller/state") == live ]]
}

is_reconnecting() {
    [[ $(cat "/sys/class/nvme/$(controllers "$1")/state") == connecting ]]
}

# The number of a namespace in its subsystem.
nsid() {
    cat "/sys/block/${1##*/}/nsid"
}

# What block devices are known by, and which controller they are of. The kernel counts disks: one that was given up and
# found again has another number.
disks() {
    local device
    for device; do
        echo "$device $(cat "/sys/block/${device##*/}/diskseq") nsid $(nsid "$device") $(nvme ns-descs "$device" | tr -s '\n ' ' ')"
    done
    controllers alpha
}

is_gone() {
    [[ -z $(controllers "$1") && -z $(namespaces "$1") ]]
}

# The block devices of a tenant, each with its size in bytes. Paths below a multipath device are not theirs.
namespaces() {
    local device sectors
    for device in /sys/block/nvme*; do
        # One that goes away while it is looked at has no size.
        sectors=$(cat "$device/size" 2>/dev/null) || continue
        if [[ ${device##*/} != nvme*c*n* && $(cat "$device/device/subsysnqn") == "$(subsystem "$1")" ]]; then
            echo "/dev/${device##*/} $((sectors * 512))"
        fi
    done
}

# The device of a tenant that has this many MiB: every volume of the test has a size of its own. Waits for it.
device() {
    wait_for 20 has_device "$1" "$2" || return
    namespaces "$1" | awk -v bytes=$(($2 << 20)) '$2 == bytes {print $1}'
}

has_device() {
    namespaces "$1" | found " $(($2 << 20))$"
}

# The large volume of the first tenant, before or behind the scenario that lets it grow.
data_device() {
    if has_device alpha 384; then device alpha 384; else device alpha 256; fi
}

# The log of statistics of a controller of alpha counts what is read; nvme-cli knows its form from Amazon EBS.
statistics_log() {
    local before after
    before=$(reads_counted "$1")
    dd if="$(data_device)" of=/dev/null bs=1M count=1 iflag=direct 2>/dev/null || fail "cannot read"
    after=$(reads_counted "$1")
    ((after > before)) || fail "reads counted: $before, then $after"
    nvme amzn stats "$1" --output-format=json >/tmp/statistics.json || fail "nvme amzn stats failed"
    jq -e '.total_read_ops >= 0' /tmp/statistics.json || fail "nvme amzn stats has no sensible answer"
}

reads_counted() {
    nvme get-log "$1" --log-id=0xd0 --log-len=4096 --raw-binary | od -An -tu8 -j8 -N8 | tr -d ' '
}

# Whether a tenant has so many namespaces here.
has_namespaces() {
    [[ $(namespaces "$1" | wc -l) == "$2" ]]
}

has_no_device() {
    ! has_device "$@"
}

# The value of a jq expression over a JSON file must be true.
expect() {
    jq -e "$2" "$1" >/dev/null || fail "not so: $2, but: $(jq -c . "$1" | cut -c1-600)"
}

# Every bit of the mask must be set in a number of a JSON file.
expect_bits() {
    local value
    value=$(jq ".$2" "$1")
    (((value & $3) == $3)) || fail "$2 is $value, lacks bits of $3"
}

# Writes and reads at random places, then reads everything again and compares: fio_verify DEVICE OPTION...
fio_verify() {
    local device=$1
    shift
    fio --name=verify --filename="$device" --direct=1 --ioengine=libaio --iodepth=16 --rw=randrw --rwmixread=40 \
        --verify=crc32c --verify_fatal=1 --minimal "$@" >/tmp/fio 2>&1 || fail "fio: $(tail -n 1 /tmp/fio | cut -c1-300)"
}

# Writes files into a fresh file system, and finds them again behind a check and a new mount.
fill_and_check() {
    local device=$1
    mount -t ext4 "$device" /mnt
    mkdir -p /mnt/programs
    cp /usr/bin/nvme /usr/bin/bash /usr/bin/e2fsck /mnt/programs/
    head -c 6M /dev/urandom >/mnt/random
    # The list lies outside, so that a lost file is missed.
    (cd /mnt && find . -type f -exec sha256sum {} +) >/tmp/sums
    umount /mnt
    e2fsck -fn "$device"
    mount -t ext4 "$device" /mnt
    (cd /mnt && sha256sum -c /tmp/sums)
    umount /mnt
}

# How often a host had to reconnect or reset, by its own log.
disturbances() {
    dmesg | grep -ciE 'nvme nvme[0-9]+: (reconnecting|resetting|starting error recovery)' || true
}

# Reads a part of a device past the page cache: part DEVICE OFFSET_KIB LENGTH_KIB
part() {
    dd if="$1" bs=4k skip=$(($2 / 4)) count=$(($3 / 4)) iflag=direct status=none
}

zeroes() {
    head -c $(($1 * 1024)) /dev/zero
}

#!/bin/bash
# What an unmodified guest must be able to do with an NVMe function that its QEMU has from the target over vfio-user; for
# scenarios.sh, whose others it shares. The functions are described in the script of the same name outside.

# The PCI device of a controller: 0000:01:00.0
pci_device() {
    basename "$(readlink -f "/sys/class/nvme/$1/device")"
}

detect() {
    local controller
    connect alpha
    controller=/sys/class/nvme/$(controllers alpha)
    [[ $(cat "$controller/transport") == pcie ]] || fail "this is not a PCIe controller"
    [[ $(cat "$controller/device/class") == 0x010802 ]] || fail "class $(cat "$controller/device/class")"
    # An Admin queue and one I/O queue for each processor.
    (($(cat "$controller/queue_count") == 3)) || fail "$(cat "$controller/queue_count") queues"
    device alpha 256
    device alpha 128
    has_namespaces alpha 2 || fail "more than the tenant's volumes"
}

function_identify() {
    local controller size device
    ensure_connected alpha
    controller=/dev/$(controllers alpha)
    nvme id-ctrl "$controller" -o json >/tmp/ctrl.json
    expect /tmp/ctrl.json ".subnqn == \"$(subsystem alpha)\" and .cntrltype == 1 and .ver >= 66560"
    expect /tmp/ctrl.json '.sqes == 102 and .cqes == 68 and .nn >= 2 and .ioccsz == 0 and .sgls == 0 and .fuses == 0'
    expect_bits /tmp/ctrl.json oncs 0x0d
    expect_bits /tmp/ctrl.json oaes 0x100
    # Shadow doorbells.
    expect_bits /tmp/ctrl.json oacs 0x100
    for size in 256 128; do
        device=$(device alpha "$size")
        nvme id-ns "$device" -o json >/tmp/ns.json
        expect /tmp/ns.json "(.nguid | test(\"[1-9a-f]\")) and .ncap <= .nsze"
    done
    [[ $(blockdev --getss "$(device alpha 256)") == 4096 && $(blockdev --getss "$(device alpha 128)") == 512 ]] ||
        fail "block sizes are not 4096 and 512"
}

# As `logs_and_features`, but for a log whose reader wants to map registers, which Debian's kernel does not allow.
function_logs_and_features() {
    local controller feature
    ensure_connected alpha
    controller=/dev/$(controllers alpha)
    for log in smart-log error-log fw-log changed-ns-list-log; do
        nvme "$log" "$controller" -o json >/tmp/log.json || fail "nvme $log failed"
        jq . /tmp/log.json >/dev/null || fail "nvme $log has no sensible answer"
    done
    nvme get-log "$controller" --log-id=5 --log-len=4096 --raw-binary >/tmp/effects || fail "no log of effects"
    # Number of queues, interrupt coalescing, interrupt vectors, asynchronous events.
    for feature in 0x07 0x08 0x09 0x0b; do
        nvme get-feature "$controller" -f "$feature" || fail "feature $feature"
    done
    statistics_log "$controller"
    ! nvme get-log "$controller" --log-id=0xc5 --log-len=512 || fail "log C5h exists"
    ! nvme admin-passthru "$controller" --opcode=0xc7 || fail "opcode C7h exists"
    is_live alpha
}

# Every queue has its own MSI-X vector, and each of them has fired.
interrupts() {
    local controller cpu
    ensure_connected alpha
    controller=$(controllers alpha)
    for cpu in 0 1; do
        taskset -c "$cpu" dd if="$(device alpha 256)" of=/dev/null bs=4k count=8 iflag=direct status=none
    done
    grep -E "${controller}q[0-9]" /proc/interrupts >/tmp/interrupts
    awk '!/MSI-?X/ || $2 + $3 == 0 {print; bad = 1} END {exit bad || NR != 3}' /tmp/interrupts ||
        fail "not so: $(tr -s ' \n' ' ' </tmp/interrupts)"
}

# A partition table, and a file system in a partition.
partition() {
    local device sectors
    ensure_connected alpha
    device=$(device alpha 128)
    printf '%s\n' o n p 1 2048 67583 n p 2 67584 133119 w | fdisk -u "$device" >/tmp/fdisk 2>&1 || true
    blockdev --rereadpt "$device"
    wait_for 20 test -b "${device}p2"
    sectors=$(cat "/sys/block/${device##*/}/${device##*/}p2/size")
    ((sectors == 65536)) || fail "the second partition has $sectors sectors"
    mkfs.ext4 -q -F "${device}p2"
    fill_and_check "${device}p2"
    dd if=/dev/zero of="$device" bs=4k count=1 oflag=direct status=none
    blockdev --rereadpt "$device"
}

# A reset of the controller (CC.EN) while fio writes, which must not notice.
reset_under_io() {
    local device load round
    ensure_connected alpha
    device=$(data_device)
    fio_verify "$device" --size=8M --bs=16k --rate_iops=100,100 &
    load=$!
    for ((round = 0; round < 3; round++)); do
        sleep 1
        nvme reset "/dev/$(controllers alpha)"
        wait_for 30 is_live alpha
    done
    wait $load || fail "fio: $(tail -n 1 /tmp/fio | cut -c1-300)"
}

# A function level reset of the PCI device while fio writes.
function_level_reset() {
    local device load before
    ensure_connected alpha
    device=$(data_device)
    before=$(cat "/sys/bus/pci/devices/$(pci_device "$(controllers alpha)")/reset_method")
    [[ $before == *flr* ]] || fail "the kernel resets it by: $before"
    fio_verify "$device" --size=8M --bs=16k --rate_iops=100,100 &
    load=$!
    sleep 2
    echo 1 >"/sys/bus/pci/devices/$(pci_device "$(controllers alpha)")/reset"
    wait_for 30 is_live alpha
    wait $load || fail "fio: $(tail -n 1 /tmp/fio | cut -c1-300)"
}

# The driver lets the device go and takes it again; then the whole bus is looked through anew.
rebind() {
    local device
    ensure_connected alpha
    device=$(pci_device "$(controllers alpha)")
    head -c 1M /dev/urandom >/tmp/pattern
    dd if=/tmp/pattern of="$(data_device)" bs=64k oflag=direct status=none
    echo "$device" >/sys/bus/pci/drivers/nvme/unbind
    wait_for 20 is_gone alpha
    echo "$device" >/sys/bus/pci/drivers/nvme/bind
    wait_for 30 is_live alpha
    cmp <(part "$(data_device)" 0 1024) /tmp/pattern
    echo 1 >"/sys/bus/pci/devices/$device/remove"
    wait_for 20 is_gone alpha
    echo 1 >/sys/bus/pci/rescan
    wait_for 30 is_live alpha
    cmp <(part "$(data_device)" 0 1024) /tmp/pattern
}

# A second function of the tenant is put into the running machine: another controller of the same volumes. Then it is
# deleted, and nothing comes of it but that this controller does not answer any more: what was going on goes on.
hot_plug() {
    local device load before first second
    ensure_connected alpha
    device=$(data_device)
    before=$(disks "$device")
    first=$(controllers alpha)
    host cli function create vm1b --tenant alpha --socket "$(host sockets)/vm1b"
    host plug vm1b
    wait_for 60 has_live_controllers 2
    second=$(controllers alpha | grep -vx "$first")
    # It has the same volumes and no others.
    has_namespaces alpha 2
    fio_verify "$device" --size=8M --bs=16k --rate_iops=100,100 &
    load=$!
    sleep 1
    host cli function delete vm1b --yes
    echo 1 >"/sys/bus/pci/devices/$(pci_device "$second")/remove"
    wait $load || fail "fio: $(tail -n 1 /tmp/fio | cut -c1-300)"
    wait_for 60 has_live_controllers 1
    [[ $(disks "$device") == "$before" ]] || fail "these are other disks: $(disks "$device"), before: $before"
}

# The volume goes to another pool while fio writes and reads.
moved_under_io() {
    local device load before
    ensure_connected alpha
    device=$(data_device)
    before=$(disturbances)
    fio_verify "$device" --size=8M --bs=16k --rate_iops=100,100 &
    load=$!
    sleep 1
    host cli volume move data --to spare
    wait $load || fail "fio: $(tail -n 1 /tmp/fio | cut -c1-300)"
    head -c 1M /dev/urandom >/tmp/pattern
    dd if=/tmp/pattern of="$device" bs=64k oflag=direct status=none
    host cli volume move data --to large
    cmp <(part "$device" 0 1024) /tmp/pattern
    [[ $(disturbances) == "$before" ]] || fail "the driver had to reset the controller"
}

# Firmware has brought this machine up from the function, which is its only disk.
booted_from_function() {
    local device
    [[ -d /sys/firmware/efi ]] || fail "it was not booted by UEFI"
    modprobe -a vfat nls_cp437 nls_ascii
    connect "$BOOT_TENANT"
    device=$(device "$BOOT_TENANT" $((BOOT_BLOCK / 2)))
    [[ $(blockdev --getss "$device") == "$BOOT_BLOCK" ]] || fail "blocks of $(blockdev --getss "$device") bytes"
    ! compgen -G '/sys/block/[^n]*' || fail "it has other disks: $(echo /sys/block/*)"
    [[ $(namespaces "$BOOT_TENANT" | wc -l) == 1 ]] || fail "it has other disks: $(namespaces "$BOOT_TENANT")"
    mount -t vfat -o ro "${device}p1" /mnt
    cmp <(head -c 2 /mnt/EFI/BOOT/BOOTX64.EFI) <(printf MZ)
    grep -q '^options .*console=ttyS0' /mnt/loader/entries/guest.conf
    umount /mnt
}

booted_from_blocks_of_4k() {
    booted_from_function
}

has_live_controllers() {
    local controller count=0
    for controller in $(controllers alpha); do
        [[ $(cat "/sys/class/nvme/$controller/state") != live ]] || count=$((count + 1))
    done
    ((count == $1))
}

# The machine is reset while it writes.
machine_reset() {
    local sum
    sum=$(host mark machine_reset)
    if [[ -n $sum ]]; then
        connect alpha
        holds "$sum"
        fio_verify "$(data_device)" --size=2M --bs=16k
        return
    fi
    ensure_connected alpha
    leave_mark machine_reset
    fio --name=load --filename="$(data_device)" --direct=1 --ioengine=libaio --iodepth=32 --rw=randwrite --bs=16k \
        --time_based --runtime=120 >/dev/null 2>&1 &
    sleep 2
    host reset
    fail "the machine goes on"
}

# The target is killed and comes back. QEMU does not connect again: until its machine is started anew, the guest has a
# controller that is dead and disks of which every command fails. Those that were on their way may wait, as the kernel has it
# for a controller with several paths, until the device is removed.
target_restarted() {
    local controller device sum load
    sum=$(host mark target_restarted)
    if [[ -n $sum ]]; then
        connect alpha
        holds "$sum"
        fio_verify "$(data_device)" --size=2M --bs=16k
        return
    fi
    # The other guest would lose its disk, too.
    host finish
    wait_for 500 host alone
    # The kernel looks at the controller when a command takes longer than this.
    echo 5 >/sys/module/nvme_core/parameters/io_timeout
    ensure_connected alpha
    controller=$(controllers alpha)
    nvme reset "/dev/$controller"
    wait_for 30 is_live alpha
    device=$(data_device)
    leave_mark target_restarted
    host kill
    dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none &
    load=$!
    wait_for 60 grep -x dead "/sys/class/nvme/$controller/state"
    ! dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none || fail "somebody answers"
    host start
    ! dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none || fail "it has come back, which nothing says"
    echo 1 >"/sys/bus/pci/devices/$(pci_device "$(controllers alpha)")/remove"
    wait_for 30 is_gone alpha
    ! wait $load || fail "somebody has answered"
    host power_cycle
    fail "the machine goes on"
}

# A function is deleted and created again while its machine is off.
function_recreated() {
    local sum
    sum=$(host mark function_recreated)
    if [[ -n $sum ]]; then
        connect alpha
        holds "$sum"
        return
    fi
    ensure_connected alpha
    leave_mark function_recreated
    host recreate
    host power_cycle
    fail "the machine goes on"
}

# Writes something by which a volume is known when the machine has begun anew, and says outside what it was.
leave_mark() {
    head -c 1M /dev/urandom >/tmp/pattern
    dd if=/tmp/pattern of="$(device alpha 128)" bs=64k oflag=direct conv=fsync status=none
    host go_on_with "$1" "$(sha256sum </tmp/pattern | cut -c1-64)"
}

holds() {
    [[ $(part "$(device alpha 128)" 0 1024 | sha256sum | cut -c1-64) == "$1" ]] ||
        fail "what was written before is not there"
}

function_kernel_log() {
    kernel_log
}

# --- the second guest, at the same time ---

two_detect() {
    connect beta
    device beta 96
    has_namespaces beta 1 || fail "more than its own volume"
}

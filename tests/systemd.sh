#!/usr/bin/env bash
# The service under a real systemd: boots one in namespaces of its own, over this system's files, of which it changes none;
# installs the package there, and has systemd start, reload, restart, revive and stop the target.
#
#   systemd.sh PACKAGE FOLDER     the package, and an empty folder for mounts and logs
#
# Exit status 77, after a line with the reason, where that cannot be: not root, no systemd, or none that starts here.
set -euo pipefail

service=flashyard.service

main() {
    local package=$1 folder
    folder=$(realpath "$2")
    [[ $(id -u) == 0 ]] || cannot "it takes root"
    [[ -x /lib/systemd/systemd ]] || cannot "systemd is not installed"
    mount -t tmpfs tmpfs "$folder" || cannot "nothing can be mounted"
    # shellcheck disable=SC2064 # it is gone at the end
    trap "umount --recursive '$folder'" EXIT
    mkdir "$folder/upper" "$folder/work" "$folder/root"
    mount -t overlay overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" "$folder/root" ||
        cannot "no overlay file system"
    cp "$package" "$folder/root/srv/flashyard.deb"
    cp "$0" "$folder/root/srv/systemd.sh"
    # unshare and systemd both go on at a plain signal.
    timeout --signal=KILL 180 unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child \
        "$0" --boot "$folder/root" >"$folder/boot.log" 2>&1 || true
    if [[ ! -e $folder/root/srv/check.log ]]; then
        cat "$folder/boot.log"
        cannot "systemd cannot be started in namespaces here"
    fi
    cat "$folder/root/srv/check.log"
    [[ -e $folder/root/srv/passed ]]
}

cannot() {
    echo "$1"
    exit 77
}

# In the namespaces: what systemd needs, the package, and then systemd.
boot() {
    local root=$1
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --bind /dev "$root/dev"
    mount -t tmpfs tmpfs "$root/run"
    mount -t tmpfs tmpfs "$root/tmp"
    mount -t sysfs -o ro sysfs "$root/sys"
    if grep -q :name=systemd: /proc/self/cgroup; then
        mount -t tmpfs tmpfs "$root/sys/fs/cgroup"
        mkdir "$root/sys/fs/cgroup/systemd"
        mount -t cgroup -o none,name=systemd cgroup "$root/sys/fs/cgroup/systemd"
    else
        mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
    fi
    ip link set lo up
    chroot "$root" dpkg --install --force-depends /srv/flashyard.deb
    cat >"$root/etc/systemd/system/check.service" <<UNIT
[Unit]
Wants=$service
After=$service
SuccessAction=exit-force
FailureAction=exit-force
[Service]
Type=oneshot
ExecStart=/bin/bash /srv/systemd.sh --check
StandardOutput=file:/srv/check.log
StandardError=inherit
UNIT
    cd "$root"
    exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$root" \
        /lib/systemd/systemd --system --unit=check.service --log-target=console --show-status=no
}

# Under systemd.
check() {
    local before after
    set -x
    systemctl is-active $service
    flashyard status --state /var/lib/flashyard
    flashyard device create ram0 --kind memory --size 64MiB --state /var/lib/flashyard
    # Its user can do nothing else, and it says itself when it is ready.
    [[ $(shown User) == flashyard && $(shown Type) == notify ]]
    before=$(shown MainPID)
    grep -E '^CapEff:\s0+$' "/proc/$before/status"
    # A file that is changed is applied; one with a mistake is refused, and the target goes on.
    printf '[[tenant]]\nname = "db"\nhosts = ["*"]\n' >/etc/flashyard/flashyard.toml
    systemctl reload $service
    until_is db tenants
    cp /etc/flashyard/flashyard.toml /srv/good.toml
    printf '[[tenant]]\nname = "web"\nhosts = "*"\n' >>/etc/flashyard/flashyard.toml
    systemctl reload $service
    until_is 1 not_applied
    [[ $(tenants) == db && $(shown MainPID) == "$before" ]]
    cp /srv/good.toml /etc/flashyard/flashyard.toml
    # Its sockets are kept for the next process.
    systemctl restart $service
    after=$(shown MainPID)
    [[ $after != "$before" && $(shown NFileDescriptorStore) -ge 1 ]]
    kill -KILL "$after"
    until_is 1 shown NRestarts
    until_is active systemctl is-active $service
    flashyard device list --state /var/lib/flashyard | grep ram0
    systemctl stop $service
    [[ $(shown Result) == success && $(shown ExecMainStatus) == 0 ]]
    touch /srv/passed
}

shown() {
    systemctl show --property "$1" --value $service
}

tenants() {
    flashyard tenant list --json --state /var/lib/flashyard | jq -r '.tenants[].name'
}

not_applied() {
    flashyard health --state /var/lib/flashyard | grep -c CONFIGURATION_NOT_APPLIED
}

# Waits until a command prints this.
until_is() {
    local wanted=$1 tries=0
    until [[ $("${@:2}" || true) == "$wanted" ]]; do
        ((tries += 1))
        ((tries < 600)) || { echo "not $wanted: ${*:2}" && return 1; }
        sleep 0.1
    done
}

case ${1:-} in
    --boot) boot "$2" ;;
    --check) check ;;
    *) main "$@" ;;
esac

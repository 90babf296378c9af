#!/bin/bash
# Types what the guide shows of a target and of a Linux host, as root of one machine: every line of the pages in /test,
# behind its prompt, or in a fence of `sh`. Prints each with what it says and how long it took: this is the run that the
# guide shows.
set -uo pipefail
# shellcheck source=lib.sh
. /test/lib.sh

main() {
    mkdir -p /tmp/guide
    cd /tmp/guide || give_up "no folder"
    # The program with its own libraries, as the pages call it.
    printf '#!/bin/bash\nexec /test/lib/ld-linux-x86-64.so.2 --library-path /test/lib /test/flashyard.bin "$@"\n' >/usr/bin/flashyard
    chmod +x /usr/bin/flashyard
    type_page first-tenant.md 10
    type_page linux-host.md 12
    kill "$target" || give_up "the target had ended"
    wait "$target" || give_up "the target ended with $?"
}

# Every line of a page must succeed, and there are at least so many: type_page PAGE LEAST
type_page() {
    local line lines typed=0
    mapfile -t lines < <(lines_of "/test/$1")
    for line in "${lines[@]}"; do
        type_line "$line"
        typed=$((typed + 1))
    done
    ((typed >= $2)) || give_up "$typed lines of $1"
}

# `sh` fences whole, of `console` fences what is behind a prompt; up to the run that a page shows.
lines_of() {
    awk '/^## A run/ {exit} /^```/ {kind = kind ? "" : substr($0, 4); next}
        kind == "sh" {print "$ " $0} kind == "console" && /^[$#] / {print}' "$1"
}

# Only what depends on the machine is other than on the page: the address, the numbers of disk and controller, and the patience
# of a host under emulation.
type_line() {
    local line=${1:2} began=$EPOCHREALTIME
    line=${line//192.0.2.1/127.0.0.1}
    line=${line//\/dev\/nvme0n1/$(disk)}
    line=${line//\/dev\/nvme0 //dev/$(controllers db) }
    [[ $line != *nvme\ connect* ]] || is_gone db || return 0
    echo "$1"
    eval "${line/nvme connect/nvme connect --keep-alive-tmo=30}" || give_up "status $? of: $1"
    case $line in
        "flashyard serve"*) target=$!; wait_for 60 flashyard status || give_up "no target" ;;
        "nvme connect"*) wait_for 60 has_namespaces db 1 || give_up "no disk" ;;
        "flashyard volume set"*) wait_for 60 has_size 2048 || give_up "it does not grow" ;;
    esac
    echo "   [$(((${EPOCHREALTIME/./} - ${began/./}) / 1000)) ms]"
}

disk() {
    namespaces db | cut -d' ' -f1
}

has_size() {
    namespaces db | found " $(($1 << 20))$"
}

# Shows what was printed, too.
give_up() {
    fail "$*"
    exit 1
}

main

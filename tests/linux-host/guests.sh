# Guests and their target, as run.sh and functions.sh have them, which source this. The script gives `here`, `cache`,
# `binary` and `deadline`, a plan of scenarios for each guest (`plan_1` ...), `plan_outside`, and `answer WORDS`, which does
# what a guest asks for over its control port and prints one line.
# shellcheck shell=bash disable=SC2154,SC2034 # those who source this have them, and use what is here

guests=() printed=() to_guest=() from_guest=()

# Runs the script again in a network namespace of its own, in which addresses may be added to lo: as root, or as root of a
# user namespace.
enter_own_network() {
    local way=(unshare --net)
    [[ $(id -u) == 0 ]] || way=(unshare --map-root-user --net)
    "${way[@]}" true 2>/dev/null || skip_all "network namespaces are not allowed here"
    FLASHYARD_INSIDE=1 PATH=$PATH:/usr/sbin:/sbin exec "${way[@]}" "$here/${0##*/}" "$@"
}

skip_all() {
    local name
    for name in "${plan_1[@]}" "${plan_2[@]}" "${plan_outside[@]}"; do
        echo "skipped $name: $1"
    done
    exit 0
}

# Tools, the program under test, and the guest image.
prepare() {
    local tool
    for tool in "$@"; do
        PATH=$PATH:/usr/sbin:/sbin command -v "$tool" >/dev/null || skip_all "$tool is not installed"
    done
    if [[ ! -x $binary ]]; then
        echo "FAILED build: no program at $binary; run: cargo build --release"
        exit 1
    fi
    if ! FLASHYARD_IMAGE=$("$here/image.sh" "$cache"); then
        skip_all "the guest image cannot be built here, see above"
    fi
    export FLASHYARD_IMAGE
}

# --- the target ---

# Runs the program with its configuration, until `listening`.
start_target() {
    serve --config "$run/target.toml"
}

# serve OPTION...
serve() {
    "$binary" serve "$@" --state "$run/state" >>"$run/target.log" 2>&1 &
    target=$!
    for _ in {1..300}; do
        if listening; then return 0; fi
        kill -0 "$target" 2>/dev/null || break
        sleep 0.1
    done
    return 1
}

cli() {
    "$binary" "$@" --state "$run/state" 2>&1
}

# What the kernel did for a killed process may keep its sockets a little longer.
kill_target() {
    kill -9 "$target"
    wait "$target" 2>/dev/null
    for _ in {1..100}; do
        listening || return 0
        sleep 0.1
    done
    return 1
}

# --- guests ---

# What a guest has beside the common image: its scenarios, what stands in ENVIRONMENT, and files. Makes the pipes to it.
# make_guest NUMBER ENVIRONMENT [FILE...]
make_guest() {
    local folder=$run/guest$1
    mkdir -p "$folder/archive/test"
    cp "$here"/guest/*.sh "${@:3}" "$folder/archive/test/"
    echo "$2" >"$folder/archive/test/environment"
    # The kernel takes two archives one behind the other.
    (cat "$FLASHYARD_IMAGE/initramfs.cpio" && cd "$folder/archive" && find . | cpio --quiet -o -H newc) >"$folder/initramfs"
    mkfifo "$folder/control.in" "$folder/control.out"
    : >"$folder/output"
    printed[$1]=0
}

# Runs a guest with the kernel and the archive of the image: run_guest NUMBER QEMU OPTION...
run_guest() {
    run_machine "$@" -kernel "$FLASHYARD_IMAGE/vmlinux" -initrd "$run/guest$1/initramfs" -append "$cmdline"
}

cmdline="console=ttyS0 mitigations=off no_timer_check random.trust_cpu=on cryptomgr.notests tsc=reliable panic=-1"

# Runs a machine of which nothing is said about what it boots: run_machine NUMBER QEMU OPTION...
run_machine() {
    local number=$1 folder=$run/guest$1
    "$2" -accel "${FLASHYARD_ACCEL:-tcg,thread=multi}" -cpu max,la57=off -smp 2 -nodefaults -display none \
        -device virtio-serial-pci \
        -chardev "file,id=output,path=$folder/output,append=on" -device virtconsole,chardev=output \
        -chardev "pipe,id=control,path=$folder/control" -device virtserialport,chardev=control,name=control \
        -chardev "file,id=kernel,path=$folder/kernel.log,append=on" -serial chardev:kernel \
        "${@:3}" >>"$folder/qemu.log" 2>&1 &
    guests[number]=$!
    # Open on both sides for as long as we live: opening a pipe waits for its other end.
    # shellcheck disable=SC1083
    exec {to_guest[number]}<>"$folder/control.in" {from_guest[number]}<>"$folder/control.out"
}

# Ends a machine as a failure of its power would.
power_off() {
    kill -9 "${guests[$1]}"
    wait "${guests[$1]}" 2>/dev/null
}

# Until the guests are done: answers what they ask, shows what they print.
serve_guests() {
    local number words half=()
    finished=
    while ((SECONDS < deadline)) && any_running; do
        for number in "${!guests[@]}"; do
            if read -r -t 0.1 -u "${from_guest[number]}" words; then
                answer "${half[number]:-}$words" >&"${to_guest[number]}"
                half[number]=
            else
                # Time may run out in the middle of a line.
                half[number]+=$words
            fi
            show "$number"
        done
        running 1 || finished=1
    done
    for number in "${!guests[@]}"; do
        show "$number"
    done
}

any_running() {
    local number
    for number in "${!guests[@]}"; do
        ! running "$number" || return 0
    done
    return 1
}

running() {
    kill -0 "${guests[$1]:-}" 2>/dev/null
}

# Prints the whole lines that a guest has written since the last time, without what firmware and boot loaders draw.
show() {
    local output=$run/guest$1/output written
    written=$(wc -l <"$output")
    if ((written > printed[$1])); then
        tr -d '\r' <"$output" | sed -n "$((printed[$1] + 1)),${written}p" | sed '/\x1b/d; /^BdsDxe: /d; /^EFI stub: /d'
        printed[$1]=$written
    fi
}

# --- the end ---

# Scenarios that said nothing have failed too. Then the verdicts on the target.
finish() {
    local number name
    for number in "${!guests[@]}"; do
        local -n plan=plan_$number
        for name in "${plan[@]}"; do
            if ! grep -qE "^(ok|FAILED) $name\b" "$run/guest$number/output"; then
                echo "FAILED $name: it did not end; last words of guest $number: $(last_words "$run/guest$number")"
            fi
        done
    done
    verdict "${plan_outside[0]}" no_panic
    verdict "${plan_outside[1]}" stop_target
    if grep -qhE '^FAILED ' "$run"/guest?/output; then
        tail -n 20 "$run/target.log" | sed 's/^/    target | /'
    fi
}

# What a machine said that did not end: why its kernel gave up and where, if it did.
last_words() {
    local panic
    panic=$(grep -aE -m4 'Kernel panic|BUG: |Oops: |RIP: |rcu: INFO|blocked for more than' "$1/kernel.log" | tr -d '\r' | tr '\n' ' ')
    echo "${panic:-$(tail -n 1 "$1/kernel.log")} $(tail -n 1 "$1/qemu.log")"
}

verdict() {
    reason=
    if "$2"; then echo "ok $1"; else echo "FAILED $1: $reason"; fi
}

no_panic() {
    reason="it is not running any more"
    kill -0 "$target" 2>/dev/null || return
    reason=$(grep -m1 'panicked at' "$run/target.log")
    [[ -z $reason ]]
}

# A target that is asked to end does so soon and without complaint.
stop_target() {
    reason="it was not running"
    kill -TERM "$target" 2>/dev/null || return
    reason="still running 5 s after SIGTERM"
    for _ in {1..50}; do
        # What has ended but was not waited for is a zombie.
        if ! grep -q '^State:\s[^Z]' "/proc/$target/status" 2>/dev/null; then
            reason="exit status not 0 after SIGTERM"
            wait "$target"
            return
        fi
        sleep 0.1
    done
    return 1
}

clean_up() {
    local process
    for process in "${target:-}" "${guests[@]}"; do
        [[ -z $process ]] || kill -9 "$process" 2>/dev/null
    done
    wait 2>/dev/null
    if [[ -n ${KEEP:-} ]]; then
        echo "kept $run"
    else
        rm -rf "$run"
    fi
}

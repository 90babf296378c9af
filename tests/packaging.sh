#!/usr/bin/env bash
# What is installed and packaged: into folders of its own, never into this system. Prints "ok NAME", "FAILED NAME" behind
# what went wrong, or "skipped NAME: why" for each part.
#
#   packaging.sh      uses the program that the tests have built (target/debug)
#
# ONLY="installs" runs these parts; KEEP=1 leaves the folder.
set -uo pipefail

plan=(scripts installs uninstalls starts_as_a_service runs_under_systemd packages package_comes_and_goes package_is_clean containerfile)
[[ -z ${ONLY:-} ]] || read -r -a plan <<<"$ONLY"

main() {
    local part
    built=${CARGO_TARGET_DIR:-target}/debug/flashyard
    [[ -x $built ]] || cargo build --locked --package flashyard-app || exit 1
    mkdir -p "${CARGO_TARGET_DIR:-target}/tmp"
    scratch=$(mktemp -d "$(realpath "${CARGO_TARGET_DIR:-target}")/tmp/packaging.XXXXXX") || exit 1
    [[ -n ${KEEP:-} ]] || trap 'rm -rf "$scratch"' EXIT
    for part in "${plan[@]}"; do
        # A part of its own shell, which ends at the first command that fails; status 77 is skipped, by what it prints.
        (set -e && "$part") >"$scratch/log" 2>&1
        case $? in
            0) echo "ok $part" ;;
            77) echo "skipped $part: $(tail -n 1 "$scratch/log")" ;;
            *) cat "$scratch/log" && echo "FAILED $part" ;;
        esac
    done
}

# Ends a part that needs a tool which is not here.
needs() {
    PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null || { echo "$1 is not installed" && exit 77; }
}

expect() {
    [[ $2 == "$3" ]] || { echo "$1 is \`$2\`, not \`$3\`" && exit 1; }
}

# `make install` as somebody whose files nobody else may read by default.
install_into() {
    (umask 077 && make --no-print-directory install PROFILE=dev DESTDIR="$1" "${@:2}")
}

scripts() {
    needs shellcheck
    shellcheck bench/*.sh tests/*.sh tests/*/*.sh tests/*/*/*.sh .ci/run packaging/deb.sh packaging/debian/p*
}

installs() {
    local root=$scratch/root page
    install_into "$root" PREFIX=/usr
    expect version "$("$root/usr/bin/flashyard" --version)" "$("$built" --version)"
    expect modes "$(find "$root" -type f ! -perm 644 -printf '%P %m\n')" "usr/bin/flashyard 755"
    expect "a link to a page that is not installed" "$(dangling "$root/usr/share/doc/flashyard")" ""
    expect "the newest version in CHANGELOG.md" "$(sed -n 's/^## \([^ ]*\).*/\1/p' CHANGELOG.md | head -n 1)" \
        "$("$built" --version | cut -d ' ' -f 2)"
    for page in "$root"/usr/share/man/man1/*.1; do
        # The one command with two words in its name has no page above it.
        [[ $page == */flashyard.1 || $page == */flashyard-host-stats.1 || -e ${page%-*}.1 ]] || { echo "$page stands below no page" && exit 1; }
    done
    for page in packaging/monitoring/*; do
        cmp "$page" "$root/usr/share/flashyard/monitoring/${page##*/}"
    done
    # A second installation keeps what an administrator has written.
    echo '# mine' >"$root/etc/flashyard/flashyard.toml"
    install_into "$root" PREFIX=/usr
    expect configuration "$(cat "$root/etc/flashyard/flashyard.toml")" "# mine"
}

# Links of the documents to files that are not beside them.
dangling() {
    local page link
    find "$1" -name '*.md' | while read -r page; do
        grep -o '](\([^):#]*\)[)#]' "$page" | sed 's/^](//; s/[)#]$//' | while read -r link; do
            [[ -z $link || -e $(dirname "$page")/$link ]] || echo "${page#"$1"/}: $link"
        done
    done
}

# Installed where it will be, since the unit is looked at with all that it names. The user is made elsewhere.
starts_as_a_service() {
    needs systemd-analyze
    local prefix=$scratch/prefix unit=$scratch/prefix/lib/systemd/system/flashyard.service found words target
    install_into "" PREFIX="$prefix" SYSCONFDIR="$prefix/etc"
    expect "what is not filled in" "$(grep '@' "$unit" | grep -v '^SystemCallFilter\|^#' || true)" ""
    found=$(systemd-analyze verify --man=no "$unit" 2>&1 | grep flashyard || true)
    expect verify "$found" ""
    # From 0, safe, to 100.
    systemd-analyze security --offline=true --threshold=25 --no-pager "$unit"
    # What it starts, but for the folder of the state and the port.
    read -r -a words < <(sed -n 's/^ExecStart=//p' "$unit")
    "${words[@]/#%S/$scratch}" --listen 127.0.0.1:0 >"$scratch/said" &
    target=$!
    until grep -q '^listening on' "$scratch/said"; do
        kill -0 "$target"
        sleep 0.1
    done
    kill "$target"
    wait "$target"
    [[ -e $scratch/flashyard/state.db ]]
}

# Makes the Debian package of the build of the tests, in the folder.
make_package() {
    needs dpkg-shlibdeps
    PROFILE=dev DPKG_DEB_COMPRESSOR_TYPE=none SOURCE_DATE_EPOCH=1700000000 packaging/deb.sh "$1" | tail -n 1
}

runs_under_systemd() {
    local package
    package=$(make_package "$scratch/for-systemd")
    mkdir "$scratch/booted"
    tests/systemd.sh "$package" "$scratch/booted"
}

packages() {
    local package again file
    package=$(make_package "$scratch/debs")
    dpkg-deb --contents "$package" | awk '{ print $2, $6 }' >"$scratch/contents"
    expect owners "$(cut -d ' ' -f 1 "$scratch/contents" | sort -u)" root/root
    for file in usr/bin/flashyard usr/lib/systemd/system/flashyard.service usr/lib/sysusers.d/flashyard.conf \
        usr/share/man/man1/flashyard-serve.1.gz usr/share/doc/flashyard/copyright etc/flashyard/flashyard.toml \
        usr/share/flashyard/monitoring/flashyard.rules.yml; do
        grep -qx "root/root ./$file" "$scratch/contents" || { echo "there is no $file" && exit 1; }
    done
    expect conffiles "$(dpkg-deb --info "$package" conffiles)" /etc/flashyard/flashyard.toml
    expect version "$(dpkg-deb --field "$package" Version)" "$("$built" --version | cut -d ' ' -f 2)"
    dpkg-deb --field "$package" Depends | grep -q 'libc6 (>= .*libssl3'
    # The same files make the same package.
    again=$(make_package "$scratch/again")
    cmp "$package" "$again"
}

# Installed, installed again, removed and purged, in a folder that is a system of its own for dpkg.
package_comes_and_goes() {
    local root=$scratch/system package as=()
    [[ $(id -u) == 0 ]] || { needs fakeroot && as=(fakeroot); }
    package=$(make_package "$scratch/debs")
    mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
    touch "$root/var/lib/dpkg/status" "$root/var/lib/dpkg/available"
    as+=(dpkg "--root=$root" --log=/dev/null --force-script-chrootless --force-depends)
    "${as[@]}" --install "$package" </dev/null
    expect version "$("$root/usr/bin/flashyard" --version)" "$("$built" --version)"
    ! command -v systemd-sysusers >/dev/null || grep -q '^flashyard:' "$root/etc/passwd"
    # It was installed, and not enabled.
    [[ ! -e $root/etc/systemd/system/multi-user.target.wants/flashyard.service ]]
    install -d "$root/var/lib/flashyard"
    echo kept >"$root/var/lib/flashyard/state.db"
    echo '# mine' >>"$root/etc/flashyard/flashyard.toml"
    "${as[@]}" --install "$package" </dev/null
    tail -n 1 "$root/etc/flashyard/flashyard.toml" | grep -qx '# mine'
    "${as[@]}" --remove flashyard
    [[ ! -e $root/usr/bin/flashyard && -e $root/etc/flashyard/flashyard.toml ]]
    "${as[@]}" --purge flashyard | tee "$scratch/purged"
    grep -q '/var/lib/flashyard stays' "$scratch/purged"
    expect "what stays" "$(cd "$root" && find etc/flashyard usr var/lib/flashyard -type f 2>/dev/null)" var/lib/flashyard/state.db
}

# What Debian's own checker says of it: nothing. The packages of these tests are not compressed.
package_is_clean() {
    needs lintian
    local none=uses-no-compression-for
    expect "what lintian says" "$(lintian --allow-root --suppress-tags $none-control-tarball,$none-data-tarball \
        "$(make_package "$scratch/clean")")" ""
}

# Builds no image, which would take a network and half an hour: reads the file as a builder does.
containerfile() {
    needs jq
    local file=$scratch/Containerfile word rest stage stages=() user listens wanted
    # Without comments, and what goes on in the next line joined.
    sed '/^#/d' Containerfile | sed -e ':more' -e '/\\$/{N; s/\\\n//; b more' -e '}' | sed '/^$/d' >"$file"
    while read -r word rest; do
        case $word in
            FROM) stages+=("${rest##* AS }") user=root ;;
            COPY)
                stage=${rest#--from=}
                [[ $stage == "$rest" || " ${stages[*]} " == *" ${stage%% *} "* ]]
                ;;
            USER) user=$rest ;;
            CMD | ENTRYPOINT) jq --exit-status 'all(type == "string")' <<<"$rest" >/dev/null ;;
            EXPOSE) listens=${rest%/tcp} ;;
            RUN) bash -n <<<"$rest" ;;
            WORKDIR | VOLUME | ENV | STOPSIGNAL | HEALTHCHECK) ;;
            *) echo "no instruction: $word" && exit 1 ;;
        esac
    done <"$file"
    expect stages "${#stages[@]}" 2
    expect user "$user" 4420:4420
    grep -q "^CMD .*0.0.0.0:$listens\"" "$file"
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    grep -q "^FROM docker.io/library/rust:$wanted-bookworm AS build$" "$file"
    # The command is one that the program has.
    sed -n 's/^CMD //p' "$file" | jq --raw-output '.[]' >"$scratch/words"
    mapfile -t words <"$scratch/words"
    "$built" "${words[@]}" --help >/dev/null
}

uninstalls() {
    local root=$scratch/uninstalled
    install_into "$root" PREFIX=/opt/flashyard
    # Of somebody else, in the same folders.
    echo other >"$root/opt/flashyard/bin/other"
    make --no-print-directory uninstall DESTDIR="$root" PREFIX=/opt/flashyard
    expect "what stays" "$(cd "$root" && find . -type f | sort)" "$(printf '%s\n' ./etc/flashyard/flashyard.toml ./opt/flashyard/bin/other)"
}

cd "$(dirname "$0")/.." || exit 1
main

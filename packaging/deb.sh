#!/usr/bin/env bash
# Makes a Debian package of what was built, and prints its path.
#
#   deb.sh FOLDER     the folder for the package; PROFILE=dev takes the build of the tests
#
# DEBFULLNAME and DEBEMAIL name the maintainer, SOURCE_DATE_EPOCH the time of all files (else that of the last commit).
set -euo pipefail

main() {
    local tool package
    for tool in dpkg-deb dpkg-shlibdeps; do
        command -v "$tool" >/dev/null || { echo "$tool is missing: install dpkg-dev" >&2 && exit 1; }
    done
    mkdir -p "$1"
    work=$(mktemp -d "$(realpath "$1")/deb.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    umask 022
    root=$work/root
    version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
    architecture=$(dpkg --print-architecture)
    : "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || stat --format %Y Cargo.toml)}"
    export SOURCE_DATE_EPOCH
    install_files
    write_control
    package=$1/flashyard_${version}_$architecture.deb
    dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
    echo "$package"
}

# Where Debian has things that others have elsewhere.
install_files() {
    local documents=$root/usr/share/doc/flashyard
    make --no-print-directory install PREFIX=/usr DESTDIR="$root" \
        ZSH_COMPLETION="$root/usr/share/zsh/vendor-completions/_flashyard" >&2
    gzip -9n "$root"/usr/share/man/man1/*.1
    cp packaging/debian/copyright "$documents/copyright"
    # The licences of what the program is linked with.
    cargo tree --locked --offline --package flashyard-app --edges normal --prefix none --format '{p} ({l})' |
        sed 's/ (\*)$//; /^flashyard-/d; s/ (proc-macro)//' | LC_ALL=C sort -u >"$documents/third-party.txt"
    changelog | gzip -9n >"$documents/changelog.gz"
}

changelog() {
    printf 'flashyard (%s) unstable; urgency=medium\n\n  * See /usr/share/doc/flashyard/CHANGELOG.md.\n\n -- %s  %s\n' \
        "$version" "$(maintainer)" "$(LC_ALL=C date --utc --rfc-email --date "@$SOURCE_DATE_EPOCH")"
}

maintainer() {
    echo "${DEBFULLNAME:-Flashyard developers} <${DEBEMAIL:-developers@flashyard.invalid}>"
}

write_control() {
    local script
    mkdir "$root/DEBIAN"
    cat >"$root/DEBIAN/control" <<END
Package: flashyard
Version: $version
Architecture: $architecture
Maintainer: $(maintainer)
Installed-Size: $(du --summarize --apparent-size --block-size 1K "$root/usr" | cut -f 1)
Depends: $(libraries), systemd | systemd-standalone-sysusers | systemd-sysusers
Recommends: nvme-cli
Section: admin
Priority: optional
Description: storage target for many tenants, over NVMe/TCP and vfio-user
 Turns the flash of a machine into volumes for many tenants, over NVMe/TCP for
 hosts and as NVMe functions for virtual machines, and keeps the tenants from
 hurting each other. It needs Linux 6.1 or newer with io_uring, and neither a
 kernel module nor huge pages.
 .
 The service flashyard is installed and not started.
END
    (cd "$root" && find etc -type f | sed 's|^|/|' >DEBIAN/conffiles)
    (cd "$root" && find usr -type f -print0 | LC_ALL=C sort --zero-terminated | xargs -0 md5sum >DEBIAN/md5sums)
    for script in postinst prerm postrm; do
        install -m 755 "packaging/debian/$script" "$root/DEBIAN/$script"
    done
}

# The packages of the libraries that the program is linked with dynamically.
libraries() {
    mkdir -p "$work/debian"
    printf 'Source: flashyard\n\nPackage: flashyard\nArchitecture: any\n' >"$work/debian/control"
    (cd "$work" && dpkg-shlibdeps -O root/usr/bin/flashyard) | sed -n 's/^shlibs:Depends=//p'
}

cd "$(dirname "$0")/.."
main "$(realpath -m "${1:?which folder?}")"

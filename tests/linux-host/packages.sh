# Debian packages for image.sh and qemu.sh, which source this: downloaded with apt's resolver, signatures checked, and
# unpacked in a folder. Nothing is installed, and no root is needed.
# shellcheck shell=bash

# Fetches PACKAGE... of a release and all they need into WORK/apt: download WORK SUITE PACKAGE...
download() {
    local work=$1 suite=$2 mirror
    mirror=${FLASHYARD_DEBIAN_MIRROR:-$(own_mirror)}
    # A private root that knows of no package.
    mkdir -p "$work"/apt/{state/lists/partial,cache/archives/partial}
    : >"$work/apt/state/status"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$work/apt/sources.list"
    private_apt "$work" update
    private_apt "$work" install --download-only --no-install-recommends -y "${@:3}"
}

private_options() {
    printf '%s\n' -o "Dir::State=$1/apt/state" -o "Dir::State::status=$1/apt/state/status" -o "Dir::Cache=$1/apt/cache" \
        -o "Dir::Etc::sourcelist=$1/apt/sources.list" -o Dir::Etc::sourceparts=- -o Debug::NoLocking=1 \
        -o "APT::Sandbox::User=" -o APT::Architecture=amd64 -o APT::Architectures=amd64 \
        -o APT::Update::Error-Mode=any
}

private_apt() {
    local options
    mapfile -t options < <(private_options "$1")
    # A registry that does not answer must not hold up the tests.
    timeout 600 apt-get -qq "${options[@]}" "${@:2}"
}

private_apt_cache() {
    local options
    mapfile -t options < <(private_options "$1")
    apt-cache "${options[@]}" "${@:2}"
}

# Unpacks all that was downloaded into WORK/unpacked: unpack WORK
unpack() {
    local work=$1 archive
    mkdir "$work/unpacked"
    for archive in "$work"/apt/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$archive" | tar -x -C "$work/unpacked" --no-same-owner --exclude=./usr/share/doc \
            --exclude=./usr/share/locale --exclude=./usr/share/man --exclude=./dev
    done
}

# The mirror this machine gets Debian from.
own_mirror() {
    local mirror
    # apt fills in what stands in parentheses.
    # shellcheck disable=SC2016
    mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
        awk '$1 == "Debian" {print $2; exit}')
    if [[ -z $mirror ]]; then
        echo "no Debian mirror in this machine's apt sources; name one in FLASHYARD_DEBIAN_MIRROR" >&2
        return 1
    fi
    echo "$mirror"
}

# Where the libraries of an unpacked release are, for its loader. Some programs keep private ones in a folder below.
library_path() {
    find "$1/usr/lib/x86_64-linux-gnu" -maxdepth 2 -name 'lib*.so*' -printf '%h\n' | sort -u | paste -sd:
}

# Makes FOLDER of what `build WORK` leaves in WORK/result, unless it is there already; older ones of the same name go:
# build_once CACHE NAME KEY
build_once() {
    local cache=$1 name=$2 folder=$1/$2-$3 work
    [[ ! -d $folder ]] || return 0
    work=$(mktemp -d "$cache/build.XXXXXX")
    # Expanded now: the trap runs when `work` is gone.
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    build "$work" >&2
    rm -rf "$cache/$name-"*
    # Another run may have been quicker.
    mv -T "$work/result" "$folder" 2>/dev/null || [[ -d $folder ]]
}

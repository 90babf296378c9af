#!/usr/bin/env bash
# The dashboard in a headless Chromium, at a real target with tenants under load. Prints "ok NAME", "FAILED NAME: why" or
# "skipped NAME: why".
#
#   run.sh [BINARY]       BINARY is the program under test, else the debug build
#
# VOLUMES and TENANTS say of how many the long lists are (1000 and 300), of which times are printed too. PICTURES names a folder for
# what the screens look like; else they are not kept. GUIDE names one for the pictures of the guide (docs/dashboard): then nothing
# is tested.
set -uo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$top/target}
binary=$(realpath -m "${1:-$target/debug/flashyard}")
tools=$target/dashboard-tools
export PYTHONDONTWRITEBYTECODE=1

main() {
    local chromium
    if ! install_tools; then
        echo "skipped dashboard: no websocket client for Python; see tests/dashboard/requirements.txt"
        return
    fi
    if ! chromium=$(find_chromium); then
        echo "skipped dashboard: there is no Chromium; install by hand what the Debian package chromium holds"
        return
    fi
    run=$(mktemp -d "$target/dashboard.XXXXXX") || exit 1
    trap 'rm -rf "$run"' EXIT
    trap 'exit 130' INT TERM
    if [[ -n ${GUIDE:-} ]]; then
        "$tools/bin/python" "$top/tests/dashboard/pictures.py" "$binary" "$chromium" "$run" "$GUIDE"
        return
    fi
    # It starts and ends the target and all that it needs.
    timeout -k 20 300 "$tools/bin/python" "$top/tests/dashboard/screens.py" "$binary" "$chromium" "$run" "${PICTURES:-}" ||
        echo "FAILED dashboard: it ended with $?"
    mkdir "$run/many"
    timeout -k 20 300 "$tools/bin/python" "$top/tests/dashboard/many.py" "$binary" "$chromium" "$run/many" "${VOLUMES:-1000}" "${TENANTS:-300}" ||
        echo "FAILED dashboard_many: it ended with $?"
}

install_tools() {
    [[ -x $tools/bin/python && $tools/requirements.txt -nt $top/tests/dashboard/requirements.txt ]] && return
    python3 -m venv "$tools" && "$tools/bin/pip" install -q --disable-pip-version-check \
        -r "$top/tests/dashboard/requirements.txt" && cp "$top/tests/dashboard/requirements.txt" "$tools/"
} >&2

find_chromium() {
    command -v chromium || command -v chromium-browser || command -v google-chrome && return
    if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
        {
            apt-get -qq update
            DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium
        } >&2
    fi
    command -v chromium
}

main

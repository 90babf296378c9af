#!/usr/bin/env bash
# The REST API against its OpenAPI document: what each kind of answer looks like, and what becomes of requests that
# nobody would think of (schemathesis). Prints "ok NAME", "FAILED NAME: why" or "skipped NAME: why".
#
#   run.sh [BINARY]       BINARY is the program under test, else the debug build
#
# The target runs in a folder of its own, which is its working directory, so that names of files that are made up
# land there. SEED chooses other requests, EXAMPLES how many for each operation.
set -uo pipefail

top=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$top/target}
binary=$(realpath -m "${1:-$target/debug/flashyard}")
tools=$target/api-tools
token=0123456789abcdef0123456789abcdef

main() {
    if ! install_tools; then
        echo "skipped api_answers: schemathesis cannot be installed; see tests/api/requirements.txt"
        echo "skipped api_requests: schemathesis cannot be installed"
        return
    fi
    run=$(mktemp -d "$target/api.XXXXXX") || exit 1
    trap clean_up EXIT
    trap 'exit 130' INT TERM
    if ! start_target; then
        echo "FAILED api_answers: the target does not start: $(tail -n 1 "$run/log")"
        return
    fi
    scenario api_answers "$tools/bin/python" "$top/tests/api/answers.py" "$url" "$token"
    scenario api_requests requests
    scenario api_target_ends end_target
    scenario api_tls tls
}

install_tools() {
    [[ -x $tools/bin/schemathesis && $tools/requirements.txt -nt $top/tests/api/requirements.txt ]] && return
    python3 -m venv "$tools" && "$tools/bin/pip" install -q --disable-pip-version-check \
        -r "$top/tests/api/requirements.txt" && cp "$top/tests/api/requirements.txt" "$tools/"
} >&2

start_target() {
    (umask 077 && echo "admin $token" >"$run/tokens")
    cd "$run" || return 1
    : >log
    "$binary" serve --state state --listen 127.0.0.1:0 --api 127.0.0.1:0 --api-tokens tokens >log 2>&1 &
    pid=$!
    for _ in {1..300}; do
        url=$(sed -n 's|^listening on \(.*\) (API)|http://\1/api/v1|p' log)
        [[ -z $url ]] || return 0
        kill -0 "$pid" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

# Valid requests may be refused for what they mean, so that is no fault. A calibration takes longer than a tester
# waits, and a copy of the state is a file wherever it says.
requests() {
    "$tools/bin/schemathesis" run "$url/openapi.json" --url "$url" --header "Authorization: Bearer $token" \
        --checks all --exclude-checks positive_data_acceptance --phases coverage,fuzzing \
        --max-examples "${EXAMPLES:-10}" --seed "${SEED:-1}" --continue-on-failure --no-color --warnings off \
        --exclude-path /backup --exclude-path '/devices/{name}/calibration'
}

# Over TLS as curl and Python speak it: with a token, with a certificate, and refused without either.
tls() {
    make_certificates || return 1
    printf 'read %s reader\nadmin cn:ops\n' "$token" >tokens
    : >log
    "$binary" serve --state tls-state --listen 127.0.0.1:0 --api 127.0.0.1:0 --api-tokens tokens \
        --api-cert target.crt --api-key target.key --api-client-ca ca.crt >log 2>&1 &
    pid=$!
    url=
    for _ in {1..300}; do
        url=$(sed -n 's|^listening on 127.0.0.1:\(.*\) (API)|https://localhost:\1/api/v1|p' log)
        [[ -z $url ]] || break
        sleep 0.1
    done
    expect 200 --cacert ca.crt -H "Authorization: Bearer $token" "$url/status" &&
        expect 403 --cacert ca.crt -H "Authorization: Bearer $token" -X DELETE "$url/pools/p" &&
        expect 404 --cacert ca.crt --cert ops.crt --key ops.key -X DELETE "$url/pools/p" &&
        expect 403 --cacert ca.crt "$url/status" &&
        expect 000 "$url/status" &&
        expect 000 --cacert ca.crt --tls-max 1.2 "$url/status" &&
        expect 400 "${url/https/http}/status" &&
        "$tools/bin/python" -c 'import ssl, sys, urllib.request
context = ssl.create_default_context(cafile="ca.crt")
context.load_cert_chain("ops.crt", "ops.key")
print(urllib.request.urlopen(sys.argv[1] + "/audit", context=context).read().decode())' "$url" &&
        end_target
}

# An authority, and certificates of the target and of an administrator.
make_certificates() {
    local name new=(-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes)
    openssl req -x509 "${new[@]}" -days 2 -subj /CN=authority -keyout ca.key -out ca.crt &&
        echo 'subjectAltName=DNS:localhost' >target.ext && echo 'extendedKeyUsage=clientAuth' >ops.ext || return 1
    for name in target ops; do
        openssl req "${new[@]}" -subj "/CN=$name" -keyout "$name.key" -out "$name.csr" &&
            openssl x509 -req -in "$name.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
                -extfile "$name.ext" -out "$name.crt" && chmod 600 "$name.key" || return 1
    done
}

# What curl with these words is answered; 000 where no TLS comes about.
expect() {
    local status
    status=$(curl -s -o answer -w '%{http_code}' "${@:2}")
    [[ $status == "$1" ]] || { echo "$status and not $1: ${*:2}: $(cat answer)"; return 1; }
}

end_target() {
    kill -TERM "$pid" && wait "$pid"
}

scenario() {
    local name=$1
    if "${@:2}" >"$run/$name.log" 2>&1; then
        echo "ok $name"
    else
        sed 's/^/    /' "$run/$name.log"
        echo "FAILED $name: see above"
    fi
}

clean_up() {
    if [[ -n ${pid:-} ]] && kill -0 "$pid" 2>/dev/null; then
        kill -KILL "$pid"
    fi
    rm -rf "$run"
}

main

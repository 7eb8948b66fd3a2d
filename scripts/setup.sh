#!/usr/bin/env bash
# Set up what Headway needs.
#   setup.sh venv   the virtual environment .venv, exactly as constraints.txt says
#   setup.sh test   the programs that the browser and PostgreSQL tests need
# Debian packages are installed when run as root, else named.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*" >&2; }

# install WHY PACKAGE...: install the packages, or name them and fail.
install() {
    local why=$1
    shift
    if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
        say "$why: install these packages as root: $*"
        return 1
    fi
    say "$why: installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 && return
    # The lists of packages may be missing or old.
    apt-get update -q >/dev/null && apt-get install -y -q --no-install-recommends "$@" >/dev/null
}

# find_python: the newest Python that fits.
find_python() {
    local name
    for name in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11; do
        if [[ -n $name ]] && command -v "$name" >/dev/null &&
            "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

set_up_venv() {
    local python
    if ! python=$(find_python); then
        install "Python 3.11 or later is missing" python3 python3-venv
        python=$(find_python) || { say "Python 3.11 or later is needed; name it in PYTHON"; exit 1; }
    fi
    if [[ ! -x .venv/bin/python ]]; then
        "$python" -c 'import ensurepip' 2>/dev/null || install "Python's venv is missing" python3-venv
        "$python" -m venv .venv
    fi
    say "installing Python packages into .venv"
    .venv/bin/python -m pip install -qq --disable-pip-version-check --no-warn-script-location \
        --constraint constraints.txt --editable '.[dev,fast]'
}

has_font() { command -v fc-list >/dev/null && [[ -n $(fc-list :lang=zh-cn family 2>/dev/null) ]]; }
has_postgres() { compgen -G '/usr/lib/postgresql/*/bin/pg_ctl' >/dev/null || command -v pg_ctl >/dev/null; }

set_up_test() {
    local missing=()
    command -v chromium >/dev/null || missing+=(chromium)
    has_font || missing+=(fonts-noto-cjk fontconfig)
    has_postgres || missing+=(postgresql)
    command -v node >/dev/null || missing+=(nodejs)
    command -v npm >/dev/null || missing+=(npm)
    if [[ ${#missing[@]} -gt 0 ]] && ! install "some tests need more programs" "${missing[@]}"; then
        [[ -z ${HEADWAY_REQUIRE_ALL:-} ]] || exit 1
        say "the tests that need them are left out"
    fi
}

case ${1:-} in
    venv) set_up_venv ;;
    test) set_up_test ;;
    *)
        say "usage: setup.sh venv|test"
        exit 2
        ;;
esac

#!/usr/bin/env bash
# The page's own tests, and whether the committed bundle of third parties is what they make.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# leave_out WHY: say what is not tested; a failure where everything is required.
leave_out() {
    echo "$1" >&2
    [[ -z ${HEADWAY_REQUIRE_ALL:-} ]] || exit 1
}

# install FOLDER: the packages of its lock file, unless they are there already.
install() {
    [[ $1/node_modules/.complete -nt $1/package-lock.json ]] && return
    (cd "$1" && npm ci --silent --no-audit --no-fund --ignore-scripts) && touch "$1/node_modules/.complete"
}

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
    leave_out "node or npm is missing: the page's tests are left out"
    exit
fi
(cd web && node --test --test-reporter=spec test/*.test.mjs)
if install web; then
    (cd web && npm run check --silent)
else
    leave_out "the page's packages cannot be installed: its bundle is not checked"
fi
if [[ -f tests/agui_client/package-lock.json ]]; then
    install tests/agui_client ||
        leave_out "the AG-UI client cannot be installed: its tests are left out"
fi

#!/usr/bin/env bash
# Makes the environment FOLDER in which the tests of the Python package run, unless it is there. Without torch its tests are
# left out.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
stamp=$(cat "$here"/requirements*.txt | sha256sum | cut -c1-16)
[ "$(cat "$1/stamp" 2>/dev/null)" = "$stamp" ] && exit 0
python3 -m venv "$1"
"$1/bin/pip" install -q -r "$here/requirements.txt"
"$1/bin/pip" install -q --retries 1 -r "$here/requirements-torch.txt" ||
    echo "$0: torch could not be installed: its tests are left out" >&2
echo "$stamp" >"$1/stamp"

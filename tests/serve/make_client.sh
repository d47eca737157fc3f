#!/usr/bin/env bash
# Installs OpenAI's and Anthropic's Python clients into the environment FOLDER unless they are there.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
stamp=$(sha256sum "$here/requirements.txt" | cut -c1-16)
[ "$(cat "$1/stamp" 2>/dev/null)" = "$stamp" ] && exit 0
python3 -m venv "$1"
"$1/bin/pip" install -q -r "$here/requirements.txt"
echo "$stamp" >"$1/stamp"

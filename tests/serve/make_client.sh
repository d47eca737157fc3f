#!/usr/bin/env bash
# Installs OpenAI's and Anthropic's Python clients, or the packages of another file, into the environment FOLDER unless they are there.
set -euo pipefail
[ $# -eq 1 ] || [ $# -eq 2 ] || { echo "usage: $0 FOLDER [FILE]" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
packages=$here/${2:-requirements.txt}
stamp=$(sha256sum "$packages" | cut -c1-16)
[ "$(cat "$1/stamp" 2>/dev/null)" = "$stamp" ] && exit 0
python3 -m venv "$1"
"$1/bin/pip" install -q -r "$packages"
echo "$stamp" >"$1/stamp"

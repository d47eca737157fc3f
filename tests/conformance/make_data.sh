#!/usr/bin/env bash
# Makes ONNX's own test cases in FOLDER unless they are there: installs the onnx package into an environment beside it.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
stamp=$(cat "$here/requirements.txt" "$here/make_data.py" | sha256sum | cut -c1-16)
[ "$(cat "$1/stamp" 2>/dev/null)" = "$stamp" ] && exit 0
python3 -m venv "$1.venv"
"$1.venv/bin/pip" install -q -r "$here/requirements.txt"
PYTHONWARNINGS=ignore "$1.venv/bin/python" "$here/make_data.py" "$1"
echo "$stamp" >"$1/stamp"

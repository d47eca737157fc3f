#!/usr/bin/env bash
# Runs a command and succeeds if it does and prints a line that matches.
# usage: expect.sh REGEX COMMAND...
set -euo pipefail
regex=$1
shift
status=0
output=$("$@") || status=$?
printf '%s\n' "$output"
if [ $status != 0 ]; then
    echo "exit code $status, expected 0" >&2
    exit 1
fi
if ! grep -qE -- "$regex" <<<"$output"; then
    echo "no line of the output matches \"$regex\"" >&2
    exit 1
fi

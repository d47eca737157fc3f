#!/usr/bin/env bash
# Installs the packages that building (build), making a Debian package (package), building and testing (test), or both for aarch64
# (aarch64, after test) needs on Debian 12 or Ubuntu 24.04, where they are missing; `libraries` prints those that programs use.
set -euo pipefail

libraries="libc6-dev libcjson-dev libpcre2-dev libutf8proc-dev libhwloc-dev libmicrohttpd-dev libnghttp2-dev libxxhash-dev libprotobuf-c-dev libopenmpi-dev"
build="gcc make cmake ninja-build pkg-config ca-certificates $libraries protobuf-c-compiler openmpi-bin openssh-client"
# openssh-client: mpirun looks for a remote shell even when every rank is local.
packaging="$build dpkg-dev file" # for the dependencies
test="$build g++ libcmocka-dev clang-14 libclang-rt-14-dev clang-format-14 git binutils openssl python3-venv libopenblas0 libedit2"

case "${1:-}" in
build) wanted=$build ;;
package) wanted=$packaging ;;
test) wanted=$test ;;
aarch64) wanted="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static" ;;
libraries) echo "$libraries"; exit ;;
*)
    echo "usage: $0 build|package|test|aarch64|libraries" >&2
    exit 2
    ;;
esac

missing=()
for package in $wanted; do
    if [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]; then
        missing+=("$package")
    fi
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=(env DEBIAN_FRONTEND=noninteractive) # behind sudo, which hands on no variables
if [ "$(id -u)" -ne 0 ]; then
    as_root=(sudo "${as_root[@]}")
fi
echo "installing: ${missing[*]}"
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null

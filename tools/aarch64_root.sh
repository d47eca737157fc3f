#!/usr/bin/env bash
# Makes FOLDER (build/aarch64.root) the root of an aarch64 Debian with the libraries that building and testing need, and installs the
# cross compiler and qemu that cmake/aarch64.cmake names. Runs on Debian for x86-64, as root or with sudo.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$(realpath -m "${1:-build/aarch64.root}")

tools/packages.sh aarch64
[ ! -e "$root/complete" ] || exit 0
apt=$root/apt # a state of its own, so that this machine's packages stay as they are
mkdir -p "$apt"/{lists/partial,cache/archives/partial}
: >"$apt/status"
options=(-qq -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o Dir::State="$apt" -o Dir::State::status="$apt/status"
    -o Dir::Cache="$apt/cache" -o APT::Sandbox::User="$(id -un)")
apt-get "${options[@]}" update
# shellcheck disable=SC2046
apt-get "${options[@]}" install -y --no-install-recommends --download-only libcmocka-dev $(tools/packages.sh libraries)
for package in "$apt"/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$root"
done
rm -r "$apt"
touch "$root/complete"

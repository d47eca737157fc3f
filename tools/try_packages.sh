#!/bin/bash
# Installs a Debian package of Trireme in a bare Debian 12 and a bare Ubuntu 24.04 and runs it there: one rank without Open MPI,
# two ranks, a server. With --demo it also runs tools/demo.sh of this commit in bare systems and installs what that builds.
# Needs root, debootstrap and the network. CTest does not run it.
# usage: tools/try_packages.sh [--demo] [PACKAGE.deb]     TRY_ROOTS: a folder that keeps the bare systems for the next time
set -euo pipefail
cd "$(dirname "$0")/.."
demo=0
if [ "${1:-}" = --demo ]; then
    demo=1
    shift
fi
package=${1:-$(ls build/release/trireme_*.deb)}
[ -f "$package" ] || { echo "$package is no file; make the package first: cpack --config build/release/CPackConfig.cmake -B build/release" >&2; exit 2; }
work=$(mktemp -d)
roots=${TRY_ROOTS:-$work/roots}
mkdir -p "$roots"
trap 'rm -rf "$work"' EXIT
failures=0

# bare NAME SUITE MIRROR COMPONENTS: what debootstrap makes, once.
bare() {
    local script=/usr/share/debootstrap/scripts/$2 keys=()
    [ ! -e "$roots/$1" ] || return 0
    if [ ! -e "$script" ]; then # an older debootstrap; its scripts for Ubuntu are all the same
        script=/usr/share/debootstrap/scripts/gutsy
    fi
    if [ "$2" = noble ] && [ ! -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]; then
        keys=(--no-check-gpg)
    fi
    debootstrap "${keys[@]}" --variant=minbase --components="$4" "$2" "$work/bare" "$3" "$script" >"$work/log" 2>&1 ||
        { tail -n 20 "$work/log" >&2; exit 1; }
    mv "$work/bare" "$roots/$1"
}

# inside ROOT COMMAND: runs a command in a copy of a bare system. Its mounts end with it.
inside() {
    # shellcheck disable=SC2016
    unshare --mount --pid --fork bash -c '
        set -e
        mount --rbind /dev "$0/dev"
        mount -t proc proc "$0/proc"
        exec chroot "$0" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
            DEBIAN_FRONTEND=noninteractive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            bash -euo pipefail -c "$1"' "$@"
}

# try NAME WHAT TEXT COMMAND: the command, in $work/NAME, prints the text.
try() {
    local code=0
    inside "$work/$1" "$4" >"$work/out" 2>"$work/err" || code=$?
    if [ $code = 0 ] && grep -qF -- "$3" "$work/out"; then
        echo "$1: $2: done"
    else
        echo "FAILED: $1: $2: exit code $code: $(tail -n 20 "$work/out" "$work/err")" >&2
        failures=$((failures + 1))
    fi
}

copy() {
    cp -a "$roots/$1" "$work/$1"
    cp -L /etc/resolv.conf "$work/$1/etc/resolv.conf"
}

bare debian12 bookworm http://deb.debian.org/debian main
bare ubuntu2404 noble http://archive.ubuntu.com/ubuntu main,universe
run='trireme run /usr/share/trireme/models/kjv-7m --backend host -p "In the beginning God created" -n 8'
text=" the heaven and the earth."
for name in debian12 ubuntu2404; do
    copy $name
    cp "$package" "$work/$name/root/trireme.deb"
    try $name "install" "Setting up trireme" "apt-get update -qq && apt-get install -y --no-install-recommends /root/trireme.deb"
    try $name "one rank without Open MPI" "$text" "! command -v mpirun && $run"
    try $name "inspect system" '"version"' "trireme inspect system --json"
    try $name "server" '"choices"' "apt-get install -y -qq --no-install-recommends curl >/dev/null
        trireme serve /usr/share/trireme/models/kjv-7m --backend host --port 18765 2>/root/serve.log & server=\$!
        curl -sS --retry 60 --retry-delay 1 --retry-connrefused --retry-all-errors -f http://127.0.0.1:18765/ready
        curl -sS -m 60 http://127.0.0.1:18765/v1/completions -d '{\"prompt\": \"In the beginning\", \"max_tokens\": 4}'
        kill \$server; wait \$server"
    try $name "two ranks" "$text" "apt-get install -y -qq --no-install-recommends openmpi-bin openssh-client >/dev/null
        mpirun --oversubscribe -np 2 $run"
    try $name "remove" "Removing trireme" "apt-get remove -y trireme && ! command -v trireme"
    rm -rf "${work:?}/$name"
done

if [ $demo = 1 ]; then
    for name in debian12 ubuntu2404; do
        copy $name
        mkdir "$work/$name/root/trireme"
        git archive HEAD | tar -x -C "$work/$name/root/trireme"
        try $name "tools/demo.sh" "In the beginning God created the heaven and the earth." "cd /root/trireme && tools/demo.sh"
        try $name "build and install" "$text" "cd /root/trireme && cmake --preset release && cmake --build build/release &&
            cmake --install build/release --prefix /usr/local && ldconfig
            cd / && trireme run /usr/local/share/trireme/models/kjv-7m --backend host -p 'In the beginning God created' -n 8"
        rm -rf "${work:?}/$name"
    done
fi
exit $((failures > 0))

#!/usr/bin/env bash
# Sets everything up and runs the shipped model over two ranks: on GPUs where there are at least two, else on the host.
# Arguments are passed on: tools/demo.sh -p "The LORD is my shepherd" -n 100
set -euo pipefail
cd "$(dirname "$0")/.."

tools/packages.sh build
architectures=(-DTRM_CUDA_ARCHITECTURES='80-virtual;90a-real') # the default takes several times as long
if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU'; then
    architectures=(-DTRM_CUDA_ARCHITECTURES=native)
fi
cmake --preset release "${architectures[@]}" >build-release.log 2>&1 || { cat build-release.log >&2; exit 1; }
cmake --build build/release --target trireme trireme_manual trireme_sbom >>build-release.log 2>&1 || { tail -n 40 build-release.log >&2; exit 1; }
rm -f build-release.log

backend=host
if command -v nvidia-smi >/dev/null && [ "$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')" -ge 2 ]; then
    backend=auto
fi
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
[ $# -gt 0 ] || set -- -p "In the beginning God created" -n 120 --echo
set -x
mpirun --oversubscribe -np 2 build/release/trireme run configs/models/kjv-7m --backend $backend "$@"

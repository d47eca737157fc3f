#!/usr/bin/env bash
# Installs what the tests need, builds everything with warnings as errors, and runs every test that needs no GPU: the release
# build (with CUDA kernels compiled where there is nvcc), the host tests again under ASan and UBSan, those of threads that load
# and stream weights under TSan, and some for aarch64 under qemu.
# TRM_TEST_JOBS sets how many build and test jobs run at once (default: one for each processor and 2 GiB of free memory; of tests,
# many of which wait for others, twice as many where there is memory for them).
set -euo pipefail
cd "$(dirname "$0")/.."

processors=$(nproc)
pairs=$(awk '/^MemAvailable:/ { print int($2 / 2097152) }' /proc/meminfo) # of GiB
fitting() { echo $((pairs < 1 ? 1 : pairs < $1 ? pairs : $1)); }
jobs=${TRM_TEST_JOBS:-$(fitting "$processors")}
tests=${TRM_TEST_JOBS:-$(fitting $((processors * 2)))}
tools/packages.sh test
tests/conformance/make_data.sh build/onnx_data ||
    echo "tools/test.sh: ONNX's own test cases could not be made (PyPI not reached?): their tests are left out" >&2
tests/serve/make_client.sh build/openai.venv ||
    echo "tools/test.sh: OpenAI's client could not be installed (PyPI not reached?): the server's tests are left out" >&2
tests/serve/make_client.sh build/triton.venv requirements-triton.txt ||
    echo "tools/test.sh: tritonclient could not be installed (PyPI not reached?): tests of served networks are left out" >&2
tests/python/make_venv.sh build/python.venv ||
    echo "tools/test.sh: the Python package's test environment could not be made (PyPI not reached?): its tests are left out" >&2
command -v chromium chromium-browser google-chrome >/dev/null ||
    echo "tools/test.sh: Chromium is not installed: the tests of the server's page are left out" >&2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

for preset in test asan; do
    echo "== $preset"
    cmake --preset $preset
    cmake --build build/$preset -j "$jobs"
done

echo "== tsan"
cmake --preset tsan
cmake --build build/tsan -j "$jobs" --target api_test_recorder offload_test_cpu_offload runtime_test_load runtime_test_prepare offload_test_streaming offload_test_streaming_memory weight_stream_test_ring

aarch64=0
if tools/aarch64_root.sh; then
    aarch64=1
    echo "== aarch64"
    cmake --preset aarch64
    cmake --build build/aarch64 -j "$jobs" --target trireme base_test_half base_test_pool kernels_test_codec kernels_test_fused kernels_test_gemm kernels_test_host_kernels kernels_test_sample
else
    echo "tools/test.sh: the libraries or tools for aarch64 could not be installed (Debian for x86-64?): its tests are left out" >&2
fi

# ThreadSanitizer of older compilers cannot have addresses as random as newer kernels make them.
fixed=()
setarch "$(uname -m)" -R true 2>/dev/null && fixed=(setarch "$(uname -m)" -R)

failed=0
"${fixed[@]}" ctest --test-dir build/tsan -R '^(api/test_recorder|offload/test_cpu_offload|runtime/test_load|runtime/test_prepare|offload/test_streaming(_memory)?|weight_stream/test_ring)$' -j "$tests" --output-on-failure || failed=1
if [ $aarch64 = 1 ]; then
    echo "== tests of build/aarch64"
    TRM_TEST_BRIEF=1 ctest --test-dir build/aarch64 -R '^(base/test_(half|pool)|kernels/test_(codec|fused|gemm|sample|host_kernels/(matmul|recurrent)/none))$' -j "$tests" --output-on-failure || failed=1
    qemu-aarch64-static -L build/aarch64.root build/aarch64/trireme run configs/models/kjv-7m --backend host -p "In the beginning God created" -n 8 |
        grep -F " the heaven and the earth." || failed=1
fi
for preset in asan test; do
    echo "== tests of build/$preset"
    ctest --test-dir build/$preset -j "$tests" --output-on-failure || failed=1
done
exit $failed

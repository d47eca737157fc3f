#!/usr/bin/env bash
# Gathers what a GPU machine without our build dependencies needs: the GPU test programs, trireme and conformance_onnx if they are built, and
# the shared libraries they load, but for those of the C and C++ runtimes, Open MPI, hwloc and CUDA.
#
#   tools/bundle_gpu.sh BUILD_FOLDER TO_FOLDER [LIMIT_MIB] [--pack]
#
# There: tests/gpu/run.sh TO_FOLDER, or LD_LIBRARY_PATH=TO_FOLDER/lib TO_FOLDER/bin/trireme. --pack leaves in the folder
# a packed file, what unpacks it, and unpack.sh, which there makes the folder whole again: programs have most of their
# bytes in common, so a long window packs them to a fiftieth. Fails if what is made is larger than the limit (64 MiB).
set -eu

[ $# -ge 2 ] || { sed -n '5p' "$0" | sed 's/^# */usage: /' >&2; exit 2; }
build=$1
to=$2
shift 2
limit=64
pack=
while [ $# -gt 0 ]; do
    case $1 in
    [0-9]*) limit=$1 ;;
    --pack) pack=1 ;;
    *) echo "unknown option $1" >&2 && exit 2 ;;
    esac
    shift
done
there='^(ld-linux.*|linux-vdso.*|lib(c|m|dl|rt|pthread|resolv|util|gcc_s|stdc\+\+|mpi|open-rte|open-pal|hwloc|cuda|cudart|cublas.*|nccl|z)\.so.*)$'

rm -rf "$to/tests" "$to/bin" "$to/lib"
mkdir -p "$to/tests" "$to/lib"
mapfile -t either <"$(dirname "$0")/../tests/gpu/programs.txt"
for program in "$build"/tests/*gpu_* "${either[@]/#/$build/tests/}" "$build"/tests/parallel/parallel_failing_rank; do
    [ -f "$program" ] && [ -x "$program" ] && strip -o "$to/tests/$(basename "$program")" "$program"
done
for library in "$build"/tests/plugin/*.so; do # that plugin_* load
    [ -f "$library" ] && mkdir -p "$to/tests/plugin" && strip --strip-unneeded -o "$to/tests/plugin/$(basename "$library")" "$library"
done
for program in "$build/trireme" "$build/tests/conformance/conformance_onnx"; do
    if [ -x "$program" ]; then
        mkdir -p "$to/bin"
        strip -o "$to/bin/$(basename "$program")" "$program"
    fi
done
[ -n "$(ls "$to/tests")" ] || { echo "$build/tests has no GPU test program" >&2; exit 1; }

# Follows what each file says it needs, not what ldd lists: the libraries of Open MPI's own libraries are there, too.
waiting=("$to"/tests/* "$to"/bin/*)
while [ ${#waiting[@]} -gt 0 ]; do
    file=${waiting[0]}
    waiting=("${waiting[@]:1}")
    [ -f "$file" ] || continue
    for name in $(objdump -p "$file" | awk '$1 == "NEEDED" {print $2}'); do
        [[ $name =~ $there ]] || [ -e "$to/lib/$name" ] && continue
        path=$(ldd "$file" | awk -v name="$name" '$1 == name && $3 ~ /^\// {print $3; exit}')
        [ -n "$path" ] || { echo "$file needs $name, which was not found" >&2; exit 1; }
        strip --strip-unneeded -o "$to/lib/$name" "$path"
        waiting+=("$path")
    done
done

du -sh "$to"/* | sort -rh
if [ -n "$pack" ]; then
    tar -C "$to" -cf - . | zstd -q -T0 -12 --long=31 -o "$to.pack"
    rm -rf "$to"
    mkdir -p "$to/zstd"
    mv "$to.pack" "$to/pack.tar.zst"
    zstd=$(command -v zstd)
    cp "$zstd" "$to/zstd/"
    ldd "$zstd" | awk '$3 ~ /^\// && $1 !~ /^libc\./ {print $3}' | xargs -I{} cp {} "$to/zstd/"
    cat >"$to/unpack.sh" <<'END'
#!/bin/sh
# Unpacks the folder it lies in.
set -e
cd "$(dirname "$0")"
LD_LIBRARY_PATH=$PWD/zstd zstd/zstd -q -d --long=31 -c pack.tar.zst | tar -xf -
rm pack.tar.zst
END
    chmod +x "$to/unpack.sh"
fi
size=$(du -sm "$to" | cut -f1)
echo "$to: $size MiB"
if [ "$size" -gt "$limit" ]; then
    echo "$to takes $size MiB, more than $limit" >&2
    exit 1
fi

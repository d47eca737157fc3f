#!/usr/bin/env bash
# Makes a wheel with libtrireme and the libraries that it can carry: all that libtrireme is linked with, except those that
# belong to the machine (hwloc, the C library). Needs the Python packages build and setuptools (70.1 or newer).
# usage: make_wheel.sh libtrireme.so FOLDER
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 libtrireme.so FOLDER" >&2; exit 2; }
here=$(dirname "$(realpath "$0")")
library=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
python=${PYTHON:-python3}
"$python" -c 'import build, setuptools' || { echo "$0: install build and setuptools for $python" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$here"/{pyproject.toml,setup.py,README.md,trireme} "$work"
find "$work" -name __pycache__ -prune -exec rm -rf {} +
lib=$work/trireme/lib
mkdir -p "$lib/licenses"
cp "$here/../LICENSE" "$lib/licenses/trireme"

soname() { readelf -d "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p'; }
strip -o "$lib/$(soname "$library")" "$library"
while read -r needed; do
    case $needed in
    libhwloc.* | libc.* | libm.* | libdl.* | libpthread.* | librt.* | libgcc_s.* | ld-linux*) continue ;;
    esac
    found=$(ldd "$library" | awk -v name="$needed" '$1 == name { print $3 }')
    cp -L "$found" "$lib/$needed"
    package=$({ dpkg-query -S "$(realpath "$found")" || dpkg-query -S "$found"; } 2>/dev/null | head -1 | cut -d: -f1)
    cp "/usr/share/doc/$package/copyright" "$lib/licenses/${needed%%.so*}" ||
        echo "$0: there is no license of $needed to carry along" >&2
done < <(readelf -d "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
chmod 755 "$lib"/*.so*

"$python" -m build --wheel --no-isolation --outdir "$folder" "$work" >"$work/build.log" 2>&1 || { cat "$work/build.log" >&2; exit 1; }
ls "$folder"/trireme-*.whl

#!/usr/bin/env bash
# Installs a build into a temporary prefix, moves that elsewhere, and builds programs against it: by find_package, by
# pkg-config with a plain compiler, in C and in C++. Runs each.
# usage: consumer.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
here=$(dirname "$(realpath "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cmake --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix"
prefix=$work/prefix
doc=$(find "$prefix" -type d -path '*/doc/trireme')
pc=$(find "$prefix" -name trireme.pc)
library=$(dirname "$(find "$prefix" -name libtrireme.so)")
export PKG_CONFIG_PATH=${pc%/*}

for file in bin/trireme include/trireme/trireme.h share/bash-completion/completions/trireme share/fish/vendor_completions.d/trireme.fish; do
    [ -s "$prefix/$file" ] || { echo "$file is not installed" >&2; exit 1; }
done
[ -s "$doc/LICENSE" ] && [ -L "$library/libtrireme.so" ]
cmp "$doc/examples/network.c" "$here/../../docs/examples/network.c"
grep -q 'max.-tokens' "$prefix/share/man/man1/trireme.1" || { echo "the manual page has no options" >&2; exit 1; }

# find_package
version=$(pkg-config --modversion trireme)
cmake -S "$here/consumer" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DTRM_VERSION="$version" -DTRM_EXAMPLE="$doc/examples/network.c" >"$work/cmake.log" ||
    { cat "$work/cmake.log" >&2; exit 1; }
grep -q "^trireme_DIR:PATH=$prefix/" "$work/cmake/CMakeCache.txt"
cmake --build "$work/cmake" >"$work/build.log" || { cat "$work/build.log" >&2; exit 1; }
"$work/cmake/network" | grep 'equal$'
"$work/cmake/consumer_cxx" "$version"

# pkg-config
flags=(-Wall -Wextra -Werror)
# shellcheck disable=SC2046
${CC:-cc} -std=c17 "${flags[@]}" "$doc/examples/network.c" -o "$work/network" $(pkg-config --cflags --libs trireme) -lm
# shellcheck disable=SC2046
${CXX:-c++} -std=c++17 "${flags[@]}" "$here/consumer/main.cc" -o "$work/consumer_cxx" $(pkg-config --cflags --libs trireme)
LD_LIBRARY_PATH=$library "$work/network" | grep 'equal$'
LD_LIBRARY_PATH=$library "$work/consumer_cxx" "$version"

"$prefix/bin/trireme" --version | grep -F "$version"

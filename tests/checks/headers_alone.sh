#!/usr/bin/env bash
# Whether every public header compiles alone, as C17 and as C++17, without a warning.
set -euo pipefail
cd "$(dirname "$0")/../.."
for header in include/trireme/*.h include/trireme/layers/*.h; do
    echo "$header"
    ${CC:-cc} -std=c17 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c "$header"
    ${CXX:-c++} -std=c++17 -Wall -Wextra -Wpedantic -Werror -Iinclude -fsyntax-only -x c++ "$header"
done

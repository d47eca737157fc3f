#!/usr/bin/env bash
# Whether python/trireme/_c.py is what python/generate.py makes of include/trireme.
set -euo pipefail
exec python3 "$(dirname "$0")/../../python/generate.py" --check

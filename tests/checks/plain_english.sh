#!/usr/bin/env bash
# Whether prose is plain: refuses idioms that make a reader stop. FOLDERS and FILES name what is searched.
set -euo pipefail
cd "$(dirname "$0")/../.."

FOLDERS=(README.md docs)
FILES=('*.md' '*.1')
idioms='\b(is|are|was|were) told\b|\bbut for\b|\bso many of\b|\bwhat is of\b|\bthere is none\b|\bthat are not supported\b'
idioms+='|\bpassed over\b|\bas it comes\b'

if grep -rnIiE "$idioms" "${FILES[@]/#/--include=}" "${FOLDERS[@]}"; then
    echo "say it in plain words"
    exit 1
fi

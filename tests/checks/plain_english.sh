#!/usr/bin/env bash
# Whether prose is plain: refuses idioms that make a reader stop, in the pages, and in strings and comments of the rooms
# named in CODE.
set -euo pipefail
cd "$(dirname "$0")/../.."

PAGES=(README.md CONTRIBUTING.md SECURITY.md docs)
CODE=(include base dist weight_stream collectives attention kernels graph launcher tests)

idioms='\b(is|are|was|were) told\b|\bbut for\b|\bso many of\b|\bwhat is of\b|\bwhere there is none\b|\bthat are not supported\b'
idioms+='|\bpassed over\b|\bas it comes\b'
# Phrases with spaces, so that no name in code matches.
coded='|\bbe told\b|\bso many\b|\bone behind the other\b|\ba wait in vain\b|\bthought to\b|\b(is|are|not) looked at\b'
coded+='|\bat need\b|\bwhere there (is one|are none)\b|\bwhere it is (none|absent|not known|not there)\b'
coded+='|\bunder way\b|\bprocessors (compute|run|read|take)\b|: there (is|are) none$|\bof what does not stay\b'

bad=0
grep -rnIiE --include='*.md' --include='*.1' "$idioms|\bthere is none\b" "${PAGES[@]}" && bad=1
grep -rnIiE --include='*.[ch]' --include='*.cu' --include='*.cuh' "$idioms$coded" "${CODE[@]}" && bad=1
[ $bad = 0 ] || echo "say it in plain words"
exit $bad

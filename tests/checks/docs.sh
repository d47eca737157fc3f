#!/usr/bin/env bash
# Whether the documentation holds together without mkdocs: relative links lead to files, every page is in the navigation, the
# options page has every option, and no page about a room is too long to read.
set -euo pipefail
cd "$(dirname "$0")/../.."

bad=0
complain() {
    echo "$1"
    bad=1
}

# [text](target) of all pages; a target is relative to its page, and what follows # is a heading of it
while IFS=: read -r page line link; do
    target=${link#*](}
    target=${target%)}
    case "$target" in http://* | https://* | mailto:*) continue ;; esac
    file=${target%%#*}
    [ -z "$file" ] && file=$page || file=$(dirname "$page")/$file
    [ -e "$file" ] || { complain "$page:$line: there is no $target" && continue; }
    case "$page" in docs/*)
        case "$(realpath -m --relative-to=. "$file")" in docs/*) ;; *) complain "$page:$line: $target is outside of docs" ;; esac
        ;;
    esac
    case "$target" in *#*)
        headings=$(grep -E '^#+ ' "$file" | sed -E 's/^#+ //; s/`//g' | tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/[ -]+/-/g')
        grep -qxF -- "${target#*#}" <<<"$headings" || complain "$page:$line: no heading for $target"
        ;;
    esac
done < <(grep -rnoE --include='*.md' '\[[^]]*\]\([^) ]+\)' README.md CONTRIBUTING.md SECURITY.md docs | sort -u)

while read -r page; do
    grep -qF "${page#docs/}" mkdocs.yml || complain "$page is not in the navigation of mkdocs.yml"
done < <(find docs -name '*.md')

diff <(grep -E '^\| `-' docs/reference/options.md | cut -d'|' -f2 | grep -oE -- '--[a-z][a-z0-9-]+' | sort -u) \
    <(grep '^SETTING(' launcher/cli/settings/settings.def | grep -v ', SERVE_WORKER,' | sed -E 's/[^"]*"([^"]*)".*/--\1/' | sort -u) ||
    complain "docs/reference/options.md (<) and launcher/cli/settings/settings.def (>) have different options"

for page in docs/internals/*.md; do
    [ "$(wc -l <"$page")" -lt 200 ] || complain "$page has 200 lines or more"
done
[ "$(wc -l <README.md)" -le 150 ] || complain "README.md has more than 150 lines"
exit $bad

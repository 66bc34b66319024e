#!/usr/bin/env bash
# All pages as one site to browse and search: build/site/html/index.html, readable from the disk. Made by Sphinx with MyST
# and the theme furo, from PyPI, in an environment of its own. A link that leads nowhere is an error. Where the site is there,
# `cmake --install` and the Debian package have it as share/doc/rlk/html.
#
#   packaging/site.sh                  the pages that build/release installs; builds rlk-plugins, which writes the operators'
#   packaging/site.sh --build FOLDER   those of a build that is done
#
# PYTHON names another interpreter than python3, RLK_SITE_FOLDER another folder than build/site. Ends with 77 when pip
# cannot fetch the tools.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${RLK_SITE_FOLDER:-$PWD/build/site} build=
case $#:${1-} in
  0:) ;;
  2:--build) build=$2 ;;
  *) echo "usage: site.sh [--build FOLDER], not '$*'" >&2; exit 2 ;;
esac
mkdir -p "$work"
tools=$work/tools pages=$work/pages
if ! [ -e "$tools/complete" ]; then
  "${PYTHON:-python3}" -m venv --clear "$tools" ||
    { echo "site: python3 -m venv does not work here; run packaging/install-deps.sh" >&2; exit 1; }
  "$tools/bin/pip" install --quiet --disable-pip-version-check 'sphinx>=8' 'myst-parser>=4' furo ||
    { echo "site: pip cannot fetch sphinx, myst-parser and furo" >&2; exit 77; }
  touch "$tools/complete"
fi
if [ -z "$build" ]; then
  build=build/release
  cmake --preset release > "$work/configure.log" || { tail -n 40 "$work/configure.log" >&2; exit 1; }
  cmake --build "$build" --target rlk-plugins
fi

rm -rf "$pages" "$work/html" "$work/unfinished"
cmake --install "$build" --prefix "$work/prefix" --component pages > "$work/install.log"
mv "$work/prefix/share/doc/rlk" "$pages"
mv "$pages/README.md" "$pages/index.md"
# The contents beside each page. What is listed nowhere is an error too.
contents() { printf '\n```{toctree}\n:hidden:\n:glob:\n:caption: %s\n\n' "$1"; printf '%s\n' "${@:2}" '```'; }
{
  contents Guides docs/cluster docs/vendor docs/python packaging/python/rlk/integrations/README docs/cpp
  contents Reference docs/operators operators/README plugin_api/ops/README docs/abi
  contents Hardware plugins/SUPPORT plugins/REPORTS 'plugins/*/README' bench/README
  contents "Work on rlk" CONTRIBUTING docs/decisions/README core/cpu/README tests/mutants/README tests/fakes/runtime/README CHANGELOG
} >> "$pages/index.md"
contents Operators '[a-z]*' >> "$pages/operators/README.md"
contents Decisions '[0-9]*' >> "$pages/docs/decisions/README.md"
"$tools/bin/sphinx-build" -q -W --keep-going -c packaging/site -d "$work/doctrees" -b html "$pages" "$work/unfinished"
# What is left is for Sphinx itself: how it was called, and the sources' folder, which is empty.
rm -rf "$work/unfinished/.buildinfo" "$work/unfinished/_sources"
# Whose scripts and styles are in it, as their licences ask.
for tool in sphinx furo sphinx_basic_ng pygments snowballstemmer; do
  text=$(find "$tools"/lib/python3*/site-packages/"$tool"-*.dist-info \( -name 'LICENSE*' -o -name COPYING \) -exec cat {} +)
  [ -n "$text" ] || { echo "site: $tool was installed without the text of its licence" >&2; exit 1; }
  printf '== %s\n\n%s\n\n' "$tool" "$text"
done > "$work/unfinished/_static/LICENSES.txt"
mv "$work/unfinished" "$work/html"  # so that an installation has all of it or none
echo "$work/html/index.html"

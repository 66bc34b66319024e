#!/usr/bin/env bash
# The Python of the Python tests: a virtual environment with torch and the trainers that rlk serves, from PyPI. Prints the
# path of its interpreter.
#
# It is kept outside the clone, in RLK_TEST_VENV (~/.cache/rlk/test-python by default), and used again for a week while
# tests/python/requirements.txt is the same: the tests are to meet the newest of each package. Some 8 GB; two minutes on
# a good connection. Without one it ends with 77, or with 1 where CI is set.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${RLK_TEST_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/rlk/test-python}
wanted=tests/python/requirements.txt stamp=$venv/complete
alone=(verl openrlhf)  # without what they ask for: requirements.txt says why

fresh() { [ -e "$stamp" ] && cmp -s "$wanted" "$stamp" && [ -n "$(find "$stamp" -mtime -7)" ]; }
fetch() {
  rm -rf "$venv" && mkdir -p "$(dirname "$venv")" && python3 -m venv "$venv" &&
    "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$wanted" &&
    "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "${alone[@]}"
}
if ! fresh; then
  if ! fetch >&2; then
    echo "test-python: pip cannot fetch what $wanted names; the tests that need it are skipped, or fail where CI is set" >&2
    [ -n "${CI-}" ] && exit 1 || exit 77
  fi
  cp "$wanted" "$stamp"
fi
echo "$venv/bin/python"

#!/usr/bin/env bash
# Installs what building rlk needs on Debian 12 (and its kin), as root or through sudo. Does nothing when all is there.
#
#   packaging/install-deps.sh            to build, test and use
#   packaging/install-deps.sh --tools    also to check the code: clang, clang-format, clang-tidy
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkg-config git
  python3 python3-venv python3-numpy python3-pytest python3-jsonschema
  libtbb-dev libhwy-dev libboost-dev libboost-program-options-dev libspdlog-dev libfmt-dev
  libtomlplusplus-dev nlohmann-json3-dev libxxhash-dev libgtest-dev libbenchmark-dev
)
case ${1:-} in
  "") ;;
  --tools) packages+=(clang clang-format-14 clang-tidy-14) ;;
  *) echo "install-deps: unknown argument '$1'; known is --tools" >&2; exit 2 ;;
esac

if ! command -v apt-get > /dev/null || ! command -v dpkg-query > /dev/null; then
  echo "install-deps: this is not a Debian system; install the equivalents of: ${packages[*]}" >&2
  exit 1
fi
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null || { echo "install-deps: run as root: apt-get install ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
log=$(mktemp)
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=120 "$@" >> "$log" 2>&1
}
echo "install-deps: installing ${missing[*]}"
if ! apt update || ! apt install --no-install-recommends "${missing[@]}"; then
  why=$(grep -m 1 '^E:' "$log" || tail -n 1 "$log")
  echo "install-deps: apt-get failed to install ${missing[*]}: $why (log: $log)" >&2
  exit 1
fi
rm -f "$log"

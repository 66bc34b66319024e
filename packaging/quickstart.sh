#!/usr/bin/env bash
# From a fresh Debian 12 to a verified vendor plugin: builds rlk, installs it into a folder, builds a plugin outside the
# tree with nothing but the installed package, drops it in, and runs logp forward and backward on the CPU and on the
# plugin. Everything is written to build/release, build/install and build/quickstart; the second time takes seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/build/quickstart prefix=$PWD/build/install
step() { printf '\n== %s\n' "$*"; }

packaging/install-deps.sh

step "build and install rlk"
cmake --preset release > "$(mkdir -p "$work" && echo "$work")/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build build/release --target rlk rlk-plugins rlk-prober rlk_plugin_cuda rlk_plugin_ascend
cmake --install build/release > "$work/install.log"
echo "installed into $prefix"

step "build a plugin outside the tree"
mkdir -p "$work/golden"
cp -u tests/plugins/golden/* "$work/golden/"
cmake -G Ninja -S "$work/golden" -B "$work/golden/build" -DCMAKE_PREFIX_PATH="$prefix" > "$work/plugin.log"
cmake --build "$work/golden/build"

step "rlk-plugins list"
export PATH=$prefix/bin:$PATH RLK_ADD_PLUGIN_PATH=$work/golden/build RLK_CACHE_DIR=$work/cache
rlk-plugins list

step "logp and its gradient on the cpu and on the plugin"
cd "$work"
python3 "$OLDPWD/packaging/quickstart.py" make
for backend in cpu golden; do
  rlk-plugins run logp --backend "$backend" --input logits=logits.npy --input ids=ids.npy \
    --output logp=logp_$backend.npy --output lse=lse_$backend.npy
  rlk-plugins run logp_backward --backend "$backend" --input logits=logits.npy --input ids=ids.npy \
    --input lse=lse_$backend.npy --input grad_logp=grad_logp.npy --output grad_logits=grad_logits_$backend.npy
done
python3 "$OLDPWD/packaging/quickstart.py" compare logp lse grad_logits

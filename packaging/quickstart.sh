#!/usr/bin/env bash
# From a fresh Debian 12 to a verified vendor plugin: builds rlk, installs it into a folder, builds a plugin outside the
# tree with nothing but the installed package, drops it in, and runs logp forward and backward on the CPU and on the
# plugin; then one GRPO step, by a command and by a program in C++. Everything is written to build/release,
# build/install and build/quickstart; the second time takes seconds.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/build/quickstart prefix=$PWD/build/install
step() { printf '\n== %s\n' "$*"; }

packaging/install-deps.sh

step "build and install rlk"
cmake --preset release > "$(mkdir -p "$work" && echo "$work")/configure.log" || { cat "$work/configure.log"; exit 1; }
cmake --build build/release --target rlk rlk-plugins rlk-prober rlk_plugin_{cuda,rocm,maca,ascend,cambricon,fault}
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
house=$PWD
cd "$work"
mkdir -p cpu golden command program
python3 "$house/packaging/quickstart.py" make
for backend in cpu golden; do
  rlk-plugins run logp --backend "$backend" --input logits=logits.npy --input ids=ids.npy \
    --output logp=$backend/logp.npy --output lse=$backend/lse.npy
  rlk-plugins run logp_backward --backend "$backend" --input logits=logits.npy --input ids=ids.npy \
    --input lse=$backend/lse.npy --input grad_logp=grad_logp.npy --output grad_logits=$backend/grad_logits.npy
done
python3 "$house/packaging/quickstart.py" compare cpu golden logp lse grad_logits

step "one GRPO step, by a command and by a program in C++"
cmake -G Ninja -S "$house/examples" -B examples -DCMAKE_PREFIX_PATH="$prefix" > examples.log
cmake --build examples
python3 "$house/examples/make_batch.py" batch
tensors=(--input logits=batch/logits.npy --input ids=batch/ids.npy --input old_logp=batch/old_logp.npy
  --input rewards=batch/rewards.npy --input mask=batch/mask.npy)
parameters=(--param samples_per_prompt=4 --param beta=0.04)
rlk-plugins run grpo_loss "${tensors[@]}" --input ref_logits=batch/ref_logits.npy "${parameters[@]}" \
  --output loss=command/loss.npy --output lse=command/lse.npy --output ref_logp=command/ref_logp.npy
rlk-plugins run grpo_loss_backward "${tensors[@]}" --input lse=command/lse.npy --input ref_logp=command/ref_logp.npy \
  --input grad_loss=batch/grad_loss.npy "${parameters[@]}" --output grad_logits=command/grad_logits.npy
examples/grpo_step batch
mv batch/loss.npy batch/grad_logits.npy program
python3 "$house/packaging/quickstart.py" compare command program loss grad_logits

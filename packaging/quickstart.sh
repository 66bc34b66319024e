#!/usr/bin/env bash
# From a fresh Debian 12 to a verified vendor plugin: builds rlk, installs it into a folder, builds a plugin outside the
# tree with nothing but the installed package, drops it in, and runs logp forward and backward on the CPU and on the
# plugin; then one GRPO step, by a command and by a program in C++. Everything is written to build/quick, build/install
# and build/quickstart; the second time takes seconds. A build/release that is there is installed instead.
#
# What is built is for this machine: the CPU kernels for its processor alone, and the plugins of the vendors whose devices
# are here. RLK_VENDORS="cuda;rocm" names others; a wheel and a package have all of it (preset release).
set -euo pipefail
cd "$(dirname "$0")/.."
work=$PWD/build/quickstart prefix=$PWD/build/install
step() { printf '\n== %s\n' "$*"; }

packaging/install-deps.sh

step "build and install rlk"
mkdir -p "$work"
if [ -e build/release/lib/librlk.so ]; then
  build=build/release
else
  build=build/quick
  if [ -z "${RLK_VENDORS+set}" ]; then
    RLK_VENDORS=
    for pair in cuda:nvidiactl cuda:dxg rocm:kfd maca:mxcd ascend:davinci cambricon:cambricon_dev; do
      [[ $RLK_VENDORS == *"${pair%%:*};"* ]] || ! compgen -G "/dev/${pair#*:}*" > /dev/null || RLK_VENDORS+="${pair%%:*};"
    done
  fi
  echo "vendors' plugins: ${RLK_VENDORS:-none, for there is no device of theirs here}"
  cmake --preset quick -D "RLK_VENDORS=${RLK_VENDORS%;}" > "$work/configure.log" || { cat "$work/configure.log"; exit 1; }
  cmake --build "$build"
fi
cmake --install "$build" --prefix "$prefix" > "$work/install.log"
echo "installed $build into $prefix"

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

#!/usr/bin/env bash
# Tries the plugin of this kit on the card of this machine and makes one file of what it finds: send that.
#
#   check.sh [--full] [--op OPERATOR]
#
# --full: all shapes and pairs of features, up to hours; --op: one operator alone. The file is made in the folder that
# this is called from; read it before you send it: it has the devices' names, versions and paths, and nothing else.
# Exits 1 where a unit failed or nothing could be tried.
set -uo pipefail
kit=$(cd "$(dirname "$0")" && pwd)
vendor=$(cat "$kit/vendor")
only=() operators=(silu softmax rms_norm logp policy_loss) full=()
while [ $# -gt 0 ]; do
  case $1 in
    --full) full=(--full) ;;
    --op) only=(--op "${2:?--op wants an operator}") operators=("$2"); shift ;;
    *) echo "usage: check.sh [--full] [--op OPERATOR], not '$1'" >&2; exit 2 ;;
  esac
  shift
done
rlk=$kit/bin/rlk-plugins
# The machine's own libraries where they do, since the vendor's may need newer ones than the kit has.
if ! "$rlk" --version > /dev/null 2>&1; then
  export LD_LIBRARY_PATH=$kit/own${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  if ! "$rlk" --version > /dev/null; then
    echo "check.sh: $rlk does not start on this machine; what it said is above" >&2
    exit 1
  fi
fi
name=rlk-report-$vendor-$(date +%Y%m%d-%H%M%S)
out=$PWD/$name
mkdir -p "$out"
export RLK_PLUGIN_PATH=$kit/$(cat "$kit/plugins") RLK_CACHE_DIR=$out/cache
plugin=$RLK_PLUGIN_PATH/librlk_plugin_$vendor.so

# step FILE COMMAND...: what it prints, in a file, and the last line of that here.
step() {
  local file=$out/$1 status=0
  shift
  "$@" > "$file" 2>&1 || status=$?
  printf '%-18s exit %d  %s\n' "$(basename "$file")" "$status" "$(tail -n 1 "$file")"
  return "$status"
}
{ "$rlk" --version; uname -srm; } > "$out/machine.txt"
step doctor.txt "$rlk" doctor
status=0
# A report is of all operators, and so is what the loader verifies for scope.
report=(--report "$out/report.json")
if [ ${#only[@]} -gt 0 ]; then report=(); fi
step conformance.txt "$rlk" conformance "$plugin" --require-cases ${report[@]+"${report[@]}"} ${full[@]+"${full[@]}"} \
  ${only[@]+"${only[@]}"} || status=1
if [ ${#only[@]} -eq 0 ]; then
  step probe.txt "$rlk" probe "$vendor"
  step scope.txt "$rlk" scope "$vendor"
  step checklist.md "$rlk" scope "$vendor" --template
fi
for operator in "${operators[@]}"; do
  step "bench_$operator.txt" "$rlk" bench "$operator" --dtype f32 --backend "$vendor" --seconds 0.3
done
step list.txt "$rlk" list
rm -rf "$out/cache"
tar -C "$(dirname "$out")" -czf "$out.tar.gz" "$name" && rm -rf "$out"
echo "send $out.tar.gz (see plugins/REPORTS.md of the source tree)"
exit $status

#!/usr/bin/env bash
# What this machine can check, from a clean clone, as root or a user: formatting, generated files, the release build with
# its tests, Python's with torch and the trainers (test-python.sh), the site of the pages, the quickstart, clang-tidy on what
# changed, and parts by clang under AddressSanitizer + UndefinedBehaviorSanitizer and under ThreadSanitizer.
#
#   packaging/test.sh          all of that
#   packaging/test.sh --all    also clang's warnings for the rest but tests, the whole tree by the newest g++-N beside the
#                              default one, and the long tests (RLK_TEST_LONG): some hours
#
# Warnings are errors in all of it. Logs are in build/test; the last line is `N passed, N failed`, where a stage that is
# not a set of tests counts as one. Before it the twenty longest tests. Each stage says how long it took, and how long
# all processors together.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
case $#:${1-} in
  0:) all= ;;
  1:--all) all=1; export RLK_TEST_LONG=1 ;;
  *) echo "usage: test.sh [--all], not '$*'" >&2; exit 2 ;;
esac
logs=$PWD/build/test
mkdir -p "$logs"
passed=0 failed=0 spent=0 broken=()

# Sets `spent` to the seconds of processor time of all that has ended so far.
processor() {
  times > "$logs/times"  # not in a pipe, whose processes have children of their own
  spent=$(awk -F '[ms ]' 'NR == 2 { printf "%d", 60 * ($1 + $4) + $2 + $5 }' "$logs/times")
}

# stage NAME COMMAND...: runs it, its output in a log; shows the end of the log when it fails.
stage() {
  local name=$1 start=$SECONDS log=$logs/${1// /_}.log status=0 tests before
  processor
  before=$spent
  shift
  "$@" > "$log" 2>&1 || status=$?
  processor
  # ctest's own summary, if there is one.
  tests=$(sed -nE 's/^[0-9]+% tests passed, ([0-9]+) tests failed out of ([0-9]+)$/\1 \2/p' "$log" | tail -n 1)
  if [ -n "$tests" ]; then
    passed=$((passed + ${tests#* } - ${tests% *})) failed=$((failed + ${tests% *}))
  elif [ $status -eq 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
  if [ $status -eq 0 ]; then
    printf '%-28s ok      %4d s, of processors %4d s  %s\n' "$name" $((SECONDS - start)) $((spent - before)) \
      "${tests:+${tests#* } tests}"
  else
    printf '%-28s FAILED  %4d s  see %s\n' "$name" $((SECONDS - start)) "$log"
    grep -E -A 25 'WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error:' "$log" | head -n 80
    grep -E -A 6 'AssertionError|: Failure$' "$log" | cut -c 1-600 | head -n 60
    grep -E 'error:|\(Failed\)|\(Timeout\)|Not Run|FAILED' "$log" | head -n 20
    echo "  ..."
    tail -n 40 "$log"
    broken+=("$name")
  fi
  return $status
}

# left SECONDS NAME: whether a stage that takes about so long ends within 83 minutes; says so when it does not, and that
# it was not run. Not with --all.
left() {
  [ -n "$all" ] || [ $((SECONDS + $1)) -lt 5000 ] || {
    printf '%-28s not run: %d min are gone, and it would end after 83; packaging/test.sh --all runs it\n' "$2" $((SECONDS / 60))
    return 1
  }
}
build() {  # PRESET [TARGET...]
  cmake --preset "$1" && cmake --build --preset "$1" ${2:+--target "${@:2}"}
}
build_release() {
  # Nothing here runs a CUDA kernel: that they compile is seen for one architecture, without the assembler where a
  # kernel has no instruction of its own, in a quarter of the time. Of the CPU's instruction sets the tests need the
  # best and the least; the asan stage has AVX2.
  # Tests that run with sanitizers run in no other build.
  local architectures='80;90' targets=all elsewhere=
  [ -n "$all" ] || { architectures=90-virtual targets=ends; elsewhere=$(IFS=';'; echo "${asan[*]}"); }
  cmake --preset strict -D RLK_CUDA_ARCHITECTURES="$architectures" -D RLK_CPU_TARGETS=$targets \
    -D RLK_TESTS_ELSEWHERE="$elsewhere" && cmake --build --preset strict
}
use_python() {  # for the Python tests; without it ctest says what was skipped
  local status=0
  wait "$fetching" || status=$?
  cat "$logs/python_fetch.log"
  [ $status -ne 77 ] || return 0
  [ $status -eq 0 ] && cmake build/release -D RLK_TEST_PYTHON="$(tail -n 1 "$logs/python_path")"
}
make_site() {  # for the test of its links; without PyPI that test says what was skipped
  local status=0
  packaging/site.sh --build build/release || status=$?
  [ $status -eq 77 ] || return $status
}
build_with() {  # COMPILER in build/COMPILER; the images of nvcc are those of the release build
  cmake --preset strict -B "build/$1" -DRLK_CUDA_KERNELS=OFF -DCMAKE_C_COMPILER="${1/g++/gcc}" -DCMAKE_CXX_COMPILER="$1" &&
    cmake --build "build/$1"
}
# Sanitized code takes g++ a third longer, and so the tests run on another compiler's code too.
build_by_clang() {
  CC=clang CXX=clang++ build "$@"
}
check_by_clang() {  # what build/asan has not compiled
  cmake --preset clang -DRLK_BUILD_TESTS=OFF -DRLK_CUDA_KERNELS=OFF &&
    cmake --build --preset clang --target rlk_tvmffi_generated &&
    packaging/clang_rest.py build/clang build/asan
}
tests() {  # PRESET [CTEST OPTION...]
  ctest --test-dir "build/$1" --no-tests=error --output-on-failure "${@:2}"
}
only() {  # PRESET TEST...
  tests "$1" -j 2 -R "^($(IFS='|'; echo "${*:2}"))\$"
}

longest() {  # of the release tests, from ctest's lines "12/163 Test  #7: name ....   Passed   12.34 sec"
  sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9.]+) sec *$/\2 \1/p' "$logs/release_tests.log" 2> /dev/null |
    sort -rn | head -n 20 | sed 's/^/  /'
}

# What the sanitizers see here, and only they: whatever parses, checks, moves memory and runs threads, and the kernels in
# one instruction set. The rest (the conformance engine, the command's verbs) takes longer to build with sanitizers than
# it is worth on two cores; `cmake --preset asan` builds all.
asan=(declaration_test dispatch_test unit_cpu config_test conformance_units_test ascend_fake_test ascend_plugin_test
      loader_record_test loader_discover_test loader_elf_test loader_screen_test loader_process_test loader_cache_test
      loader_slots_test cli_npy_test cli_words_test fuzz_test)
tsan=(dispatch_test parallel_test loader_process_test loader_cache_test)
# Tests of crashes look at the signal.
export ASAN_OPTIONS="handle_segv=0:handle_abort=0 ${ASAN_OPTIONS:-}"
export UBSAN_OPTIONS="print_stacktrace=1 ${UBSAN_OPTIONS:-}"
# oneTBB of the distribution is not built for ThreadSanitizer.
export TSAN_OPTIONS="suppressions=$PWD/packaging/tsan.supp handle_segv=0 ${TSAN_OPTIONS:-}"

stage "install dependencies" packaging/install-deps.sh --tools || { echo "$passed passed, $failed failed"; exit 1; }
stage "format" packaging/lint.sh --format
# Fetched while the release build has the processors.
packaging/test-python.sh > "$logs/python_path" 2> "$logs/python_fetch.log" &
fetching=$!
built=
if stage "release build" build_release; then
  built=1
  stage "python with torch" use_python
  stage "site of the pages" make_site
fi
stage "asan build" build_by_clang asan "${asan[@]}" && stage "asan tests" only asan "${asan[@]}" unit_cpu_other_half
if [ -n "$built" ]; then
  # The tests take 40 minutes on the slowest machine seen.
  late=()
  [ -n "$all" ] || late=(-LE '^(long|elsewhere)$')
  left 2200 "each operator on each vendor's simulated runtime" || late=(-LE '^(long|elsewhere|every_operator)$')
  # One more at once than processors: some tests wait more than they compute.
  stage "release tests" tests release -j $(($(nproc) + 1)) "${late[@]}"
  stage "quickstart" packaging/quickstart.sh
  left 500 "clang-tidy on changes" && stage "clang-tidy on changes" packaging/lint.sh
fi
left 500 "tsan" && stage "tsan build" build_by_clang tsan "${tsan[@]}" && stage "tsan tests" only tsan "${tsan[@]}"
if [ -n "$all" ]; then
  stage "clang on the rest" check_by_clang
  newest=$(compgen -c g++- | grep -xE 'g\+\+-[0-9]+' | sort -Vu | tail -n 1)
  if [ -n "$newest" ] && [ "$("$newest" -dumpversion)" != "$(g++ -dumpversion)" ]; then
    stage "$newest build" build_with "$newest"
  else
    echo "no g++-N here beside the default g++ $(g++ -dumpversion)"
  fi
fi

echo "the longest tests, in seconds:"
longest
printf 'all of it: %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
[ ${#broken[@]} -eq 0 ] || printf 'failed: %s\n' "${broken[@]}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ ${#broken[@]} -eq 0 ]

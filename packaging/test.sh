#!/usr/bin/env bash
# Everything that this machine can check, from a clean clone, as root or a user: formatting, generated files, the release
# build with all tests, the quickstart, parts under AddressSanitizer + UndefinedBehaviorSanitizer and under
# ThreadSanitizer, clang-tidy on what changed. Logs are in build/test; the last line is `N passed, N failed`, where a
# stage that is not a set of tests counts as one.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=$PWD/build/test
mkdir -p "$logs"
passed=0 failed=0 broken=()

# stage NAME COMMAND...: runs it, its output in a log; shows the end of the log when it fails.
stage() {
  local name=$1 start=$SECONDS log=$logs/${1// /_}.log status=0 tests
  shift
  "$@" > "$log" 2>&1 || status=$?
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
    printf '%-28s ok      %4d s  %s\n' "$name" $((SECONDS - start)) "${tests:+${tests#* } tests}"
  else
    printf '%-28s FAILED  %4d s  see %s\n' "$name" $((SECONDS - start)) "$log"
    grep -E 'error:|\(Failed\)|\(Timeout\)|Not Run|FAILED' "$log" | head -n 20
    echo "  ..."
    tail -n 40 "$log"
    broken+=("$name")
  fi
  return $status
}

build() {  # PRESET [TARGET...]
  cmake --preset "$1" && cmake --build --preset "$1" ${2:+--target "${@:2}"}
}
tests() {  # PRESET [CTEST OPTION...]
  ctest --test-dir "build/$1" --no-tests=error --output-on-failure "${@:2}"
}

# What the sanitizers see here: everything that checks calls, moves memory and runs threads. The kernels and the
# conformance engine take over an hour to build with sanitizers on two cores; `cmake --preset asan` builds them too.
sanitized=(declaration_test dispatch_test)
sanitized_tests='^(declaration|dispatch)_test$'
# oneTBB of the distribution is not built for ThreadSanitizer.
export TSAN_OPTIONS="suppressions=$PWD/packaging/tsan.supp ${TSAN_OPTIONS:-}"

stage "install dependencies" packaging/install-deps.sh --tools || { echo "$passed passed, $failed failed"; exit 1; }
stage "format" packaging/lint.sh --format
if stage "release build" build release; then
  stage "release tests" tests release -j 2
  stage "quickstart" packaging/quickstart.sh
  stage "clang-tidy on changes" packaging/lint.sh
fi
stage "asan build" build asan "${sanitized[@]}" && stage "asan tests" tests asan -R "$sanitized_tests"
stage "tsan build" build tsan "${sanitized[@]}" && stage "tsan tests" tests tsan -R "$sanitized_tests"

printf 'all of it: %d min %d s\n' $((SECONDS / 60)) $((SECONDS % 60))
[ ${#broken[@]} -eq 0 ] || printf 'failed: %s\n' "${broken[@]}"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ ${#broken[@]} -eq 0 ]

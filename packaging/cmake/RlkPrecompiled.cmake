# rlk_precompiled(target headers...): the library's files read the standard library, and these headers, precompiled. For
# clang alone, to which that is half of a file's compilation; g++ 12 gains nothing by it on the whole, and warns of what
# it inlines from a precompiled header as if it were ours. So that g++ compiles each file by itself.
option(RLK_PRECOMPILED_HEADERS "Tests, and with clang libraries, read headers precompiled" ON)

set(RLK_STANDARD_HEADERS <algorithm> <array> <atomic> <bit> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <deque>
    <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream>
    <string> <string_view> <thread> <tuple> <utility> <variant> <vector>)

function(rlk_precompiled target)
  if(RLK_PRECOMPILED_HEADERS AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_precompile_headers(${target} PRIVATE ${RLK_STANDARD_HEADERS} ${ARGN})
  endif()
endfunction()

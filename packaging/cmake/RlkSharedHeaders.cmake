# Reading headers is more than half of compiling a library's file. rlk_shared_headers(target headers...) has the files of a
# library share it:
# - With clang, to which it is half of a file at -O0, the standard library and these headers are precompiled. g++ 12 gains
#   nothing by that, and warns of what it inlines from a precompiled header as if it were ours.
# - With g++ and RLK_UNITY, and in sanitized builds, eight files are one to the compiler. Names of unnamed namespaces
#   must then differ within a library; a file that takes in all names of a namespace is compiled by itself. That a file
#   includes what it needs is not seen so: clang sees it without sanitizers.
option(RLK_PRECOMPILED_HEADERS "Tests, and with clang libraries, read headers precompiled" ON)
option(RLK_UNITY "With g++, files of libraries are compiled eight at once: less to read in a build from nothing" OFF)

set(RLK_STANDARD_HEADERS <algorithm> <array> <atomic> <bit> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <deque>
    <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream>
    <string> <string_view> <thread> <tuple> <utility> <variant> <vector>)

function(rlk_shared_headers target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    if(RLK_PRECOMPILED_HEADERS)
      target_precompile_headers(${target} PRIVATE ${RLK_STANDARD_HEADERS} ${ARGN})
    endif()
    # What ThreadSanitizer looks at has some of the loader's files and no kernel: they stay apart.
    if(NOT RLK_SANITIZE OR (RLK_SANITIZE MATCHES "thread" AND target STREQUAL "rlk_loader_rooms"))
      return()
    endif()
  elseif(NOT RLK_UNITY)
    return()
  endif()
  get_target_property(is_grouped ${target} UNITY_BUILD)
  if(is_grouped)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  get_target_property(files ${target} SOURCES)
  foreach(file ${files})
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    file(STRINGS ${file} directives REGEX "^using namespace")
    if(directives)
      set_source_files_properties(${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
  endforeach()
endfunction()

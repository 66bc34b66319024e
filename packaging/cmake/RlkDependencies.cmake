# What rlk is built with. A program that runs librlk needs of all this only TBB: the rest is headers or goes inside.
#
# Distributions offer spdlog, fmt, toml++ and Highway as shared libraries of a version of their own; a librlk that asked
# for those would run on one release of one distribution. So the targets below are their headers without the libraries:
# rlk_spdlog, rlk_tomlplusplus (one file includes each: they take seconds to compile), rlk_fmt (whose functions outside
# headers are core/declaration/fmt.cpp) and rlk_hwy (core/cpu/highway_targets.cpp).
find_package(Threads REQUIRED)
find_package(TBB REQUIRED)
find_package(nlohmann_json 3.9 REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog REQUIRED)
find_package(HWY REQUIRED)
find_path(RLK_TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)
find_package(Boost 1.74 REQUIRED)

# rlk_headers(<name> <imported target>): an interface target with the include folders of another and nothing else of it.
function(rlk_headers name from)
  add_library(${name} INTERFACE)
  target_include_directories(${name} SYSTEM INTERFACE $<TARGET_PROPERTY:${from},INTERFACE_INCLUDE_DIRECTORIES>)
endfunction()

rlk_headers(rlk_hwy hwy::hwy)

rlk_headers(rlk_fmt fmt::fmt)
if(NOT fmt_VERSION VERSION_LESS 10)  # core/declaration/fmt.cpp knows what fmt 9 has outside headers
  target_compile_definitions(rlk_fmt INTERFACE FMT_HEADER_ONLY=1)
endif()

rlk_headers(rlk_spdlog spdlog::spdlog_header_only)
target_compile_definitions(rlk_spdlog INTERFACE SPDLOG_FMT_EXTERNAL=1)  # one fmt: ours, not a copy inside spdlog
target_link_libraries(rlk_spdlog INTERFACE rlk_fmt)

add_library(rlk_tomlplusplus INTERFACE)
target_include_directories(rlk_tomlplusplus SYSTEM INTERFACE ${RLK_TOMLPLUSPLUS_INCLUDE})
target_compile_definitions(rlk_tomlplusplus INTERFACE TOML_HEADER_ONLY=1)

# The command's options: inside the command where the distribution has the static library (Debian, Ubuntu).
set(Boost_USE_STATIC_LIBS ON)
find_package(Boost 1.74 QUIET COMPONENTS program_options)
if(NOT TARGET Boost::program_options)
  set(Boost_USE_STATIC_LIBS OFF)
  find_package(Boost 1.74 REQUIRED COMPONENTS program_options)
endif()

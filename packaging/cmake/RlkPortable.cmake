# rlk_portable(<target>): the file runs on every Linux with glibc 2.28 and the libstdc++ of g++ 8 (manylinux_2_28), although
# it is compiled against newer ones. The code is the same; what those libraries have not, or only under another version, is
# linked into the file: portable.c, and of libstdc++.a the parts that are newer than g++ 8. The rest of libstdc++ stays
# shared: exceptions cross TBB, and one process has one std::locale. packaging/wheel.sh looks (auditwheel) whether a
# symbol is still too new; then its name goes into portable.c, or the part that has it into the list below.
option(RLK_PORTABLE "Link librlk, programs and plugins so that they run from glibc 2.28 on (g++ 12, x86-64)" OFF)

# Parts of g++ 12's libstdc++.a: std::filesystem, what containers and streams call since C++20, and what those call.
set(rlk_portable_parts condition_variable.o eh_ptr.o floating_from_chars.o floating_to_chars.o fs_dir.o fs_ops.o fs_path.o
    functexcept.o lt5-sstream-inst.o memory_resource.o snprintf_lite.o sstream-inst.o)

if(RLK_PORTABLE AND NOT (CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12\\."
                         AND CMAKE_SYSTEM_NAME STREQUAL Linux AND CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64))
  message(STATUS "rlk: RLK_PORTABLE is for g++ 12 on x86-64 Linux; this is ${CMAKE_CXX_COMPILER_ID} "
                 "${CMAKE_CXX_COMPILER_VERSION} on ${CMAKE_SYSTEM_PROCESSOR}: what is built needs this machine's libraries")
  set(RLK_PORTABLE OFF)
endif()

if(RLK_PORTABLE)
  # What is unpacked anywhere finds its parts beside itself: the folder that this build installs into means nothing there.
  foreach(folder LIBDIR LIBEXECDIR DATADIR)
    set(CMAKE_INSTALL_FULL_${folder} /usr/local/${CMAKE_INSTALL_${folder}})
  endforeach()
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE archive
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(folder ${CMAKE_BINARY_DIR}/portable)
  list(TRANSFORM rlk_portable_parts PREPEND ${folder}/ OUTPUT_VARIABLE parts)
  add_custom_command(OUTPUT ${parts}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${folder}
    COMMAND ${CMAKE_AR} x --output ${folder} ${archive} ${rlk_portable_parts}
    DEPENDS ${archive} VERBATIM)
  set_source_files_properties(${parts} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  add_library(rlk_portable STATIC ${CMAKE_CURRENT_LIST_DIR}/../portable.c ${parts})
  target_compile_options(rlk_portable PRIVATE -ffunction-sections -fdata-sections -fno-builtin)
  rlk_warnings(rlk_portable)
  target_link_options(rlk_portable INTERFACE LINKER:--exclude-libs,librlk_portable.a LINKER:--gc-sections)
  # libdl and libpthread are part of libc since 2.34, but must be named for what is older.
  target_link_libraries(rlk_portable INTERFACE
    -Wl,--push-state,--no-as-needed,-l:libdl.so.2,-l:libpthread.so.0,--pop-state)
endif()

function(rlk_portable target)
  if(RLK_PORTABLE)
    target_link_libraries(${target} PRIVATE $<LINK_LIBRARY:WHOLE_ARCHIVE,rlk_portable>)
  endif()
endfunction()

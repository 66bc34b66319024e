# rlk_warnings(target): warnings, and the sanitizers that RLK_SANITIZE names. Warnings stop only the build of a developer
# of rlk (the presets strict, clang, asan and tsan): another compiler's opinion must not stop a user's build.
option(RLK_WERROR "Warnings are errors" OFF)

function(rlk_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion)
  if(RLK_WERROR)
    target_compile_options(${target} PRIVATE -Werror)
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # g++ 12 sees overlap in every "literal" + std::string (its bug 105651).
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  # g++ 13 takes any reference from a call with a temporary argument for dangling.
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-dangling-reference>)
  endif()
  if(RLK_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${RLK_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=undefined)
    # A vendor's functions are called by types of our own for what its headers declare.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
    if(RLK_SANITIZE MATCHES "address|thread")  # memory cannot be limited, and stacks are larger
      target_compile_definitions(${target} PRIVATE RLK_SANITIZED)
    endif()
    target_link_options(${target} PUBLIC -fsanitize=${RLK_SANITIZE})
  endif()
endfunction()

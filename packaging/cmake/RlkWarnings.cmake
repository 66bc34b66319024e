# rlk_warnings(target): warnings are errors, and the sanitizers that RLK_SANITIZE names.
function(rlk_warnings target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror)
  if(RLK_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${RLK_SANITIZE} -fno-omit-frame-pointer
                                             -fno-sanitize-recover=undefined)
    target_link_options(${target} PUBLIC -fsanitize=${RLK_SANITIZE})
  endif()
endfunction()

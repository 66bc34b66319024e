# rlk_add_plugin(<name> <sources>...): a plugin librlk_plugin_<name>.so as the loader wants it. Only the entry symbol is
# exported, nothing is shared with other plugins by name, and undefined symbols are found now and not at load.
# The target is rlk_plugin_<name>. Used by rlk itself and by plugins outside its tree (it is part of the package).
set(RLK_PLUGIN_EXPORT_MAP ${CMAKE_CURRENT_LIST_DIR}/rlk_plugin.map)

function(rlk_add_plugin name)
  set(target rlk_plugin_${name})
  add_library(${target} MODULE ${ARGN})
  target_link_libraries(${target} PRIVATE rlk::plugin_api)
  target_compile_features(${target} PRIVATE cxx_std_17)
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
  target_link_options(${target} PRIVATE LINKER:--version-script=${RLK_PLUGIN_EXPORT_MAP} LINKER:--exclude-libs,ALL
                      LINKER:-Bsymbolic)
  if(NOT CMAKE_CXX_FLAGS MATCHES "fsanitize" AND NOT RLK_SANITIZE)
    target_link_options(${target} PRIVATE LINKER:-z,defs)
  endif()
  set_target_properties(${target} PROPERTIES
    OUTPUT_NAME rlk_plugin_${name}
    CXX_VISIBILITY_PRESET hidden
    C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON
    LINK_DEPENDS ${RLK_PLUGIN_EXPORT_MAP})
endfunction()

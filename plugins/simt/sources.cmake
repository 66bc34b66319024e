# What the kernels are made of, found by where it stands: builds, plugins and simulated runtimes ask here.
get_filename_component(RLK_SIMT_SOURCES ${CMAKE_CURRENT_LIST_DIR} ABSOLUTE)
get_filename_component(RLK_SIMT_API ${CMAKE_CURRENT_LIST_DIR}/../../plugin_api/include ABSOLUTE)

# An image is compiled from each of these, as RLK_SIMT_IMAGE, which is the file's name.
file(GLOB RLK_SIMT_IMAGES CONFIGURE_DEPENDS ${RLK_SIMT_SOURCES}/kernels/*.cu ${RLK_SIMT_SOURCES}/operators/*.cuh)
file(GLOB RLK_SIMT_OPERATORS CONFIGURE_DEPENDS ${RLK_SIMT_SOURCES}/operators/*.cuh)
# What they may include.
file(GLOB RLK_SIMT_TEXTS CONFIGURE_DEPENDS ${RLK_SIMT_SOURCES}/*.cuh ${RLK_SIMT_SOURCES}/*.h
  ${RLK_SIMT_SOURCES}/skeleton/*.cuh ${RLK_SIMT_SOURCES}/skeleton/*.h ${RLK_SIMT_API}/rlk/formula/*.hpp)

set(names)
foreach(source ${RLK_SIMT_IMAGES})
  get_filename_component(name ${source} NAME_WE)
  if(name IN_LIST names)
    message(FATAL_ERROR "two images would be called ${name}; rename ${source}")
  endif()
  list(APPEND names ${name})
endforeach()

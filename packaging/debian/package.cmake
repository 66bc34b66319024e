# `cpack` in the build folder writes rlk_VERSION_ARCHITECTURE.deb: librlk, the prober, plugins, the command with its man page
# and completions, headers, CMake and pkg-config packages, schemas. What it needs of Debian is found by dpkg-shlibdeps.
set(RLK_PACKAGE_CONTACT "The rlk project <packages@rlk.invalid>" CACHE STRING "The Debian package's maintainer")
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT ${RLK_PACKAGE_CONTACT})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ
    WORLD_EXECUTE)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/prepare.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_NAME rlk)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "rlk runs operators of LLM reinforcement learning (log-probabilities, policy
losses, attention, sampling) on plugins of hardware vendors, which it verifies
before it trusts them, and on its own CPU backend.
.
This package has the library with its headers, the plugins and rlk-plugins.")
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/debian/shlibs "librlk 0 rlk (>= ${PROJECT_VERSION})\n")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_CURRENT_BINARY_DIR}/debian/shlibs ${CMAKE_CURRENT_LIST_DIR}/triggers)
include(CPack)

# What Debian wants of the files before they are packed: its copyright file, and man page and changelog compressed.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr/share)
file(COPY ${CMAKE_CURRENT_LIST_DIR}/copyright DESTINATION ${root}/doc/rlk)
file(WRITE ${root}/doc/rlk/changelog "rlk (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * What changed is in CHANGELOG.md beside this file.

 -- ${CPACK_PACKAGE_CONTACT}  Mon, 23 Nov 2026 00:00:00 +0000
")
execute_process(COMMAND gzip -9nf ${root}/doc/rlk/changelog ${root}/man/man1/rlk-plugins.1 COMMAND_ERROR_IS_FATAL ANY)
file(CHMOD ${root}/doc/rlk/changelog.gz PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)

// What a library says of itself, read once per process: plugins need the same few libraries, and each start asks of
// each plugin what all of them say.
#pragma once

#include <sys/stat.h>

#include <memory>

#include "loader/screen/elf.hpp"

namespace rlk::loader {

// Of an open regular file and its status, without its exports. What is remembered is that of the same device, inode,
// size and times; a file that changed within the last two seconds is always read, because the next change might leave
// the same times. [thread-safe]
std::shared_ptr<const ElfResult> read_library(int fd, const struct stat& status);

}  // namespace rlk::loader

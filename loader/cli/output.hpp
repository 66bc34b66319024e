// Where the command prints. Plugins are loaded into this process, and what one of them writes to standard output must
// not end up in a document that a script parses.
#pragma once

#include <cstdio>

namespace rlk::cli {

// From here on standard output leads to standard error for everybody but output(). Called once, before any plugin is
// loaded; when it fails, everything stays as it is.
void keep_output();

// The command's own standard output. [one thread at a time]
std::FILE* output();

}  // namespace rlk::cli

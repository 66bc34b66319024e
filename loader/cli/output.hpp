// Where the command prints. Plugins are loaded into this process, and what one of them writes to standard output must
// not end up in a document that a script parses.
#pragma once

#include <cstdio>

namespace rlk::cli {

// Standard descriptors that are closed lead nowhere from here on: the next file that is opened would get the number of
// one, and what is printed would be written into it. Called once, before any file is opened.
void hold_standard_numbers();

// From here on standard output leads to standard error for all code but output(). Called once, before any plugin is
// loaded; when it fails, everything stays as it is.
void keep_output();

// The command's own standard output. [one thread at a time]
std::FILE* output();
// Its descriptor, for questions about a terminal.
int output_number();
// Why its first write that failed did, as errno; 0: none did, or it is not known.
int output_failure();

}  // namespace rlk::cli

// Where an output goes: whole or not at all where a file is or will be, in place where something else stands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rlk::cli {

// Throws UsageError when write_whole() could not put anything there, before anything was computed for it.
void require_place(const std::string& path);

// A file, new or old, appears whole or not at all; links are followed and stay, and so do the mode of an old file and
// its other names. A pipe or a character device is written to and never replaced; a folder, a socket or a disk is
// refused. Throws Failure naming the path.
void write_whole(const std::string& path, const std::vector<std::string_view>& parts);

}  // namespace rlk::cli

// May a plugin's new file be loaded beside the old ones, which stay in this process for ever?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loader/probe/load.hpp"
#include "loader/probe/probe.hpp"

namespace rlk::loader {

// A file that this process has loaded.
struct LoadedFile {
  std::string path;
  FileIdentity identity;
};

// Nothing when it may. `loaded` are the files of all plugins of this process, of every generation.
//  OVERWRITTEN: it is the very file that was loaded, with other content: the running code changed under our feet.
//  NEEDS_RESTART: the linker would give it an old library instead of the one that it was verified with, or objects of
//  the old generation instead of its own (symbols that are unique in a process).
std::optional<Failure> refuse_beside(const ProbedPlugin& plugin, const std::vector<LoadedFile>& loaded);

}  // namespace rlk::loader

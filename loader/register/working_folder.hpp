// The process's working folder, which a plugin that is loaded must not change: relative paths of the program hang on
// it.
#pragma once

#include <string>

#include "loader/store/file.hpp"

namespace rlk::loader {

class WorkingFolder {
public:
  WorkingFolder();
  // Goes back, with a warning that names the plugin, where another folder is the process's now.
  void put_back(const std::string& plugin) const;

private:
  UniqueFd folder_;  // empty where it cannot be opened: then nothing can be put back
};

}  // namespace rlk::loader

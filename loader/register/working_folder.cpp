#include "loader/register/working_folder.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/dispatch/log.hpp"

namespace rlk::loader {

WorkingFolder::WorkingFolder() : folder_(UniqueFd(open(".", O_PATH | O_DIRECTORY | O_CLOEXEC))) {}

void WorkingFolder::put_back(const std::string& plugin) const {
  struct stat before = {}, now = {};
  if (!folder_ || fstat(folder_.get(), &before) != 0 || stat(".", &now) != 0) return;
  if (before.st_dev == now.st_dev && before.st_ino == now.st_ino) return;
  const bool is_back = fchdir(folder_.get()) == 0;
  core::log_line(RLK_LOG_WARN, "plugin " + plugin,
                 fmt::format("it changed the working folder of this process while it was loaded; {}",
                             is_back ? "rlk put it back" : "it could not be put back"));
}

}  // namespace rlk::loader

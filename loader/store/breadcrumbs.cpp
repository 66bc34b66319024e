// The file of a process: a line of JSON per slot, zeros where nothing is under way.
#include "loader/store/breadcrumbs.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <rlk/sdk/immortal.hpp>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/declaration/no_cancel.hpp"
#include "core/dispatch/trust/process_end.hpp"

namespace rlk::loader {
namespace {

using nlohmann::json;

constexpr std::string_view kBreadcrumbPrefix = ".crumbs-";

std::string machine_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

std::string program_name() {
  std::string words = read_file("/proc/self/comm", 256).value_or("");
  words.erase(std::remove(words.begin(), words.end(), '\n'), words.end());
  return words;
}

std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

// Put together by hand: this is on the way of a call, and a document of json allocates in its destructor, which ends
// the process when there is no memory.
std::string line_of(const Breadcrumb& breadcrumb, const std::string& path) {
  return "{\"dtype\":" + quoted(breadcrumb.dtype) + ",\"id\":" + quoted(breadcrumb.id) +
         ",\"implementation\":" + quoted(breadcrumb.implementation) + ",\"key\":" + quoted(breadcrumb.key) +
         ",\"machine\":" + quoted(breadcrumb.machine) + ",\"op\":" + quoted(breadcrumb.op) +
         ",\"path\":" + quoted(path) + ",\"phase\":" + quoted(breadcrumb.phase) +
         ",\"pid\":" + std::to_string(breadcrumb.pid) + ",\"program\":" + quoted(breadcrumb.program) +
         ",\"unix\":" + std::to_string(breadcrumb.unix) + "}";
}

bool read_line(const std::string& text, Breadcrumb* breadcrumb) {
  const json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return false;
  const auto word = [&](const char* name, std::string* out) {
    const auto found = line.find(name);
    if (found == line.end() || !found->is_string()) return false;
    *out = found->get<std::string>();
    return true;
  };
  const auto number = [&](const char* name, int64_t* out) {
    const auto found = line.find(name);
    if (found == line.end() || !found->is_number_integer()) return false;
    *out = found->get<int64_t>();
    return true;
  };
  return word("key", &breadcrumb->key) && word("id", &breadcrumb->id) && word("op", &breadcrumb->op) &&
         word("implementation", &breadcrumb->implementation) && word("dtype", &breadcrumb->dtype) &&
         word("phase", &breadcrumb->phase) && word("program", &breadcrumb->program) &&
         word("machine", &breadcrumb->machine) && word("path", &breadcrumb->path) &&
         number("unix", &breadcrumb->unix) && number("pid", &breadcrumb->pid);
}

bool is_listed(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 && status.st_nlink > 0;
}

}  // namespace

void Breadcrumbs::end() {
  const std::lock_guard lock(mutex_);
  if (!fd_ || pid_ != getpid()) return;
  const bool idle = std::none_of(std::begin(in_use_), std::end(in_use_), [](bool used) { return used; });
  if (!idle) return;  // what a thread is still inside may yet end the process
  unlink(path_.c_str());
  fd_.reset();
}

void Breadcrumbs::end_with_the_process() {
  const std::lock_guard lock(mutex_);
  if (!fd_ || pid_ != getpid() || core::is_hosts_thread()) return;
  const long here = syscall(SYS_gettid);
  for (size_t slot = 0; slot < kSlots; ++slot)
    if (in_use_[slot] && threads_[slot] == here) return;
  unlink(path_.c_str());
}

// A forked process has a file of its own: its breadcrumbs are not its parent's.
bool Breadcrumbs::open_file() {
  if (fd_ && pid_ == getpid()) return true;
  if (folder_.empty()) return false;
  fd_.reset();
  std::fill(std::begin(in_use_), std::end(in_use_), false);
  std::string path = fmt::format("{}/{}XXXXXX", folder_, kBreadcrumbPrefix);
  HeldFile fd([&path] { return make_temporary(&path); });
  if (!fd) return false;
  // Another process that collects breadcrumbs may have locked the new, empty file for a moment, and removed it.
  if (!fd.try_lock() || !is_listed(fd.get())) {
    unlink(path.c_str());
    return false;
  }
  fd_ = std::move(fd);
  path_ = std::move(path);
  pid_ = getpid();
  return true;
}

std::shared_ptr<void> Breadcrumbs::leave(Breadcrumb breadcrumb) {
  const core::NoCancel whole;
  static const sdk::Immortal<std::string> machine(machine_name()), program(program_name());
  breadcrumb.machine = *machine;
  breadcrumb.program = *program;
  breadcrumb.pid = getpid();
  breadcrumb.unix = std::time(nullptr);
  std::string line = line_of(breadcrumb, breadcrumb.path);
  if (line.size() >= kSlotBytes) line = line_of(breadcrumb, "");
  if (line.size() >= kSlotBytes) return nullptr;
  const std::lock_guard lock(mutex_);
  if (core::end_has_begun() || !open_file()) return nullptr;
  const auto slot = static_cast<size_t>(std::find(std::begin(in_use_), std::end(in_use_), false) - in_use_);
  if (slot == kSlots) return nullptr;
  if (!may_grow_to((slot + 1) * kSlotBytes)) return nullptr;
  line.resize(kSlotBytes, '\0');
  const auto at = static_cast<off_t>(slot * kSlotBytes);
  if (pwrite(fd_.get(), line.data(), line.size(), at) != static_cast<ssize_t>(line.size())) return nullptr;
  in_use_[slot] = true;
  threads_[slot] = syscall(SYS_gettid);
  const pid_t pid = pid_;
  const auto take_back = [this, slot, at, pid](void*) {
    const core::NoCancel taking_back;
    const std::lock_guard taking(mutex_);
    if (pid_ != pid || getpid() != pid) return;  // a fork's file is another
    static constexpr char kNothing[kSlotBytes] = {};
    in_use_[slot] = false;
    // Shorter than the line, and enough to end it.
    if (fd_) static_cast<void>(!pwrite(fd_.get(), kNothing, 64, at));
  };
  return {this, take_back};
}

std::vector<Breadcrumb> Breadcrumbs::collect(const std::string& folder) {
  std::vector<Breadcrumb> breadcrumbs;
  if (folder.empty()) return breadcrumbs;
  const Folder names = open_folder(folder);
  while (const dirent* item = names == nullptr ? nullptr : readdir(names.get())) {
    const std::string name = item->d_name;
    if (!name.starts_with(kBreadcrumbPrefix)) continue;
    const std::string path = folder + "/" + name;
    const UniqueFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat status = {};
    if (!fd || fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || !is_listed(fd.get())) continue;  // in use or read by another process
    unlink(path.c_str());
    for (size_t slot = 0; slot < kSlots; ++slot) {
      char text[kSlotBytes + 1] = {};
      if (pread(fd.get(), text, kSlotBytes, static_cast<off_t>(slot * kSlotBytes)) <= 0) break;
      Breadcrumb breadcrumb;
      if (text[0] != '\0' && read_line(text, &breadcrumb)) breadcrumbs.push_back(std::move(breadcrumb));
    }
  }
  return breadcrumbs;
}

}  // namespace rlk::loader

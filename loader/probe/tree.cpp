// By /proc alone: a plugin's processes leave groups and sessions as they like, their parents they cannot choose.
#include "loader/probe/tree.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string_view>
#include <thread>

#include "loader/store/file.hpp"

namespace rlk::loader {
namespace {

constexpr auto kPatience = std::chrono::seconds(2);

std::optional<ProcessSeen> read_process(const char* number) {
  ProcessSeen seen;
  const std::string_view digits = number;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), seen.pid).ec != std::errc()) return std::nullopt;
  const auto text = read_file("/proc/" + std::string(digits) + "/stat", 4096);
  if (!text) return std::nullopt;
  // "12 (a name) with) parentheses) S 1 12 12": the last one ends the name.
  const size_t begin = text->find('('), end = text->rfind(')');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return std::nullopt;
  seen.name = text->substr(begin + 1, end - begin - 1);
  int group = 0;
  if (std::sscanf(text->c_str() + end + 1, " %c %d %d %d", &seen.state, &seen.parent, &group, &seen.session) != 4)
    return std::nullopt;
  return seen;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  const Folder open = open_folder(folder);
  while (const dirent* item = open == nullptr ? nullptr : readdir(open.get())) {
    if (item->d_name[0] != '.') names.emplace_back(item->d_name);
  }
  return names;
}

std::vector<ProcessSeen> all_processes() {
  std::vector<ProcessSeen> all;
  for (const std::string& name : names_in("/proc")) {
    if (auto process = read_process(name.c_str())) all.push_back(std::move(*process));
  }
  return all;
}

// Of a line "Tgid:\t123" of a status file; 0 without one.
pid_t number_of(const std::string& file, const std::string& key) {
  const auto text = read_file(file, 16384);
  const std::string begin = "\n" + key + ":";
  const size_t at = text ? text->find(begin) : std::string::npos;
  return at == std::string::npos ? 0 : std::atoi(text->c_str() + at + begin.size());
}

}  // namespace

std::vector<ProcessSeen> descendants_of(pid_t root) {
  const std::vector<ProcessSeen> all = all_processes();
  std::set<pid_t> family = {root};
  for (bool grew = true; grew;) {
    grew = false;
    for (const ProcessSeen& process : all)
      if (family.count(process.parent) > 0 && family.insert(process.pid).second) grew = true;
  }
  std::vector<ProcessSeen> found;
  for (const ProcessSeen& process : all) {
    const bool lives = process.state != 'Z' && process.state != 'X';
    if (process.pid != root && lives && family.count(process.pid) > 0) found.push_back(process);
  }
  return found;
}

std::vector<std::string> end_descendants(pid_t root) {
  std::vector<std::string> elsewhere;
  std::set<pid_t> named;
  const pid_t session = getsid(root);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  for (auto found = descendants_of(root); !found.empty(); found = descendants_of(root)) {
    // Stopped first: a process that forks without end gets no further while the others are killed.
    for (const int signal : {SIGSTOP, SIGKILL})
      for (const ProcessSeen& process : found) kill(process.pid, signal);
    for (const ProcessSeen& process : found) {
      if (process.session != session && named.insert(process.pid).second)
        elsewhere.push_back(fmt::format("{} ({})", process.pid, process.name));
    }
    if (std::chrono::steady_clock::now() >= until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return elsewhere;
}

std::vector<pid_t> tracers_of(pid_t pid) {
  std::vector<pid_t> tracers;
  for (const std::string& task : names_in(fmt::format("/proc/{}/task", pid))) {
    const pid_t thread = number_of(fmt::format("/proc/{}/task/{}/status", pid, task), "TracerPid");
    if (thread != 0) tracers.push_back(number_of(fmt::format("/proc/{}/status", thread), "Tgid"));
  }
  return tracers;
}

}  // namespace rlk::loader

// What a start says while plugins are probed that no earlier process has judged: it may take half a minute.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "loader/host/progress.hpp"
#include "loader/probe/probe.hpp"

namespace rlk::loader {

// A line on the terminal while a caller waits for the search, else one line of the log. Nothing where every verdict is
// remembered, or only the built-in is tried.
class SearchNews {
public:
  // `is_awaited`: a caller waits for the search now. `kept_in`: the folder of verdicts, empty for none.
  SearchNews(std::function<bool()> is_awaited, std::string kept_in);
  SearchNews(const SearchNews&) = delete;
  SearchNews& operator=(const SearchNews&) = delete;

  // Hears of the probes. The options do not outlive this.
  void listen(ProbeOptions* options);

private:
  void begin(const std::vector<std::string>& ids);
  void finished(const PluginRecord& record);
  void tell(const std::string& what) const;

  const std::function<bool()> is_awaited_;
  const std::string kept_in_;
  std::vector<std::string> probed_;  // ids; not changed after the first probe has begun
  size_t done_ = 0;                  // of them; finished() is called by one thread at a time
  std::optional<Progress> progress_;
};

}  // namespace rlk::loader

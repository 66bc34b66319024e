#include "loader/api/search_news.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/dispatch/log.hpp"
#include "loader/discover/builtin.hpp"

namespace rlk::loader {

SearchNews::SearchNews(std::function<bool()> is_awaited, std::string kept_in)
    : is_awaited_(std::move(is_awaited)), kept_in_(std::move(kept_in)) {}

void SearchNews::listen(ProbeOptions* options) {
  options->on_probing = [this](const std::vector<std::string>& ids) { begin(ids); };
  options->on_finished = [this](const PluginRecord& record) { finished(record); };
}

void SearchNews::begin(const std::vector<std::string>& ids) {
  const bool is_built_in_alone =
      std::all_of(ids.begin(), ids.end(), [](const std::string& id) { return built_in_entry(id) != nullptr; });
  if (is_built_in_alone) return;
  probed_ = ids;
  progress_.emplace(fmt::format("rlk probes plugins that are new here: 0 of {} done", probed_.size()),
                    Progress::Log{is_awaited_, [this](const std::string& what) { tell(what); }});
}

void SearchNews::finished(const PluginRecord& record) {
  if (!progress_ || std::find(probed_.begin(), probed_.end(), record.id) == probed_.end()) return;
  ++done_;
  progress_->say(fmt::format("rlk probes plugins that are new here: {} of {} done, last: {} {}", done_, probed_.size(),
                             record.id, to_string(record.state)));
}

void SearchNews::tell(const std::string& what) const {
  core::log_line(RLK_LOG_WARN, "probe",
                 fmt::format("{}. {}. {}", what,
                             is_awaited_() ? "This start waits for them" : "The CPU serves calls until they are judged",
                             kept_in_.empty() ? "No folder can be written, so that every process probes them: set "
                                                "RLK_CACHE_DIR to one that can"
                                              : "Verdicts are kept in " + kept_in_ + ": later starts do not probe"));
}

}  // namespace rlk::loader

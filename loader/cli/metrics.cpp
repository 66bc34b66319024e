// `rlk-plugins metrics`: what is known of this machine's plugins, for a monitoring system that reads files.
#include <fmt/core.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "loader/cli/documents.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/place.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/store/record_metrics.hpp"

namespace rlk::cli {
namespace {

using loader::label_text;

std::string build_info() {
  const loader::HostIdentity host = host_identity();
  return fmt::format(
      "# HELP rlk_build_info The rlk that is installed here.\n# TYPE rlk_build_info gauge\n"
      "rlk_build_info{{version=\"{}\",abi=\"{}\"}} 1\n",
      label_text(host.version), label_text(host.abi));
}

std::string quarantine() {
  std::map<std::string, int> entries;
  const nlohmann::ordered_json document = quarantine_document();
  for (const auto& entry : document["entries"]) ++entries[entry["plugin"].get<std::string>()];
  std::string out =
      "# HELP rlk_quarantined What failed at run time and is switched off, by plugin.\n"
      "# TYPE rlk_quarantined gauge\n";
  for (const auto& [plugin, count] : entries)
    out += fmt::format("rlk_quarantined{{plugin=\"{}\"}} {}\n", label_text(plugin), count);
  return out;
}

int run_metrics(const Arguments& arguments) {
  const std::string path = arguments.value("file");
  if (!path.empty()) require_place(path);
  const Judgement judgement = judge_plugins({});
  const int code = exit_code_of(judgement);
  const std::string text =
      build_info() + loader::prometheus_of_plugins(judgement.records) + quarantine() +
      fmt::format(
          "# HELP rlk_healthy Whether no plugin here is broken: the exit code of rlk-plugins list is 0.\n"
          "# TYPE rlk_healthy gauge\nrlk_healthy {}\n",
          code == kFine ? 1 : 0);
  if (arguments.json()) {
    print_document({{"schema", 1}, {"text", text}});
  } else if (path.empty()) {
    std::fprintf(output(), "%s", text.c_str());
  } else {
    write_whole(path, {text});
  }
  return code;
}

}  // namespace

Verb verb_metrics() {
  return {
      "metrics",
      "States of plugins, verified and waiting operators and quarantine as text for Prometheus.",
      "For a collector that reads files, from a timer. Probes as list does, with its exit code: 0 when no plugin is\n"
      "broken. What a running process counts (calls, fallbacks) it tells itself: RLK_COUNTERS, "
      "rlk_counters_prometheus.",
      "rlk-plugins metrics --file /var/lib/node_exporter/rlk.prom",
      {},
      {{"file", "FILE", "write there, whole or not at all; standard output without it"}},
      run_metrics,
  };
}

}  // namespace rlk::cli

// `rlk-plugins list` and `probe`: every plugin, how far it came and why not further.
#include <cstdio>

#include "loader/cli/child.hpp"
#include "loader/cli/output.hpp"
#include "loader/cli/report.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verbs.hpp"
#include "loader/store/store.hpp"

namespace rlk::cli {
namespace {

using loader::PluginRecord;

int show(const Arguments& arguments, const Judgement& judgement) {
  std::vector<std::string> ignored;  // the child has told them
  loader::Store store(choose_cache_folder(loader::Environment::of_process(), loader::Identity::of_process(), &ignored));
  if (arguments.json()) {
    std::fprintf(output(), "%s\n", list_to_json(host_identity(), judgement.records, &store).c_str());
  } else {
    print_list(judgement.records, &store);
  }
  return exit_code_of(judgement);
}

int run_list(const Arguments& arguments) {
  JudgeRequest request;
  request.remember = true;
  request.in_short = true;
  Judgement judgement = judge_plugins(request);
  if (arguments.has("present"))
    std::erase_if(judgement.records, [](const PluginRecord& record) { return record.state == loader::State::absent; });
  return show(arguments, judgement);
}

// A probe of one plugin takes the others of its backend along: they may own the devices that it needs.
std::string ids_of_backend(const std::vector<PluginRecord>& records, const PluginRecord& wanted) {
  std::string ids;
  for (const PluginRecord& record : records) {
    if (record.id == wanted.id || (!wanted.backend.empty() && record.backend == wanted.backend))
      ids += (ids.empty() ? "" : ",") + record.id;
  }
  return ids;
}

int run_probe(const Arguments& arguments) {
  const std::string id = arguments.operand(0);
  JudgeRequest request;
  request.all = true;
  request.fresh = arguments.has("fresh");
  const auto on_verdict = [&](const PluginRecord& record) {
    if (arguments.json() || record.is_place || (!id.empty() && record.id != id)) return;
    const std::string state(to_string(record.state));
    std::fprintf(output(), "%s: %s%s%s\n%s", printable(record.id).c_str(), coloured(state, tone_of(record)).c_str(),
                 record.tried == loader::kTriedCanary ? " by a canary" : "", record.from_cache ? ", remembered" : "",
                 record.reason_code.empty() ? "" : wrapped(reason_text(record), 4).c_str());
    std::fflush(output());
  };
  if (id.empty()) {
    const Judgement judgement = judge_plugins(request, on_verdict);
    if (!arguments.json()) std::fprintf(output(), "\n");
    return show(arguments, judgement);
  }
  Judgement judgement = judge_plugins(JudgeRequest());  // what else is here is not tried whole
  const PluginRecord before = find_record(judgement.records, id);
  request.select = ids_of_backend(judgement.records, before);
  request.builtin = before.path.empty();
  judgement = judge_plugins(request, on_verdict);
  judgement.records = {find_record(judgement.records, id)};
  return show(arguments, judgement);
}

}  // namespace

Verb verb_list() {
  return {
      "list",
      "Every plugin that was found: how far it came, what of it is verified, and why it stopped.",
      "Plugins are probed in child processes; what was measured before is remembered. States: registered (in use),\n"
      "partial (in use, but for some operators or dtypes), absent (no such hardware or runtime here; nothing is\n"
      "broken), rejected (not used; the reason says why), shadowed (another file of the same identity was found\n"
      "first; see its own line), deferred (tried again later), quarantined (switched off after a failure at run "
      "time).\n"
      "Of a plugin with many operators few are tried at first: the others are waiting until a program wants them, or\n"
      "until `rlk-plugins probe` tries all. That plugins were loaded into one process is remembered for an hour, "
      "while\n"
      "verdicts and environment are the same. Below the plugins stand places that were named and not found, or not\n"
      "searched, and files passed over for their names.",
      "rlk-plugins list --present",
      {},
      {{"present", nullptr, "leave out what has no hardware or runtime here"}},
      run_list};
}

Verb verb_probe() {
  return {"probe",
          "Judges the plugins, or one of them, and tells each verdict as it comes.",
          "Every operator is tried, also those that `list` shows as waiting.",
          "rlk-plugins probe --fresh cuda",
          {{"ID", false}},
          {{"fresh", nullptr,
            "measure anew and try everything of the plugin, or of all and the built-in CPU; nothing remembered is "
            "believed"}},
          run_probe};
}

}  // namespace rlk::cli

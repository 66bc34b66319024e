// `rlk-plugins explain`: which implementation would take a call, and why not the others.
#include <fmt/core.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "loader/cli/output.hpp"
#include "loader/cli/session.hpp"
#include "loader/cli/table.hpp"
#include "loader/cli/verbs.hpp"

namespace rlk::cli {
namespace {

using nlohmann::ordered_json;

std::string text_of_cost(const ordered_json& cost) {
  return fmt::format(
      "{} to the host and {} back per call, about {:.3g} ms for the copies alone (an estimate at {:.0f} "
      "GB/s; rlk-plugins bench measures it)",
      bytes_text(cost.at("to_host_bytes").get<uint64_t>()), bytes_text(cost.at("to_device_bytes").get<uint64_t>()),
      cost.at("estimated_copy_us").get<double>() * 1e-3, cost.at("assumed_bytes_per_s").get<double>() * 1e-9);
}

// What being served by the CPU costs a device's tensors, here and elsewhere.
void print_staged(const ordered_json& explained) {
  for (const auto& candidate : explained.at("candidates")) {
    if (candidate.at("verdict") != "taken" || candidate.at("staged") != true) continue;
    std::fprintf(output(), "\n%s",
                 wrapped("staged: the CPU serves it: " + text_of_cost(candidate.at("staged_cost")), 0).c_str());
  }
  const auto elsewhere = explained.find("staged_elsewhere");
  if (elsewhere == explained.end()) return;
  for (const auto& one : *elsewhere) {
    std::fprintf(
        output(), "\n%s",
        wrapped(fmt::format("with tensors on {} the call would be staged on the CPU by {}/{}: {}. {}: {}",
                            one.value("backend", ""), one.value("plugin", ""), one.value("implementation", ""),
                            text_of_cost(one.at("staged_cost")), one.value("reason_code", ""), one.value("reason", "")),
                0)
            .c_str());
  }
}

void print(const OpCall& call, const std::string& backend, const ordered_json& explained, const std::string& chosen) {
  std::string arguments;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (!call.inputs[i]) continue;
    arguments += (arguments.empty() ? "" : ", ") +
                 fmt::format("{} {}", call.decl->inputs[i].name, core::name_of(call.inputs[i]->dtype));
    for (size_t axis = 0; axis < call.inputs[i]->shape.size(); ++axis)
      arguments += (axis == 0 ? " " : "x") + std::to_string(call.inputs[i]->shape[axis]);
  }
  std::fprintf(output(), "%s on %s: %s\nchosen: %s\n\n", call.decl->name, backend.c_str(), arguments.c_str(),
               chosen.empty() ? "no implementation: the call is refused" : chosen.c_str());
  Table table({"candidate", "verdict", "numerics", "cost us", "timed us", "why"});
  for (const auto& candidate : explained.at("candidates")) {
    const std::string verdict = candidate.value("verdict", "");
    const std::string implementation = candidate.value("implementation", "");
    const std::string code = candidate.value("reason_code", "");
    const std::string reason = candidate.value("reason", "");
    std::string classes;
    for (const auto& name : candidate.at("numerics"))
      classes += (classes.empty() ? "" : ", ") + name.get<std::string>();
    const auto number = [&](const char* name) {
      const double value = candidate.value(name, 0.0);
      return value > 0 ? fmt::format("{:.1f}", value) : std::string();
    };
    table.row({candidate.value("plugin", "") + (implementation.empty() ? "" : "/" + implementation),
               {verdict, verdict == "taken"    ? Tone::good
                         : verdict == "failed" ? Tone::bad
                                               : Tone::plain},
               classes,
               number("cost_us"),
               number("measured_us"),
               code});
    if (!reason.empty()) table.note(reason);
  }
  table.print();
  if (chosen.empty()) std::fprintf(output(), "\n%s", wrapped(explained.value("refused", ""), 0).c_str());
  const auto fallback = explained.find("fallback");
  if (fallback != explained.end() && !chosen.empty()) {
    std::fprintf(
        output(), "\n%s",
        wrapped(fmt::format("a fallback ({}): {}", fallback->value("reason_code", ""), fallback->value("reason", "")),
                0)
            .c_str());
  }
  print_staged(explained);
}

bool has_candidate(const ordered_json& explained, const std::string& plugin, const ordered_json* implementation) {
  const auto& candidates = explained.at("candidates");
  return std::any_of(candidates.begin(), candidates.end(), [&](const ordered_json& one) {
    return one.at("plugin") == plugin && (implementation == nullptr || one.at("implementation") == *implementation);
  });
}

// Of a plugin as a whole.
ordered_json refused(const std::string& plugin, bool failed, const std::string& code, const std::string& reason) {
  return {
      {"plugin", plugin},   {"implementation", ""}, {"verdict", failed ? "failed" : "declined"}, {"reason_code", code},
      {"reason", reason},   {"variant", ""},        {"numerics", ordered_json::array()},         {"cost_us", 0.0},
      {"measured_us", 0.0}, {"staged", false}};
}

// Implementations on devices other than the call's, with what they would answer a call there.
void add_other_devices(Session* session, const OpCall& call, const rlk_call_options& options, ordered_json* explained) {
  const std::string here = session->backend();
  for (const std::string& backend : session->backends()) {
    if (backend == here || backend == "cpu") continue;
    ordered_json there;
    try {
      session->open(backend);
      there = ordered_json::parse(session->explain_json(call, options));
    } catch (const Failure& failure) {  // the answer about the call's own device stands
      (*explained)["candidates"].push_back(refused(backend, true, "DEVICE_FAILED", failure.what()));
      continue;
    }
    for (const ordered_json& candidate : there.at("candidates")) {
      if (candidate.at("verdict") != "taken" || candidate.at("staged") != true) continue;
      const ordered_json why = there.value("fallback", ordered_json::object());
      (*explained)["staged_elsewhere"].push_back({{"backend", backend},
                                                  {"plugin", candidate.at("plugin")},
                                                  {"implementation", candidate.at("implementation")},
                                                  {"reason_code", why.value("reason_code", "STAGED")},
                                                  {"reason", why.value("reason", "as was asked for")},
                                                  {"staged_cost", candidate.at("staged_cost")}});
    }
    for (ordered_json candidate : there.at("candidates")) {
      const std::string plugin = candidate.at("plugin").get<std::string>();
      // What is said there of a plugin as a whole is about that device; it is left out for a plugin that stands here.
      const bool is_whole_plugin = candidate.at("implementation").get_ref<const std::string&>().empty();
      if (candidate.at("staged") == true ||
          has_candidate(*explained, plugin, is_whole_plugin ? nullptr : &candidate.at("implementation")))
        continue;
      if (candidate.at("verdict") == "taken") {
        candidate["verdict"] = "filtered";
        candidate["reason_code"] = "OTHER_DEVICE";
        candidate["reason"] =
            fmt::format("the call is on {}; on {} it would be taken: --backend {}", here, backend, backend);
      }
      (*explained)["candidates"].push_back(std::move(candidate));
    }
  }
}

// Plugins that may have brought the operator and are not used. Absent hardware is not reported here.
void add_unused_plugins(const Session& session, ordered_json* explained) {
  const ordered_json list = ordered_json::parse(session.list_json());
  for (const ordered_json& plugin : list.at("plugins")) {
    const std::string id = plugin.at("id").get<std::string>(), state = plugin.at("state").get<std::string>();
    if (state != "rejected" && state != "deferred" && state != "quarantined") continue;
    if (has_candidate(*explained, id, nullptr)) continue;
    (*explained)["candidates"].push_back(
        refused(id, plugin.value("broken", false), plugin.at("reason_code").get<std::string>(),
                fmt::format("the plugin is {}: {}", state, plugin.at("reason").get<std::string>())));
  }
}

int run_explain(const Arguments& arguments) {
  const OpCall call = describe_call(find_op(arguments.operand(0)), arguments);
  const std::string pin = arguments.value("backend");
  Session session;
  session.open_for(call, pin);
  const rlk_call_options options = call_options_of(pin, parse_numerics(arguments.value("numerics")));
  const std::string document = session.explain_json(call, options);
  const std::string chosen = chosen_of(document), backend = session.backend();
  ordered_json explained = ordered_json::parse(document);
  if (pin.empty()) {
    add_other_devices(&session, call, options, &explained);
    add_unused_plugins(session, &explained);
  }
  if (arguments.json()) {
    std::fprintf(output(), "%s\n", explained.dump(2).c_str());
  } else {
    print(call, backend, explained, chosen);
  }
  return chosen.empty() ? kBroken : kFine;
}

}  // namespace

Verb verb_explain() {
  std::vector<Option> options = call_options();
  options.push_back({"backend", "B[:IMPL]", "pin the call, as cuda, cpu:fused or plugin/implementation"});
  options.push_back({"numerics", "CLASS,...", "demand classes: accurate, deterministic, batch_invariant, portable"});
  return {
      "explain",
      "Which implementation would take a call, and the reason for every other one.",
      "Sizes and dtypes that are not given are the first that the operator's declaration names. The environment\n"
      "(RLK_FALLBACK, RLK_BACKEND, RLK_OP_<NAME>, RLK_CONFIG) counts as for the call. Implementations on other devices "
      "and\n"
      "plugins that are not used stand last; a pinned call has only those of its device. Exit code 1: none takes it.",
      "rlk-plugins explain logp --dtype bf16 --shape N=4096,V=151936 --with entropy",
      {{"OP", true}},
      std::move(options),
      run_explain};
}

}  // namespace rlk::cli

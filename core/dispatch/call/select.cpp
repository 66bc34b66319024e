// Which implementations could serve a call, in which order, and why not the others.
#include "core/dispatch/call/select.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "core/declaration/error.hpp"
#include "core/declaration/plugin_call.hpp"
#include "core/declaration/text.hpp"
#include "core/dispatch/call/eligible.hpp"
#include "core/dispatch/trust/trace.hpp"
#include "core/dispatch/trust/watchdog.hpp"

namespace rlk::core {
namespace {

class Asker {
public:
  Asker(const CallRequest& request, const Policy& policy)
      : request_(request), policy_(policy), preferences_(policy.preferences(*request.call.decl, request.on->backend)) {}

  Option ask(const Candidate& candidate) const {
    Option option;
    option.candidate = candidate.shared_from_this();
    option.plugin = candidate.plugin->id;
    option.implementation = candidate.implementation->name;
    option.staged = candidate.on != request_.on;
    for (size_t i = 0; i < preferences_.size() && i < 64; ++i) {
      if (preferences_[i].matches(candidate)) option.preferences |= uint64_t{1} << (63 - i);
    }
    const auto decline = [&](const Refusal& refusal) {
      option.verdict = Verdict::declined;
      option.reason_code = refusal.code;
      option.reason = refusal.text;
      if (refusal.code == "NUMERICS" && (policy_.numerics() & request_.numerics) != 0) {
        option.reason +=
            fmt::format(" ({} demands {})", policy_.numerics_source(), text_of_numerics(policy_.numerics()));
      }
    };
    if (const Refusal r = refuse_quarantined(candidate, request_.call); !r.code.empty()) {
      decline(r);
      option.verdict = Verdict::failed;
      return option;
    }
    if (const Refusal r = refuse_newer(candidate, request_.call); !r.code.empty()) return decline(r), option;
    if (!query(candidate, option)) return option;
    const uint32_t demanded = request_.numerics | RLK_NUMERICS_TOLERANCE;
    if ((option.numerics & demanded) != demanded) {
      return decline({"NUMERICS", fmt::format("would be {}; demanded is {}", text_of_numerics(option.numerics),
                                              text_of_numerics(request_.numerics))}),
             option;
    }
    if (const Refusal r =
            refuse_unverified(candidate, request_.call, request_.features, option.variant, request_.numerics);
        !r.code.empty()) {
      return decline(r), option;
    }
    option.verdict = Verdict::willing;
    if (!candidate.costs.empty()) {
      option.measured_us = measured_cost(candidate.costs, kind_of_call(request_.call, request_.features),
                                         sizes_of_call(request_.call), option.cost_us);
    }
    return option;
  }

private:
  // False: declined, or the question failed.
  bool query(const Candidate& candidate, Option& option) const {
    rlk_support answer{};
    answer.struct_size = sizeof(answer);
    rlk_error error{};
    error.struct_size = sizeof(error);
    rlk_private_params mine;
    const rlk_call_desc desc = request_.description.desc(candidate.plugin->id, &mine);
    rlk_plugin_device* device = nullptr;
    rlk_status status = candidate.device->open(&device, &error);
    if (status != RLK_OK) {
      option.verdict = Verdict::failed;
      option.reason_code = name_of_status(status);
      option.reason = text_of(error.text);
      return false;
    }
    Trace first = trace({candidate.plugin->id, candidate.decl->name, candidate.implementation->name,
                         first_dtype(request_.call), "query", candidate.plugin->api});
    const Watchdog::Inside inside(request_.watchdog,
                                  {"query", nullptr, candidate.plugin.get(), &candidate, request_.call.dtypes[0], 0});
    status = call_plugin(candidate.implementation->query, candidate.implementation, device, &desc, &answer, &error);
    first.reset();
    if (status != RLK_OK || answer.level < RLK_SUPPORT_NO || answer.level > RLK_SUPPORT_PREFERRED) {
      option.verdict = Verdict::failed;
      option.reason_code = status != RLK_OK ? name_of_status(status) : "INVALID_ANSWER";
      option.reason = status != RLK_OK ? "query failed: " + text_of(error.text)
                                       : fmt::format("query answered the level {}", answer.level);
      return false;
    }
    option.level = answer.level;
    option.numerics = answer.numerics | implied_numerics(*request_.call.decl, request_.call.dtypes[0]);
    option.variant = text_of(answer.variant);
    option.cost_us = std::isfinite(answer.cost_us) && answer.cost_us > 0 ? answer.cost_us : 0;
    option.reason_code = text_of(answer.reason_code);
    option.reason = text_of(answer.reason);
    if (answer.level != RLK_SUPPORT_NO) return true;
    option.verdict = Verdict::declined;
    if (option.reason_code.empty()) option.reason_code = "UNSUPPORTED";
    // rlk does not copy to contiguous memory on its own: the caller decides about that cost, or a fallback serves.
    if ((answer.flags & RLK_SUPPORT_IF_CONTIGUOUS) != 0) option.reason += " (contiguous tensors would be taken)";
    return false;
  }

  const CallRequest& request_;
  const Policy& policy_;
  const std::vector<Preference> preferences_;
};

// The rules of the order, the strongest first, and the one that decides between two willing options.
enum class Rule { preference, device, not_slow, time, cost, level, registration };

Rule deciding(const Option& a, const Option& b, const Selection& selection) {
  if (a.preferences != b.preferences) return Rule::preference;
  if (a.staged != b.staged) return Rule::device;
  if ((a.level == RLK_SUPPORT_SLOW) != (b.level == RLK_SUPPORT_SLOW)) return Rule::not_slow;
  if (selection.by_time && a.measured_us != b.measured_us) return Rule::time;
  if (selection.by_cost && a.cost_us != b.cost_us) return Rule::cost;
  return a.level != b.level ? Rule::level : Rule::registration;
}

void sort(Selection& selection) {
  selection.by_time = selection.by_cost = true;
  for (const Option& o : selection.options) {
    if (o.verdict != Verdict::willing || o.staged) continue;
    selection.by_time = selection.by_time && o.measured_us > 0;
    selection.by_cost = selection.by_cost && o.cost_us > 0;
  }
  const auto before = [&](const Option& a, const Option& b) {
    const bool willing_a = a.verdict == Verdict::willing, willing_b = b.verdict == Verdict::willing;
    if (willing_a != willing_b) return willing_a;
    if (!willing_a) return false;
    switch (deciding(a, b, selection)) {
      case Rule::preference:
        return a.preferences > b.preferences;
      case Rule::device:
        return b.staged;
      case Rule::not_slow:
        return b.level == RLK_SUPPORT_SLOW;
      case Rule::time:
        return a.measured_us < b.measured_us;
      case Rule::cost:
        return a.cost_us < b.cost_us;
      case Rule::level:
        return a.level > b.level;
      case Rule::registration:
        break;
    }
    return false;
  };
  std::stable_sort(selection.options.begin(), selection.options.end(), before);
}

const char* name_of_level(int32_t level) {
  return level == RLK_SUPPORT_SLOW ? "slow" : level == RLK_SUPPORT_PREFERRED ? "preferred" : "ok";
}

// A preference that no candidate of this device meets, as an entry that says why.
Option unmet(const Snapshot& snapshot, const CallRequest& request, const Preference& preference) {
  Option option;
  option.plugin = preference.who;
  option.implementation = preference.implementation;
  option.verdict = Verdict::declined;
  const std::string asked = fmt::format("{} asks for {}", preference.source, preference.text());
  if (snapshot.knows(preference.who)) {
    bool elsewhere = false, here = false;
    for (const Candidate& c : snapshot.candidates) {
      const bool right = c.plugin->id == preference.who || c.plugin->backend == preference.who;
      elsewhere = elsewhere || (right && c.decl == request.call.decl);
      here = here || (right && c.decl == request.call.decl && c.on == request.on);
    }
    option.reason_code = here ? "NO_SUCH_IMPLEMENTATION" : elsewhere ? "OTHER_DEVICE" : "OPERATOR_MISSING";
    option.reason = asked + (here        ? ", which has no implementation of that name"
                             : elsewhere ? ", but the stream belongs to " + request.on->name()
                                         : ", which does not bring this operator");
  } else if (const RejectedPlugin* rejected = snapshot.find_rejected(preference.who)) {
    option.reason_code = rejected->reason_code;
    option.reason = fmt::format("{}, which is not registered: {}", asked, rejected->reason);
  } else {
    option.reason_code = "NO_SUCH_PLUGIN";
    option.reason = asked + ", which is no plugin or backend" + snapshot.meant_plugin(preference.who);
  }
  return option;
}

}  // namespace

const char* name_of(Verdict verdict) {
  static constexpr const char* kNames[] = {"willing", "taken", "declined", "failed", "filtered"};
  return kNames[static_cast<int>(verdict)];
}

rlk_status select(const Snapshot& snapshot, const Policy& policy, const CallRequest& request, Selection* out,
                  rlk_error* error) {
  const std::vector<Preference> preferences = policy.preferences(*request.call.decl, request.on->backend);
  Preference pin;
  if (!request.pin.empty() && !parse_preference(request.pin, "the call's pin", &pin)) {
    return failf(error, RLK_INVALID_ARGUMENT,
                 "%s: pin is \"%.*s\"; expected BACKEND, BACKEND:IMPLEMENTATION or PLUGIN/IMPLEMENTATION",
                 request.call.decl->name, static_cast<int>(request.pin.size()), request.pin.data());
  }
  const Asker asker(request, policy);
  std::vector<Option>& options = out->options;
  options.clear();
  out->platform = request.on->backend;
  bool pin_met = false, required_met = request.required_plugin.empty();
  std::vector<bool> met(preferences.size());
  for (const Candidate& candidate : snapshot.candidates) {
    if (candidate.decl != request.call.decl) continue;
    const bool cpu = candidate.on->backend == "cpu" && candidate.on->ordinal == 0;
    if (candidate.on != request.on && !cpu) continue;
    for (size_t i = 0; i < preferences.size(); ++i) met[i] = met[i] || preferences[i].matches(candidate);
    const bool pinned_away = !request.pin.empty() && !pin.matches(candidate);
    const bool required_away = !request.required_plugin.empty() && request.required_plugin != candidate.plugin->id;
    pin_met = pin_met || !pinned_away;
    required_met = required_met || !required_away;
    const Exclusion* const exclusion =
        request.pin.empty() && request.required_plugin.empty() ? policy.exclusion(candidate) : nullptr;
    if (pinned_away || required_away || exclusion != nullptr) {
      Option option;
      option.candidate = candidate.shared_from_this();
      option.plugin = candidate.plugin->id;
      option.implementation = candidate.implementation->name;
      option.staged = candidate.on != request.on;
      option.verdict = Verdict::filtered;
      option.reason_code = pinned_away ? "PINNED" : required_away ? "PRIVATE_PARAMS" : "OFF";
      option.reason = pinned_away     ? "the call is pinned to " + pin.text()
                      : required_away ? "private parameters for " + std::string(request.required_plugin) + " alone"
                                      : fmt::format("{} ({}; a preference for this operator by name turns it on)",
                                                    exclusion->reason, exclusion->source);
      options.push_back(std::move(option));
      continue;
    }
    options.push_back(asker.ask(candidate));
  }
  sort(*out);
  if (!request.pin.empty() && !pin_met) options.push_back(unmet(snapshot, request, pin));
  if (!required_met) {
    Preference required;
    required.who = request.required_plugin;
    required.plugin_only = true;
    required.source = "the call's private parameters";
    options.push_back(unmet(snapshot, request, required));
  }
  for (size_t i = 0; i < preferences.size(); ++i) {
    if (!met[i]) options.push_back(unmet(snapshot, request, preferences[i]));
  }
  return RLK_OK;
}

std::string Selection::rule_between(const Policy& policy, const OpDecl& decl, const Option& first,
                                    const Option& second) const {
  switch (deciding(first, second, *this)) {
    case Rule::preference:
      for (const Preference& preference : policy.preferences(decl, platform)) {
        if (preference.matches(*first.candidate) && !preference.matches(*second.candidate))
          return fmt::format("{} asks for {}", preference.source, preference.text());
      }
      return "it is asked for";
    case Rule::device:
      return "a plugin of the call's device comes before the CPU, to which the data would have to be copied";
    case Rule::not_slow:
      return "the other one says that it is slow for this call";
    case Rule::time:
      return fmt::format("calls like it took less when they were timed ({:.1f} us, the other one {:.1f} us)",
                         first.measured_us, second.measured_us);
    case Rule::cost: {
      char text[96];
      std::snprintf(text, sizeof(text), "it states a lower cost (%.3g us, the other one %.3g us)", first.cost_us,
                    second.cost_us);
      return text;
    }
    case Rule::level:
      return fmt::format("it answers \"{}\", the other one \"{}\"{}", name_of_level(first.level),
                         name_of_level(second.level), by_cost ? "" : ", and not everybody states a cost");
    case Rule::registration:
      break;
  }
  return "both answer the same, and it was registered earlier";
}

FallbackReason Selection::why_not_first(const Policy& policy, const CallRequest& request, const Option& taken) const {
  const auto refused = [&](auto&& concerns) -> const Option* {
    for (const Option& o : options) {
      if (o.verdict != Verdict::willing && o.verdict != Verdict::taken && concerns(o)) return &o;
    }
    return nullptr;
  };
  // A pin is met or the call fails. Of the preferences only the strongest counts: it overrides the others.
  const std::vector<Preference> preferences = policy.preferences(*request.call.decl, request.on->backend);
  if (!request.pin.empty() || !request.required_plugin.empty()) return {};
  if (!preferences.empty()) {
    const Preference& preference = preferences.front();
    if (preference.matches(*taken.candidate)) return {};
    const Option* why = refused([&](const Option& o) {
      return o.candidate != nullptr ? preference.matches(*o.candidate)
                                    : o.plugin == preference.who && o.implementation == preference.implementation;
    });
    if (why == nullptr) return {"OTHER", fmt::format("{} asks for {}", preference.source, preference.text())};
    const std::string who = why->plugin + (why->implementation.empty() ? "" : "/" + why->implementation);
    return {why->reason_code, why->candidate == nullptr ? why->reason
                                                        : fmt::format("{} asks for {}, but {}: {}", preference.source,
                                                                      preference.text(), who, why->reason)};
  }
  if (!taken.staged) return {};
  const Option* why = refused([&](const Option& o) { return o.candidate != nullptr && !o.staged; });
  if (why == nullptr) return {"NO_IMPLEMENTATION", "no plugin brings it for " + request.on->name()};
  return {why->reason_code, fmt::format("{}/{}: {}", why->plugin, why->implementation, why->reason)};
}

std::string describe_refusals(const CallRequest& request, const Selection& selection) {
  std::string text =
      fmt::format("{}: no implementation takes this call on {}.", request.call.decl->name, request.on->name());
  const char* between = " ";
  for (const Option& o : selection.options) {
    if (o.verdict == Verdict::willing) continue;
    text += fmt::format("{}{}{}: {}{}", between, o.plugin, o.implementation.empty() ? "" : "/" + o.implementation,
                        o.reason_code, o.reason.empty() ? "" : ", " + o.reason);
    between = "; ";
  }
  if (selection.options.empty()) text += " No plugin brings this operator; see rlk-plugins list";
  return text;
}

}  // namespace rlk::core

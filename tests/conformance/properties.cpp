// Calls run by three hosts and in two layouts, bits against bits; calls with nothing in them against golden.
#include "conformance/properties.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include "conformance/hosts.hpp"
#include "conformance/simple/target.hpp"
#include "core/conformance/compare.hpp"
#include "core/conformance/data.hpp"
#include "core/conformance/schedule.hpp"
#include "loader/host/services.hpp"

extern "C" const rlk_plugin* rlk_cpu_entry_v1(const rlk_host*, rlk_error*);

namespace rlk::test {

using namespace core;
using namespace core::conformance;

namespace {

constexpr uint32_t kNumerics = RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_DETERMINISTIC;

// A host's device and what runs on it.
struct Machine {
  Machine(const rlk_plugin* plugin, const rlk_host* host) : open(plugin, host), harness(open.target()) {}
  simple::OpenTarget open;
  Harness harness;
};

// The same values without gaps, each output in memory of its own; false where it lies so already.
bool make_plain(ConcreteCall& call) {
  bool changed = false;
  for (std::vector<Argument>* list : {&call.inputs, &call.outputs}) {
    for (Argument& argument : *list) {
      changed |= argument.present && (argument.layout != Layout::contiguous || argument.shift != 0);
      argument.layout = Layout::contiguous;
      argument.shift = 0;
    }
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const int32_t needed = call.decl->outputs[i].must_alias;
    changed |= call.output_alias[i] != needed;
    call.output_alias[i] = needed;
  }
  return changed;
}

class Properties {
public:
  Properties(const OpDecl& decl, size_t most, Tried& tried)
      : decl_(decl),
        most_(most),
        tried_(tried),
        plugin_(rlk_cpu_entry_v1(loader::host_services(), nullptr)),
        serial_(plugin_, serial_host()),
        backwards_(plugin_, backwards_host()),
        pool_(plugin_, loader::host_services()) {
    for (Machine* machine : {&serial_, &backwards_, &pool_}) {
      if (const auto failure = machine->harness.start()) note("start", failure->text);
    }
  }

  std::vector<std::string> run(Dtypes dtypes) {
    for (uint32_t i = 0; i < plugin_->n_implementations; ++i) {
      if (std::strcmp(plugin_->implementations[i]->op, decl_.name) != 0) continue;
      implementation_ = plugin_->implementations[i];
      for (size_t form = 0; form < decl_.forms.size(); ++form) {
        const size_t count = dtypes == Dtypes::first ? 1 : decl_.dtypes[0].choices.size();
        for (size_t dtype = 0; dtype < count; ++dtype) {
          seen_.clear();
          empties(static_cast<int>(dtype), static_cast<int>(form));
          schedule(decl_, static_cast<int>(dtype), static_cast<int>(form), Extent::smoke,
                   {implementation_->switches, implementation_->n_switches}, 1, [&](const Case& c, Stage) {
                     same_bits(c);
                     return std::vector<std::string>{""};
                   });
        }
      }
    }
    return std::move(broken_);
  }

private:
  void note(const std::string& words, const std::string& text) {
    if (broken_.size() < most_) broken_.push_back(std::string(decl_.name) + " " + words + ": " + text);
  }

  // A call with its values, of a case that was not tried before.
  bool make(const Case& c, ConcreteCall& call, std::string& words) {
    if (broken_.size() >= most_ || !resolve(c, call)) return false;
    words = describe(c, call);
    if (!seen_.insert(words).second) return false;
    fill_inputs(c, 1, call);
    return true;
  }

  Outcome run(Harness& harness, const ConcreteCall& call) {
    Outcome outcome;
    const Claim claim = harness.query(*implementation_, call, kNumerics);
    OwnedPlan plan;
    if (claim.kind != Claim::Kind::accepted) {
      outcome.failure = Failure{claim.reason_code, claim.reason};
    } else {
      outcome.failure = harness.make_plan(*implementation_, call, kNumerics, claim, plan);
    }
    return outcome.failure ? outcome : harness.run(plan, call, {});
  }

  void compare(const ConcreteCall& call, const std::string& words, const Outcome& right, const Outcome& got,
               const char* how) {
    if (got.failure) return note(words, got.failure->text + ", " + how);
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      if (!call.outputs[i].present) continue;
      const std::string difference = first_difference(call, i, right.outputs[i], got.outputs[i]);
      if (!difference.empty()) return note(words, difference + ", " + how);
    }
    const auto same = [](const Fault& a, const Fault& b) {
      return a.kind == b.kind && a.row == b.row && a.value == b.value;
    };
    if (!std::equal(right.told.begin(), right.told.end(), got.told.begin(), got.told.end(), same)) {
      note(words, std::string("another data error, ") + how);
    }
  }

  void same_bits(const Case& c) {
    ConcreteCall call;
    std::string words;
    if (!make(c, call, words)) return;
    const Outcome serial = run(serial_.harness, call);
    if (serial.failure) return note(words, serial.failure->text);
    compare(call, words, serial, run(backwards_.harness, call), "with seven threads that take the last ranges first");
    compare(call, words, serial, run(pool_.harness, call), "on the pool of threads");
    ++tried_.threads;
    if (make_plain(call)) {
      compare(call, words, run(serial_.harness, call), serial, "so and in memory of its own without gaps");
      ++tried_.strides;
      return;
    }
    for (const Layout layout : {Layout::stepped, Layout::transposed}) {
      for (std::vector<Argument>* list : {&call.inputs, &call.outputs}) {
        for (Argument& argument : *list) argument.layout = layout;
      }
      compare(call, words, serial, run(serial_.harness, call), name_of(layout));
      ++tried_.strides;
    }
  }

  // ---- nothing at all ----------------------------------------------------------------------------------------------

  void empties(int dtype, int form) {
    Case base;
    base.decl = &decl_;
    base.form = form;
    base.dtype_choice[0] = dtype;
    if (!decl_.shape_cases.empty()) {
      for (size_t i = 0; i < decl_.shape_cases.size(); ++i) {
        Case first = base, last = base;
        first.shape_case = last.shape_case = static_cast<int>(i);
        first.first_given = last.last_given = 0;
        empty(first);
        empty(last);
      }
      return;
    }
    for (size_t i = 0; i < decl_.symbols.size(); ++i) {
      if (decl_.symbols[i].form >= 0 && decl_.symbols[i].form != form) continue;
      Case one = base;
      one.size_given[i] = 0;
      empty(one);
      for (size_t k = i + 1; k < decl_.symbols.size(); ++k) {
        Case two = one;
        two.size_given[k] = 0;
        if (decl_.symbols[k].form < 0 || decl_.symbols[k].form == form) empty_alone(two);
      }
    }
  }
  void empty(const Case& c) {
    empty_alone(c);
    ConcreteCall call;
    if (!resolve(c, call)) return;
    for (const Case& single : single_cases(c, true)) empty_alone(single);
  }
  void empty_alone(const Case& c) {
    ConcreteCall call;
    std::string words;
    if (!make(c, call, words)) return;
    const RunSettings settings;
    Quality quality;
    if (auto failure = check(call, golden_answer(call), run(pool_.harness, call), settings.poison, quality)) {
      note(words, failure->text);
    }
    ++tried_.empties;
  }

  const OpDecl& decl_;
  const size_t most_;
  Tried& tried_;
  const rlk_plugin* plugin_;
  Machine serial_, backwards_, pool_;
  const rlk_implementation* implementation_ = nullptr;
  std::set<std::string> seen_;
  std::vector<std::string> broken_;
};

}  // namespace

std::vector<std::string> broken_properties(const OpDecl& decl, size_t most, Tried& tried, Dtypes dtypes) {
  return Properties(decl, most, tried).run(dtypes);
}

}  // namespace rlk::test

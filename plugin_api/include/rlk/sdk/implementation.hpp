// An implementation of an operator as a C++ class:
//
//   struct FusedLogp {
//     using Op = rlk::sdk::ops::Logp;
//     static constexpr const char* kName = "fused";
//     static Support query(MyDevice&, const Call<Op>&);                    // pure, microseconds
//     static std::unique_ptr<Plan> plan(MyDevice&, const Call<Op>&);       // may be slow; nullptr: not ready yet
//     static constexpr rlk_switch kSwitches[] = {{sizeof(rlk_switch), 0, "V", 4096}};   // optional
//   };
//
// Query is asked again before plan, so plan need not repeat its checks, nor the variant and the numerics that it named.
#pragma once

#include <rlk/sdk/call.hpp>
#include <rlk/sdk/device.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace rlk::sdk {

class Plan {
public:
  virtual ~Plan() = default;
  // Exact workspace bytes for this execution; called before enqueue when kPrepare is set or the bound is unknown.
  virtual uint64_t prepare(const Run&) { return workspace_bound; }
  virtual void enqueue(Stream&, const Run&) = 0;

  // To be set by the constructor.
  uint32_t flags = RLK_PLAN_SHAREABLE;
  uint64_t dynamic_symbols = 0;                 // bit per symbol: bits_of (arguments.hpp)
  std::vector<int64_t> symbol_min, symbol_max;  // empty: no bounds
  // That of query's answer: one that has dynamic symbols and needs any is asked by prepare.
  static constexpr uint64_t kAsQueried = UINT64_MAX - 1;
  uint64_t workspace_bound = kAsQueried;
  uint64_t host_inputs = 0;       // bit per input: bits_of
  uint64_t persistent_bytes = 0;  // device memory that the host keeps for this plan: Run::persistent
  // Where the plan is of another variant than query named; else both are query's.
  std::string variant;
  uint32_t numerics = RLK_NUMERICS_TOLERANCE;
};

namespace detail {

inline Plan* plan_of(rlk_plugin_plan* plan) noexcept {
  return reinterpret_cast<Plan*>(plan);
}

// Unlike std::void_t, two of these are never one type to a compiler that ignores unused arguments of an alias.
template <class...>
struct Void {
  using type = void;
};

template <class T, class = void>
struct Switches {
  static constexpr uint32_t count() { return 0; }
  static constexpr const rlk_switch* const* table() { return nullptr; }
};

template <class T>
struct Switches<T, typename Void<decltype(T::kSwitches)>::type> {
  static constexpr uint32_t count() { return sizeof(T::kSwitches) / sizeof(rlk_switch); }
  template <class Sequence>
  struct Table;
  template <size_t... I>
  struct Table<std::index_sequence<I...>> {
    static constexpr const rlk_switch* kRows[] = {&T::kSwitches[I]...};
  };
  static constexpr const rlk_switch* const* table() { return Table<std::make_index_sequence<count()>>::kRows; }
};

// Those that are known at run time: T::switches() returns a vector of pointers that lives as long as the process.
template <class T>
struct Switches<T, typename Void<decltype(T::switches())>::type> {
  static uint32_t count() { return static_cast<uint32_t>(T::switches().size()); }
  static const rlk_switch* const* table() { return T::switches().data(); }
};

// A bound is stated once. What query said holds for the sizes that it saw.
inline void take_bound(const Support& support, Plan& plan) {
  if (plan.workspace_bound != Plan::kAsQueried) return;
  const bool is_of_other_sizes = plan.dynamic_symbols != 0 && support.workspace_bound != 0;
  plan.workspace_bound = is_of_other_sizes ? UINT64_MAX : support.workspace_bound;
}

// What knows no operator is no template: a plugin has it once.
inline void put(const Support& support, rlk_support& out) {
  rlk_support mine = rlk_support();
  mine.level = support.level;
  mine.numerics = support.numerics;
  mine.flags = support.flags;
  mine.workspace_bound = support.workspace_bound;
  mine.host_inputs = support.host_inputs;
  mine.cost_us = support.cost_us;
  copy_text(mine.variant, support.variant.c_str());
  copy_text(mine.reason_code, support.reason_code.c_str());
  copy_text(mine.reason, support.reason.c_str());
  answer(mine, &out);
}

inline void put(const Plan& plan, const Support& queried, rlk_plan_info& info) {
  const bool is_own = !plan.variant.empty();
  rlk_plan_info mine = rlk_plan_info();
  mine.flags = plan.flags;
  mine.dynamic_symbols = plan.dynamic_symbols;
  mine.symbol_min = plan.symbol_min.empty() ? nullptr : plan.symbol_min.data();
  mine.symbol_max = plan.symbol_max.empty() ? nullptr : plan.symbol_max.data();
  mine.workspace_bound = plan.workspace_bound;
  mine.host_inputs = plan.host_inputs;
  mine.numerics = (is_own ? plan.numerics : queried.numerics) | RLK_NUMERICS_TOLERANCE;
  copy_text(mine.variant, (is_own ? plan.variant : queried.variant).c_str());
  mine.persistent_bytes = plan.persistent_bytes;
  answer(mine, &info);
}

inline rlk_status plan_prepare(rlk_plugin_plan* plan, const rlk_run* run, uint64_t* bytes, rlk_error* error) noexcept {
  return guard(error, [&] { return *bytes = plan_of(plan)->prepare(Run(*run)), RLK_OK; });
}
inline rlk_status plan_enqueue(rlk_plugin_plan* plan, rlk_plugin_stream* stream, const rlk_run* run,
                               rlk_error* error) noexcept {
  return guard(error, [&] { return plan_of(plan)->enqueue(*stream_of(stream), Run(*run)), RLK_OK; });
}
inline rlk_status plan_destroy(rlk_plugin_plan* plan, rlk_error* error) noexcept {
  return guard(error, [&] { return delete plan_of(plan), RLK_OK; });
}

// What an implementation answers and plans, as functions that know its operator and device.
using Ask = Support (*)(rlk_plugin_device* device, const rlk_call_desc& desc);
using Make = std::unique_ptr<Plan> (*)(rlk_plugin_device* device, const rlk_call_desc& desc);

inline rlk_status query_by(Ask ask, rlk_plugin_device* device, const rlk_call_desc* desc, rlk_support* out,
                           rlk_error* error) noexcept {
  return guard(error, [&] { return put(ask(device, *desc), *out), RLK_OK; });
}
inline rlk_status plan_by(Ask ask, Make make, rlk_plugin_device* device, const rlk_call_desc* desc,
                          rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) noexcept {
  return guard(error, [&] {
    const Support support = ask(device, *desc);
    if (support.level == RLK_SUPPORT_NO) throw Error(RLK_UNSUPPORTED, support.reason_code + ": " + support.reason);
    std::unique_ptr<Plan> plan = make(device, *desc);
    if (plan == nullptr) return RLK_NOT_READY;
    take_bound(support, *plan);
    put(*plan, support, *info);
    *out = reinterpret_cast<rlk_plugin_plan*>(plan.release());
    return RLK_OK;
  });
}

template <class T, class D>
struct ImplementationThunks {
  using Op = typename T::Op;
  static Support ask(rlk_plugin_device* device, const rlk_call_desc& desc) {
    return T::query(static_cast<D&>(*device_of(device)), Call<Op>(desc));
  }
  static std::unique_ptr<Plan> make(rlk_plugin_device* device, const rlk_call_desc& desc) {
    return T::plan(static_cast<D&>(*device_of(device)), Call<Op>(desc));
  }
  static rlk_status query(const rlk_implementation*, rlk_plugin_device* device, const rlk_call_desc* desc,
                          rlk_support* out, rlk_error* error) noexcept {
    return query_by(&ask, device, desc, out, error);
  }
  static rlk_status plan_create(const rlk_implementation*, rlk_plugin_device* device, const rlk_call_desc* desc,
                                rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) noexcept {
    return plan_by(&ask, &make, device, desc, out, info, error);
  }
  inline static const rlk_implementation kRow = {
      sizeof(rlk_implementation),
      Op::kRevision,
      Op::kName,
      T::kName,
      sizeof(typename Op::Params),
      Op::kInputs,
      Op::kOutputs,
      Switches<T>::count(),
      Switches<T>::table(),
      nullptr,
      &query,
      &plan_create,
      &plan_prepare,
      &plan_enqueue,
      &plan_destroy,
  };
};

}  // namespace detail
}  // namespace rlk::sdk

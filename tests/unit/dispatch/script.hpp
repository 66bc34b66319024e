// How an implementation of a test plugin answers, and what it has done.
#pragma once

#include <rlk/ops/add.h>
#include <rlk/ops/attention.h>
#include <rlk/ops/logp.h>
#include <rlk/sdk/call.hpp>
#include <rlk/sdk/ops.hpp>

#include <atomic>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace rlk::test {

constexpr double kHonest = std::numeric_limits<double>::quiet_NaN();  // as a mark of logp: it is computed

struct Script {
  // answers of query
  int32_t level = RLK_SUPPORT_OK;
  uint32_t numerics = RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_DETERMINISTIC;
  uint32_t support_flags = 0;
  double cost_us = 0;
  std::string variant = "v1", reason_code, reason;
  rlk_status fail_query = RLK_OK;
  // the plan
  uint32_t plan_flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
  uint64_t dynamic_symbols = ~uint64_t{0};
  std::vector<int64_t> symbol_min, symbol_max;
  uint64_t workspace = 0;                     // bytes; what enqueue touches
  std::function<uint64_t(int64_t)> prepared;  // bytes for symbol 0, when prepare is called
  uint64_t host_inputs = 0;
  std::string plan_variant;  // when it is not that of query
  rlk_status fail_plan = RLK_OK, fail_enqueue = RLK_OK;
  std::atomic<bool> compiling{false};  // plan answers that it is not ready
  uint64_t persistent = 0;             // bytes
  std::function<void(const rlk_private_params*)> on_query, on_plan;
  std::function<void(const sdk::Run&)> on_enqueue;  // on the caller's thread
  // what happened
  std::atomic<int> asked{0};  // for a plan
  std::atomic<int> queries{0}, plans{0}, prepares{0}, enqueues{0};
  std::atomic<int> destroyed{0}, in_flight{0}, most_in_flight{0}, runs{0};
  std::atomic<int64_t> last_first_symbol{-1};
  double mark = 0;        // what logp writes and add adds
  int64_t mark_from = 0;  // the first element that add adds it to

  void reset() {  // members are assigned one by one: atomics do not copy
    level = RLK_SUPPORT_OK;
    numerics = RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_DETERMINISTIC;
    support_flags = 0;
    cost_us = 0;
    variant = "v1";
    reason_code = reason = plan_variant = "";
    fail_query = fail_plan = fail_enqueue = RLK_OK;
    plan_flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
    dynamic_symbols = ~uint64_t{0};
    symbol_min.clear();
    symbol_max.clear();
    workspace = host_inputs = 0;
    prepared = nullptr;
    on_enqueue = nullptr;
    compiling = false;
    persistent = 0;
    on_query = on_plan = nullptr;
    asked = 0;
    queries = plans = prepares = enqueues = 0;
    destroyed = in_flight = most_in_flight = runs = 0;
    last_first_symbol = -1;
    mark_from = 0;
  }
};

// One per plugin ("cpu", "fake", "plain", "guest"), operator and implementation (0: "first", 1: "second").
Script& script_of(const std::string& plugin, const std::string& op, int number);

template <class Op, int kNumber = 0>
Script& fake_script() {
  return script_of("fake", Op::kName, kNumber);
}
template <class Op, int kNumber = 0>
Script& plain_script() {
  return script_of("plain", Op::kName, kNumber);
}
template <class Op, int kNumber = 0>
Script& cpu_script() {
  return script_of("cpu", Op::kName, kNumber);
}
inline Script& guest_script() {
  return script_of("guest", "add", 0);
}

}  // namespace rlk::test

// A plugin's plan, the calls it covers, and its instances.
#include "core/dispatch/call/plan.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/declaration/error.hpp"
#include "core/dispatch/call/planning.hpp"
#include "core/dispatch/trust/release.hpp"

namespace rlk::core {
namespace {

// A caller that runs further ahead than this waits for the oldest execution instead.
constexpr size_t kMaxInstances = 16;

rlk_status fail_not_ready(rlk_error* error) {
  fail(error, RLK_NOT_READY, "the plan is being compiled in the background");
  return RLK_NOT_READY;
}

}  // namespace

rlk_status CachedPlan::create(const Candidate& candidate, CallDescription description, std::shared_ptr<CachedPlan>* out,
                              rlk_error* error) {
  std::shared_ptr<CachedPlan> plan(new CachedPlan(candidate, std::move(description)));
  rlk_status status = plan->make(&plan->first_, &plan->info_, error);
  if (status == RLK_OK) status = plan->take_bounds(error);
  if (status != RLK_OK) return status;
  *out = std::move(plan);
  return RLK_OK;
}

rlk_status CachedPlan::make(rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) {
  if (built_in_) return make_here(out, info, error);
  // No memory of the caller is written yet: if the plugin hangs here, the next candidate serves. What asked for the
  // plan switches the unit off, because making it is not the plugin's work alone.
  struct Making : TimedCall {
    std::shared_ptr<CachedPlan> plan;  // until the handle has been taken over
    rlk_plugin_plan* handle = nullptr;
    rlk_plan_info info{};
    Making() = default;
    // The caller has given up a plan that came too late: destroy it.
    ~Making() {
      if (plan != nullptr && handle != nullptr)
        release_by(plan->api_, "plan destroy", plan->implementation_.plan_destroy, handle);
    }
    Making(const Making&) = delete;
    Making& operator=(const Making&) = delete;
  };
  const auto making = std::make_shared<Making>();
  making->plan = shared_from_this();
  const char* op = implementation_.op;
  if (is_held_up(api_)) {
    return failf(error, RLK_NOT_READY,
                 "%s/%s: another plan of plugin %s has not come back, and this one would wait for it", op,
                 implementation_.name, api_.id);
  }
  const Ended ended = within_phases(api_, {kPlanSeconds, kPlanSeconds}, [making](PlanPhases& phases) {
    phases.begin_plan();
    making->status = making->plan->make_here(&making->handle, &making->info, &making->error);
  });
  if (ended == Ended::held_up) {
    return failf(error, RLK_NOT_READY,
                 "%s/%s: plan_create has not returned while other plans of plugin %s were being made, which it may "
                 "wait for; it is left behind",
                 op, implementation_.name, api_.id);
  }
  if (ended == Ended::late) {
    return failf(error, RLK_TIMEOUT,
                 "%s/%s: plan_create took longer than %.3g s; it is given up, and its thread left behind", op,
                 implementation_.name, kPlanSeconds * patience());
  }
  making->plan = nullptr;
  if (making->status == RLK_NOT_READY) return fail_not_ready(error);
  if (making->status != RLK_OK) {
    return fail(error, making->status, text_of(making->error), making->error.native_code,
                text_of(making->error.domain).c_str());
  }
  *out = making->handle;
  *info = making->info;
  return RLK_OK;
}

rlk_status CachedPlan::make_here(rlk_plugin_plan** out, rlk_plan_info* info, rlk_error* error) const {
  rlk_private_params mine;
  const rlk_call_desc desc = description_.desc(plugin_, &mine);
  *info = {};
  info->struct_size = sizeof(*info);
  *out = nullptr;
  const rlk_status status =
      call_plugin(implementation_.plan_create, &implementation_, device_, &desc, out, info, error);
  if (status == RLK_NOT_READY) return fail_not_ready(error);
  if (status != RLK_OK) return status < 0 ? status : RLK_INTERNAL;
  info->variant[sizeof(info->variant) - 1] = '\0';
  if (*out != nullptr) return RLK_OK;
  return failf(error, RLK_INTERNAL, "%s/%s: plan_create answered OK without a plan", implementation_.op,
               implementation_.name);
}

// Only what the declaration calls dynamic can leave the key: another symbol stays at the value it was planned with.
rlk_status CachedPlan::take_bounds(rlk_error* error) {
  const OpDecl& decl = description_.decl();
  n_symbols_ = decl.symbols.size();
  for (size_t i = 0; i < n_symbols_; ++i) {
    const int64_t value = description_.symbols()[i];
    symbol_min_[i] = symbol_max_[i] = value;
    if (value < 0 || !decl.symbols[i].dynamic || (info_.dynamic_symbols >> i & 1) == 0) continue;
    symbol_min_[i] = info_.symbol_min != nullptr ? info_.symbol_min[i] : 0;
    symbol_max_[i] = info_.symbol_max != nullptr ? info_.symbol_max[i] : INT64_MAX;
  }
  info_.symbol_min = nullptr;
  info_.symbol_max = nullptr;
  if (covers(description_.symbols())) return RLK_OK;
  return failf(error, RLK_INTERNAL, "%s/%s: the plan's bounds leave out the sizes it was made for", implementation_.op,
               implementation_.name);
}

void CachedPlan::close() {
  const std::lock_guard lock(mutex_);
  for (const auto& instance : instances_) {
    if (instance->handle != first_) release_by(api_, "plan destroy", implementation_.plan_destroy, instance->handle);
  }
  instances_.clear();
  if (first_ != nullptr) release_by(api_, "plan destroy", implementation_.plan_destroy, first_);
  first_ = nullptr;
  persistent_.release();
}

rlk_status CachedPlan::lease(bool capturing, rlk_plugin_plan** handle, Instance** instance, rlk_error* error) {
  *instance = nullptr;
  *handle = first_;
  if (has(RLK_PLAN_SHAREABLE)) return RLK_OK;
  const std::lock_guard lock(mutex_);
  if (instances_.empty()) {
    instances_.push_back(std::make_unique<Instance>());
    instances_.back()->handle = first_;
  }
  // An event must not be asked for while a stream captures: then only what is known to be idle will do.
  const auto idle = [&](Instance& candidate) {
    return capturing ? candidate.last_use.known_reached() : candidate.last_use.reached();
  };
  // The least recently leased stands first.
  const auto lease_at = [&](size_t i) {
    std::rotate(instances_.begin() + static_cast<std::ptrdiff_t>(i),
                instances_.begin() + static_cast<std::ptrdiff_t>(i) + 1, instances_.end());
    instances_.back()->leased = true;
    *instance = instances_.back().get();
    *handle = instances_.back()->handle;
    return RLK_OK;
  };
  for (size_t i = 0; i < instances_.size(); ++i) {
    if (!instances_[i]->leased && idle(*instances_[i])) return lease_at(i);
  }
  if (capturing) {
    return failf(
        error, RLK_CAPTURE_FORBIDS,
        "%s/%s: every instance of its plan may still run. Make the call once and synchronize the stream before "
        "the capture begins",
        implementation_.op, implementation_.name);
  }
  for (size_t i = 0; i < instances_.size() && instances_.size() >= kMaxInstances; ++i) {
    if (!instances_[i]->leased && instances_[i]->last_use.wait()) return lease_at(i);
  }
  auto fresh = std::make_unique<Instance>();
  instances_.reserve(instances_.size() + 1);  // what the plugin makes must find its place
  rlk_plan_info info;
  rlk_status status = make(&fresh->handle, &info, error);
  const auto deadline = std::chrono::steady_clock::now() + kLongestCompilation;
  while (status == RLK_NOT_READY && std::chrono::steady_clock::now() < deadline) {
    // One that has run to its end meanwhile does as well.
    for (size_t i = 0; i < instances_.size(); ++i) {
      if (!instances_[i]->leased && idle(*instances_[i])) return lease_at(i);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = make(&fresh->handle, &info, error);
  }
  if (status != RLK_OK) return status;
  fresh->leased = true;
  *handle = fresh->handle;
  *instance = instances_.emplace_back(std::move(fresh)).get();
  return RLK_OK;
}

void CachedPlan::give_back(Instance* instance, Fence* end) {
  if (instance == nullptr) return;
  const std::lock_guard lock(mutex_);
  if (end != nullptr) instance->last_use = std::move(*end);
  instance->leased = false;
}

}  // namespace rlk::core

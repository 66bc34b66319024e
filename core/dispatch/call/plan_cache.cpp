// Caches decisions and plans.
#include "core/dispatch/call/plan_cache.hpp"

#include <algorithm>
#include <new>
#include <thread>

namespace rlk::core {

void PlanCache::close_all() {
  for (auto& [hash, keyed] : lists_) {
    for (const auto& plan : keyed.list->plans) {
      plan->retire();
      while (!plan->is_idle()) std::this_thread::yield();  // a host function that is about to leave
      plan->close();
    }
    keyed.list->plans.clear();
  }
}

std::shared_ptr<const Decision> PlanCache::find(const PlanKey& key) const {
  const Shard& shard = shards_[key.hash() >> 60];
  const std::lock_guard lock(shard.mutex);
  const auto [begin, end] = shard.decisions.equal_range(key.hash());
  for (auto it = begin; it != end; ++it) {
    if (it->second->is_for(key.words())) return it->second;
  }
  return nullptr;
}

void PlanCache::insert(const PlanKey& key, std::shared_ptr<const Decision> decision) {
  Shard& shard = shards_[key.hash() >> 60];
  const std::lock_guard lock(shard.mutex);
  if (shard.decisions.size() >= kMaxDecisionsPerShard) shard.decisions.clear();
  const auto [begin, end] = shard.decisions.equal_range(key.hash());
  for (auto it = begin; it != end; ++it) {
    if (!it->second->is_for(key.words())) continue;
    it->second = std::move(decision);
    return;
  }
  shard.decisions.emplace(key.hash(), std::move(decision));
}

std::vector<uint64_t> PlanCache::words_of(const PlanKey& key, const Candidate& candidate) {
  std::vector<uint64_t> words = {reinterpret_cast<uintptr_t>(candidate.implementation),
                                 reinterpret_cast<uintptr_t>(candidate.device)};
  words.insert(words.end(), key.structure().begin(), key.structure().end());
  return words;
}

std::shared_ptr<PlanList> PlanCache::find_list(const PlanKey& key, const Candidate& candidate) {
  const std::vector<uint64_t> words = words_of(key, candidate);
  const std::lock_guard lock(lists_mutex_);
  const auto [begin, end] = lists_.equal_range(PlanKey::hash_of(words));
  for (auto it = begin; it != end; ++it) {
    if (it->second.key == words) return it->second.list;
  }
  return nullptr;
}

std::shared_ptr<PlanList> PlanCache::list_for(const PlanKey& key, const Candidate& candidate, DeviceState& home) {
  std::vector<uint64_t> words = words_of(key, candidate);
  const uint64_t hash = PlanKey::hash_of(words);
  const std::lock_guard lock(lists_mutex_);
  const auto [begin, end] = lists_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    if (it->second.key == words) return it->second.list;
  }
  auto list = std::make_shared<PlanList>(home);
  lists_.emplace(hash, KeyedList{std::move(words), candidate.implementation, candidate.device, list});
  return list;
}

std::shared_ptr<CachedPlan> PlanCache::covering(const PlanList& list, const int64_t* symbols) {
  for (const auto& plan : list.plans) {
    if (plan->covers(symbols)) return plan;
  }
  return nullptr;
}

void PlanCache::add(PlanList& list, std::shared_ptr<CachedPlan> plan, std::unique_lock<std::mutex>& list_lock) {
  plan->touch(tick_.fetch_add(1, std::memory_order_relaxed) + 1);
  const CachedPlan* newest = plan.get();
  list.plans.reserve(list.plans.size() + 1);
  list.home.expect_retired();  // what is in a list can be retired without memory
  list.plans.push_back(std::move(plan));
  list_lock.unlock();
  if (plan_count_.fetch_add(1, std::memory_order_relaxed) + 1 > max_plans_) drop_oldest(newest);
}

// A list that another thread is working on waits for the next generation, or for drop_oldest.
bool PlanCache::retire_unless(const std::function<bool(const rlk_implementation*, const PluginDevice*)>& is_wanted) {
  bool all = true;
  std::vector<std::pair<DeviceState*, std::shared_ptr<CachedPlan>>> unwanted;
  {
    const std::lock_guard lock(lists_mutex_);
    for (auto& [hash, keyed] : lists_) {
      if (is_wanted(keyed.implementation, keyed.device)) continue;
      const std::unique_lock list_lock(keyed.list->mutex, std::try_to_lock);
      if (!list_lock.owns_lock()) continue;
      // A plan that is in no list must be retired: without memory to note it, it stays where it is.
      try {
        unwanted.reserve(unwanted.size() + keyed.list->plans.size());
      } catch (const std::bad_alloc&) {
        all = false;
        break;
      }
      for (auto& plan : keyed.list->plans) unwanted.emplace_back(&keyed.list->home, std::move(plan));
      keyed.list->plans.clear();
    }
  }
  plan_count_.fetch_sub(unwanted.size(), std::memory_order_relaxed);
  for (Shard& shard : shards_) {  // made for an earlier generation, all but a few of the newest
    const std::lock_guard lock(shard.mutex);
    shard.decisions.clear();
  }
  for (auto& [home, plan] : unwanted) home->retire(std::move(plan));
  return all;
}

// Lists that another thread is working on are passed over: they hold the newest plans anyway.
void PlanCache::drop_oldest(const CachedPlan* newest) {
  std::shared_ptr<CachedPlan> oldest;
  std::shared_ptr<PlanList> from;
  std::vector<std::shared_ptr<PlanList>> empty;  // outlive the locks on them
  {
    const std::lock_guard lock(lists_mutex_);
    for (auto it = lists_.begin(); it != lists_.end();) {
      const std::shared_ptr<PlanList> list = it->second.list;
      const std::unique_lock list_lock(list->mutex, std::try_to_lock);
      if (!list_lock.owns_lock()) {
        ++it;
        continue;
      }
      if (list->plans.empty() && list.use_count() == 2) {  // this one and the map's
        empty.push_back(list);
        it = lists_.erase(it);
        continue;
      }
      for (const auto& plan : list->plans) {
        if (plan.get() == newest || (oldest != nullptr && plan->last_used() >= oldest->last_used())) continue;
        oldest = plan;
        from = list;
      }
      ++it;
    }
  }
  if (oldest == nullptr) return;
  {
    const std::lock_guard list_lock(from->mutex);
    const auto at = std::find(from->plans.begin(), from->plans.end(), oldest);
    if (at == from->plans.end()) return;  // another thread was faster
    from->plans.erase(at);
  }
  plan_count_.fetch_sub(1, std::memory_order_relaxed);
  from->home.retire(std::move(oldest));
}

}  // namespace rlk::core

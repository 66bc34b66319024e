// What becomes of captured streams, for vendors whose operators keep data errors in a record of the device: a graph
// that is launched, the errors of the calls in it, which happen whenever it runs, and what it keeps alive. The vendor,
// V, brings types and its own calls:
//
//   using Device = ..., Record = ...;        device.take_record(), .give_back_record(record, event), .foreign_records()
//   using Queue = ..., Event = ..., Graph = ...;  // its handles; null: none
//   using Place = ..., Scope = ..., Aside = ...;  // Scope(place): a thread may work there; Aside(place): and may ask
//                                                 // questions while another stream captures
//   static constexpr bool kOrdersLaunches;   // launches of one graph wait for each other by themselves
//   static constexpr const char* kNoEnd;     // why the end of a capture that it did not begin is not told
//   static Captures& captures();
//   static std::string why_not(const Device&);        // nothing is captured; empty: captures are
//   static CaptureStatus status(Queue, uint64_t* key);  // key: of the capture that is active
//   static void begin(Queue);
//   static Graph end(Queue);                 // throws; of a capture that is broken nothing is left
//   static void launch(Graph, Queue);
//   static void destroy(Graph);
//   static void create(Event*), record(Event, Queue), wait(Queue, Event), synchronize(Event), destroy_event(Event);
//   static bool is_reached(Event);
//   static bool take_error(Record, rlk_data_error&);  // which is empty afterwards; false: there was none
//
// captured_stream.hpp has what a stream does with them.
#pragma once

#include <rlk/sdk.hpp>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace rlk::composed {

enum class CaptureStatus { none, active, broken };

// The captures of a process, by the vendor's key of each. A key may be that of a graph which is gone: a capture that
// the plugin begins has a new number in any case; of another's, the number ends with the graph where the vendor tells.
// Where it does not, what one such capture kept is never released, and serves the next of that key. [thread-safe]
class Captures {
public:
  // tell: has the vendor call end(key) when the graph is gone; false where it does not tell.
  explicit Captures(bool (*tell)(uint64_t key)) : tell_(tell) {}

  // What is released with a capture, when this dies.
  class Ending {
  public:
    Ending() = default;
    Ending(Ending&&) = default;
    Ending& operator=(Ending&&) = delete;
    ~Ending();

  private:
    friend class Captures;
    std::vector<std::function<void()>> releases_;
    std::vector<std::shared_ptr<void>> kept_;
  };

  // By the plugin, which ends it, too.
  uint64_t begin(uint64_t key) { return known(key, true); }
  uint64_t number_of(uint64_t key) { return known(key, false); }
  // Calls release when nothing of the capture can run any more; false where that is not told.
  bool retain(uint64_t key, std::function<void()> release);
  // Lives as long as the capture, which is known; for ever where its end is not told.
  void keep(uint64_t key, const std::shared_ptr<void>& what);
  // number: what is gone, and not a later capture of the same key. 0: whatever there is.
  [[nodiscard]] Ending end(uint64_t key, uint64_t number);

private:
  struct One {
    uint64_t number = 0;
    bool end_is_told = false;
    Ending ending;
  };
  uint64_t known(uint64_t key, bool is_own);

  bool (*const tell_)(uint64_t key);
  std::mutex mutex_;
  std::map<uint64_t, One> all_;
  uint64_t last_ = 0;
};

// What a graph shares with the streams that launched it: they tell of its data errors, also when it is gone.
// [thread-safe]
template <class V>
class GraphState {
public:
  explicit GraphState(typename V::Device& device) : device_(device), record_(device.take_record()) {}
  // No launch is in flight: see finish.
  ~GraphState() {
    try {
      device_.give_back_record(record_, nullptr);
    } catch (...) {
      // No memory to keep it with: it is lost.
    }
  }
  GraphState(const GraphState&) = delete;
  GraphState& operator=(const GraphState&) = delete;

  uint64_t key = 0, number = 0;       // of the capture
  typename V::Graph graph = nullptr;  // once it is whole; destroyed by finish
  // For captured calls that may write to it.
  typename V::Record record() {
    is_written_ = true;
    return record_;
  }

  // Launches wait for each other, wherever they are: they have one workspace and one record.
  void launch(typename V::Queue on) {
    const std::lock_guard lock(mutex_);
    if (end_ == nullptr) V::create(&end_);
    if (!V::kOrdersLaunches && is_recorded_ && last_on_ != on) V::wait(on, end_);
    V::launch(graph, on);
    is_unread_ = is_written_;
    V::record(end_, on);
    is_recorded_ = true;
    last_on_ = on;
  }
  // The error of a launch. *is_idle: there is none to come until the next launch.
  bool take(rlk_data_error& out, bool& is_idle) {
    const std::lock_guard lock(mutex_);
    is_idle = true;
    if (!is_unread_) return false;
    if (is_recorded_) {
      is_idle = V::is_reached(end_);
      if (!is_idle) return false;
    }
    const bool found = V::take_error(record_, out);
    is_unread_ = false;
    return found;
  }
  // The graph dies, after its launches; an error that has not been told yet stays.
  void finish() {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_recorded_, false)) V::synchronize(end_);
    if (end_ != nullptr) V::destroy_event(std::exchange(end_, nullptr));
    if (graph == nullptr) return;
    const auto ending = V::captures().end(key, number);  // while the key cannot be another's
    V::destroy(std::exchange(graph, nullptr));
  }

private:
  typename V::Device& device_;
  std::mutex mutex_;
  const typename V::Record record_;
  bool is_written_ = false;
  bool is_unread_ = false;           // launched since it was last read
  typename V::Event end_ = nullptr;  // of the last launch
  bool is_recorded_ = false;
  typename V::Queue last_on_ = nullptr;
};

// The records of captures that the vendor's own calls began. When such a graph runs is not seen: every stream of the
// device tells of it. [thread-safe]
template <class V>
class ForeignRecords {
public:
  explicit ForeignRecords(typename V::Device& device) : device_(device) {}

  // number, key: of the capture.
  typename V::Record of(uint64_t number, uint64_t key) {
    const std::lock_guard lock(mutex_);
    for (const One& one : all_) {
      if (one.number == number) return one.record;
    }
    One one{number, device_.take_record(), std::make_shared<std::atomic<bool>>(false)};
    V::captures().retain(key, [is_over = one.is_over] { *is_over = true; });
    all_.push_back(std::move(one));
    any_ = true;
    return all_.back().record;
  }
  // A graph may run meanwhile. Its operators write all numbers at once and an error stays until it is taken, but one
  // that runs while its record is emptied may write back what it had read: that error is then told twice.
  bool take(rlk_data_error& out) {
    if (!any_) return false;
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < all_.size();) {
      const bool is_over = *all_[i].is_over;
      const bool found = V::take_error(all_[i].record, out);
      if (is_over)
        forget(i);
      else
        ++i;
      if (found) return true;
    }
    return false;
  }
  // The device ends: gives back the records that nothing can write to any more. The others are lost.
  void close() {
    const std::lock_guard lock(mutex_);
    for (size_t i = all_.size(); i-- > 0;) {
      if (*all_[i].is_over) forget(i);
    }
  }

private:
  struct One {
    uint64_t number = 0;
    typename V::Record record = nullptr;
    std::shared_ptr<std::atomic<bool>> is_over;  // nothing writes it any more
  };
  void forget(size_t i) {
    device_.give_back_record(all_[i].record, nullptr);
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i));
    any_ = !all_.empty();
  }

  typename V::Device& device_;
  std::mutex mutex_;
  std::vector<One> all_;
  std::atomic<bool> any_{false};
};

}  // namespace rlk::composed

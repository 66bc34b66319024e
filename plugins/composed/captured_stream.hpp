// What a stream of a vendor of captures.hpp does while it captures, and which data errors it tells: its own record's,
// those of the graphs that it launched, and those of captures that the vendor's own calls began.
#pragma once

#include <rlk/sdk/graph.hpp>

#include "captures.hpp"

namespace rlk::composed {

template <class V>
class CapturedStream : public sdk::Stream {
public:
  using Device = typename V::Device;
  using Queue = typename V::Queue;
  using Record = typename V::Record;

  void* native() override { return native_; }
  Device& device() const { return device_; }

  uint64_t capture_id() override {
    require_captures();
    const typename V::Scope current(place_);
    uint64_t key = 0;
    const CaptureStatus status = capture_status(&key);
    if (status == CaptureStatus::none) return 0;
    if (status == CaptureStatus::active) return V::captures().number_of(key);
    throw sdk::Error(RLK_CAPTURE_FORBIDS,
                     "the capture that the stream is part of has been broken by an earlier call; end it and begin "
                     "again");
  }
  void capture_retain(rlk_host_function release, void* user) override {
    const typename V::Scope current(place_);
    uint64_t key = 0;
    if (capture_status(&key) != CaptureStatus::active) {
      throw sdk::Error(RLK_INVALID_ARGUMENT, "the stream captures no graph that anything could be tied to");
    }
    V::captures().number_of(key);
    if (!V::captures().retain(key, [release, user] { release(user); })) throw sdk::Error(RLK_UNSUPPORTED, V::kNoEnd);
  }

  void begin_capture() {
    require_captures();
    if (native_ == nullptr) {
      throw sdk::Error(RLK_INVALID_ARGUMENT, "the vendor does not capture the default stream; capture another one");
    }
    const typename V::Scope current(place_);
    refuse_while_capturing("another one");
    auto state = std::make_shared<GraphState<V>>(device_);  // before: a capture may forbid to ask which record is free
    V::begin(native_);
    try {
      if (capture_status(&state->key) != CaptureStatus::active)
        throw sdk::Error(RLK_BACKEND_ERROR, "the vendor's call began no capture");
      state->number = V::captures().begin(state->key);
    } catch (...) {
      abandon_capture();
      throw;
    }
    capture_ = std::move(state);
  }
  std::unique_ptr<sdk::Graph> end_capture() {
    if (capture_ == nullptr) throw sdk::Error(RLK_INVALID_ARGUMENT, "this stream has begun no capture");
    const typename V::Scope current(place_);
    auto graph = std::make_unique<Graph>(place_, capture_);
    const std::shared_ptr<GraphState<V>> state = std::exchange(capture_, nullptr);
    try {
      state->graph = V::end(native_);
    } catch (...) {
      const auto ending = V::captures().end(state->key, state->number);
      abandon_capture();
      throw;
    }
    return graph;
  }

  // The default stream is never part of a capture, and the vendors do not take it here.
  CaptureStatus capture_status(uint64_t* key = nullptr) const {
    uint64_t of_capture = 0;
    if (native_ == nullptr || !device_.captures()) return CaptureStatus::none;
    const CaptureStatus status = V::status(native_, &of_capture);
    if (key != nullptr && status == CaptureStatus::active) *key = of_capture;
    return status;
  }
  void refuse_while_capturing(const char* what) const {
    if (capture_status() == CaptureStatus::none) return;
    throw sdk::Error(RLK_CAPTURE_FORBIDS, std::string("the stream is capturing a graph: ") + what +
                                              " would break the capture; end it first");
  }

  // For operators that can meet data errors: the host's record needs a compare-and-swap. Work that is captured writes
  // to its capture's.
  Record error_record(bool capturing) {
    if (!capturing) {
      record_in_use_ = true;
      return record_;
    }
    if (capture_ != nullptr) return capture_->record();
    const uint64_t key = active_capture();
    return device_.foreign_records().of(V::captures().number_of(key), key);
  }
  // Lives as long as what the stream captures.
  void keep_for_capture(const std::shared_ptr<void>& what) {
    const uint64_t key = active_capture();
    V::captures().number_of(key);
    V::captures().keep(key, what);
  }
  // Operators' libraries have one code for all that the runtime refuses. Of a broken capture nothing is left that could
  // run.
  template <class Work>
  void enqueue_work(bool capturing, const Work& work) {
    try {
      work();
    } catch (const sdk::Error& error) {
      if (!capturing || capture_status() == CaptureStatus::active) throw;
      throw sdk::Error(RLK_CAPTURE_FORBIDS,
                       error.what() + std::string("; it has broken the capture: end it and begin again"),
                       error.native_code(), error.domain());
    }
  }

protected:
  CapturedStream(Device& device, Queue native, typename V::Place place)
      : device_(device), native_(native), place_(place), record_(device.take_record()) {}

  // When the work is done. The error that comes first.
  rlk_status read_records(rlk_data_error& out) {
    if (record_in_use_) {
      const bool found = V::take_error(record_, out);
      record_in_use_ = false;
      if (found) return RLK_DATA_ERROR;
    }
    for (size_t i = 0; i < launched_.size();) {
      bool is_idle = false;
      const bool found = launched_[i]->take(out, is_idle);
      if (is_idle)
        launched_.erase(launched_.begin() + static_cast<std::ptrdiff_t>(i));
      else
        ++i;
      if (found) return RLK_DATA_ERROR;
    }
    return device_.foreign_records().take(out) ? RLK_DATA_ERROR : RLK_OK;
  }
  // The stream leaves. is_idle: its work is done. An event behind that work would be part of a graph while the stream
  // captures: the record is lost rather than reused too early.
  void give_back_record(bool is_idle) {
    typename V::Event busy_until = nullptr;
    if (!is_idle && record_in_use_) {
      if (capture_status() != CaptureStatus::none) return;
      V::create(&busy_until);
      V::record(busy_until, native_);
    }
    device_.give_back_record(record_, busy_until);
  }
  // Ending a capture may have failed; a stream that captures is not destroyed.
  void abandon_capture() noexcept {
    try {
      uint64_t key = 0;
      if (capture_status(&key) == CaptureStatus::none) return;
      if (key != 0) static_cast<void>(V::captures().end(key, 0));
      if (const typename V::Graph graph = V::end(native_)) V::destroy(graph);
    } catch (const sdk::Error&) {
      // The context is gone and the capture with it, or the capture is broken and has ended.
    }
  }

  Device& device_;
  const Queue native_;
  const typename V::Place place_;

private:
  class Graph final : public sdk::Graph {
  public:
    Graph(typename V::Place place, std::shared_ptr<GraphState<V>> state) : place_(place), state_(std::move(state)) {}
    ~Graph() override {
      try {
        const typename V::Aside current(place_);
        state_->finish();
      } catch (const sdk::Error&) {
        // The context is gone and the graph with it.
      }
    }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    void launch(sdk::Stream& stream) override {
      auto& on = static_cast<CapturedStream&>(stream);
      const typename V::Scope current(on.place_);
      on.refuse_while_capturing("a launch");
      on.note_launch(state_);
      state_->launch(on.native_);
    }

  private:
    const typename V::Place place_;
    const std::shared_ptr<GraphState<V>> state_;
  };

  void require_captures() const {
    if (const std::string why_not = V::why_not(device_); !why_not.empty()) throw sdk::Error(RLK_UNSUPPORTED, why_not);
  }
  uint64_t active_capture() const {
    uint64_t key = 0;
    if (capture_status(&key) == CaptureStatus::active) return key;
    throw sdk::Error(RLK_CAPTURE_FORBIDS, "the stream is part of no capture, or of one that has been broken");
  }
  // The stream tells of the graph's data errors.
  void note_launch(const std::shared_ptr<GraphState<V>>& graph) {
    for (const auto& known : launched_) {
      if (known == graph) return;
    }
    launched_.push_back(graph);
  }

  const Record record_;
  bool record_in_use_ = false;              // an operator may have written since it was last read
  std::shared_ptr<GraphState<V>> capture_;  // that begin_capture began
  std::vector<std::shared_ptr<GraphState<V>>> launched_;
};

}  // namespace rlk::composed

// Which captures there are, by this plugin or by the vendor's own calls, and how one that this plugin began is
// launched.
#include "capture.hpp"

#include <functional>
#include <map>
#include <utility>

namespace rlk::ascend {
namespace {

constexpr uint32_t kEventSync = 1, kEventProgress = 2;

// The captures of this process, by the models that they become. A handle may be that of a model which is gone: a
// capture that this plugin begins has a new number in any case; of another's, the number ends with the model where CANN
// tells (since 9). Where it does not, what one such capture kept is never released, and serves the next of that handle.
class Captures {
public:
  uint64_t begin(AclModel model) { return known(model, true); }
  uint64_t number_of(AclModel model) { return known(model, false); }
  // Calls release(user) when the model is gone; false where that is not told.
  bool retain(AclModel model, std::function<void()> release) {
    const std::lock_guard lock(mutex_);
    const auto found = all_.find(model);
    if (found == all_.end() || !found->second.end_is_told) return false;
    found->second.releases.push_back(std::move(release));
    return true;
  }
  // number: what is gone, and not a later capture of the same handle. 0: whatever there is.
  void end(AclModel model, uint64_t number) {
    std::vector<std::function<void()>> releases;
    {
      const std::lock_guard lock(mutex_);
      const auto found = all_.find(model);
      if (found == all_.end() || (number != 0 && found->second.number != number)) return;
      releases = std::move(found->second.releases);
      all_.erase(found);
    }
    for (const auto& release : releases) release();
  }

private:
  struct One {
    uint64_t number = 0;
    bool end_is_told = false;
    std::vector<std::function<void()>> releases;
  };

  uint64_t known(AclModel model, bool is_new);

  std::mutex mutex_;
  std::map<AclModel, One> all_;
  uint64_t last_ = 0;
};

Captures& captures() {
  static auto* const only = new Captures;  // models may outlive static objects
  return *only;
}

void model_is_gone(void* model) {
  captures().end(model, 0);
}

uint64_t Captures::known(AclModel model, bool is_new) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    One& one = all_[model];
    if (!is_new && one.number != 0) return one.number;
    one = {};
    number = one.number = ++last_;
  }
  // Not with the lock: AscendCL has one of its own, and may hold it when it calls. It takes a function once per model.
  const auto tell = runtime().aclmdlRIDestroyRegisterCallback;
  const bool end_is_told = tell != nullptr && tell(model, &model_is_gone, model) == 0;
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(model);
  if (found != all_.end() && found->second.number == number) found->second.end_is_told = end_is_told;
  return number;
}

class Graph final : public sdk::Graph {
public:
  Graph(AclContext context, std::shared_ptr<GraphState> state) : context_(context), state_(std::move(state)) {}
  ~Graph() override {
    try {
      const CurrentContext current(context_);
      state_->finish();
    } catch (const sdk::Error&) {
      // The context is gone and the graph with it.
    }
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(sdk::Stream& stream) override {
    Stream& on = static_cast<Stream&>(stream);
    const CurrentContext current(on.context());
    on.refuse_while_capturing("a launch");
    on.note_launch(state_);
    state_->launch(on);
  }

private:
  const AclContext context_;
  const std::shared_ptr<GraphState> state_;
};

}  // namespace

bool captures_graphs(const std::string& soc) {
  const Runtime& r = runtime();
#define RLK_ASCEND_IS_HERE(name, result, arguments) \
  if (r.name == nullptr) return false;
  RLK_ASCEND_ACL_CAPTURE(RLK_ASCEND_IS_HERE)
#undef RLK_ASCEND_IS_HERE
  return family_of(soc) != Family::other;
}

// --- graphs and their data errors ------------------------------------------------------------------------------------

GraphState::~GraphState() {
  try {
    device_.give_back_record(record_, nullptr);
  } catch (...) {
    // No memory to keep it with: it is lost.
  }
}

void GraphState::launch(Stream& on) {
  const Runtime& r = runtime();
  const std::lock_guard lock(mutex_);
  if (end_ == nullptr) {
    const auto create =
        r.aclrtCreateEventExWithFlag != nullptr ? r.aclrtCreateEventExWithFlag : r.aclrtCreateEventWithFlag;
    check(create(&end_, kEventSync | kEventProgress), "aclrtCreateEventExWithFlag");
  }
  if (is_recorded_ && last_on_ != on.native()) {
    check(r.aclrtStreamWaitEvent(on.native(), end_), "aclrtStreamWaitEvent");
  }
  check(r.aclmdlRIExecuteAsync(model, on.native()), "aclmdlRIExecuteAsync");
  is_unread_ = is_written_;
  check(r.aclrtRecordEvent(end_, on.native()), "aclrtRecordEvent");
  is_recorded_ = true;
  last_on_ = on.native();
}

bool GraphState::take(rlk_data_error& out, bool& is_idle) {
  constexpr int32_t kReached = 1;
  const std::lock_guard lock(mutex_);
  is_idle = true;
  if (!is_unread_) return false;
  if (is_recorded_) {
    int32_t status = kReached;
    check(runtime().aclrtQueryEventStatus(end_, &status), "aclrtQueryEventStatus");
    is_idle = status == kReached;
    if (!is_idle) return false;
  }
  const bool found = take_error(record_, out);
  is_unread_ = false;
  return found;
}

void GraphState::finish() {
  const Runtime& r = runtime();
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_recorded_, false)) r.aclrtSynchronizeEvent(end_);
  if (end_ != nullptr) r.aclrtDestroyEvent(std::exchange(end_, nullptr));
  if (!std::exchange(is_captured, false)) return;
  captures().end(model, capture);  // while the handle cannot be another's
  r.aclmdlRIDestroy(model);
}

DeviceErrorRecord* ForeignRecords::of(uint64_t capture, AclModel model) {
  const std::lock_guard lock(mutex_);
  for (const One& one : all_) {
    if (one.capture == capture) return one.record;
  }
  One one{capture, device_.take_record(), std::make_shared<std::atomic<bool>>(false)};
  captures().retain(model, [is_over = one.is_over] { *is_over = true; });
  all_.push_back(std::move(one));
  any_ = true;
  return all_.back().record;
}

// A graph may run meanwhile. Its operators write all four numbers at once and an error stays until it is taken, but one
// that runs while its record is emptied may write back what it had read: that error is then told twice.
bool ForeignRecords::take(rlk_data_error& out) {
  if (!any_) return false;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < all_.size();) {
    const bool is_over = *all_[i].is_over;
    const bool found = take_error(all_[i].record, out);
    if (is_over)
      forget(i);
    else
      ++i;
    if (found) return true;
  }
  return false;
}

void ForeignRecords::forget(size_t i) {
  device_.give_back_record(all_[i].record, nullptr);
  all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(i));
  any_ = !all_.empty();
}

void ForeignRecords::close() {
  const std::lock_guard lock(mutex_);
  for (size_t i = all_.size(); i-- > 0;) {
    if (*all_[i].is_over) forget(i);
  }
}

// --- streams ---------------------------------------------------------------------------------------------------------

// The default stream is never part of a capture, and AscendCL does not take it here.
int32_t Stream::capture_status(AclModel* model) const {
  int32_t status = kAclCaptureNone;
  AclModel of_capture = nullptr;
  if (native_ == nullptr || !device_.captures()) return status;
  check(runtime().aclmdlRICaptureGetInfo(native_, &status, &of_capture), "aclmdlRICaptureGetInfo");
  if (model != nullptr && status == kAclCaptureActive) *model = of_capture;
  return status;
}

void Stream::refuse_while_capturing(const char* what) const {
  if (capture_status() == kAclCaptureNone) return;
  throw sdk::Error(RLK_CAPTURE_FORBIDS,
                   std::string("the stream is capturing a graph: ") + what + " would break the capture; end it first");
}

uint64_t Stream::capture_id() {
  if (!device_.captures())
    throw sdk::Error(RLK_UNSUPPORTED,
                     "this CANN, or this chip, captures no graphs: it takes CANN 8.1 and Atlas A2 or later");
  const CurrentContext current(context_);
  AclModel model = nullptr;
  const int32_t status = capture_status(&model);
  if (status == kAclCaptureNone) return 0;
  if (status == kAclCaptureActive) return captures().number_of(model);
  throw sdk::Error(RLK_CAPTURE_FORBIDS,
                   "the capture that the stream is part of has been broken by an earlier call; end it and begin again");
}

void Stream::capture_retain(rlk_host_function release, void* user) {
  const CurrentContext current(context_);
  AclModel model = nullptr;
  if (capture_status(&model) != kAclCaptureActive) {
    throw sdk::Error(RLK_INVALID_ARGUMENT, "the stream captures no graph that anything could be tied to");
  }
  captures().number_of(model);
  if (captures().retain(model, [release, user] { release(user); })) return;
  throw sdk::Error(RLK_UNSUPPORTED, "this CANN does not tell when a graph dies; one since 9 does");
}

// Thread-local mode: what other threads do meanwhile neither breaks the capture nor is broken by it.
void Stream::begin_capture() {
  if (!device_.captures()) throw sdk::Error(RLK_UNSUPPORTED, "this CANN, or this chip, captures no graphs");
  if (native_ == nullptr) {
    throw sdk::Error(RLK_INVALID_ARGUMENT, "AscendCL does not capture the default stream; capture another one");
  }
  const CurrentContext current(context_);
  auto state = std::make_shared<GraphState>(device_);  // before: a capture forbids to ask which record is free
  check(runtime().aclmdlRICaptureBegin(native_, kAclCaptureThreadLocal), "aclmdlRICaptureBegin");
  try {
    if (capture_status(&state->model) != kAclCaptureActive)
      throw sdk::Error(RLK_BACKEND_ERROR, "aclmdlRICaptureBegin began no capture");
    state->capture = captures().begin(state->model);
  } catch (...) {
    abandon_capture();
    throw;
  }
  capture_ = std::move(state);
}

std::unique_ptr<sdk::Graph> Stream::end_capture() {
  if (capture_ == nullptr) throw sdk::Error(RLK_INVALID_ARGUMENT, "this stream has begun no capture");
  const CurrentContext current(context_);
  auto graph = std::make_unique<Graph>(context_, capture_);
  const std::shared_ptr<GraphState> state = std::exchange(capture_, nullptr);
  AclModel model = nullptr;
  const int code = runtime().aclmdlRICaptureEnd(native_, &model);
  state->is_captured = code == 0;
  if (state->is_captured) return graph;
  captures().end(state->model, state->capture);
  abandon_capture();
  check(code, "aclmdlRICaptureEnd");
  return nullptr;
}

// Ending a capture may have failed; AscendCL does not destroy a stream that captures.
void Stream::abandon_capture() noexcept {
  try {
    AclModel begun = nullptr, model = nullptr;
    if (capture_status(&begun) == kAclCaptureNone) return;
    if (begun != nullptr) captures().end(begun, 0);
    if (runtime().aclmdlRICaptureEnd(native_, &model) == 0 && model != nullptr) runtime().aclmdlRIDestroy(model);
  } catch (const sdk::Error&) {
    // The context is gone and the capture with it.
  }
}

DeviceErrorRecord* Stream::error_record(bool capturing) {
  if (!capturing) {
    record_in_use_ = true;
    return record_;
  }
  if (capture_ != nullptr) return capture_->record();
  AclModel model = nullptr;
  if (capture_status(&model) != kAclCaptureActive) {
    throw sdk::Error(RLK_CAPTURE_FORBIDS, "the stream is part of no capture, or of one that has been broken");
  }
  return device_.foreign_records().of(captures().number_of(model), model);
}

void Stream::note_launch(const std::shared_ptr<GraphState>& graph) {
  for (const auto& known : launched_) {
    if (known == graph) return;
  }
  launched_.push_back(graph);
}

}  // namespace rlk::ascend

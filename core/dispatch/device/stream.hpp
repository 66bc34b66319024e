// A stream as the host sees it: the plugin's handle, what it was given and has passed, its workspace, its errors.
#pragma once

#include <rlk/abi.h>

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/dispatch/call/counters.hpp"
#include "core/dispatch/call/data_error.hpp"
#include "core/dispatch/device/device_state.hpp"

namespace rlk::core {

class Telling;

// What host functions of a stream found; the stream's next query or synchronize reports it. They may outlive a
// wrapped stream, so they share this. [thread-safe]
class StreamReports {
public:
  struct Failure {
    rlk_status status = RLK_OK;
    std::string text;
    Suspect culprit;  // the implementation that answered it
  };
  void add_data_error(const rlk_data_error& error);
  // given_at: what stream_failures was when the work was given to the stream.
  void add_failure(Failure failure, uint64_t given_at);
  void add_wrong_result(std::string text);
  // The stream itself failed: host functions that it was given before may have read what failed copies left, so that
  // their own failures are blamed on no implementation.
  void note_stream_failure();
  uint64_t stream_failures() const { return stream_failures_.load(std::memory_order_acquire); }
  // The first of each since the last take; kind 0 and RLK_OK when there was none.
  void take(rlk_data_error* data_error, Failure* failure);
  // What comparing in the background found; empty when it found nothing since the last take.
  std::string take_wrong_results();

private:
  std::mutex mutex_;
  rlk_data_error data_error_{};
  Failure failure_;
  std::string wrong_results_;
  std::atomic<uint64_t> stream_failures_{0};  // written under the mutex
};

// [one thread at a time]
class Stream {
public:
  static rlk_status create(DeviceState& device, Counters& counters, int32_t priority, std::unique_ptr<Stream>* out,
                           rlk_error* error);
  // The vendor's stream outlives this.
  static rlk_status wrap(DeviceState& device, Counters& counters, void* native, std::unique_ptr<Stream>* out,
                         rlk_error* error);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // RLK_INVALID_ARGUMENT while it captures, and only then. Otherwise the destructor may follow whatever the answer is:
  // an error is one that the caller never asked for.
  rlk_status finish(rlk_error* error);

  // RLK_OK, RLK_NOT_READY, RLK_TIMEOUT; RLK_DATA_ERROR with a text; or the failure, with the calls that may have caused
  // it. suspects (may be nullptr) receives them; of a lost device those of all its streams, and none when that was told
  // before; none either if the backend could not answer the question (an exception inside it, say).
  rlk_status query(rlk_error* error, std::vector<Suspect>* suspects = nullptr);
  rlk_status synchronize(uint64_t timeout_ns, rlk_error* error, std::vector<Suspect>* suspects = nullptr);
  // The failure of the stream itself, in words, or RLK_OK. Keeps data errors for the caller's own question.
  rlk_status find_failure(rlk_error* error, std::vector<Suspect>* suspects = nullptr);
  // What calls of this stream alone wrote, told here and not again. The stream has passed them.
  bool take_own_data_error(rlk_data_error* out) { return take_data_error(record_, out); }
  // Waits, keeping data errors for the caller's own question. RLK_OK or a failure.
  rlk_status wait_quietly(rlk_error* error);

  DeviceState& device() const { return device_; }
  rlk_plugin_stream* handle() const { return handle_; }
  // The handle that the candidate's plugin takes: its own wrapper when it is not the device's owner.
  rlk_status handle_for(const Candidate& candidate, rlk_plugin_stream** out, rlk_error* error);
  // What the kernels of the next call write: the stream's own record or that of its capture. nullptr where the device
  // has none.
  rlk_data_error_record* data_error_record() const {
    return capture_ != nullptr ? capture_->resources.record : record_;
  }
  const std::shared_ptr<StreamReports>& reports() const { return reports_; }
  const std::shared_ptr<StreamClock>& clock() const { return clock_; }
  std::string name() const { return device_.entry.name(); }

  // This point of the stream, to be passed.
  Fence fence(bool with_event) noexcept;
  // One more call of the device's: its tag, and its implementation among the suspects. The work counts as issued.
  uint32_t note_call(const Candidate& candidate, Dtype dtype);
  // The same of a call that the CPU serves: it does not touch the device, and is no suspect. Its copies do, for which
  // no implementation answers.
  uint32_t note_staged_call(const OpDecl& decl);
  // Of a call that was noted, unless it is captured: a graph may run when the stream has forgotten it.
  void note_domain_ends(uint32_t tag, const OpDecl& decl, const Values& values) {
    domain_ends_.note(tag, decl, values);
  }
  // The calls that may be to blame now. [thread-safe]
  void add_suspects_to(std::vector<Suspect>* out) const { suspects_->add_to(out); }
  void forget_calls() { suspects_->clear(); }
  // What the stream will tell of the call that was noted last, whose kernels were given this tag (0: that of
  // note_call). Of many that the caller does not ask for, the first ones are dropped.
  std::shared_ptr<Telling> note_telling(uint32_t tag);
  // The call that was noted last was refused by its implementation.
  void take_back_call() { suspects_->take_back_last(); }
  // Work that no implementation answers for alone: a graph.
  void note_foreign_work() {
    clock_->issue();
    suspects_->add_unknown();
  }

  // Workspace that this stream's later work may reuse. It grows geometrically; a capture has one of its own, no larger
  // than what calls before the capture needed on any stream of the device (RLK_CAPTURE_FORBIDS).
  rlk_status workspace(uint64_t bytes, bool capturing, void** out, rlk_error* error);

  // By this stream's own begin_capture, or by the vendor's own calls.
  rlk_status is_capturing(bool* out, rlk_error* error);
  // Before a call of a capture is enqueued: gives the capture what its calls need. [while capturing]
  rlk_status prepare_capture(rlk_error* error);
  // The stream was made to wait for an event: that may have joined it to a capture of another stream.
  void note_wait() {
    may_be_joined_ = true;
    suspects_->add_unknown();  // it may tell the failure of the work that it waits for
  }
  // While capturing, inside the plan: keeps it until the graph dies. prepare_capture has made room for it.
  void keep_for_graph(std::shared_ptr<CachedPlan> plan, CachedPlan::Instance* instance) noexcept;
  rlk_status begin_capture(rlk_error* error);
  // Ends the capture in any case; the resources are the graph's, or on failure free again.
  rlk_status end_capture(rlk_plugin_graph** graph, GraphResources* resources, rlk_error* error);
  // Makes room for what note_launch notes: what was launched must be noted.
  void expect_launch() { launched_.reserve(launched_.size() + 1); }
  // This stream reports its data errors from now on.
  void note_launch(const std::shared_ptr<GraphRecord>& graph);

  // Lets plans that were dropped from the cache die once this stream has passed them, without a synchronize.
  void help_collect();

private:
  Stream(DeviceState& device, Counters& counters, bool wrapped);
  // The stream's slots, watched: `longer_ns` is how long they may wait beside the limit.
  template <class... P, class... A>
  rlk_status ask(const char* what, uint64_t longer_ns, rlk_status (*slot)(P...), A... arguments);
  rlk_status refuse_question(rlk_error* error) const;
  rlk_status answer(rlk_status status, const rlk_data_error& data_error, uint64_t issued, const rlk_error& plugin_error,
                    rlk_error* error, std::vector<Suspect>* suspects);
  rlk_status tell_failure(rlk_status status, const char* text, int64_t native_code, const char* domain,
                          rlk_error* error, std::vector<Suspect>* suspects);
  rlk_status start(rlk_error* error);
  rlk_status captured_workspace(uint64_t bytes, void** out, rlk_error* error);
  rlk_status open_capture(rlk_error* error);
  rlk_status retain(rlk_error* error);
  void leave_capture();
  // The first data error not reported yet; whether it is of a call that the stream itself was given, and not of a
  // graph. The stream has passed everything.
  bool take_untold(rlk_data_error* out, bool* is_own);
  // Of every call that it has passed: this error alone is reported, or none.
  void settle_tellings(const rlk_data_error* told);

  DeviceState& device_;
  Counters& counters_;
  const bool wrapped_;
  rlk_plugin_stream* handle_ = nullptr;
  rlk_data_error_record* record_ = nullptr;
  std::shared_ptr<StreamClock> clock_;
  std::shared_ptr<StreamReports> reports_ = std::make_shared<StreamReports>();
  // By the device handle of the candidate.
  std::vector<std::pair<std::shared_ptr<const Candidate>, rlk_plugin_stream*>> wrappers_;
  uint32_t calls_ = 0, last_tag_ = 0;
  RecentDomainEnds domain_ends_;
  std::deque<std::shared_ptr<Telling>> tellings_;
  const std::shared_ptr<SuspectList> suspects_;
  void* workspace_ = nullptr;
  uint64_t workspace_bytes_ = 0;
  bool capturing_ = false;            // own capture
  bool may_be_joined_ = false;        // to a capture of another stream
  uint64_t vendor_capture_ = 0;       // the number of the vendor's capture, seen at the last question
  std::shared_ptr<Capture> capture_;  // with what its calls were given so far; nullptr before the first
  std::vector<std::shared_ptr<GraphRecord>> launched_;
  Fence collect_point_;
};

}  // namespace rlk::core

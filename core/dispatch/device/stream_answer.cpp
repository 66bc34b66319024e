// What a stream answers when it is asked: done, not yet, a data error in words, or a failure with its suspects.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/declaration/error.hpp"
#include "core/declaration/text.hpp"
#include "core/dispatch/call/data_error.hpp"
#include "core/dispatch/device/stream.hpp"
#include "core/dispatch/trust/release.hpp"
#include "core/dispatch/trust/telling.hpp"
#include "core/dispatch/trust/watchdog.hpp"

namespace rlk::core {

void StreamReports::add_data_error(const rlk_data_error& error) {
  const std::lock_guard lock(mutex_);
  if (data_error_.kind == 0) data_error_ = error;
}

void StreamReports::add_failure(Failure failure, uint64_t given_at) {
  const std::lock_guard lock(mutex_);
  if (failure_.status != RLK_OK) return;
  failure_ = std::move(failure);
  if (given_at != stream_failures_) failure_.culprit = {};
}

void StreamReports::note_stream_failure() {
  const std::lock_guard lock(mutex_);
  ++stream_failures_;
  failure_.culprit = {};
}

void StreamReports::add_wrong_result(std::string text) {
  const std::lock_guard lock(mutex_);
  if (wrong_results_.empty()) wrong_results_ = std::move(text);
}

std::string StreamReports::take_wrong_results() {
  const std::lock_guard lock(mutex_);
  return std::exchange(wrong_results_, {});
}

void StreamReports::take(rlk_data_error* data_error, Failure* failure) {
  const std::lock_guard lock(mutex_);
  *data_error = std::exchange(data_error_, {});
  *failure = std::exchange(failure_, {});
}

namespace {

rlk_data_error fresh_data_error() {
  rlk_data_error error{};
  error.struct_size = sizeof(error);
  return error;
}

}  // namespace

template <class... P, class... A>
rlk_status Stream::ask(const char* what, uint64_t longer_ns, rlk_status (*slot)(P...), A... arguments) {
  const Watchdog::Inside inside(device_.watchdog,
                                {what, this, device_.entry.owner.get(), nullptr, Dtype::f32, longer_ns});
  return call_of(device_.api, what, slot, arguments...);
}

rlk_status Stream::query(rlk_error* error, std::vector<Suspect>* suspects) {
  if (capturing_) return refuse_question(error);
  rlk_error plugin_error = fresh_error();
  rlk_data_error data_error = fresh_data_error();
  const uint64_t issued = clock_->issued.load(std::memory_order_relaxed);
  const rlk_status status = ask("stream query", 0, device_.api.stream->query, handle_, &data_error, &plugin_error);
  return answer(status, data_error, issued, plugin_error, error, suspects);
}

rlk_status Stream::synchronize(uint64_t timeout_ns, rlk_error* error, std::vector<Suspect>* suspects) {
  if (capturing_) return refuse_question(error);
  rlk_error plugin_error = fresh_error();
  rlk_data_error data_error = fresh_data_error();
  const uint64_t issued = clock_->issued.load(std::memory_order_relaxed);
  const rlk_status status = ask("stream synchronize", timeout_ns == UINT64_MAX ? 0 : timeout_ns,
                                device_.api.stream->synchronize, handle_, timeout_ns, &data_error, &plugin_error);
  return answer(status, data_error, issued, plugin_error, error, suspects);
}

rlk_status Stream::refuse_question(rlk_error* error) const {
  return failf(error, RLK_CAPTURE_FORBIDS, "stream %s is capturing a graph and does not run; end the capture first",
               name().c_str());
}

rlk_status Stream::find_failure(rlk_error* error, std::vector<Suspect>* suspects) {
  rlk_error plugin_error = fresh_error();
  rlk_data_error data_error = fresh_data_error();
  const rlk_status status = ask("stream query", 0, device_.api.stream->query, handle_, &data_error, &plugin_error);
  if (status == RLK_DATA_ERROR) reports_->add_data_error(data_error);
  if (status == RLK_OK || status == RLK_NOT_READY || status == RLK_DATA_ERROR) return RLK_OK;
  return tell_failure(status, text_of(plugin_error).c_str(), plugin_error.native_code,
                      text_of(plugin_error.domain).c_str(), error, suspects);
}

rlk_status Stream::wait_quietly(rlk_error* error) {
  rlk_data_error data_error = fresh_data_error();
  const uint64_t issued = clock_->issued.load(std::memory_order_relaxed);
  const rlk_status status =
      ask("stream synchronize", 0, device_.api.stream->synchronize, handle_, UINT64_MAX, &data_error, error);
  if (status == RLK_DATA_ERROR) reports_->add_data_error(data_error);
  if (status == RLK_OK || status == RLK_DATA_ERROR) {
    clock_->pass(issued);
    return RLK_OK;
  }
  return status < 0 ? status : RLK_INTERNAL;
}

rlk_status Stream::answer(rlk_status status, const rlk_data_error& data_error, uint64_t issued,
                          const rlk_error& plugin_error, rlk_error* error, std::vector<Suspect>* suspects) {
  if (status == RLK_NOT_READY) return status;
  if (status == RLK_TIMEOUT) return fail(error, status, text_of(plugin_error));
  if (status != RLK_OK && status != RLK_DATA_ERROR) {
    return tell_failure(status, text_of(plugin_error).c_str(), plugin_error.native_code,
                        text_of(plugin_error.domain).c_str(), error, suspects);
  }
  clock_->pass(issued);
  rlk_data_error reported;
  StreamReports::Failure failure;
  reports_->take(&reported, &failure);
  // A caller that cannot get the error now, for want of memory, gets it with the next answer.
  class Untold {
  public:
    Untold(StreamReports& reports, const rlk_data_error& first, const rlk_data_error& second)
        : reports_(reports), first_(first), second_(second), thrown_(std::uncaught_exceptions()) {}
    ~Untold() {
      if (std::uncaught_exceptions() == thrown_) return;
      for (const rlk_data_error* error : {&first_, &second_}) {
        if (error->kind != 0) reports_.add_data_error(*error);
      }
    }
    Untold(const Untold&) = delete;
    Untold& operator=(const Untold&) = delete;

  private:
    StreamReports& reports_;
    const rlk_data_error &first_, &second_;
    const int thrown_;
  };
  const rlk_data_error asked = status == RLK_DATA_ERROR ? data_error : fresh_data_error();
  const Untold untold(*reports_, asked, reported);
  const auto keep_for_later = [&] {  // an answer tells one thing
    if (status == RLK_DATA_ERROR) reports_->add_data_error(data_error);
    if (reported.kind != 0) reports_->add_data_error(reported);
  };
  if (failure.status != RLK_OK) {
    suspects_->clear();
    if (suspects != nullptr) suspects->assign(1, failure.culprit);
    keep_for_later();
    return fail(error, failure.status, fmt::format("stream {} failed: {}", name(), failure.text));
  }
  if (const std::string wrong = reports_->take_wrong_results(); !wrong.empty()) {
    keep_for_later();
    return fail(error, RLK_WRONG_RESULT, wrong);
  }
  suspects_->clear();
  rlk_data_error first = fresh_data_error();
  bool found = true, is_own = true;
  if (status == RLK_DATA_ERROR) {
    first = data_error;
  } else if (reported.kind != 0) {
    first = reported;
  } else {
    found = take_untold(&first, &is_own);
  }
  device_.collect();
  settle_tellings(found ? &first : nullptr);
  if (!found) {
    const std::string wrong = reports_->take_wrong_results();
    return wrong.empty() ? RLK_OK : fail(error, RLK_WRONG_RESULT, wrong);
  }
  if (const OpDecl* decl = op_of_tag(first.tag)) count(counters_.of(*decl).data_errors);
  return fail(error, RLK_DATA_ERROR, describe(first, name(), is_own ? domain_ends_.of(first.tag) : nullptr));
}

bool Stream::take_untold(rlk_data_error* out, bool* is_own) {
  *is_own = take_data_error(record_, out);
  if (*is_own) return true;
  for (size_t i = 0; i < launched_.size();) {
    bool idle = false;
    const bool found = launched_[i]->take(out, &idle);
    if (idle) {
      launched_.erase(launched_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
    if (found) return true;
  }
  return device_.take_captured_error(out);
}

std::shared_ptr<Telling> Stream::note_telling(uint32_t tag) {
  constexpr size_t kMost = 64;
  if (tellings_.size() >= kMost) {
    tellings_.front()->settle(Telling::Answer::unclear);
    tellings_.pop_front();
  }
  return tellings_.emplace_back(std::make_shared<Telling>(tag != 0 ? tag : last_tag_));
}

void Stream::settle_tellings(const rlk_data_error* told) {
  for (const std::shared_ptr<Telling>& telling : std::exchange(tellings_, {})) {
    if (told == nullptr) {
      telling->settle(Telling::Answer::silent);
    } else {
      telling->settle(telling->tag() == told->tag ? Telling::Answer::told : Telling::Answer::unclear);
    }
  }
}

namespace {

// Failures that enqueued work can cause. Other statuses speak of the question itself: an exception inside the slot, an
// argument that the backend refuses.
bool comes_from_work(rlk_status status) {
  return status == RLK_BACKEND_ERROR || status == RLK_DEVICE_LOST;
}

}  // namespace

rlk_status Stream::tell_failure(rlk_status status, const char* text, int64_t native_code, const char* domain,
                                rlk_error* error, std::vector<Suspect>* suspects) {
  std::string whole = fmt::format("stream {} failed: {}", name(), text);
  std::vector<Suspect> found;
  reports_->note_stream_failure();
  if (comes_from_work(status)) suspects_->add_to(&found);
  // Every stream of a lost device reports the same failure; it is logged once.
  const bool lost = status == RLK_DEVICE_LOST;
  if (lost) device_.add_suspects_of_streams(&found);
  const bool is_news = !lost || !device_.lost.exchange(true);
  bool first = true, unknown = false;
  for (const Suspect& suspect : found) {
    unknown = unknown || suspect.candidate == nullptr;
    if (suspect.candidate == nullptr) continue;
    const Candidate& c = *suspect.candidate;
    whole += fmt::format("{} {} by {}/{}", first ? ". Calls since it was last known to be fine:" : ",", c.decl->name,
                         c.plugin->id, c.implementation->name);
    first = false;
  }
  if (!first && unknown) whole += " and others";
  if (suspects != nullptr && is_news) *suspects = std::move(found);
  suspects_->clear();
  return fail(error, status, whole, native_code, domain);
}

}  // namespace rlk::core

// What a stream answers when it is asked: done, not yet, a data error in words, or a failure with its suspects.
#include <algorithm>

#include "core/declaration/error.hpp"
#include "core/dispatch/data_error.hpp"
#include "core/dispatch/stream.hpp"

namespace rlk::core {

void StreamReports::add_data_error(const rlk_data_error& error) {
  const std::lock_guard lock(mutex_);
  if (data_error_.kind == 0) data_error_ = error;
}

void StreamReports::add_failure(rlk_status status, std::string text) {
  const std::lock_guard lock(mutex_);
  if (failure_ != RLK_OK) return;
  failure_ = status;
  text_ = std::move(text);
}

void StreamReports::take(rlk_data_error* data_error, rlk_status* failure, std::string* text) {
  const std::lock_guard lock(mutex_);
  *data_error = data_error_;
  *failure = failure_;
  *text = std::move(text_);
  data_error_ = {};
  failure_ = RLK_OK;
  text_.clear();
}

namespace {

rlk_error fresh_error() {
  rlk_error error{};
  error.struct_size = sizeof(error);
  return error;
}
rlk_data_error fresh_data_error() {
  rlk_data_error error{};
  error.struct_size = sizeof(error);
  return error;
}

}  // namespace

rlk_status Stream::query(rlk_error* error, std::vector<Suspect>* suspects) {
  if (capturing_) return refuse_question(error);
  rlk_error plugin_error = fresh_error();
  rlk_data_error data_error = fresh_data_error();
  const uint64_t issued = clock_->issued.load(std::memory_order_relaxed);
  const rlk_status status = device_.api.stream->query(handle_, &data_error, &plugin_error);
  return answer(status, data_error, issued, plugin_error, error, suspects);
}

rlk_status Stream::synchronize(uint64_t timeout_ns, rlk_error* error, std::vector<Suspect>* suspects) {
  if (capturing_) return refuse_question(error);
  rlk_error plugin_error = fresh_error();
  rlk_data_error data_error = fresh_data_error();
  const uint64_t issued = clock_->issued.load(std::memory_order_relaxed);
  const rlk_status status = device_.api.stream->synchronize(handle_, timeout_ns, &data_error, &plugin_error);
  return answer(status, data_error, issued, plugin_error, error, suspects);
}

rlk_status Stream::refuse_question(rlk_error* error) const {
  return failf(error, RLK_CAPTURE_FORBIDS, "stream %s is capturing a graph and does not run; end the capture first",
               name().c_str());
}

rlk_status Stream::find_failure(rlk_error* error) {
  rlk_error plugin_error = fresh_error();
  rlk_data_error data_error = fresh_data_error();
  const rlk_status status = device_.api.stream->query(handle_, &data_error, &plugin_error);
  if (status == RLK_DATA_ERROR) reports_->add_data_error(data_error);
  if (status == RLK_OK || status == RLK_NOT_READY || status == RLK_DATA_ERROR) return RLK_OK;
  return tell_failure(status, plugin_error.text, plugin_error.native_code, plugin_error.domain, error, nullptr);
}

rlk_status Stream::wait_quietly(rlk_error* error) {
  rlk_data_error data_error = fresh_data_error();
  const uint64_t issued = clock_->issued.load(std::memory_order_relaxed);
  const rlk_status status = device_.api.stream->synchronize(handle_, UINT64_MAX, &data_error, error);
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
  if (status == RLK_TIMEOUT) return fail(error, status, plugin_error.text);
  if (status != RLK_OK && status != RLK_DATA_ERROR) {
    return tell_failure(status, plugin_error.text, plugin_error.native_code, plugin_error.domain, error, suspects);
  }
  clock_->pass(issued);
  rlk_data_error reported;
  rlk_status failure = RLK_OK;
  std::string text;
  reports_->take(&reported, &failure, &text);
  if (failure != RLK_OK) return tell_failure(failure, text.c_str(), 0, "rlk", error, suspects);
  n_suspects_ = 0;
  rlk_data_error first = fresh_data_error();
  bool found = true;
  if (status == RLK_DATA_ERROR) {
    first = data_error;
  } else if (reported.kind != 0) {
    first = reported;
  } else {
    found = take_untold(&first);
  }
  device_.collect();
  if (!found) return RLK_OK;
  if (const OpDecl* decl = op_of_tag(first.tag)) count(counters_.of(*decl).data_errors);
  return fail(error, RLK_DATA_ERROR, describe(first, name()));
}

bool Stream::take_untold(rlk_data_error* out) {
  if (take_data_error(record_, out)) return true;
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

rlk_status Stream::tell_failure(rlk_status status, const char* text, int64_t native_code, const char* domain,
                                rlk_error* error, std::vector<Suspect>* suspects) {
  std::string whole = "stream " + name() + " failed: " + text;
  const size_t count = std::min(n_suspects_, suspects_.size());
  if (count > 0) {
    whole += ". Calls since it was last known to be fine:";
    for (size_t i = 0; i < count; ++i) {
      const Candidate& c = *suspects_[i].candidate;
      whole += std::string(i == 0 ? " " : ", ") + c.decl->name + " by " + c.plugin->id + "/" + c.implementation->name;
    }
    if (n_suspects_ > suspects_.size()) whole += " and others";
  }
  // On a wrapped stream the caller's own kernels may be to blame as well.
  if (suspects != nullptr && !wrapped_ && n_suspects_ <= suspects_.size()) {
    suspects->assign(suspects_.begin(), suspects_.begin() + static_cast<std::ptrdiff_t>(count));
  }
  n_suspects_ = 0;
  return fail(error, status, whole, native_code, domain);
}

}  // namespace rlk::core

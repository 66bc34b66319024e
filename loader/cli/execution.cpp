// Memory and calls of one execution.
#include "loader/cli/execution.hpp"

#include <cstring>

namespace rlk::cli {

Execution::Execution(Session* session, OpCall call, const Arrays* inputs, const std::string& pin, uint32_t numerics)
    : session_(session),
      call_(std::move(call)),
      inputs_(inputs),
      unified_(session->unified_memory()),
      results_(call_.outputs.size()),
      host_inputs_(call_.inputs.size(), nullptr),
      options_(call_options_of(pin, numerics)),
      op_(find_api_op(*call_.decl)) {
  for (size_t i = 0; i < call_.inputs.size(); ++i) {
    if (!call_.inputs[i]) continue;
    const Array& array = *(*inputs_)[i];
    if (call_.decl->inputs[i].host) host_inputs_[i] = array.data();
    if (unified_) {
      call_.inputs[i]->data = const_cast<void*>(array.data());  // inputs are only read
      continue;
    }
    void* memory = session_->allocate(array.bytes());
    device_memory_.push_back(memory);
    call_.inputs[i]->data = memory;
    session_->upload(memory, array.data(), array.bytes());
  }
  for (size_t i = 0; i < call_.outputs.size(); ++i) {
    if (!call_.outputs[i]) continue;
    TensorSpec& spec = *call_.outputs[i];
    results_[i].emplace(spec.dtype, spec.shape);
    if (const int over = call_.decl->outputs[i].must_alias; over >= 0) {
      // Written in place, in memory of the execution's own: the values that were given stay as they are.
      TensorSpec& input = *call_.inputs[static_cast<size_t>(over)];
      if (unified_) {
        std::memcpy(results_[i]->data(), input.data, results_[i]->bytes());
        input.data = results_[i]->data();
      }
      spec.data = input.data;
      continue;
    }
    if (unified_) {
      spec.data = results_[i]->data();
      continue;
    }
    spec.data = session_->allocate(spec.bytes());
    device_memory_.push_back(spec.data);
  }
  options_.host_inputs = host_inputs_.data();
  input_pointers_.emplace(call_.inputs);
  output_pointers_.emplace(call_.outputs);
}

Execution::~Execution() {
  for (void* memory : device_memory_) {
    if (memory != nullptr) rlk_deallocate(session_->stream(), memory, nullptr);
  }
}

void Execution::enqueue() {
  rlk_error error = RLK_ERROR_INIT;
  check(rlk_call(session_->stream(), op_, call_.params.data(), input_pointers_->data(), input_pointers_->size(),
                 output_pointers_->data(), output_pointers_->size(), &options_, &error),
        error);
}

std::string Execution::finish() {
  rlk_error error = RLK_ERROR_INIT;
  const rlk_status status = rlk_stream_synchronize(session_->stream(), UINT64_MAX, &error);
  if (status == RLK_DATA_ERROR) return error.text;
  check(status, error);
  return "";
}

Arrays Execution::outputs() {
  if (!unified_) {
    for (size_t i = 0; i < results_.size(); ++i) {
      if (results_[i]) session_->download(results_[i]->data(), call_.outputs[i]->data, results_[i]->bytes());
    }
    session_->synchronize();
  }
  return std::move(results_);
}

}  // namespace rlk::cli

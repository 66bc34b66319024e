// Finding the functions, and what a status means.
#include "cudnn.hpp"

namespace cudnn_attention {

const Libraries& libraries() {
  static const Libraries* const instance = [] {
    auto* made = new Libraries;
    sdk::Symbols& symbols = made->symbols;
    void* cudnn = symbols.require_library({"libcudnn.so.9"});
    symbols.require(cudnn, "cudnnCreate", made->create);
    symbols.require(cudnn, "cudnnDestroy", made->destroy);
    symbols.require(cudnn, "cudnnSetStream", made->set_stream);
    symbols.require(cudnn, "cudnnGetErrorString", made->error_string);
    symbols.require(cudnn, "cudnnGetLastErrorString", made->last_error);
    symbols.require(cudnn, "cudnnGetVersion", made->version);
    symbols.require(cudnn, "cudnnBackendCreateDescriptor", made->create_descriptor);
    symbols.require(cudnn, "cudnnBackendDestroyDescriptor", made->destroy_descriptor);
    symbols.require(cudnn, "cudnnBackendSetAttribute", made->set_attribute);
    symbols.require(cudnn, "cudnnBackendGetAttribute", made->get_attribute);
    symbols.require(cudnn, "cudnnBackendFinalize", made->finalize);
    symbols.require(cudnn, "cudnnBackendExecute", made->execute);
    void* driver = symbols.require_library({"libcuda.so.1"});
    symbols.require(driver, "cuCtxGetCurrent", made->context_current);
    symbols.require(driver, "cuCtxPushCurrent_v2", made->context_push);
    symbols.require(driver, "cuCtxPopCurrent_v2", made->context_pop);
    return made;
  }();
  return *instance;
}

bool is_unsupported(cudnnStatus_t status) {
  return static_cast<int>(status) / 1000 == 3;  // the thousands tell the kind
}

void check(cudnnStatus_t status, const char* attempt) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const int code = static_cast<int>(status);
  throw sdk::Error(is_unsupported(status) ? RLK_UNSUPPORTED : RLK_BACKEND_ERROR,
                   sdk::format("%s failed with %d (%s)", attempt, code, libraries().error_string(status)), code,
                   "cudnn");
}

void* ContextStack::current() {
  void* context = nullptr;
  const int code = libraries().context_current(&context);
  if (code != 0) throw sdk::Error(RLK_BACKEND_ERROR, "asking for the current context failed", code, "cuda");
  return context;
}

void ContextStack::enter(void* wanted) {
  const int code = libraries().context_push(wanted);
  if (code != 0) throw sdk::Error(RLK_BACKEND_ERROR, "making the device's context current failed", code, "cuda");
}

void ContextStack::leave(void*) noexcept {
  void* popped = nullptr;
  libraries().context_pop(&popped);
}

}  // namespace cudnn_attention

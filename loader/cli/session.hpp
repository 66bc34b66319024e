// A running rlk for the verbs that call operators: runtime, stream, memory. Failures become exceptions with the text
// that the API gave.
#pragma once

#include <rlk/rlk.h>

#include <string>

#include "loader/cli/call.hpp"

namespace rlk::cli {

// INVALID_ARGUMENT becomes UsageError, every other failure Failure.
void check(rlk_status status, const rlk_error& error);

// A string of the API, freed.
std::string take_text(char* text);

class Session {
public:
  Session();
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  rlk_runtime* runtime() const { return runtime_; }
  rlk_stream* stream() const { return stream_; }
  const std::string& backend() const { return backend_; }
  rlk_device_properties properties() const;
  bool unified_memory() const;

  // The document of `list`: every plugin with its state.
  std::string list_json() const;

  // The CPU, then every other backend with a device, in the order of the list.
  std::vector<std::string> backends() const;

  // Opens a stream on device 0 of the backend. Replaces the stream that was open.
  void open(const std::string& backend);

  // The backend that the call should run on: `pin` ("B" or "B:implementation"), else RLK_OP_<NAME>, else RLK_BACKEND,
  // else the first backend other than the CPU whose device would take the call, else the CPU. Leaves its stream open.
  void open_for(const OpCall& call, const std::string& pin);

  void* allocate(uint64_t bytes);
  void deallocate(void* memory);
  void upload(void* device, const void* host, uint64_t bytes);
  void download(void* host, const void* device, uint64_t bytes);
  void synchronize();

  std::string explain_json(const OpCall& call, const rlk_call_options& options) const;

private:
  void close();
  rlk_runtime* runtime_ = nullptr;
  rlk_stream* stream_ = nullptr;
  std::string backend_;
};

// The implementation that takes the call, as explain tells it: "cuda/fused"; the plugin alone in `plugin` if asked.
std::string chosen_of(const std::string& explain_json, std::string* plugin = nullptr);

const rlk_op* find_api_op(const core::OpDecl& decl);

// Options that --backend and --numerics stand for. Borrows the pin.
rlk_call_options call_options_of(const std::string& pin, uint32_t numerics);

}  // namespace rlk::cli

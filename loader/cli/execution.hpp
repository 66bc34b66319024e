// One call with its memory on the session's device: host arrays in, the call as often as asked, host arrays out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loader/cli/array.hpp"
#include "loader/cli/session.hpp"

namespace rlk::cli {

using Arrays = std::vector<std::optional<Array>>;  // in the order of the declaration, empty where absent

class Execution {
public:
  // Uploads the inputs to the device of the session's open stream, unless its memory is host memory, and allocates the
  // outputs that `call` describes. Session, inputs and pin outlive the execution.
  Execution(Session* session, OpCall call, const Arrays* inputs, const std::string& pin, uint32_t numerics);
  ~Execution();
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  void enqueue();
  // Waits for the stream. The text of a data error, "" without one.
  std::string finish();
  Arrays outputs();
  const OpCall& call() const { return call_; }
  const rlk_call_options& options() const { return options_; }

private:
  Session* session_;
  OpCall call_;
  const Arrays* inputs_;
  bool unified_;
  Arrays results_;
  std::vector<void*> device_memory_;
  std::vector<const void*> host_inputs_;
  rlk_call_options options_;
  std::optional<TensorPointers> input_pointers_, output_pointers_;
  const rlk_op* op_;
};

}  // namespace rlk::cli

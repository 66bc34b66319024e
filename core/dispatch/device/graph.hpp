// A captured graph: its replays, and what it keeps alive until it dies.
#pragma once

#include <memory>
#include <vector>

#include "core/dispatch/device/stream.hpp"

namespace rlk::core {

class Graph {
public:
  // Ends the stream's capture, which the graph may outlive.
  static rlk_status end_capture(Stream& stream, std::unique_ptr<Graph>* out, rlk_error* error);
  ~Graph();  // waits for its replays
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // On any stream of the same device. A stream that launched it reports data errors, when no launch is in flight.
  // [stream]
  rlk_status launch(Stream& on, rlk_error* error);

private:
  explicit Graph(DeviceState& device);
  DeviceState& device_;
  rlk_plugin_graph* handle_ = nullptr;
  GraphResources resources_;
  std::shared_ptr<GraphRecord> record_;
  std::shared_ptr<const StreamClock> origin_;  // of the stream that captured
};

}  // namespace rlk::core

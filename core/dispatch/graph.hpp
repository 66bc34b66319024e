// A captured graph: its replays, and what it keeps alive until it dies.
#pragma once

#include <memory>
#include <vector>

#include "core/dispatch/stream.hpp"

namespace rlk::core {

class Graph {
public:
  // Ends the stream's capture. The stream outlives the graph: replayed kernels write its data error record.
  static rlk_status end_capture(Stream& stream, std::unique_ptr<Graph>* out, rlk_error* error);
  ~Graph();  // waits for its replays
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // On any stream of the same device. Data errors are told by the stream that captured. [stream]
  rlk_status launch(Stream& on, rlk_error* error);

private:
  explicit Graph(Stream& origin) : origin_(origin) {}
  Stream& origin_;
  rlk_plugin_graph* handle_ = nullptr;
  GraphResources resources_;
  Mark ready_;                  // the origin's work before the capture: it used the same workspace
  std::vector<Mark> launches_;  // the last one per stream
};

}  // namespace rlk::core

// Capture and replay by the driver's graphs.
#include "stream.hpp"

namespace rlk::simt::host {
namespace {

class Graph final : public sdk::Graph {
public:
  explicit Graph(Device& device) : device_(device) {}
  ~Graph() override {
    try {
      const RelaxedScope scope(device_.place());
      if (exec != nullptr) driver().graph_exec_destroy(exec);
      if (graph != nullptr) driver().graph_destroy(graph);
    } catch (...) {
      // A lost device has no graphs any more.
    }
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch(sdk::Stream& stream) override {
    const PlaceScope scope(device_.place());
    check(driver().graph_launch(exec, static_cast<Stream&>(stream).handle()), "launching a graph");
  }

  GraphHandle graph = nullptr;
  GraphExecHandle exec = nullptr;

private:
  Device& device_;
};

}  // namespace

// Thread-local mode: what other threads do meanwhile neither breaks the capture nor is broken by it.
void Stream::begin_capture() {
  const PlaceScope scope(device_.place());
  check(driver().begin_capture(handle_, kCaptureThreadLocal), "beginning a capture");
}

std::unique_ptr<sdk::Graph> Stream::end_capture() {
  const RelaxedScope scope(device_.place());
  auto graph = std::make_unique<Graph>(device_);
  check(driver().end_capture(handle_, &graph->graph), "ending a capture");
  graph->exec = instantiate(graph->graph);
  return graph;
}

}  // namespace rlk::simt::host

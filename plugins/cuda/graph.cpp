// Capture and replay by the driver's graphs.
#include "stream.hpp"

namespace rlk::cuda {
namespace {

class CudaGraph final : public sdk::Graph {
public:
  explicit CudaGraph(CudaDevice& device) : device_(device) {}
  ~CudaGraph() override {
    try {
      const RelaxedScope scope(device_.context());
      if (exec != nullptr) driver().graph_exec_destroy(exec);
      if (graph != nullptr) driver().graph_destroy(graph);
    } catch (...) {
      // A lost device has lost its graphs too.
    }
  }
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  void launch(sdk::Stream& stream) override {
    const ContextScope scope(device_.context());
    check(driver().graph_launch(exec, static_cast<CudaStream&>(stream).handle()), "launching a graph");
  }

  GraphHandle graph = nullptr;
  GraphExecHandle exec = nullptr;

private:
  CudaDevice& device_;
};

}  // namespace

// Thread-local mode: what other threads do meanwhile neither breaks the capture nor is broken by it.
void CudaStream::begin_capture() {
  const ContextScope scope(device_.context());
  check(driver().begin_capture(handle_, kCaptureThreadLocal), "beginning a capture");
}

std::unique_ptr<sdk::Graph> CudaStream::end_capture() {
  const RelaxedScope scope(device_.context());
  auto graph = std::make_unique<CudaGraph>(device_);
  check(driver().end_capture(handle_, &graph->graph), "ending a capture");
  check(driver().graph_instantiate(&graph->exec, graph->graph, 0), "instantiating a graph");
  return graph;
}

}  // namespace rlk::cuda

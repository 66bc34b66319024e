// Capture and replay by the driver's graphs.
#include "graph.hpp"

#include "stream.hpp"

namespace rlk::cuda {
namespace {

struct Graph {
  explicit Graph(CudaDevice& on) : device(on) {}
  ~Graph() {
    try {
      const RelaxedScope scope(device.context());
      if (exec != nullptr) driver().graph_exec_destroy(exec);
      if (graph != nullptr) driver().graph_destroy(graph);
    } catch (...) {
      // A lost device has lost its graphs too.
    }
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  CudaDevice& device;
  GraphHandle graph = nullptr;
  GraphExecHandle exec = nullptr;
};

CudaStream& stream_of(rlk_plugin_stream* stream) {
  return static_cast<CudaStream&>(*sdk::detail::stream_of(stream));
}

// Thread-local mode: what other threads do meanwhile neither breaks the capture nor is broken by it.
rlk_status begin_capture(rlk_plugin_stream* stream, rlk_error* error) noexcept {
  return sdk::detail::guard(error, [&] {
    CudaStream& own = stream_of(stream);
    const ContextScope scope(own.device().context());
    check(driver().begin_capture(own.handle(), kCaptureThreadLocal), "beginning a capture");
    return RLK_OK;
  });
}

rlk_status end_capture(rlk_plugin_stream* stream, rlk_plugin_graph** out, rlk_error* error) noexcept {
  return sdk::detail::guard(error, [&] {
    CudaStream& own = stream_of(stream);
    const RelaxedScope scope(own.device().context());
    auto graph = std::make_unique<Graph>(own.device());
    check(driver().end_capture(own.handle(), &graph->graph), "ending a capture");
    check(driver().graph_instantiate(&graph->exec, graph->graph, 0), "instantiating a graph");
    *out = reinterpret_cast<rlk_plugin_graph*>(graph.release());
    return RLK_OK;
  });
}

rlk_status launch_graph(rlk_plugin_graph* graph, rlk_plugin_stream* stream, rlk_error* error) noexcept {
  return sdk::detail::guard(error, [&] {
    CudaStream& own = stream_of(stream);
    const Graph& recorded = *reinterpret_cast<Graph*>(graph);
    const ContextScope scope(own.device().context());
    check(driver().graph_launch(recorded.exec, own.handle()), "launching a graph");
    return RLK_OK;
  });
}

rlk_status destroy_graph(rlk_plugin_graph* graph, rlk_error* error) noexcept {
  return sdk::detail::guard(error, [&] { return delete reinterpret_cast<Graph*>(graph), RLK_OK; });
}

constexpr rlk_graph_api kTable = {
    sizeof(rlk_graph_api), 0, &begin_capture, &end_capture, &launch_graph, &destroy_graph,
};

}  // namespace

const rlk_graph_api* graph_extension() {
  return driver().usable() && driver().has_graphs() ? &kTable : nullptr;
}

}  // namespace rlk::cuda

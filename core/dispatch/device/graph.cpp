// A captured graph.
#include "core/dispatch/device/graph.hpp"

#include "core/declaration/error.hpp"
#include "core/dispatch/trust/release.hpp"

namespace rlk::core {

Graph::Graph(DeviceState& device) : device_(device) {
  device_.add_graph(1);
}

rlk_status Graph::end_capture(Stream& stream, std::unique_ptr<Graph>* out, rlk_error* error) {
  std::unique_ptr<Graph> graph(new Graph(stream.device()));
  const rlk_status status = stream.end_capture(&graph->handle_, &graph->resources_, error);
  if (status != RLK_OK) return status;
  graph->record_ = std::make_shared<GraphRecord>(graph->resources_.record);
  graph->origin_ = stream.clock();
  *out = std::move(graph);
  return RLK_OK;
}

Graph::~Graph() {
  if (record_ != nullptr) record_->finish();
  resources_.before.wait();
  if (handle_ != nullptr) release_by(device_.api, "graph destroy", device_.graph_api->destroy, handle_);
  resources_.release(device_);
  device_.add_graph(-1);
}

rlk_status Graph::launch(Stream& on, rlk_error* error) {
  if (&on.device() != &device_) {
    return failf(error, RLK_INVALID_ARGUMENT,
                 "the graph was captured on %s and the stream belongs to %s; expected the same device",
                 device_.entry.name().c_str(), on.name().c_str());
  }
  return record_->launch([&](Fence* end) -> rlk_status {
    Fence& before = resources_.before;
    if (on.clock() != origin_ && !before.reached() && !before.hold_back(device_.api, on.handle())) {
      return failf(
          error, RLK_BACKEND_ERROR,
          "stream %s cannot be made to wait for the work before the capture; synchronize the stream that captured",
          on.name().c_str());
    }
    on.expect_launch();
    const rlk_status status = call_plugin(device_.graph_api->launch, handle_, on.handle(), error);
    on.note_foreign_work();
    *end = on.fence(/*with_event=*/true);
    on.note_launch(record_);
    return status;
  });
}

}  // namespace rlk::core

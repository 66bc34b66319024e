// A captured graph.
#include "core/dispatch/graph.hpp"

#include "core/declaration/error.hpp"

namespace rlk::core {

rlk_status Graph::end_capture(Stream& stream, std::unique_ptr<Graph>* out, rlk_error* error) {
  std::unique_ptr<Graph> graph(new Graph(stream));
  const rlk_status status = stream.end_capture(&graph->handle_, &graph->resources_, error);
  stream.add_graph(1);  // the destructor takes it back
  if (status != RLK_OK) return status;
  graph->ready_ = stream.mark(/*with_event=*/true);
  *out = std::move(graph);
  return RLK_OK;
}

Graph::~Graph() {
  for (Mark& launch : launches_) launch.wait();
  ready_.wait();
  if (handle_ != nullptr) origin_.device().graph->destroy(handle_, nullptr);
  resources_.release(origin_.device().memory);
  origin_.add_graph(-1);
}

rlk_status Graph::launch(Stream& on, rlk_error* error) {
  DeviceState& device = origin_.device();
  if (&on.device() != &device) {
    return failf(error, RLK_INVALID_ARGUMENT,
                 "the graph was captured on %s and the stream belongs to %s; expected the "
                 "same device",
                 origin_.name().c_str(), on.name().c_str());
  }
  if (&on != &origin_ && !ready_.reached() && !ready_.hold_back(device.api, on.handle())) {
    return failf(
        error, RLK_BACKEND_ERROR,
        "stream %s cannot be made to wait for the work before the capture; synchronize the stream that captured",
        on.name().c_str());
  }
  const rlk_status status = device.graph->launch(handle_, on.handle(), error);
  on.note_foreign_work();
  Mark end = on.mark(/*with_event=*/true);
  for (Mark& launch : launches_) {
    if (launch.clock() != end.clock()) continue;
    launch = std::move(end);
    return status;
  }
  launches_.push_back(std::move(end));
  return status;
}

}  // namespace rlk::core

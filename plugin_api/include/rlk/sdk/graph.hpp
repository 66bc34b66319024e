// The extension "rlk.graph/1" as classes. A stream that can be captured has
//   void begin_capture();
//   std::unique_ptr<rlk::sdk::Graph> end_capture();
//   uint64_t capture_id() override;                     // which the host asks for
// and the plugin answers extension(RLK_EXT_GRAPH) with &rlk::sdk::graph_api<MyStream>.
#pragma once

#include <rlk/abi/ext/draft/graph.h>
#include <rlk/sdk/device.hpp>

#include <memory>

namespace rlk::sdk {

// A captured graph, ready to run; destroyed when the host has no more use for it.
class Graph {
public:
  virtual ~Graph() = default;
  virtual void launch(Stream&) = 0;
};

namespace detail {

template <class S>
struct GraphThunks {
  static S& own(rlk_plugin_stream* stream) { return static_cast<S&>(*stream_of(stream)); }
  static Graph* graph_of(rlk_plugin_graph* graph) noexcept { return reinterpret_cast<Graph*>(graph); }

  static rlk_status begin_capture(rlk_plugin_stream* stream, rlk_error* error) noexcept {
    return guard(error, [&] { return own(stream).begin_capture(), RLK_OK; });
  }
  static rlk_status end_capture(rlk_plugin_stream* stream, rlk_plugin_graph** out, rlk_error* error) noexcept {
    return guard(error, [&] {
      std::unique_ptr<Graph> graph = own(stream).end_capture();
      *out = reinterpret_cast<rlk_plugin_graph*>(graph.release());
      return RLK_OK;
    });
  }
  static rlk_status launch(rlk_plugin_graph* graph, rlk_plugin_stream* stream, rlk_error* error) noexcept {
    return guard(error, [&] { return graph_of(graph)->launch(*stream_of(stream)), RLK_OK; });
  }
  static rlk_status destroy(rlk_plugin_graph* graph, rlk_error* error) noexcept {
    return guard(error, [&] { return delete graph_of(graph), RLK_OK; });
  }
};

}  // namespace detail

template <class S>
inline constexpr rlk_graph_api graph_api = {
    sizeof(rlk_graph_api),
    0,
    &detail::GraphThunks<S>::begin_capture,
    &detail::GraphThunks<S>::end_capture,
    &detail::GraphThunks<S>::launch,
    &detail::GraphThunks<S>::destroy,
};

}  // namespace rlk::sdk

// The host's side of every map (../skeleton/map.cuh): what RLK_SIMT_MAP says of an operator becomes its implementation.
// One serves all floating dtypes, strides and broadcasts; a kernel's form is chosen when a call is enqueued.
#pragma once

#include <rlk/sdk/arguments.hpp>

#include "../skeleton/map.h"
#include "operator.hpp"

#include <array>
#include <cstring>
#include <initializer_list>
#include <type_traits>

namespace rlk::simt::host {

// A tensor of a call, a part of one, or a number that stands for an absent one.
struct MapView {
  MapView() = default;
  MapView(const rlk_tensor* tensor);  // an argument stands for itself; throws where it is absent

  bool is_present() const noexcept { return dtype != sdk::Dtype::other; }
  int64_t elements() const noexcept;

  void* data = nullptr;
  sdk::Dtype dtype = sdk::Dtype::other;
  int32_t ndim = 0;
  int64_t shape[simt::kMapDims] = {};
  int64_t strides[simt::kMapDims] = {};
  double value = 0;  // of what is absent
};
// Of the last dimension.
MapView first_half(MapView view);
MapView second_half(MapView view);
MapView columns_of(MapView view, int64_t begin, int64_t count);
// Every second element of the last dimension.
MapView even_elements(MapView view);
MapView odd_elements(MapView view);
// With a dimension of 1 before that one, counted from the last.
MapView repeated_before(MapView view, int32_t from_last);
inline MapView every_element(const MapView& view) {  // of a further last dimension
  return repeated_before(view, 0);
}
inline MapView every_head(const MapView& view) {  // of [tokens, elements]
  return repeated_before(view, 1);
}
// The members of pairs, which are the halves (neox) or neighbours.
template <class Style>
MapView first_of_pairs(const MapView& view, Style style) {
  return style == Style::neox ? first_half(view) : even_elements(view);
}
template <class Style>
MapView second_of_pairs(const MapView& view, Style style) {
  return style == Style::neox ? second_half(view) : odd_elements(view);
}
MapView number_everywhere(double value);
// An argument that may be absent: an input is the number then, an output is not written.
MapView or_number(const rlk_tensor* tensor, double value);
inline MapView or_none(const rlk_tensor* tensor) {
  return or_number(tensor, 0);
}

// heavy: numbers whose formula computes much. f64: numbers, computed in fp64 whatever the tensors are.
enum class MapKind { numbers, heavy, f64, bits, cast };

// A call of a map: its arguments, outputs first. names: literals.
struct MapCall {
  MapCall(std::initializer_list<MapView> outs, std::initializer_list<MapView> inputs,
          std::initializer_list<const char*> argument_names, std::initializer_list<double> parameters,
          MapKind map_kind = MapKind::numbers);
  // made: what the formula takes of the call, one number, or a struct that knows whether it asks_f64().
  template <class Made, class = std::enable_if_t<std::is_class<Made>::value || std::is_arithmetic<Made>::value>>
  MapCall(std::initializer_list<MapView> outs, std::initializer_list<MapView> inputs,
          std::initializer_list<const char*> argument_names, const Made& made, MapKind map_kind = MapKind::numbers)
      : MapCall(outs, inputs, argument_names, std::initializer_list<double>{}, map_kind) {
    static_assert(std::is_trivially_copyable<Made>::value && sizeof(Made) <= sizeof(numbers), "kMapNumbers");
    std::memcpy(numbers, &made, sizeof(made));
    if constexpr (std::is_class<Made>::value) asks_f64 = made.asks_f64();
  }
  // Without a first output there is nothing to do.
  bool is_wanted() const noexcept { return tensors[0].is_present(); }
  bool is_of_numbers() const noexcept { return kind != MapKind::bits && kind != MapKind::cast; }
  // fp64 where a tensor is f64, and where a number is too large or too small for fp32.
  bool computes_f64() const noexcept;
  // Which of the operator's kernels: the end of its name.
  const char* kernel() const noexcept;
  // And of those for lines; null where no call of these dtypes is one.
  const char* line_kernel() const noexcept;

  int count = 0, outputs = 0;  // outputs among them
  MapKind kind = MapKind::numbers;
  bool asks_f64 = false;
  MapView tensors[simt::kMapTensors];
  const char* names[simt::kMapTensors] = {};
  double numbers[simt::kMapNumbers] = {};
};

struct MapKernels {
  const char* image;
  const char* prefix;  // of the kernels' names
};

// Of a map: for any call, and for one of lines, null where no call of these dtypes is one.
struct MapHandles {
  FunctionHandle any = nullptr, line = nullptr;
  Start start = Start::after;
};

sdk::Support support_of_maps(const Device& device, std::initializer_list<MapCall> calls);
// The kernel's arguments; no pieces where there is nothing to do.
simt::MapArgs arguments_of_map(const MapCall& call);
// The kernels of a call, and of all others whose tensors have the same dtypes.
MapHandles map_handles(Device& device, const MapKernels& kernels, const MapCall& call);
void launch_map(const MapHandles& kernels, sdk::Stream& stream, const MapCall& call);

// Parts: what RLK_SIMT_MAP, or RLK_SIMT_PART several times, made of an operator.
template <class Operator, class... Parts>
struct Map {
  using Op = Operator;
  static constexpr const char* kName = "packs";

  static sdk::Support query(Device& device, const sdk::Call<Op>& call) {
    const auto named = sdk::arguments_of(call);
    return support_of_maps(device, {Parts::call_of(named)...});
  }
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call) {
    return std::make_unique<Plan>(device, call);
  }

private:
  class Plan final : public OperatorPlan<Op> {
  public:
    Plan(Device& device, const sdk::Call<Op>& call) : OperatorPlan<Op>(device, call) {
      this->dynamic_symbols = (uint64_t{1} << Op::kSymbols) - 1;
      const auto named = sdk::arguments_of(call);
      kernels_ = {map_handles(device, Parts::kKernels, Parts::call_of(named))...};
    }
    void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
      const auto named = this->arguments_of(run);
      const PlaceScope scope(this->place_);
      size_t part = 0;
      (launch_map(kernels_[part++], stream, Parts::call_of(named)), ...);
    }

  private:
    std::array<MapHandles, sizeof...(Parts)> kernels_{};
  };
};

}  // namespace rlk::simt::host

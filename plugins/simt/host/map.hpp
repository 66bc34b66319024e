// The host's side of every map (../skeleton/map.cuh): what RLK_SIMT_MAP says of an operator becomes its implementation.
// One serves all floating dtypes, strides and broadcasts; a kernel's form is chosen when a call is enqueued.
#pragma once

#include <rlk/sdk/arguments.hpp>

#include "../skeleton/map.h"
#include "operator.hpp"

#include <initializer_list>

namespace rlk::simt::host {

// A tensor of a call, or a part of one.
struct MapView {
  MapView() = default;
  MapView(const rlk_tensor* tensor);  // an argument stands for itself; throws where it is absent

  int64_t elements() const noexcept;

  void* data = nullptr;
  sdk::Dtype dtype = sdk::Dtype::other;
  int32_t ndim = 0;
  int64_t shape[simt::kMapDims] = {};
  int64_t strides[simt::kMapDims] = {};
};
// Of the last dimension.
MapView first_half(MapView view);
MapView second_half(MapView view);

// A call of a map: its arguments, outputs first. names: literals.
struct MapCall {
  MapCall(std::initializer_list<MapView> outputs, std::initializer_list<MapView> inputs,
          std::initializer_list<const char*> argument_names, std::initializer_list<double> parameters);
  // fp64 where a tensor is f64, and where a number is too large or too small for fp32.
  bool computes_f64() const noexcept;

  int count = 0;
  MapView tensors[simt::kMapTensors];
  const char* names[simt::kMapTensors] = {};
  double numbers[simt::kMapNumbers] = {};
};

struct MapKernels {
  const char* image;
  const char* prefix;  // of the two kernels' names
};

sdk::Support support_of_map(const Device& device, const MapCall& call);
// The kernel's arguments; no pieces where there is nothing to do.
simt::MapArgs arguments_of_map(const MapCall& call);

class MapPlan : public sdk::Plan {
public:
  MapPlan(Device& device, const MapKernels& kernels, const MapCall& call);

protected:
  void launch(sdk::Stream& stream, const MapCall& call) const;

private:
  FunctionHandle kernel_;
  Place place_;
};

// Declared: what RLK_SIMT_MAP made of an operator.
template <class Declared>
struct Map {
  using Op = typename Declared::Op;
  static constexpr const char* kName = "packs";

  static sdk::Support query(Device& device, const sdk::Call<Op>& call) {
    return support_of_map(device, Declared::call_of(sdk::arguments_of(call)));
  }
  static std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Op>& call) {
    return std::make_unique<Plan>(device, call);
  }

private:
  class Plan final : public MapPlan {
  public:
    Plan(Device& device, const sdk::Call<Op>& call)
        : MapPlan(device, Declared::kKernels, Declared::call_of(sdk::arguments_of(call))), params_(call.params()) {
      dynamic_symbols = (uint64_t{1} << Op::kSymbols) - 1;
    }
    void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
      launch(stream, Declared::call_of(sdk::arguments_of<Op>(run, params_)));
    }

  private:
    const typename Op::Params params_;
  };
};

}  // namespace rlk::simt::host

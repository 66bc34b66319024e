// Query, plan and launch of every map: dimensions are merged, then the widest form is taken that the strides allow.
#include "map.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace rlk::simt::host {
namespace {

constexpr uint32_t kNumerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;

constexpr bool same_numbers() {
  return static_cast<int32_t>(sdk::Dtype::f32) == simt::kMapF32 &&
         static_cast<int32_t>(sdk::Dtype::bf16) == simt::kMapBf16 &&
         static_cast<int32_t>(sdk::Dtype::f16) == simt::kMapF16 &&
         static_cast<int32_t>(sdk::Dtype::f64) == simt::kMapF64;
}
static_assert(same_numbers() && simt::kMapDims >= RLK_MAX_NDIM);

// Stride of an operand along a dimension of the output: 0 where it is repeated.
int64_t broadcast_stride(const MapView& view, const MapView& out, int32_t d) {
  const int32_t own = d - (out.ndim - view.ndim);
  return own < 0 || view.shape[own] == 1 ? 0 : view.strides[own];
}

void merge_dimensions(const MapCall& call, simt::MapArgs& args) {
  const MapView& out = call.tensors[0];
  // Outermost first by the output's strides: a map has no order of its own, and what is transposed in every tensor is
  // contiguous.
  int32_t order[simt::kMapDims];
  std::iota(order, order + out.ndim, 0);
  std::stable_sort(order, order + out.ndim,
                   [&](int32_t a, int32_t b) { return std::abs(out.strides[a]) > std::abs(out.strides[b]); });
  args.dims = 0;
  args.elements = 1;
  for (int32_t i = 0; i < out.ndim; ++i) {
    const int32_t d = order[i];
    const int64_t size = out.shape[d];
    if (size == 1) continue;
    args.elements *= size;
    const int32_t last = args.dims - 1;
    bool goes_on = last >= 0;
    for (int t = 0; t < call.count && goes_on; ++t) {
      goes_on = args.tensor[t].stride[last] == broadcast_stride(call.tensors[t], out, d) * size;
    }
    const int32_t to = goes_on ? last : args.dims++;
    args.shape[to] = goes_on ? args.shape[to] * size : size;
    for (int t = 0; t < call.count; ++t) args.tensor[t].stride[to] = broadcast_stride(call.tensors[t], out, d);
  }
  if (args.dims == 0) {
    args.dims = 1;
    args.shape[0] = 1;
  }
}

// Whether every tensor can be taken in packs of `size` elements along the innermost dimension.
bool fits_packs(const simt::MapArgs& args, int count, int64_t size) {
  const int32_t inner = args.dims - 1;
  if (inner > 0 && args.shape[inner] % size != 0) return false;
  if (args.tensor[0].stride[inner] != 1) return false;
  for (int t = 0; t < count; ++t) {
    const int64_t* stride = args.tensor[t].stride;
    if (stride[inner] == 0) continue;
    if (stride[inner] != 1 || !is_aligned(args.tensor[t].data, 0)) return false;
    if (std::any_of(stride, stride + inner, [size](int64_t outer) { return outer % size != 0; })) return false;
  }
  return true;
}

}  // namespace

MapView::MapView(const rlk_tensor* tensor) {
  if (tensor == nullptr) throw sdk::Error(RLK_INVALID_ARGUMENT, "a tensor that the operator needs is absent");
  data = sdk::data_of(tensor);
  dtype = sdk::dtype_of(*tensor);
  ndim = tensor->ndim;
  std::copy_n(tensor->shape, ndim, shape);
  std::copy_n(tensor->strides, ndim, strides);
}

int64_t MapView::elements() const noexcept {
  return std::any_of(shape, shape + ndim, [](int64_t size) { return size == 0; })
             ? 0
             : std::accumulate(shape, shape + ndim, int64_t{1}, std::multiplies<>());
}

MapView first_half(MapView view) {
  view.shape[view.ndim - 1] /= 2;
  return view;
}

MapView second_half(MapView view) {
  view = first_half(view);
  const int32_t last = view.ndim - 1;
  if (view.data != nullptr) {
    view.data = static_cast<char*>(view.data) + view.shape[last] * view.strides[last] * sdk::bytes_of(view.dtype);
  }
  return view;
}

MapCall::MapCall(std::initializer_list<MapView> outputs, std::initializer_list<MapView> inputs,
                 std::initializer_list<const char*> argument_names, std::initializer_list<double> parameters)
    : count(static_cast<int>(outputs.size() + inputs.size())) {
  std::copy(inputs.begin(), inputs.end(), std::copy(outputs.begin(), outputs.end(), tensors));
  std::copy(argument_names.begin(), argument_names.end(), names);
  std::copy(parameters.begin(), parameters.end(), numbers);
}

bool MapCall::computes_f64() const noexcept {
  return std::any_of(tensors, tensors + count, [](const MapView& view) { return view.dtype == sdk::Dtype::f64; }) ||
         std::any_of(std::begin(numbers), std::end(numbers), [](double number) {
           const double size = std::fabs(number);
           return size != 0 && !(size > 0x1p-100 && size < 0x1p100);
         });
}

sdk::Support support_of_map(const Device& device, const MapCall& call) {
  if (auto refused = device.refusal()) return *refused;
  double bytes = 0;
  for (int t = 0; t < call.count; ++t) {
    const MapView& view = call.tensors[t];
    if (view.dtype > sdk::Dtype::f64) {
      return sdk::Support::no(
          "DTYPE", std::string(call.names[t]) + " is " + sdk::name_of(view.dtype) + "; supported: f32, bf16, f16, f64");
    }
    bytes += static_cast<double>(view.elements() * sdk::bytes_of(view.dtype));
  }
  sdk::Support answer = sdk::Support::yes("packs", kNumerics, RLK_SUPPORT_PREFERRED);
  answer.cost_us = kLaunchUs + device.bytes_us(bytes);
  return answer;
}

simt::MapArgs arguments_of_map(const MapCall& call) {
  simt::MapArgs args{};
  if (call.tensors[0].elements() == 0) return args;
  bool one_dtype = true;
  for (int t = 0; t < call.count; ++t) {
    args.tensor[t].data = call.tensors[t].data;
    args.tensor[t].dtype = static_cast<int32_t>(call.tensors[t].dtype);
    one_dtype = one_dtype && call.tensors[t].dtype == call.tensors[0].dtype;
  }
  std::copy(std::begin(call.numbers), std::end(call.numbers), args.number);
  merge_dimensions(call, args);
  // With numbers that ask for fp64, tensors of another dtype are converted.
  one_dtype = one_dtype && call.computes_f64() == (call.tensors[0].dtype == sdk::Dtype::f64);
  int64_t size = one_dtype ? 16 / sdk::bytes_of(call.tensors[0].dtype) : simt::kMapElements;
  args.form = one_dtype ? simt::kMapOneDtype : simt::kMapMixed;
  if (!fits_packs(args, call.count, size)) {
    size = 1;
    args.form = simt::kMapAny;
  }
  args.pieces = ceil_divide(args.elements, size);
  // A last pack that is not full there is in one dimension alone.
  args.shape[args.dims - 1] = ceil_divide(args.shape[args.dims - 1], size);
  for (int32_t d = 0; d < args.dims; ++d) {
    args.multiplier[d] = simt::map_multiplier(args.shape[d]);
    args.shift[d] = simt::map_shift(args.shape[d]);
  }
  return args;
}

MapPlan::MapPlan(Device& device, const MapKernels& kernels, const MapCall& call)
    : kernel_(device.kernel(kernels.image, std::string(kernels.prefix) + (call.computes_f64() ? "f64" : "f32"))),
      place_(device.place()) {
  flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
  numerics = kNumerics;
  variant = "packs";
}

void MapPlan::launch(sdk::Stream& stream, const MapCall& call) const {
  const simt::MapArgs args = arguments_of_map(call);
  if (args.pieces == 0) return;
  const int64_t pack = args.form == simt::kMapMixed      ? simt::kMapElements
                       : args.form == simt::kMapOneDtype ? 16 / sdk::bytes_of(call.tensors[0].dtype)
                                                         : 1;
  const PlaceScope scope(place_);
  launch_walking(kernel_, ceil_divide(args.pieces, simt::kMapThreads * (simt::kMapElements / pack)), simt::kMapThreads,
                 0, own(stream).handle(), args);
}

}  // namespace rlk::simt::host

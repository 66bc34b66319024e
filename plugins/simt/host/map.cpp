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
  constexpr std::pair<sdk::Dtype, int32_t> kBoth[] = {
      {sdk::Dtype::f32, simt::kMapF32},     {sdk::Dtype::bf16, simt::kMapBf16}, {sdk::Dtype::f16, simt::kMapF16},
      {sdk::Dtype::f64, simt::kMapF64},     {sdk::Dtype::i32, simt::kMapI32},   {sdk::Dtype::i64, simt::kMapI64},
      {sdk::Dtype::u8, simt::kMapU8},       {sdk::Dtype::i8, simt::kMapI8},     {sdk::Dtype::i16, simt::kMapI16},
      {sdk::Dtype::u16, simt::kMapU16},     {sdk::Dtype::u32, simt::kMapU32},   {sdk::Dtype::u64, simt::kMapU64},
      {sdk::Dtype::boolean, simt::kMapBool}};
  for (const auto& [dtype, number] : kBoth) {
    if (static_cast<int32_t>(dtype) != number) return false;
  }
  return true;
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

// Whether a formula of fp64 has nothing but fp32 and masks to read and write, fp32 first.
bool has_long_lines(const MapCall& call) {
  return std::all_of(call.tensors, call.tensors + call.count, [&](const MapView& view) {
    const auto t = &view - call.tensors;
    const bool is_mask = t >= call.outputs && (view.dtype == sdk::Dtype::u8 || view.dtype == sdk::Dtype::boolean);
    return !view.is_present() || view.dtype == sdk::Dtype::f32 || is_mask;
  });
}

// Whether every tensor is a line of whole packs of `size` elements. is_long: or a number.
bool is_line(const simt::MapArgs& args, int count, int outputs, int64_t size, bool is_long) {
  if (args.dims != 1 || args.elements % size != 0) return false;
  for (int t = 0; t < count; ++t) {
    const simt::MapTensor& tensor = args.tensor[t];
    const bool may_be_absent = is_long || (t > 0 && t < outputs);
    if (tensor.data == nullptr ? !may_be_absent : tensor.stride[0] != 1 && args.elements > 1) return false;
  }
  return true;
}
// Or rows of them, all of the same length. What fits packs has its rows where packs may be.
bool is_rows(const simt::MapArgs& args, int count, int outputs, int64_t size) {
  constexpr int64_t kMost = INT32_MAX;
  if (args.dims != 2 || args.elements / size > kMost) return false;
  for (int t = 0; t < count; ++t) {
    const simt::MapTensor& tensor = args.tensor[t];
    const bool may_be_absent = t > 0 && t < outputs;
    if (tensor.data == nullptr ? !may_be_absent : tensor.stride[1] != 1 || std::abs(tensor.stride[0] / size) > kMost) {
      return false;
    }
  }
  return true;
}
int32_t line_of(const MapCall& call, const simt::MapArgs& args, int64_t size) {
  const bool is_long = args.form == simt::kMapMixed && call.kind == MapKind::f64 && has_long_lines(call);
  if (!is_long && (args.form != simt::kMapOneDtype || call.line_kernel() == nullptr)) return simt::kMapNoLine;
  if (is_line(args, call.count, call.outputs, size, is_long)) {
    const bool is_much = call.kind == MapKind::heavy && size == 8 && args.elements >= size * simt::kMapManyPacks;
    return is_much ? simt::kMapPairs : simt::kMapLine;
  }
  return !is_long && is_rows(args, call.count, call.outputs, size) ? simt::kMapRows : simt::kMapNoLine;
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

namespace {

MapView from_element(MapView view, int64_t element) {
  if (view.data != nullptr) view.data = static_cast<char*>(view.data) + element * sdk::bytes_of(view.dtype);
  return view;
}

}  // namespace

MapView first_half(MapView view) {
  if (view.is_present()) view.shape[view.ndim - 1] /= 2;
  return view;
}
MapView second_half(MapView view) {
  if (!view.is_present()) return view;
  view = first_half(view);
  return from_element(view, view.shape[view.ndim - 1] * view.strides[view.ndim - 1]);
}
MapView columns_of(MapView view, int64_t begin, int64_t count) {
  if (!view.is_present()) return view;
  view.shape[view.ndim - 1] = count;
  return from_element(view, begin * view.strides[view.ndim - 1]);
}
MapView even_elements(MapView view) {
  if (!view.is_present()) return view;
  view = first_half(view);
  view.strides[view.ndim - 1] *= 2;
  return view;
}
MapView odd_elements(MapView view) {
  if (!view.is_present()) return view;
  return even_elements(from_element(view, view.strides[view.ndim - 1]));
}

MapView repeated_before(MapView view, int32_t from_last) {
  const int32_t at = view.ndim - from_last;
  std::copy_backward(view.shape + at, view.shape + view.ndim, view.shape + view.ndim + 1);
  std::copy_backward(view.strides + at, view.strides + view.ndim, view.strides + view.ndim + 1);
  view.shape[at] = 1;
  view.strides[at] = 0;
  ++view.ndim;
  return view;
}

MapView number_everywhere(double value) {
  MapView view;
  view.value = value;
  return view;
}
MapView or_number(const rlk_tensor* tensor, double value) {
  return tensor != nullptr ? MapView(tensor) : number_everywhere(value);
}

MapCall::MapCall(std::initializer_list<MapView> outs, std::initializer_list<MapView> inputs,
                 std::initializer_list<const char*> argument_names, std::initializer_list<double> parameters,
                 MapKind map_kind)
    : count(static_cast<int>(outs.size() + inputs.size())), outputs(static_cast<int>(outs.size())), kind(map_kind) {
  std::copy(inputs.begin(), inputs.end(), std::copy(outs.begin(), outs.end(), tensors));
  std::copy(argument_names.begin(), argument_names.end(), names);
  std::copy(parameters.begin(), parameters.end(), numbers);
  asks_f64 = std::any_of(parameters.begin(), parameters.end(), [](double number) {
    const double size = std::fabs(number);
    return size != 0 && !(size > 0x1p-100 && size < 0x1p100);
  });
}

bool MapCall::computes_f64() const noexcept {
  return asks_f64 ||
         std::any_of(tensors, tensors + count, [](const MapView& view) { return view.dtype == sdk::Dtype::f64; });
}

const char* MapCall::kernel() const noexcept {
  if (kind == MapKind::bits) {
    const int64_t bytes = sdk::bytes_of(tensors[0].dtype);
    return bytes == 1 ? "b1" : bytes == 2 ? "b2" : bytes == 4 ? "b4" : "b8";
  }
  if (kind == MapKind::cast) {
    const auto is = [&](bool (*is_so)(const MapView&)) { return std::all_of(tensors, tensors + count, is_so); };
    if (is([](const MapView& view) { return view.is_present() && !sdk::is_floating(view.dtype); })) return "i64";
    // A number that stands for a tensor is fp64.
    if (!is([](const MapView& view) { return sdk::is_floating(view.dtype); })) return "f64";
  }
  return computes_f64() ? "f64" : "f32";
}

const char* MapCall::line_kernel() const noexcept {
  if (kind == MapKind::cast) return nullptr;
  if (kind == MapKind::f64) return has_long_lines(*this) ? "f64_line" : nullptr;
  const sdk::Dtype first = tensors[0].dtype;
  const int64_t bytes = sdk::bytes_of(first);
  // What is absent is no line, but for an output.
  const bool is_one = std::all_of(tensors, tensors + count, [&](const MapView& view) {
    return !view.is_present() || (kind == MapKind::bits ? sdk::bytes_of(view.dtype) == bytes : view.dtype == first);
  });
  if (!is_one) return nullptr;
  if (kind == MapKind::bits)
    return bytes == 1 ? "b1_line" : bytes == 2 ? "b2_line" : bytes == 4 ? "b4_line" : "b8_line";
  if (computes_f64() != (first == sdk::Dtype::f64)) return nullptr;
  return first == sdk::Dtype::f64 ? "f64_line" : first == sdk::Dtype::f32 ? "f32_line" : "half_line";
}

namespace {

// A mask among the inputs is bytes.
bool takes(const MapCall& call, int t) {
  const sdk::Dtype dtype = call.tensors[t].dtype;
  if (!call.tensors[t].is_present() || dtype <= sdk::Dtype::f64) return true;
  if (!call.is_of_numbers()) return dtype <= sdk::Dtype::boolean;
  return t >= call.outputs && (dtype == sdk::Dtype::u8 || dtype == sdk::Dtype::boolean);
}

}  // namespace

sdk::Support support_of_maps(const Device& device, std::initializer_list<MapCall> calls) {
  if (auto refused = device.refusal()) return *refused;
  sdk::Support answer = sdk::Support::yes("packs", kNumerics, RLK_SUPPORT_PREFERRED);
  for (const MapCall& call : calls) {
    if (!call.is_wanted()) continue;
    double bytes = 0;
    for (int t = 0; t < call.count; ++t) {
      const MapView& view = call.tensors[t];
      if (!takes(call, t)) {
        return sdk::Support::no("DTYPE", std::string(call.names[t]) + " is " + sdk::name_of(view.dtype) +
                                             (call.is_of_numbers() ? "; supported: f32, bf16, f16, f64"
                                                                   : "; supported: whole bytes, but no f8"));
      }
      if (view.is_present()) bytes += static_cast<double>(view.elements() * sdk::bytes_of(view.dtype));
    }
    answer.cost_us += kLaunchUs + device.bytes_us(bytes);
  }
  return answer;
}

simt::MapArgs arguments_of_map(const MapCall& call) {
  simt::MapArgs args{};
  if (call.tensors[0].elements() == 0) return args;
  const sdk::Dtype first = call.tensors[0].dtype;
  bool one_dtype = true;
  for (int t = 0; t < call.count; ++t) {
    const MapView& view = call.tensors[t];
    args.tensor[t].data = view.data;
    args.tensor[t].value = view.value;
    args.tensor[t].dtype = static_cast<int32_t>(view.dtype);
    if (call.kind == MapKind::bits) {
      // Bits of one size are one dtype; a mask beside wider ones is bytes.
      const bool is_same = sdk::bytes_of(view.dtype) == sdk::bytes_of(first);
      args.tensor[t].dtype = is_same ? -1 : simt::kMapU8;
      one_dtype = one_dtype && is_same;
    } else {
      one_dtype = one_dtype && view.dtype == first;
    }
  }
  std::copy(std::begin(call.numbers), std::end(call.numbers), args.number);
  merge_dimensions(call, args);
  // With numbers that ask for fp64, tensors of another dtype are converted; so are integers.
  if (call.kind != MapKind::bits) {
    one_dtype = one_dtype && first <= sdk::Dtype::f64 && call.computes_f64() == (first == sdk::Dtype::f64) &&
                (call.kind != MapKind::cast || first != sdk::Dtype::f64);
  }
  const bool is_long = call.kind == MapKind::f64;
  const int64_t mixed_size = is_long ? simt::kMapLongElements : simt::kMapElements;
  int64_t size = one_dtype ? 16 / sdk::bytes_of(first) : mixed_size;
  args.form = one_dtype ? simt::kMapOneDtype : simt::kMapMixed;
  if (!fits_packs(args, call.count, size)) {
    size = 1;
    args.form = simt::kMapAny;
  }
  args.line = line_of(call, args, size);
  args.dtype = args.tensor[0].dtype;
  args.halves = one_dtype && call.kind != MapKind::bits && sdk::bytes_of(first) == 2 ? 1 : 0;
  const auto has_no_f64 = [](const MapView* from, const MapView* to) {
    return std::none_of(from, to, [](const MapView& view) { return view.dtype == sdk::Dtype::f64; });
  };
  const MapView* const inputs = call.tensors + call.outputs;
  args.brief = !has_no_f64(call.tensors, inputs) ? 0 : has_no_f64(inputs, call.tensors + call.count) ? 2 : 1;
  for (int t = 0; t < call.count; ++t) {
    args.begin[t] = args.tensor[t].data;
    args.value[t] = args.tensor[t].value;
    if (args.line == simt::kMapRows) args.stride[t] = static_cast<int32_t>(args.tensor[t].stride[0] / size);
    if (args.tensor[t].data != nullptr && args.tensor[t].dtype != simt::kMapF32) args.masks |= 1u << t;
  }
  args.pieces = ceil_divide(args.elements, size);
  // A last pack that is not full there is in one dimension alone.
  args.shape[args.dims - 1] = ceil_divide(args.shape[args.dims - 1], size);
  for (int32_t d = 0; d < args.dims; ++d) {
    args.multipliers[d] = simt::map_multiplier(args.shape[d]);
    args.shifts[d] = simt::map_shift(args.shape[d]);
  }
  if (args.line == simt::kMapRows) {
    args.row = static_cast<uint32_t>(args.shape[1]);
    args.multiplier = args.multipliers[1];
    args.shift = args.shifts[1];
  }
  return args;
}

MapHandles map_handles(Device& device, const MapKernels& kernels, const MapCall& call) {
  if (!call.is_wanted()) return {};
  const auto kernel = [&](const char* suffix) {
    return suffix == nullptr ? nullptr : device.kernel(kernels.image, std::string(kernels.prefix) + suffix);
  };
  return {kernel(call.kernel()), kernel(call.line_kernel()), device.start()};
}

void launch_map(const MapHandles& kernels, sdk::Stream& stream, const MapCall& call) {
  if (!call.is_wanted()) return;
  const simt::MapArgs args = arguments_of_map(call);
  if (args.pieces == 0) return;
  const StreamHandle handle = own(stream).handle();
  if (args.line != simt::kMapNoLine) {
    const int64_t pieces = int64_t{simt::kMapThreads} * (args.line == simt::kMapPairs ? 2 : 1);
    // A kernel of lines takes the beginning of the arguments.
    launch(kernels.line, ceil_divide(args.pieces, pieces), simt::kMapThreads, 0, handle, args, kernels.start);
    return;
  }
  const int64_t pack = args.form == simt::kMapMixed      ? simt::kMapElements
                       : args.form == simt::kMapOneDtype ? 16 / sdk::bytes_of(call.tensors[0].dtype)
                                                         : 1;
  const int64_t pieces = simt::kMapThreads * std::max<int64_t>(simt::kMapElements / pack, 1);
  launch_walking(kernels.any, ceil_divide(args.pieces, pieces), simt::kMapThreads, 0, handle, args, kernels.start);
}

}  // namespace rlk::simt::host

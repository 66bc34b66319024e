// add: merges dimensions, then takes the widest kernel that the strides allow; see ../add.cuh.
#include "operators.hpp"

#include <algorithm>

namespace rlk::simt::host {
namespace {

// Stride of an operand along dimension d of the output: 0 where it is repeated.
int64_t broadcast_stride(const rlk_tensor& tensor, const rlk_tensor& out, int32_t d) {
  const int32_t own = d - (out.ndim - tensor.ndim);
  return own < 0 || tensor.shape[own] == 1 ? 0 : tensor.strides[own];
}

// Drops dimensions of size 1, and merges neighbouring ones that all three tensors step through without a gap.
void merge_dimensions(const rlk_tensor& a, const rlk_tensor& b, const rlk_tensor& out, simt::AddArgs& args) {
  args.dims = 0;
  args.elements = 1;
  for (int32_t d = 0; d < out.ndim; ++d) {
    const int64_t size = out.shape[d];
    args.elements *= size;
    if (size == 1) continue;
    const int64_t sa = broadcast_stride(a, out, d), sb = broadcast_stride(b, out, d), so = out.strides[d];
    const int32_t last = args.dims - 1;
    if (last >= 0 && args.a_stride[last] == sa * size && args.b_stride[last] == sb * size &&
        args.out_stride[last] == so * size) {
      args.shape[last] *= size;
      args.a_stride[last] = sa;
      args.b_stride[last] = sb;
      args.out_stride[last] = so;
      continue;
    }
    args.shape[args.dims] = size;
    args.a_stride[args.dims] = sa;
    args.b_stride[args.dims] = sb;
    args.out_stride[args.dims] = so;
    ++args.dims;
  }
  if (args.dims == 0) {
    args.dims = 1;
    args.shape[0] = 1;
    args.a_stride[0] = args.b_stride[0] = args.out_stride[0] = 1;
  }
}

class AddPlan final : public sdk::Plan {
public:
  AddPlan(Device& device, const sdk::Call<sdk::ops::Add>& call)
      : alpha_(call.params().alpha), dtype_(sdk::dtype_of(*call.output(0))), place_(device.place()) {
    const std::string prefix = std::string("add_") + sdk::name_of(dtype_);
    packs_ = device.kernel("add", prefix + "_packs");
    packs_a_scalar_ = device.kernel("add", prefix + "_packs_a_scalar");
    packs_b_scalar_ = device.kernel("add", prefix + "_packs_b_scalar");
    strided_packs_ = device.kernel("add", prefix + "_strided_packs");
    strided_ = device.kernel("add", prefix + "_strided");
    flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
    numerics = RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;
    variant = "packs";
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const rlk_tensor& a = *run.input(RLK_ADD_IN_A);
    const rlk_tensor& b = *run.input(RLK_ADD_IN_B);
    const rlk_tensor& out = *run.output(RLK_ADD_OUT_OUT);
    simt::AddArgs args{};
    merge_dimensions(a, b, out, args);
    if (args.elements == 0) return;
    args.a = sdk::data_of(&a);
    args.b = sdk::data_of(&b);
    args.out = sdk::data_of(&out);
    args.alpha = alpha_;
    const int64_t pack = 16 / sdk::bytes_of(dtype_);
    const int32_t inner = args.dims - 1;
    const int64_t sa = args.a_stride[inner], sb = args.b_stride[inner];
    const bool wide = is_aligned(args.out, 0) && args.out_stride[inner] == 1 &&
                      (sa == 0 || (sa == 1 && is_aligned(args.a, 0))) &&
                      (sb == 0 || (sb == 1 && is_aligned(args.b, 0))) && sa + sb > 0;
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    if (wide && args.dims == 1) {
      const FunctionHandle kernel = sa == 0 ? packs_a_scalar_ : sb == 0 ? packs_b_scalar_ : packs_;
      launch_walking(kernel, blocks_for(ceil_divide(args.elements, pack * simt::kAddLoads)), simt::kAddThreads, 0,
                     handle, args);
      return;
    }
    bool packed = wide && args.shape[inner] % pack == 0;
    for (int32_t d = 0; d < inner; ++d) {
      packed = packed && args.out_stride[d] % pack == 0 && (sa == 0 || args.a_stride[d] % pack == 0) &&
               (sb == 0 || args.b_stride[d] % pack == 0);
    }
    if (packed) {
      args.elements /= pack;
      args.shape[inner] /= pack;
    }
    launch_walking(packed ? strided_packs_ : strided_, blocks_for(args.elements), simt::kAddThreads, 0, handle, args);
  }

private:
  // The size of a grid is limited; each block loops over several pieces.
  static int64_t blocks_for(int64_t threads) {
    return std::min(ceil_divide(threads, simt::kAddThreads), int64_t{1} << 30);
  }

  double alpha_;
  sdk::Dtype dtype_;
  Place place_;
  FunctionHandle packs_ = nullptr, packs_a_scalar_ = nullptr, packs_b_scalar_ = nullptr, strided_packs_ = nullptr,
                 strided_ = nullptr;
};

}  // namespace

sdk::Support Add::query(Device& device, const sdk::Call<Op>& call) {
  if (auto refused = device.refusal()) return *refused;
  const rlk_tensor& out = *call.output(RLK_ADD_OUT_OUT);
  const sdk::Dtype dtype = sdk::dtype_of(out);
  if (auto refused = refuse_dtype(&out, "out")) return *refused;
  if (dtype != sdk::Dtype::f64) {
    if (auto refused = sdk::refuse_beyond_fp32(call.params().alpha, "ALPHA", "alpha")) return *refused;
  }
  sdk::Support answer =
      sdk::Support::yes("packs", RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT, RLK_SUPPORT_PREFERRED);
  const int64_t elements = sdk::element_count(out) + sdk::element_count(*call.input(RLK_ADD_IN_A)) +
                           sdk::element_count(*call.input(RLK_ADD_IN_B));
  answer.cost_us = kLaunchUs + device.bytes_us(static_cast<double>(elements * sdk::bytes_of(dtype)));
  return answer;
}

std::unique_ptr<sdk::Plan> Add::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AddPlan>(device, call);
}

}  // namespace rlk::simt::host

// The gradients of attention, with and without a prefix: the terms of queries, then grad_q by tiles of rows, grad_k and
// grad_v by tiles of keys (../attention_gradients.cuh); of a prefix with many samples, by parts of their rows. What
// multiplies the tiles may be a vendor's own.
#pragma once

#include "attention_samples.hpp"

#include <type_traits>
#include <utility>

namespace rlk::simt::host {

template <class Op>
constexpr bool kHasPrefix = std::is_same_v<Op, sdk::ops::PrefixSharedAttentionBackward>;

template <class Op>
bool is_packed(const sdk::Arguments<Op>& call) {
  if constexpr (kHasPrefix<Op>) {
    return false;
  } else {
    return call.params.layout == sdk::ops::attention::Layout::packed;
  }
}

// Without workspace.
template <class Op>
simt::AttentionGradientArgs gradients_of(const sdk::Arguments<Op>& call) {
  simt::AttentionGradientArgs args{};
  SampleAxes axes = kOfSample;
  if constexpr (kHasPrefix<Op>) {
    set_samples(args, call);
    args.grad_prefix_k = samples_of(call.grad_prefix_k, kOfPrefix);
    args.grad_prefix_v = samples_of(call.grad_prefix_v, kOfPrefix);
  } else {
    const bool packed = is_packed<Op>(call);
    axes = packed ? kOfPacked : kOfSequence;
    set_attention(args, call, axes);
    if (packed) {
      args.packed = 1;
      args.queries = call.Tq;
      args.keys = call.Tk;
      args.cu_q = sdk::data_of(call.cu_seqlens_q);
      args.cu_k = sdk::data_of(call.cu_seqlens_k);
      args.cu_are_i64 = sdk::dtype_of(*call.cu_seqlens_q) == sdk::Dtype::i64 ? 1 : 0;
    }
  }
  args.grad_out = samples_of(call.grad_out, axes);
  args.grad_lse = samples_of(call.grad_lse, axes);
  args.grad_q = samples_of(call.grad_q, axes);
  args.grad_k = samples_of(call.grad_k, axes);
  args.grad_v = samples_of(call.grad_v, axes);
  return args;
}

// Queries, times their heads.
inline int64_t term_rows(const simt::AttentionGradientArgs& args) {
  return (args.packed != 0 ? 1 : args.batches * args.samples) * args.queries * args.q_heads;
}

// How many parts the rows of a prefix' samples are cut into, for accumulators of so many bytes: the sizes of one batch
// entry alone decide. A block that took all rows of many samples would work for as long as they are many.
struct PrefixParts {
  int64_t count = 1, rows = 0;

  PrefixParts(const simt::AttentionGradientArgs& args, int64_t bytes) {
    constexpr int64_t kMostBlocks = 256;  // of a batch entry
    const int64_t tile = simt::gradient_tile(bytes);
    const int64_t tiles = ceil_divide(args.samples * args.queries * args.group, tile);
    const int64_t prefix_tiles = std::max<int64_t>(ceil_divide(args.prefix_keys, tile), 1);
    // A part has no fewer rows than the prefix has keys: its sums are not larger than the tensors of its rows.
    const int64_t parts = std::min(tiles / prefix_tiles, kMostBlocks / (prefix_tiles * std::max(args.kv_heads, 1)));
    if (args.prefix_keys == 0 || parts < 2) return;
    const int64_t of_part = ceil_divide(tiles, parts);
    count = ceil_divide(tiles, of_part);
    rows = of_part * tile;
  }
};

struct GradientsLayout {
  uint64_t terms, plan, parts;
  uint64_t total() const { return align_256(terms) + 2 * align_256(plan) + align_256(parts); }
};
inline GradientsLayout layout_of(const simt::AttentionGradientArgs& args, int64_t bytes) {
  const int64_t parts = PrefixParts(args, bytes).count, lists = 2 * parts * args.batches * args.kv_heads;
  return {static_cast<uint64_t>(2 * bytes * term_rows(args)),
          args.packed != 0 ? static_cast<uint64_t>(args.batches + 2) * sizeof(int64_t) : 0,
          parts > 1 ? static_cast<uint64_t>(lists * args.prefix_keys * args.head_size * bytes) : 0};
}

// The kernels of tiles: <image>_rows_<suffix> and <image>_keys_<suffix>.
struct GradientKernels {
  const char* name;  // of the variant
  const char* image;
  std::string suffix;
  int shared_bytes;  // dynamic
  int64_t columns;   // of the head size, that a block sums
  uint32_t numerics;
};

template <class Op>
class GradientsPlan final : public OperatorPlan<Op> {
public:
  GradientsPlan(Device& device, const sdk::Call<Op>& call, const GradientKernels& kernels)
      : OperatorPlan<Op>(device, call),
        waves_(simt::kGradientThreads / device.simt_width()),
        columns_(kernels.columns),
        shared_bytes_(kernels.shared_bytes) {
    const sdk::Dtype dtype = sdk::dtype_of(*sdk::arguments_of(call).q);
    bytes_ = accumulator_bytes(dtype);
    terms_ = device.kernel("attention_gradients", std::string("attention_gradients_terms_") + sdk::name_of(dtype));
    const std::string image = kernels.image;
    rows_ = device.kernel(kernels.image, image + "_rows_" + kernels.suffix, shared_bytes_);
    keys_ = device.kernel(kernels.image, image + "_keys_" + kernels.suffix, shared_bytes_);
    if (kHasPrefix<Op>) {
      prefix_ = device.kernel("attention_gradients", std::string("attention_gradients_prefix_") + sdk::name_of(dtype));
    } else {
      plan_ = device.kernel("attention_simt", "attention_plan_packed");
    }
    this->dynamic_symbols = sample_symbols<Op>();
    this->workspace_bound = UINT64_MAX;
  }

  uint64_t prepare(const sdk::Run& run) override {
    return layout_of(gradients_of<Op>(this->arguments_of(run)), bytes_).total();
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    simt::AttentionGradientArgs args = gradients_of<Op>(this->arguments_of(run));
    const GradientsLayout layout = layout_of(args, bytes_);
    Workspace workspace(run.workspace());
    args.terms = workspace.take<void>(layout.terms);
    const PlaceScope scope(this->place_);
    const StreamHandle handle = own(stream).handle();
    if (args.packed != 0) {
      int64_t* const row_plan = workspace.take<int64_t>(layout.plan);
      int64_t* const key_plan = workspace.take<int64_t>(layout.plan);
      cut(args, row_plan, args.group, error_sink(run), handle);
      std::swap(args.cu_q, args.cu_k);
      std::swap(args.queries, args.keys);
      cut(args, key_plan, 1, {}, handle);  // the first one reports
      std::swap(args.cu_q, args.cu_k);
      std::swap(args.queries, args.keys);
      args.row_plan = row_plan;
      args.key_plan = key_plan;
    }
    launch_walking(terms_, ceil_divide(term_rows(args), waves_), simt::kGradientThreads, 0, handle, args);
    launch_tiles(rows_, args, args.queries * args.group, args.batches * args.samples, handle);
    launch_tiles(keys_, args, args.keys, args.batches * args.samples, handle);
    const PrefixParts parts(args, bytes_);
    args.of_prefix = 1;
    args.parts = parts.count;
    args.part_rows = parts.rows;
    args.part_sums = workspace.take<void>(layout.parts);
    launch_tiles(keys_, args, args.prefix_keys, args.batches * parts.count, handle);
    if (parts.count == 1) return;
    const int64_t numbers = 2 * args.batches * args.kv_heads * args.prefix_keys * args.head_size;
    launch_walking(prefix_, ceil_divide(numbers, simt::kGradientThreads), simt::kGradientThreads, 0, handle, args);
  }

private:
  // The tiles of each packed sequence, of rows of `group` heads.
  void cut(const simt::AttentionGradientArgs& gradients, int64_t* plan, int32_t group,
           const simt::DataErrorSink& errors, StreamHandle stream) const {
    simt::AttentionArgs args{};
    args.cu_q = gradients.cu_q;
    args.cu_k = gradients.cu_k;
    args.cu_are_i64 = gradients.cu_are_i64;
    args.plan = plan;
    args.sequences = gradients.batches;
    args.queries = gradients.queries;
    args.keys = gradients.keys;
    args.group = group;
    args.block_rows = simt::gradient_tile(bytes_);
    args.errors = errors;
    launch(plan_, 1, simt::kPlanThreads, 0, stream, args);
  }
  // So many rows or keys of each dense sequence, or of all packed ones; of a prefix' parts as if each were a sequence.
  void launch_tiles(FunctionHandle kernel, const simt::AttentionGradientArgs& args, int64_t count, int64_t sequences,
                    StreamHandle stream) const {
    const int64_t tiles = ceil_divide(count, simt::gradient_tile(bytes_));
    const int64_t of_heads = args.packed != 0 ? tiles + args.batches : tiles * sequences;
    const int64_t columns = ceil_divide(args.head_size, columns_);
    if (count == 0) return;
    launch(kernel, of_heads * args.kv_heads * columns, simt::kGradientThreads, shared_bytes_, stream, args);
  }

  int64_t waves_, bytes_ = 0, columns_;
  int shared_bytes_;
  FunctionHandle terms_ = nullptr, rows_ = nullptr, keys_ = nullptr, plan_ = nullptr, prefix_ = nullptr;
};

template <class Op>
sdk::Refusal refuse_gradients(const Device& device, const sdk::Arguments<Op>& call) {
  if (auto refused = device.refusal()) return refused;
  const sdk::Dtype dtype = sdk::dtype_of(*call.q);
  if (auto refused = refuse_dtype(call.q, "q")) return refused;
  if (auto refused = refuse_scores(call.params.scale, call.params.softcap, dtype)) return refused;
  if (auto refused = refuse_strided_heads({{call.q, "q"},
                                           {call.k, "k"},
                                           {call.v, "v"},
                                           {call.out, "out"},
                                           {call.grad_out, "grad_out"},
                                           {call.grad_q, "grad_q"},
                                           {call.grad_k, "grad_k"},
                                           {call.grad_v, "grad_v"}})) {
    return refused;
  }
  if constexpr (kHasPrefix<Op>) {
    return refuse_strided_heads({{call.prefix_k, "prefix_k"},
                                 {call.prefix_v, "prefix_v"},
                                 {call.grad_prefix_k, "grad_prefix_k"},
                                 {call.grad_prefix_v, "grad_prefix_v"}});
  } else {
    if (auto refused = sdk::refuse_gaps(call.cu_seqlens_q, "cu_seqlens_q")) return refused;
    return sdk::refuse_gaps(call.cu_seqlens_k, "cu_seqlens_k");
  }
}

// Every query with every key of its sequence, once; packed sequences are taken for equally long.
template <class Op>
double gradient_pairs(const sdk::Arguments<Op>& call) {
  if constexpr (kHasPrefix<Op>) {
    return sample_pairs(call);
  } else {
    const bool packed = is_packed<Op>(call);
    const double queries = static_cast<double>(packed ? call.Tq : call.Sq * call.B);
    const double keys = packed ? static_cast<double>(call.Tk) / static_cast<double>(std::max<int64_t>(call.B, 1))
                               : static_cast<double>(call.Sk);
    return queries * keys * static_cast<double>(call.Hq);
  }
}

// What a call that is not declined asks for. slower: than the matrix units' rate.
template <class Op>
sdk::Support gradients_support(const Device& device, const sdk::Arguments<Op>& call, const GradientKernels& kernels,
                               int32_t level, double slower) {
  sdk::Support answer = sdk::Support::yes(kernels.name, kernels.numerics, level);
  answer.workspace_bound = layout_of(gradients_of<Op>(call), accumulator_bytes(sdk::dtype_of(*call.q))).total();
  // Seven products of the head size: scores and their gradients twice.
  const bool halved = call.params.causal != decltype(call.params.causal)::off;
  const double operations = 14.0 * gradient_pairs<Op>(call) * static_cast<double>(call.D) * (halved ? 0.5 : 1.0);
  answer.cost_us = 3 * kLaunchUs + device.matrix_us(slower * operations);
  return answer;
}

}  // namespace rlk::simt::host

// logp_backward: a look at every token, one read and one write of the logits, and the sum of grad_bias; see
// ../logp_backward.cuh.
#include "logp_common.hpp"
#include "operators.hpp"

namespace rlk::simt::host {
namespace {

using Op = sdk::ops::LogpBackward;
using Named = sdk::Arguments<Op>;

constexpr int64_t kMaxBiasChunks = 16;

// How the logits rows are divided among blocks. More chunks fill the device, fewer keep the partial sums of grad_bias
// small.
struct Chunks {
  int64_t tiles, rows, count;
};
Chunks chunks_of(const Named& call, int64_t multiprocessors) {
  Chunks chunks{};
  chunks.tiles = ceil_divide(call.V, simt::backward_tile(sdk::bytes_of(sdk::dtype_of(*call.logits))));
  const int64_t fill = call.R * chunks.tiles / (8 * multiprocessors);
  chunks.rows =
      std::clamp<int64_t>(fill, simt::kBackwardRows, simt::kBackwardBatch) / simt::kBackwardRows * simt::kBackwardRows;
  if (call.grad_bias != nullptr) chunks.rows = std::max(chunks.rows, ceil_divide(call.R, kMaxBiasChunks));
  chunks.count = ceil_divide(call.R, chunks.rows);
  return chunks;
}

struct Layout {
  uint64_t row, owner, bias;
  uint64_t total() const { return align_256(row) + align_256(owner) + align_256(bias); }
};
Layout layout_of(const Named& call, const Chunks& chunks) {
  const int64_t accumulator = accumulator_bytes(sdk::dtype_of(*call.logits));
  return {static_cast<uint64_t>(call.N) * sizeof(simt::LogpBackwardRow),
          call.row_indices != nullptr ? static_cast<uint64_t>(simt::backward_owners(call.R)) * sizeof(int64_t) : 0,
          call.grad_bias != nullptr ? static_cast<uint64_t>(chunks.count * call.V * accumulator) : 0};
}

// Of fp32 logits gradients may be bf16: where they are the operand of a product, and no argument of a caller's.
bool rounds(const Named& call) {
  return sdk::dtype_of(*call.grad_logits) != sdk::dtype_of(*call.logits);
}

class LogpBackwardPlan final : public OperatorPlan<Op> {
public:
  LogpBackwardPlan(Device& device, const sdk::Call<Op>& described)
      : OperatorPlan(device, described), multiprocessors_(device.multiprocessors()) {
    const Named call = sdk::arguments_of(described);
    dtype_ = sdk::dtype_of(*call.logits);
    const bool transform = call.bias != nullptr || params_.softcap > 0 || call.grad_bias != nullptr;
    const bool entropy = call.grad_entropy != nullptr;
    const std::string prefix = std::string("logp_backward_") + sdk::name_of(dtype_);
    rows_ = device.kernel("logp_backward", prefix + "_rows");
    gradient_ = device.kernel("logp_backward", prefix +
                                                   (call.keep_mask != nullptr ? "_masked"
                                                    : transform               ? "_transform_entropy"
                                                    : entropy                 ? "_plain_entropy"
                                                                              : "_plain") +
                                                   (rounds(call) ? "_to_bf16" : ""));
    bias_ = device.kernel("logp_backward", prefix + "_bias");
    dynamic_symbols = sdk::bits_of(&Named::N, &Named::R);
    workspace_bound = UINT64_MAX;
  }

  uint64_t prepare(const sdk::Run& run) override {
    const Named call = arguments_of(run);
    return layout_of(call, chunks_of(call, multiprocessors_)).total();
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const Named call = arguments_of(run);
    const bool indexed = call.row_indices != nullptr, wants_bias = call.grad_bias != nullptr;
    simt::LogpBackwardArgs args{};
    set_logits(args, call, run);
    args.lse = sdk::data_of(call.lse);
    args.grad_logp = sdk::data_of(call.grad_logp);
    args.grad_lse = sdk::data_of(call.grad_lse);
    args.grad_entropy = sdk::data_of(call.grad_entropy);
    args.entropy = sdk::data_of(call.entropy);
    args.grad_logits = sdk::data_of(call.grad_logits);
    args.grad_row_stride = call.grad_logits->strides[0];
    args.grad_bias = sdk::data_of(call.grad_bias);
    args.grad_logp_is_accumulator = is_accumulator(*call.grad_logp, dtype_);
    args.aligned = is_aligned(args.logits, args.row_stride * sdk::bytes_of(dtype_)) &&
                           is_aligned(args.grad_logits, args.grad_row_stride * sdk::bytes_of(dtype_))
                       ? 1
                       : 0;
    const Chunks chunks = chunks_of(call, multiprocessors_);
    args.rows_per_chunk = chunks.rows;
    args.chunks = chunks.count;
    const Layout layout = layout_of(call, chunks);
    Workspace workspace(run.workspace());
    args.row = workspace.take<simt::LogpBackwardRow>(layout.row);
    args.owner = indexed ? workspace.take<int64_t>(layout.owner) : nullptr;
    args.bias_part = wants_bias ? workspace.take<void>(layout.bias) : nullptr;

    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    if (indexed) {
      fill(args.owner, 0xff, layout.owner, handle);  // no row has an owner yet
    }
    launch(rows_, ceil_divide(args.tokens.rows, simt::kBackwardRowsThreads), simt::kBackwardRowsThreads, 0, handle,
           args);
    launch(gradient_, chunks.tiles * chunks.count, simt::kBackwardThreads, 0, handle, args);
    if (wants_bias) {
      launch_walking(bias_, std::min<int64_t>(ceil_divide(call.V, simt::kBackwardBiasThreads), 1 << 20),
                     simt::kBackwardBiasThreads, 0, handle, args);
    }
  }

private:
  const int64_t multiprocessors_;
  sdk::Dtype dtype_;
  FunctionHandle rows_ = nullptr, gradient_ = nullptr, bias_ = nullptr;
};

}  // namespace

sdk::Support LogpBackward::query(Device& device, const sdk::Call<Op>& described) {
  const Named call = sdk::arguments_of(described);
  if (auto refused = refuse_logp(device, call)) return *refused;
  if (auto refused = sdk::refuse_gaps(call.lse, "lse")) return *refused;
  if (auto refused = sdk::refuse_gaps(call.grad_logp, "grad_logp")) return *refused;
  if (auto refused = sdk::refuse_gaps(call.grad_lse, "grad_lse")) return *refused;
  if (auto refused = sdk::refuse_gaps(call.grad_entropy, "grad_entropy")) return *refused;
  if (auto refused = sdk::refuse_gaps(call.entropy, "entropy")) return *refused;
  if (auto refused = sdk::refuse_strided_rows(call.grad_logits, "grad_logits", "vocabulary")) return *refused;
  if (auto refused = sdk::refuse_gaps(call.grad_bias, "grad_bias")) return *refused;
  // grad_logits stays a function of its own row; a sum over the rows of a batch cannot.
  const uint32_t of_rows = call.grad_bias != nullptr ? 0u : RLK_NUMERICS_BATCH_INVARIANT;
  sdk::Support answer = sdk::Support::yes(kName, RLK_NUMERICS_DETERMINISTIC | of_rows, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = layout_of(call, chunks_of(call, device.multiprocessors())).total();
  const int64_t bytes = call.R * call.V * sdk::bytes_of(sdk::dtype_of(*call.logits));
  answer.cost_us = 2 * kLaunchUs + device.bytes_us(2.0 * static_cast<double>(bytes));
  return answer;
}

std::unique_ptr<sdk::Plan> LogpBackward::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<LogpBackwardPlan>(device, call);
}

}  // namespace rlk::simt::host

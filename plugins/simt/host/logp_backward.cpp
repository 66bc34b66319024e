// logp_backward: a look at every token, one read and one write of the logits, and the sum of grad_bias; see
// ../logp_backward.cuh.
#include "logp_common.hpp"
#include "operators.hpp"

#include <algorithm>

namespace rlk::simt::host {
namespace {

constexpr TokenInputs kInputs = {RLK_LOGP_BACKWARD_IN_LOGITS, RLK_LOGP_BACKWARD_IN_IDS, RLK_LOGP_BACKWARD_IN_BIAS,
                                 RLK_LOGP_BACKWARD_IN_MASK, RLK_LOGP_BACKWARD_IN_ROW_INDICES};
constexpr const char* kInputNames[] = {"logits",  "ids",  "lse",  "grad_logp",   "grad_lse", "grad_entropy",
                                       "entropy", "bias", "mask", "row_indices", "keep_mask"};
static_assert(sizeof(kInputNames) / sizeof(kInputNames[0]) == RLK_LOGP_BACKWARD_N_INPUTS);

constexpr int64_t kMaxBiasChunks = 16;

// How the logits rows are divided among blocks. More chunks fill the device, fewer keep the partial sums of grad_bias
// small.
struct Chunks {
  int64_t tiles, rows, count;
};
Chunks chunks_of(int64_t logits_rows, int64_t vocab, sdk::Dtype dtype, bool bias, int64_t multiprocessors) {
  Chunks chunks{};
  chunks.tiles = ceil_divide(vocab, simt::backward_tile(sdk::bytes_of(dtype)));
  const int64_t fill = logits_rows * chunks.tiles / (8 * multiprocessors);
  chunks.rows =
      std::clamp<int64_t>(fill, simt::kBackwardRows, simt::kBackwardBatch) / simt::kBackwardRows * simt::kBackwardRows;
  if (bias) chunks.rows = std::max(chunks.rows, ceil_divide(logits_rows, kMaxBiasChunks));
  chunks.count = ceil_divide(logits_rows, chunks.rows);
  return chunks;
}

struct Layout {
  uint64_t row, owner, bias;
  uint64_t total() const { return align_256(row) + align_256(owner) + align_256(bias); }
};
Layout layout_of(int64_t tokens, int64_t logits_rows, int64_t vocab, int64_t chunks, sdk::Dtype dtype, bool indexed,
                 bool bias) {
  return {static_cast<uint64_t>(tokens) * sizeof(simt::LogpBackwardRow),
          indexed ? static_cast<uint64_t>(simt::backward_owners(logits_rows)) * sizeof(int64_t) : 0,
          bias ? static_cast<uint64_t>(chunks * vocab * accumulator_bytes(dtype)) : 0};
}

class LogpBackwardPlan final : public sdk::Plan {
public:
  LogpBackwardPlan(Device& device, const sdk::Call<sdk::ops::LogpBackward>& call)
      : params_(call.params()),
        dtype_(sdk::dtype_of(*call.input(RLK_LOGP_BACKWARD_IN_LOGITS))),
        wants_bias_(call.output(RLK_LOGP_BACKWARD_OUT_GRAD_BIAS) != nullptr),
        multiprocessors_(device.multiprocessors()),
        place_(device.place()) {
    const bool transform = call.input(RLK_LOGP_BACKWARD_IN_BIAS) != nullptr || params_.softcap > 0 || wants_bias_;
    const bool entropy = call.input(RLK_LOGP_BACKWARD_IN_GRAD_ENTROPY) != nullptr;
    const std::string prefix = std::string("logp_backward_") + sdk::name_of(dtype_);
    rows_ = device.kernel("logp_backward", prefix + "_rows");
    gradient_ = device.kernel("logp_backward", prefix + (transform ? "_transform_entropy"
                                                         : entropy ? "_plain_entropy"
                                                                   : "_plain"));
    bias_ = device.kernel("logp_backward", prefix + "_bias");
    flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
    dynamic_symbols = 1u << RLK_LOGP_BACKWARD_SYM_N | 1u << RLK_LOGP_BACKWARD_SYM_R;
    workspace_bound = UINT64_MAX;
    numerics = RLK_NUMERICS_DETERMINISTIC | (wants_bias_ ? 0u : RLK_NUMERICS_BATCH_INVARIANT);
    variant = "columns";
  }

  uint64_t prepare(const sdk::Run& run) override {
    const rlk_tensor& logits = *run.input(RLK_LOGP_BACKWARD_IN_LOGITS);
    const int64_t rows = logits.shape[0], vocab = logits.shape[1];
    return layout_of(run.input(RLK_LOGP_BACKWARD_IN_IDS)->shape[0], rows, vocab,
                     chunks_of(rows, vocab, dtype_, wants_bias_, multiprocessors_).count, dtype_,
                     run.input(RLK_LOGP_BACKWARD_IN_ROW_INDICES) != nullptr, wants_bias_)
        .total();
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const rlk_tensor& logits = *run.input(RLK_LOGP_BACKWARD_IN_LOGITS);
    const rlk_tensor& grad = *run.output(RLK_LOGP_BACKWARD_OUT_GRAD_LOGITS);
    const bool indexed = run.input(RLK_LOGP_BACKWARD_IN_ROW_INDICES) != nullptr;
    simt::LogpBackwardArgs args{};
    args.logits = sdk::data_of(&logits);
    args.row_stride = logits.strides[0];
    args.tokens = token_rows(run, kInputs, params_);
    args.transform = logit_transform(run, kInputs, params_);
    args.lse = sdk::data_of(run.input(RLK_LOGP_BACKWARD_IN_LSE));
    args.grad_logp = sdk::data_of(run.input(RLK_LOGP_BACKWARD_IN_GRAD_LOGP));
    args.grad_lse = sdk::data_of(run.input(RLK_LOGP_BACKWARD_IN_GRAD_LSE));
    args.grad_entropy = sdk::data_of(run.input(RLK_LOGP_BACKWARD_IN_GRAD_ENTROPY));
    args.entropy = sdk::data_of(run.input(RLK_LOGP_BACKWARD_IN_ENTROPY));
    args.grad_logits = sdk::data_of(&grad);
    args.grad_row_stride = grad.strides[0];
    args.grad_bias = sdk::data_of(run.output(RLK_LOGP_BACKWARD_OUT_GRAD_BIAS));
    args.grad_logp_is_accumulator = sdk::dtype_of(*run.input(RLK_LOGP_BACKWARD_IN_GRAD_LOGP)) == dtype_ &&
                                            accumulator_bytes(dtype_) != sdk::bytes_of(dtype_)
                                        ? 0
                                        : 1;
    args.aligned = is_aligned(args.logits, args.row_stride * sdk::bytes_of(dtype_)) &&
                           is_aligned(args.grad_logits, args.grad_row_stride * sdk::bytes_of(dtype_))
                       ? 1
                       : 0;
    args.errors = error_sink(run);
    const int64_t rows = args.tokens.logits_rows, vocab = args.tokens.vocab;
    const Chunks chunks = chunks_of(rows, vocab, dtype_, wants_bias_, multiprocessors_);
    args.rows_per_chunk = chunks.rows;
    args.chunks = chunks.count;
    const Layout layout = layout_of(args.tokens.rows, rows, vocab, chunks.count, dtype_, indexed, wants_bias_);
    Workspace workspace(run.workspace());
    args.row = workspace.take<simt::LogpBackwardRow>(layout.row);
    args.owner = indexed ? workspace.take<int64_t>(layout.owner) : nullptr;
    args.bias_part = wants_bias_ ? workspace.take<void>(layout.bias) : nullptr;

    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    if (indexed) {
      fill(args.owner, 0xff, layout.owner, handle);  // nobody owns a row yet
    }
    launch(rows_, ceil_divide(args.tokens.rows, simt::kBackwardRowsThreads), simt::kBackwardRowsThreads, 0, handle,
           args);
    launch(gradient_, chunks.tiles * chunks.count, simt::kBackwardThreads, 0, handle, args);
    if (wants_bias_) {
      launch_walking(bias_, std::min<int64_t>(ceil_divide(vocab, simt::kBackwardBiasThreads), 1 << 20),
                     simt::kBackwardBiasThreads, 0, handle, args);
    }
  }

private:
  rlk_logp_backward_params params_;
  sdk::Dtype dtype_;
  bool wants_bias_;
  int64_t multiprocessors_;
  Place place_;
  FunctionHandle rows_ = nullptr, gradient_ = nullptr, bias_ = nullptr;
};

}  // namespace

sdk::Support LogpBackward::query(Device& device, const sdk::Call<Op>& call) {
  if (auto refused = device.refusal()) return *refused;
  const sdk::Dtype dtype = sdk::dtype_of(*call.input(RLK_LOGP_BACKWARD_IN_LOGITS));
  if (auto refused = refuse_dtype(call.input(RLK_LOGP_BACKWARD_IN_LOGITS), "logits")) return *refused;
  if (auto refused = refuse_scaling(call.params(), dtype)) return *refused;
  if (auto refused = sdk::refuse_input(call.input(RLK_LOGP_BACKWARD_IN_KEEP_MASK), "keep_mask")) return *refused;
  if (auto refused = refuse_token_strides(call, RLK_LOGP_BACKWARD_IN_LOGITS, kInputNames)) return *refused;
  const rlk_tensor* grad_logits = call.output(RLK_LOGP_BACKWARD_OUT_GRAD_LOGITS);
  if (auto refused = sdk::refuse_strided_rows(grad_logits, "grad_logits", "vocabulary")) return *refused;
  const rlk_tensor* grad_bias = call.output(RLK_LOGP_BACKWARD_OUT_GRAD_BIAS);
  if (auto refused = sdk::refuse_gaps(grad_bias, "grad_bias")) return *refused;
  const int64_t tokens = call.symbol(RLK_LOGP_BACKWARD_SYM_N), rows = call.symbol(RLK_LOGP_BACKWARD_SYM_R);
  const int64_t vocab = call.symbol(RLK_LOGP_BACKWARD_SYM_V);
  // grad_logits stays a function of its own row; a sum over the rows of a batch cannot.
  const uint32_t numerics = RLK_NUMERICS_DETERMINISTIC | (grad_bias != nullptr ? 0u : RLK_NUMERICS_BATCH_INVARIANT);
  sdk::Support answer = sdk::Support::yes("columns", numerics, RLK_SUPPORT_PREFERRED);
  const Chunks chunks = chunks_of(rows, vocab, dtype, grad_bias != nullptr, device.multiprocessors());
  answer.workspace_bound = layout_of(tokens, rows, vocab, chunks.count, dtype,
                                     call.input(RLK_LOGP_BACKWARD_IN_ROW_INDICES) != nullptr, grad_bias != nullptr)
                               .total();
  answer.cost_us = 2 * kLaunchUs + device.bytes_us(2.0 * static_cast<double>(rows * vocab * sdk::bytes_of(dtype)));
  return answer;
}

std::unique_ptr<sdk::Plan> LogpBackward::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<LogpBackwardPlan>(device, call);
}

}  // namespace rlk::simt::host

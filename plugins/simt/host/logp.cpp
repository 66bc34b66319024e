// logp: one pass over the logits by segments of a row, then one thread per row; see ../logp.cuh.
#include "logp_common.hpp"
#include "operators.hpp"

#include <algorithm>

namespace rlk::simt::host {
namespace {

constexpr TokenInputs kInputs = {RLK_LOGP_IN_LOGITS, RLK_LOGP_IN_IDS, RLK_LOGP_IN_BIAS, RLK_LOGP_IN_MASK,
                                 RLK_LOGP_IN_ROW_INDICES};
constexpr const char* kInputNames[] = {"logits", "ids", "bias", "mask", "row_indices", "keep_mask"};
static_assert(sizeof(kInputNames) / sizeof(kInputNames[0]) == RLK_LOGP_N_INPUTS);

int64_t segments_of(int64_t vocab, sdk::Dtype dtype) {
  return ceil_divide(vocab, simt::logp_segment_length(sdk::bytes_of(dtype)));
}

uint64_t workspace_bytes(int64_t rows, int64_t vocab, sdk::Dtype dtype) {
  return static_cast<uint64_t>(rows * segments_of(vocab, dtype)) * sizeof(simt::LogpPartial);
}

// How many segments a block takes. Several waste less on starting; with few rows one each fills the device.
int64_t block_segments_of(int64_t rows, int64_t vocab, sdk::Dtype dtype, int64_t multiprocessors) {
  const int64_t segments = segments_of(vocab, dtype), length = simt::logp_segment_length(sdk::bytes_of(dtype));
  // What little a row has behind its first segment is not worth a block.
  if (segments == 2 && vocab - length <= length / 8) return 2;
  const int64_t most = std::clamp<int64_t>(rows * segments / (64 * multiprocessors), 1, simt::kLogpBlockSegments);
  return ceil_divide(segments, ceil_divide(segments, most));
}

class LogpPlan final : public sdk::Plan {
public:
  LogpPlan(Device& device, const sdk::Call<sdk::ops::Logp>& call)
      : params_(call.params()), dtype_(sdk::dtype_of(*call.input(RLK_LOGP_IN_LOGITS))) {
    const bool transform = call.input(RLK_LOGP_IN_BIAS) != nullptr || params_.softcap > 0;
    const bool entropy = call.output(RLK_LOGP_OUT_ENTROPY) != nullptr;
    const std::string suffix = sdk::name_of(dtype_);
    const char* form = transform ? "_transform_entropy" : entropy ? "_plain_entropy" : "_plain";
    segments_ = device.kernel("logp", "logp_" + suffix + form);
    finish_ = device.kernel("logp", "logp_finish_" + suffix);
    place_ = device.place();
    multiprocessors_ = device.multiprocessors();
    flags = RLK_PLAN_SHAREABLE | RLK_PLAN_CAPTURABLE;
    dynamic_symbols = 1u << RLK_LOGP_SYM_N | 1u << RLK_LOGP_SYM_R;
    workspace_bound = UINT64_MAX;
    numerics = RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;
    variant = "segments";
  }

  uint64_t prepare(const sdk::Run& run) override {
    return workspace_bytes(run.input(RLK_LOGP_IN_IDS)->shape[0], run.input(RLK_LOGP_IN_LOGITS)->shape[1], dtype_);
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const rlk_tensor& logits = *run.input(RLK_LOGP_IN_LOGITS);
    simt::LogpArgs args{};
    args.logits = sdk::data_of(&logits);
    args.row_stride = logits.strides[0];
    args.tokens = token_rows(run, kInputs, params_);
    args.transform = logit_transform(run, kInputs, params_);
    args.logp = sdk::data_of(run.output(RLK_LOGP_OUT_LOGP));
    args.lse = sdk::data_of(run.output(RLK_LOGP_OUT_LSE));
    args.entropy = sdk::data_of(run.output(RLK_LOGP_OUT_ENTROPY));
    args.part = static_cast<simt::LogpPartial*>(run.workspace());
    args.segments = segments_of(args.tokens.vocab, dtype_);
    args.block_segments = block_segments_of(args.tokens.rows, args.tokens.vocab, dtype_, multiprocessors_);
    args.logp_is_accumulator =
        sdk::dtype_of(*run.output(RLK_LOGP_OUT_LOGP)) == dtype_ && accumulator_bytes(dtype_) != sdk::bytes_of(dtype_)
            ? 0
            : 1;
    args.aligned = is_aligned(args.logits, args.row_stride * sdk::bytes_of(dtype_)) ? 1 : 0;
    args.errors = error_sink(run);
    if (args.tokens.rows == 0) return;
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    launch_walking(segments_, args.tokens.rows * ceil_divide(args.segments, args.block_segments), simt::kLogpThreads, 0,
                   handle, args);
    launch_walking(finish_, std::min<int64_t>(ceil_divide(args.tokens.rows, simt::kLogpFinishThreads), 1 << 20),
                   simt::kLogpFinishThreads, 0, handle, args);
  }

private:
  rlk_logp_params params_;
  sdk::Dtype dtype_;
  FunctionHandle segments_ = nullptr, finish_ = nullptr;
  Place place_;
  int64_t multiprocessors_ = 1;
};

}  // namespace

sdk::Support Logp::query(Device& device, const sdk::Call<Op>& call) {
  if (auto refused = device.refusal()) return *refused;
  const sdk::Dtype dtype = sdk::dtype_of(*call.input(RLK_LOGP_IN_LOGITS));
  if (auto refused = refuse_dtype(call.input(RLK_LOGP_IN_LOGITS), "logits")) return *refused;
  if (auto refused = refuse_scaling(call.params(), dtype)) return *refused;
  if (auto refused = sdk::refuse_input(call.input(RLK_LOGP_IN_KEEP_MASK), "keep_mask")) return *refused;
  if (auto refused = sdk::refuse_output(call.output(RLK_LOGP_OUT_SUM_P2), "sum_p2")) return *refused;
  if (auto refused = refuse_token_strides(call, RLK_LOGP_IN_LOGITS, kInputNames)) return *refused;
  for (uint32_t i = 0; i < Op::kOutputs; ++i) {
    if (auto refused = sdk::refuse_gaps(call.output(i), "outputs")) return *refused;
  }
  const int64_t rows = call.symbol(RLK_LOGP_SYM_N), vocab = call.symbol(RLK_LOGP_SYM_V);
  sdk::Support answer =
      sdk::Support::yes("segments", RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = workspace_bytes(rows, vocab, dtype);
  answer.cost_us = 2 * kLaunchUs + device.bytes_us(static_cast<double>(rows * vocab * sdk::bytes_of(dtype)));
  return answer;
}

std::unique_ptr<sdk::Plan> Logp::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<LogpPlan>(device, call);
}

}  // namespace rlk::simt::host

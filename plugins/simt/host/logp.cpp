// logp: one pass over the logits by segments of a row, then one thread per row; see ../logp.cuh.
#include "logp_common.hpp"
#include "operators.hpp"

namespace rlk::simt::host {
namespace {

using Op = sdk::ops::Logp;
using Named = sdk::Arguments<Op>;

int64_t segments_of(int64_t vocab, sdk::Dtype dtype) {
  return ceil_divide(vocab, simt::logp_segment_length(sdk::bytes_of(dtype)));
}

// Each of all segments of all rows.
struct Layout {
  uint64_t partial, squares;
  uint64_t total() const { return align_256(partial) + align_256(squares); }
};
Layout layout_of(const Named& call) {
  const auto segments = static_cast<uint64_t>(call.N * segments_of(call.V, sdk::dtype_of(*call.logits)));
  return {segments * sizeof(simt::LogpPartial), call.sum_p2 != nullptr ? segments * sizeof(double) : 0};
}

// How many segments a block takes. Several waste less on starting; with few rows one each fills the device.
int64_t block_segments_of(int64_t rows, int64_t vocab, sdk::Dtype dtype, int64_t multiprocessors) {
  const int64_t segments = segments_of(vocab, dtype), length = simt::logp_segment_length(sdk::bytes_of(dtype));
  // What little a row has behind its first segment is not worth a block.
  if (segments == 2 && vocab - length <= length / 8) return 2;
  const int64_t most = std::clamp<int64_t>(rows * segments / (64 * multiprocessors), 1, simt::kLogpBlockSegments);
  return ceil_divide(segments, ceil_divide(segments, most));
}

class LogpPlan final : public OperatorPlan<Op> {
public:
  LogpPlan(Device& device, const sdk::Call<Op>& described)
      : OperatorPlan(device, described), multiprocessors_(device.multiprocessors()) {
    const Named call = sdk::arguments_of(described);
    dtype_ = sdk::dtype_of(*call.logits);
    const bool transform = call.bias != nullptr || params_.softcap > 0;
    const bool entropy = call.entropy != nullptr;
    const bool options = call.keep_mask != nullptr || call.sum_p2 != nullptr;
    const std::string suffix = sdk::name_of(dtype_);
    const char* form = options ? "_options" : transform ? "_transform_entropy" : entropy ? "_plain_entropy" : "_plain";
    segments_ = device.kernel("logp", "logp_" + suffix + form);
    finish_ = device.kernel("logp", "logp_finish_" + suffix);
    dynamic_symbols = sdk::bits_of(&Named::N, &Named::R);
    workspace_bound = UINT64_MAX;
  }

  uint64_t prepare(const sdk::Run& run) override { return layout_of(arguments_of(run)).total(); }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const Named call = arguments_of(run);
    simt::LogpArgs args{};
    set_logits(args, call, run);
    args.logp = sdk::data_of(call.logp);
    args.lse = sdk::data_of(call.lse);
    args.entropy = sdk::data_of(call.entropy);
    args.sum_p2 = sdk::data_of(call.sum_p2);
    const Layout layout = layout_of(call);
    Workspace workspace(run.workspace());
    args.part = workspace.take<simt::LogpPartial>(layout.partial);
    args.squares = call.sum_p2 != nullptr ? workspace.take<double>(layout.squares) : nullptr;
    args.segments = segments_of(args.tokens.vocab, dtype_);
    args.block_segments = block_segments_of(args.tokens.rows, args.tokens.vocab, dtype_, multiprocessors_);
    args.logp_is_accumulator = is_accumulator(*call.logp, dtype_);
    args.aligned = is_aligned(args.logits, args.row_stride * sdk::bytes_of(dtype_)) ? 1 : 0;
    if (args.tokens.rows == 0) return;
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    launch_walking(segments_, args.tokens.rows * ceil_divide(args.segments, args.block_segments), simt::kLogpThreads, 0,
                   handle, args);
    launch_walking(finish_, std::min<int64_t>(ceil_divide(args.tokens.rows, simt::kLogpFinishThreads), 1 << 20),
                   simt::kLogpFinishThreads, 0, handle, args);
  }

private:
  const int64_t multiprocessors_;
  sdk::Dtype dtype_;
  FunctionHandle segments_ = nullptr, finish_ = nullptr;
};

}  // namespace

sdk::Support Logp::query(Device& device, const sdk::Call<Op>& described) {
  const Named call = sdk::arguments_of(described);
  if (auto refused = refuse_logp(device, call)) return *refused;
  for (const rlk_tensor* output : {call.logp, call.lse, call.entropy, call.sum_p2}) {
    if (auto refused = sdk::refuse_gaps(output, "outputs")) return *refused;
  }
  sdk::Support answer =
      sdk::Support::yes(kName, RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = layout_of(call).total();
  answer.cost_us = 2 * kLaunchUs +
                   device.bytes_us(static_cast<double>(call.N * call.V * sdk::bytes_of(sdk::dtype_of(*call.logits))));
  return answer;
}

std::unique_ptr<sdk::Plan> Logp::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<LogpPlan>(device, call);
}

}  // namespace rlk::simt::host

// attention over fixed shares of keys (kernels/attention_fixed_mma.cuh): which rows go to blocks that have one share
// each, and which meet all their keys in one block. Both give the same bits.
#include "attention_fixed_mma.hpp"

#include "../simt/host/attention_samples.hpp"
#include "attention_parts_mma.hpp"
#include "kernels/attention_parts.h"

namespace rlk::cuda {
namespace {

using namespace simt::host;
using Op = sdk::ops::Attention;

constexpr const char* kImage = "attention_fixed_mma";
constexpr int64_t kManyRows = 64;
constexpr int64_t kFewQueries = 4;
constexpr int64_t kLongKeys = 4096;  // what is worth cutting for more queries too
constexpr uint64_t kPartBytes = uint64_t{64} << 20;

int padded(int64_t head) {
  return head <= 64 ? 64 : 128;
}

AttentionPartsArgs parts_of(const sdk::Arguments<Op>& call) {
  AttentionPartsArgs args{};
  set_attention(args, call, kOfSequence);
  return args;
}

struct Cut {
  int64_t rows, blocks, shares;  // of a block; of the launch beside the shares of keys; of keys, 1 where rows meet all
  bool is_few;
  uint64_t value_bytes = 0, sum_bytes = 0;

  Cut(const AttentionPartsArgs& args, int64_t multiprocessors) {
    const int64_t of_sequence = args.queries * args.group, sequences = args.batches * args.kv_heads;
    const int64_t many = sequences * ceil_divide(of_sequence, kManyRows);
    const int64_t all_rows = args.batches * args.queries * args.q_heads;
    shares = args.keys == 0 ? 1 : fixed_share_of(args.keys - 1) + 1;
    const uint64_t numbers = sizeof(float) * static_cast<uint64_t>(shares * all_rows);  // one of each part
    const bool fits = shares <= kPartsMostSlots && numbers * static_cast<uint64_t>(args.head_size) <= kPartBytes;
    is_few = (args.queries <= kFewQueries && of_sequence <= kPartsFewRows && shares <= kPartsMostSlots) ||
             (args.keys >= kLongKeys && 2 * many <= multiprocessors && fits);
    rows = is_few ? kPartsFewRows : kManyRows;
    blocks = sequences * ceil_divide(of_sequence, rows);
    if (!is_few) {
      shares = 1;
      return;
    }
    value_bytes = align_256(numbers * static_cast<uint64_t>(args.head_size));
    sum_bytes = align_256(numbers * 2);
  }
};

class AttentionFixedPlan final : public OperatorPlan<Op> {
public:
  AttentionFixedPlan(Device& device, const sdk::Call<Op>& call)
      : OperatorPlan(device, call), multiprocessors_(device.multiprocessors()) {
    const rlk_tensor& q = *sdk::arguments_of(call).q;
    padded_ = padded(q.shape[q.ndim - 1]);
    const char* const dtype = sdk::name_of(sdk::dtype_of(q));
    const auto kernel_of = [&](int64_t rows) {
      return device.kernel(kImage, sdk::format("%s_%s_%d_%lld", kImage, dtype, padded_, static_cast<long long>(rows)),
                           shared(rows));
    };
    few_ = kernel_of(kPartsFewRows);
    many_ = kernel_of(kManyRows);
    merge_ = device.kernel(kImage, sdk::format("%s_merge_%s", kImage, dtype));
    dynamic_symbols = sample_symbols<Op>();
    workspace_bound = UINT64_MAX;
  }

  uint64_t prepare(const sdk::Run& run) override {
    const Cut cut(parts_of(arguments_of(run)), multiprocessors_);
    return cut.value_bytes + cut.sum_bytes;
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    AttentionPartsArgs args = parts_of(arguments_of(run));
    if (args.queries >= int64_t{1} << 30) throw sdk::Error(RLK_UNSUPPORTED, "the kernels count queries up to 2^30");
    const Cut cut(args, multiprocessors_);
    Workspace workspace(run.workspace());
    args.parts = workspace.take<float>(cut.value_bytes);
    args.sums = workspace.take<float>(cut.sum_bytes);
    args.slots = args.splits = static_cast<int32_t>(cut.shares);
    if (cut.blocks == 0) return;
    const PlaceScope scope(place_);
    const StreamHandle handle = own(stream).handle();
    launch(cut.is_few ? few_ : many_, cut.blocks * cut.shares, 128, shared(cut.rows), handle, args);
    if (!cut.is_few) return;
    const int64_t rows = args.batches * args.queries * args.q_heads;
    launch_walking(merge_, ceil_divide(rows, kPartsMergeWarps), 32 * kPartsMergeWarps, 0, handle, args);
  }

private:
  int shared(int64_t rows) const { return parts_shared_bytes(padded_, static_cast<int>(rows)); }

  int64_t multiprocessors_;
  int padded_ = 0;
  FunctionHandle few_ = nullptr, many_ = nullptr, merge_ = nullptr;
};

}  // namespace

sdk::Support AttentionFixed::query(Device& device, const sdk::Call<Op>& described) {
  // These kernels read what those of split keys read.
  if (sdk::Support split = AttentionSplit::query(device, described); split.level == RLK_SUPPORT_NO) return split;
  const AttentionPartsArgs args = parts_of(sdk::arguments_of(described));
  const Cut cut(args, device.multiprocessors());
  sdk::Support answer = sdk::Support::yes(kName, kAttentionNumerics, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = cut.value_bytes + cut.sum_bytes;
  // Blocks multiply all their rows, whatever has them.
  const double all_rows = static_cast<double>(cut.blocks * cut.rows), keys = static_cast<double>(args.keys);
  const double head = static_cast<double>(args.head_size);
  const bool halved = args.window_right == 0 && args.queries > 1;
  const double operations = 4.0 * all_rows * keys * head * (halved ? 0.5 : 1.0);
  const double bytes = 4.0 * head *
                           (static_cast<double>(args.batches * args.kv_heads) * keys +
                            static_cast<double>(args.batches * args.queries * args.q_heads)) +
                       2.0 * static_cast<double>(cut.value_bytes);
  const double idle = idle_factor(device, static_cast<double>(cut.blocks * cut.shares));
  // Blocks of few rows wait for keys more often than for products; fixed shares begin and end more often than those
  // that are made for a call.
  const double work = cut.is_few ? 3.0 : 1.7;
  answer.cost_us = 3 * kLaunchUs + 1.1 * idle * std::max(device.matrix_us(work * operations), device.bytes_us(bytes));
  return answer;
}
std::unique_ptr<sdk::Plan> AttentionFixed::plan(Device& device, const sdk::Call<Op>& call) {
  return std::make_unique<AttentionFixedPlan>(device, call);
}

}  // namespace rlk::cuda

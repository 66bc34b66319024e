// Query, plan and launch of every operator of tokens: its passes one after the other.
#include "tokens.hpp"

#include <algorithm>

namespace rlk::simt::host {
namespace {

using Kind = TokensArgument::Kind;

constexpr uint32_t kNumerics = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC;

// Along a dimension of one place nothing moves, whatever the stride says.
int64_t stride_of(const rlk_tensor& tensor, int32_t d) {
  return d >= tensor.ndim || tensor.shape[d] == 1 ? 0 : tensor.strides[d];
}

simt::TokenTensor token_tensor(const TokensArgument& argument, bool is_packed) {
  simt::TokenTensor out{};
  out.value = argument.value;
  if (argument.tensor == nullptr) return out;
  const rlk_tensor& tensor = *argument.tensor;
  const bool is_line = is_packed && argument.has_tokens();  // one dimension, of tokens
  out.data = sdk::data_of(&tensor);
  out.dtype = static_cast<int32_t>(sdk::dtype_of(tensor));
  out.is_output = argument.is_output() ? 1 : 0;
  out.sequence = is_line ? 0 : stride_of(tensor, 0);
  out.token = stride_of(tensor, is_line ? 0 : 1);
  out.rows = is_line ? 1 : tensor.shape[0];
  out.columns = is_line ? tensor.shape[0] : tensor.ndim > 1 ? tensor.shape[1] : 1;
  return out;
}

// Whether a pass can run in fp32: dense rows of whole packs of fp32 numbers and bytes, and nothing else.
bool is_short(const TokensPass& pass, const simt::TokenArgs& args) {
  if (!pass.is_short || args.cu_seqlens != nullptr || args.length % simt::kTokenPack != 0) return false;
  for (int i = 0; i < pass.ins + pass.outs; ++i) {
    const simt::TokenTensor& tensor = args.tensor[i];
    const bool is_written = i >= pass.ins, is_absent = !is_written && (pass.absent >> i & 1) != 0;
    if (!is_written && (pass.uses >> i & 1) == 0) continue;
    if (tensor.data == nullptr && (is_written || is_absent)) continue;
    if (tensor.data == nullptr || is_absent || tensor.token != 1 || tensor.sequence % simt::kTokenPack != 0)
      return false;
    const bool is_bytes = !is_written && (pass.bytes >> i & 1) != 0;
    const bool has_dtype =
        is_bytes ? tensor.dtype == simt::kMapU8 || tensor.dtype == simt::kMapBool : tensor.dtype == simt::kMapF32;
    const uintptr_t bytes = is_bytes ? 1 : sizeof(float);
    if (!has_dtype || reinterpret_cast<uintptr_t>(tensor.data) % (bytes * simt::kTokenPack) != 0) {
      return false;
    }
  }
  return true;
}

struct Sizes {
  uint64_t sums, own;
};
Sizes sizes_of(const TokensCall& call, int64_t own_bytes, int64_t most_sums) {
  return {static_cast<uint64_t>(call.chunks() * most_sums) * sizeof(double),
          static_cast<uint64_t>(call.sequences() * own_bytes)};
}

}  // namespace

TokensCall::TokensCall(std::initializer_list<TokensArgument> ins, std::initializer_list<TokensArgument> others,
                       const rlk_tensor* boundaries)
    : count(static_cast<int>(ins.size() + others.size())), cu_seqlens(boundaries) {
  std::copy(others.begin(), others.end(), std::copy(ins.begin(), ins.end(), arguments));
}

const rlk_tensor& TokensCall::tokens() const {
  if (arguments[0].tensor == nullptr) {
    throw sdk::Error(RLK_INVALID_ARGUMENT, "a tensor that the operator needs is absent");
  }
  return *arguments[0].tensor;
}

int64_t TokensCall::chunks() const {
  if (sequences() == 0) return 0;
  return cu_seqlens != nullptr ? length() / simt::kTokenChunk + sequences()
                               : sequences() * ceil_divide(length(), simt::kTokenChunk);
}

sdk::Support support_of_tokens(const Device& device, const TokensCall& call, const std::vector<TokensPass>& passes,
                               const char* refusal) {
  if (auto refused = device.refusal()) return *refused;
  if (refusal != nullptr) return sdk::Support::no("PARAMETERS", refusal);
  double bytes = 0;
  for (int i = 0; i < call.count; ++i) {
    const TokensArgument& argument = call.arguments[i];
    if (argument.tensor == nullptr) continue;
    const sdk::Dtype dtype = sdk::dtype_of(*argument.tensor);
    const bool is_mask = argument.kind == Kind::in && (dtype == sdk::Dtype::u8 || dtype == sdk::Dtype::boolean);
    if (!is_mask) {
      if (auto refused = refuse_dtype(argument.tensor, argument.name)) return *refused;
    }
    if (argument.has_tokens()) {
      bytes += static_cast<double>(call.length() * (call.cu_seqlens != nullptr ? 1 : call.sequences()) *
                                   sdk::bytes_of(dtype));
    }
  }
  sdk::Support answer = sdk::Support::yes("tokens", kNumerics, RLK_SUPPORT_PREFERRED);
  answer.workspace_bound = UINT64_MAX;
  for (const TokensPass& pass : passes) {
    if (pass.is_wanted) answer.cost_us += (pass.sums > 0 ? 2 : 1) * kLaunchUs + device.bytes_us(bytes);
  }
  return answer;
}

TokensPlan::TokensPlan(Device& device, const char* image, const std::vector<TokensPass>& passes) : KernelPlan(device) {
  workspace_bound = UINT64_MAX;
  for (const TokensPass& pass : passes) {
    if (!pass.is_wanted) continue;
    const std::string name = std::string(image) + "_tokens_" + pass.name;
    kernels_.push_back({device.kernel(image, name + "_chunks"),
                        pass.sums > 0 ? device.kernel(image, name + "_totals") : nullptr,
                        pass.is_short ? device.kernel(image, name + "_short") : nullptr, pass});
    most_sums_ = std::max<int64_t>(most_sums_, pass.sums);
  }
}

uint64_t TokensPlan::workspace_of(const TokensCall& call, int64_t own_bytes) const {
  const Sizes sizes = sizes_of(call, own_bytes, most_sums_);
  return align_256(sizes.sums) + align_256(sizes.own) + align_256(simt::kTokenBatch) + align_256(sizeof(int32_t));
}

void TokensPlan::launch(sdk::Stream& stream, const TokensCall& call, const sdk::Run& run, int64_t own_bytes,
                        const void* rules, size_t rules_bytes) const {
  simt::TokenArgs args{};
  const bool is_packed = call.cu_seqlens != nullptr;
  args.sequences = call.sequences();
  args.length = call.length();
  args.chunks = call.chunks();
  args.chunks_of_each = ceil_divide(args.length, simt::kTokenChunk);
  if (is_packed) {
    args.cu_seqlens = sdk::data_of(call.cu_seqlens);
    args.cu_stride = call.cu_seqlens->strides[0];
    args.cu_are_i64 = sdk::dtype_of(*call.cu_seqlens) == sdk::Dtype::i64 ? 1 : 0;
  }
  const Sizes sizes = sizes_of(call, own_bytes, most_sums_);
  Workspace workspace(run.workspace());
  args.sums = workspace.take<double>(sizes.sums);
  args.own = workspace.take<unsigned char>(sizes.own);
  args.batch = workspace.take<unsigned char>(simt::kTokenBatch);
  args.is_bad = workspace.take<int32_t>(sizeof(int32_t));
  args.errors = error_sink(run);
  for (int i = 0; i < call.count; ++i) args.tensor[i] = token_tensor(call.arguments[i], is_packed);
  std::memcpy(args.rules, rules, rules_bytes);
  const PlaceScope scope(place_);
  const StreamHandle handle = own(stream).handle();
  for (const Kernels& kernels : kernels_) {
    args.is_last = &kernels == &kernels_.back() ? 1 : 0;
    // Bad cu_seqlens may leave a packed batch without chunks in which tokens get their NaN.
    const int64_t blocks = std::max<int64_t>(args.chunks, is_packed && kernels.totals == nullptr ? 1 : 0);
    const FunctionHandle chunks = is_short(kernels.pass, args) ? kernels.brief : kernels.chunks;
    launch_walking(chunks, blocks, simt::kTokenThreads, 0, handle, args, start_);
    if (kernels.totals == nullptr) continue;
    launch_walking(kernels.totals, 1, simt::kTokenTotalThreads, 0, handle, args, start_);
    args.is_checked = 1;
  }
}

}  // namespace rlk::simt::host

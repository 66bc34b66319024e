// Smaller and smaller parts, until one can be copied.
#include "core/dispatch/trust/shadow_call.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "core/conformance/elementwise.hpp"
#include "core/conformance/narrower.hpp"
#include "core/declaration/plugin_call.hpp"
#include "core/dispatch/device/device_state.hpp"

namespace rlk::core {
namespace {

constexpr int64_t kElements[] = {1 << 18, 1 << 14, 1 << 11};  // of elementwise calls: the last in any layout

bool is_empty(const rlk_tensor& tensor) {
  return std::find(tensor.shape, tensor.shape + tensor.ndim, 0) != tensor.shape + tensor.ndim;
}

}  // namespace

// The name of a tensor that lies so that its part takes too many copies, or nullptr.
const char* ShadowCall::plan_fetches(const Call& call) {
  bytes = 0;
  const auto plan = [&](std::span<const ArgDecl> declared, std::span<const rlk_tensor* const> tensors,
                        std::vector<conformance::Kept>& kept, Fetches& list) -> const char* {
    list.clear();
    for (size_t i = 0; i < tensors.size(); ++i) {
      list.emplace_back();
      if (tensors[i] == nullptr || is_empty(*tensors[i])) continue;
      // A part beyond the caller's tensor is never read, whatever chose it.
      const std::span shape(tensors[i]->shape, static_cast<size_t>(tensors[i]->ndim));
      if (!conformance::lies_within(kept[i], shape)) return declared[i].name;
      list.back() = Fetch::make(*tensors[i], std::move(kept[i]), std::min(Fetch::kMostBytes, kMostBytes - bytes));
      if (!list.back()) return declared[i].name;
      bytes += list.back()->bytes();
    }
    return nullptr;
  };
  const char* const scattered = plan(call.decl().inputs, call.inputs, sample.inputs, inputs_);
  return scattered != nullptr ? scattered : plan(call.decl().outputs, call.outputs, sample.outputs, outputs_);
}

std::optional<std::pair<WhyNot, std::string>> ShadowCall::choose_part(const Call& call,
                                                                      const conformance::ConcreteCall& whole,
                                                                      uint64_t seed) {
  std::string why_not;
  const char* scattered = nullptr;
  const auto take = [&](std::optional<conformance::Sample> part) {
    if (!part) return false;
    sample = std::move(*part);
    scattered = plan_fetches(call);
    return scattered == nullptr;
  };
  const conformance::SampleLimits limits;
  std::optional<conformance::Sample> first = conformance::sample_of(whole, seed, limits, &why_not);
  if (first && take(conformance::with_boundary_rows(whole, *first, limits))) return std::nullopt;
  if (take(std::move(first))) return std::nullopt;
  for (int step = 0; step < conformance::kNarrowerSteps; ++step) {
    if (take(conformance::narrower_part(whole, seed, step, limits))) return std::nullopt;
  }
  for (const int64_t elements : kElements) {
    if (take(conformance::some_elements(whole, elements, seed))) return std::nullopt;
  }
  if (scattered == nullptr) return std::pair(WhyNot::too_large, why_not);
  return std::pair(WhyNot::scattered,
                   fmt::format("{} lies in too many pieces too far apart: {} copies would have more than {} MiB",
                               scattered, Fetch::kMostCopies, Fetch::kMostBytes >> 20));
}

rlk_status ShadowCall::copy(const Call& call, std::span<const rlk_tensor* const> tensors, const Fetches& fetches) {
  rlk_plugin_stream* stream = call.stream.handle();
  copies_on_ = &call.stream;
  const auto enqueue = [&](char* to, const char* from, uint64_t count) {
    return call_plugin(device.api.stream->copy, stream, to, from, count, RLK_COPY_DEVICE_TO_HOST, nullptr);
  };
  for (size_t i = 0; i < fetches.size(); ++i) {
    if (!fetches[i]) continue;
    const rlk_status status = fetches[i]->enqueue(*tensors[i], static_cast<char*>(memory) + copied_, enqueue);
    if (status != RLK_OK) return status;
    copied_ += fetches[i]->bytes();
  }
  return RLK_OK;
}

std::vector<std::vector<std::byte>> ShadowCall::unpack() {
  std::vector<std::vector<std::byte>> results;
  const char* at = static_cast<const char*>(memory);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i]) sample.call.inputs[i].bytes = inputs_[i]->pick(at);
    if (inputs_[i]) at += inputs_[i]->bytes();
  }
  for (const std::optional<Fetch>& output : outputs_) {
    results.push_back(output ? output->pick(at) : std::vector<std::byte>());
    if (output) at += output->bytes();
  }
  return results;
}

}  // namespace rlk::core

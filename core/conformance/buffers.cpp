// The image: layout, scatter, gather, and what changed.
#include "core/conformance/buffers.hpp"

#include <cstdio>
#include <cstring>

namespace rlk::core::conformance {
namespace {

constexpr uint64_t kAlignment = 256;  // what the ABI promises for allocated memory and the workspace
constexpr uint64_t kRedZone = 512;    // bytes before and behind everything

// Calls visit(byte offset in the block, byte offset in row-major order) for every element.
template <class Visit>
void for_each_element(const Argument& argument, bool misaligned, Visit&& visit) {
  const Placement placement = place(argument.layout, argument.shape);
  const int64_t element = size_of(argument.dtype);
  const int64_t count = argument.count();
  std::vector<int64_t> index(argument.shape.size(), 0);
  int64_t at = placement.first + (misaligned ? 1 : 0);
  for (int64_t i = 0; i < count; ++i) {
    visit(static_cast<size_t>(at * element), static_cast<size_t>(i * element));
    for (size_t axis = index.size(); axis-- > 0;) {
      at += placement.strides[axis];
      if (++index[axis] < argument.shape[axis]) break;
      at -= index[axis] * placement.strides[axis];
      index[axis] = 0;
    }
  }
}

uint64_t block_bytes(const Argument& argument, bool misaligned) {
  const int64_t extent = place(argument.layout, argument.shape).extent;
  return static_cast<uint64_t>((extent + (misaligned ? 1 : 0)) * size_of(argument.dtype));
}

}  // namespace

uint64_t Image::append(uint64_t bytes, const std::string& name, uint8_t fill) {
  const uint64_t begin = (bytes_.size() + kRedZone + kAlignment - 1) / kAlignment * kAlignment;
  bytes_.resize(begin, std::byte{poison_});
  bytes_.resize(begin + bytes, std::byte{fill});
  regions_.push_back({begin, begin + bytes, name, false});
  return begin;
}

Image::Image(const Call& call, uint8_t poison) : poison_(poison) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Argument& input = call.inputs[i];
    inputs_.push_back(kNone);
    if (!input.present || input.count() == 0) continue;
    inputs_[i] =
        append(block_bytes(input, call.misaligned), std::string("input ") + call.decl->inputs[i].name, poison_);
    regions_.back().input = true;
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Argument& output = call.outputs[i];
    outputs_.push_back(kNone);
    if (!output.present || output.count() == 0) continue;
    const int32_t alias = call.output_alias[i];
    outputs_[i] = alias >= 0 ? inputs_[static_cast<size_t>(alias)]
                             : append(block_bytes(output, call.misaligned),
                                      std::string("output ") + call.decl->outputs[i].name, output_poison(poison_));
  }
  bytes_.resize(bytes_.size() + kRedZone, std::byte{poison_});
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (inputs_[i] == kNone) continue;
    const auto element = static_cast<size_t>(size_of(call.inputs[i].dtype));
    for_each_element(call.inputs[i], call.misaligned, [&](size_t to, size_t from) {
      std::memcpy(bytes_.data() + inputs_[i] + to, call.inputs[i].bytes.data() + from, element);
    });
  }
}

void Image::add_workspace(uint64_t bytes) {
  if (bytes == 0) return;
  workspace_ = append(bytes, "workspace", poison_);
  workspace_bytes_ = bytes;
  bytes_.resize(bytes_.size() + kRedZone, std::byte{poison_});
}

std::optional<Failure> Image::collect(const Call& call, const std::byte* fetched,
                                      std::vector<std::vector<std::byte>>& outputs) const {
  std::vector<std::byte> expected = bytes_;
  outputs.assign(call.outputs.size(), {});
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Argument& output = call.outputs[i];
    if (outputs_[i] == kNone) continue;
    outputs[i].resize(static_cast<size_t>(output.byte_count()));
    const auto element = static_cast<size_t>(size_of(output.dtype));
    for_each_element(output, call.misaligned, [&](size_t from, size_t to) {
      std::memcpy(outputs[i].data() + to, fetched + outputs_[i] + from, element);
      std::memcpy(expected.data() + outputs_[i] + from, fetched + outputs_[i] + from, element);
    });
  }
  if (workspace_ != kNone) std::memcpy(expected.data() + workspace_, fetched + workspace_, workspace_bytes_);
  if (std::memcmp(expected.data(), fetched, expected.size()) == 0) return std::nullopt;
  uint64_t at = 0;
  while (expected[at] == fetched[at]) ++at;
  return blame(at, expected[at], fetched[at]);
}

Failure Image::blame(uint64_t at, std::byte sent, std::byte fetched) const {
  char bytes[64];
  std::snprintf(bytes, sizeof(bytes), " (byte was 0x%02x, is 0x%02x)", static_cast<unsigned>(sent),
                static_cast<unsigned>(fetched));
  const Region* nearest = nullptr;
  uint64_t distance = UINT64_MAX;
  for (const Region& region : regions_) {
    if (at >= region.begin && at < region.end) {
      if (region.input) return {"INPUT_CHANGED", region.name + " was written to, or the gaps between its rows" + bytes};
      return {"RED_ZONE", "the gaps between the elements of " + region.name + " were written to" + bytes};
    }
    const uint64_t away = at < region.begin ? region.begin - at : at - region.end + 1;
    if (away < distance) {
      distance = away;
      nearest = &region;
    }
  }
  const bool behind = nearest != nullptr && at >= nearest->end;
  return {"RED_ZONE", "memory was written " + std::to_string(behind ? distance - 1 : distance) + " bytes " +
                          (behind ? "behind the end of " : "before the start of ") +
                          (nearest != nullptr ? nearest->name : "everything") + bytes};
}

}  // namespace rlk::core::conformance

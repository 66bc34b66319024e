// The image: layout, scatter, gather, and what changed.
#include "core/conformance/buffers.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <cstring>

namespace rlk::core::conformance {
namespace {

constexpr uint64_t kAlignment = 256;  // what the ABI promises for allocated memory and the workspace
constexpr uint64_t kRedZone = 512;    // bytes before, and as many behind everything

// Calls visit(element in the block, element in row-major order) for every element.
template <class Visit>
void for_each_element(const Argument& argument, Visit&& visit) {
  const Placement placement = argument.placement();
  const int64_t count = argument.count();
  std::vector<int64_t> index(argument.shape.size(), 0);
  int64_t at = placement.first + argument.shift;
  for (int64_t i = 0; i < count; ++i) {
    visit(at, i);
    for (size_t axis = index.size(); axis-- > 0;) {
      at += placement.strides[axis];
      if (++index[axis] < argument.shape[axis]) break;
      at -= index[axis] * placement.strides[axis];
      index[axis] = 0;
    }
  }
}

uint64_t block_bytes(const Argument& argument) {
  const int64_t elements = argument.placement().extent + argument.shift;
  return static_cast<uint64_t>((elements * bits_of(argument.dtype) + 7) / 8);
}

// Whether it lies in memory as its values do.
bool is_one_run(const Argument& argument) {
  return argument.layout == Layout::contiguous && bits_of(argument.dtype) >= 8;
}

// An element between a block, where those of less than a byte are packed, and a place of its own.
void put_element(Dtype dtype, std::byte* block, int64_t at, const std::byte* own) {
  const int bits = bits_of(dtype);
  if (bits >= 8) {
    std::memcpy(block + at * bits / 8, own, static_cast<size_t>(bits / 8));
    return;
  }
  const auto low = static_cast<int>(at * bits % 8);
  const std::byte mask{static_cast<uint8_t>(((1 << bits) - 1) << low)};
  std::byte& packed = block[at * bits / 8];
  packed = (packed & ~mask) | (*own << low & mask);
}
void take_element(Dtype dtype, const std::byte* block, int64_t at, std::byte* own) {
  const int bits = bits_of(dtype);
  if (bits >= 8) {
    std::memcpy(own, block + at * bits / 8, static_cast<size_t>(bits / 8));
  } else {
    *own = block[at * bits / 8] >> static_cast<int>(at * bits % 8) & std::byte{static_cast<uint8_t>((1 << bits) - 1)};
  }
}

}  // namespace

uint64_t Image::append(uint64_t bytes, const std::string& name, uint8_t fill, uint64_t shift,
                       std::span<const std::byte> content) {
  bytes_.resize(bytes_.size() + kRedZone, std::byte{behind_});
  const uint64_t begin = (bytes_.size() + kRedZone + kAlignment - 1) / kAlignment * kAlignment;
  bytes_.resize(begin + shift, std::byte{fill});
  bytes_.insert(bytes_.end(), content.begin(), content.end());
  bytes_.resize(begin + bytes, std::byte{fill});
  behind_ = fill;
  regions_.push_back({begin, begin + bytes, name, false});
  return begin;
}

Image::Image(const ConcreteCall& call, uint8_t poison) : poison_(poison), behind_(poison) {
  uint64_t bytes = kRedZone;
  for (const std::vector<Argument>* arguments : {&call.inputs, &call.outputs}) {
    for (const Argument& argument : *arguments) bytes += argument.present ? block_bytes(argument) + 3 * kRedZone : 0;
  }
  bytes_.reserve(bytes);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Argument& input = call.inputs[i];
    inputs_.push_back(kNone);
    if (!input.present || input.count() == 0) continue;
    const std::string name = std::string("input ") + call.decl->inputs[i].name;
    if (is_one_run(input)) {
      inputs_[i] = append(block_bytes(input), name, poison_, static_cast<uint64_t>(input.shift * size_of(input.dtype)),
                          input.bytes);
    } else {
      inputs_[i] = append(block_bytes(input), name, poison_);
    }
    regions_.back().input = true;
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Argument& output = call.outputs[i];
    outputs_.push_back(kNone);
    if (!output.present || output.count() == 0) continue;
    const int32_t alias = call.output_alias[i];
    outputs_[i] = alias >= 0 ? inputs_[static_cast<size_t>(alias)]
                             : append(block_bytes(output), std::string("output ") + call.decl->outputs[i].name,
                                      output_poison(poison_));
  }
  bytes_.resize(bytes_.size() + kRedZone, std::byte{behind_});
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Argument& input = call.inputs[i];
    if (inputs_[i] == kNone || is_one_run(input)) continue;
    for_each_element(input, [&](int64_t to, int64_t from) {
      put_element(input.dtype, bytes_.data() + inputs_[i], to, input.bytes.data() + from * size_of(input.dtype));
    });
  }
}

void Image::add_workspace(uint64_t bytes) {
  if (bytes == 0) return;
  workspace_ = append(bytes, "workspace", poison_);
  workspace_bytes_ = bytes;
  bytes_.resize(bytes_.size() + kRedZone, std::byte{behind_});
}

std::optional<Failure> Image::collect(const ConcreteCall& call, std::byte* fetched,
                                      std::vector<std::vector<std::byte>>& outputs) const {
  outputs.assign(call.outputs.size(), {});
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Argument& output = call.outputs[i];
    if (outputs_[i] == kNone) continue;
    outputs[i].resize(static_cast<size_t>(output.byte_count()));
    const int64_t element = size_of(output.dtype);
    if (is_one_run(output)) {
      const uint64_t begin = outputs_[i] + static_cast<uint64_t>(output.shift * element);
      std::memcpy(outputs[i].data(), fetched + begin, outputs[i].size());
      continue;
    }
    for_each_element(output, [&](int64_t from, int64_t to) {
      take_element(output.dtype, fetched + outputs_[i], from, outputs[i].data() + to * element);
    });
  }
  // With what was sent in the place of what may change, nothing differs.
  const auto send_again = [&](uint64_t begin, uint64_t bytes) {
    std::memcpy(fetched + begin, bytes_.data() + begin, bytes);
  };
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Argument& output = call.outputs[i];
    if (outputs_[i] == kNone) continue;
    const auto element = static_cast<uint64_t>(size_of(output.dtype));
    if (is_one_run(output)) {
      send_again(outputs_[i] + static_cast<uint64_t>(output.shift) * element, outputs[i].size());
      continue;
    }
    for_each_element(output, [&](int64_t at, int64_t) {
      // The whole byte: what is behind the last element of a row belongs to the tensor.
      send_again(outputs_[i] + static_cast<uint64_t>(at * bits_of(output.dtype) / 8), element);
    });
  }
  if (workspace_ != kNone) send_again(workspace_, workspace_bytes_);
  if (std::memcmp(bytes_.data(), fetched, bytes_.size()) == 0) return std::nullopt;
  uint64_t at = 0;
  while (bytes_[at] == fetched[at]) ++at;
  return blame(at, bytes_[at], fetched[at]);
}

Failure Image::blame(uint64_t at, std::byte sent, std::byte fetched) const {
  char bytes[64];
  std::snprintf(bytes, sizeof(bytes), " (byte was 0x%02x, is 0x%02x)", static_cast<unsigned>(sent),
                static_cast<unsigned>(fetched));
  const Region* nearest = nullptr;
  uint64_t distance = UINT64_MAX;
  for (const Region& region : regions_) {
    if (at >= region.begin && at < region.end) {
      if (region.input)
        return {"INPUT_CHANGED", fmt::format("{} was written to, or the gaps between its rows{}", region.name, bytes)};
      return {"RED_ZONE", fmt::format("the gaps between the elements of {} were written to{}", region.name, bytes)};
    }
    const uint64_t away = at < region.begin ? region.begin - at : at - region.end + 1;
    if (away < distance) {
      distance = away;
      nearest = &region;
    }
  }
  const bool behind = nearest != nullptr && at >= nearest->end;
  return {"RED_ZONE", fmt::format("memory was written {} bytes {} of {}{}", behind ? distance - 1 : distance,
                                  behind ? "behind the end" : "before the start",
                                  nearest != nullptr ? nearest->name : "everything", bytes)};
}

}  // namespace rlk::core::conformance

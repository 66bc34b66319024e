// Arguments that point into memory, and the ring of a call that is repeated.
#include "core/conformance/device_call.hpp"

#include <algorithm>
#include <cstring>

namespace rlk::core::conformance {

void DeviceCallEnd::operator()(DeviceCall* device_call) const {
  delete device_call;
}

void PlacedCall::place(const ConcreteCall& call, const Image& image, std::byte* memory, const rlk_plan_info& info) {
  const auto blocks = [&](size_t count, auto&& at) {
    std::vector<void*> list;
    for (size_t i = 0; i < count; ++i) list.push_back(at(i) == Image::kNone ? nullptr : memory + at(i));
    return list;
  };
  tensors_.emplace(call, blocks(call.inputs.size(), [&](size_t i) { return image.input_at(i); }),
                   blocks(call.outputs.size(), [&](size_t i) { return image.output_at(i); }));
  host_inputs_.assign(call.inputs.size(), nullptr);
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if ((info.host_inputs >> i & 1) != 0 && call.inputs[i].present) host_inputs_[i] = call.inputs[i].bytes.data();
  }
  run = {};
  run.struct_size = sizeof(run);
  run.n_inputs = static_cast<uint32_t>(call.inputs.size());
  run.n_outputs = static_cast<uint32_t>(call.outputs.size());
  run.inputs = tensors_->inputs().data();
  run.outputs = tensors_->outputs().data();
  run.host_inputs = host_inputs_.data();
  run.symbols = call.symbols.data();
  run.n_symbols = static_cast<uint32_t>(call.decl->symbols.size());
}

void fill_workspace(WorkspaceContent content, uint32_t seed, std::span<std::byte> bytes) {
  if (content == WorkspaceContent::zeros) std::fill(bytes.begin(), bytes.end(), std::byte{0});
  if (content == WorkspaceContent::ones) std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
  if (content != WorkspaceContent::random) return;
  uint64_t state = seed + 1;
  for (std::byte& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
}

}  // namespace rlk::core::conformance

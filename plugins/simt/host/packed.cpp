// Which tensors are packed, where they lie, and the copies, which are those of the operator copy
// (../operators/move.cuh).
#include "packed.hpp"

#include "map.hpp"

namespace rlk::simt::host {
namespace {

bool wants_packing(const rlk_tensor* tensor) {
  return tensor != nullptr && sdk::element_count(*tensor) > 0 &&
         (!sdk::is_contiguous(*tensor) || tensor->alignment % 16 != 0);
}

uint64_t bytes_of(const rlk_tensor& tensor) {
  return static_cast<uint64_t>(sdk::element_count(tensor) * sdk::bytes_of(sdk::dtype_of(tensor)));
}

MapCall copy_of(const rlk_tensor& to, const rlk_tensor& from) {
  return {{MapView(&to)}, {MapView(&from)}, {"y", "x"}, {}, MapKind::bits};
}

class PackedPlan final : public sdk::Plan {
public:
  PackedPlan(Device& device, const std::vector<PackedSlot>& slots, const PackedArguments& arguments,
             std::unique_ptr<sdk::Plan> inner)
      : sdk::Plan(*inner), place_(device.place()), slots_(slots), inner_(std::move(inner)) {
    for (const rlk_tensor& tensor : arguments.tensors) {
      copies_.push_back(map_handles(device, {"move", "move_map_Copy_"}, copy_of(tensor, tensor)));
    }
    workspace_bound = UINT64_MAX;
  }

  uint64_t prepare(const sdk::Run& run) override {
    const PackedArguments arguments(slots_, run.raw(), nullptr);
    return arguments.bytes + inner_->prepare(sdk::Run(inner_run(run.raw(), arguments)));
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const PackedArguments arguments(slots_, run.raw(), run.workspace());
    const rlk_run inner = inner_run(run.raw(), arguments);
    {
      const PlaceScope scope(place_);
      for (size_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].input < 0 || sdk::element_count(arguments.tensors[i]) == 0) continue;
        launch_map(copies_[i], stream,
                   copy_of(arguments.tensors[i], *run.input(static_cast<uint32_t>(slots_[i].input))));
      }
    }
    inner_->enqueue(stream, sdk::Run(inner));
    const PlaceScope scope(place_);
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].output < 0 || sdk::element_count(arguments.tensors[i]) == 0) continue;
      launch_map(copies_[i], stream,
                 copy_of(*run.output(static_cast<uint32_t>(slots_[i].output)), arguments.tensors[i]));
    }
  }

private:
  static rlk_run inner_run(const rlk_run& run, const PackedArguments& arguments) {
    rlk_run inner = run;
    inner.inputs = arguments.inputs.data();
    inner.outputs = arguments.outputs.data();
    if (run.workspace != nullptr) inner.workspace = static_cast<char*>(run.workspace) + arguments.bytes;
    inner.workspace_bytes -= run.workspace != nullptr ? arguments.bytes : 0;
    return inner;
  }

  const Place place_;
  const std::vector<PackedSlot> slots_;
  const std::unique_ptr<sdk::Plan> inner_;
  std::vector<MapHandles> copies_;
};

rlk_call_desc described(const rlk_call_desc& call, const PackedArguments& arguments) {
  rlk_call_desc desc = call;
  desc.inputs = arguments.inputs.data();
  desc.outputs = arguments.outputs.data();
  return desc;
}

bool would_take_contiguous(const sdk::Support& answer) {
  return answer.level == RLK_SUPPORT_NO && (answer.flags & RLK_SUPPORT_IF_CONTIGUOUS) != 0;
}

}  // namespace

std::vector<PackedSlot> packed_slots(const rlk_call_desc& call) {
  std::vector<PackedSlot> slots;
  std::vector<bool> is_in_out(call.n_inputs);
  for (uint32_t i = 0; i < call.n_outputs; ++i) {
    const int32_t input = call.output_alias[i];
    if (input >= 0) is_in_out[static_cast<size_t>(input)] = true;
    if (wants_packing(call.outputs[i]) || (input >= 0 && wants_packing(call.inputs[input]))) {
      slots.push_back({input, static_cast<int32_t>(i)});
    }
  }
  for (uint32_t i = 0; i < call.n_inputs; ++i) {
    if (!is_in_out[i] && wants_packing(call.inputs[i])) slots.push_back({static_cast<int32_t>(i), -1});
  }
  return slots;
}

void PackedArguments::place(const std::vector<PackedSlot>& slots, char* base) {
  tensors.reserve(slots.size());  // pointers to them stay
  for (const PackedSlot& slot : slots) {
    const rlk_tensor& like =
        *(slot.output >= 0 ? outputs[static_cast<size_t>(slot.output)] : inputs[static_cast<size_t>(slot.input)]);
    rlk_tensor tensor = like;
    std::vector<int64_t> strides(static_cast<size_t>(like.ndim));
    int64_t stride = 1;
    for (size_t d = strides.size(); d-- > 0;) {
      strides[d] = stride;
      stride *= like.shape[d];
    }
    strides_.push_back(std::move(strides));
    tensor.strides = strides_.back().data();
    tensor.alignment = 256;
    tensor.byte_offset = 0;
    tensor.data = base == nullptr ? nullptr : base + bytes;
    bytes += align_256(bytes_of(tensor));
    tensors.push_back(tensor);
    if (slot.input >= 0) inputs[static_cast<size_t>(slot.input)] = &tensors.back();
    if (slot.output >= 0) outputs[static_cast<size_t>(slot.output)] = &tensors.back();
  }
}

sdk::Support query_packed(AskCall ask, Device& device, const rlk_call_desc& call) {
  sdk::Support answer = ask(device, call);
  if (!would_take_contiguous(answer)) return answer;
  const std::vector<PackedSlot> slots = packed_slots(call);
  if (slots.empty()) return answer;
  const PackedArguments arguments(slots, call, nullptr);
  sdk::Support contiguous = ask(device, described(call, arguments));
  if (contiguous.level == RLK_SUPPORT_NO) return answer;
  for (size_t i = 0; i < slots.size(); ++i) {
    const double copies = (slots[i].input >= 0 ? 1 : 0) + (slots[i].output >= 0 ? 1 : 0);
    // Reads that follow a stride move whole sectors for each number.
    constexpr double kOfSectors = 4;
    contiguous.cost_us +=
        copies * (kLaunchUs + kOfSectors * device.bytes_us(static_cast<double>(bytes_of(arguments.tensors[i]))));
  }
  if (contiguous.workspace_bound != UINT64_MAX) contiguous.workspace_bound += arguments.bytes;
  return contiguous;
}

std::unique_ptr<sdk::Plan> make_packed(AskCall ask, PlanCall plan, Device& device, const rlk_call_desc& call) {
  if (!would_take_contiguous(ask(device, call))) return plan(device, call);
  const std::vector<PackedSlot> slots = packed_slots(call);
  const PackedArguments arguments(slots, call, nullptr);
  const rlk_call_desc contiguous = described(call, arguments);
  std::unique_ptr<sdk::Plan> inner = plan(device, contiguous);
  if (inner == nullptr) return nullptr;
  sdk::detail::take_bound(ask(device, contiguous), *inner);
  return std::make_unique<PackedPlan>(device, slots, arguments, std::move(inner));
}

}  // namespace rlk::simt::host

// The plan of every composed operator: the steps of its program, in CNNL's operands.
#include "composed.hpp"

#include <utility>

#include "ids.hpp"
#include "primitives.hpp"

namespace rlk::cambricon {
namespace {

// Numbers of 16 bits are looked at as kInt16, ids of 64 as pairs of kInt32.
CnnlDtype cnnl_dtype(sdk::Dtype dtype) {
  switch (dtype) {
    case sdk::Dtype::bf16:
    case sdk::Dtype::f16:
      return kInt16;
    case sdk::Dtype::boolean:
      return kBool;
    case sdk::Dtype::u8:
    case sdk::Dtype::i8:
      return kUint8;
    case sdk::Dtype::i32:
    case sdk::Dtype::i64:
      return kInt32;
    default:
      return kFloat;
  }
}

Dims dims_of(const composed::Dims& dims) {
  Dims narrow;
  for (const int64_t dim : dims) narrow.push_back(static_cast<int>(dim));
  return narrow;
}

class ComposedPlan final : public ProgramPlan {
public:
  ComposedPlan(Device& device, composed::Recipe recipe) : ProgramPlan(device), recipe_(std::move(recipe)) {}

private:
  void build(Calls& c, const sdk::Run& run, Stream* stream) override {
    const composed::Program program = recipe_(run);
    void* const workspace = program.workspace_bytes > 0 ? c.memory(program.workspace_bytes) : nullptr;
    const uint64_t before_steps = c.mark();
    for (const composed::Step& step : program.steps) {
      c.rewind(before_steps);
      ComposedStep own;
      for (const composed::Operand& operand : step.in) own.in.push_back(operand_of(c, run, workspace, operand));
      own.number = step.number;
      own.whole = step.whole;
      if (step.out.place == composed::Operand::Place::record) {
        if (stream != nullptr) own.record = stream->error_record(run.is_capturing());
        own.tag = static_cast<int32_t>(run.tag());
      } else {
        own.out = operand_of(c, run, workspace, step.out);
      }
      emit_of(step.primitive)(c, own);
    }
    if (!program.error) return;
    c.rewind(before_steps);
    record_known_error(c, *program.error, static_cast<int32_t>(run.tag()),
                       stream != nullptr ? stream->error_record(run.is_capturing()) : nullptr);
  }

  // As the first error of one row.
  static void record_known_error(Calls& c, const composed::DataError& error, int32_t tag, int32_t* record) {
    const Operand score = c.scratch(kFloat, {1}), told = c.scratch(kInt32, {3, 1});
    const int32_t fields[] = {error.kind, static_cast<int32_t>(error.value), static_cast<int32_t>(error.value >> 32)};
    c.fill(score, 1.0F);
    for (int i = 0; i < 3; ++i) c.fill(rows(told, i, 1), fields[i]);
    record_first_error(c, {score, told, static_cast<int32_t>(error.row), tag, record});
  }

  static Operand operand_of(Calls& c, const sdk::Run& run, void* workspace, const composed::Operand& from) {
    using Place = composed::Operand::Place;
    Dims dims = dims_of(from.dims);
    if (from.place == Place::number) {
      Operand number = c.scratch(cnnl_dtype(from.dtype), dims);
      if (from.dtype == sdk::Dtype::i32)
        c.fill(number, static_cast<int32_t>(from.number));
      else
        c.fill(number, static_cast<float>(from.number));
      return number;
    }
    void* const start = from.place == Place::workspace ? workspace
                        : from.place == Place::input   ? sdk::data_of(run.input(from.index))
                                                       : sdk::data_of(run.output(from.index));
    // While it measures, the workspace begins at null.
    void* const first =
        reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(start) + static_cast<uintptr_t>(from.byte_offset));
    const bool is_pairs = from.dtype == sdk::Dtype::i64;
    if (is_pairs) dims.push_back(2);
    Operand operand{first, cnnl_dtype(from.dtype), dims};
    if (composed::is_dense(from.dims, from.strides)) return operand;
    operand.strides = dims_of(from.strides);
    if (!is_pairs) return operand;
    for (int& stride : operand.strides) stride *= 2;
    operand.strides.push_back(1);
    return operand;
  }

  const composed::Recipe recipe_;
};

}  // namespace

const composed::Primitives& Cnnl::primitives() {
  return cambricon::primitives();
}

sdk::Refusal Cnnl::refuse(const rlk_call_desc& desc) {
  return refuse_tensors(desc);
}

std::unique_ptr<sdk::Plan> Cnnl::plan(Device& device, const composed::Shape&, composed::Recipe recipe) {
  return std::make_unique<ComposedPlan>(device, std::move(recipe));
}

}  // namespace rlk::cambricon

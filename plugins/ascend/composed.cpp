// The plan of every composed operator: the steps of its program, in aclnn's operands.
#include "composed.hpp"

#include <map>
#include <optional>
#include <utility>

#include "fused_attention.hpp"
#include "primitives.hpp"
#include "tokens.hpp"

namespace rlk::ascend {
namespace {

class ComposedPlan final : public ProgramPlan {
public:
  ComposedPlan(Device& device, const composed::Shape& shape, composed::Recipe recipe)
      : ProgramPlan(device, shape.inputs, shape.outputs, shape.symbols),
        read_by_host_(shape.host_inputs),
        recipe_(std::move(recipe)) {}

private:
  void append_key(std::vector<int64_t>& key, const sdk::Run& run) const override {
    for (uint32_t i = 0; i < 64; ++i) {
      if ((read_by_host_ >> i & 1) == 0 || run.input(i) == nullptr) continue;
      const Dims values = host_values(run, i);
      key.insert(key.end(), values.begin(), values.end());
    }
  }

  void build(Builder& b, const sdk::Run& run) override {
    const composed::Program program = recipe_(run);
    Operand workspace;
    if (program.workspace_bytes > 0) workspace = b.scratch(kAclUint8, {static_cast<int64_t>(program.workspace_bytes)});
    const int64_t before_steps = b.program().mark();
    for (const composed::Step& step : program.steps) {
      b.program().rewind(before_steps);
      ComposedStep own;
      for (const composed::Operand& operand : step.in) own.in.push_back(operand_of(b, operand, workspace));
      own.number = step.number;
      own.whole = step.whole;
      own.constant = [this](sdk::Dtype dtype, double number) { return constant_of(dtype, number); };
      own.out = operand_of(b, step.out, workspace);
      emit_of(step.primitive)(b, own);
    }
    if (!program.error) return;
    b.program().rewind(before_steps);
    if (!tokens_) tokens_.emplace(constants_, 0);
    add_known_error(b, *tokens_, program.error->kind, program.error->row, program.error->value);
  }

  Operand operand_of(Builder& b, const composed::Operand& from, const Operand& workspace) {
    using From = composed::Operand::Place;
    if (from.place == From::number)
      return sdk::bits_of(from.dtype) <= 16 && from.dtype != sdk::Dtype::boolean ? filled(b, from) : number_of(from);
    Operand operand;
    operand.place = from.place == From::workspace ? Place::workspace
                    : from.place == From::input   ? Place::input
                    : from.place == From::record  ? Place::record
                                                  : Place::output;
    operand.index = from.index;
    operand.byte_offset = from.byte_offset + (from.place == From::workspace ? workspace.byte_offset : 0);
    operand.dtype = acl_dtype(from.dtype);
    operand.dims = from.dims;
    operand.strides = from.strides;
    return operand;
  }

  // A number of 16 bits or fewer, which the device rounds.
  static Operand filled(Builder& b, const composed::Operand& from) {
    Operand made = b.scratch(acl_dtype(from.dtype), from.dims);
    if (sdk::is_floating(from.dtype))
      b.fill(made, static_cast<float>(from.number));
    else
      b.fill(made, static_cast<int64_t>(from.number));
    return made;
  }

  Operand number_of(const composed::Operand& from) {
    Operand operand = constant_of(from.dtype, from.number);
    operand.dims = from.dims;
    operand.strides = from.strides;
    return operand;
  }
  // In the plan's device memory, once.
  Operand constant_of(sdk::Dtype dtype, double number) {
    Operand& made = numbers_[{dtype, composed::bits_of(number)}];
    if (made.place != Place::fixed) {
      made = dtype == sdk::Dtype::f64       ? constants_.add(number)
             : dtype == sdk::Dtype::i32     ? constants_.add(static_cast<int32_t>(number))
             : dtype == sdk::Dtype::i64     ? constants_.add(static_cast<int64_t>(number))
             : dtype == sdk::Dtype::boolean ? constants_.add_bool(number != 0)
                                            : constants_.add(static_cast<float>(number));
    }
    return made;
  }

  const uint64_t read_by_host_;
  const composed::Recipe recipe_;
  std::optional<TokenConstants> tokens_;                        // of programs with a data error
  std::map<std::pair<sdk::Dtype, uint64_t>, Operand> numbers_;  // by their bits
};

}  // namespace

const composed::Primitives& Aclnn::primitives() {
  return ascend::primitives();
}

sdk::Refusal Aclnn::refuse(const rlk_call_desc& desc) {
  return decline_views(desc);
}

std::unique_ptr<sdk::Plan> Aclnn::plan(Device& device, const composed::Shape& shape, composed::Recipe recipe) {
  return std::make_unique<ComposedPlan>(device, shape, std::move(recipe));
}

}  // namespace rlk::ascend

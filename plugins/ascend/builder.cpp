// One method, one aclnn call with its scalars and attributes.
#include "builder.hpp"

namespace rlk::ascend {

template <class Op, class Call>
void Builder::step(const Op& op, Operands inputs, Operands outputs, Call call, bool rebindable) {
  Step step;
  step.name = op.name;
  step.run = op.run;
  step.begin = [&op, call](Descriptors& t, uint32_t tag, uint64_t* bytes, AclExecutor** executor) {
    return call(op.workspace, t, tag, bytes, executor);
  };
  step.inputs = std::move(inputs);
  step.outputs = std::move(outputs);
  step.rebindable = rebindable;
  program_.add(std::move(step));
}

// Phase 1 of a step with the arguments named: t are its tensors.
#define RLK_ASCEND_BEGIN(...)                                                                      \
  [=](auto phase1, Descriptors& t, uint32_t, uint64_t* bytes, AclExecutor** executor) -> int32_t { \
    return phase1(__VA_ARGS__, bytes, executor);                                                   \
  }

void Builder::unary(const UnaryOperator& op, const Operand& x, const Operand& out) {
  step(op, {x}, {out}, RLK_ASCEND_BEGIN(t.in[0], t.out[0]));
}

void Builder::binary(const BinaryOperator& op, const Operand& x, const Operand& y, const Operand& out) {
  step(op, {x, y}, {out}, RLK_ASCEND_BEGIN(t.in[0], t.in[1], t.out[0]));
}

void Builder::with_scalar(const ScalarOperator& op, const Operand& x, AclScalar* y, const Operand& out) {
  step(op, {x}, {out}, RLK_ASCEND_BEGIN(t.in[0], y, t.out[0]));
}

void Builder::cast(const Operand& x, const Operand& out) {
  const int32_t dtype = out.dtype;
  step(r_.Cast, {x}, {out}, RLK_ASCEND_BEGIN(t.in[0], dtype, t.out[0]));
}

void Builder::add_scaled(const Operand& x, const Operand& y, AclScalar* alpha, const Operand& out) {
  step(r_.Add, {x, y}, {out}, RLK_ASCEND_BEGIN(t.in[0], t.in[1], alpha, t.out[0]));
}

void Builder::add_scalar(const Operand& x, AclScalar* y, AclScalar* alpha, const Operand& out) {
  step(r_.Adds, {x}, {out}, RLK_ASCEND_BEGIN(t.in[0], y, alpha, t.out[0]));
}

void Builder::subtract(const Operand& x, const Operand& y, AclScalar* alpha, const Operand& out) {
  step(r_.Sub, {x, y}, {out}, RLK_ASCEND_BEGIN(t.in[0], t.in[1], alpha, t.out[0]));
}

void Builder::clamp(const Operand& x, int64_t low, int64_t high, const Operand& out) {
  AclScalar* const from = program_.scalar(low);
  AclScalar* const to = program_.scalar(high);
  step(r_.Clamp, {x}, {out}, RLK_ASCEND_BEGIN(t.in[0], from, to, t.out[0]));
}

void Builder::where(const Operand& condition, const Operand& x, const Operand& y, const Operand& out) {
  step(r_.SWhere, {condition, x, y}, {out}, RLK_ASCEND_BEGIN(t.in[0], t.in[1], t.in[2], t.out[0]));
}

void Builder::arange(float start, float end, float increment, const Operand& out) {
  AclScalar* const from = program_.scalar(start);
  AclScalar* const to = program_.scalar(end);
  AclScalar* const by = program_.scalar(increment);
  step(r_.Arange, {}, {out}, RLK_ASCEND_BEGIN(from, to, by, t.out[0]));
}

void Builder::arange(int64_t start, int64_t end, int64_t increment, const Operand& out) {
  AclScalar* const from = program_.scalar(start);
  AclScalar* const to = program_.scalar(end);
  AclScalar* const by = program_.scalar(increment);
  step(r_.Arange, {}, {out}, RLK_ASCEND_BEGIN(from, to, by, t.out[0]));
}

void Builder::sum(const Operand& x, int64_t dim, bool keep, const Operand& out) {
  AclIntArray* const dims = program_.ints({dim});
  const int32_t dtype = out.dtype;
  step(r_.ReduceSum, {x}, {out}, RLK_ASCEND_BEGIN(t.in[0], dims, keep, dtype, t.out[0]));
}

void Builder::largest(const Operand& x, int64_t dim, bool keep, const Operand& out) {
  AclIntArray* const dims = program_.ints({dim});
  step(r_.Amax, {x}, {out}, RLK_ASCEND_BEGIN(t.in[0], dims, keep, t.out[0]));
}

void Builder::max(const Operand& x, int64_t dim, bool keep, const Operand& out, const Operand& where) {
  step(r_.MaxDim, {x}, {out, where}, RLK_ASCEND_BEGIN(t.in[0], dim, keep, t.out[0], t.out[1]));
}

void Builder::gather(const Operand& x, int64_t dim, const Operand& index, const Operand& out) {
  step(r_.Gather, {x, index}, {out}, RLK_ASCEND_BEGIN(t.in[0], dim, t.in[1], t.out[0]));
}

void Builder::index_select(const Operand& x, int64_t dim, const Operand& index, const Operand& out) {
  step(r_.IndexSelect, {x, index}, {out}, RLK_ASCEND_BEGIN(t.in[0], dim, t.in[1], t.out[0]));
}

void Builder::product(const Operand& x, const Operand& y, const Operand& out) {
  constexpr int8_t kKeepDtype = 0;
  step(r_.Matmul, {x, y}, {out}, RLK_ASCEND_BEGIN(t.in[0], t.in[1], t.out[0], kKeepDtype));
}

void Builder::sort(const Operand& x, int64_t dim, const Operand& out, const Operand& where) {
  step(r_.Sort, {x}, {out, where}, RLK_ASCEND_BEGIN(t.in[0], true, dim, false, t.out[0], t.out[1]));
}

void Builder::swi_glu(const Operand& x, int64_t dim, const Operand& out) {
  step(r_.SwiGlu, {x}, {out}, RLK_ASCEND_BEGIN(t.in[0], dim, t.out[0]));
}

void Builder::rms_norm(const Operand& x, const Operand& gamma, double eps, const Operand& out, const Operand& rstd) {
  step(r_.RmsNorm, {x, gamma}, {out, rstd}, RLK_ASCEND_BEGIN(t.in[0], t.in[1], eps, t.out[0], t.out[1]));
}

void Builder::add_rms_norm(const Operand& x, const Operand& y, const Operand& gamma, double eps, const Operand& out,
                           const Operand& rstd, const Operand& sum) {
  step(r_.AddRmsNorm, {x, y, gamma}, {out, rstd, sum},
       RLK_ASCEND_BEGIN(t.in[0], t.in[1], t.in[2], eps, t.out[0], t.out[1], t.out[2]));
}

void Builder::softmax(const RowOperator& op, const Operand& x, int64_t dim, const Operand& out) {
  step(op, {x}, {out}, RLK_ASCEND_BEGIN(t.in[0], dim, t.out[0]));
}

void Builder::softmax_backward(const RowGradientOperator& op, const Operand& grad, const Operand& y, int64_t dim,
                               const Operand& out) {
  step(op, {grad, y}, {out}, RLK_ASCEND_BEGIN(t.in[0], t.in[1], dim, t.out[0]));
}

void Builder::rotate(const Operand& x, const Operand& cos, const Operand& sin, int64_t mode, const Operand& out) {
  step(r_.RotaryPositionEmbedding, {x, cos, sin}, {out}, RLK_ASCEND_BEGIN(t.in[0], t.in[1], t.in[2], mode, t.out[0]));
}

// --- updates in place: not rebindable --------------------------------------------------------------------------------

void Builder::copy(const Operand& x, const Operand& out) {
  step(r_.InplaceCopy, {out, x}, {}, RLK_ASCEND_BEGIN(t.in[0], t.in[1]), false);
}

void Builder::fill_with(const Operand& out, AclScalar* value) {
  step(r_.InplaceFillScalar, {out}, {}, RLK_ASCEND_BEGIN(t.in[0], value), false);
}

void Builder::index_copy(const Operand& target, int64_t dim, const Operand& index, const Operand& source) {
  step(r_.InplaceIndexCopy, {target, index, source}, {}, RLK_ASCEND_BEGIN(t.in[0], dim, t.in[1], t.in[2]), false);
}

#undef RLK_ASCEND_BEGIN

void Builder::fill_with_tag(const Operand& out) {
  step(
      r_.InplaceFillScalar, {out}, {},
      [](auto phase1, Descriptors& t, uint32_t tag, uint64_t* bytes, AclExecutor** executor) -> int32_t {
        int64_t value = int64_t{tag} + 1;
        t.scalars.push_back(runtime().aclCreateScalar(&value, kAclInt64));
        return phase1(t.in[0], t.scalars.back(), bytes, executor);
      },
      false);
}

void Builder::fill_bytes(const Operand& out, uint8_t byte) {
  Step step;
  step.outputs = {out};
  step.byte = byte;
  program_.add(std::move(step));
}

}  // namespace rlk::ascend

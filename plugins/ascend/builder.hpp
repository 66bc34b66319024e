// The aclnn operators by name, as steps of a program. Every method adds one call; `out` may be the memory of an input
// where the method works element by element. Shapes broadcast as in the vendor's documentation.
#pragma once

#include "program.hpp"

namespace rlk::ascend {

class Builder {
public:
  explicit Builder(Program& program) : program_(program), r_(runtime()) {}

  Program& program() { return program_; }
  Operand scratch(int32_t dtype, Dims dims) { return program_.scratch(dtype, std::move(dims)); }

  // By what they take: an operator of the runtime and its operands.
  void unary(const UnaryOperator& op, const Operand& x, const Operand& out);
  void binary(const BinaryOperator& op, const Operand& x, const Operand& y, const Operand& out);
  void with_scalar(const ScalarOperator& op, const Operand& x, AclScalar* y, const Operand& out);

  void cast(const Operand& x, const Operand& out);
  void add_scaled(const Operand& x, const Operand& y, AclScalar* alpha, const Operand& out);
  void add_scalar(const Operand& x, AclScalar* y, AclScalar* alpha, const Operand& out);
  void add_scalar(const Operand& x, int64_t y, const Operand& out) {
    add_scalar(x, program_.scalar(y), program_.scalar(int64_t{1}), out);
  }
  void subtract(const Operand& x, const Operand& y, AclScalar* alpha, const Operand& out);
  void multiply(const Operand& x, const Operand& y, const Operand& out) { binary(r_.Mul, x, y, out); }
  void multiply_scalar(const Operand& x, float y, const Operand& out) {
    with_scalar(r_.Muls, x, program_.scalar(y), out);
  }
  void clamp(const Operand& x, int64_t low, int64_t high, const Operand& out);
  void equal(const Operand& x, const Operand& y, const Operand& out) { binary(r_.EqTensor, x, y, out); }
  void less(const Operand& x, const Operand& y, const Operand& out) { binary(r_.LtTensor, x, y, out); }
  void where(const Operand& condition, const Operand& x, const Operand& y, const Operand& out);
  void copy(const Operand& x, const Operand& out);
  void fill(const Operand& out, float value) { fill_with(out, program_.scalar(value)); }
  void fill(const Operand& out, int64_t value) { fill_with(out, program_.scalar(value)); }
  void fill_with(const Operand& out, AclScalar* value);
  // rlk_run.tag + 1 of the execution.
  void fill_with_tag(const Operand& out);
  // Every byte of a contiguous operand.
  void fill_bytes(const Operand& out, uint8_t byte);
  void arange(float start, float end, float increment, const Operand& out);
  void arange(int64_t start, int64_t end, int64_t increment, const Operand& out);
  void sum(const Operand& x, int64_t dim, bool keep, const Operand& out);
  void largest(const Operand& x, int64_t dim, bool keep, const Operand& out);
  // `where` receives INT32 positions.
  void max(const Operand& x, int64_t dim, bool keep, const Operand& out, const Operand& where);
  void gather(const Operand& x, int64_t dim, const Operand& index, const Operand& out);
  void index_select(const Operand& x, int64_t dim, const Operand& index, const Operand& out);
  // Of matrices in the last two dimensions; those before broadcast. fp32 is multiplied as it is.
  void product(const Operand& x, const Operand& y, const Operand& out);
  // Rising and stable, of fp32; `where` receives INT64 positions.
  void sort(const Operand& x, int64_t dim, const Operand& out, const Operand& where);
  // silu of the first half along dim, times the second.
  void swi_glu(const Operand& x, int64_t dim, const Operand& out);
  // rstd: [rows, 1] of fp32.
  void rms_norm(const Operand& x, const Operand& gamma, double eps, const Operand& out, const Operand& rstd);
  void add_rms_norm(const Operand& x, const Operand& y, const Operand& gamma, double eps, const Operand& out,
                    const Operand& rstd, const Operand& sum);
  // Softmax along dim, or its logarithm, and the gradient of x from that of y and y.
  void softmax(const RowOperator& op, const Operand& x, int64_t dim, const Operand& out);
  void softmax_backward(const RowGradientOperator& op, const Operand& grad, const Operand& y, int64_t dim,
                        const Operand& out);
  // x and out: [batch, tokens, heads, D]; cos and sin: [1, tokens, 1, D]. mode: 0 turns the halves of D, 1 neighbours.
  void rotate(const Operand& x, const Operand& cos, const Operand& sin, int64_t mode, const Operand& out);
  void index_copy(const Operand& target, int64_t dim, const Operand& index, const Operand& source);

private:
  using Operands = std::vector<Operand>;
  template <class Op, class Call>
  void step(const Op& op, Operands inputs, Operands outputs, Call call, bool rebindable = true);

  Program& program_;
  const Runtime& r_;
};

}  // namespace rlk::ascend

// How is an operator composed of CNNL calls? The same code runs twice: to measure the workspace, when nothing is
// enqueued, and to enqueue. CNNL takes what descriptors say when it is called, so they live for one call.
#pragma once

#include <functional>

#include "device.hpp"

namespace rlk::cambricon {

using Dims = std::vector<int>;

// A tensor of a call. Without strides it is row-major and dense; only copy() takes others.
struct Operand {
  void* data = nullptr;
  CnnlDtype dtype = kFloat;
  Dims dims;
  Dims strides = {};  // elements
};

// Bytes of a chunk's memory: RLK_CAMBRICON_WORKSPACE_MB (default 256).
int64_t workspace_limit();
int64_t count(const Dims& dims);
// The same memory under other dims, and `number` rows from `first` of the leading dimension.
Operand reshaped(Operand operand, Dims dims);
Operand rows(Operand operand, int first, int number);
Operand operand_of(const rlk_tensor& tensor, CnnlDtype dtype);

// Of a norm of rows: x and y [rows, columns], weight and bias [columns], of one dtype.
struct NormOperands {
  Operand x, weight, bias = {}, y = {};
};

class Calls {
public:
  explicit Calls(Device& device) : device_(device) {}  // measures
  Calls(Stream& stream, const sdk::Run& run);          // enqueues
  bool measures() const { return stream_ == nullptr; }
  uint64_t used() const { return most_used_; }

  // Workspace for the whole program, or until rewind(mark()).
  Operand scratch(CnnlDtype dtype, Dims dims);
  void* memory(uint64_t bytes) { return take(bytes); }  // null while it measures
  uint64_t mark() const { return used_; }
  void rewind(uint64_t mark) { used_ = mark; }

  // Shapes are equal unless a method says otherwise.
  void fill(const Operand& out, float value) { fill_with(out, &value); }
  void fill(const Operand& out, int32_t value) { fill_with(out, &value); }
  void fill_bytes(const Operand& out, uint8_t value);
  void positions(const Operand& out);                            // 0, 1, ... in fp32
  void copy(const Operand& x, const Operand& out);               // either may be strided
  void copy_bytes(const Operand& x, const Operand& out);         // dense
  void convert(int kind, const Operand& x, const Operand& out);  // a cast of CNNL's
  // bf16 numbers, given as kInt16, to the fp32 that they are, and fp32 to the nearest of those, ties to even. Dense.
  void widen(const Operand& x, const Operand& out);
  void narrow(const Operand& x, const Operand& out);
  void upper_halves(const Operand& x, const Operand& out);  // of fp32, dense
  void expand(const Operand& x, const Operand& out);        // sizes of 1 repeat
  void add(const Operand& x, float x_factor, const Operand& y, float y_factor, const Operand& out) {
    combine(kOpAdd, x, x_factor, y, y_factor, out);  // y broadcasts
  }
  void multiply(const Operand& x, const Operand& y, const Operand& out) { combine(kOpMultiply, x, 1, y, 1, out); }
  void divide(const Operand& x, const Operand& y, const Operand& out);
  void scale(const Operand& x, float factor, const Operand& out) { affine(x, factor, 0.0F, out); }
  void affine(const Operand& x, float factor, float plus, const Operand& out) { affine_by(x, &factor, &plus, out); }
  void affine(const Operand& x, int32_t factor, int32_t plus, const Operand& out) { affine_by(x, &factor, &plus, out); }
  void absolute(const Operand& x, const Operand& out);
  void root(const Operand& x, const Operand& out);
  void exp(const Operand& x, const Operand& out);
  void log(const Operand& x, const Operand& out);
  // Along `axis`, which stays with size 1. `where`, if any, receives the first position of the maximum.
  void sum(const Operand& x, int axis, const Operand& out) { reduce(kReduceSum, x, axis, out, nullptr); }
  void max(const Operand& x, int axis, const Operand& out, const Operand* where = nullptr) {
    reduce(kReduceMax, x, axis, out, where);
  }
  void compare(int operation, const Operand& x, const Operand& y, const Operand& out);  // out is of kBool
  void select(const Operand& condition, const Operand& x, const Operand& y, const Operand& out);
  void gather(const Operand& x, int axis, const Operand& index, const Operand& out);
  void index_select(const Operand& x, int axis, const Operand& index, const Operand& out);
  // Rows [n, columns] of `x` to those of the table `out` that index [n, 1] names.
  void put_rows(const Operand& x, const Operand& index, const Operand& out);
  // Of fp32 matrices in the last two dimensions; sizes of 1 before them repeat. With strides: dense with the two
  // exchanged.
  void product(const Operand& x, const Operand& y, const Operand& out);
  // Of each row the places of its largest numbers, the largest first, equals in the order of their places: [n, count].
  void largest_places(const Operand& x, const Operand& where);
  // Of rows in one call; a root mean square has no bias.
  void layer_norm(const NormOperands& norm, float eps);
  void rms_norm(const NormOperands& norm, float eps);

private:
  void fill_with(const Operand& out, const void* value);
  void affine_by(const Operand& x, const void* factor, const void* plus, const Operand& out);
  void narrow_piece(const Operand& x, const Operand& out);
  void combine(int operation, const Operand& x, float x_factor, const Operand& y, float y_factor, const Operand& out);
  void reduce(int operation, const Operand& x, int axis, const Operand& out, const Operand* where);
  void* take(uint64_t bytes);
  // What a call needs beside its operands: `ask` fills in the bytes.
  struct Extra {
    void* data;
    size_t bytes;
  };
  Extra extra(const char* name, const std::function<int(CnnlHandle, size_t*)>& ask);
  template <class Call>
  void call(const char* name, Call&& function) {
    if (stream_ != nullptr) check_cnnl(function(stream_->handle()), name);
  }

  Device& device_;
  Stream* stream_ = nullptr;
  std::byte* workspace_ = nullptr;
  uint64_t workspace_bytes_ = 0, used_ = 0, most_used_ = 0;
};

// A plan that keeps nothing: its program depends on the call's sizes alone.
class ProgramPlan : public sdk::Plan {
public:
  uint64_t prepare(const sdk::Run& run) final;
  void enqueue(sdk::Stream& stream, const sdk::Run& run) final;

protected:
  explicit ProgramPlan(Device& device);
  virtual void build(Calls& calls, const sdk::Run& run, Stream* stream) = 0;
  Device& device_;
};

// Reasons to decline that every operator shares: a function that the installed CNNL lacks, sizes beyond 32 bits, gaps.
struct Needed {
  const char* name;
  bool present;
};
#define RLK_CNNL_NEEDS(name)                           \
  ::rlk::cambricon::Needed {                           \
#name, ::rlk::cambricon::runtime().name != nullptr \
  }
sdk::Refusal refuse_missing(std::initializer_list<Needed> functions);
sdk::Refusal refuse_tensors(const rlk_call_desc& desc);

}  // namespace rlk::cambricon

// How is an operator run as a sequence of aclnn calls? A Program is that sequence for fixed sizes: phase 1 of every
// call happens in plan_prepare, phase 2 in plan_enqueue.
//
// Executors are made repeatable and get their addresses anew at each enqueue, so that one program serves many calls.
// Not so where rebinding is not documented to work (arguments updated in place, the fused attention) or refused: there
// phase 1 is given the final addresses and its executor runs once. Where an address lies in the workspace, and is thus
// unknown in plan_prepare, that phase 1 is repeated in plan_enqueue.
//
// In a capture every step is of that second kind, as in the vendor's example: the graph has the addresses of this one
// execution, and refers to no executor that another one rebinds.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device.hpp"

namespace rlk::ascend {

using Dims = std::vector<int64_t>;

// Where the memory of an operand comes from.
enum class Place { workspace, input, output, fixed, record };

// A tensor of a step: a view of the memory at `place`.
struct Operand {
  Place place = Place::workspace;
  uint32_t index = 0;       // of the input or output
  void* fixed = nullptr;    // address, with Place::fixed
  int64_t byte_offset = 0;  // of the first element from the place's start
  int32_t dtype = kAclFloat;
  Dims dims;
  Dims strides;  // elements
  bool present = true;
  bool in_list = false;  // passed as an aclTensorList of this one tensor

  static Operand absent() {
    Operand none;
    none.present = false;
    return none;
  }
};

int64_t element_bytes(int32_t dtype);
int64_t element_count(const Dims& dims);
Dims contiguous_strides(const Dims& dims);

// The same memory seen with other dims; only for contiguous operands.
Operand reshaped(Operand operand, Dims dims);
// Rows first .. first + count of the leading dimension.
Operand rows(Operand operand, int64_t first, int64_t count);
// All rows from `first`, shortened to `count` elements of a one-dimensional operand.
Operand shifted(Operand operand, int64_t first, int64_t count);

// The descriptors of one phase 1, destroyed with the object unless an executor takes them over.
struct Descriptors {
  Descriptors() = default;
  Descriptors(Descriptors&& other) noexcept;
  Descriptors& operator=(Descriptors&& other) noexcept;
  ~Descriptors() { destroy(); }
  void destroy();
  void forget();  // an executor owns them now

  std::vector<AclTensor*> in, out;    // null where absent or in a list
  std::vector<AclTensorList*> lists;  // of the inputs that are lists, in order; each owns its tensor
  std::vector<AclScalar*> scalars;    // made for this phase 1 alone
};

struct Step {
  // Phase 1, called with the descriptors of `inputs` and `outputs`.
  using Begin = std::function<int32_t(Descriptors&, uint32_t tag, uint64_t*, AclExecutor**)>;
  const char* name = "";
  Phase2 run = nullptr;
  Begin begin;  // empty: a fill of the bytes of outputs[0] with `byte`
  std::vector<Operand> inputs, outputs;
  bool rebindable = true;
  uint8_t byte = 0;
};

// The addresses of one execution.
struct Addresses {
  void* workspace = nullptr;
  const sdk::Run* run = nullptr;
  void* record = nullptr;

  // A number and no pointer: while the shape's workspace is not known, its start is null.
  uintptr_t first_element(const Operand& operand) const;
};

class Program {
public:
  explicit Program(const sdk::Run& example);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // --- while it is built; example must live until seal ---
  // Memory of the workspace for the whole program.
  Operand scratch(int32_t dtype, Dims dims);
  // What was taken since mark() may be taken again: steps run one after the other.
  int64_t mark() const { return scratch_used_; }
  void rewind(int64_t mark) { scratch_used_ = mark; }
  void add(Step step);
  // Scalars and arrays live as long as the program.
  AclScalar* scalar(float value);
  AclScalar* scalar(double value);
  AclScalar* scalar(int64_t value);
  AclIntArray* ints(const Dims& values);
  bool writes_record = false;
  // Phase 1 of every step.
  void seal();

  // --- afterwards ---
  // To be called before every enqueue but the first, with what it will be given.
  void prepare_again(const sdk::Run& run);
  uint64_t workspace_bytes() const { return static_cast<uint64_t>(scratch_bytes_) + operator_bytes_; }
  void enqueue(Stream& stream, const sdk::Run& run);

private:
  struct Prepared;
  void prepare(Prepared& prepared, const sdk::Run& run);
  void run_repeatable(Prepared& prepared, const Addresses& addresses, AclStream stream);
  void run_once(Prepared& prepared, const Addresses& addresses, AclStream stream, uint32_t tag);

  const sdk::Run* example_;
  int64_t scratch_bytes_ = 0, scratch_used_ = 0;  // the most that was taken; what is taken now
  uint64_t operator_bytes_ = 0;                   // the largest workspace of a step; they use it one after the other
  std::vector<std::unique_ptr<Prepared>> steps_;
  std::vector<AclScalar*> scalars_;
  std::vector<AclIntArray*> arrays_;
};

}  // namespace rlk::ascend

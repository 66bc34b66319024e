// A graph of cuDNN's operations as the simulated library keeps it: which engine would take it, and what it computes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace fake_cudnn {

using Dims = std::array<int64_t, 4>;

// cuDNN's numbers.
constexpr int kFloat = 0, kHalf = 2, kInt32 = 4, kBfloat16 = 9, kBoolean = 11;

struct Tensor {
  int64_t id = 0, alignment = 0;
  int dtype = kFloat;
  Dims dims{}, strides{};
  bool is_virtual = false, is_by_value = false;
  int64_t count() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  size_t element_bytes() const { return dtype == kHalf || dtype == kBfloat16 ? 2 : 4; }
  // Bytes from the first element to behind the last.
  size_t span() const;
};
using TensorOf = std::shared_ptr<const Tensor>;

enum class Kind { matmul, pointwise, reduction, reshape };
struct Operation {
  Kind kind;
  int mode = 0;  // of pointwise and reduction
  int64_t axis = -1;
  TensorOf x, b, condition, y;
};

class OperationGraph {
public:
  // "": the operations fit together; else what is wrong with them.
  std::string add(Operation operation);
  // "": an engine takes the graph; else the status (in *status) and the reason that cuDNN would give.
  std::string unsupported(int* status) const;
  bool is_deterministic() const;
  const std::map<int64_t, TensorOf>& tensors() const { return tensors_; }  // all but intermediates, by number
  bool is_written(int64_t id) const;

  // memory: by number, where simulator code reads and writes; of a value that the host passes, a copy.
  void run(const std::map<int64_t, std::byte*>& memory) const;

private:
  std::string letters() const;  // one for each operation

  std::vector<Operation> operations_;
  std::map<int64_t, TensorOf> tensors_, all_;
};

}  // namespace fake_cudnn

// Products of matrices: the call for two of them and the one for batches, which public frameworks call in this way.
// TF32, which is the default, is turned off.
#include "descriptors.hpp"

namespace rlk::cambricon {
namespace {

// What describes a product, the choice of a way to compute it, and that way.
struct Product {
  Owned desc{runtime().cnnlMatMulDescCreate, runtime().cnnlMatMulDescDestroy, "cnnlMatMulDescCreate"};
  Owned algorithm{runtime().cnnlMatMulAlgoCreate, runtime().cnnlMatMulAlgoDestroy, "cnnlMatMulAlgoCreate"};
  Owned choice{runtime().cnnlCreateMatMulHeuristicResult, runtime().cnnlDestroyMatMulHeuristicResult,
               "cnnlCreateMatMulHeuristicResult"};

  void set(int attribute, int32_t value) const {
    check_cnnl(runtime().cnnlSetMatMulDescAttr(desc, attribute, &value, sizeof(value)), "cnnlSetMatMulDescAttr");
  }
};

// As it lies in memory, without strides.
Operand as_stored(Operand matrix) {
  if (matrix.strides.empty()) return matrix;
  std::swap(matrix.dims.back(), *(matrix.dims.end() - 2));
  matrix.strides.clear();
  return matrix;
}

}  // namespace

void Calls::product(const Operand& x, const Operand& y, const Operand& out) {
  const Runtime& r = runtime();
  const Descriptor a(as_stored(x)), b(as_stored(y)), c(out);
  const bool is_batch = out.dims.size() > 2;
  const Product p;
  p.set(kComputeType, kFloat);
  p.set(kTransposesFirst, x.strides.empty() ? 0 : 1);
  p.set(kTransposesSecond, y.strides.empty() ? 0 : 1);
  p.set(kAllowsTf32, 0);
  const Extra more = extra("cnnlGetMatMulAlgoHeuristic", [&](CnnlHandle h, size_t* bytes) {
    void* choice = p.choice;
    int choices = 0;
    const int code = is_batch ? r.cnnlGetBatchMatMulAlgoHeuristic(h, p.desc, a, b, c, nullptr, 1, &choice, &choices)
                              : r.cnnlGetMatMulAlgoHeuristic(h, p.desc, a, b, c, c, nullptr, 1, &choice, &choices);
    if (code != 0) return code;
    return is_batch ? r.cnnlGetBatchMatMulHeuristicResult(choice, p.algorithm, bytes)
                    : r.cnnlGetMatMulHeuristicResult(choice, p.algorithm, bytes);
  });
  const float one = 1, nothing = 0;
  if (is_batch) {
    call("cnnlBatchMatMulBCast_v2", [&](CnnlHandle h) {
      return r.cnnlBatchMatMulBCast_v2(h, p.desc, p.algorithm, &one, a, x.data, b, y.data, &nothing, c, out.data,
                                       more.data, more.bytes);
    });
  } else {
    call("cnnlMatMul_v2", [&](CnnlHandle h) {
      return r.cnnlMatMul_v2(h, p.desc, p.algorithm, &one, a, x.data, b, y.data, &nothing, c, out.data, more.data,
                             more.bytes, c, out.data);
    });
  }
}

}  // namespace rlk::cambricon

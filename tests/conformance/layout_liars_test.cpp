// Does the smoke test notice an implementation that is wrong for tensors of one layout only, and only for large ones?
// For every tensor of some operators there are liars: the CPU's implementation, but wrong where that tensor lies
// transposed, has gaps or runs backwards and has many elements. All of them must be caught.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <string>
#include <vector>

#include "conformance/liars.hpp"
#include "conformance/spoiler.hpp"

namespace rlk::core {
namespace {

constexpr int64_t kMany = 2048;  // elements: the small sizes of declarations have fewer

bool is_long(const rlk_tensor& tensor, int32_t axis) {
  return tensor.shape[axis] > 1;
}

// The first dimension is the fastest.
bool is_transposed(const rlk_tensor& tensor) {
  return tensor.ndim > 1 && is_long(tensor, tensor.ndim - 1) && is_long(tensor, tensor.ndim - 2) &&
         std::abs(tensor.strides[tensor.ndim - 1]) > std::abs(tensor.strides[tensor.ndim - 2]) &&
         tensor.strides[tensor.ndim - 2] != 0;
}
bool has_row_gaps(const rlk_tensor& tensor) {
  const int32_t last = tensor.ndim - 1;
  return tensor.ndim > 1 && tensor.strides[last] == 1 && is_long(tensor, last - 1) &&
         tensor.strides[last - 1] > tensor.shape[last];
}
bool has_steps(const rlk_tensor& tensor) {
  return tensor.ndim > 0 && is_long(tensor, tensor.ndim - 1) && tensor.strides[tensor.ndim - 1] == 2;
}
bool runs_backwards(const rlk_tensor& tensor) {
  for (int32_t i = 0; i < tensor.ndim; ++i) {
    if (is_long(tensor, i) && tensor.strides[i] < 0) return true;
  }
  return false;
}
bool ends_backwards(const rlk_tensor& tensor) {
  return tensor.ndim > 0 && is_long(tensor, tensor.ndim - 1) && tensor.strides[tensor.ndim - 1] < 0;
}

struct Kind {
  const char* name;
  bool (*lies)(const rlk_tensor&);
  size_t least_ndim;
};
constexpr Kind kKinds[] = {{"is transposed", is_transposed, 2},
                           {"has gaps between rows", has_row_gaps, 2},
                           {"has every second number", has_steps, 1},
                           {"runs backwards", runs_backwards, 1},
                           {"runs backwards within rows", ends_backwards, 1}};

size_t ndim_of(const OpDecl& decl, const ArgDecl& arg) {
  const ShapeDecl& shape = arg.shapes[0];
  if (shape.kind == ShapeDecl::Kind::dims) return shape.dims.size();
  return decl.symbols.empty() ? 3 : 0;
}

class LayoutLiars : public ::testing::TestWithParam<const char*> {};

TEST_P(LayoutLiars, AreAllCaughtByTheSmokeTest) {
  const OpDecl& decl = *find_declaration(GetParam());
  const rlk_implementation& honest = liars::honest_implementation(decl);
  std::deque<liars::Spoiler> list;
  for (size_t i = 0; i < decl.inputs.size(); ++i) {
    // Those of few elements have few at any size.
    if (decl.inputs[i].optional || ndim_of(decl, decl.inputs[i]) < 2) continue;
    for (const Kind& kind : kKinds) {
      liars::Spoiler& liar = list.emplace_back(honest, kind.name, std::string(decl.inputs[i].name) + " " + kind.name);
      liar.lies = [i, &kind](liars::PlanMemory&, const liars::Execution& e) {
        const rlk_tensor& tensor = *e.run.inputs[i];
        return liars::elements(tensor) >= kMany && kind.lies(tensor);
      };
    }
  }
  std::vector<const rlk_implementation*> rows;
  for (const liars::Spoiler& liar : list) rows.push_back(&liar.row());
  const liars::Refused refused = liars::refused_by_the_smoke_test(decl, rows);
  for (const liars::Spoiler& liar : list) {
    EXPECT_TRUE(refused.contains(liar.name))
        << decl.name << ": the smoke test misses a plugin that is wrong when a large " << liar.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, LayoutLiars, ::testing::Values("matmul", "linear", "logp", "add", "softmax"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace rlk::core

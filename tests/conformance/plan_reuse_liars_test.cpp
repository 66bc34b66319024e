// Does the smoke test notice, in every operator, a plan that depends on what it must not depend on, and numbers that
// are lost at the ends of their range? For every declared operator there are implementations that are the CPU's, but
// wrong at other addresses, on a second stream or thread, beside another call, with another content of the workspace,
// at each thousandth call; and ones that lose subnormal results or results of large scores. The table of what was tried
// is printed.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/liars.hpp"
#include "conformance/spoiler.hpp"

namespace rlk::core {
namespace {

using liars::Execution;
using liars::PlanMemory;
using liars::Spoiler;

constexpr uint64_t kMark = 0x5eed0f0fdeadbeefu;

uint64_t word_at(const std::byte* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}

// Waits a little for another execution of the plan; only where calls are repeated, or each test would take long.
bool has_company(const PlanMemory& memory, int64_t call) {
  if (call < 200) return memory.inside > 1;
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
  while (memory.inside < 2 && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  return memory.inside > 1;
}

class Liars {
public:
  explicit Liars(const rlk_implementation& honest) : honest_(honest) {
    add("pointers", "writes to the first call's output", [](PlanMemory& memory, const Execution& e) {
      return liars::address(*e.run.outputs[0]) != memory.first_output;
    });
    add("pointers", "reads the first call's input", [](PlanMemory& memory, const Execution& e) {
      return e.run.inputs[0] != nullptr && liars::address(*e.run.inputs[0]) != memory.first_input;
    });
    add("streams", "is wrong on a second stream",
        [](PlanMemory& memory, const Execution& e) { return e.stream != memory.first_stream; });
    add("threads", "is wrong from a second thread",
        [](PlanMemory& memory, const Execution&) { return std::this_thread::get_id() != memory.first_thread; });
    add("threads", "is wrong beside another call",
        [](PlanMemory& memory, const Execution& e) { return has_company(memory, e.call); });
    add("repetition", "is wrong at each 1000th call",
        [](PlanMemory&, const Execution& e) { return e.call % 1000 == 0; });
    add("repetition", "is wrong from the 2000th call on",
        [](PlanMemory&, const Execution& e) { return e.call >= 2000; });
    add_workspace("is wrong where the workspace is zero",
                  [](PlanMemory&, const Execution& e) { return word_at(e.workspace) == 0; });
    add_workspace("is wrong where the workspace is not zero",
                  [](PlanMemory&, const Execution& e) { return word_at(e.workspace) != 0; });
    add_workspace("is wrong where the workspace holds what it left", [](PlanMemory&, const Execution& e) {
      const bool is_kept = word_at(e.workspace) == kMark;
      std::memcpy(e.workspace, &kMark, sizeof(kMark));
      return is_kept;
    });
    add_workspace("is wrong where the workspace was overwritten", [](PlanMemory&, const Execution& e) {
      const bool is_lost = e.call > 1 && word_at(e.workspace) != kMark;
      std::memcpy(e.workspace, &kMark, sizeof(kMark));
      return is_lost;
    });
  }
  const std::deque<Spoiler>& list() const { return list_; }

private:
  using Lies = std::function<bool(PlanMemory&, const Execution&)>;

  Spoiler& add(const char* kind, const char* name, Lies lies) {
    Spoiler& liar = list_.emplace_back(honest_, kind, name);
    liar.lies = std::move(lies);
    return liar;
  }
  void add_workspace(const char* name, Lies lies) { add("workspace", name, std::move(lies)).has_workspace = true; }

  const rlk_implementation& honest_;
  std::deque<Spoiler> list_;
};

// Refuses none that is honest, and every liar.
void expect_all_caught(const OpDecl& decl, const std::deque<Spoiler>& liars, Dtype dtype) {
  Spoiler honest(liars::honest_implementation(decl), "", "honest");
  honest.lies = [](PlanMemory&, const Execution&) { return false; };
  honest.has_workspace = true;
  std::vector<const rlk_implementation*> rows;
  for (const Spoiler& liar : liars) rows.push_back(&liar.row());
  liars::Refused refused = liars::caught_by_the_smoke_test(decl, honest.row(), rows, dtype);
  // How many calls fit into the time that the smoke test has for repetition depends on what else the machine does.
  for (int attempt = 0; attempt < 2; ++attempt) {
    rows.clear();
    for (const Spoiler& liar : liars) {
      if (liar.kind == std::string_view("repetition") && refused.count(liar.name) == 0) rows.push_back(&liar.row());
    }
    if (!rows.empty()) refused.merge(liars::refused_by_the_smoke_test(decl, rows, dtype));
  }
  EXPECT_EQ(refused.count(honest.name), 0u) << "an honest implementation fails: the liars prove nothing";
  std::map<std::string, std::pair<int, int>> table;  // tried, caught
  for (const Spoiler& liar : liars) {
    auto& [tried, caught] = table[liar.kind];
    const auto found = refused.find(liar.name);
    ++tried;
    caught += found != refused.end() ? 1 : 0;
    EXPECT_NE(found, refused.end()) << decl.name << ": the smoke test misses a plugin that " << liar.name;
  }
  std::printf("%-26s", decl.name);
  for (const auto& [kind, row] : table) std::printf(" %s %d/%d", kind.c_str(), row.second, row.first);
  std::printf("\n");
}

using PlanReuseLiars = liars::OfOperator;

TEST_P(PlanReuseLiars, AreAllCaughtByTheSmokeTest) {
  const Liars list(liars::honest_implementation(*GetParam()));
  expect_all_caught(*GetParam(), list.list(), Dtype::f32);
}

INSTANTIATE_TEST_SUITE_P(Operators, PlanReuseLiars, ::testing::ValuesIn(liars::operators_against("PlanReuseLiars")),
                         liars::name_of_operator);

// Each element of a tensor of floating numbers.
template <class Visit>
void for_each(const rlk_tensor& tensor, Visit&& visit) {
  std::vector<int64_t> index(static_cast<size_t>(tensor.ndim), 0);
  for (int64_t i = 0, count = liars::elements(tensor); i < count; ++i) {
    visit(liars::element_at(tensor, index));
    for (size_t axis = index.size(); axis-- > 0;) {
      if (++index[axis] < tensor.shape[axis]) break;
      index[axis] = 0;
    }
  }
}

// f16 alone: fp32 arithmetic holds its subnormal numbers with all their digits.
constexpr uint16_t kExponentOfF16 = 0x7c00;
bool is_f16(const rlk_tensor& tensor) {
  return tensor.dtype.code == RLK_DTYPE_FLOAT && tensor.dtype.bits == 16;
}

bool flush(const rlk_tensor& tensor) {
  bool any = false;
  for_each(tensor, [&](std::byte* element) {
    uint16_t bits = 0;
    std::memcpy(&bits, element, sizeof(bits));
    const bool is_subnormal = (bits & kExponentOfF16) == 0 && (bits & 0x7fff) != 0;
    bits = static_cast<uint16_t>(bits & 0x8000);
    if (is_subnormal) std::memcpy(element, &bits, sizeof(bits));
    any |= is_subnormal;
  });
  return any;
}

// Of a score beyond 89 exp overflows in fp32, unless a maximum is subtracted first; products of such numbers are beyond
// it too.
constexpr float kLarge = 50;
bool has_large_number(const rlk_run& run) {
  bool any = false;
  for (uint32_t i = 0; i < run.n_inputs; ++i) {
    const rlk_tensor* input = run.inputs[i];
    if (input == nullptr || input->dtype.code != RLK_DTYPE_FLOAT || input->dtype.bits != 32) continue;
    for_each(*input, [&](const std::byte* element) {
      float x = 0;
      std::memcpy(&x, element, sizeof(x));
      any |= std::isfinite(x) && std::fabs(x) > kLarge;
    });
  }
  return any;
}

// Scores that come from inputs, of which exp is taken.
bool has_scores(const OpDecl& decl) {
  const std::string name = decl.name;
  const bool are_computed = name.rfind("attention", 0) == 0 || name.rfind("linear_logp", 0) == 0 ||
                            name.rfind("linear_cross_entropy", 0) == 0 || name == "fused_linear_cross_entropy";
  return are_computed || name == "logp_merge" ||
         std::any_of(decl.inputs.begin(), decl.inputs.end(),
                     [](const ArgDecl& input) { return input.domain.wide > 0; });
}

// A loop of one element too many moves what lies behind the inputs to behind the output: other bytes must lie there.
TEST(MemoryLiars, ThatMoveOneElementTooManyAreAllCaught) {
  const auto is_row = [](const rlk_tensor& tensor) { return tensor.ndim == 1 && tensor.strides[0] == 1; };
  for (const auto& [name, from] : {std::pair("copy", 0), std::pair("where", 1), std::pair("where", 2)}) {
    const OpDecl& decl = *find_declaration(name);
    int moved = 0;
    Spoiler liar(liars::honest_implementation(decl), "memory", "moves an element too many");
    liar.lies = [&, input = from](PlanMemory&, const Execution& e) {
      const rlk_tensor &in = *e.run.inputs[input], &out = *e.run.outputs[0];
      const std::vector<int64_t> behind = {liars::elements(out)};
      if (behind[0] == 0 || !is_row(in) || !is_row(out) || liars::elements(in) != behind[0]) return false;
      std::memcpy(liars::element_at(out, behind), liars::element_at(in, behind), sizeof(float));
      ++moved;
      return false;
    };
    const liars::Refused refused = liars::refused_by_the_smoke_test(decl, {&liar.row()});
    EXPECT_GT(moved, 0) << name;
    ASSERT_EQ(refused.size(), 1u) << name;
    EXPECT_EQ(refused.begin()->second, "RED_ZONE") << name;
  }
}

TEST(NumberLiars, ThatAreWrongWhereScoresAreLargeAreAllCaught) {
  int operators = 0;
  for (const OpDecl* decl : liars::all_operators()) {
    if (!has_scores(*decl)) continue;
    std::deque<Spoiler> list;
    list.emplace_back(liars::honest_implementation(*decl), "large", "is wrong where a number is large").lies =
        [](PlanMemory&, const Execution& e) { return has_large_number(e.run); };
    expect_all_caught(*decl, list, Dtype::f32);
    ++operators;
  }
  EXPECT_GE(operators, 11);
}

TEST(NumberLiars, ThatLoseSubnormalResultsAreAllCaught) {
  int operators = 0;
  for (const OpDecl* decl : liars::all_operators()) {
    if (!liars::has_dtype(*decl, Dtype::f16)) continue;
    std::atomic<int> lost{0};
    std::deque<Spoiler> list;
    list.emplace_back(liars::honest_implementation(*decl), "subnormal", "loses subnormal results").lies =
        [&lost](PlanMemory&, const Execution& e) {
          for (uint32_t i = 0; i < e.run.n_outputs; ++i) {
            const rlk_tensor* output = e.run.outputs[i];
            if (output != nullptr && is_f16(*output) && flush(*output)) ++lost;
          }
          return false;
        };
    ConformanceOptions small;
    small.most_elements = liars::kSmall;
    liars::Refused refused;
    if (!test::is_long()) refused = liars::refused_by_the_smoke_test(*decl, {&list[0].row()}, Dtype::f16, small);
    if (refused.empty()) refused = liars::refused_by_the_smoke_test(*decl, {&list[0].row()}, Dtype::f16);
    // Log-probabilities, normalised numbers and tokens are never that small.
    std::printf("%-26s %s\n", decl->name, lost == 0 ? "has none" : refused.empty() ? "MISSED" : "caught");
    EXPECT_EQ(refused.empty(), lost == 0) << decl->name;
    operators += lost > 0 ? 1 : 0;
  }
  EXPECT_GE(operators, 14);
}

}  // namespace
}  // namespace rlk::core

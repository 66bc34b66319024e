// mutants_judge OP [--properties | --full]: is the built-in CPU plugin's operator right, by the smoke test, by the
// properties of every kernel, or by full conformance? Exit 0: it is. Exit 1: the first thing that is wrong is printed
// in one line. mutants.py links it with a kernel that was made wrong.
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/properties.hpp"
#include "conformance/simple/combines_rows.hpp"
#include "conformance/simple/target.hpp"
#include "core/cpu/simd/scratch.hpp"
#include "core/declaration/declaration.hpp"
#include "core/declaration/validate.hpp"
#include "loader/host/services.hpp"

extern "C" const rlk_plugin* rlk_cpu_entry_v1(const rlk_host*, rlk_error*);

namespace rlk::core {
namespace {

constexpr int kRight = 0, kWrong = 1, kUsage = 2;

// "" when nothing is.
std::string what_is_wrong(const OpDecl& decl, const UnitResult& unit) {
  if (unit.verdict != UnitResult::Verdict::verified) return unit.reason_code + ": " + unit.reason;
  const bool rows_alone = decl.batch_invariant && !simple::combines_rows(unit);
  const uint32_t classes = RLK_NUMERICS_ACCURATE | RLK_NUMERICS_DETERMINISTIC |
                           (rows_alone ? uint32_t{RLK_NUMERICS_BATCH_INVARIANT} : 0) |
                           (decl.portable && unit.feature.empty() ? uint32_t{RLK_NUMERICS_PORTABLE} : 0);
  return (unit.numerics & classes) == classes ? "" : "CLASS: a numerics class of " + unit.op + " is not verified";
}

int judge(const OpDecl& decl, bool full) {
  const simple::OpenTarget target(rlk_cpu_entry_v1(loader::host_services(), nullptr), loader::host_services());
  ConformanceOptions options;
  options.smoke = !full;
  options.ops = {decl.name};
  options.one_failure = true;
  for (const DtypeExpr& choice : decl.dtypes[0].choices) {
    options.dtype = name_of(choice.dtype);
    const std::vector<UnitResult> units = run_conformance(target.target(), options);
    if (units.empty()) {
      std::printf("%s %s: nothing was tried\n", decl.name, options.dtype.c_str());
      return kWrong;
    }
    for (const UnitResult& unit : units) {
      const std::string wrong = what_is_wrong(decl, unit);
      if (wrong.empty()) continue;
      std::printf("%s\n", wrong.c_str());
      return kWrong;
    }
  }
  return kRight;
}

int judge_properties(const OpDecl& decl) {
  test::Tried tried;
  for (const std::string& text : test::broken_properties(decl, 1, tried)) {
    std::printf("%s\n", text.c_str());
    return kWrong;
  }
  return kRight;
}

}  // namespace
}  // namespace rlk::core

int main(int count, char** words) {
  using namespace rlk::core;
  rlk::cpu::check_scratch_use();
  const std::string_view stage = count == 3 ? words[2] : "";
  const bool full = stage == "--full", properties = stage == "--properties";
  const OpDecl* decl = count == 2 || full || properties ? find_declaration(words[1]) : nullptr;
  if (decl == nullptr) {
    std::fprintf(stderr, "expected mutants_judge OP [--properties | --full], where `rlk-plugins ops` lists OP\n");
    return kUsage;
  }
  return properties ? judge_properties(*decl) : judge(*decl, full);
}

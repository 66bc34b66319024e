// What no shipped operator declares, through the whole engine: an in-out cache of which a call writes a part, sizes
// that are computed, integers and booleans alone, 8-bit numbers. The right plugin is verified whole; each defect is
// caught.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "conformance/arguments/plugin.hpp"
#include "conformance/simple/mutant.hpp"
#include "conformance/simple/target.hpp"
#include "core/conformance/blocks.hpp"
#include "core/conformance/cases.hpp"
#include "core/conformance/data.hpp"
#include "core/conformance/schedule.hpp"

namespace rlk::core {
namespace {

using Verdict = UnitResult::Verdict;

simple::OpenTarget& target() {
  static simple::OpenTarget target(rlk_arguments_entry(simple::bare_host(), nullptr), simple::bare_host());
  return target;
}

std::vector<UnitResult> run(const std::string& op, bool smoke, bool one_failure = false) {
  ConformanceOptions options;
  options.smoke = smoke;
  if (!op.empty()) options.ops = {op};
  options.one_failure = one_failure;
  return run_conformance(target().target(), options);
}

std::string words(const UnitResult& r) {
  return r.op + " " + r.dtype + " \"" + r.feature + "\": " + r.reason_code + ": " + r.reason;
}

TEST(Arguments, ARightPluginIsVerifiedWhole) {
  simple::set_mutant("");
  for (const bool smoke : {true, false}) {
    std::set<std::string> units;
    for (const UnitResult& r : run("", smoke)) {
      EXPECT_EQ(r.verdict, Verdict::verified) << words(r);
      // Rows were cut out of tensors with computed sizes and out of results in place.
      const bool by_row =
          r.op == "block_dequantize" || r.op == "window_max" || r.op == "shift_left" || r.op == "paged_rows";
      EXPECT_EQ((r.numerics & RLK_NUMERICS_BATCH_INVARIANT) != 0, by_row) << words(r);
      units.insert(r.op + " " + r.dtype + " " + r.feature);
    }
    for (const char* unit : {"cache_append f32 ",
                             "cache_append bf16 ",
                             "cache_append f8_e4m3fn ",
                             "cache_append f4_e2m1fn ",
                             "cache_append f4_e2m1fn strided",
                             "block_dequantize f4_e2m1fn amax",
                             "cache_append f32 counts",
                             "cache_append f32 strided",
                             "block_dequantize f8_e4m3fn ",
                             "block_dequantize f8_e5m2 amax",
                             "block_dequantize f8_e4m3fn block",
                             "window_max f16 stride",
                             "window_max f32 pad",
                             "shift_left i32 ",
                             "shift_left i8 shift",
                             "shift_left u16 lost",
                             "prefix_count  ",
                             "prefix_count  start",
                             "paged_rows bf16 ",
                             "paged_rows f32 factors"}) {
      EXPECT_EQ(units.count(unit), 1u) << unit;
    }
    // Where an output always lies is no feature of a call.
    const auto is_alias = [](const std::string& unit) { return unit.find("alias:") != std::string::npos; };
    EXPECT_TRUE(std::none_of(units.begin(), units.end(), is_alias));
  }
}

struct Defect {
  const char* name;
  const char* op;
  const char* code;
};

TEST(Arguments, EveryDefectIsCaught) {
  for (const Defect& defect : {Defect{"rewrites_untouched", "cache_append", "NOT_KEPT"},
                               {"clears_untouched", "cache_append", "NOT_KEPT"},
                               {"counts_untouched", "cache_append", "NOT_KEPT"},
                               {"next_slot", "cache_append", "WRONG_RESULT"},
                               {"scale_ignored", "cache_append", "WRONG_RESULT"},
                               {"cache_of_the_plan", "cache_append", "STALE_PLAN"},
                               {"block_ignored", "block_dequantize", "WRONG_RESULT"},
                               {"last_block_left_out", "block_dequantize", "NOT_WRITTEN"},
                               {"padded_with_zero", "window_max", "WRONG_RESULT"},
                               {"saturates", "shift_left", "WRONG_RESULT"},
                               {"lost_is_255", "shift_left", "WRONG_RESULT"},
                               {"counts_itself", "prefix_count", "WRONG_RESULT"},
                               {"counts_in_double", "prefix_count", "WRONG_RESULT"},
                               {"reads_behind_length", "paged_rows", "WRONG_RESULT"},
                               {"missing_block_not_told", "paged_rows", "DATA_ERROR_MISSING"}}) {
    simple::set_mutant(defect.name);
    std::set<std::string> codes;
    std::string seen;
    for (const UnitResult& r : run(defect.op, true)) {
      if (r.verdict != Verdict::failed) continue;
      codes.insert(r.reason_code);
      seen = words(r);
    }
    EXPECT_EQ(codes.count(defect.code), 1u) << defect.name << ", last seen: " << seen;
    simple::set_mutant("");
  }
}

TEST(Arguments, AnInOutArgumentIsOneTensorInEveryCase) {
  using namespace conformance;
  const OpDecl& decl = *find_declaration("cache_append");
  int strided = 0, optional = 0;
  schedule(decl, 0, 0, Extent::full, {}, 1, [&](const Case& c, Stage) {
    ConcreteCall call;
    EXPECT_TRUE(resolve(c, call));
    EXPECT_EQ(call.output_alias[RLK_CACHE_APPEND_OUT_CACHE], RLK_CACHE_APPEND_IN_CACHE);
    const Argument& before = call.inputs[RLK_CACHE_APPEND_IN_CACHE];
    const Argument& after = call.outputs[RLK_CACHE_APPEND_OUT_CACHE];
    EXPECT_EQ(before.layout, after.layout) << describe(c, call);
    EXPECT_NE(after.layout, Layout::expanded) << describe(c, call);
    strided += after.layout == Layout::padded;
    EXPECT_EQ(call.inputs[RLK_CACHE_APPEND_IN_COUNTS].present, call.outputs[RLK_CACHE_APPEND_OUT_COUNTS].present);
    optional += call.outputs[RLK_CACHE_APPEND_OUT_COUNTS].present;
    return std::vector<std::string>{""};
  });
  EXPECT_GT(strided, 0);
  EXPECT_GT(optional, 0);
}

TEST(Arguments, ComputedSizesAreMetInEveryCase) {
  using namespace conformance;
  const OpDecl& decl = *find_declaration("block_dequantize");
  std::set<int64_t> blocks;
  schedule(decl, 0, 0, Extent::full, {}, 1, [&](const Case& c, Stage) {
    ConcreteCall call;
    EXPECT_TRUE(resolve(c, call));
    const int64_t columns = call.inputs[RLK_BLOCK_DEQUANTIZE_IN_X].shape[1], block = call.i64(0);
    EXPECT_EQ(call.inputs[RLK_BLOCK_DEQUANTIZE_IN_SCALES].shape[1], (columns + block - 1) / block) << describe(c, call);
    blocks.insert(call.inputs[RLK_BLOCK_DEQUANTIZE_IN_SCALES].shape[1]);
    return std::vector<std::string>{""};
  });
  EXPECT_GE(blocks.size(), 4u);  // none, one, several
}

// Of a block table only what a length covers can be followed, and places without a token hold no number.
TEST(Arguments, WhatIsBehindALengthNamesNothingAndHoldsNothing) {
  using namespace conformance;
  const OpDecl& decl = *find_declaration("paged_rows");
  int behind = 0, hidden = 0, empty = 0, full = 0, more_blocks = 0;
  schedule(decl, 0, 0, Extent::full, {}, 1, [&](const Case& c, Stage) {
    ConcreteCall call;
    EXPECT_TRUE(resolve(c, call));
    const Argument& table = call.inputs[RLK_PAGED_ROWS_IN_BLOCK_TABLE];
    const Argument& cache = call.inputs[RLK_PAGED_ROWS_IN_CACHE];
    const bool is_plain = c.size_choice[1] == 0 && !c.size_given[1];
    const int64_t columns = call.inputs[RLK_PAGED_ROWS_IN_FACTORS].present ? 3 : 2;
    EXPECT_TRUE(!is_plain || table.shape[1] == columns) << describe(c, call);
    more_blocks += is_plain && table.shape[1] == 3;
    fill_inputs(c, 1, call);
    if (c.content != Content::ordinary || table.layout == Layout::expanded) return std::vector<std::string>{""};
    const BlockTable blocks(call, RLK_PAGED_ROWS_IN_BLOCK_TABLE);
    const std::vector<bool> places = blocks.places(cache.shape[0]);
    for (int64_t row = 0; row < blocks.rows(); ++row) {
      empty += blocks.tokens(row) == 0;
      full += blocks.tokens(row) == blocks.columns() * blocks.block();
      for (int64_t m = 0; m < blocks.columns(); ++m) {
        const bool names_block = blocks.entry(row, m) >= 0 && blocks.entry(row, m) < cache.shape[0];
        EXPECT_EQ(names_block, m < blocks.used(row)) << describe(c, call);
        behind += !names_block;
      }
    }
    for (int64_t k = 0; k < cache.count() && cache.layout != Layout::expanded; ++k) {
      const double number = get(cache, k);
      EXPECT_EQ(std::isfinite(number), places[static_cast<size_t>(k)]) << describe(c, call);
      hidden += !std::isfinite(number);
    }
    return std::vector<std::string>{""};
  });
  for (const int count : {behind, hidden, empty, full, more_blocks}) EXPECT_GT(count, 0);
}

// 70 parameters: sets of them are wider than a machine word, so that parameter 69 is not mistaken for parameter 5.
TEST(Arguments, ManySettingsAreToldApart) {
  using namespace conformance;
  constexpr int kCount = 70;
  static const double kTries[] = {1};
  static const Expr kSizes[] = {{"5", [](const Values&) -> int64_t { return 5; }}};
  static const Dim kDims[] = {{0, 0}};
  static const ShapeDecl kShapes[] = {{ShapeDecl::Kind::dims, kDims, "[N]"}};
  static const char* const kForms[] = {""};
  std::vector<std::string> names;
  for (int i = 0; i < kCount; ++i) names.push_back("setting_" + std::to_string(i));
  std::vector<ParamDecl> params;
  for (int i = 0; i < kCount; ++i) {
    const auto offset = static_cast<uint32_t>(8 + 8 * i);
    params.push_back(
        {names[static_cast<size_t>(i)].c_str(), "", ParamType::i64, offset, 0, 0, false, false, false, 0, {}, kTries});
  }
  std::vector<int64_t> defaults(1 + kCount, 0);
  const FeatureSetting setting[] = {{kCount - 1, {}, 1.0}};
  const FeatureDecl features_declared[] = {{"the_last", setting, 0, true}};
  const SymbolDecl symbols[] = {{"N", "", true, 0, -1, kSizes}};
  const ArgDecl arguments[] = {{"x", "", {DtypeExpr::Kind::fixed, Dtype::i32, -1}, false, false, -1, kShapes, {}, {}}};
  OpDecl decl{};
  decl.name = "many";
  decl.params_size = static_cast<uint32_t>(defaults.size() * sizeof(int64_t));
  decl.defaults = defaults.data();
  decl.form_param = -1;
  decl.forms = kForms;
  decl.symbols = symbols;
  decl.inputs = arguments;
  decl.params = params;
  decl.features = features_declared;

  Case base;
  base.decl = &decl;
  std::set<std::set<int>> pairs;
  for (const Case& c : pair_cases(base)) {
    std::set<int> tried;
    for (const Variation& v : c.variations) tried.insert(v.try_param);
    pairs.insert(tried);
  }
  EXPECT_EQ(pairs.count({5, kCount - 1}), 1u);

  // The declared feature stands for the last parameter, and for that one only.
  const auto words_of = [&](int changed) {
    Case c = base;
    c.variations.emplace_back();
    c.variations[0].try_param = changed;
    c.variations[0].try_value = 1;
    ConcreteCall call;
    EXPECT_TRUE(resolve(c, call));
    return features(call);
  };
  EXPECT_EQ(words_of(5), std::vector<std::string>{"setting_5"});
  EXPECT_EQ(words_of(kCount - 1), std::vector<std::string>{"the_last"});
}

}  // namespace
}  // namespace rlk::core

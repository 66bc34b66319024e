// Are the generated cases legal, many enough, and what they say they are?
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

#include "core/conformance/conformance.hpp"
#include "core/conformance/data.hpp"
#include "core/conformance/elements.hpp"
#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/orders.hpp"
#include "core/conformance/schedule.hpp"
#include "core/conformance/sizes.hpp"
#include "framework/sample.hpp"

namespace rlk::core::conformance {
namespace {

// Which cases there are depends little on the dtype: of the full suite the ordinary run walks the first one's, and of
// the others the smoke test's.
template <class Visit>
void for_each_case(bool smoke, Visit&& visit) {
  for (const OpDecl& decl : declarations()) {
    for (size_t dtype = 0; dtype < unit_dtype_count(decl); ++dtype) {
      const bool is_short = smoke || (dtype > 0 && !test::is_long());
      for (size_t form = 0; form < decl.forms.size(); ++form) {
        schedule(decl, static_cast<int>(dtype), static_cast<int>(form), is_short ? Extent::smoke : Extent::full, {}, 1,
                 [&](const Case& c, Stage) {
                   ConcreteCall call;
                   EXPECT_TRUE(resolve(c, call)) << decl.name;
                   visit(c, call);
                   return std::vector<std::string>{""};
                 });
      }
    }
  }
}

TEST(Cases, AreLegalByValidation) {
  std::set<std::string> seen;
  for_each_case(false, [&](const Case& c, const ConcreteCall& call) {
    const std::string words = std::string(c.decl->name) + " " + describe(c, call);
    if (!seen.insert(words).second) return;
    const Descriptors tensors(call);
    std::vector<std::byte> storage(c.decl->params_size);
    BoundCall bound;
    rlk_error error{};
    error.struct_size = sizeof(error);
    const rlk_status status =
        validate(*c.decl, call.params.data(), tensors.inputs(), tensors.outputs(), false, storage, bound, &error);
    EXPECT_EQ(status, RLK_OK) << words << ": " << error.text;
    EXPECT_EQ(bound.symbols, call.symbols) << words;
    EXPECT_EQ(bound.present, call.present) << words;
    EXPECT_EQ(bound.form, call.form) << words;
  });
  std::printf("%zu different cases\n", seen.size());
}

// Which algorithm serves a call may depend on two sizes: each pair of switches is tried together where that is cheap.
TEST(Cases, ContainCheapPairsOfSwitches) {
  const rlk_switch given[] = {{sizeof(rlk_switch), 0, "D", 72},         {sizeof(rlk_switch), 0, "D", 200},
                              {sizeof(rlk_switch), 0, "Sq", 129},       {sizeof(rlk_switch), 0, "Tq", 193},
                              {sizeof(rlk_switch), 0, "Sk", 1 << 20},   {sizeof(rlk_switch), 0, nullptr, 9},
                              {sizeof(rlk_switch), 0, "Sq", INT64_MIN}, {sizeof(rlk_switch), 0, "Sq", INT64_MAX}};
  std::vector<const rlk_switch*> switches = {nullptr};
  for (const rlk_switch& change : given) switches.push_back(&change);
  const OpDecl& decl = *find_declaration("attention");
  for (const bool smoke : {true, false}) {
    std::set<std::string> together;
    for (const int form : {0, 1}) {
      for (const Case& c : plain_cases(decl, 0, form, smoke, switches)) {
        std::string words;
        for (size_t i = 0; i < c.size_given.size(); ++i) {
          if (c.size_given[i])
            words += std::string(decl.symbols[i].name) + "=" + std::to_string(*c.size_given[i]) + " ";
        }
        if (std::count(words.begin(), words.end(), '=') < 2) continue;
        together.insert(words);
        EXPECT_EQ(c.brief, smoke) << words;
      }
    }
    EXPECT_EQ(together, (std::set<std::string>{"Sq=129 D=72 ", "Sq=129 D=200 ", "Tq=193 D=72 ", "Tq=193 D=200 "}));
  }
}

TEST(Cases, ContainEveryFeatureAndPairThatTheDeclarationsHave) {
  std::map<std::string, std::set<std::string>> smoke;
  std::map<std::string, std::set<std::set<std::string>>> pairs;
  for_each_case(true, [&](const Case& c, const ConcreteCall& call) {
    const std::vector<std::string> words = features(call);
    for (const std::string& a : words) {
      smoke[c.decl->name].insert(a);
      for (const std::string& b : words) {
        if (a != b) pairs[c.decl->name].insert({a, b});
      }
    }
  });
  const std::set<std::string> logp = {"I=i32",        "O=bf16",    "O=f16",  "bias",        "entropy",
                                      "ignore_index", "keep_mask", "lse",    "mask",        "row_indices",
                                      "softcap",      "strided",   "sum_p2", "temperature", "vocab_shard"};
  EXPECT_EQ(smoke["logp"], logp);
  const std::set<std::string> attention = {"C=i64",       "causal=on",     "causal_alignment=top_left",
                                           "key_mask",    "layout=packed", "lse",
                                           "scale",       "softcap",       "strided",
                                           "window_left", "window_right"};
  EXPECT_EQ(smoke["attention"], attention);
  const std::set<std::string> add = {"alias:out=a", "alias:out=b", "alpha", "strided"};
  EXPECT_EQ(smoke["add"], add);
  const std::set<std::string> backward = {"I=i32",        "O=bf16",           "O=f16",       "alias:grad_logits=logits",
                                          "bias",         "entropy_gradient", "grad_bias",   "grad_lse",
                                          "ignore_index", "keep_mask",        "mask",        "row_indices",
                                          "softcap",      "strided",          "temperature", "vocab_shard"};
  EXPECT_EQ(smoke["logp_backward"], backward);
  std::set<std::string> attention_backward = attention;
  attention_backward.erase("lse");
  attention_backward.insert("grad_lse");
  EXPECT_EQ(smoke["attention_backward"], attention_backward);
  // What only one layout has.
  const auto is_packed = [](const std::string& word) { return word == "C=i64" || word == "layout=packed"; };
  const auto is_dense = [](const std::string& word) { return word == "key_mask"; };
  for (const char* op : {"logp", "logp_backward", "attention", "attention_backward", "add"}) {
    const std::set<std::string>& words = smoke[op];
    for (const std::string& a : words) {
      for (const std::string& b : words) {
        if ((is_packed(a) && is_dense(b)) || (is_packed(b) && is_dense(a))) continue;
        const bool excluded = a.substr(0, 2) == b.substr(0, 2) && (a[1] == '=' || a.rfind("alias", 0) == 0);
        if (excluded || b <= a) continue;
        EXPECT_TRUE(pairs[op].count({a, b})) << op << ": " << a << " with " << b;
      }
    }
  }
}

// A call in place is refused, or staged, where no test had it: every memory that outputs may share with inputs is
// tried, also of arguments that may be left out, and two of a call together.
TEST(Cases, ShareEveryMemoryThatTheDeclarationsAllow) {
  std::map<std::string, std::set<std::string>> tried;
  std::set<std::string> together;
  for_each_case(true, [&](const Case& c, const ConcreteCall& call) {
    int shared = 0;
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      const int32_t input = call.output_alias[i];
      if (input < 0 || c.decl->outputs[i].must_alias >= 0) continue;
      tried[c.decl->name].insert(std::string(c.decl->outputs[i].name) + "=" +
                                 std::string(c.decl->inputs[static_cast<size_t>(input)].name));
      ++shared;
    }
    if (shared > 1) together.insert(c.decl->name);
  });
  for (const OpDecl& decl : declarations()) {
    for (const ArgDecl& output : decl.outputs) {
      for (const int input : output.may_alias) {
        const std::string words =
            std::string(output.name) + "=" + std::string(decl.inputs[static_cast<size_t>(input)].name);
        EXPECT_TRUE(tried[decl.name].count(words)) << decl.name << ": " << words;
      }
    }
  }
  EXPECT_TRUE(together.count("rotary_embedding"));
}

// Cases and their answers are kept by their words: two cases of one name would get each other's.
TEST(Cases, OfEqualWordsAreEqual) {
  std::map<std::string, ConcreteCall> seen;
  for_each_case(true, [&](const Case& c, const ConcreteCall& call) {
    const std::string words = std::string(c.decl->name) + " " + describe(c, call);
    const auto [at, is_new] = seen.emplace(words, call);
    if (is_new) return;
    EXPECT_EQ(at->second.present, call.present) << words;
    EXPECT_EQ(at->second.params, call.params) << words;
    EXPECT_EQ(at->second.symbols, call.symbols) << words;
  });
}

// The sizes of each symbol of one operator, of all its forms, in the first dtype.
std::map<std::string, std::set<int64_t>> sizes_of(const OpDecl& decl, bool smoke) {
  std::map<std::string, std::set<int64_t>> sizes;
  for (size_t form = 0; form < decl.forms.size(); ++form) {
    schedule(decl, 0, static_cast<int>(form), smoke ? Extent::smoke : Extent::full, {}, 1, [&](const Case& c, Stage) {
      ConcreteCall call;
      if (!resolve(c, call)) return std::vector<std::string>{};
      for (size_t i = 0; i < decl.symbols.size(); ++i) sizes[decl.symbols[i].name].insert(call.symbols[i]);
      return std::vector<std::string>{""};
    });
  }
  return sizes;
}

TEST(Cases, ReachTheLargestProductionSizeOfEverySymbolWithoutALargeGap) {
  for (const OpDecl& decl : declarations()) {
    std::map<std::string, std::set<int64_t>> sizes = sizes_of(decl, true);
    for (const SymbolDecl& symbol : decl.symbols) {
      if (symbol.production.empty()) continue;
      const int64_t largest = *std::max_element(symbol.production.begin(), symbol.production.end());
      const std::string name = std::string(decl.name) + " " + symbol.name;
      EXPECT_TRUE(sizes[symbol.name].count(largest)) << name << ": not " << largest;
      int64_t before = 1;
      std::set<int64_t> residues;
      for (const int64_t size : sizes[symbol.name]) {
        if (size < 1) continue;
        EXPECT_LE(size, 4 * (before + 16)) << name << ": nothing between " << before << " and " << size;
        before = size;
        if (size >= 16) residues.insert(size % 16);
      }
      EXPECT_TRUE(largest < 128 || residues.size() == 16) << name << ": not every residue of 16";
    }
  }
}

// Which sizes may differ, asked of the rules with sizes of the test's own, with the plain call and with every option.
bool allows_order(const OpDecl& decl, int form, size_t smaller, size_t larger) {
  std::vector<Variation> options = options_of(decl);
  options.insert(options.begin(), Variation());
  for (const Variation& option : options) {
    for (const int64_t low : {1, 2, 3, 4, 6, 8, 16}) {
      for (const int64_t high : {2, 3, 4, 5, 8, 9, 12, 16, 24, 32, 48}) {
        if (low >= high) continue;
        Case c;
        c.decl = &decl;
        c.form = form;
        c.variations = {option};
        c.size_given[smaller] = low;
        c.size_given[larger] = high;
        ConcreteCall call;
        if (resolve(c, call) && call.symbols[smaller] == low && call.symbols[larger] == high) return true;
      }
    }
  }
  return false;
}

// What two sizes have in common in all cases is taken for granted: rows of which there were never fewer than others
// were read where there are none.
TEST(Cases, TryEveryPairOfSizesThatMayDifferInBothOrders) {
  int orders = 0;
  for (const OpDecl& decl : declarations()) {
    for (size_t form = 0; form < decl.forms.size(); ++form) {
      Orders seen;
      schedule(decl, 0, static_cast<int>(form), Extent::smoke, {}, 1, [&](const Case& c, Stage) {
        ConcreteCall call;
        if (resolve(c, call)) seen.note(call);
        return std::vector<std::string>{""};
      });
      for (size_t a = 0; a < decl.symbols.size(); ++a) {
        for (size_t b = 0; b < decl.symbols.size(); ++b) {
          if (a == b || seen.has(a, b)) continue;
          EXPECT_FALSE(allows_order(decl, static_cast<int>(form), a, b))
              << decl.name << " " << decl.forms[form] << ": never " << decl.symbols[a].name << " < "
              << decl.symbols[b].name;
        }
        for (size_t b = 0; b < decl.symbols.size(); ++b) orders += seen.has(a, b) ? 1 : 0;
      }
    }
  }
  std::printf("%d orders\n", orders);
  EXPECT_GT(orders, 300);
}

// What is tried with small tensors only may be wrong in the second block of a kernel. What is never tried alone may
// leave out the first element: another is as large, or the error is small.
TEST(Cases, TryEveryOptionWhereASymbolHasAProductionSizeAndWhereItIsOne) {
  constexpr int64_t kLong = 1024;
  for (const OpDecl& decl : declarations()) {
    // By symbol, of the forms that have it.
    std::map<std::string, std::set<std::string>> options, may_be_one, at_long, at_one;
    for (size_t form = 0; form < decl.forms.size(); ++form) {
      schedule(decl, 0, static_cast<int>(form), Extent::smoke, {}, 1, [&](const Case& c, Stage) {
        ConcreteCall call, plain;
        Case without = c;
        without.variations.clear();
        if (!resolve(c, call)) return std::vector<std::string>{};
        const bool has_plain = resolve(without, plain);
        const std::vector<std::string> of_form = has_plain ? features(plain) : std::vector<std::string>{};
        const bool is_option = std::all_of(c.variations.begin(), c.variations.end(), [](const Variation& v) {
          return v.alias_output < 0 && (v.present != 0 || v.try_param >= 0 || !v.params.empty());
        });
        for (size_t i = 0; i < decl.symbols.size() && is_option; ++i) {
          const auto& production = decl.symbols[i].production;
          if (production.empty() || *std::max_element(production.begin(), production.end()) < kLong) continue;
          if (call.symbols[i] < 0) continue;
          for (const std::string& option : features(call)) {
            if (std::find(of_form.begin(), of_form.end(), option) != of_form.end()) continue;
            if (c.variations.size() == 1) {
              Case one = c;
              one.size_given[i] = 1;  // not legal: two groups of one channel
              options[decl.symbols[i].name].insert(option);
              if (resolve(one, plain)) may_be_one[decl.symbols[i].name].insert(option);
            }
            if (call.symbols[i] >= kLong) at_long[decl.symbols[i].name].insert(option);
            if (call.symbols[i] == 1) at_one[decl.symbols[i].name].insert(option);
          }
        }
        return std::vector<std::string>{""};
      });
    }
    for (const auto& [symbol, known] : options) {
      for (const std::string& option : known) {
        EXPECT_TRUE(at_long[symbol].count(option))
            << decl.name << ": " << option << " is never tried with a large " << symbol;
        EXPECT_TRUE(at_one[symbol].count(option) || !may_be_one[symbol].count(option))
            << decl.name << ": " << option << " is never tried with one " << symbol;
      }
    }
  }
}

TEST(Cases, OfTheFullSuiteContainEveryProductionSize) {
  for (const OpDecl& decl : declarations()) {
    std::map<std::string, std::set<int64_t>> sizes = sizes_of(decl, false);
    for (const SymbolDecl& symbol : decl.symbols) {
      for (const int64_t size : symbol.production) {
        EXPECT_TRUE(sizes[symbol.name].count(size)) << decl.name << " " << symbol.name << ": not " << size;
      }
    }
  }
}

TEST(Cases, AreCounted) {
  std::map<std::string, std::set<std::string>> of[2];
  for (const bool smoke : {false, true})
    for_each_case(smoke,
                  [&](const Case& c, const ConcreteCall& call) { of[smoke][c.decl->name].insert(describe(c, call)); });
  for (const OpDecl& decl : declarations()) {
    const size_t smoke = of[true][decl.name].size(), full = of[false][decl.name].size();
    std::printf("%-14s smoke %5zu, full %5zu\n", decl.name, smoke, full);
    EXPECT_GT(smoke, 50u);
    EXPECT_GT(full, smoke);
  }
}

ConcreteCall filled(const Case& c) {
  ConcreteCall call;
  EXPECT_TRUE(resolve(c, call));
  fill_inputs(c, 1, call);
  return call;
}

// Every generated row keeps a finite number, but what this operator merges are the columns.
bool merges_columns(const Case& c) {
  return std::string_view(c.decl->name) == "logp_merge";
}

constexpr int64_t kSmall = 4096;  // elements

// The answer to a case and the reason why it cannot hide a defect: active, ignored and failing rows are all there.
TEST(Data, OfEveryCaseHasTheDataErrorThatItSays) {
  std::set<std::string> seen;
  int faults = 0;
  for_each_case(true, [&](const Case& c, const ConcreteCall& resolved) {
    const std::string words = std::string(c.decl->name) + " " + describe(c, resolved);
    if (!seen.insert(words).second) return;
    // Which values are errors is the same in every dtype, and at sizes of which golden takes long.
    const bool is_sampled = c.dtype_choice[0] > 0 || elements_of(resolved) > kSmall;
    if (c.content != Content::fault && is_sampled && !test::is_in_sample(words)) return;
    const ConcreteCall call = filled(c);
    const Answer answer = golden_answer(call);
    if (c.content == Content::fault) {
      ++faults;
      EXPECT_FALSE(answer.faults.empty()) << words;
    } else if (c.content != Content::all_minus_inf && !(c.content == Content::minus_inf && merges_columns(c))) {
      EXPECT_TRUE(answer.faults.empty()) << words;
    }
  });
  EXPECT_GT(faults, 100);
}

// Which of them a device meets first is its own affair.
TEST(Data, OfScoresOfMinusInfinityNamesEveryRowThatMayBeTold) {
  std::map<std::string, size_t> most;
  for_each_case(true, [&](const Case& c, const ConcreteCall&) {
    if (c.content != Content::all_minus_inf || c.dtype_choice[0] > 0) return;
    const ConcreteCall call = filled(c);
    const Answer answer = golden_answer(call);
    if (answer.faults.empty() || answer.faults[0].kind != RLK_DATA_NO_FINITE_LOGIT) return;
    std::set<int64_t> told, undefined;
    for (const Fault& fault : answer.faults) told.insert(fault.row);
    most[c.decl->name] = std::max(most[c.decl->name], told.size());
    const std::string_view op = c.decl->name;
    if (op != "logp" && op != "linear_logp") return;
    const std::vector<double>& results = answer.outputs[0].value;  // one of each row
    for (size_t n = 0; n < results.size(); ++n) {
      if (std::isnan(results[n])) undefined.insert(static_cast<int64_t>(n));
    }
    EXPECT_EQ(told, undefined) << op << " " << describe(c, call);
  });
  for (const auto& [op, rows] : most) EXPECT_GE(rows, 3u) << op;
  EXPECT_GE(most.size(), 5u);
}

// Loops that forget their first or last row are as common as those that forget to look, and those that look at one end
// of the range alone.
TEST(Data, HasBadNumbersJustAndFarOutsideAtBothEndsInTheFirstTheLastAndAMiddleRow) {
  std::map<std::string, std::set<std::string>> seen;
  for_each_case(true, [&](const Case& c, const ConcreteCall&) {
    if (c.content != Content::fault || !c.variations.empty()) return;
    const ConcreteCall call = filled(c);
    if (call.faults.size() != 1) return;
    const auto [kind_of_error, row, value] = call.faults[0];
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const Argument& input = call.inputs[i];
      const Domain kind = c.decl->inputs[i].domain.kind;
      if (kind != Domain::id && kind != Domain::row_index && kind != Domain::length) continue;
      if (!input.present || row >= input.count() || get_int(input, row) != value) continue;
      // Of increasing numbers a large one makes every later one look bad.
      const DomainDecl& domain = c.decl->inputs[i].domain;
      const std::string spot = row == 0 ? "first " : row == input.count() - 1 ? "last " : "middle ";
      const int64_t high = domain.high.eval(call.values()) - (kind == Domain::length ? 0 : 1);
      const bool is_above = value > high;
      const int64_t beyond = is_above ? value - high : value;
      const std::string end = std::string(std::abs(beyond) < 4 ? "just " : "far ") + (is_above ? "above" : "below");
      if (domain.increasing && is_above) continue;
      std::set<std::string>& of_input = seen[std::string(c.decl->name) + " " + c.decl->inputs[i].name];
      of_input.insert(spot + end);
      if (domain.increasing) of_input.insert({spot + "just above", spot + "far above"});
    }
  });
  EXPECT_GT(seen.size(), 20u);
  for (const auto& [input, spots] : seen) EXPECT_EQ(spots.size(), 12u) << input;
}

// A batch in which nothing counts is what a mean divides by 0 for.
TEST(Data, OfSomeCaseLeavesOutEveryRowWhereTheOperatorCan) {
  std::set<std::string> can, does;
  for_each_case(true, [&](const Case& c, const ConcreteCall& resolved) {
    ConcreteCall call = resolved;
    if (find_row_mask(call) == nullptr && find_ignorable_ids(call) == nullptr) return;
    can.insert(c.decl->name);
    if (c.content != Content::none_counts) return;
    call = filled(c);
    const Argument* const mask = find_row_mask(call);
    const Argument& rows = mask != nullptr ? *mask : *find_ignorable_ids(call);
    bool all = rows.count() > 0;
    for (int64_t n = 0; n < rows.count(); ++n)
      all = all && (mask != nullptr ? get_int(rows, n) == 0 : is_ignored(call, n));
    if (all) does.insert(c.decl->name);
  });
  EXPECT_EQ(can, does);
  EXPECT_GT(can.size(), 30u);
}

TEST(Data, OfPlainRowsHasIgnoredAndActiveOnes) {
  const OpDecl& decl = *find_declaration("logp");
  const ConcreteCall call = filled(plain_cases(decl, 0, 0, true, {})[0]);
  int ignored = 0;
  for (int64_t n = 0; n < call.symbols[0]; ++n) ignored += is_ignored(call, n) ? 1 : 0;
  EXPECT_EQ(ignored, 1);
}

TEST(Data, OfForwardInputsIsWhatTheForwardGives) {
  const ConcreteCall backward = filled(plain_cases(*find_declaration("logp_backward"), 0, 0, true, {})[0]);
  const ConcreteCall attention = filled(plain_cases(*find_declaration("attention_backward"), 0, 0, true, {})[0]);
  for (const ConcreteCall* call : {&backward, &attention}) {
    const Argument& lse = call->inputs[static_cast<size_t>(input_index(*call->decl, "lse"))];
    int64_t given = 0;
    for (int64_t n = 0; n < lse.count(); ++n) given += get(lse, n) != 0 ? 1 : 0;
    EXPECT_GT(2 * given, lse.count()) << call->decl->name;  // of ignored rows it is 0
  }
}

TEST(Data, OfRowsThatAMaskHidesIsNoNumber) {
  const OpDecl& decl = *find_declaration("attention");
  const auto index = [&](const char* name) { return static_cast<size_t>(input_index(decl, name)); };
  Case c = plain_cases(decl, 0, 0, true, {})[0];
  c.variations.emplace_back().present = uint64_t{1} << index("key_mask");
  const ConcreteCall call = filled(c);
  const Argument &mask = call.inputs[index("key_mask")], &values = call.inputs[index("v")];
  const int64_t columns = values.count() / mask.count();
  int64_t hidden = 0;
  for (int64_t k = 0; k < values.count(); ++k) {
    hidden += get_int(mask, k / columns) == 0 ? 1 : 0;
    EXPECT_EQ(std::isfinite(get(values, k)), get_int(mask, k / columns) != 0) << k;
  }
  EXPECT_GT(hidden, 0);
}

TEST(Data, IsTheSameForTheSameSeedAndOtherForAnother) {
  const Case c = plain_cases(*find_declaration("attention"), 1, 1, true, {})[0];
  ConcreteCall a, b, other;
  ASSERT_TRUE(resolve(c, a) && resolve(c, b) && resolve(c, other));
  fill_inputs(c, 1, a);
  fill_inputs(c, 1, b);
  fill_inputs(c, 2, other);
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    EXPECT_EQ(a.inputs[i].bytes, b.inputs[i].bytes);
  }
  EXPECT_NE(a.inputs[0].bytes, other.inputs[0].bytes);
  EXPECT_NE(a.inputs[3].bytes, other.inputs[3].bytes) << "cu_seqlens must change with the seed";
}

}  // namespace
}  // namespace rlk::core::conformance

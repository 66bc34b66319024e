// Are remembered answers those of the call? A call that differs in anything that golden reads is another question, one
// that lies otherwise in memory is the same, and no more is kept than was said.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <rlk/ops/logp.h>

#include "core/conformance/answers.hpp"
#include "core/conformance/cases.hpp"
#include "core/conformance/data.hpp"

namespace rlk::core::conformance {
namespace {

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

bool same(const Answer& a, const Answer& b) {
  if (a.outputs.size() != b.outputs.size() || a.faults.size() != b.faults.size()) return false;
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    const golden::Output &x = a.outputs[i], &y = b.outputs[i];
    if (!same_bits(x.value, y.value) || !same_bits(x.cond, y.cond) || !same_bits(x.rounded, y.rounded)) return false;
    if (x.exact != y.exact || x.kept != y.kept) return false;
  }
  for (size_t i = 0; i < a.faults.size(); ++i) {
    const Fault &x = a.faults[i], &y = b.faults[i];
    if (x.kind != y.kind || x.row != y.row || x.value != y.value) return false;
  }
  return true;
}

// The first plain call of the operator that has elements.
ConcreteCall filled(const OpDecl& decl, Answers* answers = nullptr) {
  for (const Case& c : plain_cases(decl, 0, 0, true, {})) {
    ConcreteCall call;
    if (!resolve(c, call) || call.outputs[0].count() == 0) continue;
    fill_inputs(c, 1, call, answers);
    return call;
  }
  ADD_FAILURE() << decl.name << " has no plain call";
  return {};
}

TEST(Answers, AreGoldensForEveryOperatorAndTheSameOnesTheSecondTime) {
  for (const OpDecl& decl : declarations()) {
    Answers answers;
    const ConcreteCall call = filled(decl, &answers);
    const auto first = answers.to(call);
    EXPECT_TRUE(same(*first, golden_answer(call))) << decl.name;
    EXPECT_EQ(answers.to(filled(decl, &answers)), first) << decl.name;
  }
}

// Of every operator: parameters, bytes of each input, which outputs are asked for, and planted faults.
TEST(Answers, AreOthersWhenAnythingDiffersThatGoldenReads) {
  size_t changed = 0;
  for (const OpDecl& decl : declarations()) {
    const ConcreteCall call = filled(decl);
    std::vector<ConcreteCall> others;
    const auto another = [&]() -> ConcreteCall& { return others.emplace_back(call); };
    for (size_t i = 0; i < decl.params.size(); ++i) {
      const ParamDecl& param = decl.params[i];
      if (param.type != ParamType::f64 && param.values.size() < 2) continue;  // sizes depend on some integers
      if (static_cast<int>(i) == decl.form_param) continue;
      // The neighbouring number, or another value of the enumeration.
      int64_t bits = 0;
      ConcreteCall other = call;
      std::memcpy(&bits, other.params.data() + param.offset, sizeof(bits));
      bits = param.type == ParamType::f64 || bits == 0 ? bits + 1 : bits - 1;
      std::memcpy(other.params.data() + param.offset, &bits, sizeof(bits));
      const auto holds = [&](const RuleDecl& rule) { return rule.holds.eval(other.values()) != 0; };
      if (std::all_of(decl.rules.begin(), decl.rules.end(), holds)) others.push_back(std::move(other));
    }
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const Argument& input = call.inputs[i];
      if (!input.present || input.dtype > Dtype::f64 || input.bytes.empty()) continue;
      for (const size_t at : {size_t{0}, input.bytes.size() / 2, input.bytes.size() - 1})
        another().inputs[i].bytes[at] ^= std::byte{1};
    }
    for (size_t i = 0; i < call.outputs.size(); ++i) {
      if (decl.outputs[i].optional) another().outputs[i].present = !call.outputs[i].present;
    }
    for (const Fault& fault : {Fault{RLK_DATA_ID_OUT_OF_RANGE, 3, 1}, Fault{RLK_DATA_ID_OUT_OF_RANGE, 2, 1},
                               Fault{RLK_DATA_ID_OUT_OF_RANGE, 2, 4}, Fault{RLK_DATA_ROW_OUT_OF_RANGE, 2, 4}}) {
      another().faults.push_back(fault);
    }
    Answers answers;
    std::set<std::shared_ptr<const Answer>> known = {answers.to(call)};
    for (const ConcreteCall& other : others) {
      const auto answer = answers.to(other);
      EXPECT_TRUE(known.insert(answer).second) << decl.name;
      EXPECT_TRUE(same(*answer, golden_answer(other))) << decl.name;
      ++changed;
    }
  }
  EXPECT_GT(changed, declarations().size() * 5);
}

TEST(Answers, AreTheSameForTensorsThatLieOtherwise) {
  const ConcreteCall call = filled(*find_declaration("logp"));
  ConcreteCall strided = call;
  for (Argument& input : strided.inputs) input.layout = Layout::padded, input.shift = 1;
  strided.outputs[0].layout = Layout::reversed;
  Answers answers;
  EXPECT_EQ(answers.to(strided), answers.to(call));
}

// The same numbers in another shape, and results in another dtype.
TEST(Answers, TellShapesAndDtypesApart) {
  const ConcreteCall call = filled(*find_declaration("add"));
  Answers answers;
  const auto first = answers.to(call);
  ConcreteCall longer = call, wider = call;
  for (std::vector<Argument>* list : {&longer.inputs, &longer.outputs}) {
    for (Argument& argument : *list) {
      if (argument.present) argument.shape.insert(argument.shape.begin(), 1);
    }
  }
  wider.outputs[0].dtype = Dtype::f64;
  EXPECT_NE(answers.to(longer), first);
  EXPECT_NE(answers.to(wider), first);
  EXPECT_EQ(answers.to(call), first);
}

// Zeros added are the same numbers, and bits read as another dtype others.
TEST(Answers, TellInputsApartThatAreThereFromThoseThatAreNot) {
  const OpDecl& decl = *find_declaration("logp");
  const ConcreteCall call = filled(decl);
  const auto bias = static_cast<size_t>(RLK_LOGP_IN_BIAS), logits = static_cast<size_t>(RLK_LOGP_IN_LOGITS);
  ASSERT_FALSE(call.inputs[bias].present);
  ConcreteCall biased = call;
  biased.inputs[bias].present = true;
  biased.inputs[bias].dtype = call.inputs[logits].dtype;
  biased.inputs[bias].shape = {call.inputs[logits].shape.back()};
  biased.inputs[bias].bytes.assign(static_cast<size_t>(biased.inputs[bias].byte_count()), std::byte{0});
  Answers answers;
  const auto first = answers.to(call);
  EXPECT_NE(answers.to(biased), first);
  EXPECT_TRUE(same(*answers.to(biased), golden_answer(biased)));
}

TEST(Answers, KeepNoMoreThanTheyMay) {
  constexpr size_t kMost = 40000;
  Answers answers(kMost);
  ConcreteCall call = filled(*find_declaration("add"));
  const auto first = answers.to(call);
  const ConcreteCall asked_first = call;
  for (int32_t i = 1; i < 200; ++i) {
    std::memcpy(call.inputs[0].bytes.data(), &i, sizeof(i));  // a number of its own each time
    answers.to(call);
    EXPECT_LE(answers.bytes(), kMost);
  }
  EXPECT_GT(answers.bytes(), kMost / 4) << "nothing was kept: this test proves nothing";
  const auto again = answers.to(asked_first);  // made anew, and right
  EXPECT_NE(again, first);
  EXPECT_TRUE(same(*again, *first));
}

TEST(Answers, ServeManyThreads) {
  Answers answers(size_t{1} << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&answers] {
      for (const char* op : {"add", "logp", "softmax", "logp_backward"}) {
        const ConcreteCall call = filled(*find_declaration(op), &answers);
        EXPECT_TRUE(same(*answers.to(call), golden_answer(call))) << op;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace rlk::core::conformance

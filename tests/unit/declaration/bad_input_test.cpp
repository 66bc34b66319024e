// Every operator against every rule of its declaration: the bad calls are derived from the tables, so a new operator is
// covered by being declared. Each bad call must be refused with a text that names operator, argument or parameter or
// rule, what was seen and what was expected.
#include "bad_input.hpp"

#include <cmath>
#include <limits>

namespace rlk::test {
namespace {

TEST(BadInput, TheCallThatTheOthersAreMadeFromIsValid) {
  for_each_form([](const auto& fresh, const OpDecl&, int) {
    OpCall call = fresh();
    rlk_error error;
    EXPECT_EQ(call.validate(error), RLK_OK) << error.text;
  });
}

TEST(BadInput, MissingRequiredArgument) {
  for_each_argument([](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    if (!call.required(arg)) return;
    side(call, output)[i].given = false;
    call.refresh();
    expect_refused(call, quoted(arg, output), "missing", arg.shapes[static_cast<size_t>(call.form)].text);
  });
}

TEST(BadInput, ArrayThatEndsBeforeARequiredArgument) {
  for_each_form([](const auto& fresh, const OpDecl& decl, int) {
    OpCall call = fresh();
    call.output_pointers.clear();
    expect_refused(call, quoted(decl.outputs[0], true), "missing", "dtype");
  });
}

TEST(BadInput, ArgumentOfAnotherForm) {
  for_each_form([](const auto& fresh, const OpDecl& decl, int) {
    for (const bool output : {false, true}) {
      for (size_t i = 0; i < side(decl, output).size(); ++i) {
        OpCall call = fresh();
        if (call.of_form(side(decl, output)[i])) continue;
        Argument& argument = side(call, output)[i];
        argument.given = true;
        argument.shape = {3};
        argument.strides = {1};
        argument.data = call.allocate(64);
        call.refresh();
        const std::string form = decl.forms[static_cast<size_t>(call.form)];
        expect_refused(call, quoted(side(decl, output)[i], output), "is given", "NULL, because");
        expect_refused(call, decl.params[static_cast<size_t>(decl.form_param)].name, form, "Set");
      }
    }
  });
}

TEST(BadInput, TooManyArguments) {
  for_each_form([](const auto& fresh, const OpDecl& decl, int) {
    for (const bool output : {false, true}) {
      OpCall call = fresh();
      auto& pointers = output ? call.output_pointers : call.input_pointers;
      rlk_error error;
      pointers.push_back(nullptr);
      EXPECT_EQ(call.validate(error), RLK_OK) << "absent arguments of a later version are no error: " << error.text;
      pointers.back() = call.input_pointers[0];
      const std::string what = output ? " outputs" : " inputs";
      const size_t declared = side(decl, output).size();
      expect_refused(call, std::to_string(declared + 1) + what, "are passed",
                     "at most " + std::to_string(declared) + what);
    }
  });
}

TEST(BadInput, WrongDtype) {
  for_each_argument([](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    const Dtype right = side(call, output)[i].dtype;
    for (const Dtype wrong : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64, Dtype::i32, Dtype::i64, Dtype::u8}) {
      // A dtype that the argument's variable does not have among its choices, or that the variable's other users lack.
      bool legal = wrong == right;
      if (arg.dtype.kind == core::DtypeExpr::Kind::variable) {
        const auto& choices = call.decl->dtypes[static_cast<size_t>(arg.dtype.variable)].choices;
        for (const core::DtypeExpr& choice : choices) legal = legal || call.resolve(choice) == wrong;
      }
      if (legal) continue;
      side(call, output)[i].dtype = wrong;
      call.refresh();
      expect_refused(call, quoted(arg, output), core::name_of(wrong), "expected");
    }
    side(call, output)[i].dtype = right;
    call.refresh();
    rlk_tensor& tensor = side(call, output)[i].tensor;
    tensor.dtype = {7, 8, 1};
    expect_refused(call, quoted(arg, output), "f8_e3m4", "expected");
    tensor.dtype = {99, 8, 1};
    expect_refused(call, quoted(arg, output), "DLPack code 99", "expected");
    tensor.dtype = core::abi_of(right);
    tensor.dtype.lanes = 2;
    expect_refused(call, quoted(arg, output), "2 lanes", "expected");
  });
}

TEST(BadInput, DtypeThatDisagreesWithAnotherUserOfItsVariable) {
  for_each_argument([](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    if (arg.dtype.kind != core::DtypeExpr::Kind::variable) return;
    const auto variable = static_cast<size_t>(arg.dtype.variable);
    int users = 0;
    for (const bool o : {false, true}) {
      for (size_t k = 0; k < side(*call.decl, o).size(); ++k) {
        const core::DtypeExpr& dtype = side(*call.decl, o)[k].dtype;
        users += side(call, o)[k].given && dtype.kind == arg.dtype.kind && dtype.variable == arg.dtype.variable;
      }
    }
    for (const core::DtypeExpr& choice : call.decl->dtypes[variable].choices) {
      const Dtype wrong = call.resolve(choice);
      if (users < 2 || wrong == side(call, output)[i].dtype) continue;
      side(call, output)[i].dtype = wrong;
      call.refresh();
      expect_refused(call, call.decl->dtypes[variable].name, core::name_of(wrong),
                     core::name_of(call.dtypes[variable]));
      return;
    }
  });
}

TEST(BadInput, Parameters) {
  for_each_form([](const auto& fresh, const OpDecl& decl, int) {
    for (size_t p = 0; p < decl.params.size(); ++p) {
      const ParamDecl& param = decl.params[p];
      const int index = static_cast<int>(p);
      const std::string about = std::string("parameter '") + param.name + "'";
      SCOPED_TRACE(about);
      OpCall call = fresh();
      if (param.type == ParamType::enumeration) {
        for (const int64_t value : {int64_t{-1}, static_cast<int64_t>(param.values.size()), INT64_MAX}) {
          call.set_i64(index, value);
          expect_refused(call, about, std::to_string(value), param.values.back());
        }
        continue;
      }
      if (param.has_min) {
        call.set_param(index, param.min_exclusive ? param.min : param.min - 1);
        expect_refused(call, about, "is ", param.min_exclusive ? "more than" : "at least");
      }
      if (param.type == ParamType::f64) {
        for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
          call.set_f64(index, value);
          if (param.finite || std::isnan(value)) {
            expect_refused(call, about, std::isnan(value) ? "nan" : "inf", param.finite ? "finite" : "infinity");
          }
        }
      }
      if (param.type == ParamType::i64 && param.has_min) {
        call.set_i64(index, INT64_MIN);
        expect_refused(call, about, std::to_string(INT64_MIN), "at least");
      }
    }
  });
}

TEST(BadInput, InfinityIsABoundWhereTheDeclarationSaysSo) {
  for (const OpDecl& decl : declarations()) {
    if (decl.name != std::string("policy_loss")) continue;
    for (size_t p = 0; p < decl.params.size(); ++p) {
      if (decl.params[p].name != std::string("clip_high")) continue;
      OpCall call(decl);
      call.set_f64(static_cast<int>(p), HUGE_VAL);
      rlk_error error;
      EXPECT_EQ(call.validate(error), RLK_OK) << error.text;
      return;
    }
  }
  FAIL() << "policy_loss.clip_high is not declared";
}

TEST(BadInput, Rules) {
  for (const OpDecl& decl : declarations()) {
    for (const core::RuleDecl& rule : decl.rules) {
      SCOPED_TRACE(std::string(decl.name) + " " + rule.name);
      int form = 0;
      for (const core::FeatureSetting& s : rule.violate_params) {
        if (s.param == decl.form_param) form = static_cast<int>(s.evaluate({}));
      }
      OpCall call(decl, form);
      for (const core::SymbolSetting& s : rule.violate_symbols) {
        call.symbols[static_cast<size_t>(s.symbol)] = s.value.eval(call.values());
      }
      for (const core::FeatureSetting& s : rule.violate_params) {
        call.set_param(s.param, s.evaluate(call.values()));
      }
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        if ((rule.violate_present >> i & 1) != 0) call.inputs[i].given = true;
      }
      for (size_t i = 0; i < call.outputs.size(); ++i) {
        if ((rule.violate_present >> (32 + i) & 1) != 0) call.outputs[i].given = true;
      }
      call.rebuild();
      expect_refused(call, std::string("rule '") + rule.name + "'", "seen", rule.holds.text);
      expect_refused(call, rule.hint, "seen", "expected");
    }
  }
}

TEST(BadInput, DataNull) {
  for_each_argument([](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    side(call, output)[i].data = nullptr;
    call.refresh();
    expect_refused(call, quoted(arg, output), "data NULL", "memory");
  });
}

TEST(BadInput, Misaligned) {
  for_each_argument([](OpCall& call, bool output, size_t i, const ArgDecl& arg) {
    Argument& argument = side(call, output)[i];
    if (core::size_of(argument.dtype) > 1) {
      argument.byte_offset = 1;
      argument.alignment = 1;
      call.refresh();
      expect_refused(call, quoted(arg, output), "address 0x", "multiple of its element size");
    }
    argument.byte_offset = static_cast<uint64_t>(core::size_of(argument.dtype));
    argument.alignment = 64;
    call.refresh();
    expect_refused(call, quoted(arg, output), "claims alignment 64", "divides");
    for (const uint32_t alignment : {0u, 3u}) {
      argument.alignment = alignment;
      call.refresh();
      expect_refused(call, quoted(arg, output), "alignment " + std::to_string(alignment), "power of two");
    }
  });
}

bool is_written(const OpDecl& decl, size_t input) {
  return std::any_of(decl.outputs.begin(), decl.outputs.end(),
                     [&](const ArgDecl& output) { return output.must_alias == static_cast<int>(input); });
}
// An output to other memory; what is written in place as a whole.
void move(OpCall& call, size_t output, void* to) {
  call.outputs[output].data = to;
  const int over = call.decl->outputs[output].must_alias;
  if (over >= 0) call.inputs[static_cast<size_t>(over)].data = to;
  call.refresh();
}

TEST(BadInput, OutputThatOverlapsAnInput) {
  for_each_argument([](OpCall& call, bool output, size_t o, const ArgDecl& arg) {
    if (!output) return;
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      if (!call.inputs[i].given || call.inputs[i].shape.empty()) continue;
      if (arg.must_alias >= 0 && is_written(*call.decl, i)) continue;  // OutputsThatOverlap
      bool same_layout = call.inputs[i].shape == call.outputs[o].shape && call.inputs[i].dtype == call.outputs[o].dtype;
      bool may_alias = arg.must_alias == static_cast<int>(i);
      for (const int input : arg.may_alias) may_alias = may_alias || input == static_cast<int>(i);
      void* own = call.outputs[o].data;
      move(call, o, call.inputs[i].data);
      if (!(same_layout && may_alias)) {
        const auto bytes = [](const Argument& a) {
          int64_t count = core::size_of(a.dtype);
          for (const int64_t size : a.shape) count *= size;
          return count;
        };
        // An output larger than the input may reach other inputs behind it: the text names one of them.
        const bool reaches_others = bytes(call.outputs[o]) > bytes(call.inputs[i]);
        const char* name = reaches_others ? "" : call.decl->inputs[i].name;
        expect_refused(call, quoted(arg, true), std::string("overlaps input '") + name, "expected");
      }
      move(call, o, own);
    }
  });
}

TEST(BadInput, OutputThatOverlapsAnInputItMayBeButNotExactly) {
  int tried = 0;
  for_each_argument([&](OpCall& call, bool output, size_t o, const ArgDecl& arg) {
    if (!output) return;
    for (const int i : arg.may_alias) {
      Argument& input = call.inputs[static_cast<size_t>(i)];
      if (input.shape != call.outputs[o].shape) continue;
      call.outputs[o].data = input.data;
      call.outputs[o].byte_offset = static_cast<uint64_t>(core::size_of(input.dtype));
      call.outputs[o].alignment = 1;
      call.refresh();
      expect_refused(call, quoted(arg, true),
                     "overlaps input '" + std::string(call.decl->inputs[static_cast<size_t>(i)].name),
                     "exactly the same memory");
      ++tried;
    }
  });
  EXPECT_GT(tried, 0);
}

TEST(BadInput, OutputsThatOverlap) {
  for_each_argument([](OpCall& call, bool output, size_t o, const ArgDecl& arg) {
    if (!output || o == 0) return;
    move(call, o, call.outputs[0].data);
    const ArgDecl& first = call.decl->outputs[0];
    if (arg.must_alias >= 0) {  // the first meets its input
      expect_refused(call, quoted(first, true), "overlaps input '" + std::string(arg.name), "expected");
    } else {
      expect_refused(call, quoted(arg, true), "overlaps output '" + std::string(first.name), "expected");
    }
  });
}

TEST(BadInput, OutputThatOverlapsItself) {
  for_each_argument([](OpCall& call, bool output, size_t o, const ArgDecl& arg) {
    if (!output || call.outputs[o].shape.empty() || call.outputs[o].shape[0] < 2) return;
    call.outputs[o].strides[0] = 0;
    if (arg.must_alias >= 0) call.inputs[static_cast<size_t>(arg.must_alias)].strides[0] = 0;  // one tensor
    call.refresh();
    expect_refused(call, quoted(arg, true), "strides [0", "memory of its own");
  });
}

TEST(BadInput, ParametersOfAnotherSize) {
  for_each_form([](const auto& fresh, const OpDecl& decl, int) {
    const std::string about = "rlk_" + std::string(decl.name) + "_params";
    OpCall call = fresh();
    const auto set_size = [&](uint32_t size) { std::memcpy(call.params.data(), &size, sizeof(size)); };
    for (const uint32_t size : {0u, 4u, decl.params_size - 1}) {
      set_size(size);
      expect_refused(call, about, "struct_size is " + std::to_string(size), std::to_string(decl.params_size));
    }
    // No byte behind the caller's struct is read for it.
    for (const uint32_t size : {core::kMaxParamsBytes + 8, 0x7ffffff8u, 0xfffffff8u}) {
      set_size(size);
      expect_refused(call, about, "struct_size is " + std::to_string(size), std::to_string(core::kMaxParamsBytes));
    }
    const uint32_t reserved = 1;
    set_size(decl.params_size);
    std::memcpy(reinterpret_cast<char*>(call.params.data()) + 4, &reserved, 4);
    expect_refused(call, about, "reserved is 1", "0");

    OpCall newer = fresh();
    newer.params.push_back(0.0);
    const uint32_t longer = decl.params_size + 8;
    std::memcpy(newer.params.data(), &longer, sizeof(longer));
    rlk_error error;
    EXPECT_EQ(newer.validate(error), RLK_OK) << "a newer struct at its defaults is fine: " << error.text;
    newer.params.back() = 2.5;
    expect_refused(newer, about, std::to_string(longer) + " bytes", std::to_string(decl.params_size));
  });
}

}  // namespace
}  // namespace rlk::test

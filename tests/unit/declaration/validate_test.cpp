// What a valid call yields: completed parameters, symbols, presence, aliasing, features, inferred outputs.
#include <gtest/gtest.h>
#include <rlk/ops/add.h>
#include <rlk/ops/attention.h>
#include <rlk/ops/logp.h>
#include <rlk/ops/logp_backward.h>

#include "framework/op_call.hpp"

namespace rlk::test {
namespace {

using core::BoundCall;
using Words = std::vector<std::string>;

const OpDecl& op(const char* name) {
  return *core::find_declaration(name);
}

Words features(OpCall& call) {
  rlk_error error;
  BoundCall bound;
  EXPECT_EQ(call.validate(error, bound), RLK_OK) << error.text;
  return core::features_of(bound, call.input_pointers, call.output_pointers);
}

TEST(Validate, SymbolsAndPresenceAreBound) {
  OpCall call(op("logp"));
  call.inputs[RLK_LOGP_IN_BIAS].given = true;
  call.outputs[RLK_LOGP_OUT_ENTROPY].given = true;
  call.rebuild();
  rlk_error error;
  BoundCall bound;
  ASSERT_EQ(call.validate(error, bound), RLK_OK) << error.text;
  EXPECT_EQ(bound.symbols[RLK_LOGP_SYM_N], 5);
  EXPECT_EQ(bound.symbols[RLK_LOGP_SYM_R], 5);
  EXPECT_EQ(bound.symbols[RLK_LOGP_SYM_V], 37);
  EXPECT_EQ(bound.present, call.present());
  EXPECT_EQ(bound.output_alias[0], -1);
}

TEST(Validate, SymbolsOfAnotherFormAreMinusOne) {
  OpCall call(op("attention"), RLK_ATTENTION_LAYOUT_PACKED);
  rlk_error error;
  BoundCall bound;
  ASSERT_EQ(call.validate(error, bound), RLK_OK) << error.text;
  EXPECT_EQ(bound.form, RLK_ATTENTION_LAYOUT_PACKED);
  EXPECT_EQ(bound.symbols[RLK_ATTENTION_SYM_SQ], -1);
  EXPECT_EQ(bound.symbols[RLK_ATTENTION_SYM_TQ], 11);
  EXPECT_EQ(bound.symbols[RLK_ATTENTION_SYM_B], 2);
}

TEST(Validate, NullParametersAreDefaults) {
  OpCall call(op("logp"));
  BoundCall bound;
  rlk_error error{sizeof(rlk_error), 0, 0, {}, {}};
  ASSERT_EQ(core::validate(*call.decl, nullptr, call.input_pointers, call.output_pointers, true, {}, bound, &error),
            RLK_OK);
  EXPECT_EQ(bound.params, call.decl->defaults);
}

TEST(Validate, AnOlderStructIsCompletedWithDefaults) {
  OpCall call(op("logp"));
  const uint32_t older = 8 + 2 * 8;  // temperature and softcap
  std::memcpy(call.params.data(), &older, sizeof(older));
  call.set_f64(0, 0.5);
  call.params.resize(older / 8);  // reading past it would be seen by a sanitizer
  call.params.shrink_to_fit();
  BoundCall bound;
  rlk_error error;
  ASSERT_EQ(call.validate(error, bound), RLK_OK) << error.text;
  const auto* params = static_cast<const rlk_logp_params*>(bound.params);
  EXPECT_EQ(bound.params, call.storage.data());
  EXPECT_EQ(params->struct_size, sizeof(rlk_logp_params));
  EXPECT_EQ(params->temperature, 0.5);
  EXPECT_EQ(params->ignore_index, -100);
}

TEST(Validate, ANewerStructIsCutToWhatIsKnown) {
  OpCall call(op("logp"));
  call.params.push_back(0.0);
  const uint32_t newer = sizeof(rlk_logp_params) + 8;
  std::memcpy(call.params.data(), &newer, sizeof(newer));
  BoundCall bound;
  rlk_error error;
  ASSERT_EQ(call.validate(error, bound), RLK_OK) << error.text;
  EXPECT_EQ(static_cast<const rlk_logp_params*>(bound.params)->struct_size, sizeof(rlk_logp_params));
}

TEST(Validate, EmptyTensorsNeedNoMemory) {
  OpCall call(op("logp"));
  call.symbols = {0, 0, 37};
  call.rebuild();
  for (Argument& a : call.inputs) a.data = nullptr;
  for (Argument& a : call.outputs) a.data = nullptr;
  call.refresh();
  rlk_error error;
  EXPECT_EQ(call.validate(error), RLK_OK) << error.text;
}

TEST(Validate, ExactAliasIsReported) {
  OpCall call(op("add"));
  call.outputs[0].data = call.inputs[1].data;
  call.refresh();
  BoundCall bound;
  rlk_error error;
  ASSERT_EQ(call.validate(error, bound), RLK_OK) << error.text;
  EXPECT_EQ(bound.output_alias[0], 1);
  EXPECT_EQ(features(call), Words{"alias:out=b"});
}

TEST(Validate, ColumnSlicesOfOneBufferDoNotOverlap) {
  // Queries, keys, values and the output as slices of one [rows, 4 * 2 * 16] buffer.
  OpCall call(op("attention"), RLK_ATTENTION_LAYOUT_PACKED);
  auto* buffer = static_cast<float*>(call.allocate(5632));
  Argument* slices[] = {&call.inputs[0], &call.inputs[1], &call.inputs[2], &call.outputs[0]};
  for (size_t i = 0; i < 4; ++i) {
    slices[i]->data = buffer + i * 32;
    slices[i]->strides = {128, 16, 1};
  }
  call.refresh();
  rlk_error error;
  EXPECT_EQ(call.validate(error), RLK_OK) << error.text;
  slices[3]->data = buffer + 80;  // half of v and half of the last slice
  call.refresh();
  EXPECT_EQ(call.validate(error), RLK_INVALID_ARGUMENT);
}

TEST(Validate, ABroadcastInputIsLegal) {
  OpCall call(op("add"));
  call.inputs[1].strides = {0};
  call.refresh();
  rlk_error error;
  EXPECT_EQ(call.validate(error), RLK_OK) << error.text;
  EXPECT_EQ(features(call), Words{"strided"});
}

TEST(Validate, NegativeStridesAreLegal) {
  OpCall call(op("add"));
  call.inputs[0].byte_offset = 16;
  call.inputs[0].alignment = 4;
  call.inputs[0].strides = {-1};
  call.refresh();
  rlk_error error;
  EXPECT_EQ(call.validate(error), RLK_OK) << error.text;
}

TEST(Validate, ShapesOnlyIgnoresMemory) {
  OpCall call(op("logp"));
  for (Argument& a : call.inputs) a.data = nullptr;
  for (Argument& a : call.outputs) a.data = nullptr;
  call.refresh();
  rlk_error error;
  BoundCall bound;
  EXPECT_EQ(call.validate(error, bound, /*check_memory=*/false), RLK_OK) << error.text;
}

TEST(Validate, AShortErrorStructIsNotOverrun) {
  OpCall call(op("logp"));
  call.inputs[0].given = false;
  call.refresh();
  struct {
    char bytes[sizeof(rlk_error)];
  } raw;
  std::memset(raw.bytes, 0x5a, sizeof(raw.bytes));
  auto* error = reinterpret_cast<rlk_error*>(raw.bytes);
  error->struct_size = 64;
  BoundCall bound;
  EXPECT_EQ(core::validate(*call.decl, nullptr, call.input_pointers, call.output_pointers, true, {}, bound, error),
            RLK_INVALID_ARGUMENT);
  EXPECT_EQ(error->status, RLK_INVALID_ARGUMENT);
  EXPECT_EQ(raw.bytes[63], '\0');
  for (size_t i = 64; i < sizeof(raw.bytes); ++i) ASSERT_EQ(raw.bytes[i], 0x5a) << i;
}

TEST(Validate, ParametersThatWouldOverflowARuleAreRefused) {
  OpCall call(op("logp"));
  call.set_i64(3, INT64_MAX);  // vocab_start
  call.set_i64(4, 100);        // global_vocab
  rlk_error error;
  EXPECT_EQ(call.validate(error), RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("shard_range"), std::string::npos) << error.text;
}

TEST(Features, PlainCallHasNone) {
  for (const OpDecl& decl : core::declarations()) {
    OpCall call(decl);
    EXPECT_EQ(features(call), Words{}) << decl.name;
  }
}

TEST(Features, Words) {
  OpCall call(op("logp"));
  call.inputs[RLK_LOGP_IN_BIAS].given = true;
  call.outputs[RLK_LOGP_OUT_LSE].given = true;
  call.dtypes[1] = Dtype::i32;
  call.rebuild();
  call.set_f64(1, 3.0);
  EXPECT_EQ(features(call), (Words{"I=i32", "bias", "lse", "softcap"}));

  OpCall packed(op("attention"), RLK_ATTENTION_LAYOUT_PACKED);
  packed.set_i64(1, RLK_ATTENTION_CAUSAL_ON);
  EXPECT_EQ(features(packed), (Words{"causal=on", "layout=packed"}));
}

TEST(Features, ADtypeThatIsTheFirstChoiceByAnotherNameIsNone) {
  OpCall call(op("logp"));
  call.dtypes = {Dtype::f32, Dtype::i64, Dtype::f32};
  call.rebuild();
  EXPECT_EQ(features(call), Words{});
  call.dtypes = {Dtype::bf16, Dtype::i64, Dtype::bf16};
  call.rebuild();
  EXPECT_EQ(features(call), Words{"O=bf16"});
}

TEST(Features, ADeclaredFeatureStandsForItsParametersAndArguments) {
  OpCall call(op("logp_backward"));
  call.set_i64(4, 37 + 11);  // global_vocab; shard 0 has the default vocab_start
  call.inputs[RLK_LOGP_BACKWARD_IN_GRAD_ENTROPY].given = true;
  call.inputs[RLK_LOGP_BACKWARD_IN_ENTROPY].given = true;
  call.rebuild();
  EXPECT_EQ(features(call), (Words{"entropy_gradient", "vocab_shard"}));
}

TEST(Infer, GivesTheShapesAndDtypesOfTheOutputsOfAValidCall) {
  for (const OpDecl& decl : core::declarations()) {
    for (size_t form = 0; form < decl.forms.size(); ++form) {
      OpCall call(decl, static_cast<int>(form));
      for (const core::FeatureDecl& feature : decl.features) {  // outputs that need an input
        if (feature.present >> 32 != 0) call.set(feature);
      }
      call.rebuild();
      std::vector<core::InferredTensor> inferred;
      rlk_error error{sizeof(rlk_error), 0, 0, {}, {}};
      ASSERT_EQ(core::infer_outputs(decl, call.params.data(), call.input_pointers, ~uint64_t{0}, inferred, &error),
                RLK_OK)
          << error.text;
      for (Argument& a : call.outputs) a.given = true;
      call.rebuild();
      ASSERT_EQ(inferred.size(), call.outputs.size());
      for (size_t i = 0; i < inferred.size(); ++i) {
        EXPECT_EQ(inferred[i].dtype, call.outputs[i].dtype) << decl.name << " " << decl.outputs[i].name;
        EXPECT_EQ(inferred[i].shape, call.outputs[i].shape) << decl.name << " " << decl.outputs[i].name;
      }
    }
  }
}

TEST(Infer, RefusesWhatValidationWouldRefuse) {
  OpCall call(op("logp"));
  call.symbols[RLK_LOGP_SYM_R] = 6;
  call.rebuild();
  std::vector<core::InferredTensor> inferred;
  rlk_error error{sizeof(rlk_error), 0, 0, {}, {}};
  EXPECT_EQ(core::infer_outputs(*call.decl, nullptr, call.input_pointers, 0, inferred, &error), RLK_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.text).find("dense_rows"), std::string::npos) << error.text;
}

TEST(Validate, ABrokenRuleNamesTheValuesOfEnumerations) {
  OpCall call(op("policy_loss"));
  for (size_t i = 0; i < call.decl->params.size(); ++i) {
    if (std::string(call.decl->params[i].name) == "kind") call.set_param(static_cast<int>(i), 5);
    if (std::string(call.decl->params[i].name) == "clip_form") call.set_param(static_cast<int>(i), 1);
  }
  call.rebuild();
  rlk_error error;
  BoundCall bound;
  EXPECT_EQ(call.validate(error, bound), RLK_INVALID_ARGUMENT);
  const std::string text = error.text;
  for (const char* part : {"rule 'raw_bounds'", "seen clip_form = raw, kind = gpg;",
                           "expected clip_form == around_one || kind == ppo || kind == cispo || kind == clip_cov;"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(Dtype, NamesAndCodesRoundTrip) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64, Dtype::i32, Dtype::i64, Dtype::u8}) {
    Dtype back;
    ASSERT_TRUE(core::dtype_from(core::abi_of(dtype), back));
    EXPECT_EQ(back, dtype);
    ASSERT_TRUE(core::dtype_from(std::string_view(core::name_of(dtype)), back));
    EXPECT_EQ(back, dtype);
    EXPECT_EQ(core::size_of(dtype) * 8, core::abi_of(dtype).bits);
  }
  Dtype none;
  EXPECT_FALSE(core::dtype_from(rlk_dtype{RLK_DTYPE_FLOAT, 8, 1}, none));
  EXPECT_FALSE(core::dtype_from(std::string_view("float"), none));
}

}  // namespace
}  // namespace rlk::test

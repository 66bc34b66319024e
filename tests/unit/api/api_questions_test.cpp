// Questions to rlk.h and rlk.hpp: what a call would give, which implementation would take it, and the documents.
#include <gtest/gtest.h>
#include <rlk/ops/add.h>
#include <rlk/ops/attention.h>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <rlk/ops/logp.hpp>
#include <rlk/rlk.hpp>
#include <set>
#include <thread>
#include <type_traits>
#include <typeindex>
#include <typeinfo>

#include "tests/unit/api/api.hpp"

namespace rlk::test {
namespace {

struct Inferred {
  std::array<rlk_output_shape, 8> shapes{};
  std::array<rlk_output_shape*, 8> asked{};
  rlk_error error = RLK_ERROR_INIT;

  rlk_status of(const char* name, const void* params, const std::vector<const Tensor*>& inputs,
                std::initializer_list<size_t> outputs) {
    const rlk_op* op = nullptr;
    EXPECT_EQ(rlk_op_find(name, &op, nullptr), RLK_OK);
    for (const size_t i : outputs) {
      shapes[i].struct_size = sizeof(rlk_output_shape);
      asked[i] = &shapes[i];
    }
    std::vector<rlk_tensor> tensors;
    for (const Tensor* tensor : inputs) tensors.push_back(tensor->abi());
    std::vector<const rlk_tensor*> pointers;
    for (const rlk_tensor& tensor : tensors) pointers.push_back(&tensor);
    return rlk_infer_outputs(op, params, pointers.data(), static_cast<uint32_t>(pointers.size()), asked.data(), 8,
                             &error);
  }
};

// An output of memory that may not be written does not compile.
static_assert(std::is_constructible_v<ConstTensor, const float*, rlk_dtype, Extents>);
static_assert(!std::is_constructible_v<Tensor, const float*, rlk_dtype, Extents>);
static_assert(std::is_assignable_v<decltype(ops::Logp::In::logits)&, Tensor>);
static_assert(!std::is_assignable_v<decltype(ops::Logp::Out::logp)&, ConstTensor>);

TEST(Api, EveryStatusHasAnExceptionOfItsOwn) {
  const auto thrown = [](rlk_status status) -> const std::type_info* {
    const rlk_error error = RLK_ERROR_INIT;
    try {
      detail::throw_status(status, error);
    } catch (const Exception& e) {
      EXPECT_EQ(e.status(), status);
      return &typeid(e);
    }
  };
  std::set<std::type_index> kinds;
  for (rlk_status status = RLK_INVALID_ARGUMENT; status >= RLK_WRONG_RESULT; --status) {
    EXPECT_TRUE(kinds.emplace(*thrown(status)).second) << status;
    EXPECT_NE(*thrown(status), typeid(Exception)) << status;
  }
  EXPECT_EQ(*thrown(RLK_WRONG_RESULT - 1), typeid(Exception));
}

TEST(Api, OutputsAreInferredWithoutMemory) {
  const Tensor logits(nullptr, kBf16, {3, 5}), ids(nullptr, kI64, {3});
  Inferred outputs;
  ASSERT_EQ(outputs.of("logp", nullptr, {&logits, &ids}, {0, 2}), RLK_OK) << outputs.error.text;
  for (const size_t i : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(outputs.shapes[i].ndim, 1);
    EXPECT_EQ(outputs.shapes[i].shape[0], 3);
    EXPECT_EQ(outputs.shapes[i].dtype.bits, 32);
  }
  EXPECT_EQ(outputs.shapes[1].ndim, 0);  // the caller did not ask for it
}

TEST(Api, InferenceRefusesWhatACallWouldRefuse) {
  const Tensor logits(nullptr, kF32, {3, 5}), ids(nullptr, kI64, {3, 1});
  Inferred outputs;
  EXPECT_EQ(outputs.of("logp", nullptr, {&logits, &ids}, {0}), RLK_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(outputs.error.text, "'ids' has shape [3, 1]")) << outputs.error.text;
  outputs.shapes[0].struct_size = 4;
  const rlk_op* op = nullptr;
  ASSERT_EQ(rlk_op_find("logp", &op, nullptr), RLK_OK);
  EXPECT_EQ(rlk_infer_outputs(op, nullptr, nullptr, 0, outputs.asked.data(), 8, &outputs.error), RLK_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(outputs.error.text, "outputs[0]->struct_size is 4")) << outputs.error.text;
  EXPECT_EQ(outputs.of("logp", nullptr, {&logits, &ids}, {0, 7}), RLK_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(outputs.error.text, "output 7 is asked for")) << outputs.error.text;
}

TEST(Api, AShapeThatNoMemoryHoldsIsRefusedByTheCallAndNotByItsTensor) {
  const Tensor huge(nullptr, kF32, {int64_t{1} << 40, int64_t{1} << 40}), ids(nullptr, kI64, {3});
  Inferred outputs;
  EXPECT_EQ(outputs.of("logp", nullptr, {&huge, &ids}, {0}), RLK_INVALID_ARGUMENT);
}

TEST(Api, AnUnknownOperatorIsAnsweredWithNearNamesOrWithTheCommandThatListsAll) {
  const rlk_op* op = nullptr;
  rlk_error error = RLK_ERROR_INIT;
  EXPECT_EQ(rlk_op_find("logpp", &op, &error), RLK_NOT_FOUND);
  EXPECT_TRUE(contains(error.text, "logp")) << error.text;
  EXPECT_EQ(rlk_op_find("flash", &op, &error), RLK_NOT_FOUND);
  EXPECT_TRUE(contains(error.text, "rlk-plugins ops lists the")) << error.text;
}

TEST(Api, Documents) {
  const std::string list = runtime().list_json();
  for (const char* part : {"\"schema\"", "\"cpu\"", "registered", "0.1.0"}) EXPECT_TRUE(contains(list, part)) << list;
  char* text = nullptr;
  ASSERT_EQ(rlk_ops_json(&text, nullptr), RLK_OK);
  const std::string ops = text;
  rlk_string_free(text);
  for (const char* part : {"\"logp\"", "\"logp_backward\"", "\"attention\"", "\"add\"", "temperature", "[R, V]",
                           "\"may_alias\"", "\"owner\"", "\"elements\"", "\"active_tokens\""}) {
    EXPECT_TRUE(contains(ops, part)) << part;
  }
  const Stream stream = runtime().stream();
  Logp logp;
  logp.run(stream);
  const std::string counters = runtime().counters_json();
  for (const char* part : {"\"plan_hits\"", "\"calls\"", "\"implementations\"", "\"cpu\""})
    EXPECT_TRUE(contains(counters, part)) << counters;

  const rlk_op* op = nullptr;
  ASSERT_EQ(rlk_op_find("logp", &op, nullptr), RLK_OK);
  const int64_t shape[] = {4, 9}, strides[] = {9, 1}, one[] = {1};
  const rlk_tensor logits = {sizeof(rlk_tensor), 64, nullptr, 0, shape, strides, 2, kBf16};
  const rlk_tensor ids = {sizeof(rlk_tensor), 64, nullptr, 0, shape, one, 1, kI64};
  const rlk_tensor out = {sizeof(rlk_tensor), 64, nullptr, 0, shape, one, 1, kF32};
  const rlk_tensor* inputs[] = {&logits, &ids};
  const rlk_tensor* outputs[] = {&out};
  ASSERT_EQ(rlk_explain_json(stream.get(), op, nullptr, inputs, 2, outputs, 1, nullptr, &text, nullptr), RLK_OK);
  const std::string explained = text;
  rlk_string_free(text);
  for (const char* part : {"\"chosen\"", "\"taken\"", "\"numerics\"", "\"cost_us\""})
    EXPECT_TRUE(contains(explained, part)) << explained;
}

TEST(Api, CountersAreTextForPrometheus) {
  const Runtime own;
  {
    const Stream stream = own.stream();
    Logp logp;
    for (int i = 0; i < 3; ++i) logp.run(stream);
  }
  const std::string text = own.counters_prometheus();
  EXPECT_TRUE(contains(text, "# TYPE rlk_calls_total counter\nrlk_calls_total{op=\"logp\"} 3\n")) << text;
  EXPECT_TRUE(contains(text, "rlk_implementation_calls_total{op=\"logp\",plugin=\"cpu\",implementation=\"")) << text;
  EXPECT_FALSE(contains(text, "whiten")) << text;
}

TEST(Api, ExplainOfTheCppApiNamesWhoTakesTheCall) {
  const Stream stream = runtime().stream();
  ops::Logp logp;
  logp.in.logits = Tensor(nullptr, kF32, {4, 9});
  logp.in.ids = Tensor(nullptr, kI64, {4});
  logp.out.logp = Tensor(nullptr, kF32, {4});
  EXPECT_TRUE(contains(logp.explain(stream), "\"chosen\"")) << logp.explain(stream);
  logp.in.ids = Tensor(nullptr, kI64, {5});
  EXPECT_THROW(logp.explain(stream), Exception);
}

}  // namespace
}  // namespace rlk::test

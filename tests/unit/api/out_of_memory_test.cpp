// librlk when host memory runs out, at one allocation after the other: a status, never an end of the process or a wait
// for ever; and with memory again everything works.
#include "framework/failing_allocations.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <functional>

#include "unit/api/api.hpp"

namespace rlk::test {
namespace {

using rlk::testing::FailingAllocations;
using Mode = FailingAllocations::Mode;

rlk_error fresh() {
  rlk_error error{};
  error.struct_size = sizeof(error);
  return error;
}

// A runtime by the C functions, so that every status is seen.
struct Program {
  rlk_runtime* runtime = nullptr;
  rlk_stream* stream = nullptr;
  Logp logp;
  rlk_error error = fresh();

  rlk_status create() { return rlk_runtime_create(nullptr, &runtime, &error); }
  rlk_status open() { return rlk_stream_create(runtime, "cpu", 0, 0, &stream, &error); }

  template <class Function>
  rlk_status with_arguments(const Function& function) {
    const int64_t shape[] = {logp.rows, logp.vocabulary}, strides[] = {logp.vocabulary, 1}, one[] = {1};
    const auto tensor = [](const void* data, rlk_dtype dtype, int32_t ndim, const int64_t* sizes,
                           const int64_t* steps) {
      return rlk_tensor{sizeof(rlk_tensor), 8, const_cast<void*>(data), 0, sizes, steps, ndim, dtype};
    };
    const rlk_tensor logits = tensor(logp.logits.data(), kF32, 2, shape, strides),
                     ids = tensor(logp.ids.data(), kI64, 1, shape, one),
                     out = tensor(logp.logp.data(), kF32, 1, shape, one);
    const rlk_tensor *inputs[] = {&logits, &ids}, *outputs[] = {&out};
    const rlk_op* op = nullptr;
    const rlk_status status = rlk_op_find("logp", &op, &error);
    return status != RLK_OK ? status : function(op, inputs, outputs);
  }
  rlk_status call() {
    return with_arguments([&](const rlk_op* op, const rlk_tensor* const* inputs, const rlk_tensor* const* outputs) {
      return rlk_call(stream, op, nullptr, inputs, 2, outputs, 1, nullptr, &error);
    });
  }
  rlk_status explain() {
    return with_arguments([&](const rlk_op* op, const rlk_tensor* const* inputs, const rlk_tensor* const* outputs) {
      char* document = nullptr;
      const rlk_status status =
          rlk_explain_json(stream, op, nullptr, inputs, 2, outputs, 1, nullptr, &document, &error);
      rlk_string_free(document);
      return status;
    });
  }
  rlk_status end() {
    const rlk_status ended = rlk_stream_destroy(stream, &error);
    if (ended != RLK_INVALID_ARGUMENT) stream = nullptr;
    const rlk_status status = rlk_runtime_destroy(runtime, &error);
    if (status == RLK_OK) runtime = nullptr;
    return status != RLK_OK ? status : ended;
  }
  bool is_right() const {
    for (size_t row = 0; row < 3; ++row)
      if (std::fabs(logp.logp[row] - logp.expected_logp(row)) > 1e-4) return false;
    return true;
  }
};

// "" or what is wrong.
std::string try_one(uint64_t n, Mode mode, const std::function<void(Program&)>& before,
                    const std::function<rlk_status(Program&)>& act, bool* failed) {
  Program program;
  before(program);
  FailingAllocations::arm(n, mode);
  const rlk_status status = act(program);
  *failed = FailingAllocations::disarm();
  const auto wrong = [&](const char* what) {
    return std::string(what) + ", allocation " + std::to_string(n) + ": " + std::to_string(status) + " " +
           program.error.text;
  };
  if (status != RLK_OK && (status != RLK_OUT_OF_MEMORY || !*failed)) return wrong("an unexpected status");
  if (status != RLK_OK && program.error.text[0] == '\0') return wrong("no text");
  if (program.runtime == nullptr && program.create() != RLK_OK) return wrong("then no runtime can be made");
  if (program.stream == nullptr && program.open() != RLK_OK) return wrong("then no stream can be made");
  if (program.call() != RLK_OK || !program.is_right()) return wrong("then a call does not work");
  if (program.end() != RLK_OK) return wrong("then it does not end");
  return "";
}

class OutOfMemory : public ::testing::TestWithParam<Mode> {};

TEST_P(OutOfMemory, OfAProgramThatHasBegun) {
  const auto opened = [](Program& program) {
    EXPECT_EQ(program.create(), RLK_OK) << program.error.text;
    EXPECT_EQ(program.open(), RLK_OK) << program.error.text;
  };
  const auto used = [&](Program& program) {
    opened(program);
    EXPECT_EQ(program.call(), RLK_OK) << program.error.text;
  };
  const struct {
    const char* name;
    std::function<void(Program&)> before;
    std::function<rlk_status(Program&)> act;
  } stories[] = {
      {"another runtime", [](Program&) {}, [](Program& program) { return program.create(); }},
      {"a stream", [](Program& program) { EXPECT_EQ(program.create(), RLK_OK); },
       [](Program& program) { return program.open(); }},
      {"a call", opened, [](Program& program) { return program.call(); }},
      {"an explanation", used, [](Program& program) { return program.explain(); }},
      {"the end", used,
       [](Program& program) {
         const rlk_status status = program.end();
         if (status != RLK_OK) FailingAllocations::relent();
         return status;
       }},
  };
  Program keeps_the_process_searched;  // so that a search for plugins does not begin each time
  opened(keeps_the_process_searched);
  ASSERT_EQ(keeps_the_process_searched.call(), RLK_OK);
  for (const auto& story : stories) {
    uint64_t n = 1;
    for (bool failed = true; failed; ++n) {
      alarm(120);
      ASSERT_EQ(try_one(n, GetParam(), story.before, story.act, &failed), "") << story.name;
    }
    std::printf("| %-17s | %llu allocations failed |\n", story.name, static_cast<unsigned long long>(n - 2));
  }
  alarm(0);
  EXPECT_EQ(keeps_the_process_searched.end(), RLK_OK);
}

INSTANTIATE_TEST_SUITE_P(Everywhere, OutOfMemory, ::testing::Values(Mode::once, Mode::from_there_on),
                         [](const auto& instance) { return instance.param == Mode::once ? "once" : "from_there_on"; });

}  // namespace
}  // namespace rlk::test

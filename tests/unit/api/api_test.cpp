// rlk.h and rlk.hpp through the built-in CPU: what an application sees.
#include <gtest/gtest.h>
#include <rlk/ops/add.h>
#include <rlk/ops/attention.h>
#include <rlk/ops/logp.hpp>
#include <rlk/rlk.hpp>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "tests/unit/api/api.hpp"

namespace rlk::test {
namespace {

TEST(Api, Version) {
  EXPECT_STREQ(rlk_version(), "0.1.0");
}

TEST(Api, ACallByNamedArgumentsIsTheCallByPosition) {
  const Stream stream = runtime().stream();
  Logp by_position, by_name;
  rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  params.temperature = 0.5;
  by_position.run(stream, &params);
  ops::Logp logp;
  logp.in.logits = Tensor(by_name.logits.data(), kF32, {3, 5});
  logp.in.ids = Tensor(by_name.ids.data(), kI64, {3});
  logp.out.logp = Tensor(by_name.logp.data(), kF32, {3});
  logp.out.entropy = Tensor(by_name.entropy.data(), kF32, {3});
  logp.params.temperature = 0.5;
  logp(stream);
  EXPECT_EQ(by_name.logp, by_position.logp);
  EXPECT_EQ(by_name.entropy, by_position.entropy);
}

TEST(Api, ACallWithoutANeededArgumentNamesIt) {
  const Stream stream = runtime().stream();
  ops::Logp logp;
  try {
    logp(stream);
    FAIL() << "a call without arguments was taken";
  } catch (const Exception& error) {
    EXPECT_EQ(error.status(), RLK_INVALID_ARGUMENT) << error.what();
    EXPECT_TRUE(contains(error.what(), "logits")) << error.what();
  }
}

TEST(Api, NullIsAnErrorThatNamesFunctionAndArgument) {
  rlk_error error = RLK_ERROR_INIT;
  rlk_runtime* rt = runtime().get();
  const Stream stream = runtime().stream();
  rlk_stream* s = stream.get();
  rlk_stream* out_stream = nullptr;
  rlk_event* event = nullptr;
  const rlk_op* op = nullptr;
  char* text = nullptr;
  void* memory = nullptr;
  uint32_t count = 0;
  double ms = 0;
  rlk_device_properties properties = {};
  rlk_memory_statistics statistics = {};
  properties.struct_size = sizeof(properties);
  statistics.struct_size = sizeof(statistics);
  struct {
    const char* function;
    const char* argument;
    std::function<rlk_status()> body;
  } cases[] = {
      {"rlk_runtime_create", "out", [&] { return rlk_runtime_create(nullptr, nullptr, &error); }},
      {"rlk_device_count", "runtime", [&] { return rlk_device_count(nullptr, "cpu", &count, &error); }},
      {"rlk_device_count", "backend", [&] { return rlk_device_count(rt, nullptr, &count, &error); }},
      {"rlk_device_count", "out", [&] { return rlk_device_count(rt, "cpu", nullptr, &error); }},
      {"rlk_device_describe", "runtime", [&] { return rlk_device_describe(nullptr, "cpu", 0, &properties, &error); }},
      {"rlk_device_describe", "out", [&] { return rlk_device_describe(rt, "cpu", 0, nullptr, &error); }},
      {"rlk_stream_create", "runtime", [&] { return rlk_stream_create(nullptr, "cpu", 0, 0, &out_stream, &error); }},
      {"rlk_stream_create", "backend", [&] { return rlk_stream_create(rt, nullptr, 0, 0, &out_stream, &error); }},
      {"rlk_stream_create", "out", [&] { return rlk_stream_create(rt, "cpu", 0, 0, nullptr, &error); }},
      {"rlk_stream_wrap", "runtime", [&] { return rlk_stream_wrap(nullptr, "cpu", 0, nullptr, &out_stream, &error); }},
      {"rlk_stream_query", "stream", [&] { return rlk_stream_query(nullptr, &error); }},
      {"rlk_stream_synchronize", "stream", [&] { return rlk_stream_synchronize(nullptr, 0, &error); }},
      {"rlk_stream_wait_event", "event", [&] { return rlk_stream_wait_event(s, nullptr, &error); }},
      {"rlk_event_create", "out", [&] { return rlk_event_create(rt, "cpu", 0, 0, nullptr, &error); }},
      {"rlk_event_record", "event", [&] { return rlk_event_record(nullptr, s, &error); }},
      {"rlk_event_query", "event", [&] { return rlk_event_query(nullptr, &error); }},
      {"rlk_event_native", "event", [&] { return rlk_event_native(nullptr, &memory, &error); }},
      {"rlk_stream_native", "out", [&] { return rlk_stream_native(s, nullptr, &error); }},
      {"rlk_copy_peer", "stream", [&] { return rlk_copy_peer(nullptr, &count, 0, &count, 0, 4, &error); }},
      {"rlk_event_elapsed_ms", "start", [&] { return rlk_event_elapsed_ms(nullptr, event, &ms, &error); }},
      {"rlk_allocate", "stream", [&] { return rlk_allocate(nullptr, 0, 1, &memory, &error); }},
      {"rlk_allocate", "out", [&] { return rlk_allocate(s, 0, 1, nullptr, &error); }},
      {"rlk_deallocate", "stream", [&] { return rlk_deallocate(nullptr, &count, &error); }},
      {"rlk_record_stream", "user", [&] { return rlk_record_stream(nullptr, &count, &error); }},
      {"rlk_copy", "stream", [&] { return rlk_copy(nullptr, &count, &count, 4, 1, &error); }},
      {"rlk_memory_statistics_get", "out", [&] { return rlk_memory_statistics_get(rt, "cpu", 0, nullptr, &error); }},
      {"rlk_memory_statistics_get", "runtime",
       [&] { return rlk_memory_statistics_get(nullptr, "cpu", 0, &statistics, &error); }},
      {"rlk_op_find", "name", [&] { return rlk_op_find(nullptr, &op, &error); }},
      {"rlk_op_find", "out", [&] { return rlk_op_find("logp", nullptr, &error); }},
      {"rlk_call", "stream", [&] { return rlk_call(nullptr, op, nullptr, nullptr, 0, nullptr, 0, nullptr, &error); }},
      {"rlk_call", "op", [&] { return rlk_call(s, nullptr, nullptr, nullptr, 0, nullptr, 0, nullptr, &error); }},
      {"rlk_infer_outputs", "op", [&] { return rlk_infer_outputs(nullptr, nullptr, nullptr, 0, nullptr, 0, &error); }},
      {"rlk_graph_begin", "stream", [&] { return rlk_graph_begin(nullptr, &error); }},
      {"rlk_graph_end", "out", [&] { return rlk_graph_end(s, nullptr, &error); }},
      {"rlk_graph_launch", "graph", [&] { return rlk_graph_launch(nullptr, s, &error); }},
      {"rlk_list_json", "runtime", [&] { return rlk_list_json(nullptr, &text, &error); }},
      {"rlk_runtime_reload", "runtime", [&] { return rlk_runtime_reload(nullptr, &text, &error); }},
      {"rlk_list_json", "out", [&] { return rlk_list_json(rt, nullptr, &error); }},
      {"rlk_ops_json", "out", [&] { return rlk_ops_json(nullptr, &error); }},
      {"rlk_explain_json", "stream",
       [&] { return rlk_explain_json(nullptr, op, nullptr, nullptr, 0, nullptr, 0, nullptr, &text, &error); }},
      {"rlk_counters_json", "out", [&] { return rlk_counters_json(rt, nullptr, &error); }},
      {"rlk_counters_prometheus", "out", [&] { return rlk_counters_prometheus(rt, nullptr, &error); }},
  };
  for (const auto& c : cases) {
    error = rlk_error RLK_ERROR_INIT;
    EXPECT_EQ(c.body(), RLK_INVALID_ARGUMENT) << c.function;
    EXPECT_EQ(error.status, RLK_INVALID_ARGUMENT) << c.function;
    EXPECT_TRUE(contains(error.text, c.function) && contains(error.text, std::string(c.argument) + " is NULL"))
        << error.text;
  }
  // Ending nothing is fine, and so is not wanting the error.
  EXPECT_EQ(rlk_runtime_destroy(nullptr, nullptr), RLK_OK);
  EXPECT_EQ(rlk_stream_destroy(nullptr, nullptr), RLK_OK);
  EXPECT_EQ(rlk_event_destroy(nullptr, nullptr), RLK_OK);
  EXPECT_EQ(rlk_graph_destroy(nullptr, nullptr), RLK_OK);
  EXPECT_EQ(rlk_deallocate(s, nullptr, nullptr), RLK_OK);
  EXPECT_EQ(rlk_op_find(nullptr, &op, nullptr), RLK_INVALID_ARGUMENT);
  rlk_string_free(nullptr);
}

TEST(Api, ArraysMustBeThereWhenTheyAreCounted) {
  const Stream stream = runtime().stream();
  const rlk_op* op = nullptr;
  ASSERT_EQ(rlk_op_find("logp", &op, nullptr), RLK_OK);
  rlk_error error = RLK_ERROR_INIT;
  EXPECT_EQ(rlk_call(stream.get(), op, nullptr, nullptr, 2, nullptr, 0, nullptr, &error), RLK_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(error.text, "inputs is NULL")) << error.text;
  EXPECT_EQ(rlk_infer_outputs(op, nullptr, nullptr, 2, nullptr, 0, &error), RLK_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(error.text, "inputs is NULL")) << error.text;
}

TEST(Api, LogpOnTheCpu) {
  const Stream stream = runtime().stream();
  Logp logp;
  logp.run(stream);
  // A CPU stream is done when the call returns.
  for (size_t row = 0; row < 3; ++row) EXPECT_NEAR(logp.logp[row], logp.expected_logp(row), 1e-6) << row;
  EXPECT_NEAR(logp.entropy[1], std::log(5.0), 1e-6);
  EXPECT_TRUE(stream.done());
}

TEST(Api, ParametersOptionsAndTheirOlderForms) {
  const Stream stream = runtime().stream();
  Logp plain, hot;
  rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  params.temperature = 2;
  hot.run(stream, &params);
  plain.run(stream);
  EXPECT_GT(hot.entropy[0], plain.entropy[0]);

  rlk_logp_params older = RLK_LOGP_PARAMS_INIT;
  older.struct_size = 16;  // temperature alone
  older.temperature = 2;
  older.softcap = NAN;  // beyond what the caller says it has
  Logp again;
  again.run(stream, &older);
  EXPECT_EQ(again.logp, hot.logp);

  rlk_call_options options = RLK_CALL_OPTIONS_INIT;
  options.pin = "cpu";
  again.run(stream, &params, &options);
  EXPECT_EQ(again.logp, hot.logp);
  options.struct_size = 8;  // struct_size and numerics alone: the pin is not read
  options.pin = "nobody";
  again.run(stream, &params, &options);
  options.struct_size = sizeof(options);
  EXPECT_THROW(again.run(stream, &params, &options), Exception);
  options.struct_size = 2;
  EXPECT_THROW(again.run(stream, &params, &options), Exception);
}

TEST(Api, ADataErrorNamesTheLengthsThatAreWrongAndTheNumberWhereTheyMustEnd) {
  std::vector<float> q(3 * 2 * 8, 0.5f), k(4 * 2 * 8, 0.25f), out(3 * 2 * 8);
  for (const bool is_q : {true, false}) {
    const std::vector<int64_t> q_ends = {0, 1, is_q ? 4711 : 3}, k_ends = {0, 2, is_q ? 4 : 4711};
    std::vector<ConstTensor> inputs(RLK_ATTENTION_N_INPUTS);
    inputs[RLK_ATTENTION_IN_Q] = Tensor(q.data(), kF32, {3, 2, 8});
    inputs[RLK_ATTENTION_IN_K] = inputs[RLK_ATTENTION_IN_V] = Tensor(k.data(), kF32, {4, 2, 8});
    inputs[RLK_ATTENTION_IN_CU_SEQLENS_Q] = ConstTensor(q_ends.data(), kI64, {3});
    inputs[RLK_ATTENTION_IN_CU_SEQLENS_K] = ConstTensor(k_ends.data(), kI64, {3});
    rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
    params.layout = RLK_ATTENTION_LAYOUT_PACKED;
    const Stream stream = runtime().stream("cpu");
    call(stream, "attention", &params, inputs, {Tensor(out.data(), kF32, {3, 2, 8})});
    try {
      stream.synchronize();
      ADD_FAILURE() << "no data error";
    } catch (const DataError& error) {
      EXPECT_TRUE(contains(error.what(), is_q ? "'cu_seqlens_q' is 4711" : "'cu_seqlens_k' is 4711")) << error.what();
      EXPECT_TRUE(contains(error.what(), is_q ? "ends at 3 (Tq)" : "ends at 4 (Tk)")) << error.what();
    }
  }
}

TEST(Api, ACallTellsWhoServedIt) {
  const Stream stream = runtime().stream("cpu");
  Logp logp;
  rlk_choice choice = RLK_CHOICE_INIT;
  rlk_call_options options = RLK_CALL_OPTIONS_INIT;
  options.choice = &choice;
  logp.run(stream, nullptr, &options);
  EXPECT_EQ(choice.backend, std::string("cpu"));
  EXPECT_EQ(choice.plugin, std::string("cpu"));
  rlk_call_options pinned = RLK_CALL_OPTIONS_INIT;
  const std::string pin = std::string("cpu:") + choice.implementation;
  pinned.pin = pin.c_str();
  EXPECT_NO_THROW(logp.run(stream, nullptr, &pinned)) << pin;
  EXPECT_EQ(choice.staged, 0u);
  choice.struct_size = 8;
  EXPECT_THROW(logp.run(stream, nullptr, &options), InvalidArgument);
}

TEST(Api, AStatusIsAnExceptionOfItsOwn) {
  EXPECT_THROW(runtime().stream("nosuch"), NotFound);
  rlk_call_options pinned = RLK_CALL_OPTIONS_INIT;
  pinned.pin = "cpu:nosuch";
  EXPECT_THROW(Logp().run(runtime().stream("cpu"), nullptr, &pinned), Unsupported);
}

TEST(Api, ADenseTensorIsRowMajorAndAlignedAsItsAddressIs) {
  alignas(64) float data[12] = {};
  const int64_t shape[] = {3, 4};
  int64_t strides[2];
  const rlk_tensor tensor = rlk_tensor_dense(data + 4, kF32, 2, shape, strides);
  EXPECT_EQ(tensor.struct_size, sizeof(rlk_tensor));
  EXPECT_EQ(tensor.alignment, 16u);
  EXPECT_EQ(tensor.data, data + 4);
  EXPECT_EQ((std::vector<int64_t>{strides[0], strides[1]}), (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(std::string(rlk_version()), std::to_string(RLK_VERSION_MAJOR) + "." + std::to_string(RLK_VERSION_MINOR) +
                                            "." + std::to_string(RLK_VERSION_PATCH));
}

TEST(Api, BadInputIsAnExceptionWithTheText) {
  const Stream stream = runtime().stream();
  Logp logp;
  logp.ids.resize(2);
  try {
    call(stream, "logp", nullptr, {Tensor(logp.logits.data(), kF32, {3, 5}), Tensor(logp.ids.data(), kI64, {2})},
         {Tensor(logp.logp.data(), kF32, {2})});
    FAIL();
  } catch (const Exception& e) {
    EXPECT_EQ(e.status(), RLK_INVALID_ARGUMENT);
    for (const char* part : {"logp", "dense_rows", "N = 2", "R = 3", "row_indices"})
      EXPECT_TRUE(contains(e.what(), part)) << e.what();
  }
}

TEST(Api, DataErrorsAreToldOnce) {
  const Stream stream = runtime().stream();
  Logp logp;
  logp.ids[1] = 4711;
  logp.run(stream);
  try {
    stream.synchronize();
    FAIL();
  } catch (const Exception& e) {
    EXPECT_EQ(e.status(), RLK_DATA_ERROR);
    for (const char* part : {"logp", "row 1", "4711", "ids", "ignore_index", "cpu:0"})
      EXPECT_TRUE(contains(e.what(), part)) << e.what();
  }
  EXPECT_NO_THROW(stream.synchronize());
  EXPECT_TRUE(std::isnan(logp.logp[1]));
  EXPECT_NEAR(logp.logp[0], logp.expected_logp(0), 1e-6);
}

TEST(Api, EmptyTensors) {
  const Stream stream = runtime().stream();
  EXPECT_NO_THROW(call(stream, "logp", nullptr, {Tensor(nullptr, kF32, {0, 5}), Tensor(nullptr, kI64, {0})},
                       {Tensor(nullptr, kF32, {0})}));
  EXPECT_NO_THROW(call(stream, "add", nullptr, {Tensor(nullptr, kF32, {0}), Tensor(nullptr, kF32, {0})},
                       {Tensor(nullptr, kF32, {0})}));
}

TEST(Api, PackedAttentionReadsItsLengthsOnTheHost) {
  const Stream stream = runtime().stream();
  const int64_t tokens = 4;
  std::vector<float> q(32, 0.5f), k(32, 0.25f), v(32), out(32, -1);
  for (size_t i = 0; i < v.size(); ++i) {
    const size_t row = i / 8;
    v[i] = static_cast<float>(row);
  }
  const std::vector<int32_t> lengths = {0, 1, 4};
  rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
  params.layout = RLK_ATTENTION_LAYOUT_PACKED;
  call(stream, "attention", &params,
       {Tensor(q.data(), kF32, {tokens, 1, 8}), Tensor(k.data(), kF32, {tokens, 1, 8}),
        ConstTensor(v.data(), kF32, {tokens, 1, 8}), ConstTensor(lengths.data(), kI32, {3}),
        ConstTensor(lengths.data(), kI32, {3})},
       {Tensor(out.data(), kF32, {tokens, 1, 8})});
  stream.synchronize();
  EXPECT_NEAR(out[0], 0, 1e-6);
  EXPECT_NEAR(out[8], 2, 1e-6) << "the mean of rows 1 to 3";
}

TEST(Api, MemoryCopiesAndEvents) {
  const Stream stream = runtime().stream();
  auto* memory = static_cast<char*>(stream.allocate(1000));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
  std::vector<char> host(1000, 7), back(1000);
  stream.copy(memory, host.data(), 1000, RLK_COPY_HOST_TO_DEVICE);
  stream.copy(back.data(), memory, 1000, RLK_COPY_DEVICE_TO_HOST);
  stream.synchronize();
  EXPECT_EQ(back, host);
  rlk_memory_statistics statistics = {};
  statistics.struct_size = sizeof(statistics);
  ASSERT_EQ(rlk_memory_statistics_get(runtime().get(), "cpu", 0, &statistics, nullptr), RLK_OK);
  EXPECT_GE(statistics.in_use_bytes, 1000u);
  stream.deallocate(memory);
  EXPECT_THROW(stream.deallocate(memory), Exception);
  EXPECT_THROW(stream.allocate(8, 17), Exception);

  rlk_event* event = nullptr;
  ASSERT_EQ(rlk_event_create(runtime().get(), "cpu", 0, 0, &event, nullptr), RLK_OK);
  EXPECT_EQ(rlk_event_record(event, stream.get(), nullptr), RLK_OK);
  EXPECT_EQ(rlk_event_query(event, nullptr), RLK_OK);
  EXPECT_EQ(rlk_stream_wait_event(stream.get(), event, nullptr), RLK_OK);
  // The CPU has no runtime of a vendor: its own objects, or a refusal in words.
  void* native = &native;
  rlk_error error = RLK_ERROR_INIT;
  const rlk_status status = rlk_event_native(event, &native, &error);
  EXPECT_TRUE(status == RLK_OK ? native != nullptr : status == RLK_UNSUPPORTED && contains(error.text, "cpu:0"))
      << status << error.text;
  EXPECT_EQ(rlk_stream_native(stream.get(), &native, nullptr), RLK_OK);
  EXPECT_EQ(rlk_event_destroy(event, nullptr), RLK_OK);

  std::fill(back.begin(), back.end(), '\0');
  EXPECT_EQ(rlk_copy_peer(stream.get(), back.data(), 0, host.data(), 0, 1000, nullptr), RLK_OK);
  stream.synchronize();
  EXPECT_EQ(back, host);
  EXPECT_LT(rlk_copy_peer(stream.get(), back.data(), 1, host.data(), 0, 1000, &error), 0);
  EXPECT_TRUE(contains(error.text, "cpu:1")) << error.text;
}

TEST(Api, DevicesAreDescribedWithinTheCallersStruct) {
  rlk_device_properties properties;
  std::memset(&properties, 0x5a, sizeof(properties));
  properties.struct_size = 16;
  ASSERT_EQ(rlk_device_describe(runtime().get(), "cpu", 0, &properties, nullptr), RLK_OK);
  EXPECT_EQ(properties.struct_size, 16u);
  EXPECT_NE(properties.flags & RLK_DEVICE_UNIFIED_MEMORY, 0u);
  EXPECT_EQ(properties.memory_bytes, 0x5a5a5a5a5a5a5a5aull) << "not the caller's to have";
  rlk_error error = RLK_ERROR_INIT;
  EXPECT_EQ(rlk_device_describe(runtime().get(), "nothing", 0, &properties, &error), RLK_NOT_FOUND);
  EXPECT_TRUE(contains(error.text, "cpu:0")) << error.text;
  uint32_t count = 7;
  EXPECT_EQ(rlk_device_count(runtime().get(), "nothing", &count, nullptr), RLK_OK);
  EXPECT_EQ(count, 0u);
}

TEST(Api, AStructWithoutItsSizeIsRefused) {
  rlk_error error = RLK_ERROR_INIT;
  rlk_device_properties properties = {};
  EXPECT_EQ(rlk_device_describe(runtime().get(), "cpu", 0, &properties, &error), RLK_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(error.text, "rlk_device_describe: out.struct_size is 0; expected sizeof")) << error.text;
  rlk_memory_statistics statistics = {};
  EXPECT_EQ(rlk_memory_statistics_get(runtime().get(), "cpu", 0, &statistics, &error), RLK_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(error.text, "out.struct_size is 0")) << error.text;
  rlk_runtime_options options = RLK_RUNTIME_OPTIONS_INIT;
  options.struct_size = 3;
  rlk_runtime* handle = nullptr;
  EXPECT_EQ(rlk_runtime_create(&options, &handle, &error), RLK_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(error.text, "options.struct_size is 3")) << error.text;
  EXPECT_EQ(handle, nullptr);
}

TEST(Api, GraphsAreNotForTheCpu) {
  const Stream stream = runtime().stream();
  rlk_error error = RLK_ERROR_INIT;
  EXPECT_EQ(rlk_graph_begin(stream.get(), &error), RLK_UNSUPPORTED);
  EXPECT_TRUE(contains(error.text, "cpu")) << error.text;
  EXPECT_THROW(capture(stream, [](const Stream&) {}), Exception);
}

TEST(Api, EventsOfTheCppApi) {
  const Stream stream = runtime().stream(), other = runtime().stream();
  const Event start = runtime().event("cpu", 0, RLK_EVENT_TIMING), end = runtime().event("cpu", 0, RLK_EVENT_TIMING);
  stream.record(start);
  Logp logp;
  logp.run(stream);
  stream.record(end);
  other.wait(end);
  other.synchronize();
  EXPECT_TRUE(end.done());
  EXPECT_GE(end.milliseconds_since(start), 0);
  EXPECT_THROW(runtime().event("nobody"), Exception);
}

TEST(Api, RuntimesShareThePluginsAndEndInAnyOrder) {
  auto first = std::make_unique<Runtime>();
  auto second = std::make_unique<Runtime>();
  EXPECT_EQ(first->list_json(), second->list_json());
  auto stream = std::make_unique<Stream>(second->stream());
  first.reset();
  Logp logp;
  logp.run(*stream);
  rlk_error error = RLK_ERROR_INIT;
  EXPECT_EQ(rlk_runtime_destroy(second->get(), &error), RLK_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(error.text, "1 streams")) << error.text;
  stream.reset();
  second.reset();
}

TEST(Api, MisspeltEnvironmentIsAnErrorInStrictMode) {
  setenv("RLK_FALLBACK", "strict", 1);
  setenv("RLK_OP_LOGPP", "cpu", 1);
  try {
    Runtime misspelt;
    ADD_FAILURE();
  } catch (const Exception& e) {
    EXPECT_EQ(e.status(), RLK_INVALID_ARGUMENT);
    EXPECT_TRUE(contains(e.what(), "RLK_OP_LOGPP")) << e.what();
  }
  unsetenv("RLK_OP_LOGPP");
  setenv("RLK_BACKEND", "qpu", 1);
  EXPECT_THROW(Runtime(), Exception);
  unsetenv("RLK_BACKEND");
  unsetenv("RLK_FALLBACK");
  EXPECT_NO_THROW(Runtime());
}

TEST(Api, ManyThreads) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      const Stream stream = runtime().stream();
      for (int i = 0; i < 100; ++i) {
        Logp logp;
        logp.run(stream);
        wrong += std::fabs(logp.logp[2] - logp.expected_logp(2)) > 1e-6;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace rlk::test

// The cambricon plugin when the n-th call of Neuware fails, for every n: each entry returns a status with the vendor's
// own words, nothing is used after it is gone (the simulated runtime would abort), and afterwards everything works.
// And logp over several chunks of rows, with its data errors.
#include <rlk/ops/logp.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "framework/plugin_fixture.hpp"

extern "C" void fakeResetCalls();
extern "C" uint64_t fakeCallCount(const char* call);

namespace {

// The bound of a chunk is read once, before any plan: 20000 logits make chunks of 6 rows.
[[maybe_unused]] const bool bounded = [] { return setenv("RLK_CAMBRICON_WORKSPACE_MB", "1", 1) == 0; }();

struct Step {
  rlk_status worst = RLK_OK;
  std::string text;
  bool done = false;  // every step was taken
};

// What a host does with a device, until something fails; what was made is taken down in any case.
class Tour {
public:
  Tour(const rlk_plugin& api, rlk_plugin_instance* instance, int64_t rows, int64_t vocab)
      : api_(api), instance_(instance), rows_(rows), vocab_(vocab), ids(static_cast<size_t>(rows)) {
    for (const rlk_implementation* const* row = api.implementations; *row != nullptr; ++row) {
      if (std::strcmp((*row)->op, "logp") == 0) logp_ = *row;
    }
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 29 % static_cast<size_t>(vocab));
  }

  Step run() {
    step_.done = tour();
    if (plan_ != nullptr) logp_->plan_destroy(plan_, &error_);
    if (event_ != nullptr) api_.event->destroy(event_, &error_);
    for (void* memory : memory_) api_.device->deallocate(device_, RLK_MEMORY_DEVICE, memory, &error_);
    if (pinned_ != nullptr) api_.device->deallocate(device_, RLK_MEMORY_PINNED, pinned_, &error_);
    if (stream_ != nullptr) api_.stream->destroy(stream_, &error_);
    if (device_ != nullptr) api_.device_close(device_, &error_);
    return step_;
  }

  float logit(int64_t n, int64_t v) const { return static_cast<float>((n * 7 + v * 13) % 31) / 4 - 4; }

  rlk_data_error data_error{};
  std::vector<float> logp, lse;

private:
  bool good(rlk_status status) {
    if (status == RLK_OK) return true;
    step_.worst = status;
    step_.text = error_.text;
    return false;
  }
  void* allocate(uint64_t bytes) {
    void* memory = nullptr;
    if (bytes > 0 && !good(api_.device->allocate(device_, RLK_MEMORY_DEVICE, bytes, &memory, &error_))) return nullptr;
    if (memory != nullptr) memory_.push_back(memory);
    return memory;
  }
  bool tour() {
    rlk_device_properties properties{};
    properties.struct_size = sizeof(properties);
    uint64_t available = 0, total = 0;
    const auto elements = static_cast<uint64_t>(rows_ * vocab_);
    if (!good(api_.device_describe(instance_, 0, &properties, &error_)) ||
        !good(api_.device_open(instance_, 0, &device_, &error_)) ||
        !good(api_.stream->create(device_, -1, &stream_, &error_)) ||
        !good(api_.device->memory_info(device_, &available, &total, &error_)) ||
        !good(api_.device->allocate(device_, RLK_MEMORY_PINNED, 4 * elements, &pinned_, &error_)) ||
        !good(api_.event->create(device_, RLK_EVENT_TIMING, &event_, &error_))) {
      return false;
    }
    void* const logits = allocate(4 * elements);
    void* const at = logits == nullptr ? nullptr : allocate(8 * ids.size());
    void* const out = at == nullptr ? nullptr : allocate(8 * ids.size());
    if (out == nullptr) return false;
    auto* const host = static_cast<float*>(pinned_);
    for (int64_t i = 0; i < rows_ * vocab_; ++i) host[i] = logit(i / vocab_, i % vocab_);
    if (!good(api_.stream->copy(stream_, logits, pinned_, 4 * elements, RLK_COPY_HOST_TO_DEVICE, &error_)) ||
        !good(api_.stream->synchronize(stream_, UINT64_MAX, nullptr, &error_))) {
      return false;
    }
    std::memcpy(pinned_, ids.data(), 8 * ids.size());
    if (!good(api_.stream->copy(stream_, at, pinned_, 8 * ids.size(), RLK_COPY_HOST_TO_DEVICE, &error_)) ||
        !good(api_.stream->synchronize(stream_, UINT64_MAX, nullptr, &error_)) || !call(logits, at, out) ||
        !good(api_.event->record(event_, stream_, &error_)) ||
        !good(api_.event->synchronize(event_, 1000000000, &error_)) ||
        !good(api_.stream->copy(stream_, pinned_, out, 8 * ids.size(), RLK_COPY_DEVICE_TO_HOST, &error_))) {
      return false;
    }
    data_error.struct_size = sizeof(data_error);
    const rlk_status status = api_.stream->synchronize(stream_, 1000000000, &data_error, &error_);
    if (status != RLK_DATA_ERROR && !good(status)) return false;
    logp.assign(host, host + rows_);
    lse.assign(host + rows_, host + 2 * rows_);
    return true;
  }
  bool call(void* logits, void* at, void* out) {
    const int64_t shape[2] = {rows_, vocab_}, strides[2] = {vocab_, 1}, step[1] = {1};
    const rlk_dtype f32{RLK_DTYPE_FLOAT, 32, 1}, i64{RLK_DTYPE_INT, 64, 1};
    const rlk_tensor x{sizeof(rlk_tensor), 256, logits, 0, shape, strides, 2, f32};
    const rlk_tensor index{sizeof(rlk_tensor), 256, at, 0, shape, step, 1, i64};
    const rlk_tensor y{sizeof(rlk_tensor), 4, out, 0, shape, step, 1, f32};
    const rlk_tensor z{sizeof(rlk_tensor), 4, out, 4 * static_cast<uint64_t>(rows_), shape, step, 1, f32};
    const rlk_tensor* inputs[RLK_LOGP_N_INPUTS] = {&x, &index};
    const rlk_tensor* outputs[RLK_LOGP_N_OUTPUTS] = {&y, &z};
    const void* host_inputs[RLK_LOGP_N_INPUTS] = {};
    const int32_t aliases[RLK_LOGP_N_OUTPUTS] = {-1, -1, -1};
    const int64_t symbols[3] = {rows_, rows_, vocab_};
    const rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
    rlk_call_desc desc{};
    desc.struct_size = sizeof(desc);
    desc.op_revision = 1;
    desc.op = "logp";
    desc.params = &params;
    desc.n_inputs = RLK_LOGP_N_INPUTS;
    desc.n_outputs = RLK_LOGP_N_OUTPUTS;
    desc.inputs = inputs;
    desc.outputs = outputs;
    desc.output_alias = aliases;
    desc.symbols = symbols;
    desc.n_symbols = 3;
    rlk_run run{};
    run.struct_size = sizeof(run);
    run.n_inputs = desc.n_inputs;
    run.n_outputs = desc.n_outputs;
    run.inputs = inputs;
    run.outputs = outputs;
    run.host_inputs = host_inputs;
    run.symbols = symbols;
    run.n_symbols = 3;
    run.tag = 4000000000u;
    rlk_plan_info info{};
    info.struct_size = sizeof(info);
    if (!good(logp_->plan_create(logp_, device_, &desc, &plan_, &info, &error_)) ||
        !good(logp_->plan_prepare(plan_, &run, &run.workspace_bytes, &error_))) {
      return false;
    }
    run.workspace = allocate(run.workspace_bytes);
    return run.workspace != nullptr && good(logp_->plan_enqueue(plan_, stream_, &run, &error_));
  }

  const rlk_plugin& api_;
  const rlk_implementation* logp_ = nullptr;
  rlk_plugin_instance* instance_;
  const int64_t rows_, vocab_;
  rlk_error error_ = rlk::test::no_error();
  rlk_plugin_device* device_ = nullptr;
  rlk_plugin_stream* stream_ = nullptr;
  rlk_plugin_event* event_ = nullptr;
  rlk_plugin_plan* plan_ = nullptr;
  void* pinned_ = nullptr;
  std::vector<void*> memory_;
  Step step_;

public:
  std::vector<int64_t> ids;
};

class Walk : public rlk::test::PluginFixture {
protected:
  void walk(const char* code, rlk_status expected) {
    fakeResetCalls();
    ASSERT_TRUE(Tour(*api, instance, 3, 7).run().done);
    const uint64_t calls = fakeCallCount("*");
    ASSERT_GT(calls, 300u);
    int failures = 0;
    for (uint64_t n = 1; n <= calls; ++n) {
      fakeResetCalls();
      const std::string list = "*:" + std::to_string(n) + ":" + code;
      const rlk::test::Variable fail("RLK_FAKE_CNRT_FAIL", list.c_str());
      const Step step = Tour(*api, instance, 3, 7).run();
      if (step.done) continue;  // the call was one that may fail, or came after the tour
      ++failures;
      // A device that is not counted is absent: every other failure keeps its code's meaning.
      EXPECT_TRUE(step.worst == expected || step.worst == RLK_ABSENT) << n << ": " << step.worst << " " << step.text;
      EXPECT_FALSE(step.text.empty()) << n;
    }
    EXPECT_GT(failures, 200);
    fakeResetCalls();
    EXPECT_TRUE(Tour(*api, instance, 3, 7).run().done);
  }
};

TEST_F(Walk, EveryCallThatRunsOutOfMemorySaysSo) {
  walk("100100", RLK_OUT_OF_MEMORY);
}
TEST_F(Walk, AfterALostDeviceEveryEntrySaysSo) {
  walk("100132", RLK_DEVICE_LOST);
}

TEST_F(Walk, LogpOverSeveralChunksKeepsEveryRowApart) {
  fakeResetCalls();
  constexpr int64_t kRows = 40, kVocab = 20000;
  Tour tour(*api, instance, kRows, kVocab);
  tour.ids[4] = -100;                    // ignored
  tour.ids[9] = (int64_t{1} << 32) + 5;  // wrong, though its low word is not
  tour.ids[15] = kVocab;                 // wrong, and not the first
  const Step step = tour.run();
  ASSERT_TRUE(step.done) << step.text;
  EXPECT_EQ(fakeCallCount("cnnlExp_v2"), 4u);  // 13 + 13 + 13 + 1 rows
  for (int64_t n = 0; n < kRows; ++n) {
    const auto row = static_cast<size_t>(n);
    double sum = 0;
    for (int64_t v = 0; v < kVocab; ++v) sum += std::exp(static_cast<double>(tour.logit(n, v)));
    if (n == 9 || n == 15) {
      EXPECT_TRUE(std::isnan(tour.logp[row]) && std::isnan(tour.lse[row])) << n;
      continue;
    }
    const double lse = n == 4 ? 0 : std::log(sum);
    EXPECT_NEAR(tour.lse[row], lse, 2e-6) << n;
    EXPECT_NEAR(tour.logp[row], n == 4 ? 0 : static_cast<double>(tour.logit(n, tour.ids[row])) - lse, 4e-6) << n;
  }
  EXPECT_EQ(tour.data_error.kind, RLK_DATA_ID_OUT_OF_RANGE);
  EXPECT_EQ(tour.data_error.row, 9);
  EXPECT_EQ(tour.data_error.value, (int64_t{1} << 32) + 5);
  EXPECT_EQ(tour.data_error.tag, 4000000000u);
}

}  // namespace

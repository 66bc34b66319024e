// add of contiguous fp32 tensors of one shape: a is brought to the workspace, then added to b.
#include "conformance/liar/plugin.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <vector>

namespace rlk::liar {
namespace {

constexpr uint32_t kClasses = RLK_NUMERICS_DETERMINISTIC | RLK_NUMERICS_BATCH_INVARIANT;
constexpr uint32_t kMagic = 0x6b657074;
const std::thread::id g_first_thread = std::this_thread::get_id();
std::atomic<int> g_ends{0};  // plans destroyed
std::vector<float> g_scratch(size_t{1} << 16);

uint64_t workspace_of(int64_t count) {
  return static_cast<uint64_t>(count + 1) * sizeof(float);  // a flag and a copy of `a`
}

// What a call works on, kept until its work is done.
struct Work {
  const float *a, *b;
  float *out, *workspace;
  int64_t count;
  float alpha;
  float* persistent;
  bool is_first;
};

class AddPlan : public sdk::Plan {
public:
  explicit AddPlan(const sdk::Call<sdk::ops::Add>& call)
      : alpha_(static_cast<float>(call.params().alpha)), scratch_(size_t{1} << 16), ends_before_(g_ends) {
    numerics = kClasses;
    variant = "queued";
    flags = lie("scratch_of_the_library") ? 0 : RLK_PLAN_SHAREABLE;
    const int64_t count = sdk::element_count(*call.output(RLK_ADD_OUT_OUT));
    workspace_bound = workspace_of(count);
    if (lie("bound_of_2_45")) workspace_bound = uint64_t{1} << 45;
    if (lie("bound_of_2_63")) workspace_bound = uint64_t{1} << 63;
    if (lie("prepare_asks_for_everything") || lie("prepare_overflows")) workspace_bound = UINT64_MAX;
    persistent_bytes = sizeof(float);  // alpha, written by the first execution
    if (lie("persistent_of_2_50")) persistent_bytes = uint64_t{1} << 50;
  }
  ~AddPlan() override { ++g_ends; }

  uint64_t prepare(const sdk::Run& run) override {
    if (lie("prepare_asks_for_everything")) return UINT64_MAX;
    if (lie("prepare_overflows")) return UINT64_MAX - 4096;
    return workspace_of(sdk::element_count(*run.output(RLK_ADD_OUT_OUT)));
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    auto& own = static_cast<LiarStream&>(stream);
    Work work{sdk::data_of<const float>(run.input(RLK_ADD_IN_A)),
              sdk::data_of<const float>(run.input(RLK_ADD_IN_B)),
              sdk::data_of<float>(run.output(RLK_ADD_OUT_OUT)),
              static_cast<float*>(run.workspace()),
              sdk::element_count(*run.output(RLK_ADD_OUT_OUT)),
              alpha_,
              static_cast<float*>(run.persistent()),
              run.is_persistent_new()};
    const int calls = ++calls_;
    if (calls == 1) {
      first_ = work;
      first_stream_ = own.native();
    }
    if (lie("first_pointers_are_kept")) work.a = first_.a, work.b = first_.b, work.out = first_.out;
    if (lie("first_inputs_are_kept")) work.b = first_.b;
    const bool wrong = (lie("wrong_on_a_second_stream") && own.native() != first_stream_) ||
                       (lie("wrong_on_a_wrapped_stream") && !own.is_owned()) ||
                       (lie("wrong_from_a_second_thread") && std::this_thread::get_id() != g_first_thread) ||
                       (lie("wrong_each_thousandth_call") && calls % 1000 == 0) ||
                       (lie("plans_share_their_end") && g_ends != ends_before_);
    if (wrong) work.alpha += 1;
    if (lie("launched_on_another_stream")) {
      std::thread([work] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        sum(work, work.a);
      }).detach();
      return;
    }
    own.submit([this, work] { add(work); });
    if (lie("writes_again_later")) {
      std::thread([work] {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        sum(work, work.a);
      }).detach();
    }
  }

private:
  static void sum(const Work& work, const float* a) {
    for (int64_t i = 0; i < work.count; ++i) work.out[i] = a[i] + work.alpha * work.b[i];
  }

  void add(Work work) {
    // The first execution leaves alpha there; the host keeps it.
    const bool expects_zero = lie("persistent_expected_to_be_zero");
    if (work.is_first && !expects_zero) std::memcpy(work.persistent, &alpha_, sizeof(alpha_));
    float kept = 0;
    std::memcpy(&kept, work.persistent, sizeof(kept));
    work.alpha += expects_zero ? kept : kept - alpha_;
    const auto bytes = static_cast<size_t>(work.count) * sizeof(float);
    if (lie("scratch_of_the_plan") || lie("scratch_of_the_library")) {
      std::vector<float>& scratch = lie("scratch_of_the_plan") ? scratch_ : g_scratch;
      std::memcpy(scratch.data(), work.a, bytes);
      std::this_thread::yield();
      return sum(work, scratch.data());
    }
    uint32_t flag = 0;
    std::memcpy(&flag, work.workspace, sizeof(flag));
    float* copy = work.workspace + 1;
    const bool skips =
        (lie("workspace_expected_to_be_zero") && flag == 0) || (lie("workspace_expected_to_be_kept") && flag == kMagic);
    if (!skips) std::memcpy(copy, work.a, bytes);
    std::memcpy(work.workspace, &kMagic, sizeof(kMagic));
    sum(work, copy);
  }

  float alpha_;
  std::vector<float> scratch_;
  int ends_before_;
  std::atomic<int> calls_{0};
  Work first_{};
  void* first_stream_ = nullptr;
};

bool is_plain(const rlk_tensor* tensor, const rlk_tensor* like) {
  return sdk::dtype_of(*tensor) == sdk::Dtype::f32 && sdk::is_contiguous(*tensor) &&
         sdk::element_count(*tensor) == sdk::element_count(*like);
}

}  // namespace

sdk::Support Add::query(LiarDevice&, const sdk::Call<Op>& call) {
  const rlk_tensor* out = call.output(RLK_ADD_OUT_OUT);
  if (!is_plain(call.input(RLK_ADD_IN_A), out) || !is_plain(call.input(RLK_ADD_IN_B), out) || !is_plain(out, out) ||
      sdk::element_count(*out) > (1 << 16) - 1) {
    return sdk::Support::no("SHAPE", "contiguous f32 tensors of one shape are served");
  }
  sdk::Support support = sdk::Support::yes("queued", kClasses);
  support.workspace_bound = workspace_of(sdk::element_count(*out));
  if (lie("bound_of_2_45")) support.workspace_bound = uint64_t{1} << 45;
  if (lie("bound_of_2_63")) support.workspace_bound = uint64_t{1} << 63;
  if (lie("prepare_asks_for_everything") || lie("prepare_overflows")) support.workspace_bound = UINT64_MAX;
  return support;
}

std::unique_ptr<sdk::Plan> Add::plan(LiarDevice&, const sdk::Call<Op>& call) {
  return std::make_unique<AddPlan>(call);
}

}  // namespace rlk::liar

RLK_PLUGIN_ENTRY(rlk_liar_entry, rlk::liar::LiarPlugin, "liar", "liar", "1.0.0", "one broken promise at a time")

// Kernels that are compiled while the process runs, with a compiler that takes as long as the test wants: operators do
// not wait for each other's kernels, and a call that needs what another thread compiles is told so at once.
#include <rlk/ops/add.h>
#include <rlk/ops/logp.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "framework/plugin_fixture.hpp"

extern "C" void fakeCompilerHold(int held);
extern "C" int fakeCompilerInside();
extern "C" int fakeCompilerPrograms();

namespace rlk::test {
namespace {

constexpr rlk_dtype kFloat{RLK_DTYPE_FLOAT, 32, 1}, kInt64{RLK_DTYPE_INT, 64, 1};

// A call of an operator as plan_create sees it: without memory.
class Call {
public:
  Call(const char* op, const void* params, size_t inputs, size_t outputs) : inputs_(inputs), outputs_(outputs) {
    aliases_.assign(outputs, -1);
    desc_.struct_size = sizeof(desc_);
    desc_.op_revision = 1;
    desc_.op = op;
    desc_.params = params;
    desc_.output_alias = aliases_.data();
  }
  void input(size_t at, rlk_dtype dtype, std::vector<int64_t> shape) { inputs_[at] = tensor(dtype, std::move(shape)); }
  void output(size_t at, rlk_dtype dtype, std::vector<int64_t> shape) {
    outputs_[at] = tensor(dtype, std::move(shape));
  }
  const rlk_call_desc& desc() {
    desc_.n_inputs = static_cast<uint32_t>(inputs_.size());
    desc_.n_outputs = static_cast<uint32_t>(outputs_.size());
    desc_.inputs = inputs_.data();
    desc_.outputs = outputs_.data();
    return desc_;
  }

private:
  struct Tensor {
    std::vector<int64_t> shape, strides;
    rlk_tensor abi{};
  };
  const rlk_tensor* tensor(rlk_dtype dtype, std::vector<int64_t> shape) {
    auto made = std::make_unique<Tensor>();
    made->strides.assign(shape.size(), 1);
    for (size_t d = shape.size(); d-- > 1;) made->strides[d - 1] = made->strides[d] * shape[d];
    made->shape = std::move(shape);
    made->abi = {sizeof(rlk_tensor),
                 64,
                 nullptr,
                 0,
                 made->shape.data(),
                 made->strides.data(),
                 static_cast<int32_t>(made->shape.size()),
                 dtype};
    return &tensors_.emplace_back(std::move(made))->abi;
  }
  std::vector<const rlk_tensor*> inputs_, outputs_;
  std::vector<int32_t> aliases_;
  std::vector<std::unique_ptr<Tensor>> tensors_;
  rlk_call_desc desc_{};
};

class Compile : public PluginFixture {
protected:
  Compile() : add_("add", &kAdd, 2, 1), logp_("logp", &kLogp, RLK_LOGP_N_INPUTS, RLK_LOGP_N_OUTPUTS) {
    add_.input(0, kFloat, {64});
    add_.input(1, kFloat, {64});
    add_.output(0, kFloat, {64});
    logp_.input(RLK_LOGP_IN_LOGITS, kFloat, {2, 64});
    logp_.input(RLK_LOGP_IN_IDS, kInt64, {2});
    logp_.output(RLK_LOGP_OUT_LOGP, kFloat, {2});
  }
  // A plan is made and ended; what plan_create answered.
  rlk_status plan(Call& call, std::string* text) {
    const rlk_implementation* one = nullptr;
    for (const rlk_implementation* const* row = api->implementations; *row != nullptr && one == nullptr; ++row)
      if (std::string((*row)->op) == call.desc().op) one = *row;
    rlk_error own = no_error();
    rlk_plan_info info{};
    info.struct_size = sizeof(info);
    rlk_plugin_plan* made = nullptr;
    const rlk_status status = one->plan_create(one, device, &call.desc(), &made, &info, &own);
    *text = own.text;
    if (made != nullptr) one->plan_destroy(made, nullptr);
    return status;
  }
  rlk_status plan_when_ready(Call& call, std::string* text) {
    for (;;) {
      const rlk_status status = plan(call, text);
      if (status != RLK_NOT_READY) return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  static constexpr rlk_add_params kAdd = RLK_ADD_PARAMS_INIT;
  static constexpr rlk_logp_params kLogp = RLK_LOGP_PARAMS_INIT;
  Call add_, logp_;
};

TEST_F(Compile, OperatorsDoNotWaitForEachOthersKernels) {
  open();
  fakeCompilerHold(1);
  std::string texts[2], text;
  rlk_status answers[2] = {RLK_INTERNAL, RLK_INTERNAL};
  std::thread first([&] { answers[0] = plan_when_ready(add_, &texts[0]); });
  std::thread second([&] { answers[1] = plan_when_ready(logp_, &texts[1]); });
  // With one lock for all, the second never gets there.
  for (int i = 0; i < 30'000 && fakeCompilerInside() < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const bool both = fakeCompilerInside() == 2;
  EXPECT_TRUE(both) << fakeCompilerInside() << " of two operators are being compiled";
  // Both are held inside the compiler: an answer that comes now waited for neither.
  if (both) {
    for (Call* call : {&add_, &logp_}) {
      EXPECT_EQ(plan(*call, &text), RLK_NOT_READY) << text;
      EXPECT_NE(text.find("being compiled"), std::string::npos) << text;
    }
  }
  fakeCompilerHold(0);
  first.join();
  second.join();
  EXPECT_EQ(answers[0], RLK_OK) << texts[0];
  EXPECT_EQ(answers[1], RLK_OK) << texts[1];
  EXPECT_EQ(plan(add_, &text), RLK_OK) << text;
  EXPECT_EQ(fakeCompilerPrograms(), 2) << "each kernel was compiled once";
}

}  // namespace
}  // namespace rlk::test

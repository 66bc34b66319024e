// linear_logp, linear_cross_entropy and their backwards read nothing behind their tensors: each one ends where the next
// page may not be touched.
#include <rlk/sdk/ops/linear_cross_entropy.hpp>
#include <rlk/sdk/ops/linear_cross_entropy_backward.hpp>
#include <rlk/sdk/ops/linear_logp.hpp>
#include <rlk/sdk/ops/linear_logp_backward.hpp>

#include <sys/mman.h>
#include <unistd.h>
#include <rlk/sdk/forward.hpp>

#include <array>
#include <cstring>

#include "core/cpu/tbb_parallel.hpp"
#include "unit/cpu/linear_case.hpp"

namespace rlk::test {
namespace {

// A copy of a contiguous tensor that ends at a page without access.
class Guarded {
public:
  explicit Guarded(Tensor& tensor) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const std::vector<unsigned char> bytes = tensor.bits(0, tensor.size());
    const size_t pages = (bytes.size() + page - 1) / page + 1;
    size_ = pages * page;
    memory_ = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory_, MAP_FAILED);
    auto* const end = static_cast<unsigned char*>(memory_) + (pages - 1) * page;
    EXPECT_EQ(mprotect(end, page, PROT_NONE), 0);
    first_ = end - bytes.size();
    std::memcpy(first_, bytes.data(), bytes.size());
  }
  ~Guarded() { munmap(memory_, size_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  void* data() const { return first_; }

private:
  void* memory_ = nullptr;
  size_t size_ = 0;
  unsigned char* first_ = nullptr;
};

// The workspace ends at such a page too.
template <class Op>
void run_guarded(const cpu::CallOf<Op>& call) {
  const cpu::ParallelFor serial = cpu::serial_parallel();
  Tensor workspace(Dtype::u8, {cpu::workspace_bytes<Op>(call, serial.threads) / 8 * 8 + 8});
  const Guarded guarded(workspace);
  EXPECT_EQ(cpu::kernel<Op>().run(call, {serial, guarded.data()}).kind, cpu::kNoDataError);
}

cpu::Array array(const Guarded& memory, const Tensor& like) {
  cpu::Array guarded = array_of(like);
  guarded.data = memory.data();
  return guarded;
}

// 101 entries are whole vectors of every size and a tail, which has fewer entries than the rows that are read at once.
TEST(CpuLinearLogp, ReadsAndWritesNothingBehindItsTensors) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (auto [rows, vocab, depth] :
           std::vector<std::array<int64_t, 3>>{{3, 65, 33}, {3, 101, 33}, {49, 130, 129}, {1, 1, 1}}) {
        SCOPED_TRACE(name(dtype) + " " + std::to_string(rows) + " " + std::to_string(vocab));
        LinearCase c = make_linear_case(dtype, rows, vocab, depth, 11);
        c.bias = random_tensor(dtype, {vocab}, 1.0, 6);
        c.keep_mask = Tensor(Dtype::u8, {rows, vocab}).fill([](int64_t i) { return i % 5 == 3 ? 0 : 1; });
        add_gradients(c, false, false, 12);
        const LinearOutputs forward = run_linear(c, cpu::serial_parallel());
        const LinearGradients backward = run_linear_backward(c, cpu::serial_parallel());

        const Dtype wide = accumulator(dtype);
        Tensor logp(wide, {rows}), grad_hidden(dtype, {rows, depth}), grad_weight(wide, {vocab, depth});
        const Guarded hidden(c.hidden), weight(c.weight), bias(c.bias), ids(c.ids), lse(c.lse), g(c.grad_logp);
        const Guarded keep_mask(c.keep_mask);
        const Guarded out(logp), out_hidden(grad_hidden), out_weight(grad_weight);
        cpu::CallOf<ops::LinearLogp> call;
        call.hidden = array(hidden, c.hidden);
        call.weight = array(weight, c.weight);
        call.bias = array(bias, c.bias);
        call.ids = array(ids, c.ids);
        call.keep_mask = array(keep_mask, c.keep_mask);
        call.logp = array(out, logp);
        call.N = rows;
        call.V = vocab;
        call.D = depth;
        run_guarded<ops::LinearLogp>(call);
        const std::vector<unsigned char> expected = forward.logp.bits(0, rows);
        EXPECT_EQ(std::memcmp(out.data(), expected.data(), expected.size()), 0);

        auto back = sdk::backward_of<cpu::CallOf<ops::LinearLogpBackward>>(call);
        back.lse = array(lse, c.lse);
        back.grad_logp = array(g, c.grad_logp);
        back.grad_hidden = array(out_hidden, grad_hidden);
        back.grad_weight = array(out_weight, grad_weight);
        run_guarded<ops::LinearLogpBackward>(back);
        const std::vector<unsigned char> sums = backward.grad_weight.bits(0, vocab * depth);
        EXPECT_EQ(std::memcmp(out_weight.data(), sums.data(), sums.size()), 0);
      }
    }
  });
}

// Their class weights, in the last block.
TEST(CpuLinearCrossEntropy, ReadsNothingBehindItsClassWeights) {
  for (const int64_t vocab : {64, 65}) {
    const LinearCase c = make_linear_case(Dtype::f32, 3, vocab, 5, 11);
    Tensor class_weight = Tensor(Dtype::f32, {vocab}).fill([](int64_t) { return 0.5; });
    Tensor loss(Dtype::f32, {1}), rows(Dtype::f32, {3}), grad_hidden(Dtype::f32, {3, 5});
    loss.set(0, 1);
    rows.fill([](int64_t) { return 1; });
    const Guarded guarded(class_weight);
    cpu::CallOf<ops::LinearCrossEntropyBackward> back;
    back.hidden = array_of(c.hidden);
    back.weight = array_of(c.weight);
    back.ids = array_of(c.ids);
    back.class_weight = array(guarded, class_weight);
    back.lse = array_of(rows);
    back.grad_loss = array_of(loss);
    back.grad_hidden = array_of(grad_hidden);
    back.N = 3;
    back.V = vocab;
    back.D = 5;
    back.params.label_smoothing = 0.1;
    run_guarded<ops::LinearCrossEntropyBackward>(back);
    auto call = sdk::forward_of<cpu::CallOf<ops::LinearCrossEntropy>>(back);
    call.loss = array_of(loss);
    call.N = 3;
    call.V = vocab;
    call.D = 5;
    run_guarded<ops::LinearCrossEntropy>(call);
  }
}

}  // namespace
}  // namespace rlk::test

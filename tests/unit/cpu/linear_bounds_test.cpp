// linear_logp and its backward read nothing behind their tensors: each one ends where the next page may not be touched.
#include <sys/mman.h>
#include <unistd.h>

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

TEST(CpuLinearLogp, ReadsAndWritesNothingBehindItsTensors) {
  for_each_target([] {
    for (Dtype dtype : kFloatDtypes) {
      for (auto [rows, vocab, depth] : std::vector<std::array<int64_t, 3>>{{3, 65, 33}, {49, 130, 129}, {1, 1, 1}}) {
        SCOPED_TRACE(name(dtype) + " " + std::to_string(rows));
        LinearCase c = make_linear_case(dtype, rows, vocab, depth, 11);
        c.bias = random_tensor(dtype, {vocab}, 1.0, 6);
        add_gradients(c, false, false, 12);
        const LinearOutputs forward = run_linear(c, cpu::serial_parallel());
        const LinearGradients backward = run_linear_backward(c, cpu::serial_parallel());

        const cpu::Dtype kind = dtype, wide = cpu::accumulator(kind);
        const cpu::LinearSizes sizes{kind, rows, vocab, depth, 1.0, 0.0};
        const Dtype wide_dtype = accumulator(dtype);
        Tensor logp(wide_dtype, {rows}), grad_hidden(dtype, {rows, depth}), grad_weight(wide_dtype, {vocab, depth});
        Tensor forward_space(Dtype::u8, {cpu::linear_logp_workspace_bytes(sizes) / 8 * 8 + 8});
        Tensor backward_space(Dtype::u8, {cpu::linear_logp_backward_workspace_bytes(sizes, false) / 8 * 8 + 8});
        const Guarded hidden(c.hidden), weight(c.weight), bias(c.bias), ids(c.ids), lse(c.lse), g(c.grad_logp);
        const Guarded out(logp), out_hidden(grad_hidden), out_weight(grad_weight);
        const Guarded space(forward_space), space_backward(backward_space);

        cpu::LinearLogpArgs args;
        args.rows.n = args.rows.logits_rows = rows;
        args.rows.vocab = vocab;
        args.rows.ids = ids.data();
        args.dtype = kind;
        args.depth = depth;
        args.hidden = {hidden.data(), depth, 1};
        args.weight = {weight.data(), depth, 1};
        args.bias = bias.data();
        args.logp = out.data();
        args.logp_dtype = wide;
        args.workspace = space.data();
        cpu::DataError error;
        EXPECT_EQ(cpu::linear_logp(args, cpu::serial_parallel(), &error), cpu::LinearStatus::ok);
        const std::vector<unsigned char> expected = forward.logp.bits(0, rows);
        EXPECT_EQ(std::memcmp(out.data(), expected.data(), expected.size()), 0);

        cpu::LinearLogpBackwardArgs back;
        back.rows = args.rows;
        back.dtype = kind;
        back.depth = depth;
        back.hidden = args.hidden;
        back.weight = args.weight;
        back.bias = bias.data();
        back.lse = {lse.data(), wide, 1};
        back.grad_logp = {g.data(), wide, 1};
        back.grad_hidden = {out_hidden.data(), kind, depth, 1};
        back.grad_weight = {out_weight.data(), wide, depth, 1};
        back.workspace = space_backward.data();
        EXPECT_EQ(cpu::linear_logp_backward(back, cpu::serial_parallel(), &error), cpu::LinearStatus::ok);
        const std::vector<unsigned char> sums = backward.weight.bits(0, vocab * depth);
        EXPECT_EQ(std::memcmp(out_weight.data(), sums.data(), sums.size()), 0);
      }
    }
  });
}

}  // namespace
}  // namespace rlk::test

// Attention of samples that share a prefix as a program: the numbers of attention over each sample's keys in one piece,
// whatever is cut into parts, and one look at the prefix for all samples of a part.
#include "attention_calls.hpp"

#include <algorithm>
#include <cstring>

// The operators' files list themselves for plugins.
#define RLK_COMPOSED_LISTED(Operator)
#include "plugins/composed/operators/attention.hpp"
#include "plugins/composed/operators/attention_backward.hpp"
#include "plugins/composed/operators/prefix_shared_attention.hpp"
#include "plugins/composed/operators/prefix_shared_attention_backward.hpp"

namespace {

using namespace composed_test;
using rlk::sdk::ops::Attention, rlk::sdk::ops::AttentionBackward;
using rlk::sdk::ops::PrefixSharedAttention, rlk::sdk::ops::PrefixSharedAttentionBackward;
using View::Place::input, View::Place::output;

constexpr int64_t kRow = kKeyHeads * kColumns;  // of a key

struct Sizes {
  int64_t groups, samples, queries, prefix, own;

  int64_t all_samples() const { return groups * samples; }
  int64_t keys() const { return prefix + own; }
  int64_t rows() const { return all_samples() * queries * kHeads; }
};

// Keys of each sample, those of its prefix first; and of gradients by such keys the sums over samples, and the rest.
template <class T>
std::vector<T> joined(const Sizes& sizes, const std::vector<T>& prefix, const std::vector<T>& own, int64_t width) {
  std::vector<T> all;
  for (int64_t s = 0; s < sizes.all_samples(); ++s) {
    const auto first = prefix.begin() + s / sizes.samples * sizes.prefix * width,
               rest = own.begin() + s * sizes.own * width;
    all.insert(all.end(), first, first + sizes.prefix * width);
    all.insert(all.end(), rest, rest + sizes.own * width);
  }
  return all;
}
Numbers sums_of_prefix(const Sizes& sizes, const Numbers& all) {
  Numbers sums(static_cast<size_t>(sizes.groups * sizes.prefix * kRow));
  for (int64_t s = 0; s < sizes.all_samples(); ++s) {
    for (int64_t i = 0; i < sizes.prefix * kRow; ++i)
      sums[static_cast<size_t>(s / sizes.samples * sizes.prefix * kRow + i)] +=
          all[static_cast<size_t>(s * sizes.keys() * kRow + i)];
  }
  return sums;
}
Numbers own_of(const Sizes& sizes, const Numbers& all) {
  Numbers own;
  for (int64_t s = 0; s < sizes.all_samples(); ++s) {
    const auto end = all.begin() + (s + 1) * sizes.keys() * kRow;
    own.insert(own.end(), end - sizes.own * kRow, end);
  }
  return own;
}

// A mask of bytes in the memory that the interpreter has.
using Bytes = std::vector<char>;
Bytes mask(int64_t count, int64_t every) {
  Bytes made(static_cast<size_t>(count), 1);
  for (int64_t i = 1; i < count; i += every) made[static_cast<size_t>(i)] = 0;
  return made;
}
Numbers memory_of(const Bytes& bytes) {
  Numbers memory(bytes.size() / sizeof(float) + 1);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(memory.data()));
  return memory;
}
View mask_view(uint32_t index, const Dims& dims) {
  View made = view(input, index, dims);
  made.dtype = Dtype::boolean;
  return made;
}

struct Answers {
  Numbers out, lse, grad_q, grad_k, grad_v;

  explicit Answers(const Sizes& sizes, int64_t keys)
      : out(static_cast<size_t>(sizes.rows() * kColumns)),
        lse(static_cast<size_t>(sizes.rows())),
        grad_q(out.size()),
        grad_k(static_cast<size_t>(keys * kRow)),
        grad_v(grad_k.size()) {}
};

struct Inputs {
  Numbers q, prefix_k, prefix_v, k, v, grad_out, grad_lse;
  Bytes prefix_mask, key_mask;

  explicit Inputs(const Sizes& sizes)
      : q(numbers(sizes.rows() * kColumns, 1)),
        prefix_k(numbers(sizes.groups * sizes.prefix * kRow, 2)),
        prefix_v(numbers(sizes.groups * sizes.prefix * kRow, 3)),
        k(numbers(sizes.all_samples() * sizes.own * kRow, 4)),
        v(numbers(sizes.all_samples() * sizes.own * kRow, 5)),
        grad_out(numbers(sizes.rows() * kColumns, 6)),
        grad_lse(numbers(sizes.rows(), 7)),
        prefix_mask(mask(sizes.groups * sizes.prefix, 4)),
        key_mask(mask(sizes.all_samples() * sizes.own, 3)) {}
};

template <class Op>
Arguments<Op> described(const Options& options) {
  Arguments<Op> call;
  set(call.params, options);
  call.Hq = kHeads, call.Hkv = kKeyHeads, call.D = kColumns;
  return call;
}

Answers of_one_piece(const Sizes& sizes, const Options& options, bool has_masks, Inputs in) {
  const Primitives primitives = vendor(false);
  const std::vector<Alias> aliases;
  Answers answers(sizes, sizes.all_samples() * sizes.keys());
  Numbers k = joined(sizes, in.prefix_k, in.k, kRow), v = joined(sizes, in.prefix_v, in.v, kRow);
  Numbers hidden = memory_of(joined(sizes, in.prefix_mask, in.key_mask, 1));
  const int64_t count = sizes.all_samples();
  const Dims of_queries{count, sizes.queries, kHeads, kColumns}, of_rows{count, sizes.queries, kHeads};
  const Dims of_keys{count, sizes.keys(), kKeyHeads, kColumns};
  const auto describe = [&](auto& call, uint32_t mask_index) {
    call.B = count, call.Sq = sizes.queries, call.Sk = sizes.keys();
    call.q = view(input, 0, of_queries), call.k = view(input, 1, of_keys), call.v = view(input, 2, of_keys);
    if (has_masks) call.key_mask = mask_view(mask_index, {count, sizes.keys()});
  };

  auto forward = described<Attention>(options);
  describe(forward, 3);
  forward.out = view(output, 0, of_queries), forward.lse = view(output, 1, of_rows);
  Parts parts(primitives, aliases);
  compose_attention(parts, forward);
  Interpreter(primitives, {&in.q, &k, &v, &hidden}, {&answers.out, &answers.lse}).run(parts.take());

  auto backward = described<AttentionBackward>(options);
  describe(backward, 7);
  backward.out = view(input, 3, of_queries), backward.lse = view(input, 4, of_rows);
  backward.grad_out = view(input, 5, of_queries), backward.grad_lse = view(input, 6, of_rows);
  backward.grad_q = view(output, 0, of_queries);
  backward.grad_k = view(output, 1, of_keys), backward.grad_v = view(output, 2, of_keys);
  Parts back(primitives, aliases);
  compose_attention_backward(back, backward);
  Interpreter(primitives, {&in.q, &k, &v, &answers.out, &answers.lse, &in.grad_out, &in.grad_lse, &hidden},
              {&answers.grad_q, &answers.grad_k, &answers.grad_v})
      .run(back.take());
  return answers;
}

// By prefix_shared_attention's views, of a call and of its gradient.
struct Shared {
  Arguments<PrefixSharedAttention> forward;
  Arguments<PrefixSharedAttentionBackward> backward;

  Shared(const Sizes& sizes, const Options& options, bool has_masks)
      : forward(described<PrefixSharedAttention>(options)),
        backward(described<PrefixSharedAttentionBackward>(options)) {
    const Dims of_queries{sizes.groups, sizes.samples, sizes.queries, kHeads, kColumns};
    const Dims of_rows{sizes.groups, sizes.samples, sizes.queries, kHeads};
    const Dims of_prefix{sizes.groups, sizes.prefix, kKeyHeads, kColumns};
    const Dims of_own{sizes.groups, sizes.samples, sizes.own, kKeyHeads, kColumns};
    const auto describe = [&](auto& call, uint32_t mask_index) {
      call.B = sizes.groups, call.G = sizes.samples, call.Sq = sizes.queries;
      call.Sp = sizes.prefix, call.Sk = sizes.own;
      call.q = view(input, 0, of_queries);
      call.prefix_k = view(input, 1, of_prefix), call.prefix_v = view(input, 2, of_prefix);
      call.k = view(input, 3, of_own), call.v = view(input, 4, of_own);
      if (!has_masks) return;
      call.prefix_mask = mask_view(mask_index, {sizes.groups, sizes.prefix});
      call.key_mask = mask_view(mask_index + 1, {sizes.groups, sizes.samples, sizes.own});
    };
    describe(forward, 5);
    forward.out = view(output, 0, of_queries), forward.lse = view(output, 1, of_rows);
    describe(backward, 9);
    backward.out = view(input, 5, of_queries), backward.lse = view(input, 6, of_rows);
    backward.grad_out = view(input, 7, of_queries), backward.grad_lse = view(input, 8, of_rows);
    backward.grad_q = view(output, 0, of_queries);
    backward.grad_prefix_k = view(output, 1, of_prefix), backward.grad_prefix_v = view(output, 2, of_prefix);
    backward.grad_k = view(output, 3, of_own), backward.grad_v = view(output, 4, of_own);
  }
};

Program forward_program(const Primitives& primitives, const Shared& calls) {
  const std::vector<Alias> aliases;
  Parts parts(primitives, aliases);
  compose_prefix_shared(parts, calls.forward);
  return parts.take();
}
size_t reads(const Program& program, uint32_t index) {
  size_t count = 0;
  for (const Step& step : program.steps) {
    count += static_cast<size_t>(std::count_if(step.in.begin(), step.in.end(), [&](const Operand& operand) {
      return operand.place == Operand::Place::input && operand.index == index;
    }));
  }
  return count;
}

// On a vendor with so much workspace; answers how many steps both took.
size_t check(const Sizes& sizes, const Shared& calls, const Answers& wanted, bool is_strict, uint64_t workspace_bytes) {
  const Primitives primitives = vendor(is_strict, workspace_bytes);
  Inputs in(sizes);
  Numbers prefix_mask = memory_of(in.prefix_mask), key_mask = memory_of(in.key_mask);

  Answers own(sizes, sizes.all_samples() * sizes.own);
  const Program forward = forward_program(primitives, calls);
  EXPECT_FALSE(forward.refusal);
  Interpreter(primitives, {&in.q, &in.prefix_k, &in.prefix_v, &in.k, &in.v, &prefix_mask, &key_mask},
              {&own.out, &own.lse})
      .run(forward);
  expect_near(own.out, wanted.out, "out");
  expect_near(own.lse, wanted.lse, "lse");

  Numbers grad_prefix_k(in.prefix_k.size()), grad_prefix_v(in.prefix_v.size());
  const std::vector<Alias> aliases;
  Parts parts(primitives, aliases);
  compose_prefix_shared_backward(parts, calls.backward);
  const Program backward = parts.take();
  EXPECT_FALSE(backward.refusal);
  Interpreter(primitives,
              {&in.q, &in.prefix_k, &in.prefix_v, &in.k, &in.v, &own.out, &own.lse, &in.grad_out, &in.grad_lse,
               &prefix_mask, &key_mask},
              {&own.grad_q, &grad_prefix_k, &grad_prefix_v, &own.grad_k, &own.grad_v})
      .run(backward);
  expect_near(own.grad_q, wanted.grad_q, "grad_q");
  expect_near(grad_prefix_k, sums_of_prefix(sizes, wanted.grad_k), "grad_prefix_k");
  expect_near(grad_prefix_v, sums_of_prefix(sizes, wanted.grad_v), "grad_prefix_v");
  expect_near(own.grad_k, own_of(sizes, wanted.grad_k), "grad_k");
  expect_near(own.grad_v, own_of(sizes, wanted.grad_v), "grad_v");
  return forward.steps.size() + backward.steps.size();
}

constexpr Sizes kSizes[] = {{2, 3, 4, 9, 5}, {1, 5, 3, 2, 0}, {2, 2, 3, 0, 4}, {1, 4, 1, 70, 1}, {3, 1, 7, 2, 3}};
constexpr Options kOptions[] = {{}, {true}, {true, true}, {false, false, 3, 1}, {true, false, 2, -1, 1.5}};

TEST(ComposedPrefixAttention, PartsOfAnySizeGiveTheNumbersOfOnePiece) {
  for (const Sizes& sizes : kSizes) {
    for (const Options& options : kOptions) {
      for (const bool has_masks : {false, true}) {
        const Shared calls(sizes, options, has_masks);
        const Answers wanted = of_one_piece(sizes, options, has_masks, Inputs(sizes));
        for (const bool is_strict : {false, true}) {
          SCOPED_TRACE(testing::Message() << "sizes " << &sizes - kSizes << ", option " << &options - kOptions
                                          << ", masks " << has_masks << ", strict " << is_strict);
          const size_t steps = check(sizes, calls, wanted, is_strict, ~uint64_t{0});
          EXPECT_LE(steps, check(sizes, calls, wanted, is_strict, 8192));
          EXPECT_LT(steps, check(sizes, calls, wanted, is_strict, 1));
        }
      }
    }
  }
}

TEST(ComposedPrefixAttention, ThePrefixIsReadOnceForAllSamplesOfAPart) {
  const Primitives primitives = vendor(true);
  for (const int64_t samples : {1, 8}) {
    const Program program = forward_program(primitives, Shared({2, samples, 4, 9, 5}, {}, false));
    EXPECT_EQ(reads(program, 1), 1U) << samples;
    EXPECT_EQ(reads(program, 2), 1U) << samples;
  }
}

// Nothing is written but zeros of gradients that nothing is added to.
TEST(ComposedPrefixAttention, WithoutQueriesKeysHaveNoGradient) {
  const Primitives primitives = vendor(true);
  const std::vector<Alias> aliases;
  for (const Sizes& sizes : {Sizes{2, 0, 3, 4, 5}, Sizes{2, 3, 0, 4, 5}}) {
    const Shared calls(sizes, {}, false);
    EXPECT_TRUE(forward_program(primitives, calls).steps.empty());
    Inputs in(sizes);
    Answers own(sizes, sizes.all_samples() * sizes.own);
    Numbers grad_prefix_k(in.prefix_k.size(), 1), grad_prefix_v(in.prefix_v.size(), 1);
    own.grad_k.assign(own.grad_k.size(), 1), own.grad_v.assign(own.grad_v.size(), 1);
    Parts parts(primitives, aliases);
    compose_prefix_shared_backward(parts, calls.backward);
    Interpreter(primitives,
                {&in.q, &in.prefix_k, &in.prefix_v, &in.k, &in.v, &own.out, &own.lse, &in.grad_out, &in.grad_lse},
                {&own.grad_q, &grad_prefix_k, &grad_prefix_v, &own.grad_k, &own.grad_v})
        .run(parts.take());
    for (const Numbers* grads : {&grad_prefix_k, &grad_prefix_v, &own.grad_k, &own.grad_v}) {
      for (const float grad : *grads) EXPECT_EQ(grad, 0);
    }
  }
}

}  // namespace

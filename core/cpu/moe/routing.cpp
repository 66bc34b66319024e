// Which experts a token goes to, and tokens in order of their experts.
#include <rlk/sdk/ops/moe_align_block_size.hpp>
#include <rlk/sdk/ops/topk_softmax.hpp>

#include <algorithm>
#include <cmath>

#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Softmax = CallOf<sdk::ops::TopkSoftmax>;
using Align = CallOf<sdk::ops::MoeAlignBlockSize>;

struct Scored {
  double score;
  int64_t expert;
  // A NaN is above every number, and of equal scores the first one counts.
  bool operator<(const Scored& other) const {
    if (std::isnan(score) || std::isnan(other.score)) {
      return std::isnan(score) == std::isnan(other.score) ? expert < other.expert : std::isnan(score);
    }
    return score != other.score ? score > other.score : expert < other.expert;
  }
};

int64_t parts_of(int64_t rows, int64_t threads) {
  return std::max<int64_t>(1, std::min(rows, threads));
}

// Shares of a row relative to its largest score, in fp64.
void choose(const Softmax& call, int64_t n, Scored* scored) {
  const int64_t k = call.params.k;
  for (int64_t e = 0; e < call.E; ++e) scored[e] = {call.x.get(n, e), e};
  if (k < call.E) std::nth_element(scored, scored + k, scored + call.E);
  std::sort(scored, scored + k);
  const double largest = scored[0].score;
  LongSum sum;
  const int64_t summed = call.params.renormalize == sdk::ops::topk_softmax::Renormalize::on ? k : call.E;
  for (int64_t e = 0; e < call.E; ++e) {
    scored[e].score = std::exp(scored[e].score - largest);
    if (e < summed) sum.add(scored[e].score);
  }
  for (int64_t j = 0; j < k; ++j) {
    call.weights.put(n, j, scored[j].score / sum.value());
    call.ids.put(n, j, static_cast<double>(scored[j].expert));
  }
}

// Each part of the rows has memory for one row.
DataError topk_softmax(const Softmax& call, const Context& context) {
  const int64_t parts = parts_of(call.N, context.parallel.threads);
  parallel_for(context.parallel, call.N > 0 ? parts : 0, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      auto* const scored = static_cast<Scored*>(context.workspace) + part * call.E;
      for (int64_t n = part * call.N / parts; n < (part + 1) * call.N / parts; ++n) choose(call, n, scored);
    }
  });
  return {};
}

// By counting: where each expert's places begin, and then every place in its order.
DataError moe_align_block_size(const Align& call, const Context& context) {
  const int64_t places = call.N * call.K, experts = call.params.experts, block = call.params.block_size;
  auto* const next = static_cast<int64_t*>(context.workspace);
  std::fill(next, next + experts, int64_t{0});
  const auto id_of = [&](int64_t i) { return call.topk_ids.integer(i / call.K, i % call.K); };
  const auto is_here = [&](int64_t id) { return id >= 0 && id < experts && id != call.params.ignore_index; };
  DataError error;
  for (int64_t i = 0; i < places; ++i) {
    const int64_t id = id_of(i);
    if (is_here(id)) {
      ++next[id];
    } else if (id != call.params.ignore_index && error.kind == kNoDataError) {
      error = {kIdOutOfRange, i, id};
    }
  }
  int64_t begin = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t padded = (next[e] + block - 1) / block * block;
    next[e] = begin;
    for (int64_t b = begin / block; b < (begin + padded) / block; ++b) call.expert_ids.put(b, static_cast<double>(e));
    begin += padded;
  }
  for (int64_t b = begin / block; b < call.expert_ids.shape[0]; ++b) call.expert_ids.put(b, -1.0);
  for (int64_t i = 0; i < call.sorted_token_ids.shape[0]; ++i)
    call.sorted_token_ids.put(i, static_cast<double>(places));
  for (int64_t i = 0; i < places; ++i) {
    const int64_t id = id_of(i);
    if (is_here(id)) call.sorted_token_ids.put(next[id]++, static_cast<double>(i));
  }
  call.num_tokens_post_pad.put(0, static_cast<double>(begin));
  return error;
}

int64_t scored_bytes(const Softmax& call, int64_t threads) {
  return parts_of(call.N, threads) * call.E * static_cast<int64_t>(sizeof(Scored));
}
int64_t next_bytes(const Align& call) {
  return call.params.experts * static_cast<int64_t>(sizeof(int64_t));
}
double softmax_operations(const Softmax& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.E) * 1000;
}
double align_operations(const Align& call) {
  return static_cast<double>(call.N) * static_cast<double>(call.K) * 300;
}

}  // namespace

RLK_CPU_KERNEL(TopkSoftmax, .run = topk_softmax, .operations = softmax_operations,
               .workspace_of_threads = scored_bytes);
RLK_CPU_KERNEL(MoeAlignBlockSize, .run = moe_align_block_size, .operations = align_operations,
               .workspace_bytes = next_bytes);

}  // namespace rlk::cpu

// What passes over the tokens of policy_loss share: sums in vectors, and loops over the vectors of a block. A pass has
// a chain per lane and chunk, and adds chunks in their order.
#if defined(RLK_CPU_POLICY_PASSES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_POLICY_PASSES_INL
#undef RLK_CPU_POLICY_PASSES_INL
#else
#define RLK_CPU_POLICY_PASSES_INL
#endif

#include <cmath>
#include <type_traits>

#include "core/cpu/policy/policy_passes.hpp"
#include "core/cpu/policy/policy_tokens-inl.hpp"

// Of a lambda that is called for every vector: its arguments and sums are to stay in registers.
#undef RLK_CPU_INLINE
#define RLK_CPU_INLINE HWY_ATTR __attribute__((always_inline))

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

HWY_INLINE double sum_of_vector(PolicyVector v) {
  const PolicyDoubles d;
  return hn::GetLane(hn::SumOfLanes(d, v));
}

// Sums of vectors under names of an enumeration.
template <int kSums>
class VectorSums {
public:
  VectorSums() {
    for (int i = 0; i < kSums; ++i) sums_[i] = hn::Zero(PolicyDoubles());
  }
  HWY_INLINE void add(int i, PolicyMask where, PolicyVector v) {
    sums_[i] = hn::IfThenElse(where, hn::Add(sums_[i], v), sums_[i]);  // one instruction where lanes have masks
  }
  HWY_INLINE void count(int i, PolicyMask where) { add(i, where, hn::Set(PolicyDoubles(), 1.0)); }
  HWY_INLINE void raise(int i, PolicyMask where, PolicyVector v) {  // a NaN stays the largest
    const auto stays = hn::Or(hn::Not(where), hn::Or(hn::Ge(sums_[i], v), hn::IsNaN(sums_[i])));
    sums_[i] = hn::IfThenElse(stays, sums_[i], v);
  }
  HWY_INLINE double sum(int i) const { return sum_of_vector(sums_[i]); }
  double largest(int i) const {
    double lanes[hn::MaxLanes(PolicyDoubles())];
    hn::StoreU(sums_[i], PolicyDoubles(), lanes);
    double all = lanes[0];
    for (size_t k = 1; k < hn::Lanes(PolicyDoubles()); ++k) {
      if (!(all >= lanes[k] || std::isnan(all))) all = lanes[k];
    }
    return all;
  }
  void put(PolicyChunkSums& chunk) const {
    for (int i = 0; i < kSums; ++i) chunk.of[i] = sum(i);
  }

private:
  PolicyVector sums_[kSums];
};

// Calls function(tokens, which are there, place in the block) for the vectors of a block.
template <class B, class Function>
HWY_INLINE void for_each_policy_vector(const B& block, int64_t n, double sequence_advantage, const Function& function) {
  const PolicyDoubles d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const PolicyVector advantage = hn::Set(d, sequence_advantage);
  int64_t i = 0;
  if constexpr (std::is_same_v<B, SinglePolicyBlock>) {  // a second instance, without the question which are there
    for (; i + lanes <= n; i += lanes) {
      if (i % 16 == 0) block.fetch(kAdvantageLine, i, 16);
      function(tokens_at(block, i, advantage), hn::FirstN(d, hn::Lanes(d)), i);
    }
  }
  for (; i < n; i += lanes) {
    function(tokens_at(block, i, advantage), hn::FirstN(d, static_cast<size_t>(n - i)), i);
  }
}

// The sum of chunks' numbers of a sequence.
inline double sum_of(const PolicyBatch& batch, const PolicyChunkSums* sums, int64_t b, int i) {
  double sum = 0;
  for (int64_t chunk = batch.chunks[b]; chunk < batch.chunks[b + 1]; ++chunk) sum += sums[chunk].of[i];
  return sum;
}

// Calls function(place in the block, key) for the tokens of a block that may be taken by covariance.
template <class Function>
HWY_INLINE void for_each_key(const PolicyBatch& batch, int64_t b, int64_t begin, int64_t n, const PolicyBlock& block,
                             const Function& function) {
  HWY_ALIGN double active[kLineBlock], clipped[kLineBlock], advantage[kLineBlock], logp[kLineBlock];
  const PolicyDoubles d;
  const PolicyVector one = hn::Set(d, 1.0);
  const PolicySequence& own = batch.own_of(b);
  PolicyRatios ratios;
  ratios.read(batch, own, block, n);
  const auto of_vector = [&](const PolicyTokens& token, PolicyMask given, int64_t i) HWY_ATTR {
    const PolicyVector log_ratio = log_ratio_of(d, batch.rules, own, token);
    const PolicyInput<PolicyVector> input{token.logp, token.old_logp, token.advantage, log_ratio, ratios.at(i), given};
    const auto is_clipped = hn::Or(ppo(d, batch.rules, input).clipped, hn::IsNaN(log_ratio));
    hn::StoreU(
        hn::IfThenElseZero(count_token(d, batch.rules, batch.terms.weight_divisor, own, token, given).active, one), d,
        active + i);
    hn::StoreU(hn::IfThenElseZero(is_clipped, one), d, clipped + i);
    hn::StoreU(token.advantage, d, advantage + i);
    hn::StoreU(token.logp, d, logp + i);
  };
  for_each_policy_vector(block, n, batch.sequence_advantage(b), of_vector);
  for (int64_t i = 0; i < n; ++i) {
    CovarianceKey key;
    key.place = batch.first_token(b) + begin + i;
    const CovarianceToken token = {logp[i], advantage[i], clipped[i] != 0};
    if (active[i] == 0 || !covariance_key(batch.params, token, batch.terms.covariance, b, begin + i, &key.key))
      continue;
    function(i, key);
  }
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target

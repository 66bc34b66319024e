// Mean from differences to one of the numbers, variance from differences to the mean, then every number.
// Cost model: three passes over the numbers, one where the moments are given. Sums are taken over fixed chunks and
// added in their order, so that bits do not depend on threads.
#include <rlk/sdk/ops/whiten.hpp>

#include <algorithm>
#include <cmath>

#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/operator.hpp"

namespace rlk::cpu {
using namespace sdk::ops::whiten;  // NOLINT(google-build-using-namespace): its enumerations

namespace {

using Call = CallOf<sdk::ops::Whiten>;

constexpr int64_t kChunk = 4096;  // numbers, counted over the whole batch

struct ChunkSum {
  double sum, count;
};

int64_t chunks_of(const Call& call) {
  return (call.B * call.L + kChunk - 1) / kChunk;
}

class Passes {
public:
  Passes(const Call& call, const Context& context) : call_(call), context_(context) {}

  // The first number that counts; 0 when there is none.
  double first() const {
    for (int64_t b = 0; b < call_.B; ++b) {
      for (int64_t t = 0; t < call_.L; ++t) {
        if (call_.mask.keeps(b, t)) return call_.x.get(b, t);
      }
    }
    return 0;
  }

  // The sum of term(x) over all numbers that count.
  template <typename Term>
  ChunkSum sum(Term&& term) const {
    auto* chunks = static_cast<ChunkSum*>(context_.workspace);
    for_each_chunk([&](int64_t chunk, int64_t begin, int64_t end) {
      LongSum own;
      double count = 0;
      for_each(begin, end, [&](int64_t b, int64_t t) {
        if (!call_.mask.keeps(b, t)) return;
        own.add(term(call_.x.get(b, t)));
        count += 1;
      });
      chunks[chunk] = {own.value(), count};
    });
    LongSum total;
    double count = 0;
    for (int64_t chunk = 0; chunk < chunks_of(call_); ++chunk) {
      total.add(chunks[chunk].sum);
      count += chunks[chunk].count;
    }
    return {total.value(), count};
  }

  void write(double mean, double divisor) const {
    for_each_chunk([&](int64_t, int64_t begin, int64_t end) {
      for_each(begin, end, [&](int64_t b, int64_t t) {
        double y = 0;
        if (call_.mask.keeps(b, t))
          y = (call_.x.get(b, t) - mean) / divisor + (call_.params.shift_mean == ShiftMean::on ? 0 : mean);
        call_.y.put(b, t, y);
      });
    });
  }

private:
  template <typename Function>
  void for_each_chunk(Function&& function) const {
    const int64_t elements = call_.B * call_.L;
    parallel_for(context_.parallel, chunks_of(call_), 1, [&](int64_t first, int64_t last) {
      for (int64_t chunk = first; chunk < last; ++chunk) {
        function(chunk, chunk * kChunk, std::min((chunk + 1) * kChunk, elements));
      }
    });
  }
  template <typename Function>
  void for_each(int64_t begin, int64_t end, Function&& function) const {
    int64_t b = begin / call_.L, t = begin % call_.L;
    for (int64_t i = begin; i < end; ++i) {
      function(b, t);
      if (++t == call_.L) {
        ++b;
        t = 0;
      }
    }
  }

  const Call& call_;
  const Context& context_;
};

struct Moments {
  double mean, variance;
};

Moments moments(const Call& call, const Passes& passes) {
  if (call.mean.present()) return {call.mean.get(0), call.variance.get(0)};
  const double first = passes.first();
  const ChunkSum differences = passes.sum([first](double x) { return x - first; });
  const double count = std::max(differences.count, 1.0);
  const double mean = first + differences.sum / count;
  const ChunkSum squares = passes.sum([mean](double x) { return (x - mean) * (x - mean); });
  return {mean, squares.sum / std::max(call.params.std == Std::unbiased ? count - 1 : count, 1.0)};
}

DataError whiten(const Call& call, const Context& context) {
  if (call.B * call.L == 0) return {};
  const Passes passes(call, context);
  const auto [mean, variance] = moments(call, passes);
  const double eps = call.params.eps;
  double divisor = 0;
  switch (call.params.eps_mode) {
    case EpsMode::variance:
      divisor = std::sqrt(variance + eps);
      break;
    case EpsMode::variance_floor:
      divisor = std::sqrt(variance < eps ? eps : variance);
      break;
    case EpsMode::deviation:
      divisor = std::sqrt(variance) + eps;
      break;
  }
  passes.write(mean, divisor);
  return {};
}

int64_t whiten_workspace(const Call& call) {
  return chunks_of(call) * static_cast<int64_t>(sizeof(ChunkSum));
}

double whiten_operations(const Call& call) {
  return static_cast<double>(call.B * call.L) * 1000;
}

}  // namespace

RLK_CPU_KERNEL(Whiten, .run = whiten, .operations = whiten_operations, .workspace_bytes = whiten_workspace);

}  // namespace rlk::cpu

// Mean from differences to one of the numbers, variance from differences to the mean, then every number.
#include "core/cpu/kernels/whiten.hpp"

#include <algorithm>
#include <cmath>

#include "core/cpu/kernels/long_sum.hpp"

namespace rlk::cpu {
namespace {

constexpr int64_t kChunk = 4096;  // numbers, counted over the whole batch

struct ChunkSum {
  double sum, count;
};

int64_t chunks_of(int64_t rows, int64_t columns) {
  return (rows * columns + kChunk - 1) / kChunk;
}

class Kernel {
public:
  Kernel(const WhitenArgs& args, const ParallelFor& hook) : args_(args), hook_(hook) {}

  // The first number that counts; 0 when there is none.
  double first() const {
    for (int64_t b = 0; b < args_.rows; ++b) {
      for (int64_t t = 0; t < args_.columns; ++t) {
        if (args_.mask.keeps(b, t)) return args_.x.get(b, t);
      }
    }
    return 0;
  }

  // The sum of term(x) over all numbers that count.
  template <typename Term>
  ChunkSum sum(Term&& term) const {
    auto* chunks = static_cast<ChunkSum*>(args_.workspace);
    for_each_chunk([&](int64_t chunk, int64_t begin, int64_t end) {
      LongSum own;
      double count = 0;
      for_each(begin, end, [&](int64_t b, int64_t t) {
        if (!args_.mask.keeps(b, t)) return;
        own.add(term(args_.x.get(b, t)));
        count += 1;
      });
      chunks[chunk] = {own.value(), count};
    });
    LongSum total;
    double count = 0;
    for (int64_t chunk = 0; chunk < chunks_of(args_.rows, args_.columns); ++chunk) {
      total.add(chunks[chunk].sum);
      count += chunks[chunk].count;
    }
    return {total.value(), count};
  }

  void write(double mean, double divisor) const {
    for_each_chunk([&](int64_t, int64_t begin, int64_t end) {
      for_each(begin, end, [&](int64_t b, int64_t t) {
        double y = 0;
        if (args_.mask.keeps(b, t)) y = (args_.x.get(b, t) - mean) / divisor + (args_.shift_mean ? 0 : mean);
        args_.y.put(b, t, y);
      });
    });
  }

private:
  template <typename Function>
  void for_each_chunk(Function&& function) const {
    const int64_t elements = args_.rows * args_.columns;
    parallel_for(hook_, chunks_of(args_.rows, args_.columns), 1, [&](int64_t first, int64_t last) {
      for (int64_t chunk = first; chunk < last; ++chunk) {
        function(chunk, chunk * kChunk, std::min((chunk + 1) * kChunk, elements));
      }
    });
  }
  template <typename Function>
  void for_each(int64_t begin, int64_t end, Function&& function) const {
    int64_t b = begin / args_.columns, t = begin % args_.columns;
    for (int64_t i = begin; i < end; ++i) {
      function(b, t);
      if (++t == args_.columns) {
        ++b;
        t = 0;
      }
    }
  }

  const WhitenArgs& args_;
  const ParallelFor& hook_;
};

}  // namespace

int64_t whiten_workspace_bytes(int64_t rows, int64_t columns) {
  return chunks_of(rows, columns) * static_cast<int64_t>(sizeof(ChunkSum));
}

void whiten(const WhitenArgs& args, const ParallelFor& hook) {
  if (args.rows * args.columns == 0) return;
  const Kernel kernel(args, hook);
  const double first = kernel.first();
  const ChunkSum differences = kernel.sum([first](double x) { return x - first; });
  const double count = std::max(differences.count, 1.0);
  const double mean = first + differences.sum / count;
  const ChunkSum squares = kernel.sum([mean](double x) { return (x - mean) * (x - mean); });
  const double variance = squares.sum / std::max(args.unbiased ? count - 1 : count, 1.0);
  double divisor = 0;
  switch (args.eps_mode) {
    case WhitenArgs::EpsMode::variance:
      divisor = std::sqrt(variance + args.eps);
      break;
    case WhitenArgs::EpsMode::variance_floor:
      divisor = std::sqrt(variance < args.eps ? args.eps : variance);
      break;
    case WhitenArgs::EpsMode::deviation:
      divisor = std::sqrt(variance) + args.eps;
      break;
  }
  kernel.write(mean, divisor);
}

}  // namespace rlk::cpu

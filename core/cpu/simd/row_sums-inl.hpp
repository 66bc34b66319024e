// Sums of rows, element by element, compensated in fp64: line after line, in their order; for every Highway target.
#if defined(RLK_CPU_ROW_SUMS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef RLK_CPU_ROW_SUMS_INL
#undef RLK_CPU_ROW_SUMS_INL
#else
#define RLK_CPU_ROW_SUMS_INL
#endif

#include <algorithm>

#include "core/cpu/simd/lines-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace rlk::cpu::HWY_NAMESPACE {

constexpr int64_t kRowSumColumns = 256;  // so that sums stay in L1

// y[i] = the sum over k < rows of row(k)[i], divided by `divisor`.
template <class Row>
HWY_INLINE void sum_of_rows(const Line& y, int64_t columns, int64_t rows, const Row& row, double divisor = 1) {
  for (int64_t begin = 0; begin < columns; begin += kRowSumColumns) {
    const int64_t count = std::min(kRowSumColumns, columns - begin);
    double sums[kRowSumColumns] = {}, rests[kRowSumColumns] = {};
    const Line sum = line_of(Array::of(sums)), rest = line_of(Array::of(rests));
    for (int64_t k = 0; k < rows; ++k) {
      map_lines<double>(to(sum, rest), from(sum, rest, row(k).from(begin)), count,
                        [](auto, auto total, auto lost, auto v, auto& next, auto& next_lost) HWY_ATTR {
                          next = hn::Add(total, v);
                          const auto added = hn::Sub(next, total);
                          const auto error = hn::Add(hn::Sub(total, hn::Sub(next, added)), hn::Sub(v, added));
                          next_lost = hn::Add(lost, error);
                        });
    }
    map_lines<double>(to(y.from(begin)), from(sum, rest), count, [&](auto d, auto total, auto lost) HWY_ATTR {
      const auto whole = hn::IfThenElse(hn::IsFinite(total), hn::Add(total, lost), total);
      return divisor == 1 ? whole : hn::Div(whole, hn::Set(d, divisor));
    });
  }
}

}  // namespace rlk::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target

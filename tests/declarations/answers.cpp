// The fp64 reference of the operators that only tests have.
#include <rlk/sdk/ops/block_dequantize.hpp>
#include <rlk/sdk/ops/cache_append.hpp>
#include <rlk/sdk/ops/paged_rows.hpp>
#include <rlk/sdk/ops/prefix_count.hpp>
#include <rlk/sdk/ops/shift_left.hpp>
#include <rlk/sdk/ops/window_max.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/golden/operator.hpp"

namespace rlk::golden {
namespace {

// A product is rounded once; a NaN or an infinity has no condition.
void add_product(Output& output, double value) {
  output.value.push_back(value);
  output.cond.push_back(std::isfinite(value) ? kTiny + std::fabs(value) : 0.0);
}
void add_exact(Output& output, double value) {
  output.value.push_back(value);
  output.cond.push_back(0.0);
}

// The low bits of a number as the dtype reads them.
int64_t wrapped(int64_t value, Dtype dtype) {
  switch (dtype) {
    case Dtype::i8:
      return static_cast<int8_t>(value);
    case Dtype::u16:
      return static_cast<uint16_t>(value);
    case Dtype::i32:
      return static_cast<int32_t>(value);
    default:
      return value;
  }
}

}  // namespace

DataError cache_append(CallOf<sdk::ops::CacheAppend>& call) {
  DataError error;
  Output& out = call.out_cache;
  for (int64_t s = 0; s < call.S; ++s) {
    for (int64_t d = 0; d < call.D; ++d) add_exact(out, call.cache.load(s, d));
  }
  out.kept.assign(out.value.size(), true);
  std::vector<int64_t> writes(static_cast<size_t>(call.S), 0);
  for (int64_t n = 0; n < call.N; ++n) {
    const int64_t slot = call.slots.load_int(n);
    if (slot < 0 || slot >= call.S) {
      if (error.kind == kNoDataError) error = {kRowOutOfRange, n, slot};
      continue;
    }
    ++writes[static_cast<size_t>(slot)];
    for (int64_t d = 0; d < call.D; ++d) {
      const auto at = static_cast<size_t>(slot * call.D + d);
      const double product = call.params.scale * call.rows.load(n, d);
      out.value[at] = product;
      out.cond[at] = std::isfinite(product) ? kTiny + std::fabs(product) : 0.0;
      out.kept[at] = false;
    }
  }
  for (int64_t s = 0; s < call.S && call.out_counts.wanted; ++s) {
    const int64_t written = writes[static_cast<size_t>(s)];
    add_exact(call.out_counts, static_cast<double>(call.counts.load_int(s) + written));
    call.out_counts.kept.push_back(written == 0);
  }
  return error;
}

DataError paged_rows(CallOf<sdk::ops::PagedRows>& call) {
  DataError error;
  for (int64_t b = 0; b < call.B; ++b) {
    const int64_t length = call.lengths.load_int(b), places = call.M * call.BS;
    DataError own;
    if (length < 0 || length > places) own = {kBadSeqlens, b, length};
    for (int64_t m = 0; own.kind == kNoDataError && m * call.BS < length; ++m) {
      const int64_t block = call.block_table.load_int(b, m);
      if (block < 0 || block >= call.NB) own = {kIdOutOfRange, b, block};
    }
    if (error.kind == kNoDataError) error = own;
    for (int64_t p = 0; p < places; ++p) {
      if (own.kind != kNoDataError) {
        add_exact(call.out, std::numeric_limits<double>::quiet_NaN());
      } else if (p >= length) {
        add_exact(call.out, 0);
      } else {
        const double factor = call.factors.present() ? call.factors.load(b) : 1;
        add_product(call.out, factor * call.cache.load(call.block_table.load_int(b, p / call.BS), p % call.BS));
      }
    }
  }
  return error;
}

DataError prefix_count(CallOf<sdk::ops::PrefixCount>& call) {
  int64_t count = call.params.start;
  for (int64_t n = 0; n < call.N; ++n) {
    add_exact(call.out, static_cast<double>(count));
    call.out.exact.push_back(count);
    count += call.mask.load_int(n) != 0 ? 1 : 0;
  }
  return {};
}

DataError shift_left(CallOf<sdk::ops::ShiftLeft>& call) {
  const int64_t factor = int64_t{1} << call.params.shift;
  for (int64_t r = 0; r < call.R; ++r) {
    for (int64_t c = 0; c < call.C; ++c) {
      const int64_t value = call.x.load_int(r, c), shifted = wrapped(value * factor, call.x.dtype);
      add_exact(call.out, static_cast<double>(shifted));
      add_exact(call.lost, shifted != value * factor ? 1 : 0);
    }
  }
  return {};
}

DataError block_dequantize(CallOf<sdk::ops::BlockDequantize>& call) {
  const int64_t block = call.params.block;
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t b = 0; b * block < call.K; ++b) {
      double amax = 0;
      for (int64_t k = b * block; k < std::min((b + 1) * block, call.K); ++k) {
        const double product = call.x.load(n, k) * call.scales.load(n, b);
        amax = std::isnan(product) || std::fabs(product) > amax ? std::fabs(product) : amax;
        add_product(call.out, product);
      }
      add_product(call.amax, amax);
    }
  }
  return {};
}

DataError window_max(CallOf<sdk::ops::WindowMax>& call) {
  const auto& params = call.params;
  const int64_t windows = (call.W + 2 * params.pad - params.width) / params.stride + 1;
  for (int64_t n = 0; n < call.N; ++n) {
    for (int64_t p = 0; p < windows; ++p) {
      double largest = -std::numeric_limits<double>::infinity();
      for (int64_t i = 0; i < params.width; ++i) {
        const int64_t column = p * params.stride - params.pad + i;
        if (column < 0 || column >= call.W) continue;
        const double number = call.x.load(n, column);
        if (std::isnan(number) || number > largest) largest = number;
      }
      add_exact(call.out, largest);
    }
  }
  return {};
}

}  // namespace rlk::golden

// The fp64 reference of the operators that only tests have.
#include <rlk/ops/block_dequantize.h>
#include <rlk/ops/cache_append.h>
#include <rlk/ops/prefix_count.h>
#include <rlk/ops/shift_left.h>
#include <rlk/ops/window_max.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/golden/golden.hpp"

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

Answer answer_cache_append(const Call& call) {
  const View& rows = call[RLK_CACHE_APPEND_IN_ROWS];
  const View& cache = call[RLK_CACHE_APPEND_IN_CACHE];
  const View& slots = call[RLK_CACHE_APPEND_IN_SLOTS];
  const double scale = call.params_as<rlk_cache_append_params>().scale;
  const int64_t n_slots = cache.shape[0], size = cache.shape[1];
  Answer answer;
  answer.outputs.resize(RLK_CACHE_APPEND_N_OUTPUTS);
  Output& out = answer.outputs[RLK_CACHE_APPEND_OUT_CACHE];
  for (int64_t s = 0; s < n_slots; ++s) {
    for (int64_t d = 0; d < size; ++d) add_exact(out, cache.load(s, d));
  }
  out.kept.assign(out.value.size(), true);
  std::vector<int64_t> writes(static_cast<size_t>(n_slots), 0);
  for (int64_t n = 0; n < rows.shape[0]; ++n) {
    const int64_t slot = slots.load_int(n);
    if (slot < 0 || slot >= n_slots) {
      if (answer.error.kind == kNoDataError) answer.error = {kRowOutOfRange, n, slot};
      continue;
    }
    ++writes[static_cast<size_t>(slot)];
    for (int64_t d = 0; d < size; ++d) {
      const auto at = static_cast<size_t>(slot * size + d);
      const double product = scale * rows.load(n, d);
      out.value[at] = product;
      out.cond[at] = std::isfinite(product) ? kTiny + std::fabs(product) : 0.0;
      out.kept[at] = false;
    }
  }
  if (!call.wants(RLK_CACHE_APPEND_OUT_COUNTS)) return answer;
  Output& counts = answer.outputs[RLK_CACHE_APPEND_OUT_COUNTS];
  for (int64_t s = 0; s < n_slots; ++s) {
    const int64_t written = writes[static_cast<size_t>(s)];
    add_exact(counts, static_cast<double>(call[RLK_CACHE_APPEND_IN_COUNTS].load_int(s) + written));
    counts.kept.push_back(written == 0);
  }
  return answer;
}

Answer answer_prefix_count(const Call& call) {
  const View& mask = call[RLK_PREFIX_COUNT_IN_MASK];
  Answer answer;
  answer.outputs.resize(RLK_PREFIX_COUNT_N_OUTPUTS);
  int64_t count = call.params_as<rlk_prefix_count_params>().start;
  for (int64_t n = 0; n < mask.shape[0]; ++n) {
    add_exact(answer.outputs[RLK_PREFIX_COUNT_OUT_OUT], static_cast<double>(count));
    answer.outputs[RLK_PREFIX_COUNT_OUT_OUT].exact.push_back(count);
    count += mask.load_int(n) != 0 ? 1 : 0;
  }
  return answer;
}

Answer answer_shift_left(const Call& call) {
  const View& x = call[RLK_SHIFT_LEFT_IN_X];
  const int64_t factor = int64_t{1} << call.params_as<rlk_shift_left_params>().shift;
  Answer answer;
  answer.outputs.resize(RLK_SHIFT_LEFT_N_OUTPUTS);
  for (int64_t r = 0; r < x.shape[0]; ++r) {
    for (int64_t c = 0; c < x.shape[1]; ++c) {
      const int64_t value = x.load_int(r, c), shifted = wrapped(value * factor, x.dtype);
      add_exact(answer.outputs[RLK_SHIFT_LEFT_OUT_OUT], static_cast<double>(shifted));
      if (!call.wants(RLK_SHIFT_LEFT_OUT_LOST)) continue;
      add_exact(answer.outputs[RLK_SHIFT_LEFT_OUT_LOST], shifted != value * factor ? 1 : 0);
    }
  }
  return answer;
}

Answer answer_block_dequantize(const Call& call) {
  const View& x = call[RLK_BLOCK_DEQUANTIZE_IN_X];
  const View& scales = call[RLK_BLOCK_DEQUANTIZE_IN_SCALES];
  const int64_t block = call.params_as<rlk_block_dequantize_params>().block;
  Answer answer;
  answer.outputs.resize(RLK_BLOCK_DEQUANTIZE_N_OUTPUTS);
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    for (int64_t b = 0; b < scales.shape[1]; ++b) {
      double amax = 0;
      for (int64_t k = b * block; k < std::min((b + 1) * block, x.shape[1]); ++k) {
        const double product = x.load(n, k) * scales.load(n, b);
        amax = std::max(amax, std::fabs(product));
        add_product(answer.outputs[RLK_BLOCK_DEQUANTIZE_OUT_OUT], product);
      }
      if (call.wants(RLK_BLOCK_DEQUANTIZE_OUT_AMAX)) add_product(answer.outputs[RLK_BLOCK_DEQUANTIZE_OUT_AMAX], amax);
    }
  }
  return answer;
}

Answer answer_window_max(const Call& call) {
  const View& x = call[RLK_WINDOW_MAX_IN_X];
  const auto& params = call.params_as<rlk_window_max_params>();
  const int64_t windows = (x.shape[1] + 2 * params.pad - params.width) / params.stride + 1;
  Answer answer;
  answer.outputs.resize(RLK_WINDOW_MAX_N_OUTPUTS);
  for (int64_t n = 0; n < x.shape[0]; ++n) {
    for (int64_t p = 0; p < windows; ++p) {
      double largest = -std::numeric_limits<double>::infinity();
      for (int64_t i = 0; i < params.width; ++i) {
        const int64_t column = p * params.stride - params.pad + i;
        if (column >= 0 && column < x.shape[1]) largest = std::max(largest, x.load(n, column));
      }
      add_exact(answer.outputs[RLK_WINDOW_MAX_OUT_OUT], largest);
    }
  }
  return answer;
}

}  // namespace rlk::golden

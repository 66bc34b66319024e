// The operators of tests/declarations, serial and strided, each with a few of its possible defects.
#include "conformance/arguments/plugin.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "conformance/simple/element.hpp"
#include "core/golden/golden.hpp"

namespace rlk::arguments {
namespace {

using simple::mutant;

constexpr uint32_t kClasses = RLK_NUMERICS_TOLERANCE | RLK_NUMERICS_DETERMINISTIC;

// One tensor of a run. How an element is stored is golden's; what is computed is not.
class Elements {
public:
  explicit Elements(const rlk_tensor* tensor) : tensor_(tensor) {
    if (tensor == nullptr) return;
    view_.data = sdk::data_of(tensor);
    view_.dtype = static_cast<golden::Dtype>(sdk::dtype_of(*tensor));
    bits_ = tensor->dtype.bits;
  }
  bool given() const { return tensor_ != nullptr; }
  int64_t size(int axis) const { return tensor_->shape[axis]; }
  template <class... Index>
  float get(Index... index) const {
    if (bits_ >= 8) return static_cast<float>(view_.load_at(at(index...)));
    const int64_t low = at(index...) * bits_ & 7;
    // As wide as any dtype: compilers do not know which one is read.
    const uint64_t own = static_cast<uint8_t>(*element(index...)) >> low & ((1 << bits_) - 1);
    golden::View one = view_;
    one.data = &own;
    return static_cast<float>(one.load_at(0));
  }
  template <class... Index>
  int64_t get_int(Index... index) const {
    return view_.load_int_at(at(index...));
  }
  template <class... Index>
  void set(double value, Index... index) const {
    if (bits_ >= 8) return golden::store(element(index...), view_.dtype, value);
    uint8_t own = 0;
    golden::store(&own, view_.dtype, value);
    const int64_t low = at(index...) * bits_ & 7;
    char& packed = *element(index...);
    packed = static_cast<char>((packed & ~(((1 << bits_) - 1) << low)) | own << low);
  }
  // Bytes of the element, lowest first; of a packed one, the byte that it lies in.
  template <class... Index>
  char* element(Index... index) const {
    return sdk::data_of<char>(tensor_) + (at(index...) * bits_ >> 3);  // rounded down, where strides run backwards
  }

private:
  template <class... Index>
  int64_t at(Index... index) const {
    int64_t sum = 0;
    int axis = 0;
    ((sum += static_cast<int64_t>(index) * tensor_->strides[axis++]), ...);
    return sum;
  }
  const rlk_tensor* tensor_;
  golden::View view_{};
  int64_t bits_ = 8;
};

// A plan that runs a function over one run.
class SimplePlan : public sdk::Plan {
public:
  using Body = std::function<void(const sdk::Run&)>;
  SimplePlan(uint32_t classes, Body body) : body_(std::move(body)) {
    numerics = classes;
    variant = "serial";
  }
  void enqueue(sdk::Stream&, const sdk::Run& run) override { body_(run); }

private:
  Body body_;
};

template <class Params>
void append(const Params& params, std::vector<float>& remembered, const sdk::Run& run) {
  const Elements rows(run.input(RLK_CACHE_APPEND_IN_ROWS)), slots(run.input(RLK_CACHE_APPEND_IN_SLOTS));
  const Elements cache(run.output(RLK_CACHE_APPEND_OUT_CACHE)), counts(run.output(RLK_CACHE_APPEND_OUT_COUNTS));
  const int64_t n_slots = cache.size(0), size = cache.size(1);
  std::vector<bool> named(static_cast<size_t>(n_slots), false);
  if (mutant("cache_of_the_plan")) {  // what the first call saw stands in the cache of every later one
    const bool first = remembered.empty();
    for (int64_t s = 0; s < n_slots; ++s) {
      const auto at = static_cast<size_t>(s);
      if (first) remembered.push_back(cache.get(s, 0));
      if (at < remembered.size()) cache.set(remembered[at], s, 0);
    }
  }
  for (int64_t n = 0; n < rows.size(0); ++n) {
    int64_t slot = slots.get_int(n);
    if (slot < 0 || slot >= n_slots) {
      simple::report(run, RLK_DATA_ROW_OUT_OF_RANGE, n, slot);
      continue;
    }
    if (mutant("next_slot")) slot = (slot + 1) % n_slots;
    named[static_cast<size_t>(slot)] = true;
    for (int64_t d = 0; d < size; ++d) {
      const float row = rows.get(n, d);
      cache.set(mutant("scale_ignored") ? row : static_cast<float>(params.scale) * row, slot, d);
    }
    if (counts.given()) counts.set(static_cast<double>(counts.get_int(slot) + 1), slot);
  }
  for (int64_t s = n_slots; s-- > 0;) {
    if (named[static_cast<size_t>(s)]) continue;
    // One unit in the last place: within every bound, but the caller did not ask.
    if (mutant("rewrites_untouched") && size > 0) *cache.element(s, size - 1) ^= 1;
    if (mutant("clears_untouched") && size > 0) cache.set(0.0, s, 0);
    if (mutant("counts_untouched") && counts.given()) counts.set(static_cast<double>(counts.get_int(s) + 1), s);
    break;
  }
}

template <class Params>
void dequantize(const Params& params, const sdk::Run& run) {
  const Elements x(run.input(RLK_BLOCK_DEQUANTIZE_IN_X)), scales(run.input(RLK_BLOCK_DEQUANTIZE_IN_SCALES));
  const Elements out(run.output(RLK_BLOCK_DEQUANTIZE_OUT_OUT)), amax(run.output(RLK_BLOCK_DEQUANTIZE_OUT_AMAX));
  const int64_t block = mutant("block_ignored") ? 8 : params.block;
  for (int64_t n = 0; n < x.size(0); ++n) {
    for (int64_t b = 0; b < scales.size(1); ++b) {
      float largest = 0;
      // The last block is shorter; a defect leaves it out.
      const int64_t end = std::min((b + 1) * block, x.size(1));
      for (int64_t k = b * block; k < end; ++k) {
        if (mutant("last_block_left_out") && b > 0 && (b + 1) * block > x.size(1)) break;
        const float value = x.get(n, k) * scales.get(n, b);
        out.set(value, n, k);
        largest = std::isnan(value) || std::fabs(value) > largest ? std::fabs(value) : largest;
      }
      if (amax.given()) amax.set(largest, n, b);
    }
  }
}

template <class Params>
void largest_of_windows(const Params& params, const sdk::Run& run) {
  const Elements x(run.input(RLK_WINDOW_MAX_IN_X)), out(run.output(RLK_WINDOW_MAX_OUT_OUT));
  for (int64_t n = 0; n < out.size(0); ++n) {
    for (int64_t p = 0; p < out.size(1); ++p) {
      float largest = -std::numeric_limits<float>::infinity();
      for (int64_t i = 0; i < params.width; ++i) {
        const int64_t column = p * params.stride - params.pad + i;
        const bool inside = column >= 0 && column < x.size(1);
        if (inside && (std::isnan(x.get(n, column)) || x.get(n, column) > largest)) largest = x.get(n, column);
        if (!inside && mutant("padded_with_zero")) largest = std::max(largest, 0.0f);
      }
      out.set(largest, n, p);
    }
  }
}

template <class Params>
void shift(const Params& params, const sdk::Run& run) {
  const Elements out(run.output(RLK_SHIFT_LEFT_OUT_OUT)), lost(run.output(RLK_SHIFT_LEFT_OUT_LOST));
  const int64_t factor = int64_t{1} << params.shift;
  for (int64_t r = 0; r < out.size(0); ++r) {
    for (int64_t c = 0; c < out.size(1); ++c) {
      const int64_t x = out.get_int(r, c);  // in place: the input's memory
      uint64_t shifted = static_cast<uint64_t>(x) * static_cast<uint64_t>(factor);
      const auto bytes = static_cast<size_t>(run.output(RLK_SHIFT_LEFT_OUT_OUT)->dtype.bits / 8);
      if (mutant("saturates") && bytes == 1) {
        shifted = static_cast<uint64_t>(std::clamp<int64_t>(x * factor, -128, 127));
      }
      std::memcpy(out.element(r, c), &shifted, bytes);
      const bool differs = out.get_int(r, c) != x * factor;
      if (lost.given()) lost.set(mutant("lost_is_255") && differs ? 1.0 : differs ? 1.0 : 0.0, r, c);
      if (lost.given() && differs && mutant("lost_is_255")) *lost.element(r, c) = -1;
    }
  }
}

template <class Params>
void count_before(const Params& params, const sdk::Run& run) {
  const Elements mask(run.input(RLK_PREFIX_COUNT_IN_MASK)), out(run.output(RLK_PREFIX_COUNT_OUT_OUT));
  int64_t count = params.start;
  for (int64_t n = 0; n < mask.size(0); ++n) {
    const bool marked = mask.get_int(n) != 0;
    int64_t before = count + (mutant("counts_itself") && marked ? 1 : 0);
    if (mutant("counts_in_double")) before = static_cast<int64_t>(static_cast<double>(before));
    std::memcpy(out.element(n), &before, sizeof(before));
    count += marked ? 1 : 0;
  }
}

void read_pages(const sdk::Run& run) {
  const Elements cache(run.input(RLK_PAGED_ROWS_IN_CACHE)), table(run.input(RLK_PAGED_ROWS_IN_BLOCK_TABLE));
  const Elements lengths(run.input(RLK_PAGED_ROWS_IN_LENGTHS)), factors(run.input(RLK_PAGED_ROWS_IN_FACTORS));
  const Elements out(run.output(RLK_PAGED_ROWS_OUT_OUT));
  const int64_t blocks = cache.size(0), size = cache.size(1);
  for (int64_t b = 0; b < out.size(0); ++b) {
    const int64_t length = lengths.get_int(b);
    bool is_bad = length < 0 || length > out.size(1);
    if (is_bad) simple::report(run, RLK_DATA_BAD_SEQLENS, b, length);
    for (int64_t m = 0; !is_bad && m * size < length; ++m) {
      const int64_t block = table.get_int(b, m);
      is_bad = block < 0 || block >= blocks;
      if (is_bad && !mutant("missing_block_not_told")) simple::report(run, RLK_DATA_ID_OUT_OF_RANGE, b, block);
    }
    float behind = 0;  // what is behind the length, times 0
    for (int64_t p = length; p < out.size(1) && mutant("reads_behind_length") && !is_bad; ++p) {
      const int64_t block = std::clamp<int64_t>(table.get_int(b, p / size), 0, blocks - 1);
      behind += 0.0f * cache.get(block, p % size);
    }
    for (int64_t p = 0; p < out.size(1); ++p) {
      float value = is_bad ? std::numeric_limits<float>::quiet_NaN() : behind;
      if (!is_bad && p < length) value += cache.get(table.get_int(b, p / size), p % size);
      out.set(factors.given() && p < length && !is_bad ? factors.get(b) * value : value, b, p);
    }
  }
}

constexpr uint32_t kByRow = kClasses | RLK_NUMERICS_BATCH_INVARIANT;

}  // namespace

sdk::Support CacheAppend::query(simple::SimpleDevice&, const sdk::Call<Op>& call) {
  if (call.alias(RLK_CACHE_APPEND_OUT_CACHE) != RLK_CACHE_APPEND_IN_CACHE) {
    return sdk::Support::no("ALIAS", "the cache is not in place");
  }
  return sdk::Support::yes("serial", kClasses);
}
std::unique_ptr<sdk::Plan> CacheAppend::plan(simple::SimpleDevice&, const sdk::Call<Op>& call) {
  return std::make_unique<SimplePlan>(kClasses, [params = call.params(), remembered = std::vector<float>()](
                                                    const sdk::Run& run) mutable { append(params, remembered, run); });
}

sdk::Support BlockDequantize::query(simple::SimpleDevice&, const sdk::Call<Op>&) {
  return sdk::Support::yes("serial", kByRow);
}
std::unique_ptr<sdk::Plan> BlockDequantize::plan(simple::SimpleDevice&, const sdk::Call<Op>& call) {
  return std::make_unique<SimplePlan>(kByRow,
                                      [params = call.params()](const sdk::Run& run) { dequantize(params, run); });
}

sdk::Support WindowMax::query(simple::SimpleDevice&, const sdk::Call<Op>&) {
  return sdk::Support::yes("serial", kByRow);
}
std::unique_ptr<sdk::Plan> WindowMax::plan(simple::SimpleDevice&, const sdk::Call<Op>& call) {
  return std::make_unique<SimplePlan>(
      kByRow, [params = call.params()](const sdk::Run& run) { largest_of_windows(params, run); });
}

sdk::Support ShiftLeft::query(simple::SimpleDevice&, const sdk::Call<Op>&) {
  return sdk::Support::yes("serial", kByRow);
}
std::unique_ptr<sdk::Plan> ShiftLeft::plan(simple::SimpleDevice&, const sdk::Call<Op>& call) {
  return std::make_unique<SimplePlan>(kByRow, [params = call.params()](const sdk::Run& run) { shift(params, run); });
}

sdk::Support PrefixCount::query(simple::SimpleDevice&, const sdk::Call<Op>&) {
  return sdk::Support::yes("serial", kClasses);
}
std::unique_ptr<sdk::Plan> PrefixCount::plan(simple::SimpleDevice&, const sdk::Call<Op>& call) {
  return std::make_unique<SimplePlan>(kClasses,
                                      [params = call.params()](const sdk::Run& run) { count_before(params, run); });
}

sdk::Support PagedRows::query(simple::SimpleDevice&, const sdk::Call<Op>&) {
  return sdk::Support::yes("serial", kByRow);
}
std::unique_ptr<sdk::Plan> PagedRows::plan(simple::SimpleDevice&, const sdk::Call<Op>&) {
  return std::make_unique<SimplePlan>(kByRow, read_pages);
}

}  // namespace rlk::arguments

RLK_PLUGIN_ENTRY(rlk_arguments_entry, rlk::arguments::ArgumentsPlugin, "arguments", "arguments", "1.0.0",
                 "operators that only tests declare")

// Are scans right, with the same bits whether a wave, a block or a block per chunk works on a row, and is nothing else
// written? On fibers with waves of 64; the kernels are those of ../operators.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "plugins/simt/host/scan.hpp"
#include "tests/unit/simt_host/tensor.hpp"

extern "C" {
void cumsum_scan_Cumsum_f32(rlk::simt::ScanArgs);
void cumsum_scan_Cumsum_f64(rlk::simt::ScanArgs);
void cumsum_scan_Cumsum_packs_f32(rlk::simt::ScanArgs);
void cumsum_scan_Cumsum_packs_bf16(rlk::simt::ScanArgs);
void cumsum_scan_Cumsum_packs_f16(rlk::simt::ScanArgs);
void gae_scan_Gae_f32(rlk::simt::ScanArgs);
void gae_scan_Gae_f64(rlk::simt::ScanArgs);
void gae_scan_Gae_kept(rlk::simt::ScanArgs);
void returns_scan_Returns_f32(rlk::simt::ScanArgs);
void returns_scan_Returns_f64(rlk::simt::ScanArgs);
void returns_scan_Returns_kept(rlk::simt::ScanArgs);
}

namespace rlk::simt::host {

const Driver& driver() {
  static const Driver none;
  return none;
}

namespace {

using Kernel = void (*)(ScanArgs);

constexpr int kWide = 64;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Kernels {
  Kernel f32, f64, kept, packs_f32 = nullptr, packs_bf16 = nullptr, packs_f16 = nullptr;
};
constexpr Kernels kCumsum = {
    &cumsum_scan_Cumsum_f32,       &cumsum_scan_Cumsum_f64,        nullptr,
    &cumsum_scan_Cumsum_packs_f32, &cumsum_scan_Cumsum_packs_bf16, &cumsum_scan_Cumsum_packs_f16};
constexpr Kernels kGae = {&gae_scan_Gae_f32, &gae_scan_Gae_f64, &gae_scan_Gae_kept};
constexpr Kernels kReturns = {&returns_scan_Returns_f32, &returns_scan_Returns_f64, &returns_scan_Returns_kept};

// packs: by a wave, and a kernel of packs alone where there is one. elements: by a block that reads no packs, whatever
// there is in memory.
enum class Form { wave, packs, block, chunks, elements };
constexpr Form kForms[] = {Form::wave, Form::packs, Form::block, Form::chunks, Form::elements};

void run(Kernel kernel, const ScanArgs& args, int64_t blocks) {
  emulation::run_grid({static_cast<unsigned>(blocks), 1, 1}, {kScanThreads, 1, 1}, 0, [=] { kernel(args); });
}

// Few blocks walk on until nothing is left.
void scan(const Kernels& kernels, const ScanCall& call, Form form, DataErrorRecord* record = nullptr) {
  const bool chunks = form == Form::chunks && call.length() > kScanChunk;
  ScanArgs args = arguments_of_scan(call, kWide, chunks ? 1000 : 0);
  ASSERT_EQ(args.form, chunks ? kScanChunks : kScanRows);
  if (!chunks) args.waves = form == Form::wave || form == Form::packs ? 1 : kScanThreads / kWide;
  if (form == Form::elements) args.packs = 0;
  std::vector<char> workspace(place_scan(call, args, nullptr) + 256);
  place_scan(call, args, workspace.data());
  args.errors = {record, 7, 0};
  const Kernel kernel = call.dtype() == Dtype::f64 ? kernels.f64 : kernels.f32;
  const Kernel packs = call.dtype() == Dtype::bf16  ? kernels.packs_bf16
                       : call.dtype() == Dtype::f16 ? kernels.packs_f16
                       : call.dtype() == Dtype::f32 ? kernels.packs_f32
                                                    : nullptr;
  if (form == Form::packs && packs != nullptr && is_of_packs(args)) return run(packs, args, 1);
  if (chunks) {
    if (args.kept != nullptr) run(kernels.kept, args, 3);
    args.form = kScanTotals;
    run(kernel, args, 2);
    args.form = kScanChunks;
  }
  run(kernel, args, 3);
}

std::vector<char> bits(const Tensor& tensor) {
  std::vector<char> all;
  for_each_index(tensor.shape,
                 [&](const Sizes& index) { all.insert(all.end(), tensor.at(index), tensor.at(index) + tensor.size); });
  return all;
}
void expect_nothing_else_is_written(const Tensor& tensor) {
  std::vector<char> expected = tensor.before;
  for_each_index(tensor.shape, [&](const Sizes& index) {
    std::memcpy(expected.data() + (tensor.at(index) - tensor.memory.data()), tensor.at(index),
                static_cast<size_t>(tensor.size));
  });
  EXPECT_TRUE(expected == tensor.memory);
}

// in_packs: of rows that are whole packs in memory.
void expect_sums_of_the_beginnings(Dtype dtype, int64_t columns, bool in_packs) {
  const Tensor x(dtype, {5, columns}, in_packs ? Sizes{columns, 1} : Sizes{2 * columns + 1, 2});
  std::vector<char> due;
  for (const Form form : kForms) {
    const Tensor y(dtype, {5, columns}, in_packs ? Sizes{columns, 1} : Sizes{columns + 3, 1});
    EXPECT_EQ(arguments_of_scan(sums_from_first(&y.abi, &x.abi), kWide, 0).packs, in_packs ? 1 : 0);
    scan(kCumsum, sums_from_first(&y.abi, &x.abi), form);
    expect_nothing_else_is_written(y);
    if (due.empty()) due = bits(y);
    EXPECT_TRUE(bits(y) == due);
    for (int64_t n = 0; n < 5; ++n) {
      double sum = 0;  // of small whole numbers
      for (int64_t k = 0; k < columns; ++k) {
        sum += element(x.at({n, k}), dtype);
        char expected[8];
        put(expected, dtype, sum);
        ASSERT_EQ(element(y.at({n, k}), dtype), element(expected, dtype)) << n << " " << k;
      }
    }
  }
}

TEST(ScanTest, SumsOfTheBeginningsHaveTheSameBitsInEveryForm) {
  for (const Dtype dtype : kEvery) {
    for (const int64_t columns : {1, 9, 300, 2048, 2049, 7001}) {
      SCOPED_TRACE(std::string(sdk::name_of(dtype)) + " " + std::to_string(columns));
      expect_sums_of_the_beginnings(dtype, columns, false);
    }
    for (const int64_t columns : {16, 2056, 7008}) {
      SCOPED_TRACE(std::string(sdk::name_of(dtype)) + " in packs " + std::to_string(columns));
      expect_sums_of_the_beginnings(dtype, columns, true);
    }
  }
}

TEST(ScanTest, ManyRowsAreOfAWaveEachAndFewOfABlock) {
  Tensor small(Dtype::bf16, {1, 1});
  rlk_tensor rows = small.abi;
  const auto waves = [&](int64_t count, int64_t columns) {
    Sizes shape = {count, columns}, strides = {columns, 1};
    rows.shape = shape.data();
    rows.strides = strides.data();
    return arguments_of_scan(sums_to_last(&rows, &rows), 32, 100).waves;
  };
  EXPECT_EQ(waves(100, 512), 1);
  EXPECT_EQ(waves(300, 4096), 8);
  EXPECT_EQ(waves(1599, 4096), 8);
  EXPECT_EQ(waves(1600, 4096), 1);
}

// How a sequence is masked.
enum class Mask { none, some, long_gaps, padding, all };
bool counts(Mask mask, int64_t b, int64_t t, int64_t length) {
  if (mask == Mask::some) return (t * 7 + b) % 3 != 0;
  if (mask == Mask::long_gaps) return (t + 900 * b) / 2500 % 2 == 0;
  if (mask == Mask::padding) return t < length - length * b / 4 && t % 11 != 3;
  return mask == Mask::none || b % 2 != 0;
}

struct Sequence {
  int64_t begin, length;
};

// The recursion, token by token. rule: kScan....
void expect_recursion(const ScanCall& call, const Tensor& x, const Tensor* values, const Tensor& starts,
                      const Tensor& out, const Tensor* targets, const std::vector<Sequence>& sequences,
                      const std::vector<uint8_t>& kept, const char* what) {
  for (size_t b = 0; b < sequences.size(); ++b) {
    const double start = element(starts.at({static_cast<int64_t>(b)}), starts.dtype);
    double next = call.start_value != nullptr ? start : 0, sum = call.start_sum != nullptr ? start : 0;
    bool any = false;
    for (int64_t t = sequences[b].length - 1; t >= 0; --t) {
      const int64_t at = sequences[b].begin + t;
      const bool counts = kept[static_cast<size_t>(at)] != 0;
      any = any || counts;
      const Sizes index = call.is_packed() ? Sizes{at} : Sizes{static_cast<int64_t>(b), t};
      double expected = 0, target = 0;
      if (counts || (any && call.rule == kScanZero)) {
        const double value = counts && values != nullptr ? element(values->at(index), values->dtype) : 0;
        const double reward = counts ? element(x.at(index), x.dtype) : 0;
        sum = reward + call.discount * next - value + call.decay * sum;
        next = value;
        expected = counts ? sum : 0;
        target = counts ? sum + value : 0;
      } else if (any && call.rule == kScanReset) {
        sum = 0;
      }
      const double bound = std::fabs(expected) * 1e-6 + 1e-4;
      ASSERT_NEAR(element(out.at(index), out.dtype), expected, bound) << what << " " << b << " " << t;
      if (targets == nullptr) continue;
      ASSERT_NEAR(element(targets->at(index), targets->dtype), target, bound + 1e-5) << what << " " << b << " " << t;
    }
  }
}

void check_tokens(bool packed, bool has_values, int32_t rule, Mask mask, int64_t length, double gamma) {
  const std::string what = std::to_string(packed) + std::to_string(has_values) + std::to_string(rule) + " mask " +
                           std::to_string(static_cast<int>(mask)) + " length " + std::to_string(length);
  SCOPED_TRACE(what);
  std::vector<Sequence> sequences;
  std::vector<int64_t> cu = {0};
  for (const int64_t own : {length, packed ? length / 3 : length, packed ? 0 : length, packed ? length + 1 : length}) {
    sequences.push_back({cu.back(), own});
    cu.push_back(cu.back() + own);
  }
  const auto rows = static_cast<int64_t>(sequences.size());
  const Sizes shape = packed ? Sizes{cu.back()} : Sizes{rows, length};
  const Tensor x(Dtype::f32, shape), values(Dtype::f32, shape), starts(Dtype::f32, {rows});
  const Tensor mask_tensor(Dtype::u8, shape), cu_seqlens(Dtype::i64, {rows + 1});
  std::vector<uint8_t> kept;
  for (size_t b = 0; b < sequences.size(); ++b) {
    for (int64_t t = 0; t < sequences[b].length; ++t) {
      kept.push_back(counts(mask, static_cast<int64_t>(b), t, sequences[b].length) ? 1 : 0);
    }
  }
  std::memcpy(mask_tensor.first, kept.data(), kept.size());
  std::memcpy(cu_seqlens.first, cu.data(), cu.size() * sizeof(int64_t));
  // What is masked is not used.
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] == 0) put(x.first + 4 * i, Dtype::f32, kNan);
    if (kept[i] == 0) put(values.first + 4 * i, Dtype::f32, kNan);
  }
  std::vector<char> due;
  for (const Form form : kForms) {
    const Tensor out(Dtype::f32, shape), targets(Dtype::f32, shape);
    ScanCall call = sums_to_last(&out.abi, &x.abi);
    call.rule = rule;
    call.mask = mask == Mask::none ? nullptr : &mask_tensor.abi;
    call.cu_seqlens = packed ? &cu_seqlens.abi : nullptr;
    call.decay = has_values ? gamma * 0.95 : gamma;
    if (has_values) {
      call.values = &values.abi;
      call.start_value = &starts.abi;
      call.targets = &targets.abi;
      call.discount = gamma;
    } else {
      call.start_sum = &starts.abi;
    }
    scan(has_values ? kGae : kReturns, call, form);
    expect_nothing_else_is_written(out);
    expect_nothing_else_is_written(targets);
    expect_recursion(call, x, has_values ? &values : nullptr, starts, out, has_values ? &targets : nullptr, sequences,
                     kept, what.c_str());
    std::vector<char> seen = bits(out);
    const std::vector<char> seen_targets = bits(targets);
    if (has_values) seen.insert(seen.end(), seen_targets.begin(), seen_targets.end());
    if (due.empty()) due = seen;
    EXPECT_TRUE(seen == due);
  }
}

TEST(ScanTest, DiscountedSumsOfMaskedSequencesHaveTheSameBitsInEveryForm) {
  for (const bool packed : {false, true}) {
    for (const bool has_values : {false, true}) {
      for (const int32_t rule : {kScanCarry, kScanZero, kScanReset}) {
        if (has_values && rule == kScanReset) continue;
        for (const Mask mask : {Mask::none, Mask::some, Mask::long_gaps, Mask::padding, Mask::all}) {
          for (const int64_t length : {40, 4500, 4504}) check_tokens(packed, has_values, rule, mask, length, 0.99);
        }
      }
    }
  }
}

// Powers of the decay that fp64 does not hold, in front of numbers that do not care, or do.
TEST(ScanTest, PowersOfTheDecayMayLeaveFp64) {
  for (const Form form : kForms) {
    const Tensor x(Dtype::f64, {1, 5000}), out(Dtype::f64, {1, 5000}), start(Dtype::f64, {1});
    const auto run_with = [&](double decay, double bootstrap, double last) {
      for (int64_t t = 0; t < 5000; ++t) put(x.at({0, t}), Dtype::f64, 0);
      put(x.at({0, 4999}), Dtype::f64, last);
      put(start.at({0}), Dtype::f64, bootstrap);
      ScanCall call = sums_to_last(&out.abi, &x.abi);
      call.decay = decay;
      call.start_sum = &start.abi;
      scan(kReturns, call, form);
    };
    run_with(2, 0, 0);
    EXPECT_EQ(element(out.at({0, 0}), Dtype::f64), 0);
    run_with(2, 0x1p-1000, 0);
    EXPECT_EQ(element(out.at({0, 3000}), Dtype::f64), 0x1p1000);
    run_with(0.5, 0, 0x1p1000);
    EXPECT_EQ(element(out.at({0, 4999 - 1900}), Dtype::f64), 0x1p-900);
    run_with(0.5, std::numeric_limits<double>::infinity(), 0);
    EXPECT_EQ(element(out.at({0, 0}), Dtype::f64), std::numeric_limits<double>::infinity());
    run_with(0, 0x1p1000, 3);
    EXPECT_EQ(element(out.at({0, 4999}), Dtype::f64), 3);
    EXPECT_EQ(element(out.at({0, 0}), Dtype::f64), 0);
  }
}

TEST(ScanTest, WrongSequencesAreTheFirstBadPositionAndNans) {
  for (const Form form : kForms) {
    const Tensor x(Dtype::f32, {3000}), out(Dtype::f32, {3000}), cu_seqlens(Dtype::i32, {4});
    const int32_t cu[] = {0, 2000, 1999, 3000};
    std::memcpy(cu_seqlens.first, cu, sizeof(cu));
    ScanCall call = sums_to_last(&out.abi, &x.abi);
    call.cu_seqlens = &cu_seqlens.abi;
    DataErrorRecord record{};
    scan(kReturns, call, form, &record);
    EXPECT_EQ(record.kind, kDataBadSeqlens);
    EXPECT_EQ(record.row, 2);
    EXPECT_EQ(record.value, 1999);
    for (int64_t t = 0; t < 3000; ++t) ASSERT_TRUE(std::isnan(element(out.at({t}), Dtype::f32))) << t;
    expect_nothing_else_is_written(out);
  }
}

}  // namespace
}  // namespace rlk::simt::host

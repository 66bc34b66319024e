// Are lists of many ids sorted, and is what their ids name summed by its owner, in any grid? Lists of several chunks,
// and places with more terms than a thread adds. On fibers with waves of 64; the kernels are those of ../operators.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "plugins/simt/host/move.hpp"
#include "plugins/simt/skeleton/order.h"
#include "tests/unit/simt_host/tensor.hpp"

extern "C" {
void take_backward_moves_sort(rlk::simt::MoveArgs);
void take_backward_moves_rank(rlk::simt::MoveArgs);
void take_backward_moves_along(rlk::simt::MoveArgs);
void take_backward_moves_across(rlk::simt::MoveArgs);
void reshape_and_cache_moves_clear(rlk::simt::MoveArgs);
void reshape_and_cache_moves_mark(rlk::simt::MoveArgs);
void reshape_and_cache_moves_put(rlk::simt::MoveArgs);
void sort_moves_chunks(rlk::simt::MoveArgs);
void sort_moves_count(rlk::simt::MoveArgs);
void sort_moves_offset(rlk::simt::MoveArgs);
void sort_moves_scatter(rlk::simt::MoveArgs);
void sort_moves_peaks(rlk::simt::MoveArgs);
void sort_moves_first(rlk::simt::MoveArgs);
void sample_moves_peaks(rlk::simt::MoveArgs);
void sample_moves_weigh(rlk::simt::MoveArgs);
void sample_moves_draw(rlk::simt::MoveArgs);
}

namespace rlk::simt::host {

const Driver& driver() {
  static const Driver none;
  return none;
}

namespace {

using Kernel = void (*)(MoveArgs);

constexpr int64_t kMany = 2 * kMoveChunk + 77;  // ids: three chunks

void run(MoveCall call, std::initializer_list<Kernel> kernels, unsigned blocks) {
  std::vector<char> workspace(MovesPlan::workspace_of(call) + 256);
  place_work(call, workspace.data() + (256 - reinterpret_cast<uintptr_t>(workspace.data()) % 256) % 256);
  each_launch(call, [&](const MoveLaunch& launch) {
    const Kernel kernel = kernels.begin()[launch.kernel];
    emulation::run_grid({blocks, 1, 1}, {static_cast<unsigned>(launch.threads), 1, 1}, 0, [&] { kernel(call.args); });
  });
}

void expect_nothing_else_is_written(const Tensor& tensor) {
  std::vector<char> expected = tensor.before;
  for_each_index(tensor.shape, [&](const Sizes& index) {
    std::memcpy(expected.data() + (tensor.at(index) - tensor.memory.data()), tensor.at(index),
                static_cast<size_t>(tensor.size));
  });
  EXPECT_TRUE(expected == tensor.memory);
}

// Half of the ids are 3, the others anything.
int64_t id_of(int64_t n, int64_t places) {
  return n % 2 == 0 ? 3 : n * 7919 % places;
}
// Ones and zeros: their sums are exact.
double term_of(int64_t n, int64_t d) {
  return n % 16 == d % 16 ? 1 : 0;
}

TEST(MoveTest, RowsOfATableHaveTheSumsOfTheirTokens) {
  constexpr int64_t kPlaces = 70;
  for (const Dtype dtype : kEvery) {
    for (const int64_t columns : {9, 64, 300}) {
      for (const Dtype of_ids : {Dtype::i32, Dtype::i64}) {
        SCOPED_TRACE(sdk::format("%s %d", sdk::name_of(dtype), static_cast<int>(columns)));
        const Tensor ids(of_ids, {kMany}), terms(dtype, {kMany, columns});
        const Tensor sums(dtype == Dtype::f64 ? dtype : Dtype::f32, {kPlaces, columns});
        for (int64_t n = 0; n < kMany; ++n) {
          put(ids.at({n}), of_ids, static_cast<double>(id_of(n, kPlaces)));
          for (int64_t d = 0; d < columns; ++d) put(terms.at({n, d}), dtype, term_of(n, d));
        }
        run(moves::sums_across(&sums.abi, &terms.abi, &ids.abi, 5, true),
            {&take_backward_moves_sort, &take_backward_moves_rank, &take_backward_moves_across}, 3);
        expect_nothing_else_is_written(sums);
        std::vector<double> due(static_cast<size_t>(kPlaces * columns)), counts(kPlaces);
        for (int64_t n = 0; n < kMany; ++n) {
          const int64_t id = id_of(n, kPlaces);
          ++counts[static_cast<size_t>(id)];
          for (int64_t d = 0; d < columns; ++d) due[static_cast<size_t>(id * columns + d)] += term_of(n, d);
        }
        for_each_index(sums.shape, [&](const Sizes& index) {
          const double count = std::max(1.0, counts[static_cast<size_t>(index[0])]);
          const double sum = index[0] == 5 ? 0 : due[static_cast<size_t>(index[0] * columns + index[1])] / count;
          const double got = element(sums.at(index), sums.dtype);
          ASSERT_EQ(got, sums.dtype == Dtype::f64 ? sum : static_cast<double>(static_cast<float>(sum)))
              << index[0] << ' ' << index[1];
        });
      }
    }
  }
}

TEST(MoveTest, PlacesOfRowsHaveTheSumsOfTheirNumbers) {
  constexpr int64_t kRows = 3, kPlaces = 1001;
  for (const int64_t count : {int64_t{1}, int64_t{kMoveFew}, int64_t{kMoveFew} + 1, kMany}) {
    for (const bool is_shared : {false, true}) {
      SCOPED_TRACE(static_cast<int>(count));
      const Tensor ids(Dtype::i64, is_shared ? Sizes{count} : Sizes{kRows, count});
      const Tensor terms(Dtype::f32, {kRows, count}), sums(Dtype::f32, {kRows, kPlaces});
      for_each_index(ids.shape, [&](const Sizes& index) {
        put(ids.at(index), Dtype::i64, static_cast<double>(id_of(index.back() + (is_shared ? 0 : index[0]), kPlaces)));
      });
      run(moves::sums_along(&sums.abi, &terms.abi, &ids.abi),
          {&take_backward_moves_sort, &take_backward_moves_rank, &take_backward_moves_along}, 4);
      expect_nothing_else_is_written(sums);
      std::vector<double> due(static_cast<size_t>(kRows * kPlaces));
      for_each_index(terms.shape, [&](const Sizes& index) {
        const int64_t id = id_of(index[1] + (is_shared ? 0 : index[0]), kPlaces);
        due[static_cast<size_t>(index[0] * kPlaces + id)] += element(terms.at(index), Dtype::f32);
      });
      for_each_index(sums.shape, [&](const Sizes& index) {
        ASSERT_EQ(element(sums.at(index), Dtype::f32), due[static_cast<size_t>(index[0] * kPlaces + index[1])]);
      });
    }
  }
}

TEST(MoveTest, ASlotKeepsTheLastOfManyTokens) {
  constexpr int64_t kTokens = 3 * kCacheFew, kBlocks = 5, kBlockSize = 4, kHeads = 2, kSize = 12;
  const Tensor keys(Dtype::bf16, {kTokens, kHeads, kSize}), values(Dtype::bf16, {kTokens, kHeads, kSize});
  const Tensor key_cache(Dtype::bf16, {kBlocks, kBlockSize, kHeads, kSize});
  const Tensor value_cache(Dtype::bf16, {kBlocks, kBlockSize, kHeads, kSize});
  const Tensor slots(Dtype::i32, {kTokens});
  std::vector<int64_t> last(kBlocks * kBlockSize, -1);
  for (int64_t n = 0; n < kTokens; ++n) {
    const int64_t slot = n % 11 == 0 ? -1 : n * n % (kBlocks * kBlockSize);
    put(slots.at({n}), Dtype::i32, static_cast<double>(slot));
    if (slot >= 0) last[static_cast<size_t>(slot)] = n;
  }
  sdk::Arguments<sdk::ops::ReshapeAndCache> call;
  call.key = &keys.abi;
  call.value = &values.abi;
  call.key_cache = call.out_key_cache = &key_cache.abi;
  call.value_cache = call.out_value_cache = &value_cache.abi;
  call.slot_mapping = &slots.abi;
  call.N = call.M = kTokens;
  call.H = kHeads;
  call.D = kSize;
  call.B = kBlocks;
  call.BS = kBlockSize;
  run(moves::cached(call),
      {&reshape_and_cache_moves_clear, &reshape_and_cache_moves_mark, &reshape_and_cache_moves_put}, 3);
  for (const auto& [cache, from] : {std::make_pair(&key_cache, &keys), std::make_pair(&value_cache, &values)}) {
    expect_nothing_else_is_written(*cache);
    for_each_index(cache->shape, [&, cache = cache, from = from](const Sizes& index) {
      const int64_t token = last[static_cast<size_t>(index[0] * kBlockSize + index[1])];
      const char* const kept = cache->before.data() + (cache->at(index) - cache->memory.data());
      const char* const due = token < 0 ? kept : from->at({token, index[2], index[3]});
      ASSERT_EQ(std::memcmp(cache->at(index), due, 2), 0) << index[0] << ' ' << index[1];
    });
  }
}

// Logits and settings of rows, each its own.
struct SampleCase {
  SampleCase(int64_t rows, int64_t vocab)
      : logits(Dtype::f32, {rows, vocab}),
        seeds(Dtype::i64, {rows}),
        row_ids(Dtype::i64, {rows}),
        temperatures(Dtype::f32, {rows}),
        ids(Dtype::i64, {rows}),
        logp(Dtype::f32, {rows}),
        keep_mask(Dtype::u8, {rows, vocab}) {
    for (int64_t n = 0; n < rows; ++n) {
      put(seeds.at({n}), Dtype::i64, static_cast<double>(n * 31));
      put(row_ids.at({n}), Dtype::i64, static_cast<double>(n));
      put(temperatures.at({n}), Dtype::f32, n % 3 == 0 ? 0 : 1 + static_cast<double>(n) / 4);
    }
    call.N = rows;
    call.V = vocab;
    call.logits = &logits.abi;
    call.seeds = &seeds.abi;
    call.row_ids = &row_ids.abi;
    call.temperatures = &temperatures.abi;
    call.ids = &ids.abi;
    call.logp = &logp.abi;
    call.keep_mask = &keep_mask.abi;
    call.params.temperature = 1;
    call.params.top_p = 0.75;
    call.params.top_k = 20;
    call.params.repetition_penalty = 1;
  }
  std::vector<char> run_in_parts_of(int64_t rows) {
    MoveCall cut = moves::sampled(call);
    if (rows > 0) cut.part_rows = rows;
    std::vector<char> written;
    run(cut, {&sample_moves_peaks, &sample_moves_weigh, &sample_moves_draw}, 3);
    for (const Tensor* tensor : {&ids, &logp, &keep_mask}) {
      expect_nothing_else_is_written(*tensor);
      written.insert(written.end(), tensor->memory.begin(), tensor->memory.end());
    }
    return written;
  }

  Tensor logits, seeds, row_ids, temperatures, ids, logp, keep_mask;
  sdk::Arguments<sdk::ops::Sample> call{};
};

TEST(MoveTest, RowsThatAreSampledInPartsHaveTheSameTokens) {
  constexpr int64_t kRows = 7;
  for (const int64_t vocab : {38, 700}) {
    SampleCase of(kRows, vocab);
    const std::vector<char> whole = of.run_in_parts_of(0);
    for (int64_t n = 0; n < kRows; ++n) {
      ASSERT_LT(element(of.ids.at({n}), Dtype::i64), static_cast<double>(vocab));
      ASSERT_GE(element(of.ids.at({n}), Dtype::i64), 0);
    }
    for (const int64_t rows : {1, 2, 5}) {
      of.ids.memory = of.ids.before;
      of.logp.memory = of.logp.before;
      EXPECT_TRUE(of.run_in_parts_of(rows) == whole) << vocab << " tokens, " << rows << " rows at a time";
    }
  }
}

TEST(MoveTest, RowsInPartsAreInOrder) {
  constexpr int64_t kRows = 5, kColumns = kOrderChunk + 5;
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    for (const int64_t count : {int64_t{6}, kColumns}) {
      const Tensor x(dtype, {kRows, kColumns}), y(dtype, {kRows, count}), index(Dtype::i32, {kRows, count});
      MoveCall call = moves::in_order(&y.abi, &index.abi, &x.abi, count, true, count < kColumns);
      ASSERT_EQ(call.part_rows, kRows);
      call.part_rows = 2;
      run(call,
          {&sort_moves_chunks, &sort_moves_count, &sort_moves_offset, &sort_moves_scatter, &sort_moves_peaks,
           &sort_moves_first},
          3);
      expect_nothing_else_is_written(y);
      expect_nothing_else_is_written(index);
      for (int64_t n = 0; n < kRows; ++n) {
        std::vector<int64_t> places(kColumns);
        std::iota(places.begin(), places.end(), 0);
        std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
          return element(x.at({n, a}), dtype) > element(x.at({n, b}), dtype);
        });
        for (int64_t j = 0; j < count; ++j) {
          ASSERT_EQ(element(index.at({n, j}), Dtype::i32), static_cast<double>(places[static_cast<size_t>(j)]));
          ASSERT_EQ(element(y.at({n, j}), dtype), element(x.at({n, places[static_cast<size_t>(j)]}), dtype));
        }
      }
    }
  }
}

// Few and many first places, of numbers that are all different, of which many are equal, and of one alone.
TEST(MoveTest, FirstPlacesOfALongRowAreThoseOfTheRowInOrder) {
  constexpr int64_t kColumns = 180003;  // more shares than groups of peaks
  for (const int64_t values : {int64_t{1}, int64_t{300}, kColumns}) {
    const Tensor x(Dtype::f32, {1, kColumns});
    std::vector<float> numbers(kColumns);
    for (int64_t c = 0; c < kColumns; ++c) {
      numbers[static_cast<size_t>(c)] = static_cast<float>(c * 7919 % kColumns % values);
      put(x.at({0, c}), Dtype::f32, numbers[static_cast<size_t>(c)]);
    }
    std::vector<int64_t> places(kColumns);
    std::iota(places.begin(), places.end(), 0);
    std::stable_sort(places.begin(), places.end(), [&](int64_t a, int64_t b) {
      return numbers[static_cast<size_t>(a)] > numbers[static_cast<size_t>(b)];
    });
    for (const int64_t count : {int64_t{1}, int64_t{50}, int64_t{kOrderList}}) {
      const Tensor y(Dtype::f32, {1, count}), index(Dtype::i32, {1, count});
      run(moves::in_order(&y.abi, &index.abi, &x.abi, count, true, true),
          {&sort_moves_chunks, &sort_moves_count, &sort_moves_offset, &sort_moves_scatter, &sort_moves_peaks,
           &sort_moves_first},
          3);
      for (int64_t j = 0; j < count; ++j) {
        ASSERT_EQ(element(index.at({0, j}), Dtype::i32), static_cast<double>(places[static_cast<size_t>(j)]))
            << values << " values, place " << j << " of " << count;
      }
    }
  }
}

// Whatever the number of rows.
TEST(MoveCallInParts, TakesLittleWorkspace) {
  constexpr int64_t kRows = 56516175, kVocab = 38, kMost = int64_t{257} << 20;
  const Sizes many = {kRows, kVocab}, few = {kRows, 1}, steps = {kVocab, 1}, one = {1, 1};
  const auto tensor = [](const Sizes& shape, const Sizes& strides) {
    rlk_tensor out{};
    out.struct_size = sizeof(out);
    out.ndim = static_cast<int32_t>(shape.size());
    out.shape = shape.data();
    out.strides = strides.data();
    out.dtype = sdk::abi_of(Dtype::f32);
    return out;
  };
  const rlk_tensor logits = tensor(many, steps), of_row = tensor(few, one);
  sdk::Arguments<sdk::ops::Sample> call{};
  call.N = kRows;
  call.V = kVocab;
  call.logits = &logits;
  call.ids = call.row_ids = &of_row;
  EXPECT_LE(MovesPlan::workspace_of(moves::sampled(call)), kMost);

  const Sizes rows = {kRows, 3000}, row_steps = {3000, 1};
  const rlk_tensor x = tensor(rows, row_steps);
  EXPECT_LE(MovesPlan::workspace_of(moves::in_order(&x, &x, &x, 8, true, true)), kMost);
  EXPECT_LE(MovesPlan::workspace_of(moves::in_order(&x, &x, &x, 3000, true, false)), kMost);
}

}  // namespace
}  // namespace rlk::simt::host

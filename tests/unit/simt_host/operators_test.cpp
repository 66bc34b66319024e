// What do the SIMT operators decline, what do their plans ask of a device, and which kernels does an execution launch?
// On a driver that is a table of this test's: a device of any size, where nothing is computed.
#include <gtest/gtest.h>

#include <algorithm>

#include "plugins/cuda/attention_gradients_mma.hpp"
#include "plugins/cuda/attention_mma.hpp"
#include "plugins/simt/host/attention_gradients.hpp"
#include "plugins/simt/host/operators.hpp"
#include "tests/unit/simt_host/operator_calls.hpp"

namespace rlk::simt::host {

const Driver& driver() {
  static const Driver table = make_table();
  return table;
}

namespace {

// --- attention -------------------------------------------------------------------------------------------------------

using AttentionCall = Arranged<sdk::ops::Attention>;

AttentionCall dense_attention(rlk_dtype dtype, int64_t batch, int64_t queries, int64_t keys, int64_t heads,
                              int64_t head_size, double scale = 0) {
  rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
  params.scale = scale;
  AttentionCall call(params, {batch, queries, keys, -1, -1, heads, heads, head_size});
  call.input(RLK_ATTENTION_IN_Q, dtype, {batch, queries, heads, head_size});
  call.input(RLK_ATTENTION_IN_K, dtype, {batch, keys, heads, head_size});
  call.input(RLK_ATTENTION_IN_V, dtype, {batch, keys, heads, head_size});
  call.output(RLK_ATTENTION_OUT_OUT, dtype, {batch, queries, heads, head_size});
  return call;
}

// What is not declined can be planned and launched, however little shared memory a block of the device may have.
template <class Implementation>
void expect_fits(rlk_dtype dtype, int shared_bytes) {
  Device device(0);
  for (const int64_t head_size : {8, 64, 72, 96, 128, 136, 192, 200, 256}) {
    AttentionCall call = dense_attention(dtype, 64, 512, 512, 8, head_size);
    const sdk::Support support = call.query<Implementation>(device);
    const std::string what = std::string(Implementation::kName) + " of head size " + std::to_string(head_size) +
                             " with " + std::to_string(shared_bytes) + " bytes";
    if (support.level == RLK_SUPPORT_NO) {
      EXPECT_EQ(support.reason_code, "SHARED_MEMORY") << what;
      EXPECT_LT(shared_bytes, 101376) << what << ": " << support.reason;
      continue;
    }
    try {
      call.launch<Implementation>(device);
    } catch (const sdk::Error& error) {
      ADD_FAILURE() << what << ": " << error.what();
    }
  }
}

TEST_F(OperatorTest, AttentionThatIsNotDeclinedFitsInSharedMemory) {
  // 101376: sm_86, sm_89 and sm_120.
  for (const int bytes : {232448, 166912, 101376, 65536, 49152, 24576, 8192}) {
    set_device(132, bytes);
    expect_fits<cuda::AttentionMma>(kBf16, bytes);
    expect_fits<cuda::AttentionMmaAccurate>(kBf16, bytes);
    for (const rlk_dtype dtype : {kBf16, kF32, kF64}) expect_fits<AttentionSimt>(dtype, bytes);
  }
}

AttentionCall packed_attention(rlk_dtype dtype, int64_t sequences, int64_t queries, int64_t keys, int64_t heads,
                               int64_t head_size) {
  rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
  params.layout = RLK_ATTENTION_LAYOUT_PACKED;
  AttentionCall call(params, {sequences, -1, -1, queries, keys, heads, heads, head_size});
  call.input(RLK_ATTENTION_IN_Q, dtype, {queries, heads, head_size});
  call.input(RLK_ATTENTION_IN_K, dtype, {keys, heads, head_size});
  call.input(RLK_ATTENTION_IN_V, dtype, {keys, heads, head_size});
  call.input(RLK_ATTENTION_IN_CU_SEQLENS_Q, kI64, {sequences + 1});
  call.input(RLK_ATTENTION_IN_CU_SEQLENS_K, kI64, {sequences + 1});
  call.output(RLK_ATTENTION_OUT_OUT, dtype, {queries, heads, head_size});
  return call;
}

template <class Implementation>
std::vector<int64_t> switches_of(const char* symbol) {
  std::vector<int64_t> sizes;
  for (const rlk_switch& change : Implementation::kSwitches) {
    if (change.symbol == std::string(symbol)) sizes.push_back(change.at);
  }
  return sizes;
}

// What a verification runs of the declared switches: ordinary sizes (2 sequences, 2 heads of 16, 7 or 11 keys), two of
// the symbols at a switch.
template <class Implementation>
std::set<std::string> kernels_of_switches() {
  Device device(0);
  std::set<std::string> kernels;
  std::vector<int64_t> head_sizes = switches_of<Implementation>("D");
  head_sizes.push_back(16);
  for (const rlk_dtype dtype : {kBf16, kF16}) {
    for (const int64_t head_size : head_sizes) {
      for (const int64_t queries : switches_of<Implementation>("Sq")) {
        kernels.insert(
            dense_attention(dtype, 2, queries, 7, 2, head_size).template launch<Implementation>(device).back());
      }
      for (const int64_t queries : switches_of<Implementation>("Tq")) {
        const auto launches =
            packed_attention(dtype, 2, queries, 11, 2, head_size).template launch<Implementation>(device);
        kernels.insert("packed " + launches.back());
      }
    }
  }
  return kernels;
}

TEST_F(OperatorTest, TheSwitchesOfAttentionReachTheLargeBlocksOfEveryHeadSizeOnAnyDevice) {
  for (const int multiprocessors : {1, 132, 192, 1000}) {
    set_device(multiprocessors, 232448);
    for (const std::string image : {"attention_mma", "attention_mma_accurate"}) {
      const std::set<std::string> kernels = image == "attention_mma"
                                                ? kernels_of_switches<cuda::AttentionMma>()
                                                : kernels_of_switches<cuda::AttentionMmaAccurate>();
      for (const char* head : {"64", "96", "128", "192", "256"}) {
        for (const char* dtype : {"bf16", "f16"}) {
          const std::string name = image + "_" + dtype + "_" + head + "_128";
          EXPECT_EQ(kernels.count(name), 1u) << name << " with " << multiprocessors << " multiprocessors";
          EXPECT_EQ(kernels.count("packed " + name), 1u) << name << " with " << multiprocessors << " multiprocessors";
        }
      }
    }
  }
}

// Large blocks serve a decoder, which has no more queries than keys, only where they fill the device.
TEST_F(OperatorTest, FewQueriesOfADecoderTakeSmallBlocks) {
  Device device(0);
  const auto kernel = [&](int64_t batch, int64_t queries, int64_t keys) {
    return dense_attention(kBf16, batch, queries, keys, 2, 128).launch<cuda::AttentionMma>(device).back();
  };
  EXPECT_EQ(kernel(2, 128, 128), "attention_mma_bf16_128_64");
  EXPECT_EQ(kernel(2, 2048, 2048), "attention_mma_bf16_128_64");
  EXPECT_EQ(kernel(2, 1, 4096), "attention_mma_bf16_128_64");
  EXPECT_EQ(kernel(2, 300, 200), "attention_mma_bf16_128_64");
  EXPECT_EQ(kernel(66, 128, 128), "attention_mma_bf16_128_128");
}

// --- logp ------------------------------------------------------------------------------------------------------------

Arranged<sdk::ops::Logp> logp(rlk_dtype dtype, int64_t rows, int64_t vocab, double temperature = 1,
                              double softcap = 0) {
  rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  params.temperature = temperature;
  params.softcap = softcap;
  const rlk_dtype accumulator = dtype.bits == 64 ? kF64 : kF32;
  Arranged<sdk::ops::Logp> call(params, {rows, rows, vocab});
  call.input(RLK_LOGP_IN_LOGITS, dtype, {rows, vocab});
  call.input(RLK_LOGP_IN_IDS, kI64, {rows});
  call.output(RLK_LOGP_OUT_LOGP, accumulator, {rows});
  return call;
}

Arranged<sdk::ops::LogpBackward> logp_backward(rlk_dtype dtype, double temperature, double softcap) {
  rlk_logp_backward_params params = RLK_LOGP_BACKWARD_PARAMS_INIT;
  params.temperature = temperature;
  params.softcap = softcap;
  const rlk_dtype accumulator = dtype.bits == 64 ? kF64 : kF32;
  Arranged<sdk::ops::LogpBackward> call(params, {4, 4, 100});
  call.input(RLK_LOGP_BACKWARD_IN_LOGITS, dtype, {4, 100});
  call.input(RLK_LOGP_BACKWARD_IN_IDS, kI64, {4});
  call.input(RLK_LOGP_BACKWARD_IN_LSE, accumulator, {4});
  call.input(RLK_LOGP_BACKWARD_IN_GRAD_LOGP, accumulator, {4});
  call.output(RLK_LOGP_BACKWARD_OUT_GRAD_LOGITS, dtype, {4, 100});
  return call;
}

TEST_F(OperatorTest, TheSwitchesOfLogpReachBlocksOfSeveralSegments) {
  for (const int multiprocessors : {1, 132, 192, 1000}) {
    set_device(multiprocessors, 232448);
    Device device(0);
    for (const rlk_dtype dtype : {kF32, kBf16, kF16, kF64}) {
      int64_t most = 0;
      for (const int64_t vocab : switches_of<Logp>("V")) {
        logp(dtype, 5, vocab).launch<Logp>(device);
        most = std::max(most, block_segments);
      }
      EXPECT_GT(most, 1) << int{dtype.bits} << " bits with " << multiprocessors << " multiprocessors";
    }
    // A few rows of whole segments still fill the device.
    logp(kF32, 5, 131072).launch<Logp>(device);
    EXPECT_EQ(block_segments, multiprocessors > 1 ? 1 : block_segments);
  }
}

// The kernels compute in fp32 unless logits are fp64: what has no reciprocal there, or is none itself, makes NaN.
TEST_F(OperatorTest, LogpDeclinesTemperaturesAndSoftcapsBeyondItsArithmetic) {
  Device device(0);
  const auto expect = [&](rlk_dtype dtype, double temperature, double softcap, const std::string& code) {
    const std::string what = std::to_string(dtype.bits) + " bits, temperature " + sdk::format("%g", temperature) +
                             ", softcap " + sdk::format("%g", softcap);
    EXPECT_EQ(logp(dtype, 4, 100, temperature, softcap).query<Logp>(device).reason_code, code) << what;
    EXPECT_EQ(logp_backward(dtype, temperature, softcap).query<LogpBackward>(device).reason_code, code) << what;
  };
  for (const rlk_dtype dtype : {kF32, kBf16}) {
    for (const double fine : {1.0, 1e-3, 0x1p-60, 0x1p60}) {
      expect(dtype, fine, 0, "");
      expect(dtype, 1, fine, "");
    }
    for (const double beyond : {1e-320, 1e-40, 1e-39, 1e39, 1e300}) {
      expect(dtype, beyond, 0, "TEMPERATURE");
      expect(dtype, 1, beyond, "SOFTCAP");
    }
  }
  expect(kF64, 1e-40, 1e39, "");
}

// CPU kernels compute such calls in fp64.
TEST_F(OperatorTest, AttentionDeclinesScalesBeyondItsArithmetic) {
  Device device(0);
  const auto code = [&](rlk_dtype dtype, double scale) {
    return dense_attention(dtype, 1, 4, 4, 1, 64, scale).query<AttentionSimt>(device).reason_code;
  };
  for (const rlk_dtype dtype : {kF32, kBf16}) {
    for (const double fine : {0.0, 1e-300, 1.0, 0x1p60}) EXPECT_EQ(code(dtype, fine), "") << fine;
    for (const double beyond : {1e20, 1e39}) EXPECT_EQ(code(dtype, beyond), "SCALE") << beyond;
  }
  EXPECT_EQ(code(kF64, 1e39), "");
  EXPECT_EQ((dense_attention(kBf16, 1, 4, 4, 1, 64, 1e39).query<cuda::AttentionMma>(device).reason_code), "SCALE");
}

// A lane has registers for so many columns of the output, and no more.
TEST_F(OperatorTest, AttentionWithoutMatrixUnitsDeclinesHeadsWiderThanItsRegisters) {
  Device device(0);
  const auto code = [&](rlk_dtype dtype, int64_t head_size) {
    return dense_attention(dtype, 1, 4, 4, 1, head_size).query<AttentionSimt>(device).reason_code;
  };
  for (const rlk_dtype dtype : {kF32, kBf16, kF64}) {
    EXPECT_EQ(code(dtype, kSimtMaxHead), "");
    EXPECT_EQ(code(dtype, kSimtMaxHead + 1), "HEAD_SIZE");
  }
}

// --- gradients of attention ------------------------------------------------------------------------------------------

Arranged<sdk::ops::AttentionBackward> attention_backward(rlk_dtype dtype, int64_t head_size, double scale = 0) {
  rlk_attention_backward_params params = RLK_ATTENTION_BACKWARD_PARAMS_INIT;
  params.scale = scale;
  Arranged<sdk::ops::AttentionBackward> call(params, {2, 5, 6, -1, -1, 4, 2, head_size});
  const rlk_dtype accumulator = dtype.bits == 64 ? kF64 : kF32;
  for (const uint32_t of_queries :
       {RLK_ATTENTION_BACKWARD_IN_Q, RLK_ATTENTION_BACKWARD_IN_OUT, RLK_ATTENTION_BACKWARD_IN_GRAD_OUT}) {
    call.input(of_queries, dtype, {2, 5, 4, head_size});
  }
  call.input(RLK_ATTENTION_BACKWARD_IN_K, dtype, {2, 6, 2, head_size});
  call.input(RLK_ATTENTION_BACKWARD_IN_V, dtype, {2, 6, 2, head_size});
  call.input(RLK_ATTENTION_BACKWARD_IN_LSE, accumulator, {2, 5, 4});
  call.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_Q, dtype, {2, 5, 4, head_size});
  call.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_K, dtype, {2, 6, 2, head_size});
  call.output(RLK_ATTENTION_BACKWARD_OUT_GRAD_V, dtype, {2, 6, 2, head_size});
  return call;
}

TEST_F(OperatorTest, GradientsOfAttentionTakeAnyHeadAndDeclineScalesBeyondTheirArithmetic) {
  Device device(0);
  for (const rlk_dtype dtype : {kF32, kBf16, kF16, kF64}) {
    for (const int64_t head_size : {1, 64, 300, 1000}) {
      EXPECT_EQ(attention_backward(dtype, head_size).query<AttentionBackwardSimt>(device).reason_code, "");
    }
  }
  EXPECT_EQ(attention_backward(kBf16, 64, 1e39).query<AttentionBackwardSimt>(device).reason_code, "SCALE");
  EXPECT_EQ(attention_backward(kF64, 64, 1e39).query<AttentionBackwardSimt>(device).reason_code, "");
}

TEST_F(OperatorTest, GradientsOfAttentionAreThreeKernels) {
  Device device(0);
  const std::string prefix = "attention_gradients_";
  EXPECT_EQ(attention_backward(kF16, 64).launch<AttentionBackwardSimt>(device),
            (std::vector<std::string>{prefix + "terms_f16", prefix + "rows_f16", prefix + "keys_f16"}));
}

Arranged<sdk::ops::PrefixSharedAttentionBackward> prefix_backward(int64_t samples, int64_t prefix) {
  constexpr int64_t kQueries = 3, kKeys = 3, kHead = 16;
  Arranged<sdk::ops::PrefixSharedAttentionBackward> call(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_PARAMS_INIT,
                                                         {1, samples, kQueries, prefix, kKeys, 2, 1, kHead});
  for (const uint32_t of_queries :
       {RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_Q, RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_OUT,
        RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_GRAD_OUT}) {
    call.input(of_queries, kBf16, {1, samples, kQueries, 2, kHead});
  }
  call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_LSE, kF32, {1, samples, kQueries, 2});
  call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_PREFIX_K, kBf16, {1, prefix, 1, kHead});
  call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_PREFIX_V, kBf16, {1, prefix, 1, kHead});
  call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_K, kBf16, {1, samples, kKeys, 1, kHead});
  call.input(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_IN_V, kBf16, {1, samples, kKeys, 1, kHead});
  call.output(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_Q, kBf16, {1, samples, kQueries, 2, kHead});
  call.output(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_PREFIX_K, kBf16, {1, prefix, 1, kHead});
  call.output(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_PREFIX_V, kBf16, {1, prefix, 1, kHead});
  call.output(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_K, kBf16, {1, samples, kKeys, 1, kHead});
  call.output(RLK_PREFIX_SHARED_ATTENTION_BACKWARD_OUT_GRAD_V, kBf16, {1, samples, kKeys, 1, kHead});
  return call;
}

TEST_F(OperatorTest, ThePrefixOfManySamplesHasManyBlocks) {
  Device device(0);
  std::vector<unsigned> blocks;
  on_launch = [&](unsigned count, const void*) { blocks.push_back(count); };
  const auto launch = [&](int64_t samples, int64_t prefix) {
    blocks.clear();
    return prefix_backward(samples, prefix).launch<PrefixSharedAttentionBackwardSimt>(device);
  };
  using Names = std::vector<std::string>;
  const Names few = {"attention_gradients_terms_bf16", "attention_gradients_rows_bf16", "attention_gradients_keys_bf16",
                     "attention_gradients_keys_bf16"};
  Names many = few;
  many.push_back("attention_gradients_prefix_bf16");
  EXPECT_EQ(launch(10, 9), few);
  EXPECT_EQ(blocks.back(), 1u);
  // 60000 rows are 938 tiles, 4 of each part.
  EXPECT_EQ(launch(10000, 9), many);
  EXPECT_EQ(blocks[3], 235u);
  EXPECT_EQ(launch(10000, 128 * 64), many);
  EXPECT_EQ(blocks[3], 128u * 2);
  EXPECT_EQ(launch(10000, 129 * 64), few);
  EXPECT_EQ(launch(10000, 0).size(), 3U);
  on_launch = nullptr;
}

// What one block does for a prefix grows with the samples 256 times as slowly as they do, and its sums take little.
TEST(PrefixParts, HaveAllRowsInFewTilesEach) {
  for (const int64_t samples : {1, 100, 5000, 14913673}) {
    for (const int64_t prefix : {1, 9, 64, 2048, 100000}) {
      AttentionGradientArgs args{};
      args.batches = 1;
      args.samples = samples;
      args.queries = 3;
      args.prefix_keys = prefix;
      args.kv_heads = args.group = args.q_heads = 1;
      args.head_size = 16;
      const PrefixParts parts(args, 4);
      const int64_t rows = samples * args.queries;
      if (parts.count == 1) continue;
      EXPECT_EQ(parts.rows % gradient_tile(4), 0);
      EXPECT_GE(parts.count * parts.rows, rows);
      EXPECT_LT((parts.count - 1) * parts.rows, rows) << "a part without rows";
      EXPECT_LE(parts.rows, 2 * std::max(prefix + 64, rows / (256 / ceil_divide(prefix, 64))));
      // q, out, grad_out and grad_q.
      EXPECT_LE(layout_of(args, 4).parts, static_cast<uint64_t>(4 * rows * args.head_size) * sizeof(float));
    }
  }
  AttentionGradientArgs many{};
  many.batches = many.group = many.kv_heads = 1;
  many.samples = 14913673;
  many.queries = 3;
  many.prefix_keys = 9;
  EXPECT_EQ(PrefixParts(many, 4).count, 256);
  // What the switch of the implementations says.
  for (const rlk_switch& change : PrefixSharedAttentionBackwardSimt::kSwitches) {
    many.samples = 3;
    many.queries = change.at;
    for (const int64_t bytes : {4, 8}) EXPECT_GT(PrefixParts(many, bytes).count, 1);
    many.queries = change.at - 1;
    EXPECT_EQ(PrefixParts(many, 4).count, 1);
  }
}

TEST_F(OperatorTest, GradientsOnTensorCoresTakeSixteenBitHeadsThatFit) {
  Device device(0);
  const auto code = [&](rlk_dtype dtype, int64_t head_size) {
    return attention_backward(dtype, head_size).query<cuda::AttentionBackwardMma>(device).reason_code;
  };
  const auto keys_kernel = [&](int64_t head_size) {
    return attention_backward(kBf16, head_size).launch<cuda::AttentionBackwardMma>(device).back();
  };
  EXPECT_EQ(code(kF32, 64), "DTYPE");
  for (const int64_t head_size : {12, 136}) EXPECT_EQ(code(kF16, head_size), "HEAD_SIZE");
  for (const int64_t head_size : {8, 64, 72, 128}) EXPECT_EQ(code(kF16, head_size), "");
  EXPECT_EQ(keys_kernel(64), "attention_gradients_mma_keys_bf16_64");
  EXPECT_EQ(keys_kernel(72), "attention_gradients_mma_keys_bf16_128");
  set_device(132, 65536);
  Device small(0);
  EXPECT_EQ(attention_backward(kBf16, 128).query<cuda::AttentionBackwardMma>(small).reason_code, "SHARED_MEMORY");
  EXPECT_EQ(attention_backward(kBf16, 64).launch<cuda::AttentionBackwardMma>(small).size(), 3U);
}

// --- maps ------------------------------------------------------------------------------------------------------------

TEST_F(OperatorTest, AMapLaunchesTheKernelOfItsPrecision) {
  Device device(0);
  const auto kernel = [&](rlk_dtype dtype, double alpha, int64_t elements = 9) {
    rlk_add_params params = RLK_ADD_PARAMS_INIT;
    params.alpha = alpha;
    Arranged<sdk::ops::Add> call(params, {});
    call.input(RLK_ADD_IN_A, dtype, {elements});
    call.input(RLK_ADD_IN_B, dtype, {elements});
    call.output(RLK_ADD_OUT_OUT, dtype, {elements});
    EXPECT_EQ((call.query<Map<sdk::ops::Add, maps::Add>>(device).reason_code), "");
    return call.launch<Map<sdk::ops::Add, maps::Add>>(device);
  };
  using Names = std::vector<std::string>;
  for (const rlk_dtype dtype : {kF32, kBf16, kF16}) {
    for (const double fine : {0.0, 1.0, -0.5})
      EXPECT_EQ(kernel(dtype, fine), (Names{"arithmetic_map_Add_f32"})) << fine;
    for (const double beyond : {1e-46, 1e39, -1e60}) {
      EXPECT_EQ(kernel(dtype, beyond), (Names{"arithmetic_map_Add_f64"})) << beyond;
    }
  }
  EXPECT_EQ(kernel(kF64, 1), (Names{"arithmetic_map_Add_f64"}));
  // Whole packs without gaps.
  EXPECT_EQ(kernel(kF32, 1, 8), (Names{"arithmetic_map_Add_f32_line"}));
  EXPECT_EQ(kernel(kBf16, 1, 8), (Names{"arithmetic_map_Add_half_line"}));
  EXPECT_EQ(kernel(kF16, 1, 8), (Names{"arithmetic_map_Add_half_line"}));
  EXPECT_EQ(kernel(kF64, 1, 8), (Names{"arithmetic_map_Add_f64_line"}));
  EXPECT_EQ(kernel(kF32, 1e39, 8), (Names{"arithmetic_map_Add_f64"}));
}

TEST_F(OperatorTest, AMapDeclinesADtypeByTheArgumentsNameAndLaunchesNothingForNoElements) {
  Device device(0);
  Arranged<sdk::ops::SiluAndMul> call(RLK_SILU_AND_MUL_PARAMS_INIT, {0, 3});
  call.input(RLK_SILU_AND_MUL_IN_X, kF32, {0, 6});
  call.output(RLK_SILU_AND_MUL_OUT_Y, kF32, {0, 3});
  EXPECT_TRUE((call.launch<Map<sdk::ops::SiluAndMul, maps::SiluAndMul>>(device).empty()));
  call.input(RLK_SILU_AND_MUL_IN_X, kI64, {0, 6});
  const sdk::Support refused = call.query<Map<sdk::ops::SiluAndMul, maps::SiluAndMul>>(device);
  EXPECT_EQ(refused.reason_code, "DTYPE");
  EXPECT_EQ(refused.reason, "gate is i64; supported: f32, bf16, f16, f64");
}

}  // namespace
}  // namespace rlk::simt::host

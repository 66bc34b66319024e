// Without a GPU: cuDNN's own answer for an H100 or H200 that is only described, whether it has engines for the graph
// and their kernels compile. Skipped where there is no libcudnn.so.9 of 9.10.2 or newer.
//
// What only a GPU shows is that the numbers are right. There, with BUILD the build folder, and CUDNN the folder of
// libcudnn.so.9 (libnvrtc.so beside it or in the loader's path):
//
//   export LD_LIBRARY_PATH=CUDNN:$LD_LIBRARY_PATH RLK_PLUGIN_PATH=BUILD/lib
//   PLUGIN=BUILD/tests/plugins/cudnn/librlk_plugin_cudnn_attention.so
//   BUILD/bin/rlk-plugins conformance $PLUGIN                               # passes: tolerance, deterministic
//   RLK_CUDNN_CLAIMS=accurate BUILD/bin/rlk-plugins conformance $PLUGIN     # exit code 1, NOT_ACCURATE
//   BUILD/bin/rlk-plugins conformance $PLUGIN --full                        # the same as the first, in minutes
//
// cuDNN compiles a kernel for each shape, in about a second: the first command meets some 40 shapes, --full some 630.
// "NO_ENGINE" comes with cuDNN's reason; all that it says is told with CUDNN_LOGLEVEL_DBG=2 CUDNN_LOGDEST_DBG=stderr.
#include "graph.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace cudnn_attention {
namespace {

// As cuDNN writes CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION.
constexpr char kHopper[] = R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "regsPerBlock": 65536, "multiProcessorCount": 132, "warpSize": 32, "maxSharedMemoryPerBlock": 49152,
  "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536,
  "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0,
  "supportCoopLaunch": 1, "totalGlobalMem": 150000000000, "smClockRateKHz": 1980000, "memClockRateKHz": 2619000,
  "l2CacheSize": 52428800, "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000, "deviceName": "NVIDIA H200"})";

struct Heads {
  int64_t q, kv;
};
struct Lengths {
  int64_t queries, keys;
};

// Dense [batch, token, head, element]; `between` elements more from one token to the next.
Shape shape_of(Heads heads, Lengths lengths, int64_t head_size, int64_t between = 0) {
  const auto strides = [&](int64_t tokens, int64_t count) {
    const int64_t token = count * head_size + between;
    return Dims{tokens * token, head_size, token, 1};
  };
  Shape shape;
  shape.batch = 2;
  shape.queries = lengths.queries;
  shape.keys = lengths.keys;
  shape.q_heads = heads.q;
  shape.kv_heads = heads.kv;
  shape.head_size = head_size;
  shape.q_strides = shape.out_strides = strides(lengths.queries, heads.q);
  shape.k_strides = shape.v_strides = strides(lengths.keys, heads.kv);
  return shape;
}

class CudnnForHopper : public testing::Test {
protected:
  void SetUp() override {
    if (!libraries().symbols.complete()) GTEST_SKIP() << libraries().symbols.problem();
    if (libraries().version() < kOldestVersion) GTEST_SKIP() << "cuDNN is " << libraries().version();
    properties_ = std::make_unique<Descriptor>(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    properties_->set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof(kHopper), kHopper);
    const cudnnStatus_t status = libraries().finalize(properties_->get());
    if (status != CUDNN_STATUS_SUCCESS) {
      GTEST_SKIP() << "this cuDNN describes devices in other words: " << libraries().error_string(status);
    }
    try {
      AttentionGraph(target(), shape_of({2, 2}, {64, 64}, 64));
    } catch (const sdk::Error& error) {
      // It says so only of a graph that its engines recognise.
      const bool wants_driver = std::strstr(error.what(), "libcuda") != nullptr;
      if (wants_driver) GTEST_SKIP() << "this cuDNN wants more of a driver than there is here: " << error.what();
    }
  }
  Target target() const {
    Target described;
    described.properties = properties_.get();
    return described;
  }

  std::unique_ptr<Descriptor> properties_;
};

TEST_F(CudnnForHopper, HasAnEngineForWhatQueryAdmits) {
  for (const cudnnDataType_t type : {CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF}) {
    for (const bool causal : {false, true}) {
      for (const Heads heads : {Heads{2, 2}, Heads{4, 1}}) {
        for (const int64_t head_size : {8, 16, 40, 128}) {
          for (const Lengths lengths : {Lengths{7, 7}, Lengths{1, 130}, Lengths{65, 13}}) {
            Shape shape = shape_of(heads, lengths, head_size);
            shape.type = type;
            shape.causal = causal;
            EXPECT_NO_THROW(AttentionGraph(target(), shape))
                << "type " << type << ", causal " << causal << ", " << lengths.queries << " queries, " << lengths.keys
                << " keys, " << heads.q << " and " << heads.kv << " heads of " << head_size;
          }
        }
      }
    }
  }
}

TEST_F(CudnnForHopper, HasAnEngineForTokensThatAreApart) {
  EXPECT_NO_THROW(AttentionGraph(target(), shape_of({2, 2}, {7, 7}, 16, 64)));
}

TEST_F(CudnnForHopper, CompilesTheKernel) {
  Shape shape = shape_of({4, 2}, {7, 13}, 16);
  for (const bool causal : {false, true}) {
    shape.causal = causal;
    AttentionGraph graph(target(), shape);
    EXPECT_NO_THROW(graph.compile()) << "causal " << causal;
  }
}

TEST_F(CudnnForHopper, RefusesAHeadSizeWithCudnnsOwnReason) {
  try {
    AttentionGraph(target(), shape_of({2, 2}, {7, 7}, 12));
    FAIL() << "an engine takes heads of 12";
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.status(), RLK_UNSUPPORTED);
    const std::string text = error.what();
    EXPECT_NE(text.find("heads of 12: "), std::string::npos) << text;
    EXPECT_NE(text.find("multiple of 8"), std::string::npos) << text;
  }
}

TEST(CudnnReason, IsTheOneOfAnEngineForThisArchitecture) {
  EXPECT_EQ(first_reason("{\"engineId\":0}\n"
                         "Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: two products only at: true\n"
                         "Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: isSupported()\n\n"
                         "{\"engineId\":1}\n"
                         "Warning: CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH; Reason: another card at: true\n\n"
                         "{\"engineId\":2}\n"
                         "Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: not a multiple of 8 at: d % 8 != 0\n"
                         "Warning: CUDNN_STATUS_NOT_SUPPORTED_SHAPE; Reason: generate()\n"),
            "not a multiple of 8 at: d % 8 != 0");
}

TEST(CudnnReason, IsTheFirstOneWhereNoneHasAStatusOfItsOwn) {
  EXPECT_EQ(first_reason("Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: two products only at: true\n"
                         "Warning: CUDNN_STATUS_NOT_SUPPORTED; Reason: isSupported()"),
            "two products only at: true");
}

TEST(CudnnReason, IsEmptyWhenCudnnToldNothing) {
  EXPECT_EQ(first_reason(""), "");
  EXPECT_EQ(first_reason("no such line\n"), "");
}

// Kernels are remembered by their shape: a field that the order forgets would run one shape's kernel for another.
TEST(CudnnShape, IsAnotherWhenAnyFieldDiffers) {
  const Shape one = shape_of({2, 2}, {7, 7}, 16);
  EXPECT_FALSE(one < one);
  std::vector<Shape> others;
  const auto other = [&](auto change) { change(others.emplace_back(one)); };
  other([](Shape& s) { s.type = CUDNN_DATA_HALF; });
  other([](Shape& s) { s.causal = true; });
  for (int64_t Shape::*field :
       {&Shape::batch, &Shape::queries, &Shape::keys, &Shape::q_heads, &Shape::kv_heads, &Shape::head_size}) {
    other([&](Shape& s) { s.*field += 1; });
  }
  for (Dims Shape::*field : {&Shape::q_strides, &Shape::k_strides, &Shape::v_strides, &Shape::out_strides}) {
    for (size_t i = 0; i < 4; ++i) {
      other([&](Shape& s) { (s.*field)[i] += 8; });
    }
  }
  for (const Shape& changed : others) EXPECT_NE(one < changed, changed < one);
}

}  // namespace
}  // namespace cudnn_attention

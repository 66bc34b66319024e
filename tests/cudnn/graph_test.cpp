// Without a GPU: cuDNN's own answer for an H100 or H200 that is only described, whether it has engines for the graphs
// and their kernels compile. Skipped where there is no libcudnn.so.9 of 9.10.2 or newer (its folder in LD_LIBRARY_PATH,
// with libnvrtc's). That the numbers are right only a GPU shows: rlk-plugins conformance librlk_plugin_cudnn.so there.
#include "plugins/cudnn/attention_graph.hpp"

#include <gtest/gtest.h>

#include <cstring>

namespace rlk::cudnn {
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
  for (const Tensor of : {kQ, kOut, kGradOut, kGradQ}) shape.strides[of] = strides(lengths.queries, heads.q);
  for (const Tensor of : {kK, kV, kGradK, kGradV}) shape.strides[of] = strides(lengths.keys, heads.kv);
  shape.strides[kLse] = {lengths.queries * heads.q, 1, heads.q, 1};
  return shape;
}

class CudnnForHopper : public testing::Test {
protected:
  void SetUp() override {
    if (!library().symbols.complete()) GTEST_SKIP() << library().symbols.problem();
    if (library().version() < kOldestVersion) GTEST_SKIP() << "cuDNN is " << library().version();
    properties_ = std::make_unique<Descriptor>(descriptor::kDeviceProperties);
    properties_->set(attribute::kDeviceJson, type::kChar, sizeof(kHopper), kHopper);
    const Status status = library().finalize(properties_->get());
    if (status != status::kSuccess) {
      GTEST_SKIP() << "this cuDNN describes devices in other words: " << library().error_string(status);
    }
    try {
      ask(shape_of({2, 2}, {64, 64}, 64));
    } catch (const sdk::Error& error) {
      // It says so only of a graph that its engines recognise.
      const bool wants_driver = std::strstr(error.what(), "libcuda") != nullptr;
      if (wants_driver) GTEST_SKIP() << "this cuDNN wants more of a driver than there is here: " << error.what();
    }
  }
  std::unique_ptr<AttentionGraph> ask(const Shape& shape) {
    return std::make_unique<AttentionGraph>(Target{nullptr, properties_.get()}, shape);
  }

  std::unique_ptr<Descriptor> properties_;
};

// No mask, causality of both alignments, windows with and without it.
std::vector<Shape> masked(const Shape& shape) {
  std::vector<Shape> all = {shape};
  const auto add = [&](int64_t left, int64_t right, bool is_bottom_right) {
    if (shape.queries > shape.keys && (is_bottom_right || left != kUnbounded)) return;
    Shape& one = all.emplace_back(shape);
    one.left = left;
    one.right = right;
    one.is_bottom_right = is_bottom_right;
  };
  add(kUnbounded, 0, false);
  add(kUnbounded, 0, true);
  add(3, 0, true);
  add(3, 2, true);
  add(3, kUnbounded, false);
  return all;
}

TEST_F(CudnnForHopper, HasAnEngineForWhatQueryAdmits) {
  for (const Direction direction : {Direction::forward, Direction::backward, Direction::backward_deterministic}) {
    for (const Heads heads : {Heads{2, 2}, Heads{4, 1}}) {
      for (const int64_t head_size : {8, 128}) {
        for (const Lengths lengths : {Lengths{7, 7}, Lengths{1, 130}, Lengths{65, 13}}) {
          Shape shape = shape_of(heads, lengths, head_size);
          shape.direction = direction;
          shape.type = heads.q == heads.kv ? data::kBfloat16 : data::kHalf;
          shape.has_lse = true;
          for (const Shape& one : masked(shape)) {
            EXPECT_NO_THROW(ask(one)) << "direction " << static_cast<int>(direction) << ", left " << one.left
                                      << ", right " << one.right << ", bottom right " << one.is_bottom_right << ", "
                                      << lengths.queries << " queries, " << lengths.keys << " keys, " << heads.q
                                      << " and " << heads.kv << " heads of " << head_size;
          }
        }
      }
    }
  }
}

TEST_F(CudnnForHopper, HasAnEngineForTokensThatAreApart) {
  EXPECT_NO_THROW(ask(shape_of({2, 2}, {7, 7}, 16, 64)));
}

TEST_F(CudnnForHopper, CompilesTheKernels) {
  for (const Direction direction : {Direction::forward, Direction::backward, Direction::backward_deterministic}) {
    Shape shape = shape_of({4, 2}, {7, 13}, 16);
    shape.direction = direction;
    shape.right = 0;
    shape.is_bottom_right = true;
    EXPECT_NO_THROW(ask(shape)->compile()) << "direction " << static_cast<int>(direction);
  }
}

TEST_F(CudnnForHopper, RefusesAHeadSizeWithCudnnsOwnReason) {
  try {
    ask(shape_of({2, 2}, {7, 7}, 12));
    FAIL() << "an engine takes heads of 12";
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.status(), RLK_UNSUPPORTED);
    EXPECT_NE(std::strstr(error.what(), "multiple of 8"), nullptr) << error.what();
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
  other([](Shape& s) { s.type = data::kHalf; });
  other([](Shape& s) { s.direction = Direction::backward; });
  other([](Shape& s) { s.has_lse = true; });
  other([](Shape& s) { s.is_bottom_right = true; });
  for (int64_t Shape::*field : {&Shape::batch, &Shape::queries, &Shape::keys, &Shape::q_heads, &Shape::kv_heads,
                                &Shape::head_size, &Shape::left, &Shape::right}) {
    other([&](Shape& s) { s.*field += 1; });
  }
  for (size_t tensor = 0; tensor < kTensors; ++tensor) {
    for (size_t i = 0; i < 4; ++i) {
      other([&](Shape& s) { s.strides[tensor][i] += 8; });
    }
  }
  for (const Shape& changed : others) EXPECT_NE(one < changed, changed < one);
}

}  // namespace
}  // namespace rlk::cudnn

// The simulated libcudnn.so.9 refuses what the library refuses: a plugin that its tests pass sets the right attributes,
// of the right types, in the right order, and describes a graph that an engine knows.
#include "plugins/cudnn/graph.hpp"

#include <gtest/gtest.h>

namespace rlk::cudnn {
namespace {

constexpr int kNullPointer = 2002, kNotFinalized = 2004, kOutOfBound = 2005, kDuplicate = 2009, kAttributeType = 2010;

Status set(const Descriptor& of, int attribute, int type, int64_t count, const void* values) {
  return library().set_attribute(of.get(), attribute, type, count, values);
}

class FakeCudnn : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_TRUE(library().symbols.complete()) << library().symbols.problem();
    ASSERT_STREQ(library().error_string(0), "CUDNN_STATUS_EMULATED") << "this is another library";
  }
  const Descriptor tensor_{descriptor::kTensor};
  const int64_t one_ = 1;
};

TEST_F(FakeCudnn, RefusesAnAttributeOfAnotherType) {
  EXPECT_EQ(set(tensor_, attribute::kTensorId, type::kDataType, 1, &one_), kAttributeType);
}

TEST_F(FakeCudnn, RefusesAnotherNumberOfValues) {
  const int64_t two[] = {1, 2};
  EXPECT_EQ(set(tensor_, attribute::kTensorId, type::kInt64, 2, two), kOutOfBound);
}

TEST_F(FakeCudnn, RefusesNoValues) {
  EXPECT_EQ(set(tensor_, attribute::kTensorId, type::kInt64, 1, nullptr), kNullPointer);
}

TEST_F(FakeCudnn, RefusesAnAttributeOfAnotherDescriptor) {
  EXPECT_EQ(set(tensor_, attribute::kPointwiseAxis, type::kInt64, 1, &one_), status::kNotSupported);
}

TEST_F(FakeCudnn, RefusesToFinalizeWhatLacksAnAttribute) {
  EXPECT_EQ(library().finalize(tensor_.get()), status::kBadParam);
}

TEST_F(FakeCudnn, RefusesADescriptorThatIsNotFinalized) {
  const Descriptor operation(descriptor::kReshapeOperation);
  const RawDescriptor raw = tensor_.get();
  EXPECT_EQ(set(operation, attribute::kReshapeX, type::kDescriptor, 1, &raw), kNotFinalized);
}

TEST_F(FakeCudnn, RefusesToDescribeAFinalizedDescriptorFurther) {
  Descriptor how(descriptor::kMatmul);
  how.set_int(attribute::kMatmulPrecision, type::kDataType, data::kFloat);
  how.finalize("describing a product");
  const int precision = data::kFloat;
  EXPECT_EQ(set(how, attribute::kMatmulPrecision, type::kDataType, 1, &precision), status::kBadParam);
}

// What the library tells a graph of two tensors and an operation.
Status told(const Dims& to, int64_t to_id) {
  Graph graph{Target{}};
  const Dims dims = {1, 1, 8, 16};
  Descriptor& from = graph.tensor(1, data::kFloat, dims, packed(dims));
  Descriptor& result = graph.tensor(to_id, data::kFloat, to, packed(to));
  graph.reshape(from, result);
  try {
    graph.find_engines(false);
  } catch (const sdk::Error& error) {
    return static_cast<Status>(error.native_code());
  }
  return status::kSuccess;
}

TEST_F(FakeCudnn, RefusesTwoTensorsOfOneNumber) {
  EXPECT_EQ(told({1, 1, 16, 8}, 1), kDuplicate);
}

TEST_F(FakeCudnn, RefusesSizesThatDoNotFit) {
  EXPECT_EQ(told({1, 1, 16, 16}, 2), status::kBadParam);
}

TEST_F(FakeCudnn, HasNoEngineForOperationsThatAreNoAttention) {
  Graph graph{Target{}};
  const Dims dims = {1, 1, 8, 16}, turned = {1, 1, 16, 8};
  graph.reshape(graph.tensor(1, data::kFloat, dims, packed(dims)),
                graph.tensor(2, data::kFloat, turned, packed(turned)));
  try {
    graph.find_engines(false);
    FAIL() << "an engine takes a transposition alone";
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.status(), RLK_UNSUPPORTED);
    EXPECT_NE(std::string(error.what()).find("no engine knows the operations T"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace rlk::cudnn

// Does the simulated Neuware stop a program that breaks a rule of its own, beside those of the framework
// (tests/unit/simt_fake)? One seeded violation each.
#include <gtest/gtest.h>

#include <cstdint>

extern "C" {
int cnrtSetDevice(int device);
int cnrtMalloc(void** pointer, size_t bytes);
int cnrtFree(void* pointer);
int cnrtQueueCreate(void** queue);
int cnrtQueueSync(void* queue);
int cnrtQueueDestroy(void* queue);
int cnrtMemcpyAsync(void* to, void* from, size_t bytes, void* queue, int direction);
int cnnlCreate(void** handle);
int cnnlDestroy(void* handle);
int cnnlSetQueue(void* handle, void* queue);
int cnnlCreateTensorDescriptor(void** desc);
int cnnlSetTensorDescriptor(void* desc, int layout, int dtype, int n, const int* dims);
int cnnlSetTensorDescriptorEx(void* desc, int layout, int dtype, int n, const int* dims, const int* strides);
int cnnlDestroyTensorDescriptor(void* desc);
int cnnlExp_v2(void* handle, int prefer, void* xd, const void* x, void* yd, void* y);
int cnnlDiv_v2(void* handle, int prefer, void* ad, const void* a, void* bd, const void* b, void* workspace,
               size_t bytes, void* cd, void* c);
int cnnlMatMulDescCreate(void** desc);
int cnnlMatMulDescDestroy(void* desc);
int cnnlSetMatMulDescAttr(void* desc, int attribute, const void* value, size_t bytes);
int cnnlMatMulAlgoCreate(void** algorithm);
int cnnlMatMulAlgoDestroy(void* algorithm);
int cnnlCreateMatMulHeuristicResult(void** choice);
int cnnlDestroyMatMulHeuristicResult(void* choice);
int cnnlGetMatMulAlgoHeuristic(void* handle, void* desc, void* ad, void* bd, void* cd, void* dd, void* prefer,
                               int asked, void** choice, int* made);
int cnnlGetMatMulHeuristicResult(void* choice, void* algorithm, size_t* bytes);
int cnnlGetBatchMatMulHeuristicResult(void* choice, void* algorithm, size_t* bytes);
int cnnlMatMul_v2(void* handle, void* desc, void* algorithm, const void* alpha, void* ad, const void* a, void* bd,
                  const void* b, const void* beta, void* cd, const void* c, void* workspace, size_t bytes, void* dd,
                  void* d);
int cnnlIndexSelect(void* handle, int axis, void* xd, const void* x, void* id, const void* index, void* yd, void* y);
void fakeResetCalls();
}

namespace {

constexpr int kArray = 4, kFloat = 2, kInt32 = 6, kBadParam = 3, kNotSupported = 7;

class CambriconFake : public testing::Test {
protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    fakeResetCalls();
    ASSERT_EQ(cnrtSetDevice(0), 0);
    ASSERT_EQ(cnrtQueueCreate(&queue), 0);
    ASSERT_EQ(cnrtMalloc(&memory, 64), 0);
    ASSERT_EQ(cnnlCreate(&handle), 0);
    ASSERT_EQ(cnnlSetQueue(handle, queue), 0);
    four = described(kFloat, 4);
  }
  void TearDown() override {
    EXPECT_EQ(cnrtQueueSync(queue), 0);
    EXPECT_EQ(cnnlDestroy(handle), 0);
    EXPECT_EQ(cnrtFree(memory), 0);
    EXPECT_EQ(cnrtQueueDestroy(queue), 0);
  }
  static void* described(int dtype, int size) {
    void* desc = nullptr;
    EXPECT_EQ(cnnlCreateTensorDescriptor(&desc), 0);
    EXPECT_EQ(cnnlSetTensorDescriptor(desc, kArray, dtype, 1, &size), 0);
    return desc;
  }
  void* at(size_t bytes) const { return static_cast<char*>(memory) + bytes; }

  void *queue = nullptr, *memory = nullptr, *handle = nullptr, *four = nullptr;
};

TEST_F(CambriconFake, RunsInPlaceAndBesideItself) {
  EXPECT_EQ(cnnlExp_v2(handle, 1, four, memory, four, memory), 0);
  EXPECT_EQ(cnnlExp_v2(handle, 1, four, memory, four, at(16)), 0);
}

TEST_F(CambriconFake, AHandleNeedsAQueueAndMustBeLive) {
  void* other = nullptr;
  ASSERT_EQ(cnnlCreate(&other), 0);
  EXPECT_DEATH(cnnlExp_v2(other, 1, four, memory, four, memory), "QUEUE_NOT_SET: cnnlExp_v2");
  ASSERT_EQ(cnnlDestroy(other), 0);
  EXPECT_DEATH(cnnlExp_v2(other, 1, four, memory, four, memory), "DESTROYED_HANDLE: .*CNNL handle");
  EXPECT_DEATH(cnnlExp_v2(queue, 1, four, memory, four, memory), "INVALID_HANDLE: .*CNNL handle");
}

TEST_F(CambriconFake, ADescriptorIsSetOnce) {
  const int size = 4;
  EXPECT_DEATH(cnnlSetTensorDescriptor(four, kArray, kFloat, 1, &size), "DESCRIPTOR_SET_TWICE");
  void* empty = nullptr;
  ASSERT_EQ(cnnlCreateTensorDescriptor(&empty), 0);
  EXPECT_DEATH(cnnlExp_v2(handle, 1, empty, memory, four, memory), "DESCRIPTOR_NOT_SET");
  ASSERT_EQ(cnnlDestroyTensorDescriptor(empty), 0);
  EXPECT_DEATH(cnnlExp_v2(handle, 1, empty, memory, four, memory), "DESTROYED_HANDLE: .*tensor descriptor");
}

TEST_F(CambriconFake, OperandsAreDeviceMemoryAlignedInsideAndApart) {
  float host[4] = {};
  EXPECT_DEATH(cnnlExp_v2(handle, 1, four, host, four, memory), "NOT_DEVICE_MEMORY");
  EXPECT_DEATH(cnnlExp_v2(handle, 1, four, memory, four, at(52)), "OUT_OF_BOUNDS");
  EXPECT_DEATH(cnnlExp_v2(handle, 1, four, memory, four, at(18)), "MISALIGNED");
  EXPECT_DEATH(cnnlExp_v2(handle, 1, four, memory, four, at(8)), "OVERLAP");
}

TEST_F(CambriconFake, AWorkspaceIsAsLargeAsTheQuerySaid) {
  EXPECT_DEATH(cnnlDiv_v2(handle, 1, four, memory, four, memory, at(32), 16, four, at(16)), "WORKSPACE_TOO_SMALL");
}

// One number each: TF32, which rounds 1 + 2^-12 to 1, unless it is turned off.
TEST_F(CambriconFake, AProductNeedsItsOwnAlgorithmAndRoundsToTf32UnlessThatIsOff) {
  void *desc = nullptr, *algorithm = nullptr, *choice = nullptr, *one = nullptr;
  const int sizes[2] = {1, 1}, compute = kFloat, off = 0;
  ASSERT_EQ(cnnlCreateTensorDescriptor(&one), 0);
  ASSERT_EQ(cnnlSetTensorDescriptor(one, kArray, kFloat, 2, sizes), 0);
  ASSERT_EQ(cnnlMatMulDescCreate(&desc), 0);
  ASSERT_EQ(cnnlMatMulAlgoCreate(&algorithm), 0);
  ASSERT_EQ(cnnlCreateMatMulHeuristicResult(&choice), 0);
  ASSERT_EQ(cnnlSetMatMulDescAttr(desc, 0, &compute, sizeof(compute)), 0);
  float factor = 1, nothing = 0, number = 1 + 0x1p-12F;
  void* workspace = nullptr;
  ASSERT_EQ(cnrtMalloc(&workspace, 1024), 0);
  ASSERT_EQ(cnrtMemcpyAsync(memory, &number, sizeof(number), queue, 0), 0);
  ASSERT_EQ(cnrtMemcpyAsync(at(4), &factor, sizeof(factor), queue, 0), 0);
  const auto multiply = [&] {
    return cnnlMatMul_v2(handle, desc, algorithm, &factor, one, memory, one, at(4), &nothing, one, at(8), workspace,
                         1024, one, at(8));
  };
  EXPECT_DEATH(multiply(), "NO_ALGORITHM: cnnlMatMul_v2");
  size_t bytes = 0;
  int made = 0;
  ASSERT_EQ(cnnlGetMatMulAlgoHeuristic(handle, desc, one, one, one, one, nullptr, 1, &choice, &made), 0);
  ASSERT_EQ(cnnlGetMatMulHeuristicResult(choice, algorithm, &bytes), 0);
  EXPECT_DEATH(cnnlGetBatchMatMulHeuristicResult(choice, algorithm, &bytes), "NO_ALGORITHM");
  const auto result = [&] {
    EXPECT_EQ(multiply(), 0);
    float seen = 0;
    EXPECT_EQ(cnrtMemcpyAsync(&seen, at(8), sizeof(seen), queue, 2), 0);
    EXPECT_EQ(cnrtQueueSync(queue), 0);
    return seen;
  };
  EXPECT_EQ(result(), 1);
  ASSERT_EQ(cnnlSetMatMulDescAttr(desc, 10, &off, sizeof(off)), 0);
  EXPECT_EQ(result(), number);
  EXPECT_EQ(cnnlDestroyMatMulHeuristicResult(choice), 0);
  EXPECT_EQ(cnnlMatMulAlgoDestroy(algorithm), 0);
  EXPECT_EQ(cnnlMatMulDescDestroy(desc), 0);
  EXPECT_EQ(cnrtFree(workspace), 0);
}

TEST_F(CambriconFake, WrongDtypesShapesAndGapsAreAnswered) {
  EXPECT_EQ(cnnlExp_v2(handle, 1, described(kInt32, 4), memory, four, memory), kBadParam);
  EXPECT_EQ(cnnlExp_v2(handle, 1, described(kFloat, 2), memory, four, at(16)), kBadParam);
  void* gaps = nullptr;
  const int size = 2, stride = 2;
  ASSERT_EQ(cnnlCreateTensorDescriptor(&gaps), 0);
  ASSERT_EQ(cnnlSetTensorDescriptorEx(gaps, kArray, kFloat, 1, &size, &stride), 0);
  EXPECT_EQ(cnnlExp_v2(handle, 1, gaps, memory, described(kFloat, 2), at(16)), kNotSupported);
}

TEST_F(CambriconFake, AnIndexOutsideEndsTheProcess) {
  int32_t index = 9;
  ASSERT_EQ(cnrtMemcpyAsync(at(32), &index, sizeof(index), queue, 0), 0);
  EXPECT_DEATH(
      {
        // The child of a death test has a queue of its own: it copies again.
        cnrtMemcpyAsync(at(32), &index, sizeof(index), queue, 0);
        cnnlIndexSelect(handle, 0, four, memory, described(kInt32, 1), at(32), described(kFloat, 1), at(48));
        cnrtQueueSync(queue);
      },
      "INDEX_OUT_OF_RANGE: cnnlIndexSelect");
}

}  // namespace

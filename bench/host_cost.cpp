// What does rlk add to a launch? Host time of rlk_call for a tiny `add` on CUDA, beside a bare cuLaunchKernel of an
// empty kernel on the same stream, alternating in one run. Prints the JSON rows of the benchmark schema; the difference
// of the medians is the cost of validation, plan look-up, preparation and dispatch. Without a CUDA device it says so,
// exit 0.
#include <dlfcn.h>
#include <rlk/ops/add.h>
#include <rlk/rlk.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kBatch = 200;  // launches between synchronisations: the device queue never fills
constexpr int kBatches = 300;
constexpr int kWarmUp = 20;
constexpr int64_t kElements = 256;

using Clock = std::chrono::steady_clock;

void require(rlk_status status, const rlk_error& error, const char* what) {
  if (status == RLK_OK) return;
  std::fprintf(stderr, "host_cost: %s: status %d: %s\n", what, status, error.text);
  std::exit(1);
}

// The driver API by name: this program links no CUDA.
struct Driver {
  using Function = void*;
  int (*module_load)(void**, const void*) = nullptr;
  int (*get_function)(Function*, void*, const char*) = nullptr;
  int (*launch)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**) = nullptr;
  int (*retain)(void**, int) = nullptr;
  int (*set_current)(void*) = nullptr;
  int (*create_stream)(void**, unsigned) = nullptr;
  Function empty = nullptr;

  bool open() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    const auto bind = [library](auto& slot, const char* name) {
      slot = reinterpret_cast<std::remove_reference_t<decltype(slot)>>(dlsym(library, name));
      return slot != nullptr;
    };
    int (*init)(unsigned) = nullptr;
    if (!bind(init, "cuInit") || init(0) != 0) return false;
    if (!bind(module_load, "cuModuleLoadData") || !bind(get_function, "cuModuleGetFunction") ||
        !bind(launch, "cuLaunchKernel") || !bind(retain, "cuDevicePrimaryCtxRetain") ||
        !bind(set_current, "cuCtxSetCurrent") || !bind(create_stream, "cuStreamCreate")) {
      return false;
    }
    static const char kPtx[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty(.param .u64 a, .param .u64 b) { ret; }\n";
    void* context = nullptr;
    void* module = nullptr;
    return retain(&context, 0) == 0 && set_current(context) == 0 && module_load(&module, kPtx) == 0 &&
           get_function(&empty, module, "empty") == 0;
  }
};

double median(std::vector<double>& samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

struct Row {
  const char* name;
  double median_us, min_us;
};

template <class Launch>
double batch_us(rlk_stream* stream, Launch&& launch) {
  const auto begin = Clock::now();
  for (int i = 0; i < kBatch; ++i) launch();
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / kBatch;
  rlk_error error = RLK_ERROR_INIT;
  require(rlk_stream_synchronize(stream, UINT64_MAX, &error), error, "synchronize");
  return us;
}

}  // namespace

int main() {
  rlk_error error = RLK_ERROR_INIT;
  rlk_runtime* runtime = nullptr;
  require(rlk_runtime_create(nullptr, &runtime, &error), error, "runtime");
  uint32_t devices = 0;
  Driver driver;
  if (rlk_device_count(runtime, "cuda", &devices, &error) != RLK_OK || devices == 0 || !driver.open()) {
    std::printf("host_cost: no CUDA device here; nothing measured\n");
    return 0;
  }
  void* native = nullptr;
  if (driver.create_stream(&native, 1) != 0) {
    std::fprintf(stderr, "host_cost: cuStreamCreate failed\n");
    return 1;
  }
  rlk_stream* stream = nullptr;
  require(rlk_stream_wrap(runtime, "cuda", 0, native, &stream, &error), error, "stream");
  std::array<void*, 3> memory{};
  for (void*& block : memory) {
    require(rlk_allocate(stream, RLK_MEMORY_DEVICE, kElements * sizeof(float), &block, &error), error, "allocate");
  }
  const int64_t shape[] = {kElements};
  const int64_t strides[] = {1};
  std::array<rlk_tensor, 3> tensors{};
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i] = {sizeof(rlk_tensor), 256, memory[i], 0, shape, strides, 1, {RLK_DTYPE_FLOAT, 32, 1}};
  }
  const rlk_tensor* inputs[] = {&tensors[0], &tensors[1]};
  const rlk_tensor* outputs[] = {&tensors[2]};
  const rlk_op* add = nullptr;
  require(rlk_op_find("add", &add, &error), error, "operator");
  const rlk_add_params params = RLK_ADD_PARAMS_INIT;

  std::vector<double> bare, full;
  for (int i = 0; i < kBatches + kWarmUp; ++i) {
    const double a = batch_us(stream, [&] {
      void* arguments[] = {&memory[0], &memory[1]};
      driver.launch(driver.empty, 1, 1, 1, 128, 1, 1, 0, native, arguments, nullptr);
    });
    const double b = batch_us(
        stream, [&] { require(rlk_call(stream, add, &params, inputs, 2, outputs, 1, nullptr, &error), error, "add"); });
    if (i < kWarmUp) continue;
    bare.push_back(a);
    full.push_back(b);
  }
  const double bare_us = median(bare);
  const double full_us = median(full);
  const Row rows[] = {{"cuLaunchKernel, empty kernel", bare_us, bare.front()},
                      {"rlk_call, add of 256 f32", full_us, full.front()}};
  std::printf("{\"schema\": 1, \"rows\": [");
  for (const Row& row : rows) {
    std::printf(
        "%s\n  {\"case\": \"host cost per enqueue\", \"op\": \"add\", \"impl\": \"%s\", \"median_us\": %.3f, "
        "\"min_us\": %.3f}",
        &row == rows ? "" : ",", row.name, row.median_us, row.min_us);
  }
  std::printf("],\n \"difference_us\": %.3f}\n", full_us - bare_us);
  for (void* block : memory) rlk_deallocate(stream, block, nullptr);
  rlk_stream_destroy(stream, nullptr);
  rlk_runtime_destroy(runtime, nullptr);
  return 0;
}

// A libcublasLt.so.13 without a device: products of matrices as cuBLASLt describes them, computed on the simulated
// driver's streams, and strict about what the library asks for: descriptions that fit, an algorithm of this very
// product, the workspace and the alignment that were promised to it. Written from the library's documented contract;
// what it does not simulate it refuses (CUBLAS_STATUS_NOT_SUPPORTED). Variables: RLK_FAKE_CUDA_BLAS_NO_BIAS (set: no
// epilogue adds a bias), and those of the driver.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/fakes/runtime/bridge.hpp"

using namespace fake;

namespace {

constexpr int kSuccess = 0, kInvalidValue = 7, kNotSupported = 15, kAllocFailed = 3, kExecutionFailed = 13;
constexpr int kF32 = 0, kF64 = 1, kF16 = 2, kBf16 = 14;
constexpr int kCompute32 = 68, kCompute64 = 70;
constexpr uint32_t kEpilogueDefault = 1, kEpilogueBias = 4;
constexpr int32_t kFactorsOnHost = 0, kFactorsOnDevice = 1;

size_t bytes_of(int dtype) {
  return dtype == kF64 ? 8 : dtype == kF32 ? 4 : 2;
}

float half_of(uint16_t bits) {
  _Float16 value;
  std::memcpy(&value, &bits, 2);
  return static_cast<float>(value);
}
double load(const std::byte* from, int dtype) {
  double wide;
  float single;
  uint16_t bits;
  switch (dtype) {
    case kF64:
      return std::memcpy(&wide, from, 8), wide;
    case kF32:
      return std::memcpy(&single, from, 4), single;
    case kF16:
      return std::memcpy(&bits, from, 2), half_of(bits);
    default: {
      std::memcpy(&bits, from, 2);
      const uint32_t high = uint32_t{bits} << 16;
      return std::memcpy(&single, &high, 4), single;
    }
  }
}
uint16_t bf16_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
// From what the sum was made in.
void store(std::byte* to, int dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == kF64) {
    std::memcpy(to, &value, 8);
  } else if (dtype == kF32) {
    std::memcpy(to, &single, 4);
  } else if (dtype == kF16) {
    const auto half = static_cast<_Float16>(single);
    std::memcpy(to, &half, 2);
  } else {
    const uint16_t bits = bf16_of(single);
    std::memcpy(to, &bits, 2);
  }
}

struct Context {
  int device;
};
struct Description {
  int compute, scale;
  int32_t transpose_a = 0, transpose_b = 0;
  int32_t factors_at = kFactorsOnHost;
  uint32_t epilogue = kEpilogueDefault;
  const void* bias = nullptr;
};
struct Layout {
  int dtype;
  uint64_t rows, columns;
  int64_t leading;
  int32_t count = 1;
  int64_t stride = 0;
  // Elements from the first to behind the last.
  int64_t span() const {
    return static_cast<int64_t>(rows) + (static_cast<int64_t>(columns) - 1) * leading + (count - 1) * stride;
  }
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t reductions = 7;
  uint32_t alignment[4] = {256, 256, 256, 256};
};
// What an algorithm remembers of the product that it was chosen for.
struct Algorithm {
  uint64_t product;
  uint64_t workspace;
  uint32_t alignment[4];
  uint64_t rest[4];
};
static_assert(sizeof(Algorithm) == 64);
struct Result {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

FAKE_HANDLES(Context, contexts, 20, "cuBLASLt handle")
FAKE_HANDLES(Description, descriptions, 21, "description of a product")
FAKE_HANDLES(Layout, layouts, 22, "layout of a matrix")
FAKE_HANDLES(Preference, preferences, 23, "preference")

struct Problem {
  Description description;
  Layout a, b, c, d;
  uint64_t m() const { return d.rows; }
  uint64_t n() const { return d.columns; }
  uint64_t k() const { return description.transpose_a != 0 ? a.rows : a.columns; }
};

// What the library says of a description that it does not take.
int problem_of(void* description, void* a, void* b, void* c, void* d, const char* call, Problem* out) {
  out->description = *descriptions().get(description, call);
  out->a = *layouts().get(a, call);
  out->b = *layouts().get(b, call);
  out->c = *layouts().get(c, call);
  out->d = *layouts().get(d, call);
  const Problem& p = *out;
  const uint64_t left = p.description.transpose_a != 0 ? p.a.columns : p.a.rows;
  const uint64_t inner = p.description.transpose_b != 0 ? p.b.columns : p.b.rows;
  const uint64_t right = p.description.transpose_b != 0 ? p.b.rows : p.b.columns;
  if (left != p.m() || right != p.n() || inner != p.k() || p.c.rows != p.m() || p.c.columns != p.n()) {
    return kInvalidValue;
  }
  if (p.a.count != p.d.count || p.b.count != p.d.count || p.c.count != p.d.count) return kInvalidValue;
  // Matrices of the batch that is written may not lie in each other.
  if (p.d.count > 1 && p.d.stride == 0) return kInvalidValue;
  const bool wide = p.a.dtype == kF64;
  if (p.b.dtype != p.a.dtype || p.c.dtype != p.d.dtype || p.description.compute != (wide ? kCompute64 : kCompute32) ||
      p.description.scale != (wide ? kF64 : kF32)) {
    return kNotSupported;
  }
  if (p.d.dtype != p.a.dtype && (p.d.dtype != kF32 || wide)) return kNotSupported;
  if (p.description.epilogue == kEpilogueBias && (wide || std::getenv("RLK_FAKE_CUDA_BLAS_NO_BIAS") != nullptr))
    return kNotSupported;
  return kSuccess;
}

// Of everything but addresses.
uint64_t fingerprint(const Problem& p) {
  uint64_t hash = 1469598103934665603u;
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  add(static_cast<uint64_t>(p.description.transpose_a + 2 * p.description.transpose_b));
  add(p.description.epilogue);
  add(static_cast<uint64_t>(p.description.factors_at));
  for (const Layout* one : {&p.a, &p.b, &p.c, &p.d}) {
    for (const uint64_t value :
         {static_cast<uint64_t>(one->dtype), one->rows, one->columns, static_cast<uint64_t>(one->leading),
          static_cast<uint64_t>(one->count), static_cast<uint64_t>(one->stride)}) {
      add(value);
    }
  }
  return hash;
}

struct Work {
  Problem problem;
  double alpha = 1, beta = 0;                          // the host's
  const void *alpha_at = nullptr, *beta_at = nullptr;  // on the device, where they are read when the work runs
  const void *a, *b, *c;
  void *d, *workspace;
  uint64_t workspace_bytes;

  double factor(double known, const void* where) const {
    return where == nullptr ? known : load(at<std::byte>(where), problem.description.scale);
  }
  int run() const {
    const Problem& p = problem;
    const double by = factor(alpha, alpha_at), add_by = factor(beta, beta_at);
    if (workspace_bytes > 0) std::memset(at<std::byte>(workspace), 0xee, workspace_bytes);
    const auto element = [](const std::byte* base, const Layout& of, bool transposed, uint64_t row, uint64_t column,
                            int64_t batch) {
      if (transposed) std::swap(row, column);
      const int64_t i = batch * of.stride + static_cast<int64_t>(row) + static_cast<int64_t>(column) * of.leading;
      return base + i * static_cast<int64_t>(bytes_of(of.dtype));
    };
    const std::byte *from_a = at<std::byte>(a), *from_b = at<std::byte>(b), *from_c = at<std::byte>(c);
    auto* to = at<std::byte>(d);
    const bool turn_a = p.description.transpose_a != 0, turn_b = p.description.transpose_b != 0;
    const bool wide = p.a.dtype == kF64;
    for (int64_t g = 0; g < p.d.count; ++g) {
      for (uint64_t j = 0; j < p.n(); ++j) {
        for (uint64_t i = 0; i < p.m(); ++i) {
          double sum = 0;
          float single = 0;
          for (uint64_t k = 0; k < p.k(); ++k) {
            const double x = load(element(from_a, p.a, turn_a, i, k, g), p.a.dtype);
            const double y = load(element(from_b, p.b, turn_b, k, j, g), p.b.dtype);
            if (wide) {
              sum = std::fma(x, y, sum);
            } else {
              single = std::fmaf(static_cast<float>(x), static_cast<float>(y), single);
            }
          }
          if (!wide) sum = single;
          sum = wide ? by * sum : static_cast<double>(static_cast<float>(by) * single);
          if (add_by != 0) {
            const double added = add_by * load(element(from_c, p.c, false, i, j, g), p.c.dtype);
            sum = wide ? sum + added : static_cast<double>(static_cast<float>(sum + added));
          }
          if (p.description.epilogue == kEpilogueBias) {
            const size_t bytes = bytes_of(p.d.dtype);
            // As the library does where its wide accesses do not fit: a pass of its own over what is rounded already.
            if (static_cast<size_t>(p.d.leading) * bytes % 16 != 0) {
              auto* const place = const_cast<std::byte*>(element(to, p.d, false, i, j, g));
              store(place, p.d.dtype, sum);
              sum = load(place, p.d.dtype);
            }
            sum += load(at<std::byte>(p.description.bias) + i * bytes, p.d.dtype);
          }
          store(const_cast<std::byte*>(element(to, p.d, false, i, j, g)), p.d.dtype, sum);
        }
      }
    }
    return 0;
  }
};

// Whether a value of that many bytes was given for an attribute of this size.
template <class T>
int take(T& to, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return kInvalidValue;
  return std::memcpy(&to, value, sizeof(T)), kSuccess;
}

Range range_of(const void* pointer, const Layout& layout) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  return {begin, begin + static_cast<uintptr_t>(layout.span()) * bytes_of(layout.dtype)};
}

}  // namespace

#define API FAKE_EXPORT int
// The driver's codes of calls that are made to fail, as the library tells them.
#define ENTER(name)                                                     \
  if (const int entered = enter(#name, Needs::kDevice); entered != 0) { \
    return entered == 2 ? kAllocFailed : kExecutionFailed;              \
  }

FAKE_EXPORT const char* cublasLtGetStatusName(int code) {
  return code == kInvalidValue ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_EMULATED";
}
API cublasLtCreate(void** handle) {
  ENTER(cublasLtCreate);
  return *handle = contexts().add(std::make_shared<Context>(Context{current_device()})), kSuccess;
}
API cublasLtDestroy(void* handle) {
  ENTER(cublasLtDestroy);
  return contexts().take(handle, "cublasLtDestroy"), kSuccess;
}
API cublasLtMatmulDescCreate(void** out, int compute, int scale) {
  return *out = descriptions().add(std::make_shared<Description>(Description{compute, scale})), kSuccess;
}
API cublasLtMatmulDescDestroy(void* description) {
  return descriptions().take(description, "cublasLtMatmulDescDestroy"), kSuccess;
}
API cublasLtMatmulDescSetAttribute(void* description, int attribute, const void* value, size_t bytes) {
  Description& of = *descriptions().get(description, "cublasLtMatmulDescSetAttribute");
  switch (attribute) {
    case 2:
      if (const int code = take(of.factors_at, value, bytes)) return code;
      return of.factors_at == kFactorsOnHost || of.factors_at == kFactorsOnDevice ? kSuccess : kNotSupported;
    case 3:
      return take(of.transpose_a, value, bytes);
    case 4:
      return take(of.transpose_b, value, bytes);
    case 7:
      return take(of.epilogue, value, bytes);
    case 8:
      return take(of.bias, value, bytes);
    default:
      return kInvalidValue;
  }
}
API cublasLtMatrixLayoutCreate(void** out, int dtype, uint64_t rows, uint64_t columns, int64_t leading) {
  if (dtype != kF32 && dtype != kF64 && dtype != kF16 && dtype != kBf16) return kNotSupported;
  if (rows == 0 || columns == 0 || leading < static_cast<int64_t>(rows)) return kInvalidValue;
  return *out = layouts().add(std::make_shared<Layout>(Layout{dtype, rows, columns, leading})), kSuccess;
}
API cublasLtMatrixLayoutDestroy(void* layout) {
  return layouts().take(layout, "cublasLtMatrixLayoutDestroy"), kSuccess;
}
API cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
  Layout& of = *layouts().get(layout, "cublasLtMatrixLayoutSetAttribute");
  if (attribute == 5) return take(of.count, value, bytes) != 0 || of.count < 1 ? kInvalidValue : kSuccess;
  if (attribute == 6) return take(of.stride, value, bytes) != 0 || of.stride < 0 ? kInvalidValue : kSuccess;
  return kInvalidValue;
}
API cublasLtMatmulPreferenceCreate(void** out) {
  return *out = preferences().add(std::make_shared<Preference>()), kSuccess;
}
API cublasLtMatmulPreferenceDestroy(void* preference) {
  return preferences().take(preference, "cublasLtMatmulPreferenceDestroy"), kSuccess;
}
API cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t bytes) {
  Preference& of = *preferences().get(preference, "cublasLtMatmulPreferenceSetAttribute");
  if (attribute == 1) return take(of.workspace, value, bytes);
  if (attribute == 3) return take(of.reductions, value, bytes);
  if (attribute >= 5 && attribute <= 8) return take(of.alignment[attribute - 5], value, bytes);
  return kInvalidValue;
}
API cublasLtMatmulAlgoGetHeuristic(void* handle, void* description, void* a, void* b, void* c, void* d,
                                   void* preference, int requested, void* results, int* count) {
  ENTER(cublasLtMatmulAlgoGetHeuristic);
  contexts().get(handle, "cublasLtMatmulAlgoGetHeuristic");
  const Preference& wish = *preferences().get(preference, "cublasLtMatmulAlgoGetHeuristic");
  Problem problem;
  *count = 0;
  if (requested < 1) return kInvalidValue;
  if (const int code = problem_of(description, a, b, c, d, "cublasLtMatmulAlgoGetHeuristic", &problem)) return code;
  if ((wish.reductions & ~2u) != 0) {
    violation("REDUCED_PRECISION", "cublasLtMatmulAlgoGetHeuristic: parts of a sum may be rounded to 16 bits");
  }
  // Long sums are divided where there is room, as a real device's are.
  const uint64_t parts = problem.k() >= 32 ? 512 * problem.m() : 0;
  Result result{};
  result.algorithm.product = fingerprint(problem);
  result.algorithm.workspace = parts <= wish.workspace ? parts : 0;
  std::memcpy(result.algorithm.alignment, wish.alignment, sizeof(wish.alignment));
  result.workspace = result.algorithm.workspace;
  std::memcpy(results, &result, sizeof(result));
  return *count = 1, kSuccess;
}
API cublasLtMatmul(void* handle, void* description, const void* alpha, const void* a, void* a_layout, const void* b,
                   void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                   const void* algorithm, void* workspace, size_t workspace_bytes, void* stream) {
  ENTER(cublasLtMatmul);
  const char* const call = "cublasLtMatmul";
  if (contexts().get(handle, call)->device != current_device()) {
    violation("WRONG_DEVICE", "cublasLtMatmul: the handle is of another device");
  }
  auto work = std::make_shared<Work>();
  Problem& problem = work->problem;
  if (const int code = problem_of(description, a_layout, b_layout, c_layout, d_layout, call, &problem)) return code;
  if (alpha == nullptr || beta == nullptr || algorithm == nullptr) return kInvalidValue;
  Algorithm chosen;
  std::memcpy(&chosen, algorithm, sizeof(chosen));
  if (chosen.product != fingerprint(problem)) {
    violation("WRONG_ALGORITHM", "cublasLtMatmul: the algorithm was chosen for another product");
  }
  if (workspace_bytes < chosen.workspace) return kInvalidValue;
  if (chosen.workspace > 0) {
    require_device(workspace, chosen.workspace, call);
    require_aligned(workspace, 256, call);
  }
  const void* const addresses[] = {a, b, c, d};
  const Layout* const of[] = {&problem.a, &problem.b, &problem.c, &problem.d};
  Command command;
  command.name = call;
  if (problem.description.factors_at == kFactorsOnDevice) {
    const size_t bytes = bytes_of(problem.description.scale);
    for (const void* one : {alpha, beta}) {
      require_device(one, bytes, call);
      require_aligned(one, static_cast<uint32_t>(bytes), call);
      const auto begin = reinterpret_cast<uintptr_t>(one);
      command.uses.push_back({begin, begin + bytes});
    }
    work->alpha_at = alpha, work->beta_at = beta;
  } else {
    const bool wide = problem.a.dtype == kF64;
    work->alpha = wide ? *static_cast<const double*>(alpha) : *static_cast<const float*>(alpha);
    work->beta = wide ? *static_cast<const double*>(beta) : *static_cast<const float*>(beta);
  }
  for (int i = 0; i < 4; ++i) {
    require_device(addresses[i], static_cast<size_t>(of[i]->span()) * bytes_of(of[i]->dtype), call);
    require_aligned(addresses[i], chosen.alignment[i], call);
    command.uses.push_back(range_of(addresses[i], *of[i]));
  }
  if (c == d && (problem.c.leading != problem.d.leading || problem.c.stride != problem.d.stride)) return kInvalidValue;
  if (problem.description.epilogue == kEpilogueBias) {
    require_device(problem.description.bias, problem.m() * bytes_of(problem.d.dtype), call);
  }
  if (chosen.workspace > 0) {
    const auto begin = reinterpret_cast<uintptr_t>(workspace);
    command.uses.push_back({begin, begin + chosen.workspace});
  }
  work->a = a, work->b = b, work->c = c, work->d = d;
  work->workspace = workspace, work->workspace_bytes = chosen.workspace;
  command.run = [work] { return work->run(); };
  return enqueue(stream, call, std::move(command)) == 0 ? kSuccess : kExecutionFailed;
}

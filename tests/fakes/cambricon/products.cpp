// Products of matrices, of the simulated CNNL: fp32 in the order of what is summed, TF32 unless that is turned off.
#include <bit>
#include <cstring>

#include "cnnl.hpp"

using namespace fake_cnnl;

#define API FAKE_EXPORT int

namespace {

// Attributes by the vendor's numbers.
constexpr int kComputeType = 0, kTransposesFirst = 3, kTransposesSecond = 4, kAllowsTf32 = 10;

struct Product {
  int compute = 0;
  bool transposes_first = false, transposes_second = false, allows_tf32 = true;
};
// A way to compute one product or a batch of them, chosen for these descriptors and taken out of its choice.
struct Algorithm {
  bool is_chosen = false, is_batch = false;
  const Product* product = nullptr;
};
FAKE_HANDLES(Product, products, 20, "descriptor of a product")
FAKE_HANDLES(Algorithm, algorithms, 21, "algorithm of a product")
FAKE_HANDLES(Algorithm, choices, 22, "choice of an algorithm")

template <class T>
int create(void** handle, fake::Handles<T>& table, const char* name) {
  if (fake::enter(name, fake::Needs::kNothing) != 0) return kInternal;
  return *handle = table.add(std::make_shared<T>()), 0;
}
template <class T>
int destroy(void* handle, fake::Handles<T>& table, const char* name) {
  const int code = fake::enter(name, fake::Needs::kNothing);
  table.take(handle, name);
  return code != 0 ? kInternal : 0;
}

int choose(void* handle, void* desc, std::initializer_list<void*> tensors, int asked, void** choice, int* choices_made,
           bool is_batch, const char* name) {
  size_t bytes = 0;
  if (const int code = answer(handle, name, &bytes, tensors)) return code;
  if (asked < 1) return kBadParam;
  *choices().get(*choice, name) = {true, is_batch, products().get(desc, name).get()};
  return *choices_made = 1, 0;
}
int take(void* choice, void* algorithm, size_t* bytes, bool is_batch, const char* name) {
  if (fake::enter(name, fake::Needs::kNothing) != 0) return kInternal;
  const Algorithm chosen = *choices().get(choice, name);
  if (!chosen.is_chosen || chosen.is_batch != is_batch)
    fake::violation("NO_ALGORITHM", std::string(name) + " of a choice that was not made for it");
  *algorithms().get(algorithm, name) = chosen;
  return *bytes = kWorkspace, 0;
}

// TF32 keeps 10 bits of the mantissa.
float tf32_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7f800000u) == 0x7f800000u) return value;
  return std::bit_cast<float>((bits + 0xfff + ((bits >> 13) & 1)) & ~uint32_t{0x1fff});
}

struct Sizes {
  int rows = 0, size = 0, columns = 0;
};

// Of a, b and c, of which the first dimensions broadcast.
Sizes sizes_of(Call& call, const Product& product, const Tensor& a, const Tensor& b, const Tensor& c) {
  const size_t rank = c.dims.size();
  call.require(rank >= 2 && a.dims.size() == rank && b.dims.size() == rank);
  if (call.status() != 0) return {};
  const auto side = [rank](const Tensor& matrix, bool transposes, int which) {
    return matrix.dims[rank - 2 + static_cast<size_t>(transposes ? 1 - which : which)];
  };
  const Sizes sizes = {side(a, product.transposes_first, 0), side(a, product.transposes_first, 1),
                       side(b, product.transposes_second, 1)};
  call.require(side(b, product.transposes_second, 0) == sizes.size && c.dims[rank - 2] == sizes.rows &&
               c.dims[rank - 1] == sizes.columns);
  for (size_t i = 0; i + 2 < rank; ++i) {
    const auto fits = [&](const Tensor& part) { return part.dims[i] == c.dims[i] || part.dims[i] == 1; };
    call.require(fits(a) && fits(b) && (a.dims[i] == c.dims[i] || b.dims[i] == c.dims[i]));
  }
  return sizes;
}
// Which matrix of a tensor belongs to the matrix `at` of c.
int64_t matrix_at(const Tensor& of, const Tensor& c, int64_t at) {
  int64_t position = 0, step = 1;
  for (size_t i = c.dims.size() - 2; i-- > 0;) {
    if (of.dims[i] != 1) position += at % c.dims[i] * step;
    at /= c.dims[i];
    step *= of.dims[i];
  }
  return position;
}

int multiply(void* handle, void* desc, void* algorithm, const void* alpha, void* ad, const void* a, void* bd,
             const void* b, const void* beta, void* cd, void* c, void* workspace, size_t bytes, bool is_batch,
             const char* name) {
  Call call(handle, name);
  if (call.status() != 0) return call.status();
  const auto described = products().get(desc, name);
  const Algorithm chosen = *algorithms().get(algorithm, name);
  if (!chosen.is_chosen || chosen.is_batch != is_batch || chosen.product != described.get())
    fake::violation("NO_ALGORITHM", std::string(name) + " with an algorithm that was not chosen for its descriptor");
  const Product product = *described;
  float factor = 0, kept = 1;
  std::memcpy(&factor, alpha, sizeof(factor));
  std::memcpy(&kept, beta, sizeof(kept));
  if (factor != 1 || kept != 0 || product.compute != kFloat) return kNotSupported;
  const Tensor &x = call.in(ad, a, {kFloat}), &y = call.in(bd, b, {kFloat}), &out = call.out(cd, c, {kFloat});
  const Sizes sizes = sizes_of(call, product, x, y, out);
  call.workspace(workspace, bytes);
  return call.run(false, [=](std::vector<View>& v) {
    const auto of = [&](float value) { return product.allows_tf32 ? tf32_of(value) : value; };
    const int64_t rows = sizes.rows, size = sizes.size, columns = sizes.columns;
    for (int64_t at = 0; at < count(out.dims) / (rows * columns); ++at) {
      const float* const first = v[0].as<float>() + matrix_at(x, out, at) * rows * size;
      const float* const second = v[1].as<float>() + matrix_at(y, out, at) * size * columns;
      for (int64_t i = 0; i < rows * columns; ++i) {
        const int64_t row = i / columns, column = i % columns;
        float sum = 0;
        for (int64_t k = 0; k < size; ++k) {
          const float p = first[product.transposes_first ? k * rows + row : row * size + k];
          const float q = second[product.transposes_second ? column * size + k : k * columns + column];
          sum += of(p) * of(q);
        }
        v[2].as<float>()[at * rows * columns + i] = sum;
      }
    }
  });
}

}  // namespace

API cnnlMatMulDescCreate(void** desc) {
  return create(desc, products(), "cnnlMatMulDescCreate");
}
API cnnlMatMulDescDestroy(void* desc) {
  return destroy(desc, products(), "cnnlMatMulDescDestroy");
}
API cnnlMatMulAlgoCreate(void** algorithm) {
  return create(algorithm, algorithms(), "cnnlMatMulAlgoCreate");
}
API cnnlMatMulAlgoDestroy(void* algorithm) {
  return destroy(algorithm, algorithms(), "cnnlMatMulAlgoDestroy");
}
API cnnlCreateMatMulHeuristicResult(void** choice) {
  return create(choice, choices(), "cnnlCreateMatMulHeuristicResult");
}
API cnnlDestroyMatMulHeuristicResult(void* choice) {
  return destroy(choice, choices(), "cnnlDestroyMatMulHeuristicResult");
}
API cnnlSetMatMulDescAttr(void* desc, int attribute, const void* value, size_t bytes) {
  if (fake::enter("cnnlSetMatMulDescAttr", fake::Needs::kNothing) != 0) return kInternal;
  if (bytes != sizeof(int32_t)) return kBadParam;
  int32_t number = 0;
  std::memcpy(&number, value, sizeof(number));
  Product& product = *products().get(desc, "cnnlSetMatMulDescAttr");
  if (attribute == kComputeType)
    product.compute = number;
  else if (attribute == kTransposesFirst)
    product.transposes_first = number != 0;
  else if (attribute == kTransposesSecond)
    product.transposes_second = number != 0;
  else if (attribute == kAllowsTf32)
    product.allows_tf32 = number != 0;
  else
    return kNotSupported;
  return 0;
}

API cnnlGetMatMulAlgoHeuristic(void* handle, void* desc, void* ad, void* bd, void* cd, void* dd, void*, int asked,
                               void** choice, int* made) {
  return choose(handle, desc, {ad, bd, cd, dd}, asked, choice, made, false, "cnnlGetMatMulAlgoHeuristic");
}
API cnnlGetMatMulHeuristicResult(void* choice, void* algorithm, size_t* bytes) {
  return take(choice, algorithm, bytes, false, "cnnlGetMatMulHeuristicResult");
}
API cnnlGetBatchMatMulAlgoHeuristic(void* handle, void* desc, void* ad, void* bd, void* cd, void*, int asked,
                                    void** choice, int* made) {
  return choose(handle, desc, {ad, bd, cd}, asked, choice, made, true, "cnnlGetBatchMatMulAlgoHeuristic");
}
API cnnlGetBatchMatMulHeuristicResult(void* choice, void* algorithm, size_t* bytes) {
  return take(choice, algorithm, bytes, true, "cnnlGetBatchMatMulHeuristicResult");
}

// D = alpha A B + beta C; only C and D in one place are known of public callers.
API cnnlMatMul_v2(void* handle, void* desc, void* algorithm, const void* alpha, void* ad, const void* a, void* bd,
                  const void* b, const void* beta, void* cd, const void* c, void* workspace, size_t bytes, void* dd,
                  void* d) {
  if (c != d || cd != dd) return kNotSupported;
  return multiply(handle, desc, algorithm, alpha, ad, a, bd, b, beta, dd, d, workspace, bytes, false, "cnnlMatMul_v2");
}
API cnnlBatchMatMulBCast_v2(void* handle, void* desc, void* algorithm, const void* alpha, void* ad, const void* a,
                            void* bd, const void* b, const void* beta, void* cd, void* c, void* workspace,
                            size_t bytes) {
  return multiply(handle, desc, algorithm, alpha, ad, a, bd, b, beta, cd, c, workspace, bytes, true,
                  "cnnlBatchMatMulBCast_v2");
}

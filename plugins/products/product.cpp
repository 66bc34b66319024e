// How a product of rows becomes one of the library, which counts down columns.
#include "product.hpp"

#include <algorithm>

namespace rlk::products {

using namespace simt::host;

namespace {

// A matrix as the library takes it: stored column after column, and read transposed or not.
struct Operand {
  bool transposed = false;
  int64_t rows = 0, columns = 0, leading = 0;  // as stored
};

// Whether a stored matrix of `rows` has columns at this distance from each other.
bool is_leading(int64_t leading, int64_t rows) {
  return leading >= std::max<int64_t>(rows, 1);
}

// The matrix of rows x columns with these strides.
std::optional<Operand> operand_of(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                                  bool may_transpose) {
  const int64_t as_rows = rows < 2 ? std::max<int64_t>(columns, 1) : row_stride;  // of the rows, one after another
  const int64_t as_columns = columns < 2 ? std::max<int64_t>(rows, 1) : column_stride;  // of the columns
  if (may_transpose && columns > 1 && column_stride == 1 && is_leading(as_rows, columns)) {
    return Operand{true, columns, rows, as_rows};
  }
  if ((rows < 2 || row_stride == 1) && is_leading(as_columns, rows)) return Operand{false, rows, columns, as_columns};
  if (may_transpose && (columns < 2 || column_stride == 1) && is_leading(as_rows, columns)) {
    return Operand{true, columns, rows, as_rows};
  }
  return std::nullopt;
}
std::optional<Operand> operand_of(const Matrix& matrix, bool may_transpose = true) {
  return operand_of(matrix.rows, matrix.columns, matrix.row_stride, matrix.column_stride, may_transpose);
}

// Products of rows are made as their transposes: y^T = b^T a^T is written column after column where y is row after row.
bool is_row_major(const Matrix& y) {
  return operand_of(y.transposed(), false).has_value();
}

bool has_batch_strides(const Matrix& matrix, const int64_t (&batch)[2]) {
  return (batch[0] < 2 || matrix.batch_stride[0] >= 0) && (batch[1] < 2 || matrix.batch_stride[1] >= 0);
}

uint64_t alignment_of(const void* data, uint64_t promised) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return std::min<uint64_t>(data == nullptr ? promised : address & (~address + 1), 256);
}
uint64_t alignment_of(const Matrix& matrix) {
  return alignment_of(matrix.data, matrix.alignment);
}

}  // namespace

// --- what operators say ----------------------------------------------------------------------------------------------

sdk::Refusal refuse_library(const Device& device) {
  if (auto refused = device.refusal()) return refused;
  const Library& table = library();
  if (table.usable()) return std::nullopt;
  if (!table.unfit.empty()) return sdk::Support::no("LIBRARY", table.unfit);
  return sdk::Support::no("LIBRARY", std::string(table.name) + " is not usable: " + table.symbols.problem());
}

sdk::Refusal refuse_layout(const Product& product, const char* a, const char* b, const char* c, const char* y) {
  if (product.is_empty()) return std::nullopt;
  const auto refuse = [](const char* name) {
    return sdk::refuse_strides(name, "dense along its rows or its columns, without overlap, its batches in order");
  };
  const auto is_fit = [&](const Matrix& matrix, bool may_transpose) {
    return operand_of(matrix, may_transpose) && has_batch_strides(matrix, product.batch);
  };
  if (!is_fit(product.a, true)) return refuse(a);
  if (!is_fit(product.b, true)) return refuse(b);
  const bool row_major = is_row_major(product.y);
  if (!is_fit(row_major ? product.y.transposed() : product.y, false)) return refuse(y);
  if (product.has_c && !is_fit(row_major ? product.c.transposed() : product.c, false)) return refuse(c);
  return std::nullopt;
}

constexpr int64_t kWide = 16;

bool is_wide(const Matrix& matrix) {
  const auto as = operand_of(matrix);
  return as && as->leading * sdk::bytes_of(matrix.dtype) % kWide == 0 && alignment_of(matrix) >= kWide;
}

bool is_wide(const Product& product) {
  if (product.bias.present && alignment_of(product.bias.data, product.bias.alignment) < kWide) return false;
  return is_wide(product.a) && is_wide(product.b) && is_wide(product.y);
}

// Where 16-byte accesses do not fit, cuBLASLt adds the bias in a pass of its own, to sums that are rounded already.
bool fuses_bias(const Product& product) {
  if (!product.bias.present || !is_row_major(product.y) || library().numbers.epilogue_bias == kNone) return false;
  return sdk::bytes_of(product.y.dtype) > 2 || is_wide(product);
}

// Seen on an H200: into the memory of a 16-bit c cuBLASLt adds products that it has rounded already, wherever 16-byte
// accesses fit; from other memory it adds c to the sums.
bool adds_apart(const Product& product) {
  if (product.is_empty() || product.a.columns == 0 || sdk::bytes_of(product.y.dtype) > 2) return false;
  return product.has_c ? product.beta != 0 : product.bias.present && !fuses_bias(product);
}

uint64_t apart_bytes(const Product& product) {
  if (!adds_apart(product)) return 0;
  const int64_t count = product.batch[0] * product.batch[1] * product.y.rows * product.y.columns;
  return align_256(static_cast<uint64_t>(count * sdk::bytes_of(product.y.dtype)));
}

double product_us(const Device& device, const Product& product) {
  const double batch = static_cast<double>(product.batch[0] * product.batch[1]);
  const double m = static_cast<double>(product.y.rows), n = static_cast<double>(product.y.columns);
  const auto k = static_cast<double>(product.a.columns);
  const auto bytes = static_cast<double>(sdk::bytes_of(product.a.dtype));
  // Plain fp32 and fp64 run beside the matrix units, or at a fraction of their rate.
  const double slower = bytes > 2 ? 16 : 1;
  const double work = library().work_on != nullptr ? library().work_on(device.arch()) : 1;
  return kLaunchUs + std::max(device.matrix_us(2 * batch * m * n * k * slower * work),
                              device.bytes_us(batch * bytes * (m * k + k * n + m * n)));
}

// --- the library's side ----------------------------------------------------------------------------------------------

namespace {

template <class T, Status (*Library::*Destroy)(T)>
class Owned {
public:
  Owned() = default;
  ~Owned() {
    if (value != nullptr) (library().*Destroy)(value);
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  T value = nullptr;
};
using OwnedDescription = Owned<Description, &Library::description_destroy>;
using OwnedLayout = Owned<Layout, &Library::layout_destroy>;
using OwnedPreference = Owned<Preference, &Library::preference_destroy>;

template <class T>
void set(const OwnedDescription& description, int attribute, T value) {
  check(library().description_set(description.value, attribute, &value, sizeof(value)), "describing a product");
}
template <class T>
void set(const OwnedLayout& layout, int attribute, T value) {
  check(library().layout_set(layout.value, attribute, &value, sizeof(value)), "describing a matrix");
}
template <class T>
void set(const OwnedPreference& preference, int attribute, T value) {
  if (attribute == kNone) return;
  check(library().preference_set(preference.value, attribute, &value, sizeof(value)), "choosing an algorithm");
}

// The handle of a device, which the library makes with the device current.
struct OwnedHandle {
  Handle value = nullptr;
  OwnedHandle() { check(library().create(&value), "starting"); }
  ~OwnedHandle() {
    if (value != nullptr) library().destroy(value);
  }
  OwnedHandle(const OwnedHandle&) = delete;
  OwnedHandle& operator=(const OwnedHandle&) = delete;
};
const char kHandleKey = 0;

}  // namespace

// A product in the library's words. `left` is what its A reads: b of a product whose y is row after row.
struct Multiplier::Problem {
  Matrix left, right, c, y;
  Operand left_as, right_as, c_as, y_as;
  int64_t m = 0, n = 0, k = 0;
  int64_t outer = 1, count = 1;            // calls, and products of each
  int outer_axis = 0, inner_axis = 1;      // of the batch
  int64_t inner_stride[4] = {0, 0, 0, 0};  // left, right, c, y
  const void* bias = nullptr;
  bool has_bias = false, row_major = true, has_c = false, has_factors = false;  // has_factors: on the device
  uint64_t bias_alignment = 16;

  explicit Problem(const Product& product);
  int64_t outer_stride(const Matrix& matrix) const { return outer > 1 ? matrix.batch_stride[outer_axis] : 0; }
  bool can_add_bias = false;  // in the library's epilogue
};

Multiplier::Problem::Problem(const Product& product) {
  row_major = is_row_major(product.y);
  has_c = product.has_c;
  has_factors = product.factors.present;
  left = row_major ? product.b.transposed() : product.a;
  right = row_major ? product.a.transposed() : product.b;
  y = row_major ? product.y.transposed() : product.y;
  c = !has_c ? y : row_major ? product.c.transposed() : product.c;
  int64_t batch[2] = {product.batch[0], product.batch[1]};
  if (batch[1] == 1) std::swap(batch[0], batch[1]), outer_axis = 1, inner_axis = 0;
  Matrix* const all[] = {&left, &right, &c, &y};
  // Two dimensions of a batch are one where every matrix steps evenly through both; else the smaller one is a loop.
  bool is_even = true;
  for (const Matrix* one : all) {
    is_even = is_even && one->batch_stride[outer_axis] == one->batch_stride[inner_axis] * batch[1];
  }
  if (batch[0] > 1 && is_even) {
    batch[1] *= batch[0];
    batch[0] = 1;
  }
  if (batch[0] > batch[1]) std::swap(batch[0], batch[1]), std::swap(outer_axis, inner_axis);
  outer = batch[0];
  count = batch[1];
  for (int i = 0; i < 4; ++i) inner_stride[i] = count > 1 ? all[i]->batch_stride[inner_axis] : 0;
  // One weight for every matrix of a batch whose rows follow each other: more rows.
  if (count > 1 && row_major && inner_stride[0] == 0 && right.rows > 0) {
    const auto goes_on = [&](const Matrix& one, int64_t stride) {
      const bool is_next = one.columns < 2 ? is_leading(stride, one.rows) : stride == one.column_stride * one.columns;
      return one.row_stride == 1 && is_next;
    };
    if (right.columns > 0 && goes_on(right, inner_stride[1]) && goes_on(c, inner_stride[2]) &&
        goes_on(y, inner_stride[3])) {
      for (const int i : {1, 2, 3}) {
        Matrix& one = *all[i];
        if (one.columns < 2) one.column_stride = inner_stride[i];
        one.columns *= count;
        inner_stride[i] = 0;
      }
      count = 1;
    }
  }
  m = y.rows;
  n = y.columns;
  k = left.columns;
  const auto fit = [](const std::optional<Operand>& operand) {
    if (!operand) throw sdk::Error(RLK_INTERNAL, "the strides of a product are not those that it was planned for");
    return *operand;
  };
  left_as = fit(operand_of(left));
  right_as = fit(operand_of(right));
  c_as = fit(operand_of(c, false));
  y_as = fit(operand_of(y, false));
  if (product.bias.present) {
    has_bias = true;
    bias = product.bias.data;
    bias_alignment = std::min<uint64_t>(alignment_of(bias, product.bias.alignment), 16);
    can_add_bias = fuses_bias(product);
  }
}

namespace {

struct Described {
  OwnedDescription description;
  OwnedLayout left, right, c, y;
};

void describe_layout(OwnedLayout& layout, sdk::Dtype dtype, const Operand& as, int64_t count, int64_t stride) {
  const Library& table = library();
  check(table.layout_create(&layout.value, table.number_of(dtype), static_cast<uint64_t>(as.rows),
                            static_cast<uint64_t>(as.columns), as.leading),
        "describing a matrix");
  if (count < 2) return;
  set(layout, table.numbers.batch_count, static_cast<int32_t>(count));
  set(layout, table.numbers.batch_stride, stride);
}

}  // namespace

Multiplier::Multiplier(Device& device)
    : device_(device),
      fills_{{device, sdk::Dtype::f32, sdk::Dtype::f32},
             {device, sdk::Dtype::bf16, sdk::Dtype::bf16},
             {device, sdk::Dtype::f16, sdk::Dtype::f16},
             {device, sdk::Dtype::f64, sdk::Dtype::f64}} {
  static_assert(sdk::Dtype::f32 == sdk::Dtype{0} && sdk::Dtype::f64 == sdk::Dtype{3});
  handle_ = device.kept(&kHandleKey, [] { return std::make_shared<OwnedHandle>(); });
}

template <class Problem>
static void describe(const Problem& problem, bool adds_bias, Described& out) {
  const Library& table = library();
  const Numbers& at = table.numbers;
  const bool wide = problem.left.dtype == sdk::Dtype::f64;
  const bool is_rounded = problem.left.dtype == sdk::Dtype::f32 && at.compute_f32_unrounded != kNone;
  const int compute = wide ? at.compute_f64 : is_rounded ? at.compute_f32_unrounded : at.compute_f32;
  check(table.description_create(&out.description.value, compute, wide ? at.f64 : at.f32), "describing a product");
  if (problem.left_as.transposed) set(out.description, at.transpose_a, static_cast<int32_t>(at.transposed));
  if (problem.right_as.transposed) set(out.description, at.transpose_b, static_cast<int32_t>(at.transposed));
  if (problem.has_factors) {
    set(out.description, at.factors_at,
        static_cast<int32_t>(at.takes_alphas() ? at.alphas_on_device : at.factors_on_device));
  }
  if (adds_bias) {
    set(out.description, at.epilogue, static_cast<uint32_t>(at.epilogue_bias));
    // Of a call that is only described the address tells the alignment.
    const void* bias = problem.bias != nullptr ? problem.bias : reinterpret_cast<const void*>(problem.bias_alignment);
    set(out.description, at.bias_pointer, bias);
  }
  describe_layout(out.left, problem.left.dtype, problem.left_as, problem.count, problem.inner_stride[0]);
  describe_layout(out.right, problem.right.dtype, problem.right_as, problem.count, problem.inner_stride[1]);
  describe_layout(out.c, problem.c.dtype, problem.c_as, problem.count, problem.inner_stride[2]);
  describe_layout(out.y, problem.y.dtype, problem.y_as, problem.count, problem.inner_stride[3]);
}

Multiplier::Choice Multiplier::ask(const Problem& problem) const {
  const Library& table = library();
  const Numbers& at = table.numbers;
  const PlaceScope scope(device_.place());
  for (const bool adds_bias : {true, false}) {
    if (adds_bias && !problem.can_add_bias) continue;
    Described described;
    describe(problem, adds_bias, described);
    OwnedPreference preference;
    check(table.preference_create(&preference.value), "choosing an algorithm");
    set(preference, at.workspace_limit, kWorkspaceLimit);
    set(preference, at.reductions, at.allowed_reductions);
    // Every matrix of the loop and of the batch keeps it only as far as their strides do.
    const auto aligned = [&](const Matrix& matrix) {
      uint64_t bytes = alignment_of(matrix);
      const int64_t stride = problem.outer_stride(matrix) * sdk::bytes_of(matrix.dtype);
      while (stride % static_cast<int64_t>(bytes) != 0) bytes /= 2;
      return static_cast<uint32_t>(bytes);
    };
    set(preference, at.alignment_a, aligned(problem.left));
    set(preference, at.alignment_b, aligned(problem.right));
    set(preference, at.alignment_c, aligned(problem.c));
    set(preference, at.alignment_d, aligned(problem.y));
    Choice choice;
    int found = 0;
    const auto* handle = static_cast<const OwnedHandle*>(handle_.get());
    const Status status =
        table.choose(handle->value, described.description.value, described.left.value, described.right.value,
                     described.c.value, described.y.value, preference.value, 1, choice.result.data(), &found);
    if (status != 0 && status != at.not_supported) check(status, "choosing an algorithm");
    if (status != 0 || found == 0) continue;
    const auto* bytes = reinterpret_cast<const unsigned char*>(choice.result.data()) + at.algorithm_bytes;
    size_t workspace = 0;
    int state = 0;
    std::memcpy(&workspace, bytes, sizeof(workspace));
    std::memcpy(&state, bytes + sizeof(workspace), sizeof(state));
    if (state != 0) continue;
    choice.workspace = workspace;
    choice.adds_bias = adds_bias;
    return choice;
  }
  throw sdk::Error(RLK_UNSUPPORTED,
                   sdk::format("%s has no algorithm for a product of %lld x %lld x %lld in %s", table.name,
                               static_cast<long long>(problem.m), static_cast<long long>(problem.k),
                               static_cast<long long>(problem.n), sdk::name_of(problem.left.dtype)));
}

Multiplier::Choice Multiplier::choice_of(const Problem& problem) {
  const Key key = {problem.m,
                   problem.n,
                   problem.k,
                   problem.outer,
                   problem.count,
                   problem.left_as.transposed,
                   problem.right_as.transposed,
                   problem.left_as.leading,
                   problem.right_as.leading,
                   problem.c_as.leading,
                   problem.y_as.leading,
                   problem.inner_stride[0],
                   problem.inner_stride[1],
                   problem.inner_stride[2],
                   problem.inner_stride[3],
                   problem.outer_stride(problem.left),
                   problem.outer_stride(problem.right),
                   problem.outer_stride(problem.c),
                   problem.outer_stride(problem.y),
                   static_cast<int64_t>(problem.left.dtype) + 32 * static_cast<int64_t>(problem.y.dtype),
                   static_cast<int64_t>(alignment_of(problem.left) + 1024 * alignment_of(problem.right)),
                   static_cast<int64_t>(alignment_of(problem.c) + 1024 * alignment_of(problem.y)),
                   problem.can_add_bias ? static_cast<int64_t>(problem.bias_alignment) : 0,
                   problem.row_major + 2 * problem.has_factors};
  constexpr size_t kMostChoices = 256;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = choices_.find(key);
    if (found != choices_.end()) return found->second;
  }
  const Choice choice = ask(problem);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (choices_.size() >= kMostChoices) choices_.clear();
  choices_.emplace(key, choice);
  return choice;
}

// The same with what is added, c or a bias, in this memory.
static Product with_addend(const Product& product, void* memory) {
  Product made = product;
  const Matrix& y = product.y;
  const bool row_major = is_row_major(y);
  made.c =
      row_major ? dense(memory, y.dtype, y.rows, y.columns) : dense(memory, y.dtype, y.columns, y.rows).transposed();
  made.c.batch_stride[1] = y.rows * y.columns;
  made.c.batch_stride[0] = made.c.batch_stride[1] * product.batch[1];
  made.has_c = true;
  made.beta = product.has_c ? product.beta : 1;
  made.bias = {};
  return made;
}

uint64_t Multiplier::workspace_of(const Product& product) {
  if (product.is_empty() || product.a.columns == 0) return 0;
  const uint64_t bytes = choice_of(Problem(product)).workspace;
  if (!adds_apart(product)) return bytes;
  return apart_bytes(product) + std::max(bytes, choice_of(Problem(with_addend(product, nullptr))).workspace);
}

void Multiplier::run(const Product& product, StreamHandle stream, void* workspace) {
  if (product.is_empty()) return;
  if (adds_apart(product) && (!product.has_c || product.c.data == product.y.data)) {
    const Product made = with_addend(product, workspace);
    Elements elements;
    elements.y = made.c;
    elements.x = product.has_c ? product.c : product.y;
    elements.factor = product.has_c ? 1 : 0;
    elements.batch[0] = product.batch[0];
    elements.batch[1] = product.batch[1];
    elements.bias = product.has_c ? nullptr : product.bias.data;
    fills_[static_cast<int>(product.y.dtype)].run(elements, stream);
    return multiply(made, stream, static_cast<char*>(workspace) + apart_bytes(product));
  }
  multiply(product, stream, workspace);
}

void Multiplier::multiply(const Product& product, StreamHandle stream, void* workspace) {
  // Without terms y is what is added. So begins a product whose bias the library does not add.
  const auto begin = [&](bool with_bias) {
    Elements elements;
    elements.y = product.y;
    elements.x = product.has_c ? product.c : product.y;
    elements.factor = product.has_c ? product.beta : 0;
    elements.batch[0] = product.batch[0];
    elements.batch[1] = product.batch[1];
    elements.bias = with_bias ? product.bias.data : nullptr;
    fills_[static_cast<int>(product.y.dtype)].run(elements, stream);
  };
  if (product.a.columns == 0) return begin(product.bias.present);
  const Problem problem(product);
  const Choice choice = choice_of(problem);
  double beta = product.has_c ? product.beta : 0;
  if (problem.has_bias && !choice.adds_bias) {
    if (product.has_c) throw sdk::Error(RLK_INTERNAL, "a product with a bias and another addend");
    begin(true);
    beta = 1;  // c is y here
  }
  Described described;
  describe(problem, choice.adds_bias, described);
  const bool wide = problem.left.dtype == sdk::Dtype::f64;
  const float factors[] = {static_cast<float>(product.alpha), static_cast<float>(beta)};
  const double wide_factors[] = {product.alpha, beta};
  const void* alpha = wide ? static_cast<const void*>(&wide_factors[0]) : &factors[0];
  const void* added = wide ? static_cast<const void*>(&wide_factors[1]) : &factors[1];
  if (problem.has_factors) {
    if (wide || problem.has_bias || (beta != 0 && beta != 1)) {
      throw sdk::Error(RLK_INTERNAL,
                       "a product whose factors are on the device is of fp64, has a bias or another beta");
    }
    if (library().numbers.takes_alphas()) {
      alpha = product.factors.alphas;
    } else {
      alpha = product.factors.data;
      added = product.factors.data + (beta != 0 ? 2 : 1);
    }
  }
  const auto* handle = static_cast<const OwnedHandle*>(handle_.get());
  for (int64_t i = 0; i < problem.outer; ++i) {
    const auto at = [&](const Matrix& matrix) { return matrix.from(i * problem.outer_stride(matrix)); };
    check(library().multiply(handle->value, described.description.value, alpha, at(problem.left), described.left.value,
                             at(problem.right), described.right.value, added, at(problem.c), described.c.value,
                             at(problem.y), described.y.value, choice.result.data(), workspace, choice.workspace,
                             reinterpret_cast<Stream>(stream)),
          "multiplying");
  }
}

}  // namespace rlk::products

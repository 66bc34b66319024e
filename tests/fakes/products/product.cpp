// What a simulated library of products does, and what it refuses.
#include "tests/fakes/products/product.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "tests/fakes/halves.hpp"

namespace fake_products {

using namespace fake;

namespace {

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
      return std::memcpy(&bits, from, 2), float_of_f16(bits);
    default:
      return std::memcpy(&bits, from, 2), float_of_bf16(bits);
  }
}
// From what the sum was made in.
void store(std::byte* to, int dtype, double value) {
  const auto single = static_cast<float>(value);
  if (dtype == kF64) {
    std::memcpy(to, &value, 8);
  } else if (dtype == kF32) {
    std::memcpy(to, &single, 4);
  } else {
    const uint16_t bits = dtype == kF16 ? f16_of_float(single) : bf16_of_float(single);
    std::memcpy(to, &bits, 2);
  }
}

// Whether a value of that many bytes was given for an attribute of this size.
template <class T>
int take(T& to, const void* value, size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) return vendor().invalid_value;
  return std::memcpy(&to, value, sizeof(T)), kSuccess;
}
int take_turn(int32_t& to, const void* value, size_t bytes) {
  if (const int code = take(to, value, bytes)) return code;
  return to == vendor().as_stored || to == vendor().transposed ? kSuccess : vendor().not_supported;
}

Range range_of(const void* pointer, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(pointer);
  return {begin, begin + bytes};
}

}  // namespace

Preference::Preference() {
  std::fill_n(alignment, 4, vendor().alignment_a != kNone ? 256u : 0u);
}

// --- descriptions ----------------------------------------------------------------------------------------------------

int set_product(Description& of, int attribute, const void* value, size_t bytes) {
  const Vendor& at = vendor();
  if (attribute == at.transpose_a) return take_turn(of.transpose_a, value, bytes);
  if (attribute == at.transpose_b) return take_turn(of.transpose_b, value, bytes);
  if (attribute == at.bias_pointer) return take(of.bias, value, bytes);
  if (attribute == at.epilogue) {
    if (const int code = take(of.epilogue, value, bytes)) return code;
    return of.epilogue == kEpilogueDefault || of.epilogue == kEpilogueBias ? kSuccess : at.not_supported;
  }
  if (attribute != at.factors_at) return at.invalid_value;
  if (const int code = take(of.factors_at, value, bytes)) return code;
  const bool is_known =
      of.factors_at == kFactorsOnHost ||
      (of.factors_at != kNone && (of.factors_at == at.factors_on_device || of.factors_at == at.alphas_on_device));
  return is_known ? kSuccess : at.not_supported;
}

int set_layout(Layout& of, int attribute, const void* value, size_t bytes) {
  const Vendor& at = vendor();
  if (attribute == at.batch_count) {
    return take(of.count, value, bytes) != 0 || of.count < 1 ? at.invalid_value : kSuccess;
  }
  if (attribute == at.batch_stride) {
    return take(of.stride, value, bytes) != 0 || of.stride < 0 ? at.invalid_value : kSuccess;
  }
  return at.invalid_value;
}

int set_preference(Preference& of, int attribute, const void* value, size_t bytes) {
  const Vendor& at = vendor();
  if (attribute == at.workspace_limit) return take(of.workspace, value, bytes);
  if (attribute == kNone) return at.invalid_value;
  if (attribute == at.reductions) return take(of.reductions, value, bytes);
  if (at.alignment_a != kNone && attribute >= at.alignment_a && attribute < at.alignment_a + 4) {
    return take(of.alignment[attribute - at.alignment_a], value, bytes);
  }
  return at.invalid_value;
}

int problem_of(const Description& description, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
               Problem* out) {
  *out = {description, a, b, c, d};
  const Vendor& at = vendor();
  const Problem& p = *out;
  const uint64_t left = p.turns_a() ? p.a.columns : p.a.rows;
  const uint64_t inner = p.turns_b() ? p.b.columns : p.b.rows;
  const uint64_t right = p.turns_b() ? p.b.rows : p.b.columns;
  if (left != p.m() || right != p.n() || inner != p.k() || p.c.rows != p.m() || p.c.columns != p.n()) {
    return at.invalid_value;
  }
  if (p.a.count != p.d.count || p.b.count != p.d.count || p.c.count != p.d.count) return at.invalid_value;
  // Matrices of the batch that is written may not lie in each other.
  if (p.d.count > 1 && p.d.stride == 0) return at.invalid_value;
  const bool wide = p.a.dtype == kF64;
  const int compute = p.description.compute;
  const bool computes = compute == (wide ? at.compute64 : at.compute32) ||
                        (!wide && at.compute32_unrounded != 0 && compute == at.compute32_unrounded);
  if (p.b.dtype != p.a.dtype || p.c.dtype != p.d.dtype || !computes || p.description.scale != (wide ? kF64 : kF32)) {
    return at.not_supported;
  }
  if (p.d.dtype != p.a.dtype && (p.d.dtype != kF32 || wide)) return at.not_supported;
  const bool adds_bias = p.description.epilogue == kEpilogueBias;
  return adds_bias && (wide || std::getenv(at.no_bias) != nullptr) ? at.not_supported : kSuccess;
}

uint64_t fingerprint(const Problem& p) {
  uint64_t hash = 1469598103934665603u;
  const auto add = [&](uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  add((p.turns_a() ? 1 : 0) + (p.turns_b() ? 2 : 0));
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

// --- products --------------------------------------------------------------------------------------------------------

// To nearest, with ten bits behind the point: numbers of 16 bits have no more.
static float tf32(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0xfffu + ((bits >> 13) & 1u)) & ~0x1fffu;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

int Work::run() const {
  const Problem& p = problem;
  const auto factor = [&](double known, const void* where, uint64_t row) {
    if (where == nullptr) return known;
    return load(at<std::byte>(where) + row * bytes_of(p.description.scale), p.description.scale);
  };
  const bool has_alphas = p.description.factors_at != kFactorsOnHost && beta_at == nullptr;
  const double add_by = factor(beta, beta_at, 0);
  if (workspace_bytes > 0) std::memset(at<std::byte>(workspace), 0xee, workspace_bytes);
  const auto element = [](const std::byte* base, const Layout& of, bool transposed, uint64_t row, uint64_t column,
                          int64_t batch) {
    if (transposed) std::swap(row, column);
    const int64_t i = batch * of.stride + static_cast<int64_t>(row) + static_cast<int64_t>(column) * of.leading;
    return base + i * static_cast<int64_t>(bytes_of(of.dtype));
  };
  const std::byte *from_a = at<std::byte>(a), *from_b = at<std::byte>(b), *from_c = at<std::byte>(c);
  auto* to = at<std::byte>(d);
  const bool turn_a = p.turns_a(), turn_b = p.turns_b();
  const bool wide = p.a.dtype == kF64;
  const bool rounds = vendor().compute32_unrounded != 0 && p.description.compute == vendor().compute32;
  const auto operand = [rounds](double x) { return rounds ? tf32(static_cast<float>(x)) : static_cast<float>(x); };
  for (int64_t g = 0; g < p.d.count; ++g) {
    for (uint64_t j = 0; j < p.n(); ++j) {
      for (uint64_t i = 0; i < p.m(); ++i) {
        const double by = factor(alpha, alpha_at, has_alphas ? i : 0);
        double sum = 0;
        float single = 0;
        for (uint64_t k = 0; k < p.k(); ++k) {
          const double x = load(element(from_a, p.a, turn_a, i, k, g), p.a.dtype);
          const double y = load(element(from_b, p.b, turn_b, k, j, g), p.b.dtype);
          if (wide) {
            sum = std::fma(x, y, sum);
          } else {
            single = std::fmaf(operand(x), operand(y), single);
          }
        }
        if (!wide) sum = single;
        sum = wide ? by * sum : static_cast<double>(static_cast<float>(by) * single);
        if (add_by != 0) {
          const double added = add_by * load(element(from_c, p.c, false, i, j, g), p.c.dtype);
          // As the library does where its wide accesses fit and c is the result: it adds what is rounded already.
          const size_t bytes = bytes_of(p.d.dtype);
          if (from_c == to && bytes == 2 && static_cast<size_t>(p.d.leading) * bytes % 16 == 0) {
            auto* const place = const_cast<std::byte*>(element(to, p.d, false, i, j, g));
            store(place, p.d.dtype, sum);
            sum = load(place, p.d.dtype);
          }
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

int choose(const Problem& problem, const Preference& wish, const char* call, void* results, int* count) {
  if (vendor().reductions != kNone && (wish.reductions & ~2u) != 0) {
    violation("REDUCED_PRECISION", std::string(call) + ": parts of a sum may be rounded to 16 bits");
  }
  // Long sums are divided where there is room, as a real device's are.
  const uint64_t parts = problem.k() >= 32 ? 512 * problem.m() : 0;
  Algorithm chosen{};
  chosen.product = fingerprint(problem);
  chosen.workspace = parts <= wish.workspace ? parts : 0;
  std::copy_n(wish.alignment, 4, chosen.alignment);
  // The algorithm, then its workspace, a status, waves and four numbers.
  struct Rest {
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
  };
  const Rest rest{chosen.workspace, kSuccess, 0, {}};
  auto* const to = static_cast<std::byte*>(results);
  std::memset(to, 0, vendor().algorithm_bytes);
  std::memcpy(to, &chosen, std::min(sizeof(chosen), vendor().algorithm_bytes));
  std::memcpy(to + vendor().algorithm_bytes, &rest, sizeof(rest));
  return *count = 1, kSuccess;
}

int multiply(std::shared_ptr<Work> work, const void* alpha, const void* beta, const void* algorithm, const char* call,
             void* stream) {
  const Problem& problem = work->problem;
  const Description& description = problem.description;
  if (alpha == nullptr || beta == nullptr || algorithm == nullptr) return vendor().invalid_value;
  Algorithm chosen{};
  std::memcpy(&chosen, algorithm, std::min(sizeof(chosen), vendor().algorithm_bytes));
  if (chosen.product != fingerprint(problem)) {
    violation("WRONG_ALGORITHM", std::string(call) + ": the algorithm was chosen for another product");
  }
  if (work->workspace_bytes < chosen.workspace) return vendor().invalid_value;
  work->workspace_bytes = chosen.workspace;
  Command command;
  command.name = call;
  const auto use = [&](const void* pointer, size_t bytes, size_t alignment) {
    require_device(pointer, bytes, call);
    require_aligned(pointer, alignment, call);
    command.uses.push_back(range_of(pointer, bytes));
  };
  if (chosen.workspace > 0) use(work->workspace, chosen.workspace, 256);
  const size_t scale_bytes = bytes_of(description.scale);
  const auto on_host = [&](const void* factor) {
    return description.scale == kF64 ? *static_cast<const double*>(factor) : *static_cast<const float*>(factor);
  };
  if (description.factors_at == kFactorsOnHost) {
    work->alpha = on_host(alpha), work->beta = on_host(beta);
  } else if (description.factors_at == vendor().factors_on_device) {
    for (const void* one : {alpha, beta}) use(one, scale_bytes, scale_bytes);
    work->alpha_at = alpha, work->beta_at = beta;
  } else {
    use(alpha, problem.m() * scale_bytes, scale_bytes);
    work->alpha_at = alpha, work->beta = on_host(beta);
  }
  const void* const addresses[] = {work->a, work->b, work->c, work->d};
  const Layout* const of[] = {&problem.a, &problem.b, &problem.c, &problem.d};
  for (int i = 0; i < 4; ++i) {
    const size_t element = bytes_of(of[i]->dtype), alignment = chosen.alignment[i];
    use(addresses[i], static_cast<size_t>(of[i]->span()) * element, std::max(alignment, element));
  }
  if (work->c == work->d && (problem.c.leading != problem.d.leading || problem.c.stride != problem.d.stride)) {
    return vendor().invalid_value;
  }
  if (description.epilogue == kEpilogueBias) {
    const size_t bytes = bytes_of(problem.d.dtype);
    use(description.bias, problem.m() * bytes, bytes);
  }
  command.run = [work = std::move(work)] { return work->run(); };
  return enqueue(stream, call, std::move(command)) == 0 ? kSuccess : vendor().execution_failed;
}

}  // namespace fake_products

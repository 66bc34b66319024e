// Scores that are products of hidden states and a vocabulary's rows: what the operators do with a chunk of them.
#pragma once

#include "chunks.hpp"

#include <algorithm>
#include <vector>

namespace rlk::products {

// Bytes of what every chunk adds to: grad_weight, of operators that have one.
template <class Arguments>
auto weight_sum_bytes(const Arguments& call, int) -> decltype(static_cast<uint64_t>(call.grad_weight != nullptr)) {
  if (call.grad_weight == nullptr) return 0;
  return static_cast<uint64_t>(call.V * call.D * sdk::bytes_of(sdk::dtype_of(*call.grad_weight)));
}
template <class Arguments>
uint64_t weight_sum_bytes(const Arguments&, long) {
  return 0;
}

// Whether slopes are made of the scores.
template <class Arguments>
auto has_slopes(const Arguments& call, int) -> decltype(call.grad_hidden != nullptr) {
  return true;
}
template <class Arguments>
bool has_slopes(const Arguments&, long) {
  return false;
}

// What a chunk of both directions has.
struct Scores {
  int64_t rows = 0;   // of a chunk, but for the last one
  int64_t piece = 0;  // whose scores are in memory together
  sdk::Dtype dtype = sdk::Dtype::other, score = sdk::Dtype::other;
  int64_t N = 0, V = 0, D = 0;

  // models: how many matrices of scores a chunk has.
  template <class Arguments>
  explicit Scores(const Arguments& call, int64_t models = 1)
      : dtype(sdk::dtype_of(*call.hidden)), score(score_of(dtype)), N(call.N), V(call.V), D(call.D) {
    const int64_t bytes = models * V * sdk::bytes_of(score);
    const uint64_t beside = weight_sum_bytes(call, 0);
    // The scale of f16 is one of all slopes of a chunk.
    const bool has_pieces = is_narrow() && !scales_slopes() && has_slopes(call, 0);
    const ChunkRows chunk =
        has_pieces ? chunk_rows_of(N, bytes, V * sdk::bytes_of(dtype), beside) : chunk_rows_of(N, bytes, beside);
    rows = chunk.rows;
    piece = chunk.piece;
  }
  bool is_narrow() const { return dtype != score; }
  // Whether slopes are scaled before they are rounded: p / N is soon below f16's smallest normal number. bf16 has
  // fp32's exponents.
  bool scales_slopes() const { return dtype == sdk::Dtype::f16; }
  // Whether the library answers for this chunk as for the second: the first adds to nothing, and after chunks of other
  // than kMany rows operands may be aligned otherwise. step: rows, or those of a piece.
  bool is_alike(int64_t first, int64_t step) const { return step % kManyRows == 0 && first > step && first + step < N; }
  // Of the last piece of all.
  int64_t last_rows() const { return N > 0 ? (N - 1) % rows % piece + 1 : piece; }
  uint64_t score_bytes(int64_t count) const { return static_cast<uint64_t>(count * sdk::bytes_of(score)); }
  uint64_t bytes(int64_t count) const { return static_cast<uint64_t>(count * sdk::bytes_of(dtype)); }
};

// The bias is a part of the scores, which may be -inf by it alone.
inline Product scores_product(const Matrix& hidden, const Matrix& weight, const Matrix& scores, const rlk_tensor* bias,
                              const void* widened) {
  Product product;
  if (bias != nullptr) product.bias = {true, widened, 16};
  product.a = hidden;
  product.b = weight.transposed();
  product.y = scores;
  return product;
}

// The scores of a chunk's piece, of which the chunk's rows from `at` on are.
template <class Arguments, class Parts>
Product piece_product(const Arguments& call, const Scores& of, const Parts& parts, int64_t at, int64_t rows) {
  return scores_product(dense(parts.hidden, of.dtype, of.rows, of.D).rows_from(at, rows), matrix_of(*call.weight),
                        dense(parts.scores, of.score, rows, of.V), call.bias, parts.bias);
}

// The products of a chunk's slopes: parts of grad_hidden, and last grad_weight.
template <class Arguments, class Parts>
std::vector<Product> chunk_products(const Arguments& call, const Scores& of, const Parts& parts, int64_t first,
                                    int64_t rows) {
  const Matrix weight = matrix_of(*call.weight);
  const Matrix hidden = dense(parts.hidden, of.dtype, rows, of.D);
  const Matrix slopes = parts.slopes(of, rows);
  std::vector<Product> products;
  // fp32 over a whole vocabulary would be one long chain of sums; 16-bit slopes are rounded more than that.
  constexpr int64_t kLongest = 16384;
  const DeviceFactors factors{of.scales_slopes(), parts.scale != nullptr ? parts.scale->factors : nullptr,
                              parts.alphas};
  const int64_t longest = of.dtype == sdk::Dtype::f32 ? kLongest : of.V;
  for (int64_t v = 0; v < of.V; v += longest) {
    Product of_hidden;
    const int64_t count = std::min(longest, of.V - v);
    of_hidden.a = slopes.columns_from(v, count);
    of_hidden.b = weight.rows_from(v, count);
    of_hidden.y = matrix_of(*call.grad_hidden).rows_from(first, rows);
    of_hidden.has_c = v > 0;
    of_hidden.c = of_hidden.y;
    of_hidden.beta = v > 0 ? 1 : 0;
    of_hidden.factors = factors;
    products.push_back(of_hidden);
  }
  if (call.grad_weight == nullptr) return products;
  Product of_weight;
  of_weight.a = slopes.transposed();
  of_weight.b = hidden;
  of_weight.y = matrix_of(*call.grad_weight);
  of_weight.has_c = first > 0;
  of_weight.c = of_weight.y;
  of_weight.beta = first > 0 ? 1 : 0;
  of_weight.factors = factors;
  products.push_back(of_weight);
  return products;
}

// The library's workspace for any chunk's scores of a model.
inline uint64_t scores_bytes(Multiplier& multiplier, const Scores& of, const rlk_tensor& hidden,
                             const rlk_tensor& weight, const rlk_tensor* bias, const void* widened) {
  uint64_t bytes = 0;
  for (int64_t first = 0; first < of.N; first += of.piece) {
    if (of.is_alike(first, of.piece)) continue;
    const int64_t rows = std::min(of.piece, of.N - first);
    const Product product = scores_product(matrix_of(hidden).rows_from(first, rows), matrix_of(weight),
                                           dense(nullptr, of.score, rows, of.V), bias, widened);
    bytes = std::max(bytes, multiplier.workspace_of(product));
  }
  return bytes;
}

// The library's workspace for the products of any chunk's slopes.
template <class Arguments, class Parts>
uint64_t slopes_bytes(Multiplier& multiplier, const Arguments& call, const Scores& of, const Parts& parts) {
  uint64_t bytes = 0;
  for (int64_t first = 0; first < of.N; first += of.rows) {
    if (of.is_alike(first, of.rows)) continue;
    for (const Product& product : chunk_products(call, of, parts, first, std::min(of.rows, of.N - first))) {
      bytes = std::max(bytes, multiplier.workspace_of(product));
    }
  }
  return bytes;
}

// Likewise with those of its scores.
template <class Arguments, class Parts>
uint64_t gradients_bytes(Multiplier& multiplier, const Arguments& call, const Scores& of, const Parts& parts) {
  uint64_t bytes = slopes_bytes(multiplier, call, of, parts);
  for (int64_t first = 0; first < of.N; first += of.rows) {
    if (of.is_alike(first, of.rows)) continue;
    const int64_t rows = std::min(of.rows, of.N - first);
    for (int64_t at = 0; at < rows; at += of.piece) {
      const Product product = piece_product(call, of, parts, at, std::min(of.piece, rows - at));
      bytes = std::max(bytes, multiplier.workspace_of(product));
    }
  }
  return bytes;
}

// Without rows sums are 0.
template <class Arguments>
void clear_sums(Multiplier& multiplier, const Arguments& call, simt::host::StreamHandle stream) {
  if (call.grad_weight != nullptr) {
    Product none;
    none.y = matrix_of(*call.grad_weight);
    multiplier.run(none, stream, nullptr);
  }
  if (call.grad_bias == nullptr) return;
  const int64_t bytes = call.V * sdk::bytes_of(sdk::dtype_of(*call.grad_bias));
  simt::host::fill(sdk::data_of(call.grad_bias), 0, static_cast<uint64_t>(bytes), stream);
}

// An argument of one dimension of an inner call, from a row on; absent where the tensor is.
template <class Inner>
void give(Inner& inner, typename Inner::Argument argument, const rlk_tensor* tensor, int64_t row, int64_t rows) {
  if (tensor != nullptr) inner.input(argument, from_row(tensor, row), sdk::dtype_of(*tensor), rows);
}

// Likewise a result.
template <class Inner>
void take(Inner& inner, typename Inner::Argument argument, const rlk_tensor* tensor, int64_t row, int64_t rows) {
  if (tensor != nullptr) {
    inner.output(argument, const_cast<void*>(from_row(tensor, row)), sdk::dtype_of(*tensor), rows);
  }
}

// Seen on an H200: the library's kernels for narrower accesses sum less exactly. 8192 products of bf16, read across
// rows of 5 elements, left a logp twice as far off as fp32 may be, and the error grows with the length of a sum.
inline sdk::Refusal refuse_narrow_accesses(const Scores& of, const rlk_tensor& tensor, const char* name) {
  constexpr uint32_t kWideBytes = 16;
  constexpr int64_t kShortSum = 512;
  if (!of.is_narrow()) return std::nullopt;
  if (tensor.alignment < kWideBytes) {
    return sdk::Support::no("ALIGNMENT", sdk::format("16-bit %s must start on 16 bytes", name),
                            RLK_SUPPORT_IF_CONTIGUOUS);
  }
  if (of.D <= kShortSum || is_wide(matrix_of(tensor))) return std::nullopt;
  const bool helps = is_wide(dense(nullptr, of.dtype, 2, of.D));
  return sdk::Support::no(
      "ALIGNMENT",
      sdk::format("sums of %lld 16-bit products are exact enough only where every row of %s starts on 16 bytes%s",
                  static_cast<long long>(of.D), name, helps ? "" : "; pad D with zeros to a multiple of 8"),
      helps ? RLK_SUPPORT_IF_CONTIGUOUS : 0);
}

// What the products of a model ask.
inline sdk::Refusal refuse_model(const Scores& of, const rlk_tensor& hidden, const rlk_tensor& weight,
                                 const char* hidden_name, const char* weight_name) {
  if (auto refused = refuse_narrow_accesses(of, hidden, hidden_name)) return refused;
  if (auto refused = refuse_narrow_accesses(of, weight, weight_name)) return refused;
  const Product product =
      scores_product(matrix_of(hidden), matrix_of(weight), dense(nullptr, of.score, of.N, of.V), nullptr, nullptr);
  return refuse_layout(product, hidden_name, weight_name, "", "scores");
}

// What all ask, but for their own arguments.
template <class Arguments>
sdk::Refusal refuse_scores(const Device& device, const Arguments& call) {
  if (auto refused = refuse_library(device)) return refused;
  if (auto refused = simt::host::refuse_dtype(call.hidden, "hidden")) return refused;
  if (auto refused = sdk::refuse_gaps(call.bias, "bias")) return refused;
  if (auto refused = sdk::refuse_gaps(call.mask, "mask")) return refused;
  if (auto refused = sdk::refuse_gaps(call.lse, "lse")) return refused;
  return refuse_model(Scores(call), *call.hidden, *call.weight, "hidden", "weight");
}

inline double scores_us(const Device& device, const Scores& of, const rlk_tensor& hidden, const rlk_tensor& weight) {
  const Product product =
      scores_product(matrix_of(hidden), matrix_of(weight), dense(nullptr, of.dtype, of.N, of.V), nullptr, nullptr);
  return product_us(device, product) + device.bytes_us(2.0 * static_cast<double>(of.score_bytes(of.N * of.V)));
}
template <class Arguments>
double scores_us(const Device& device, const Arguments& call) {
  return scores_us(device, Scores(call), *call.hidden, *call.weight);
}

}  // namespace rlk::products

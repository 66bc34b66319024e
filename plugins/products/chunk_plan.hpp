// The plan of an operator over scores that are products: chunks of rows, which another operator's implementation reads.
//
// Parts is what a run has in its workspace, a ForwardBuffers or a GradientBuffers, and names the rest:
//   Op, Serving                      the operator, and the implementation that reads its scores
//   Parts(base, of, call, algorithm_bytes, inner_bytes)   without a base only bytes() counts
//   inner_params(call)               the inner call's parameters
//   describe(inner, call, of, first, rows)                its arguments, of a chunk, or of a piece of one
// and where they differ from those of the buffers
//   kModels                          how many matrices of scores a chunk has
//   algorithm_bytes(multiplier, call, of)                 the library's workspace
//   active(call, first)              of gradients: which rows of a chunk count
#pragma once

#include "chunk_buffers.hpp"
#include "plan.hpp"

namespace rlk::products {

// The plan that reads a chunk's scores. Of Parts it needs Serving, inner_params() and describe().
template <class Parts, class Arguments>
class InnerPlan {
public:
  using Op = typename Parts::Serving::Op;
  using Inner = InnerCall<Op>;

  InnerPlan(Device& device, const Parts& parts, const Arguments& call, const Scores& of) {
    Inner inner(Parts::inner_params(call));
    parts.describe(inner, call, of, 0, of.piece);
    const rlk_call_desc desc = inner.description();
    const sdk::Call<Op> served(desc);
    plan_ = Parts::Serving::plan(device, served);
    sdk::detail::take_bound(Parts::Serving::query(device, served), *plan_);
  }
  // Workspace for any piece.
  uint64_t bytes(const sdk::Run& run, const Parts& parts, const Arguments& call, const Scores& of) const {
    uint64_t bytes = 0;
    for (const int64_t rows : {of.piece, of.last_rows()}) {
      Inner inner(Parts::inner_params(call));
      parts.describe(inner, call, of, 0, rows);
      const rlk_run inner_run = inner.run(run, nullptr, nullptr, 0);
      bytes = std::max(bytes, plan_->prepare(sdk::Run(inner_run)));
    }
    return bytes;
  }
  template <class Chunk>
  void enqueue(const Parts& parts, const Chunk& chunk) const {
    Inner inner(Parts::inner_params(chunk.call));
    parts.describe(inner, chunk.call, chunk.of, chunk.first, chunk.rows);
    const rlk_run run = inner.run(chunk.run, chunk.parts.errors, chunk.parts.inner, chunk.inner_size);
    plan_->enqueue(chunk.stream, sdk::Run(run));
  }

private:
  std::unique_ptr<sdk::Plan> plan_;
};

template <class Parts>
class ChunksPlan : public simt::host::OperatorPlan<typename Parts::Op> {
public:
  using Op = typename Parts::Op;
  using Arguments = sdk::Arguments<Op>;

  ChunksPlan(Device& device, const sdk::Call<Op>& call)
      : simt::host::OperatorPlan<Op>(device, call),
        multiplier_(device),
        kernels_(device, sdk::dtype_of(*sdk::arguments_of(call).hidden)),
        inner_(device, Parts(nullptr, scores_of(call), sdk::arguments_of(call), 0, 0), sdk::arguments_of(call),
               scores_of(call)) {
    this->dynamic_symbols = sdk::bits_of(&Arguments::N);
    this->workspace_bound = UINT64_MAX;
  }

  uint64_t prepare(const sdk::Run& run) override {
    const Arguments call = this->arguments_of(run);
    const Scores of(call, Parts::kModels);
    return Parts(nullptr, of, call, algorithm_bytes(call, of), inner_bytes(run, call, of)).bytes();
  }

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const Arguments call = this->arguments_of(run);
    const Scores of(call, Parts::kModels);
    const uint64_t inner_size = inner_bytes(run, call, of);
    Parts parts(run.workspace(), of, call, algorithm_bytes(call, of), inner_size);
    if (run.data_error_record() == nullptr) parts.errors = nullptr;
    const simt::host::PlaceScope scope(this->place_);
    Chunk chunk{stream, run, call, of, parts, inner_size, simt::host::own(stream).handle()};
    if (parts.errors != nullptr) simt::host::fill(parts.errors, 0, sizeof(rlk_data_error_record), chunk.handle);
    if (call.bias != nullptr && of.is_narrow()) {
      kernels_.widen(sdk::data_of(call.bias), parts.bias, of.V, chunk.handle);
    }
    begin(chunk);
    for (chunk.first = 0; chunk.first < of.N; chunk.first += of.rows) {
      chunk.rows = std::min(of.rows, of.N - chunk.first);
      make(chunk);
    }
    end(chunk);
  }

protected:
  struct Chunk {
    sdk::Stream& stream;
    const sdk::Run& run;
    const Arguments& call;
    const Scores& of;
    const Parts& parts;
    uint64_t inner_size;
    StreamHandle handle;
    int64_t first = 0, rows = 0;
  };
  virtual void begin(const Chunk&) {}
  virtual void end(const Chunk&) {}
  virtual void make(const Chunk& chunk) = 0;

  // Workspace of another plan that a chunk runs before the inner one, in the same memory.
  virtual uint64_t other_inner_bytes(const sdk::Run&, const Arguments&, const Scores&) { return 0; }

  static Scores scores_of(const sdk::Call<Op>& call) { return Scores(sdk::arguments_of(call), Parts::kModels); }
  void multiply(const Chunk& chunk, const Product& product) {
    multiplier_.run(product, chunk.handle, chunk.parts.algorithm);
  }
  void run_inner(const Chunk& chunk) {
    inner_.enqueue(chunk.parts, chunk);
    kernels_.report(chunk.parts.errors, chunk.first, chunk.run, chunk.handle);
  }

  Multiplier multiplier_;
  ChunkKernels kernels_;

private:
  uint64_t algorithm_bytes(const Arguments& call, const Scores& of) {
    return Parts(nullptr, of, call, 0, 0).algorithm_bytes(multiplier_, call, of);
  }
  uint64_t inner_bytes(const sdk::Run& run, const Arguments& call, const Scores& of) {
    return std::max(inner_.bytes(run, Parts(nullptr, of, call, 0, 0), call, of), other_inner_bytes(run, call, of));
  }

  const InnerPlan<Parts, Arguments> inner_;
};

// Of rows' results alone.
template <class Parts>
class ForwardPlan : public ChunksPlan<Parts> {
public:
  using ChunksPlan<Parts>::ChunksPlan;

protected:
  using Chunk = typename ChunksPlan<Parts>::Chunk;
  void make(const Chunk& chunk) override {
    const auto& call = chunk.call;
    const Scores& of = chunk.of;
    const Parts& parts = chunk.parts;
    this->multiply(chunk,
                   scores_product(matrix_of(*call.hidden).rows_from(chunk.first, chunk.rows), matrix_of(*call.weight),
                                  dense(parts.scores, of.score, chunk.rows, of.V), call.bias, parts.bias));
    before_inner(chunk);
    this->run_inner(chunk);
  }
  virtual void before_inner(const Chunk&) {}
};

// Of the gradients of hidden, weight and bias: the inner call turns scores into their slopes, in place or rounded.
template <class Parts>
class GradientsPlan : public ChunksPlan<Parts> {
public:
  GradientsPlan(Device& device, const sdk::Call<typename Parts::Op>& call)
      : ChunksPlan<Parts>(device, call), sums_(device, score_of(sdk::dtype_of(*sdk::arguments_of(call).hidden))) {}

  void enqueue(sdk::Stream& stream, const sdk::Run& run) override {
    const auto call = this->arguments_of(run);
    if (call.N == 0) {
      const simt::host::PlaceScope scope(this->place_);
      clear_sums(this->multiplier_, call, simt::host::own(stream).handle());
    }
    ChunksPlan<Parts>::enqueue(stream, run);  // without rows begin() and end() alone: a loss of nothing, say
  }

protected:
  using Chunk = typename ChunksPlan<Parts>::Chunk;
  void make(const Chunk& chunk) override {
    const auto& call = chunk.call;
    const Scores& of = chunk.of;
    const Parts& parts = chunk.parts;
    const ChunkKernels::Active active = Parts::active(call, chunk.first);
    this->kernels_.copy_active(matrix_of(*call.hidden).rows_from(chunk.first, chunk.rows),
                               dense(parts.hidden, of.dtype, chunk.rows, of.D), active, chunk.handle);
    for (int64_t at = 0; at < chunk.rows; at += of.piece) make_slopes(chunk, at);
    for (const Product& product : chunk_products(call, of, parts, chunk.first, chunk.rows)) {
      this->multiply(chunk, product);
    }
    this->kernels_.clear_ignored(matrix_of(*call.grad_hidden).rows_from(chunk.first, chunk.rows), active, chunk.handle);
  }
  virtual void before_inner(const Chunk&) {}
  // A piece's part of grad_bias.
  virtual void sum_slopes(const Chunk& chunk, void* to) {
    sums_.run(dense(chunk.parts.scores, chunk.of.score, chunk.rows, chunk.of.V), to, chunk.handle, chunk.parts.sums);
  }

private:
  // Of the piece that begins at this row of the chunk.
  void make_slopes(const Chunk& chunk, int64_t at) {
    const auto& call = chunk.call;
    const Scores& of = chunk.of;
    Parts parts = chunk.parts;
    parts.move_to_piece(of, at);
    Chunk piece{chunk.stream, chunk.run, call, of, parts, chunk.inner_size, chunk.handle};
    piece.first = chunk.first + at;
    piece.rows = std::min(of.piece, chunk.rows - at);
    this->multiply(piece, piece_product(call, of, parts, at, piece.rows));
    before_inner(piece);
    this->run_inner(piece);
    const int64_t count = piece.rows * of.V;
    if (of.scales_slopes()) {
      this->kernels_.narrow_scaled(static_cast<const float*>(parts.scores), parts.rounded, count, parts.scale,
                                   piece.handle);
      if (parts.alphas != nullptr) {
        this->kernels_.repeat(parts.scale->factors, parts.alphas, Parts::alphas_of(of), piece.handle);
      }
    } else if (of.is_narrow() && !parts.rounds_slopes) {
      this->kernels_.narrow(parts.scores, parts.rounded, count, piece.handle);
    }
    if (call.grad_bias == nullptr) return;
    void* const out = sdk::data_of(call.grad_bias);
    sum_slopes(piece, piece.first == 0 ? out : parts.grad_bias);
    if (piece.first > 0) this->kernels_.add(parts.grad_bias, out, of.V, piece.handle);
  }

  ColumnSums sums_;
};

// Refusals of the products that gradients need.
template <class Parts, class Arguments>
sdk::Refusal refuse_gradients(const Arguments& call) {
  const Scores of(call, Parts::kModels);
  const Library& table = library();
  if (of.scales_slopes() && table.numbers.factors_on_device == kNone && !table.numbers.takes_alphas()) {
    return sdk::Support::no(
        "PRECISION", sdk::format("%s cannot read a product's factors from device memory, and without a scale that "
                                 "is found there small gradients of the scores are lost in f16; pass bf16 or f32",
                                 table.name));
  }
  const Parts parts(nullptr, of, call, 0, 0);
  const std::vector<Product> products = chunk_products(call, of, parts, 0, of.rows);
  if (auto refused = refuse_layout(products[0], "scores", "weight", "", "grad_hidden")) return refused;
  if (call.grad_weight == nullptr) return std::nullopt;
  return refuse_layout(products.back(), "scores", "hidden", "", "grad_weight");
}

// The answer where nothing of the operator's own stands in the way: the inner implementation's refusal, or support.
template <class Parts, class Arguments>
sdk::Support support_of_chunks(Device& device, const Arguments& call, double cost_us) {
  using Inner = typename Parts::Serving::Op;
  const Scores of(call, Parts::kModels);
  const Parts parts(nullptr, of, call, 0, 0);
  InnerCall<Inner> inner(Parts::inner_params(call));
  parts.describe(inner, call, of, 0, of.piece);
  const rlk_call_desc desc = inner.description();
  sdk::Support of_inner = Parts::Serving::query(device, sdk::Call<Inner>(desc));
  if (of_inner.level == RLK_SUPPORT_NO) return of_inner;
  const uint64_t own = parts.bytes() + kWorkspaceLimit;
  sdk::Support answer =
      supported(cost_us, own + std::min(of_inner.workspace_bound, UINT64_MAX - own), RLK_NUMERICS_DETERMINISTIC);
  answer.variant = "chunks";
  return answer;
}

// The implementation of an operator among those that all plugins share.
template <class Op, class Tuple>
struct ServingOf;
template <class Op, class One, class... Rest>
struct ServingOf<Op, std::tuple<One, Rest...>> {
  struct Found {
    using type = One;
  };
  using type = typename std::conditional_t<std::is_same_v<typename One::Op, Op>, Found,
                                           ServingOf<Op, std::tuple<Rest...>>>::type;
};

}  // namespace rlk::products

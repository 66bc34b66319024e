// Which rows of which products are worked on together, and in which tasks. No SIMD here.
//
// Products are cut into pieces of rows; as many pieces as have kProductRows rows together are packed, and then
// multiplied with blocks of columns, a task for each piece and block. So one large product and many small ones keep
// all threads busy alike. Every element has one task and one order of summation.
#include "core/cpu/linear/product.hpp"

#include <algorithm>
#include <numeric>

#include "core/cpu/linear/product_task.hpp"
#include "core/cpu/simd/amx.hpp"
#include "core/cpu/simd/scratch.hpp"

namespace rlk::cpu {
namespace {

constexpr int64_t kPieceNumbers = int64_t{640} << 10;  // of bf16
constexpr int64_t kWaveNumbers = int64_t{1} << 23;     // packed at a time, roughly, unless one piece has more
constexpr int64_t kTaskProducts = int64_t{1} << 18;    // of numbers: some microseconds

// A piece of the wave at hand.
struct Entry {
  int64_t product, row, count;
  int64_t packed;        // where its numbers begin
  int64_t end_of_tasks;  // of this piece and those before it
};

// The tile unit takes the rows' numbers in pairs and the columns' as lines. Where both matrices lie the other way the
// product is computed transposed, with the same bits: pairs are cheaper to make of lines than lines of pairs, and only
// the rows are packed once.
Product for_tiles(Product product) {
  const bool by_tiles = product.a.dtype == Dtype::bf16 && product.depth >= kAmxDepth && has_amx();
  const bool turned = product.a.strides[1] == 1 && product.b.strides[0] == 1 && product.b.strides[1] != 1;
  if (!by_tiles || !turned || product.bias.present()) return product;
  std::swap(product.rows, product.columns);
  std::swap(product.a, product.b);
  product.y = transposed(product.y);
  if (product.c.present()) product.c = transposed(product.c);
  return product;
}

// Of bf16 so many that they stay in L2, packed, while blocks of columns pass.
int64_t piece_rows(int64_t depth, Dtype dtype) {
  const int64_t tile = linear_tile_rows(dtype == Dtype::f64);
  const int64_t pairs =
      dtype == Dtype::bf16 ? kPieceNumbers / std::max<int64_t>(1, 2 * tile * depth) : kLinearTilesPerTask;
  return std::clamp<int64_t>(2 * pairs, 2, kLinearTilesPerTask) * tile;
}
// Rows of a wave: a function of the depth alone, so that the size of the workspace is known before the call.
int64_t wave_rows(int64_t depth, Dtype dtype) {
  return std::clamp(kWaveNumbers / std::max<int64_t>(1, depth), piece_rows(depth, dtype), kProductRows);
}

struct Workspace {
  Entry* entries;
  int64_t* rows;  // 0, 1, ...: every row of a piece
  void* packed;
  int64_t bytes;
};
Workspace carve(void* memory, int64_t rows, int64_t products, int64_t depth, Dtype dtype) {
  const bool in_f64 = dtype == Dtype::f64;
  const int64_t at_once = std::min(rows, wave_rows(depth, dtype));
  const int64_t pieces = std::min(at_once, at_once / piece_rows(depth, dtype) + 1 + products);
  const int64_t spare = product_room(1 + linear_tile_rows(in_f64), in_f64) - linear_tile_rows(in_f64);
  Carve carve(memory);
  Workspace workspace{};
  workspace.entries = carve.take<Entry>(pieces);
  workspace.rows = carve.take<int64_t>(piece_rows(depth, dtype));
  workspace.packed = carve.take_bytes((at_once + pieces * spare) * depth * linear_compute_bytes(in_f64));
  workspace.bytes = carve.bytes();
  return workspace;
}

class Waves {
public:
  Waves(const ParallelFor& parallel, const Workspace& workspace, int64_t count, int64_t depth, Dtype dtype,
        ProductAt product, const void* ctx)
      : parallel_(parallel),
        workspace_(workspace),
        count_(count),
        rows_(wave_rows(depth, dtype)),
        piece_rows_(piece_rows(depth, dtype)),
        in_f64_(dtype == Dtype::f64),
        product_(product),
        ctx_(ctx) {
    std::iota(workspace_.rows, workspace_.rows + piece_rows_, int64_t{0});
  }

  bool run() {
    while (gather()) multiply_wave();
    return had_memory_.load();
  }

private:
  Product product_at(int64_t i) const { return for_tiles(product_(ctx_, i)); }

  // The next wave: false behind the last one.
  bool gather() {
    entries_ = products_ = 0;
    int64_t rows = 0, packed = 0, tasks = 0;
    for (; next_ < count_; ++next_, row_ = 0) {
      const Product product = product_at(next_);
      const int64_t blocks = (product.columns + kLinearBlock - 1) / kLinearBlock;
      while (row_ < product.rows && blocks > 0) {
        const int64_t count = std::min(piece_rows_, product.rows - row_);
        if (entries_ > 0 && rows + count > rows_) return true;
        tasks += blocks;
        workspace_.entries[entries_++] = {next_, row_, count, packed, tasks};
        packed += product_room(count, in_f64_) * product.depth;
        products_ += count * product.columns * product.depth;
        rows += count;
        row_ += count;
      }
    }
    return entries_ > 0;
  }

  void multiply_wave() {
    parallel_for(parallel_, entries_ * kLinearTilesPerTask, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) pack(workspace_.entries[i / kLinearTilesPerTask], i % kLinearTilesPerTask);
    });
    const int64_t tasks = workspace_.entries[entries_ - 1].end_of_tasks;
    const int64_t grain = std::clamp<int64_t>(kTaskProducts * tasks / std::max<int64_t>(1, products_), 1, tasks);
    parallel_for(parallel_, tasks, grain, [&](int64_t first, int64_t last) {
      const Entry* const entries = workspace_.entries;
      const auto is_before = [](int64_t task, const Entry& e) { return task < e.end_of_tasks; };
      const Entry* entry = std::upper_bound(entries, entries + entries_, first, is_before);
      for (int64_t task = first; task < last; ++entry) {
        const int64_t begin = entry == entries ? 0 : entry[-1].end_of_tasks;
        const Product product = product_at(entry->product);
        const ProductPiece piece = piece_of(*entry, product);
        for (; task < std::min(last, entry->end_of_tasks); ++task) {
          if (!product_task(piece, (task - begin) * kLinearBlock)) had_memory_.store(false, std::memory_order_relaxed);
        }
      }
    });
  }

  ProductPiece piece_of(const Entry& entry, const Product& product) const {
    char* const packed = static_cast<char*>(workspace_.packed) + entry.packed * linear_compute_bytes(in_f64_);
    return {product, entry.row, {workspace_.rows, entry.count, packed}};
  }
  void pack(const Entry& entry, int64_t part) const {
    const Product product = product_at(entry.product);
    const ProductPiece piece = piece_of(entry, product);
    linear_pack_part(operands_of(piece), piece.batch, part, kLinearTilesPerTask);
  }

  const ParallelFor& parallel_;
  const Workspace workspace_;
  const int64_t count_, rows_, piece_rows_;
  const bool in_f64_;
  const ProductAt product_;
  const void* const ctx_;
  int64_t next_ = 0, row_ = 0;          // where the next wave begins
  int64_t entries_ = 0, products_ = 0;  // of this wave: pieces, and products of numbers
  std::atomic<bool> had_memory_{true};
};

}  // namespace

LinearOperands operands_of(const ProductPiece& piece) {
  const Product& product = piece.product;
  LinearOperands operands;
  operands.hidden = product.a;
  operands.hidden.data = element(product.a.data, piece.row * product.a.strides[0], product.a.dtype);
  operands.weight = product.b;
  operands.vocab = product.columns;
  operands.depth = product.depth;
  operands.scores.in_f64 = product.a.dtype == Dtype::f64;
  return operands;
}

int64_t products_bytes(const ProductSizes& sizes, Dtype dtype) {
  const int64_t rows = sizes.rows + (dtype == Dtype::bf16 ? sizes.columns : 0);  // for_tiles() may exchange them
  return carve(nullptr, rows, sizes.products, sizes.depth, dtype).bytes;
}

void multiply(const ParallelFor& parallel, void* memory, int64_t count, Dtype dtype, int64_t depth, ProductAt product,
              const void* ctx) {
  int64_t rows = 0;
  for (int64_t i = 0; i < count; ++i) rows += for_tiles(product(ctx, i)).rows;
  const Workspace workspace = carve(memory, rows, count, depth, dtype);
  if (!Waves(parallel, workspace, count, depth, dtype, product, ctx).run()) throw_no_scratch();
}

}  // namespace rlk::cpu

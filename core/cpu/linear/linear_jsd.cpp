// jsd of hidden states, and the gradients of the student's hidden, weight and bias.
//
// Cost model: forward, the products of both models twice, for their log-sum-exps (linear_logp) and for the terms;
// backward, the products of both once and two more of the student's. Scores of both models exist for one block of the
// vocabulary and some tiles of rows at a time. A row's sums are those of segments, in their order: bits do not depend
// on threads.
#include <rlk/sdk/ops/linear_jsd.hpp>
#include <rlk/sdk/ops/linear_jsd_backward.hpp>

#include <cmath>

#include "core/cpu/distillation/jsd_block.hpp"
#include "core/cpu/linear/linear_gradient_batches.hpp"
#include "core/cpu/linear/linear_logp.hpp"
#include "core/cpu/linear/linear_scores.hpp"
#include "core/cpu/simd/long_sum.hpp"
#include "core/cpu/simd/registration.hpp"

namespace rlk::cpu {
namespace {

using Forward = CallOf<sdk::ops::LinearJsd>;
using Backward = CallOf<sdk::ops::LinearJsdBackward>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class Call>
LinearOperands teacher_of(const Call& call) {
  return {call.teacher_hidden,
          call.teacher_weight,
          call.V,
          call.E,
          make_scores(call.teacher_hidden.dtype, call.params.temperature, 0, 1, call.teacher_bias),
          {}};
}

// Some rows of both models, and the scores of a block of the vocabulary as fp64 rows.
class Pair {
public:
  template <class Call>
  explicit Pair(const Call& call)
      : student_(operands_of(call)),
        teacher_(teacher_of(call)),
        scores_(make_scores(Dtype::f64, call.params.temperature, 0, 1)) {}

  bool in_f64() const { return student_.scores.in_f64; }
  const LinearOperands& student() const { return student_; }
  const LinearOperands& teacher() const { return teacher_; }
  const Scores& scores() const { return scores_; }
  RowScale scale(double lse) const { return {lse * scores_.temperature, 0, scores_.temperature}; }
  int64_t tiles(int64_t count) const {
    const int64_t rows = linear_tile_rows(in_f64());
    return (count + rows - 1) / rows;
  }

  // Calls function(row of the batch, student's scores, teacher's) for the rows of some tiles. False without memory.
  template <typename Function>
  bool each_row(const LinearBatch& own, const LinearBatch& other, int64_t first_tile, int64_t last_tile, int64_t column,
                Function&& function) const {
    const int64_t tile_rows = linear_tile_rows(in_f64()), first = first_tile * tile_rows;
    const int64_t rows = std::min(last_tile * tile_rows, own.count) - first;
    const auto lay_out = [&](Carve carve, double** x, double** y, void** scratch) {
      *x = carve.take<double>(rows * kLinearBlock);
      *y = carve.take<double>(rows * kLinearBlock);
      *scratch = carve.take_bytes(static_cast<int64_t>(linear_scores_scratch(in_f64())));
      return static_cast<size_t>(carve.bytes());
    };
    double *x = nullptr, *y = nullptr;
    void *scratch = nullptr, *const memory = thread_scratch(lay_out(Carve(nullptr), &x, &y, &scratch));
    if (memory == nullptr) return false;
    lay_out(Carve(memory), &x, &y, &scratch);
    linear_scores({student_, own, first_tile, last_tile, column}, scratch, x);
    linear_scores({teacher_, other, first_tile, last_tile, column}, scratch, y);
    for (int64_t t = 0; t < rows; ++t) function(first + t, x + t * kLinearBlock, y + t * kLinearBlock);
    return true;
  }

private:
  const LinearOperands student_, teacher_;
  const Scores scores_;
};

void pack(const ParallelFor& hook, const LinearOperands& operands, const LinearBatch& batch, int64_t tiles) {
  parallel_for(hook, tiles, 1, [&](int64_t first, int64_t last) {
    for (int64_t tile = first; tile < last; ++tile) linear_pack_tile(operands, batch, tile);
  });
}

// The log-sum-exps of one model by linear_logp: as of a shard, whose rows without a finite score have -inf.
CallOf<sdk::ops::LinearLogp> sums_of(const Forward& call, const LinearOperands& model, const Array& bias) {
  CallOf<sdk::ops::LinearLogp> rows;
  rows.hidden = model.hidden;
  rows.weight = model.weight;
  rows.bias = bias;
  rows.mask = call.mask;
  rows.N = call.N;
  rows.V = call.V;
  rows.D = model.depth;
  rows.params.temperature = call.params.temperature;
  rows.params.global_vocab = call.V + 1;
  return rows;
}

// A row's sums over a segment of the vocabulary.
struct SegmentSums {
  LongSum teacher, student;
};
int64_t segments_of(const Forward& call) {
  return (call.V + kLinearSegment - 1) / kLinearSegment;
}

struct Workspace {
  Workspace(void* memory, const Forward& call, const Pair& pair) {
    const int64_t batch = std::min(call.N, kLinearBatch), size = linear_compute_bytes(pair.in_f64());
    Carve carve(memory);
    lse = carve.take<double>(call.N);
    teacher_lse = carve.take<double>(call.N);
    active = carve.take<int64_t>(call.N);
    const int64_t of_logp = std::max(linear_logp_workspace_bytes(sums_of(call, pair.student(), call.bias)),
                                     linear_logp_workspace_bytes(sums_of(call, pair.teacher(), call.teacher_bias)));
    Carve again = carve;  // linear_logp is done when the terms begin
    logp = again.take_bytes(of_logp);
    sums = carve.take<SegmentSums>(batch * segments_of(call));
    packed = carve.take_bytes(linear_packed_elements(batch, call.D, pair.in_f64()) * size);
    teacher_packed = carve.take_bytes(linear_packed_elements(batch, call.E, pair.in_f64()) * size);
    bytes = std::max(carve.bytes(), again.bytes());
  }
  double *lse, *teacher_lse;  // [N]
  int64_t* active;            // rows that have terms
  void* logp;                 // linear_logp's own
  SegmentSums* sums;          // [batch][segment]
  void *packed, *teacher_packed;
  int64_t bytes;
};

class Divergences {
public:
  Divergences(const Forward& call, const Context& context)
      : call_(call), pair_(call), hook_(context.parallel), workspace_(context.workspace, call, pair_) {}

  DataError run() const {
    find_sums(pair_.student(), call_.bias, workspace_.lse);
    find_sums(pair_.teacher(), call_.teacher_bias, workspace_.teacher_lse);
    FirstBadRow bad;
    const int64_t active = settle(bad);
    for (int64_t begin = 0; begin < active; begin += kLinearBatch) {
      batch(begin, std::min(kLinearBatch, active - begin));
    }
    return bad.any() ? DataError{kNoFiniteLogit, bad.row(), 0} : DataError{};
  }

private:
  void find_sums(const LinearOperands& model, const Array& bias, double* lse) const {
    CallOf<sdk::ops::LinearLogp> rows = sums_of(call_, model, bias);
    int64_t any_id = 0;
    double nobody = 0;
    rows.ids = Array::vector(&any_id, Dtype::i64, 0);
    rows.logp = Array::vector(&nobody, Dtype::f64, 0);
    rows.lse = Array::of(lse);
    linear_logp(rows, {hook_, workspace_.logp});
  }

  // Writes rows that have no terms, and lists the others.
  int64_t settle(FirstBadRow& bad) const {
    int64_t active = 0;
    for (int64_t n = 0; n < call_.N; ++n) {
      const double lse = workspace_.lse[n], teacher_lse = workspace_.teacher_lse[n];
      if (!call_.mask.keeps(n)) {
        put_divergence(call_, n, 0, 0, 0, 0);
      } else if (lse == kAllMasked || teacher_lse == kAllMasked) {
        bad.report(n);
        put_divergence(call_, n, kNan, kNan, kNan, kNan);
      } else if (std::isnan(lse) || std::isnan(teacher_lse)) {
        put_divergence(call_, n, kNan, lse, teacher_lse, call_.params.beta == 0 ? 0 : kNan);
      } else {
        workspace_.active[active++] = n;
      }
    }
    return active;
  }

  void batch(int64_t begin, int64_t count) const {
    const LinearBatch own{workspace_.active + begin, count, workspace_.packed};
    const LinearBatch other{own.rows, count, workspace_.teacher_packed};
    const int64_t tiles = pair_.tiles(count), segments = segments_of(call_);
    pack(hook_, pair_.student(), own, tiles);
    pack(hook_, pair_.teacher(), other, tiles);
    std::fill(workspace_.sums, workspace_.sums + count * segments, SegmentSums());
    const int64_t groups = (tiles + kLinearTilesPerTask - 1) / kLinearTilesPerTask;
    std::atomic<bool> had_memory{true};
    parallel_for(hook_, groups * segments, 1, [&](int64_t first, int64_t last) {
      for (int64_t index = first; index < last; ++index) {
        const int64_t segment = index / groups, tile = index % groups * kLinearTilesPerTask;
        const int64_t end = std::min((segment + 1) * kLinearSegment, call_.V);
        for (int64_t column = segment * kLinearSegment; column < end; column += kLinearBlock) {
          const int64_t columns = std::min(kLinearBlock, end - column);
          const auto add = [&](int64_t row, const double* x, const double* y) {
            const int64_t n = own.rows[row];
            const JsdSums terms = jsd_block(pair_.scores(), x, pair_.scale(workspace_.lse[n]), pair_.scores(), y,
                                            pair_.scale(workspace_.teacher_lse[n]), call_.params.beta, 0, columns);
            SegmentSums& sums = workspace_.sums[row * segments + segment];
            sums.teacher.add(terms.teacher);
            sums.student.add(terms.student);
          };
          if (!pair_.each_row(own, other, tile, std::min(tile + kLinearTilesPerTask, tiles), column, add)) {
            had_memory.store(false, std::memory_order_relaxed);
          }
        }
      }
    });
    if (!had_memory.load()) throw_no_scratch();
    for (int64_t row = 0; row < count; ++row) finish(own.rows[row], workspace_.sums + row * segments);
  }

  void finish(int64_t n, const SegmentSums* segments) const {
    SegmentSums total;
    for (int64_t segment = 0; segment < segments_of(call_); ++segment) {
      total.teacher.add(segments[segment].teacher.value());
      total.student.add(segments[segment].student.value());
    }
    const JsdSums sums{total.teacher.value(), total.student.value()};
    put_divergence(call_, n, sums.loss(call_.params.beta), workspace_.lse[n], workspace_.teacher_lse[n], sums.student);
  }

  const Forward& call_;
  const Pair pair_;
  const ParallelFor& hook_;
  const Workspace workspace_;
};

DataError linear_jsd(const Forward& call, const Context& context) {
  return Divergences(call, context).run();
}

int64_t workspace_bytes(const Forward& call) {
  return Workspace(nullptr, call, Pair(call)).bytes;
}

// What is particular to the gradients of this loss (linear_gradient_batches.hpp).
class JsdRows {
public:
  JsdRows(Carve& carve, const Backward& call) : call_(call), pair_(call) {
    const int64_t batch = std::min(call.N, kLinearBatch);
    seen_ = carve.take<uint8_t>(batch);
    packed_ =
        carve.take_bytes(linear_packed_elements(batch, call.E, pair_.in_f64()) * linear_compute_bytes(pair_.in_f64()));
  }
  RowState state(int64_t n) const { return call_.mask.keeps(n) ? RowState::active : RowState::ignored; }
  void begin(const LinearBatch& batch, const ParallelFor& hook) {
    teacher_ = {batch.rows, batch.count, packed_};
    pack(hook, pair_.teacher(), teacher_, pair_.tiles(batch.count));
    std::fill(seen_, seen_ + batch.count, uint8_t{0});
  }
  bool gradients(const LinearChunk& chunk, int64_t first_tile, int64_t last_tile, int64_t column) const {
    const int64_t columns = std::min(kLinearBlock, chunk.end - column);
    return pair_.each_row(chunk.batch, teacher_, first_tile, last_tile, column, [&](int64_t row, double* x, double* y) {
      const int64_t n = chunk.batch.rows[row];
      std::atomic_ref<uint8_t>(seen_[row])
          .fetch_or(
              static_cast<uint8_t>((has_score(x, columns) ? kStudent : 0) | (has_score(y, columns) ? kTeacher : 0)),
              std::memory_order_relaxed);
      jsd_gradient_block(pair_.scores(), x, pair_.scale(call_.lse.get(n)), pair_.scores(), y,
                         pair_.scale(call_.teacher_lse.get(n)), call_.params.beta, call_.student_kl.get(n),
                         call_.grad_loss.get(n), 0, columns, x, 1);
      linear_gradient_put(chunk, row, column, x);
    });
  }
  bool has_scores(int64_t row) const { return seen_[row] == (kStudent | kTeacher); }

private:
  static constexpr uint8_t kStudent = 1, kTeacher = 2;

  static bool has_score(const double* scores, int64_t count) {
    return !std::all_of(scores, scores + count, [](double score) { return score == kAllMasked; });
  }

  const Backward& call_;
  const Pair pair_;
  LinearBatch teacher_;
  void* packed_;
  uint8_t* seen_;  // [batch]: whose scores are not all -inf
};

using Gradients = LinearGradients<Backward, JsdRows>;

DataError linear_jsd_backward(const Backward& call, const Context& context) {
  FirstBadRow bad;
  if (!Gradients(call, context, bad).run()) throw_no_scratch();
  return bad.any() ? DataError{kNoFiniteLogit, bad.row(), 0} : DataError{};
}

// Those of linear_logp, and of the teacher's hidden states.
template <int64_t columns>
constexpr rlk_switch kSwitches[] = {
    {sizeof(rlk_switch), 0, "V", columns + 1},        {sizeof(rlk_switch), 0, "N", kLinearBatch + 1},
    {sizeof(rlk_switch), 0, "D", kLinearDepth + 1},   {sizeof(rlk_switch), 0, "D", kAmxDepth},
    {sizeof(rlk_switch), 0, "D", kAmxPanelDepth + 1}, {sizeof(rlk_switch), 0, "E", kLinearDepth + 1},
    {sizeof(rlk_switch), 0, "E", kAmxDepth},          {sizeof(rlk_switch), 0, "E", kAmxPanelDepth + 1}};

constexpr double kTermOperations = 900;  // exponentials and logarithms in fp64, as jsd

template <class Call>
double of_scores(const Call& call, double products) {
  const double scores = static_cast<double>(call.N) * static_cast<double>(call.V);
  return scores * (products * static_cast<double>(call.D + call.E) + kTermOperations);
}
double operations(const Forward& call) {
  return of_scores(call, 4);
}
double operations_of_backward(const Backward& call) {
  return of_scores(call, 2) + linear_gradient_operations(call) -
         2 * static_cast<double>(call.N) * static_cast<double>(call.V) * static_cast<double>(call.D);
}

}  // namespace

RLK_CPU_KERNEL(LinearJsd, .run = linear_jsd, .operations = operations, .workspace_bytes = workspace_bytes,
               .switches = kSwitches<kLinearSegment>);
RLK_CPU_KERNEL(LinearJsdBackward, .run = linear_jsd_backward, .operations = operations_of_backward,
               .workspace_bytes = Gradients::workspace_bytes, .switches = kSwitches<kMostColumns>);

}  // namespace rlk::cpu

// linear_jsd and its gradients: chunks of rows as in linear_logp, of two models' scores at a time, which jsd's own
// implementation reads. The teacher has no gradient: its scores are read, those of the student become their slopes.
#include "chunk_plan.hpp"
#include "operators.hpp"

#include "../simt/host/operators.hpp"

namespace rlk::products {

using namespace simt::host;

namespace {

using Forward = sdk::ops::LinearJsd;
using Backward = sdk::ops::LinearJsdBackward;

// The parameters that jsd has under the same names.
template <class To, class From>
To params_of(const From& from, To to) {
  to.beta = from.beta;
  to.temperature = from.temperature;
  return to;
}

// What both plans have of the teacher's.
struct TeacherBuffers {
  void *scores, *bias;

  template <class Arguments>
  TeacherBuffers(Arena& arena, const Scores& of, const Arguments& call)
      : scores(arena.take(of.score_bytes(of.piece * of.V))), bias(widened(arena, of, call.teacher_bias)) {}
  template <class Arguments>
  uint64_t algorithm_bytes(Multiplier& multiplier, const Arguments& call, const Scores& of) const {
    return scores_bytes(multiplier, of, *call.teacher_hidden, *call.teacher_weight, call.teacher_bias, bias);
  }
};
template <class Buffers>
struct TeacherParts : Buffers {
  static constexpr int64_t kModels = 2;
  TeacherBuffers teacher;

  template <class Arguments>
  TeacherParts(void* base, const Scores& of, const Arguments& call, uint64_t algorithm_bytes, uint64_t inner_bytes)
      : Buffers(base, of, call, algorithm_bytes, inner_bytes), teacher(this->arena, of, call) {}
  template <class Arguments>
  uint64_t algorithm_bytes(Multiplier& multiplier, const Arguments& call, const Scores& of) const {
    return std::max(Buffers::algorithm_bytes(multiplier, call, of), teacher.algorithm_bytes(multiplier, call, of));
  }
};
template <class Plan>
class TeacherPlan final : public Plan {
public:
  using Plan::Plan;

private:
  using Chunk = typename Plan::Chunk;
  void begin(const Chunk& chunk) override {
    if (chunk.call.teacher_bias == nullptr || !chunk.of.is_narrow()) return;
    this->kernels_.widen(sdk::data_of(chunk.call.teacher_bias), chunk.parts.teacher.bias, chunk.of.V, chunk.handle);
  }
  void before_inner(const Chunk& chunk) override {
    const auto& call = chunk.call;
    const TeacherBuffers& teacher = chunk.parts.teacher;
    this->multiply(chunk, scores_product(matrix_of(*call.teacher_hidden).rows_from(chunk.first, chunk.rows),
                                         matrix_of(*call.teacher_weight),
                                         dense(teacher.scores, chunk.of.score, chunk.rows, chunk.of.V),
                                         call.teacher_bias, teacher.bias));
  }
};

// --- forward ---------------------------------------------------------------------------------------------------------

struct ForwardParts : TeacherParts<ForwardBuffers> {
  using Op = Forward;
  using Serving = ServingOf<sdk::ops::Jsd, Maps>::type;
  using Arguments = sdk::Arguments<Op>;
  using TeacherParts::TeacherParts;
  static rlk_jsd_params inner_params(const Arguments& call) {
    return params_of(call.params, rlk_jsd_params RLK_JSD_PARAMS_INIT);
  }
  void describe(InnerCall<Serving::Op>& jsd, const Arguments& call, const Scores& of, int64_t first,
                int64_t rows) const {
    using Named = sdk::Arguments<Serving::Op>;
    jsd.input(&Named::logits, scores, of.score, rows, of.V);
    jsd.input(&Named::teacher_logits, teacher.scores, of.score, rows, of.V);
    give(jsd, &Named::mask, call.mask, first, rows);
    take(jsd, &Named::loss, call.loss, first, rows);
    take(jsd, &Named::lse, call.lse, first, rows);
    take(jsd, &Named::teacher_lse, call.teacher_lse, first, rows);
    take(jsd, &Named::student_kl, call.student_kl, first, rows);
    jsd.symbol(&Named::N, rows);
    jsd.symbol(&Named::V, of.V);
  }
};

// --- backward --------------------------------------------------------------------------------------------------------

struct BackwardParts : TeacherParts<GradientBuffers> {
  using Op = Backward;
  using Serving = ServingOf<sdk::ops::JsdBackward, Maps>::type;
  using Arguments = sdk::Arguments<Op>;
  using TeacherParts::TeacherParts;
  static ChunkKernels::Active active(const Arguments& call, int64_t first) {
    return {nullptr, false, 0, from_row(call.mask, first)};
  }
  static rlk_jsd_backward_params inner_params(const Arguments& call) {
    return params_of(call.params, rlk_jsd_backward_params RLK_JSD_BACKWARD_PARAMS_INIT);
  }
  void describe(InnerCall<Serving::Op>& jsd, const Arguments& call, const Scores& of, int64_t first,
                int64_t rows) const {
    using Named = sdk::Arguments<Serving::Op>;
    jsd.input(&Named::logits, scores, of.score, rows, of.V);
    jsd.input(&Named::teacher_logits, teacher.scores, of.score, rows, of.V);
    give(jsd, &Named::lse, call.lse, first, rows);
    give(jsd, &Named::teacher_lse, call.teacher_lse, first, rows);
    give(jsd, &Named::student_kl, call.student_kl, first, rows);
    give(jsd, &Named::grad_loss, call.grad_loss, first, rows);
    give(jsd, &Named::mask, call.mask, first, rows);
    put_slopes(jsd, &Named::grad_logits, &Named::logits, of, rows);
    jsd.symbol(&Named::N, rows);
    jsd.symbol(&Named::V, of.V);
  }
};

template <class Arguments>
sdk::Refusal refuse_teacher(const Arguments& call) {
  if (auto refused = sdk::refuse_gaps(call.teacher_bias, "teacher_bias")) return refused;
  if (auto refused = sdk::refuse_gaps(call.teacher_lse, "teacher_lse")) return refused;
  if (auto refused = sdk::refuse_gaps(call.student_kl, "student_kl")) return refused;
  return refuse_model(Scores(call), *call.teacher_hidden, *call.teacher_weight, "teacher_hidden", "teacher_weight");
}

template <class Arguments>
double teacher_us(const Device& device, const Arguments& call) {
  return scores_us(device, Scores(call), *call.teacher_hidden, *call.teacher_weight);
}

}  // namespace

sdk::Support query(Device& device, const sdk::Call<Forward>& call) {
  const ForwardParts::Arguments arguments = sdk::arguments_of(call);
  if (auto refused = refuse_scores(device, arguments)) return *refused;
  if (auto refused = refuse_teacher(arguments)) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.loss, "loss")) return *refused;
  return support_of_chunks<ForwardParts>(device, arguments,
                                         scores_us(device, arguments) + teacher_us(device, arguments));
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Forward>& call) {
  return std::make_unique<TeacherPlan<ForwardPlan<ForwardParts>>>(device, call);
}

sdk::Support query(Device& device, const sdk::Call<Backward>& call) {
  const BackwardParts::Arguments arguments = sdk::arguments_of(call);
  if (auto refused = refuse_scores(device, arguments)) return *refused;
  if (auto refused = refuse_teacher(arguments)) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_loss, "grad_loss")) return *refused;
  if (auto refused = sdk::refuse_gaps(arguments.grad_bias, "grad_bias")) return *refused;
  if (auto refused = refuse_gradients<BackwardParts>(arguments)) return *refused;
  return support_of_chunks<BackwardParts>(device, arguments,
                                          3 * scores_us(device, arguments) + teacher_us(device, arguments));
}
std::unique_ptr<sdk::Plan> plan(Device& device, const sdk::Call<Backward>& call) {
  return std::make_unique<TeacherPlan<GradientsPlan<BackwardParts>>>(device, call);
}

}  // namespace rlk::products

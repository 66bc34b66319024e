// Divergences between a teacher and a student straight from hidden states, and the gradients of what the student's
// scores are made of.
#include "../projection.hpp"
#include "jsd.hpp"

namespace rlk::composed {

template <class D>
struct ComparedModels {
  Projection<D> student;
  Value x, y;

  template <class Call>
  ComparedModels(D d, const Call& call)
      : student(d, call.hidden, call.weight, kept_rows(*d.recorder, call.mask)),
        x(student.scores(call.bias)),
        y(Projection<D>(d, call.teacher_hidden, call.teacher_weight, kept_rows(*d.recorder, call.mask))
              .scores(call.teacher_bias)) {}
};

}  // namespace rlk::composed

RLK_COMPOSED_LINEAR_SCORES(LinearJsd, (DivergenceOptions{call.params.beta, call.params.temperature}), std::nullopt, {
  const ComparedModels<decltype(d)> models(d, call);
  record_jsd(d, terms, call, models.x, models.y);
})
RLK_COMPOSED_LINEAR_SCORES(LinearJsdBackward, (DivergenceOptions{call.params.beta, call.params.temperature}),
                           std::nullopt, {
                             const ComparedModels<decltype(d)> models(d, call);
                             models.student.gradients(call, jsd_slopes(d, terms, call, models.x, models.y));
                           })

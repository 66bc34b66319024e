// Cross entropy straight from hidden states, the gradients of what the scores are made of, and both at once.
#include "../projection.hpp"
#include "cross_entropy.hpp"

namespace rlk::composed {

// The scores of rows that count, with their bias.
template <class D>
struct EntropyModel {
  Projection<D> projection;
  Value logits;

  template <class Call>
  EntropyModel(D d, const Call& call)
      : projection(d, call.hidden, call.weight,
                   Targets(*d.recorder, call.ids, call.mask, call.params.ignore_index, call.V).active()),
        logits(projection.scores(call.bias)) {}
};

}  // namespace rlk::composed

RLK_COMPOSED_LINEAR_SCORES(LinearCrossEntropy, terms_of_entropy(call), refuse_ids(call.V),
                           { record_cross_entropy(d, terms, call, EntropyModel<decltype(d)>(d, call).logits); })
RLK_COMPOSED_LINEAR_SCORES(LinearCrossEntropyBackward, terms_of_entropy(call), refuse_ids(call.V), {
  const EntropyModel<decltype(d)> model(d, call);
  model.projection.gradients(call, slopes_of_entropy(d, terms, call, model.logits));
})
// The loss itself has a gradient of 1.
RLK_COMPOSED_LINEAR_SCORES(FusedLinearCrossEntropy, terms_of_entropy(call), refuse_ids(call.V), {
  const EntropyModel<decltype(d)> model(d, call);
  const V lse = record_cross_entropy(d, terms, call, model.logits);
  model.projection.gradients(call, slopes_of_entropy(d, terms, call, model.logits, lse, number(d, 1), Zero(d)));
})

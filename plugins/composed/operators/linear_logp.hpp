// Log-probabilities of chosen tokens straight from hidden states, and the gradients of what the scores are made of.
#include "../projection.hpp"
#include "logp.hpp"

RLK_COMPOSED_LINEAR_SCORES(LinearLogp, logp_options(call), refuse_ids(entries_of(call).all), {
  const Projection<decltype(d)> model(d, call.hidden, call.weight, targets_of(recorder, call).active());
  record_logp(d, terms, call, LogitRows(recorder, View(), call.N), model.scores());
})
RLK_COMPOSED_LINEAR_SCORES(LinearLogpBackward, logp_options(call), refuse_ids(entries_of(call).all), {
  const LogpTokens<decltype(d)> tokens(d, call, View(), call.N);
  const Projection<decltype(d)> model(d, call.hidden, call.weight, tokens.targets.active());
  model.gradients(call, logp_slopes(d, terms, call, tokens, model.scores()));
})

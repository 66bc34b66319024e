// A program in C++ that uses an installed rlk: logp, its gradient, a data error, an unknown name. Exits with 0 when
// each is as the operators' declarations say.
#include <rlk/ops/logp.h>
#include <rlk/ops/logp_backward.h>
#include <rlk/rlk.hpp>

#include <cmath>
#include <cstdio>

namespace {

bool near(double got, double expected, const char* what) {
  if (std::fabs(got - expected) < 1e-6) return true;
  std::fprintf(stderr, "%s is %.9g, expected %.9g\n", what, got, expected);
  return false;
}

// Runs the action, which must fail with this status.
template <class Action>
bool refused(rlk_status expected, const char* what, Action&& action) {
  try {
    action();
  } catch (const rlk::Exception& error) {
    if (error.status() == expected && error.what()[0] != 0) return true;
    std::fprintf(stderr, "%s: status %d, expected %d: %s\n", what, static_cast<int>(error.status()),
                 static_cast<int>(expected), error.what());
    return false;
  }
  std::fprintf(stderr, "%s was not refused\n", what);
  return false;
}

bool run() {
  const rlk::Runtime runtime;
  const rlk::Stream stream = runtime.stream("cpu");
  float logits[2][3] = {{0, 1, 2}, {3, 3, 3}};
  int64_t ids[2] = {2, 0};
  float logp[2] = {}, lse[2] = {}, grad_logp[2] = {1, 2}, grad_logits[2][3] = {};
  const rlk::Tensor logits_tensor(logits, rlk::kF32, {2, 3}), ids_tensor(ids, rlk::kI64, {2});

  rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  params.temperature = 0.5;
  rlk::call(stream, "logp", &params, {logits_tensor, ids_tensor, {}, {}, {}},
            {rlk::Tensor(logp, rlk::kF32, {2}), rlk::Tensor(lse, rlk::kF32, {2}), {}});
  stream.synchronize();
  const double expected_lse = std::log(1 + std::exp(2.0) + std::exp(4.0));
  bool good = near(lse[0], expected_lse, "lse[0]") && near(logp[0], 4 - expected_lse, "logp[0]") &&
              near(logp[1], -std::log(3.0), "logp[1]");

  rlk_logp_backward_params backward = RLK_LOGP_BACKWARD_PARAMS_INIT;
  backward.temperature = 0.5;
  rlk::call(stream, "logp_backward", &backward,
            {logits_tensor,
             ids_tensor,
             rlk::Tensor(lse, rlk::kF32, {2}),
             rlk::Tensor(grad_logp, rlk::kF32, {2}),
             {},
             {},
             {},
             {},
             {},
             {}},
            {rlk::Tensor(grad_logits, rlk::kF32, {2, 3}), {}});
  stream.synchronize();
  good = near(grad_logits[1][0], 2 * (1 - 1.0 / 3) / 0.5, "grad_logits[1][0]") &&
         near(grad_logits[1][2], 2 * (0 - 1.0 / 3) / 0.5, "grad_logits[1][2]") && good;

  ids[0] = 3;  // outside the vocabulary, so an error of the data and not of the call
  rlk::call(stream, "logp", nullptr, {logits_tensor, ids_tensor, {}, {}, {}},
            {rlk::Tensor(logp, rlk::kF32, {2}), {}, {}});
  good = refused(RLK_DATA_ERROR, "an id out of range", [&] { stream.synchronize(); }) && good;
  good = near(logp[1], -std::log(3.0), "logp[1] beside a data error") && std::isnan(logp[0]) && good;
  return refused(RLK_NOT_FOUND, "an unknown operator", [&] { rlk::call(stream, "logpp", nullptr, {}, {}); }) && good;
}

}  // namespace

int main() {
  try {
    return run() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

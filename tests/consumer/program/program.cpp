// A program in C++ that uses an installed rlk: logp, its gradient, a data error, an unknown name. Exits with 0 when
// each is as the operators' declarations say.
#include <rlk/ops/logp.hpp>
#include <rlk/ops/logp_backward.hpp>
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
  rlk::ops::Logp call;
  call.in.logits = rlk::Tensor(logits, rlk::kF32, {2, 3});
  call.in.ids = rlk::Tensor(ids, rlk::kI64, {2});
  call.out.logp = rlk::Tensor(logp, rlk::kF32, {2});
  call.out.lse = rlk::Tensor(lse, rlk::kF32, {2});
  call.params.temperature = 0.5;
  call(stream);
  stream.synchronize();
  const double expected_lse = std::log(1 + std::exp(2.0) + std::exp(4.0));
  bool good = near(lse[0], expected_lse, "lse[0]") && near(logp[0], 4 - expected_lse, "logp[0]") &&
              near(logp[1], -std::log(3.0), "logp[1]");

  rlk::ops::LogpBackward backward;
  backward.in.logits = call.in.logits;
  backward.in.ids = call.in.ids;
  backward.in.lse = call.out.lse;
  backward.in.grad_logp = rlk::Tensor(grad_logp, rlk::kF32, {2});
  backward.out.grad_logits = rlk::Tensor(grad_logits, rlk::kF32, {2, 3});
  backward.params.temperature = 0.5;
  backward(stream);
  stream.synchronize();
  good = near(grad_logits[1][0], 2 * (1 - 1.0 / 3) / 0.5, "grad_logits[1][0]") &&
         near(grad_logits[1][2], 2 * (0 - 1.0 / 3) / 0.5, "grad_logits[1][2]") && good;

  ids[0] = 3;  // outside the vocabulary, so an error of the data and not of the call
  call.out.lse = {};
  call(stream);
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

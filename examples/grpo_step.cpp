// One GRPO step from .npy files: log-probabilities, ratio and KL, advantages, loss, and the gradient of the logits,
// each by an operator of its own; then the same by grpo_loss and its backward, which must agree. Written for reading:
// every step is a call that a trainer makes on its own stream and its own memory.
//
//   grpo_step FOLDER [--samples-per-prompt N] [--beta BETA] [--backend NAME]
//
// reads from FOLDER  logits [B, T, V] f32, ref_logits [B, T, V] f32, ids [B, T] i64, old_logp [B, T] f32,
//                    rewards [B] f32, mask [B, T] u8; the samples of a prompt stand together
// writes to FOLDER   loss.npy [1], grad_logits.npy [B, T, V]
#include <rlk/ops/group_advantages.hpp>
#include <rlk/ops/grpo_loss.hpp>
#include <rlk/ops/grpo_loss_backward.hpp>
#include <rlk/ops/logp.hpp>
#include <rlk/ops/logp_backward.hpp>
#include <rlk/ops/policy_loss.hpp>
#include <rlk/ops/policy_loss_backward.hpp>
#include <rlk/ops/ratio_kl.hpp>
#include <rlk/rlk.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <sstream>

#include "device_array.hpp"
#include "npy.hpp"

namespace {

// The two ways may differ by this much of the loss (at least of 1) and of the largest gradient: twice what logp
// promises for a log-probability, which both pass through exp.
constexpr double kTolerance = 4e-5;

struct Settings {
  std::string folder, backend = "cpu";
  int64_t samples_per_prompt = 4;
  double beta = 0.04;
};

struct Batch {
  npy::Array<float> logits, ref_logits, old_logp, rewards;
  npy::Array<int64_t> ids;
  npy::Array<uint8_t> mask;
  int64_t b = 0, t = 0, v = 0, active = 0;
};

struct Step {
  float loss = 0, kl = 0;
  std::vector<float> grad_logits;
};

// The batch on the device.
struct Inputs {
  Inputs(const rlk::Stream& stream, const Batch& batch)
      : logits(stream, batch.logits.values),
        ref_logits(stream, batch.ref_logits.values),
        old_logp(stream, batch.old_logp.values),
        rewards(stream, batch.rewards.values),
        grad_loss(stream, std::vector<float>{1}),
        ids(stream, batch.ids.values),
        mask(stream, batch.mask.values) {}
  DeviceArray<float> logits, ref_logits, old_logp, rewards, grad_loss;
  DeviceArray<int64_t> ids;
  DeviceArray<uint8_t> mask;
};

template <class T>
npy::Array<T> read(const Settings& settings, const char* name, const std::vector<int64_t>& shape) {
  const std::string path = settings.folder + "/" + name + ".npy";
  npy::Array<T> array = npy::read<T>(path);
  if (!shape.empty() && array.shape != shape) {
    throw std::runtime_error(path + ": has shape " + npy::text_of(array.shape) + ", expected " + npy::text_of(shape) +
                             " to go with logits.npy; save the arrays of one batch");
  }
  return array;
}

Batch read_batch(const Settings& settings) {
  Batch batch;
  batch.logits = read<float>(settings, "logits", {});
  const std::vector<int64_t>& shape = batch.logits.shape;
  if (shape.size() != 3) {
    throw std::runtime_error(settings.folder + "/logits.npy: has shape " + npy::text_of(shape) +
                             ", expected [sequences, tokens, vocabulary]; reshape it");
  }
  batch.b = shape[0], batch.t = shape[1], batch.v = shape[2];
  batch.ref_logits = read<float>(settings, "ref_logits", shape);
  batch.ids = read<int64_t>(settings, "ids", {batch.b, batch.t});
  batch.old_logp = read<float>(settings, "old_logp", {batch.b, batch.t});
  batch.rewards = read<float>(settings, "rewards", {batch.b});
  batch.mask = read<uint8_t>(settings, "mask", {batch.b, batch.t});
  // policy_loss sees no ids, so an ignored id has to be in the mask for it.
  const rlk_grpo_loss_params defaults = RLK_GRPO_LOSS_PARAMS_INIT;
  for (size_t i = 0; i < batch.ids.values.size(); ++i) {
    if (batch.ids.values[i] == defaults.ignore_index) batch.mask.values[i] = 0;
    batch.active += batch.mask.values[i] != 0 ? 1 : 0;
  }
  return batch;
}

Step separate_step(const rlk::Stream& stream, const Settings& settings, const Batch& batch, const Inputs& in) {
  const std::vector<int64_t> rows = {batch.b * batch.t, batch.v}, tokens = {batch.b * batch.t};
  const std::vector<int64_t> padded = {batch.b, batch.t};
  const auto floats = [&](int64_t count) { return DeviceArray<float>(stream, count); };
  const auto logp = floats(tokens[0]), lse = floats(tokens[0]), ref_logp = floats(tokens[0]);
  rlk::ops::Logp of_policy;
  of_policy.in.logits = in.logits.as(rows);
  of_policy.in.ids = in.ids.as(tokens);
  of_policy.in.mask = in.mask.as(tokens);
  of_policy.out.logp = logp.as(tokens);
  of_policy.out.lse = lse.as(tokens);
  of_policy(stream);

  rlk::ops::Logp of_reference;
  of_reference.in = of_policy.in;
  of_reference.in.logits = in.ref_logits.as(rows);
  of_reference.out.logp = ref_logp.as(tokens);
  of_reference(stream);

  const auto ratio = floats(tokens[0]), kl = floats(tokens[0]);
  rlk::ops::RatioKl ratio_kl;
  ratio_kl.in.logp = logp.as(tokens);
  ratio_kl.in.old_logp = in.old_logp.as(tokens);
  ratio_kl.in.ref_logp = ref_logp.as(tokens);
  ratio_kl.in.mask = in.mask.as(tokens);
  ratio_kl.out.ratio = ratio.as(tokens);
  ratio_kl.out.kl = kl.as(tokens);
  ratio_kl(stream);

  // The standard deviation of grpo_loss by default; the default here is that of TRL and verl.
  const auto advantages = floats(batch.b);
  rlk::ops::GroupAdvantages group;
  group.params.samples_per_prompt = settings.samples_per_prompt;
  group.params.std = RLK_GROUP_ADVANTAGES_STD_POPULATION;
  group.params.eps_mode = RLK_GROUP_ADVANTAGES_EPS_MODE_MAX_CLAMP;
  group.in.rewards = in.rewards.as({batch.b});
  group.out.advantages = advantages.as({batch.b});
  group(stream);

  const auto loss = floats(1), metrics = floats(RLK_POLICY_LOSS_N_METRICS);
  rlk::ops::PolicyLoss policy;
  policy.params.beta = settings.beta;
  policy.in.logp = logp.as(padded);
  policy.in.advantages = advantages.as(padded, {1, 0});  // one per sequence: stride 0 repeats it along the tokens
  policy.in.old_logp = in.old_logp.as(padded);
  policy.in.mask = in.mask.as(padded);
  policy.in.ref_logp = ref_logp.as(padded);
  policy.out.loss = loss.as({1});
  policy.out.metrics = metrics.as({RLK_POLICY_LOSS_N_METRICS});
  policy(stream);

  const auto grad_logp = floats(tokens[0]), grad_logits = floats(rows[0] * rows[1]);
  rlk::ops::PolicyLossBackward policy_backward;
  policy_backward.params.beta = settings.beta;
  policy_backward.in.logp = policy.in.logp;
  policy_backward.in.advantages = policy.in.advantages;
  policy_backward.in.grad_loss = in.grad_loss.as({1});
  policy_backward.in.old_logp = policy.in.old_logp;
  policy_backward.in.mask = policy.in.mask;
  policy_backward.in.ref_logp = policy.in.ref_logp;
  policy_backward.out.grad_logp = grad_logp.as(padded);
  policy_backward(stream);

  rlk::ops::LogpBackward logp_backward;
  logp_backward.in.logits = in.logits.as(rows);
  logp_backward.in.ids = in.ids.as(tokens);
  logp_backward.in.lse = lse.as(tokens);
  logp_backward.in.grad_logp = grad_logp.as(tokens);
  logp_backward.in.mask = in.mask.as(tokens);
  logp_backward.out.grad_logits = grad_logits.as(rows);
  logp_backward(stream);

  Step step;
  step.loss = loss.host()[0];
  double kl_sum = 0, ratio_sum = 0;
  const std::vector<float> kls = kl.host(), ratios = ratio.host();
  for (size_t i = 0; i < kls.size(); ++i) {
    if (batch.mask.values[i] != 0) kl_sum += kls[i], ratio_sum += ratios[i];
  }
  const auto active = static_cast<double>(std::max<int64_t>(batch.active, 1));
  step.kl = static_cast<float>(kl_sum / active);
  step.grad_logits = grad_logits.host();
  std::printf("mean ratio %.6g, clip fraction %.6g\n", ratio_sum / active,
              static_cast<double>(metrics.host()[RLK_POLICY_LOSS_METRICS_CLIP_FRACTION]));
  return step;
}

Step composite_step(const rlk::Stream& stream, const Settings& settings, const Batch& batch, const Inputs& in) {
  const std::vector<int64_t> rows = {batch.b, batch.t, batch.v}, tokens = {batch.b, batch.t};
  const auto floats = [&](int64_t count) { return DeviceArray<float>(stream, count); };
  const auto loss = floats(1), kl = floats(1), grad_logits = floats(batch.b * batch.t * batch.v);
  const auto lse = floats(batch.b * batch.t), ref_logp = floats(batch.b * batch.t);
  rlk::ops::GrpoLoss grpo;
  grpo.params.samples_per_prompt = settings.samples_per_prompt;
  grpo.params.beta = settings.beta;
  grpo.in.logits = in.logits.as(rows);
  grpo.in.ids = in.ids.as(tokens);
  grpo.in.old_logp = in.old_logp.as(tokens);
  grpo.in.rewards = in.rewards.as({batch.b});
  grpo.in.ref_logits = in.ref_logits.as(rows);
  grpo.in.mask = in.mask.as(tokens);
  grpo.out.loss = loss.as({1});
  grpo.out.kl = kl.as({1});
  grpo.out.lse = lse.as(tokens);
  grpo.out.ref_logp = ref_logp.as(tokens);
  grpo(stream);

  rlk::ops::GrpoLossBackward backward;
  backward.params.samples_per_prompt = settings.samples_per_prompt;
  backward.params.beta = settings.beta;
  backward.in.logits = grpo.in.logits;
  backward.in.ids = grpo.in.ids;
  backward.in.old_logp = grpo.in.old_logp;
  backward.in.rewards = grpo.in.rewards;
  backward.in.lse = grpo.out.lse;
  backward.in.grad_loss = in.grad_loss.as({1});
  backward.in.ref_logp = grpo.out.ref_logp;
  backward.in.mask = grpo.in.mask;
  backward.out.grad_logits = grad_logits.as(rows);
  backward(stream);
  return {loss.host()[0], kl.host()[0], grad_logits.host()};
}

double norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

// Prints both; true when they agree. Not a number agrees with nothing.
bool compare(const Step& separate, const Step& composite) {
  const auto line = [](const char* name, double one, double other) {
    std::printf("%-14s %14.7g %14.7g\n", name, one, other);
  };
  std::printf("%-14s %14s %14s\n", "", "separate", "composite");
  line("loss", separate.loss, composite.loss);
  line("mean KL", separate.kl, composite.kl);
  line("gradient norm", norm(separate.grad_logits), norm(composite.grad_logits));
  double largest = 0, difference = 0;
  bool finite = std::isfinite(separate.loss) && std::isfinite(composite.loss);
  for (size_t i = 0; i < separate.grad_logits.size(); ++i) {
    const double one = separate.grad_logits[i], other = composite.grad_logits[i];
    finite = finite && std::isfinite(one) && std::isfinite(other);
    largest = std::max(largest, std::fabs(one));
    difference = std::max(difference, std::fabs(one - other));
  }
  const double loss_difference = std::fabs(static_cast<double>(separate.loss) - static_cast<double>(composite.loss));
  const double loss_limit = kTolerance * std::max(1.0, std::fabs(static_cast<double>(separate.loss)));
  std::printf("difference of the loss %.3g, at most %.3g; of the gradient %.3g, at most %.3g\n", loss_difference,
              loss_limit, difference, kTolerance * largest);
  return finite && loss_difference <= loss_limit && difference <= kTolerance * largest;
}

template <class T>
bool number(const std::string& word, T* out) {
  std::istringstream text(word);
  return text >> *out && text.peek() == std::istringstream::traits_type::eof();
}

Settings parse(const std::vector<std::string>& words) {
  const std::string usage = "usage: grpo_step FOLDER [--samples-per-prompt N] [--beta BETA] [--backend NAME]";
  Settings settings;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& name = words[i];
    bool good = true;
    if (name == "--samples-per-prompt" && i + 1 < words.size()) {
      good = number(words[++i], &settings.samples_per_prompt);
    } else if (name == "--beta" && i + 1 < words.size()) {
      good = number(words[++i], &settings.beta);
    } else if (name == "--backend" && i + 1 < words.size()) {
      settings.backend = words[++i];
    } else {
      good = settings.folder.empty() && name.compare(0, 1, "-") != 0;
      settings.folder = name;
    }
    if (!good) throw std::invalid_argument("'" + words[i] + "' was not understood; " + usage);
  }
  if (settings.folder.empty()) throw std::invalid_argument("no folder was named; " + usage);
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Settings settings = parse({argv + 1, argv + argc});
    const Batch batch = read_batch(settings);
    const rlk::Runtime runtime;
    const rlk::Stream stream = runtime.stream(settings.backend.c_str());
    const Inputs inputs(stream, batch);
    std::printf("%lld sequences of %lld tokens, %lld active, vocabulary %lld, on %s\n", static_cast<long long>(batch.b),
                static_cast<long long>(batch.t), static_cast<long long>(batch.active), static_cast<long long>(batch.v),
                settings.backend.c_str());
    const Step separate = separate_step(stream, settings, batch, inputs);
    const Step composite = composite_step(stream, settings, batch, inputs);
    npy::write<float>(settings.folder + "/loss.npy", {1}, {separate.loss});
    npy::write<float>(settings.folder + "/grad_logits.npy", batch.logits.shape, separate.grad_logits);
    if (compare(separate, composite)) return 0;
    std::fprintf(stderr, "grpo_step: the separate operators and grpo_loss differ; run `rlk-plugins doctor`\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "grpo_step: %s\n", error.what());
  }
  return 1;
}

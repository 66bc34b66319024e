// logp_backward: options, missing gradients and work in place against the loop.
#include "reference.hpp"

#include <algorithm>
#include <cstdio>

namespace selfcheck {
namespace {

struct BackwardCase {
  LogpCase forward;
  bool grad_lse = false, grad_entropy = false, grad_bias = false, in_place = false;
  std::vector<double> lse, entropy, g_logp, g_lse, g_entropy;
};

struct Gradient {
  std::vector<double> value, condition, bias, bias_condition;
  bool error = false;
};

Gradient reference(const BackwardCase& b, const std::vector<LogpRow>& rows) {
  const LogpCase& c = b.forward;
  Gradient out;
  out.value.assign(static_cast<size_t>(c.rows * c.vocab), 0);
  out.condition = out.value;
  out.bias.assign(static_cast<size_t>(c.vocab), 0);
  out.bias_condition = out.bias;
  int64_t highest = -1;
  for (size_t n = 0; n < rows.size(); ++n) {
    const LogpRow& r = rows[n];
    bool bad = r.kind != 0;
    if (!bad && r.row >= 0 && c.indexed && r.row <= highest) bad = true;
    out.error = out.error || bad;
    if (r.row < 0) continue;
    highest = std::max(highest, r.row);
    for (int64_t v = 0; v < c.vocab; ++v) {
      const size_t at = static_cast<size_t>(r.row * c.vocab + v);
      double x = c.logits[at] + (c.bias ? c.bias_values[static_cast<size_t>(v)] : 0);
      if (bad) {
        out.value[at] = kNan;
        continue;
      }
      if (x == -kInf) continue;
      const double z = transformed(c, r.row, v) / c.temperature, log_p = z - b.lse[n], p = std::exp(log_p);
      const double target = v == r.target ? 1 : 0;
      const double g_lse = b.grad_lse ? b.g_lse[n] : 0, g_entropy = b.grad_entropy ? b.g_entropy[n] : 0;
      double dz = b.g_logp[n] * (target - p) + g_lse * p;
      if (b.grad_entropy) dz -= g_entropy * p * (log_p + b.entropy[n]);
      double slope = 1 / c.temperature, slope_error = slope;
      if (c.softcap > 0) slope *= 1 - std::pow(std::tanh(x / c.softcap), 2);
      if (c.softcap == 0) slope_error = slope;
      const double log_error = std::fabs(z) + std::fabs(b.lse[n]), p_error = p * (1 + log_error) + 0x1p-103;
      const double size = std::fabs(b.g_logp[n]) * (target + p_error) + std::fabs(g_lse) * p_error +
                          std::fabs(g_entropy) * (p_error * std::fabs(log_p + (b.grad_entropy ? b.entropy[n] : 0)) +
                                                  p * (log_error + (b.grad_entropy ? std::fabs(b.entropy[n]) : 0)));
      out.value[at] = dz * slope;
      out.condition[at] = size * slope + std::fabs(dz) * slope_error + 0x1p-103;
      out.bias[static_cast<size_t>(v)] += out.value[at];
      out.bias_condition[static_cast<size_t>(v)] += out.condition[at];
    }
  }
  if (out.error) std::fill(out.bias.begin(), out.bias.end(), kNan);
  return out;
}

struct Result {
  std::vector<double> grad, bias;
  rlk_status status = RLK_OK;
};

Result run(Plugin& plugin, Report& report, const BackwardCase& b) {
  const LogpCase& c = b.forward;
  const Type accumulator = accumulator_of(c.type);
  Tensor logits(plugin, c.type, {c.rows, c.vocab}, c.padding, c.offset), ids(plugin, c.ids_type, {c.tokens});
  Tensor grad(plugin, c.type, {c.rows, c.vocab}, c.padding, c.offset);
  Tensor lse(plugin, accumulator, {c.tokens}), entropy(plugin, accumulator, {c.tokens}),
      g_logp(plugin, c.out_type, {c.tokens});
  Tensor g_lse(plugin, accumulator, {c.tokens}), g_entropy(plugin, accumulator, {c.tokens}),
      bias(plugin, c.type, {c.vocab});
  Tensor mask(plugin, Type::u8, {c.tokens}), indices(plugin, Type::i64, {c.tokens}),
      grad_bias(plugin, accumulator, {c.vocab});
  logits.upload(c.logits);
  ids.upload(c.ids);
  lse.upload(b.lse);
  entropy.upload(b.entropy);
  g_logp.upload(b.g_logp);
  g_lse.upload(b.g_lse);
  g_entropy.upload(b.g_entropy);
  if (c.bias) bias.upload(c.bias_values);
  mask.upload(c.mask_values);
  indices.upload(c.indices);
  rlk_logp_backward_params params = RLK_LOGP_BACKWARD_PARAMS_INIT;
  params.temperature = c.temperature;
  params.softcap = c.softcap;
  params.ignore_index = c.ignore_index;
  params.vocab_start = c.vocab_start;
  params.global_vocab = c.global_vocab;
  Tensor& target = b.in_place ? logits : grad;
  Call call(plugin, plugin.find("logp_backward", "columns"), &params,
            {&logits, &ids, &lse, &g_logp, b.grad_lse ? &g_lse : nullptr, b.grad_entropy ? &g_entropy : nullptr,
             b.grad_entropy ? &entropy : nullptr, c.bias ? &bias : nullptr, c.mask ? &mask : nullptr,
             c.indexed ? &indices : nullptr},
            {&target, b.grad_bias ? &grad_bias : nullptr}, {c.tokens, c.rows, c.vocab}, {b.in_place ? 0 : -1, -1});
  call.enqueue();
  Result out;
  rlk_data_error error;
  out.status = plugin.synchronize(error);
  out.grad = target.download();
  if (b.grad_bias) out.bias = grad_bias.download();
  report.check(target.red_zones_intact() && grad_bias.red_zones_intact(), "logp_backward red zones, " + c.text());
  return out;
}

std::string text(const BackwardCase& b) {
  char extra[96];
  std::snprintf(extra, sizeof(extra), " g_lse %d g_H %d g_bias %d in place %d", b.grad_lse, b.grad_entropy, b.grad_bias,
                b.in_place);
  return b.forward.text() + extra;
}

void compare(Report& report, const BackwardCase& b, const Result& got, const Gradient& expected) {
  const Type accumulator = accumulator_of(b.forward.type);
  const double epsilon = 8 * epsilon_of(accumulator);
  double worst = 0, worst_bias = 0;
  for (size_t i = 0; i < expected.value.size(); ++i) {
    worst =
        std::max(worst, error_ratio(b.forward.type, got.grad[i], expected.value[i], epsilon * expected.condition[i]));
  }
  for (size_t v = 0; b.grad_bias && v < expected.bias.size(); ++v) {
    worst_bias = std::max(
        worst_bias, error_ratio(accumulator, got.bias[v], expected.bias[v], epsilon * expected.bias_condition[v]));
  }
  report.ratio(worst, "logp_backward " + text(b));
  report.ratio(worst_bias, "logp_backward grad_bias " + text(b));
  report.check((got.status == RLK_DATA_ERROR) == expected.error, "logp_backward data error or not, " + text(b));
}

void prepare(BackwardCase& b, uint64_t seed, std::vector<LogpRow>& rows) {
  LogpCase& c = b.forward;
  const Type accumulator = accumulator_of(c.type);
  rows = reference_logp(c);
  for (size_t n = 0; n < rows.size(); ++n) {
    b.lse.push_back(round_to(accumulator, rows[n].lse));
    b.entropy.push_back(round_to(accumulator, rows[n].entropy));
    b.g_logp.push_back(round_to(c.out_type, normal(seed + 11, n)));
    b.g_lse.push_back(round_to(accumulator, normal(seed + 12, n)));
    b.g_entropy.push_back(round_to(accumulator, normal(seed + 13, n)));
  }
}

}  // namespace

void check_logp_backward(Plugin& plugin, Report& report) {
  const std::pair<int64_t, int64_t> sizes[] = {{0, 37},   {1, 1},    {5, 37},   {33, 129},  {7, 1031},
                                               {300, 40}, {6, 4096}, {3, 9001}, {2, 151936}};
  uint64_t seed = 5000;
  for (const Type type : {Type::f32, Type::bf16, Type::f16, Type::f64}) {
    for (const auto& [tokens, vocab] : sizes) {
      for (int option = 0; option < 10; ++option) {
        BackwardCase b;
        LogpCase& c = b.forward;
        const auto chance = [&](int salt) { return uniform(seed * 31 + static_cast<uint64_t>(salt), 0) < 0.4; };
        c.type = type;
        c.ids_type = chance(1) ? Type::i32 : Type::i64;
        c.out_type = chance(2) ? type : accumulator_of(type);
        c.tokens = tokens;
        c.vocab = vocab;
        c.indexed = option > 0 && chance(3);
        c.rows = c.indexed ? tokens + 3 : tokens;
        c.temperature = option > 0 && chance(4) ? 0.7 : 1;
        c.softcap = option > 1 && chance(5) ? 3 : 0;
        c.bias = option > 1 && chance(6);
        c.mask = option > 0 && chance(7);
        if (chance(12)) c.offset = 3;
        if (chance(13)) c.padding = 5;
        b.grad_lse = option > 0 && chance(14);
        b.grad_entropy = option > 0 && chance(15);
        b.grad_bias = option > 0 && chance(16);
        b.in_place = chance(17);
        fill(c, ++seed, false);
        std::vector<LogpRow> rows;
        prepare(b, seed, rows);
        compare(report, b, run(plugin, report, b), reference(b, rows));
      }
    }
    // Indices out of order, across and inside blocks of tokens; a long ignored run between active tokens.
    for (int fault = 0; fault < 4; ++fault) {
      BackwardCase b;
      LogpCase& c = b.forward;
      c.type = type;
      c.out_type = accumulator_of(type);
      c.tokens = c.rows = 1000;
      c.vocab = 40;
      c.indexed = true;
      b.grad_bias = true;
      fill(c, ++seed, false);
      for (size_t n = 100; n < 900; ++n) {
        if (fault == 3) c.ids[n] = static_cast<double>(c.ignore_index);
      }
      const size_t at = fault == 0 ? 512 : fault == 1 ? 700 : 901;
      if (c.ids[at] == static_cast<double>(c.ignore_index)) c.ids[at] = 1;
      if (fault < 2)
        c.indices[at] = c.indices[at - 1] < 0 || c.indices[at - 1] > 1e6 ? c.indices[at - 2] : c.indices[at - 1];
      if (fault == 2) c.indices[at] = 5000;
      if (fault == 3) c.indices[at] = 99;
      for (double& logit : c.logits) logit = std::max(logit, -20.0);
      std::vector<LogpRow> rows;
      prepare(b, seed, rows);
      compare(report, b, run(plugin, report, b), reference(b, rows));
    }
  }
}

}  // namespace selfcheck

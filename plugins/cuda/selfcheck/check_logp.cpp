// logp: options, shards, data errors, and bits that do not depend on the batch.
#include "reference.hpp"

#include <algorithm>
#include <cstdio>

namespace selfcheck {

std::string LogpCase::text() const {
  char buffer[256];
  std::snprintf(
      buffer, sizeof(buffer),
      "%s ids %s out %s N %ld R %ld V %ld T %g cap %g shard %ld/%ld bias %d mask %d idx %d H %d off %ld pad %ld",
      name_of(type), name_of(ids_type), name_of(out_type), tokens, rows, vocab, temperature, softcap, vocab_start,
      global_vocab, bias, mask, indexed, entropy, offset, padding);
  return buffer;
}

void fill(LogpCase& c, uint64_t seed, bool nan) {
  c.logits.resize(static_cast<size_t>(c.rows * c.vocab));
  for (size_t i = 0; i < c.logits.size(); ++i) {
    c.logits[i] = uniform(seed + 1, i) < 0.02 ? -kInf : round_to(c.type, 4 * normal(seed, i));
  }
  if (nan && c.rows > 2) c.logits[static_cast<size_t>(c.vocab * 2 + c.vocab / 2)] = kNan;
  if (c.bias) {
    c.bias_values.resize(static_cast<size_t>(c.vocab));
    for (size_t v = 0; v < c.bias_values.size(); ++v) c.bias_values[v] = round_to(c.type, normal(seed + 2, v));
  }
  c.ids.resize(static_cast<size_t>(c.tokens));
  c.mask_values.assign(c.ids.size(), 1);
  c.indices.resize(c.ids.size());
  for (size_t n = 0; n < c.ids.size(); ++n) {
    c.ids[n] = std::floor(uniform(seed + 3, n) * static_cast<double>(c.limit()));
    c.indices[n] =
        static_cast<double>(n) + (c.rows > c.tokens && n >= c.ids.size() / 2 ? 2 : 0);  // increasing, with a gap
    if (n % 5 == 3) c.ids[n] = static_cast<double>(c.ignore_index);
    if (c.mask && n % 5 == 4) {
      c.mask_values[n] = 0;
      c.ids[n] = 1e9;
    }
    // Ignored tokens name rows that do not exist.
    if (n % 5 == 3 || (c.mask && n % 5 == 4)) c.indices[n] = n % 2 == 0 ? -12345 : 1e12;
  }
}

double transformed(const LogpCase& c, int64_t row, int64_t column) {
  double x = c.logits[static_cast<size_t>(row * c.vocab + column)];
  if (c.bias) x += c.bias_values[static_cast<size_t>(column)];
  return c.softcap > 0 ? c.softcap * std::tanh(x / c.softcap) : x;
}

std::vector<LogpRow> reference_logp(const LogpCase& c) {
  std::vector<LogpRow> out(static_cast<size_t>(c.tokens));
  parallel(c.tokens, [&](int64_t i) {
    const size_t n = static_cast<size_t>(i);
    LogpRow& r = out[n];
    const int64_t id = static_cast<int64_t>(c.ids[n]);
    if (id == c.ignore_index || (c.mask && c.mask_values[n] == 0)) return;
    const int64_t row = c.indexed ? static_cast<int64_t>(c.indices[n]) : i;
    if (row >= 0 && row < c.rows) r.row = row;
    if (r.row < 0) r.kind = RLK_DATA_ROW_OUT_OF_RANGE;
    if (id < 0 || id >= c.limit()) r.kind = RLK_DATA_ID_OUT_OF_RANGE;
    bool nan = false, finite = false;
    double top = -kInf;
    for (int64_t v = 0; r.kind == 0 && v < c.vocab; ++v) {
      const double y = transformed(c, row, v);
      nan = nan || std::isnan(y);
      finite = finite || y > -kInf;
      top = std::max(top, y / c.temperature);
    }
    if (r.kind == 0 && !nan && !finite && !c.sharded()) r.kind = RLK_DATA_NO_FINITE_LOGIT;
    if (id >= c.vocab_start && id < c.vocab_start + c.vocab) r.target = id - c.vocab_start;
    if (r.kind != 0 || nan) {
      r.logp = r.lse = r.entropy = kNan;
      if (r.kind == 0 && r.target < 0) r.logp = -kInf;  // another shard's, whatever is here
      return;
    }
    double sum = 0, weighted = 0;
    for (int64_t v = 0; v < c.vocab; ++v) {
      const double z = transformed(c, row, v) / c.temperature, e = std::exp(z - top);
      if (z == -kInf) continue;
      sum += e;
      weighted += e * (z - top);
    }
    if (sum == 0) {
      r.lse = r.logp = -kInf;
      return;
    }
    r.lse = top + std::log(sum);
    r.entropy = std::log(sum) - weighted / sum;
    const double z = r.target >= 0 ? transformed(c, row, r.target) / c.temperature : -kInf;
    r.logp = z - r.lse;
    r.condition =
        1 + std::fabs(r.lse) + std::fabs(top) + c.softcap / c.temperature + (std::isfinite(z) ? std::fabs(z) : 0);
  });
  return out;
}

namespace {

struct Outputs {
  std::vector<double> logp, lse, entropy;
  rlk_status status = RLK_OK;
  rlk_data_error error{};
};

Outputs run(Plugin& plugin, Report& report, const LogpCase& c) {
  const Type accumulator = accumulator_of(c.type);
  Tensor logits(plugin, c.type, {c.rows, c.vocab}, c.padding, c.offset), ids(plugin, c.ids_type, {c.tokens});
  Tensor bias(plugin, c.type, {c.vocab}), mask(plugin, Type::u8, {c.tokens}), indices(plugin, Type::i64, {c.tokens});
  Tensor logp(plugin, c.out_type, {c.tokens}), lse(plugin, accumulator, {c.tokens}),
      entropy(plugin, accumulator, {c.tokens});
  logits.upload(c.logits);
  ids.upload(c.ids);
  if (c.bias) bias.upload(c.bias_values);
  mask.upload(c.mask_values);
  indices.upload(c.indices);
  rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  params.temperature = c.temperature;
  params.softcap = c.softcap;
  params.ignore_index = c.ignore_index;
  params.vocab_start = c.vocab_start;
  params.global_vocab = c.global_vocab;
  Call call(plugin, plugin.find("logp", "segments"), &params,
            {&logits, &ids, c.bias ? &bias : nullptr, c.mask ? &mask : nullptr, c.indexed ? &indices : nullptr},
            {&logp, c.lse ? &lse : nullptr, c.entropy ? &entropy : nullptr}, {c.tokens, c.rows, c.vocab});
  call.enqueue();
  Outputs out;
  out.status = plugin.synchronize(out.error);
  out.logp = logp.download();
  if (c.lse) out.lse = lse.download();
  if (c.entropy) out.entropy = entropy.download();
  report.check(
      logp.red_zones_intact() && lse.red_zones_intact() && entropy.red_zones_intact() && logits.red_zones_intact(),
      "logp red zones, " + c.text());
  return out;
}

void compare(Report& report, const LogpCase& c, const Outputs& got, const std::vector<LogpRow>& expected) {
  const Type accumulator = accumulator_of(c.type);
  const double epsilon = 8 * epsilon_of(accumulator);
  double worst = 0;
  for (size_t n = 0; n < expected.size(); ++n) {
    const LogpRow& e = expected[n];
    worst = std::max(worst, error_ratio(c.out_type, got.logp[n], e.logp, epsilon * e.condition));
    if (c.lse) worst = std::max(worst, error_ratio(accumulator, got.lse[n], e.lse, epsilon * e.condition));
    if (c.entropy) worst = std::max(worst, error_ratio(accumulator, got.entropy[n], e.entropy, epsilon * e.condition));
  }
  report.ratio(worst, "logp " + c.text());
}

bool same_bits(double a, double b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}

// A row's bits must not depend on the batch, on row padding or on alignment.
void check_invariance(Plugin& plugin, Report& report, Type type, int64_t vocab) {
  LogpCase c;
  c.type = type;
  c.out_type = accumulator_of(type);
  c.tokens = c.rows = 40;
  c.vocab = vocab;
  fill(c, 77, false);
  const Outputs whole = run(plugin, report, c), again = run(plugin, report, c);
  LogpCase moved = c;
  moved.offset = 1;
  moved.padding = 3;
  const Outputs off = run(plugin, report, moved);
  bool same = true, alone_same = true;
  for (size_t n = 0; n < 40; ++n) {
    same = same && same_bits(whole.logp[n], again.logp[n]) && same_bits(whole.logp[n], off.logp[n]) &&
           same_bits(whole.lse[n], off.lse[n]) && same_bits(whole.entropy[n], off.entropy[n]);
  }
  for (const int64_t n : {0, 17, 39}) {
    LogpCase one = c;
    one.tokens = one.rows = 1;
    one.logits.assign(c.logits.begin() + n * vocab, c.logits.begin() + (n + 1) * vocab);
    one.ids = {c.ids[static_cast<size_t>(n)]};
    one.mask_values = {1};
    one.indices = {0};
    const Outputs alone = run(plugin, report, one);
    alone_same = alone_same && same_bits(alone.logp[0], whole.logp[static_cast<size_t>(n)]) &&
                 same_bits(alone.entropy[0], whole.entropy[static_cast<size_t>(n)]);
  }
  report.check(same, "logp: other bits when run again or moved, " + c.text());
  report.check(alone_same, "logp: other bits for a row alone, " + c.text());
}

void check_errors(Plugin& plugin, Report& report, Type type) {
  LogpCase c;
  c.type = type;
  c.out_type = accumulator_of(type);
  c.ids_type = Type::i32;
  c.tokens = 20;
  c.rows = 20;
  c.vocab = 300;
  c.indexed = true;
  const auto expect = [&](const char* what, int kind, int64_t row, int64_t value) {
    const Outputs got = run(plugin, report, c);
    const std::string name = std::string("logp data error ") + what + " " + name_of(type);
    report.check(got.status == RLK_DATA_ERROR && got.error.kind == kind && got.error.row == row &&
                     got.error.value == value && got.error.tag == 7,
                 name + ": status " + std::to_string(got.status) + " kind " + std::to_string(got.error.kind) + " row " +
                     std::to_string(got.error.row) + " value " + std::to_string(got.error.value));
    compare(report, c, got, reference_logp(c));
  };
  fill(c, 5, false);
  c.ids[6] = 300;
  expect("id", RLK_DATA_ID_OUT_OF_RANGE, 6, 300);
  fill(c, 6, false);
  c.ids[2] = -1;
  expect("negative id", RLK_DATA_ID_OUT_OF_RANGE, 2, -1);
  fill(c, 7, false);
  c.indices[10] = 20;
  expect("row index", RLK_DATA_ROW_OUT_OF_RANGE, 10, 20);
  fill(c, 8, false);
  std::fill_n(c.logits.begin() + 5 * c.vocab, c.vocab, -kInf);
  expect("no finite logit", RLK_DATA_NO_FINITE_LOGIT, 5, 0);
  fill(c, 9, false);
  const Outputs clean = run(plugin, report, c);
  report.check(clean.status == RLK_OK, "logp: a data error is sticky");
  // A shard may be all -inf: no error, lse -inf.
  c.global_vocab = 1000;
  c.vocab_start = 200;
  std::fill_n(c.logits.begin() + 5 * c.vocab, c.vocab, -kInf);
  const Outputs shard = run(plugin, report, c);
  report.check(shard.status == RLK_OK, "logp: an empty shard is no data error");
  compare(report, c, shard, reference_logp(c));
}

}  // namespace

void check_logp(Plugin& plugin, Report& report) {
  const std::pair<int64_t, int64_t> sizes[] = {{0, 37},   {1, 1},    {5, 37},   {33, 129},
                                               {7, 1031}, {6, 4096}, {3, 9001}, {2, 40003}};
  uint64_t seed = 1;
  for (const Type type : {Type::f32, Type::bf16, Type::f16, Type::f64}) {
    for (const auto& [tokens, vocab] : sizes) {
      for (int option = 0; option < 10; ++option) {
        LogpCase c;
        c.type = type;
        const auto chance = [&](int salt) { return uniform(seed * 31 + static_cast<uint64_t>(salt), 0) < 0.4; };
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
        c.entropy = chance(8);
        c.lse = chance(9) || !c.entropy;
        if (chance(10)) c.ignore_index = -1;
        if (option > 0 && chance(11)) {
          c.vocab_start = 5;
          c.global_vocab = vocab + 11;
        }
        if (chance(12)) c.offset = 3;
        if (chance(13)) c.padding = 5;
        fill(c, ++seed, c.softcap == 0);
        Outputs got = run(plugin, report, c);
        const std::vector<LogpRow> expected = reference_logp(c);
        const bool bad = std::any_of(expected.begin(), expected.end(), [](const LogpRow& r) { return r.kind != 0; });
        report.check((got.status == RLK_DATA_ERROR) == bad, "logp data error or not, " + c.text());
        compare(report, c, got, expected);
      }
    }
    for (const int64_t vocab : {37, 5000, 40000}) check_invariance(plugin, report, type, vocab);
    check_errors(plugin, report, type);
  }
}

}  // namespace selfcheck

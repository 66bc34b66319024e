// How fast, against the fewest bytes or operations that the work needs. Times are medians of replayed graphs.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "reference.hpp"

namespace selfcheck {
namespace {

// Random normal numbers times `scale`: one block made here, repeated on the device.
void fill_large(Plugin& plugin, Tensor& tensor, double scale, uint64_t seed) {
  const int64_t block = std::min<int64_t>(tensor.count(), 1 << 22), size = bytes_of(tensor.type);
  std::vector<uint8_t> bytes(static_cast<size_t>(block * size));
  parallel((block + 65535) / 65536, [&](int64_t part) {
    for (int64_t i = part * 65536; i < std::min(block, (part + 1) * 65536); ++i) {
      const double x = scale * normal(seed, static_cast<uint64_t>(i));
      encode(tensor.type, &x, 1, bytes.data() + i * size);
    }
  });
  char* to = static_cast<char*>(tensor.data());
  plugin.copy(to, bytes.data(), bytes.size(), RLK_COPY_HOST_TO_DEVICE);
  for (int64_t done = block; done < tensor.count(); done += block) {
    plugin.require(plugin.table->stream->copy(plugin.stream, to + done * size, to,
                                              static_cast<uint64_t>(std::min(block, tensor.count() - done) * size),
                                              RLK_COPY_DEVICE_TO_DEVICE, &plugin.error),
                   "copy");
  }
  plugin.synchronize();
}

std::vector<double> fetch(Plugin& plugin, const Tensor& tensor, int64_t first, int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count * bytes_of(tensor.type)));
  plugin.copy(bytes.data(), static_cast<const char*>(tensor.data()) + first * bytes_of(tensor.type), bytes.size(),
              RLK_COPY_DEVICE_TO_HOST);
  std::vector<double> out(static_cast<size_t>(count));
  decode(tensor.type, bytes.data(), count, out.data());
  return out;
}

void line(const char* what, double us, double floor_us, const char* rate, double value, double cost_us,
          const char* peer) {
  std::printf("%-44s %10.1f us  floor %8.1f  x%5.2f  %7.0f %-8s cost %8.1f  peer %s\n", what, us, floor_us,
              us / floor_us, value, rate, cost_us, peer);
}

constexpr double kReadRate = 4.25e6;  // bytes per us: what a copy reaches on an H200

struct LogpSet {
  LogpSet(Plugin& plugin, Type type, int64_t rows, int64_t vocab, uint64_t seed)
      : accumulator(accumulator_of(type)),
        logits(plugin, type, {rows, vocab}),
        ids(plugin, Type::i64, {rows}),
        logp(plugin, accumulator, {rows}),
        lse(plugin, accumulator, {rows}),
        entropy(plugin, accumulator, {rows}),
        g_logp(plugin, accumulator, {rows}) {
    fill_large(plugin, logits, 4, seed);
    fill_large(plugin, g_logp, 1, seed + 1);
    id_values.resize(static_cast<size_t>(rows));
    for (size_t n = 0; n < id_values.size(); ++n) {
      id_values[n] = std::floor(uniform(seed + 2, n) * static_cast<double>(vocab));
    }
    ids.upload(id_values);
  }
  Type accumulator;
  Tensor logits, ids, logp, lse, entropy, g_logp;
  std::vector<double> id_values;
};

LogpCase one_row(Plugin& plugin, LogpSet& set, int64_t n) {
  LogpCase c;
  c.type = set.logits.type;
  c.tokens = c.rows = 1;
  c.vocab = set.logits.shape[1];
  c.logits = fetch(plugin, set.logits, n * c.vocab, c.vocab);
  c.ids = {set.id_values[static_cast<size_t>(n)]};
  return c;
}

void check_row(Plugin& plugin, Report& report, LogpSet& set, int64_t n) {
  const LogpCase c = one_row(plugin, set, n);
  const LogpRow row = reference_logp(c)[0];
  const double got = fetch(plugin, set.logp, n, 1)[0];
  report.ratio(error_ratio(set.accumulator, got, row.logp, 8 * epsilon_of(set.accumulator) * row.condition),
               "large logp, row " + std::to_string(n));
  report.check(std::fabs(got - row.logp) <= 2e-5, "large logp within 2e-5, row " + std::to_string(n));
}

void time_logp(Plugin& plugin, Report& report, const char* what, Type type, int64_t rows, int64_t vocab, int sets,
               bool entropy, bool backward, const char* peer) {
  std::vector<std::unique_ptr<LogpSet>> data;
  for (int i = 0; i < sets; ++i) data.push_back(std::make_unique<LogpSet>(plugin, type, rows, vocab, 50 + 10 * i));
  std::unique_ptr<Tensor> grad;
  if (backward) grad = std::make_unique<Tensor>(plugin, type, std::vector<int64_t>{rows, vocab});
  rlk_logp_params params = RLK_LOGP_PARAMS_INIT;
  rlk_logp_backward_params backward_params = RLK_LOGP_BACKWARD_PARAMS_INIT;
  std::vector<std::unique_ptr<Call>> calls, backward_calls;
  for (auto& set : data) {
    calls.push_back(
        std::make_unique<Call>(plugin, plugin.find("logp", "segments"), &params,
                               std::vector<Tensor*>{&set->logits, &set->ids, nullptr, nullptr, nullptr},
                               std::vector<Tensor*>{&set->logp, &set->lse, entropy ? &set->entropy : nullptr},
                               std::vector<int64_t>{rows, rows, vocab}));
    if (!backward) continue;
    backward_calls.push_back(
        std::make_unique<Call>(plugin, plugin.find("logp_backward", "columns"), &backward_params,
                               std::vector<Tensor*>{&set->logits, &set->ids, &set->lse, &set->g_logp, nullptr, nullptr,
                                                    nullptr, nullptr, nullptr, nullptr},
                               std::vector<Tensor*>{grad.get(), nullptr}, std::vector<int64_t>{rows, rows, vocab}));
  }
  const double us = time_us(plugin, std::max(sets, 4), [&](int i) {
    const size_t at = static_cast<size_t>(i % sets);
    calls[at]->enqueue();
    if (backward) backward_calls[at]->enqueue();
  });
  const double bytes = (backward ? 3.0 : 1.0) * static_cast<double>(rows * vocab * bytes_of(type));
  line(what, us, bytes / kReadRate, "GB/s", bytes / us * 1e-3,
       calls[0]->support().cost_us + (backward ? backward_calls[0]->support().cost_us : 0), peer);
  for (const int64_t n : {int64_t{0}, rows / 2, rows - 1}) check_row(plugin, report, *data[0], n);
  if (!backward) return;
  // The last row of the gradient, of the last set: beyond 2^31 elements in the largest case.
  const int64_t n = rows - 1;
  const LogpCase c = one_row(plugin, *data.back(), n);
  const std::vector<double> got = fetch(plugin, *grad, n * vocab, vocab);
  const double lse = fetch(plugin, data.back()->lse, n, 1)[0], g = fetch(plugin, data.back()->g_logp, n, 1)[0];
  double worst = 0;
  char text[160] = "large logp_backward, last row";
  for (int64_t v = 0; v < vocab; ++v) {
    const double x = c.logits[static_cast<size_t>(v)], p = std::exp(x - lse),
                 target = static_cast<double>(v) == c.ids[0] ? 1 : 0;
    const double expected = g * (target - p), actual = got[static_cast<size_t>(v)];
    const double ratio =
        error_ratio(type, actual, expected,
                    8 * epsilon_of(Type::f32) * (std::fabs(g) * (target + p * (1 + std::fabs(x) + lse)) + 0x1p-103));
    if (ratio <= worst) continue;
    worst = ratio;
    std::snprintf(text, sizeof(text),
                  "large logp_backward, last row, column %ld of %ld (target %.0f): got %g, expected %g", v, vocab,
                  c.ids[0], actual, expected);
  }
  report.ratio(worst, text);
}

void time_attention(Plugin& plugin, const char* what, const char* implementation, Type type, int64_t batch,
                    int64_t q_heads, int64_t kv_heads, int64_t queries, int64_t keys, int64_t head, const char* peer) {
  Tensor q(plugin, type, {batch, queries, q_heads, head}), k(plugin, type, {batch, keys, kv_heads, head});
  Tensor v(plugin, type, {batch, keys, kv_heads, head}), out(plugin, type, {batch, queries, q_heads, head});
  Tensor lse(plugin, accumulator_of(type), {batch, queries, q_heads});
  fill_large(plugin, q, 1, 1);
  fill_large(plugin, k, 1, 2);
  fill_large(plugin, v, 1, 3);
  rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
  params.causal = RLK_ATTENTION_CAUSAL_ON;
  Call call(plugin, plugin.find("attention", implementation), &params, {&q, &k, &v, nullptr, nullptr}, {&out, &lse},
            {batch, queries, keys, -1, -1, q_heads, kv_heads, head});
  const double us = time_us(plugin, 3, [&](int) { call.enqueue(); });
  if (queries == 1) {
    const double bytes = 2.0 * static_cast<double>(batch * keys * kv_heads * head * bytes_of(type));
    line(what, us, bytes / kReadRate, "GB/s", bytes / us * 1e-3, call.support().cost_us, peer);
  } else {
    const double operations = 2.0 * static_cast<double>(batch * q_heads * queries) * static_cast<double>(keys * head);
    line(what, us, operations / 7.0e8, "TFLOP/s", operations / us * 1e-6, call.support().cost_us, peer);
  }
}

void time_add(Plugin& plugin, const char* what, const std::vector<int64_t>& b_shape, double bytes, const char* peer) {
  const int64_t rows = 65536, columns = 4096;
  Tensor a(plugin, Type::bf16, {rows, columns}), b(plugin, Type::bf16, b_shape),
      out(plugin, Type::bf16, {rows, columns});
  fill_large(plugin, a, 1, 1);
  fill_large(plugin, b, 1, 2);
  rlk_add_params params = RLK_ADD_PARAMS_INIT;
  Call call(plugin, plugin.find("add", "packs"), &params, {&a, &b}, {&out}, {});
  const double us = time_us(plugin, 4, [&](int) { call.enqueue(); });
  line(what, us, bytes / kReadRate, "GB/s", bytes / us * 1e-3, call.support().cost_us, peer);
}

}  // namespace

void measure(Plugin& plugin, Report& report) {
  std::printf("floor: bytes at 4250 GB/s, or operations at 700 TFLOP/s\n");
  {
    Tensor from(plugin, Type::u8, {int64_t{1} << 31}), to(plugin, Type::u8, {int64_t{1} << 31});
    fill_large(plugin, from, 50, 1);
    const double us = time_us(plugin, 4, [&](int) {
      plugin.require(plugin.table->stream->copy(plugin.stream, to.data(), from.data(), uint64_t{1} << 31,
                                                RLK_COPY_DEVICE_TO_DEVICE, &plugin.error),
                     "copy");
    });
    line("copy 2 GiB", us, 0x1p32 / kReadRate, "GB/s", 0x1p32 / us * 1e-3, 0, "-");
  }
  time_logp(plugin, report, "logp 4096x151936 bf16", Type::bf16, 4096, 151936, 1, false, false, "331 (Liger)");
  time_logp(plugin, report, "logp+entropy 4096x151936 bf16", Type::bf16, 4096, 151936, 1, true, false, "-");
  time_logp(plugin, report, "logp 8192x32000 bf16", Type::bf16, 8192, 32000, 2, false, false, "143 (Liger)");
  time_logp(plugin, report, "logp 2048x151936 f32", Type::f32, 2048, 151936, 1, false, false, "289 (Liger)");
  time_logp(plugin, report, "logp 64x151936 bf16 (decode)", Type::bf16, 64, 151936, 16, false, false,
            "42 (torch.compile)");
  time_logp(plugin, report, "logp 4096x151935 bf16 (odd)", Type::bf16, 4096, 151935, 1, false, false, "-");
  time_logp(plugin, report, "logp fwd+bwd 4096x151936 bf16", Type::bf16, 4096, 151936, 1, false, true,
            "1956 (torch.compile)");
  time_logp(plugin, report, "logp fwd+bwd 8192x32000 bf16", Type::bf16, 8192, 32000, 2, false, true,
            "775 (torch.compile)");
  time_logp(plugin, report, "logp fwd+bwd 2048x151936 f32", Type::f32, 2048, 151936, 1, false, true,
            "1689 (torch.compile)");
  time_logp(plugin, report, "logp fwd+bwd 16384x151936 bf16", Type::bf16, 16384, 151936, 1, false, true, "-");
  const char* peer = "320 flash, 531 cuDNN";
  for (const char* kernel : {"mma", "mma_accurate"}) {
    std::printf("attention %s\n", kernel);
    time_attention(plugin, "attention causal B4 H32/32 S4096 bf16", kernel, Type::bf16, 4, 32, 32, 4096, 4096, 128,
                   peer);
    time_attention(plugin, "attention causal B4 H32/8 S4096 bf16", kernel, Type::bf16, 4, 32, 8, 4096, 4096, 128,
                   "323, 542");
    time_attention(plugin, "attention causal B1 H32/8 S16384 bf16", kernel, Type::bf16, 1, 32, 8, 16384, 16384, 128,
                   "337, 579");
    time_attention(plugin, "attention decode B64 H32/8 S8192 bf16", kernel, Type::bf16, 64, 32, 8, 1, 8192, 128,
                   "2608, 4465");
    time_attention(plugin, "attention causal B4 H32/8 S2048 D64 f16", kernel, Type::f16, 4, 32, 8, 2048, 2048, 64, "-");
    time_attention(plugin, "attention causal B2 H16/16 S2048 D256 bf16", kernel, Type::bf16, 2, 16, 16, 2048, 2048, 256,
                   "-");
  }
  time_attention(plugin, "attention causal B1 H16/16 S2048 D128 f32", "simt", Type::f32, 1, 16, 16, 2048, 2048, 128,
                 "-");
  time_add(plugin, "add 256 Mi bf16", {65536, 4096}, 3.0 * 0x1p29, "4352 GB/s (torch)");
  time_add(plugin, "add 256 Mi bf16, row broadcast", {4096}, 2.0 * 0x1p29, "-");
}

}  // namespace selfcheck

// attention: options, lengths, data errors, and bits that do not depend on the batch.
#include "reference.hpp"

#include <algorithm>
#include <cstdio>

namespace selfcheck {
namespace {

// Of these `mma` alone rounds the weights to the tensors' dtype.
constexpr const char* kImplementations[] = {"mma", "mma_accurate", "simt"};

struct AttentionCase {
  Type type = Type::bf16, cu_type = Type::i32;
  bool packed = false, causal = false;
  int64_t batch = 1, queries = 1, keys = 1;  // of each dense sequence, or of all packed ones
  int64_t q_heads = 1, kv_heads = 1, head = 64;
  int64_t left = -1, right = -1;
  double scale = 0;
  int64_t offset = 0;
  std::vector<double> q, k, v, cu_q, cu_k;

  std::string text() const {
    char buffer[200];
    std::snprintf(buffer, sizeof(buffer),
                  "%s %s B %ld Lq %ld Lk %ld H %ld/%ld D %ld causal %d window %ld,%ld scale %g off %ld", name_of(type),
                  packed ? "packed" : "dense", batch, queries, keys, q_heads, kv_heads, head, causal, left, right,
                  scale, offset);
    return buffer;
  }
  int64_t tokens_q() const { return packed ? queries : batch * queries; }
  int64_t tokens_k() const { return packed ? keys : batch * keys; }
};

void fill(AttentionCase& c, uint64_t seed) {
  const auto random = [&](std::vector<double>& to, int64_t count, uint64_t salt) {
    to.resize(static_cast<size_t>(count));
    parallel((count + 65535) / 65536, [&](int64_t block) {
      const int64_t end = std::min(count, (block + 1) * 65536);
      for (int64_t i = block * 65536; i < end; ++i) {
        to[static_cast<size_t>(i)] = round_to(c.type, normal(seed + salt, static_cast<uint64_t>(i)));
      }
    });
  };
  random(c.q, c.tokens_q() * c.q_heads * c.head, 1);
  random(c.k, c.tokens_k() * c.kv_heads * c.head, 2);
  random(c.v, c.tokens_k() * c.kv_heads * c.head, 3);
  const auto cut = [&](std::vector<double>& to, int64_t total, uint64_t salt) {
    to.assign(static_cast<size_t>(c.batch + 1), 0);
    for (size_t b = 1; b < to.size(); ++b) to[b] = std::floor(uniform(seed + salt, b) * static_cast<double>(total + 1));
    to[0] = 0;
    to.back() = static_cast<double>(total);
    std::sort(to.begin(), to.end());
  };
  if (c.packed) {
    cut(c.cu_q, c.queries, 4);
    cut(c.cu_k, c.keys, 5);
  }
}

struct Reference {
  std::vector<double> out, out_condition, lse, lse_condition;
  std::vector<double> out_weighted;  // sum of p |v|: what rounding the weights is relative to
};

// Heads in `only_head` (all when negative) and every `stride`-th query.
Reference reference(const AttentionCase& c, int64_t stride) {
  Reference r;
  r.out.assign(c.q.size(), kNan);
  r.out_condition = r.out_weighted = r.out;
  r.lse.assign(static_cast<size_t>(c.tokens_q() * c.q_heads), kNan);
  r.lse_condition = r.lse;
  const double scale = c.scale > 0 ? c.scale : 1 / std::sqrt(static_cast<double>(c.head));
  parallel(c.tokens_q(), [&](int64_t token) {
    if (token % stride != 0) return;
    int64_t b = token / std::max<int64_t>(c.queries, 1), q0 = b * c.queries, k0 = b * c.keys, lq = c.queries,
            lk = c.keys;
    if (c.packed) {
      b = 0;
      while (static_cast<double>(token) >= c.cu_q[static_cast<size_t>(b + 1)]) ++b;
      q0 = static_cast<int64_t>(c.cu_q[static_cast<size_t>(b)]);
      lq = static_cast<int64_t>(c.cu_q[static_cast<size_t>(b + 1)]) - q0;
      k0 = static_cast<int64_t>(c.cu_k[static_cast<size_t>(b)]);
      lk = static_cast<int64_t>(c.cu_k[static_cast<size_t>(b + 1)]) - k0;
    }
    const int64_t position = token - q0 + lk - lq;
    // Wider than fp64, so that fp64 kernels are not blamed for the reference's own rounding.
    std::vector<long double> s(static_cast<size_t>(lk));
    std::vector<double> magnitude(s.size());
    for (int64_t h = 0; h < c.q_heads; ++h) {
      const int64_t g = h / (c.q_heads / c.kv_heads);
      const double* q = c.q.data() + (token * c.q_heads + h) * c.head;
      long double top = -kInf;
      for (int64_t j = 0; j < lk; ++j) {
        const bool seen = (!c.causal || j <= position) && (c.left < 0 || j >= position - c.left) &&
                          (c.right < 0 || j <= position + c.right);
        long double dot = 0;
        double size = 0;
        const double* k = c.k.data() + ((k0 + j) * c.kv_heads + g) * c.head;
        for (int64_t d = 0; seen && d < c.head; ++d) {
          dot += static_cast<long double>(q[d]) * k[d];
          size += std::fabs(q[d] * k[d]);
        }
        s[static_cast<size_t>(j)] = seen ? scale * dot : -static_cast<long double>(kInf);
        magnitude[static_cast<size_t>(j)] = scale * size;
        top = std::max(top, s[static_cast<size_t>(j)]);
      }
      long double sum = 0;
      double mean = 0;
      for (const long double x : s) sum += x == -kInf ? 0 : std::exp(x - top);
      const double lse = sum == 0 ? -kInf : static_cast<double>(top + std::log(sum));
      for (size_t j = 0; j < s.size(); ++j) {
        s[j] = s[j] == -kInf ? 0 : std::exp(s[j] - top) / sum;
        mean += static_cast<double>(s[j]) * magnitude[j];
      }
      const size_t row = static_cast<size_t>(token * c.q_heads + h);
      r.lse[row] = lse;
      const double high = sum == 0 ? 0 : static_cast<double>(std::fabs(top));
      r.lse_condition[row] = 1 + high + std::fabs(lse) + mean;
      for (int64_t d = 0; d < c.head; ++d) {
        long double exact = 0;
        double size = 0, weighted = 0;
        const double* v = c.v.data() + (k0 * c.kv_heads + g) * c.head + d;
        for (int64_t j = 0; j < lk; ++j) exact += s[static_cast<size_t>(j)] * v[j * c.kv_heads * c.head];
        const double out = static_cast<double>(exact);
        for (int64_t j = 0; j < lk; ++j) {
          const double p = static_cast<double>(s[static_cast<size_t>(j)]), value = v[j * c.kv_heads * c.head];
          weighted += p * std::fabs(value);
          size += p * std::fabs(value - out) * (1 + magnitude[static_cast<size_t>(j)] + high);
        }
        const size_t at = row * static_cast<size_t>(c.head) + static_cast<size_t>(d);
        r.out[at] = out;
        r.out_weighted[at] = weighted;
        r.out_condition[at] = size + weighted;
      }
    }
  });
  return r;
}

struct Outputs {
  std::vector<double> out, lse;
  rlk_status status = RLK_OK;
  rlk_data_error error{};
  bool ran = false;
};

Outputs run(Plugin& plugin, Report& report, const AttentionCase& c, const char* implementation) {
  using Shape = std::vector<int64_t>;
  const auto shape = [&](int64_t length, int64_t heads) {
    return c.packed ? Shape{length, heads, c.head} : Shape{c.batch, length, heads, c.head};
  };
  Tensor q(plugin, c.type, shape(c.queries, c.q_heads), 0, c.offset), k(plugin, c.type, shape(c.keys, c.kv_heads));
  Tensor v(plugin, c.type, shape(c.keys, c.kv_heads)), out(plugin, c.type, shape(c.queries, c.q_heads));
  Tensor cu_q(plugin, c.cu_type, {c.batch + 1}), cu_k(plugin, c.cu_type, {c.batch + 1});
  Tensor lse(plugin, accumulator_of(c.type),
             c.packed ? Shape{c.queries, c.q_heads} : Shape{c.batch, c.queries, c.q_heads});
  q.upload(c.q);
  k.upload(c.k);
  v.upload(c.v);
  if (c.packed) {
    cu_q.upload(c.cu_q);
    cu_k.upload(c.cu_k);
  }
  rlk_attention_params params = RLK_ATTENTION_PARAMS_INIT;
  params.layout = c.packed ? RLK_ATTENTION_LAYOUT_PACKED : RLK_ATTENTION_LAYOUT_DENSE;
  params.causal = c.causal ? RLK_ATTENTION_CAUSAL_ON : RLK_ATTENTION_CAUSAL_OFF;
  params.window_left = c.left;
  params.window_right = c.right;
  params.scale = c.scale;
  Call call(plugin, plugin.find("attention", implementation), &params,
            {&q, &k, &v, c.packed ? &cu_q : nullptr, c.packed ? &cu_k : nullptr}, {&out, &lse},
            c.packed ? std::vector<int64_t>{c.batch, -1, -1, c.queries, c.keys, c.q_heads, c.kv_heads, c.head}
                     : std::vector<int64_t>{c.batch, c.queries, c.keys, -1, -1, c.q_heads, c.kv_heads, c.head});
  Outputs result;
  if (!call.supported()) return result;
  call.enqueue();
  result.ran = true;
  result.status = plugin.synchronize(result.error);
  result.out = out.download();
  result.lse = lse.download();
  report.check(out.red_zones_intact() && lse.red_zones_intact(),
               std::string("attention red zones ") + implementation + " " + c.text());
  return result;
}

struct Worst {
  double out = 0, lse = 0;
};

Worst compare(const AttentionCase& c, const Outputs& got, const Reference& expected, int64_t stride, bool rounded) {
  Worst worst;
  const double weight = !rounded ? 0 : c.type == Type::bf16 ? 0x1p-8 : 0x1p-11;
  const double epsilon = 8 * epsilon_of(accumulator_of(c.type));
  for (size_t i = 0; i < expected.out.size(); ++i) {
    if (static_cast<int64_t>(i) / (c.q_heads * c.head) % stride != 0) continue;
    worst.out =
        std::max(worst.out, error_ratio(c.type, got.out[i], expected.out[i],
                                        epsilon * expected.out_condition[i] + weight * expected.out_weighted[i]));
  }
  for (size_t i = 0; i < expected.lse.size(); ++i) {
    if (static_cast<int64_t>(i) / c.q_heads % stride != 0) continue;
    worst.lse = std::max(worst.lse, error_ratio(accumulator_of(c.type), got.lse[i], expected.lse[i],
                                                epsilon * expected.lse_condition[i]));
  }
  return worst;
}

void check_case(Plugin& plugin, Report& report, const AttentionCase& c, int64_t stride = 1) {
  const Reference expected = reference(c, stride);
  const bool wide = (c.type == Type::bf16 || c.type == Type::f16) && c.head % 8 == 0 && c.offset % 8 == 0;
  for (const char* implementation : kImplementations) {
    const Outputs got = run(plugin, report, c, implementation);
    const std::string name = std::string("attention ") + implementation + " " + c.text();
    report.check(got.ran == (wide || implementation[0] == 's'), name + ": offered or not");
    if (!got.ran) continue;
    report.check(got.status == RLK_OK, name + ": status");
    const Worst worst = compare(c, got, expected, stride, std::string(implementation) == "mma");
    report.ratio(worst.out, name);
    report.ratio(worst.lse, name + " lse");
  }
}

void check_errors(Plugin& plugin, Report& report, const char* implementation) {
  AttentionCase c;
  c.packed = true;
  c.batch = 3;
  c.queries = 50;
  c.keys = 70;
  c.q_heads = 4;
  c.kv_heads = 2;
  const auto expect = [&](const char* what, int64_t row, int64_t value) {
    const Outputs got = run(plugin, report, c, implementation);
    report.check(got.status == RLK_DATA_ERROR && got.error.kind == RLK_DATA_BAD_SEQLENS && got.error.row == row &&
                     got.error.value == value,
                 std::string("attention bad cu_seqlens: ") + what);
    report.check(std::all_of(got.out.begin(), got.out.end(), [](double x) { return std::isnan(x); }) &&
                     std::all_of(got.lse.begin(), got.lse.end(), [](double x) { return std::isnan(x); }),
                 std::string("attention bad cu_seqlens gives NaN: ") + what);
  };
  fill(c, 3);
  c.cu_q = {0, 20, 10, 50};
  expect("decreasing", 2, 10);
  c.cu_q = {0, 20, 30, 51};
  expect("beyond the total", 3, 51);
  c.cu_q = {1, 20, 30, 50};
  expect("not from 0", 0, 1);
  c.cu_q = {0, 20, 30, 50};
  c.cu_k = {0, 20, 30, 60};
  expect("keys", 3, 60);
}

// A query's bits must not depend on its batch, on packing or on how many queries come with it.
void check_invariance(Plugin& plugin, Report& report, Type type, const char* implementation, int64_t head) {
  AttentionCase dense;
  dense.type = type;
  dense.causal = true;
  dense.batch = 2;
  dense.queries = dense.keys = 300;
  dense.q_heads = 4;
  dense.kv_heads = 2;
  dense.head = head;
  fill(dense, 21);
  const Outputs whole = run(plugin, report, dense, implementation);
  AttentionCase packed = dense;
  packed.packed = true;
  packed.queries = packed.keys = 600;
  packed.cu_q = packed.cu_k = {0, 300, 600};
  const Outputs same = run(plugin, report, packed, implementation);
  // The last 5 queries of the second sequence alone, over all its keys.
  AttentionCase chunk = dense;
  chunk.batch = 1;
  chunk.queries = 5;
  const int64_t width = dense.q_heads * head, key_width = dense.kv_heads * head;
  chunk.q.assign(dense.q.end() - 5 * width, dense.q.end());
  chunk.k.assign(dense.k.end() - 300 * key_width, dense.k.end());
  chunk.v.assign(dense.v.end() - 300 * key_width, dense.v.end());
  const Outputs last = run(plugin, report, chunk, implementation);
  const std::string name =
      std::string("attention ") + implementation + " " + name_of(type) + " D " + std::to_string(head);
  report.check(whole.out == same.out && whole.lse == same.lse, name + ": other bits when packed");
  report.check(std::equal(last.out.begin(), last.out.end(), whole.out.end() - 5 * width),
               name + ": other bits for a chunk");
  report.check(run(plugin, report, dense, implementation).out == whole.out, name + ": other bits when run again");
}

// Random options, `options` cases for every type and head size, lengths up to the given number of entries.
void check_random(Plugin& plugin, Report& report, int options, int length_choices) {
  uint64_t seed = 100;
  for (const Type type : {Type::bf16, Type::f16, Type::f32, Type::f64}) {
    for (const int64_t head : {16, 40, 64, 72, 96, 104, 128, 136, 192, 256, 20}) {
      for (int option = 0; option < options; ++option) {
        AttentionCase c;
        const auto chance = [&](int salt) { return uniform(seed * 17 + static_cast<uint64_t>(salt), 0) < 0.5; };
        c.type = type;
        c.head = head;
        c.cu_type = chance(1) ? Type::i32 : Type::i64;
        c.packed = option % 2 == 1;
        c.causal = chance(2);
        c.q_heads = chance(3) ? 4 : 6;
        c.kv_heads = chance(4) ? 2 : 1;
        c.batch = 1 + static_cast<int64_t>(3 * uniform(seed, 1));
        const int64_t lengths[] = {1, 7, 65, 130, 257};
        c.queries = lengths[static_cast<int>(length_choices * uniform(seed, 2))] * (c.packed ? c.batch : 1);
        c.keys = lengths[static_cast<int>(length_choices * uniform(seed, 3))] * (c.packed ? c.batch : 1);
        if (option > 2 && chance(5)) c.left = chance(6) ? 3 : 70;
        if (option > 2 && chance(7)) c.right = chance(8) ? 2 : 40;
        if (chance(9)) c.scale = 0.3;
        if (option == 5) c.offset = 1;
        fill(c, ++seed * 10);
        check_case(plugin, report, c);
      }
    }
  }
}

}  // namespace

void check_attention_few(Plugin& plugin, Report& report) {
  check_random(plugin, report, 2, 4);
  for (const char* implementation : kImplementations) check_errors(plugin, report, implementation);
}

void check_attention(Plugin& plugin, Report& report) {
  check_random(plugin, report, 6, 5);
  for (const Type type : {Type::bf16, Type::f16, Type::f32, Type::f64}) {
    AttentionCase empty;
    empty.type = type;
    empty.queries = 5;
    empty.keys = 0;
    fill(empty, 1);
    check_case(plugin, report, empty);
    empty.queries = 0;
    empty.keys = 5;
    fill(empty, 1);
    check_case(plugin, report, empty);
  }
  AttentionCase large;
  large.batch = 2;
  large.queries = large.keys = 2048;
  large.q_heads = 16;
  large.kv_heads = 4;
  large.head = 128;
  large.causal = true;
  fill(large, 4321);
  check_case(plugin, report, large, 97);
  for (const char* implementation : kImplementations) {
    check_errors(plugin, report, implementation);
    for (const int64_t head : {64, 128, 256}) check_invariance(plugin, report, Type::bf16, implementation, head);
  }
}

}  // namespace selfcheck

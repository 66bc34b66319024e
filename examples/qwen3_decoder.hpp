// A decoder of Qwen3's shape over a paged cache: random weights, and a forward pass over tokens whose sequences stand
// in the cache. Prefill and decoding are the same calls over other tokens; nothing of a pass is known to the host
// alone.
#pragma once

#include <rlk/ops/cast.hpp>
#include <rlk/ops/embedding.hpp>
#include <rlk/ops/fill.hpp>
#include <rlk/ops/paged_attention.hpp>
#include <rlk/ops/reshape_and_cache.hpp>
#include <rlk/ops/silu_and_mul.hpp>
#include <rlk/rlk.hpp>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "device_array.hpp"
#include "qwen3_operators.hpp"

namespace qwen3 {

using Integers = DeviceArray<int64_t>;
using Floats = DeviceArray<float>;
using Text = std::vector<int64_t>;  // ids of tokens

struct Shapes {
  int64_t layers = 2, hidden = 64, q_heads = 4, kv_heads = 2, head = 16, inner = 96, vocabulary = 500;
  int64_t batch = 4, prompt = 11, steps = 16, block = 8;
  int64_t q() const { return q_heads * head; }
  int64_t kv() const { return kv_heads * head; }
  int64_t positions() const { return prompt + steps; }
  int64_t columns() const { return (positions() + block - 1) / block; }  // of the block table
  int64_t blocks() const { return batch * columns(); }
  // Blocks of all sequences alternate, from the last on: none has two neighbouring ones.
  int64_t block_of(int64_t b, int64_t column) const { return blocks() - 1 - (column * batch + b); }
  int64_t slot(int64_t b, int64_t position) const { return block_of(b, position / block) * block + position % block; }
};

// The implementation that served a call, as text.
class Served {
public:
  const rlk_call_options* options() {
    options_.choice = &choice_;
    return &options_;
  }
  std::string text() const {
    return std::string(choice_.backend) + ":" + choice_.implementation + (choice_.staged != 0 ? ", staged" : "");
  }

private:
  rlk_choice choice_ = RLK_CHOICE_INIT;
  rlk_call_options options_ = RLK_CALL_OPTIONS_INIT;
};

// Evenly spread numbers by splitmix64, the same on every machine; std's distributions are not, and slower.
inline std::vector<float> spread_numbers(int64_t count, double mean, double deviation, uint64_t seed) {
  std::vector<float> list(static_cast<size_t>(count));
  const auto middle = static_cast<float>(mean), width = static_cast<float>(deviation * std::sqrt(3.0) * 0x1p-31);
  uint64_t state = (seed << 32) * 0x9E3779B97F4A7C15u;  // seeds are 2^32 numbers apart
  for (float& number : list) {
    uint64_t bits = (state += 0x9E3779B97F4A7C15u);
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBu;
    number = middle + width * static_cast<float>(static_cast<int32_t>(bits >> 32));
  }
  return list;
}

// Tokens of a pass: sequence b has those from starts[b] to starts[b + 1], the last of its lengths[b] in the cache.
// Without starts it has one.
struct Tokens {
  int64_t count;
  const Integers &ids, &positions, &slots, &lengths;
  const Integers* starts;
};

// What a pass over so many tokens computes.
struct Activations {
  Activations(const rlk::Stream& s, rlk_dtype t, const Shapes& of, int64_t n)
      : x(s, t, n * of.hidden),
        out(s, t, n * of.hidden),
        normed(s, t, n * of.hidden),
        q(s, t, n * of.q()),
        k(s, t, n * of.kv()),
        v(s, t, n * of.kv()),
        attended(s, t, n * of.q()),
        gate_up(s, t, n * of.inner * 2),
        inner(s, t, n * of.inner) {}
  DeviceNumbers x, out, normed, q, k, v, attended, gate_up, inner;
};

class Decoder {
public:
  Decoder(const rlk::Stream& stream, rlk_dtype dtype, const Shapes& shapes)
      : shapes_(shapes),
        table_(weight(stream, dtype, shapes.vocabulary, shapes.hidden, 1)),
        final_norm_(norm(stream, dtype, shapes.hidden)),
        // Logits of a deviation of 3, so that a draw is neither certain nor even.
        head_(weight(stream, dtype, shapes.vocabulary, shapes.hidden, 3 / std::sqrt(double_of(shapes.hidden)))),
        cos_sin_(stream, cosines_and_sines(shapes.positions(), shapes.head, 1e6)),
        block_table_(stream, shapes.blocks()) {
    std::vector<int64_t> blocks;
    for (int64_t i = 0; i < shapes.blocks(); ++i) {
      blocks.push_back(shapes.block_of(i / shapes.columns(), i % shapes.columns()));
    }
    block_table_.set(blocks);
    const int64_t hidden = shapes.hidden, cached = shapes.blocks() * shapes.block * shapes.kv();
    const auto matrix = [&](int64_t out, int64_t in) {
      return weight(stream, dtype, out, in, 1 / std::sqrt(double_of(in)));
    };
    for (int64_t i = 0; i < shapes.layers; ++i) {
      layers_.push_back({norm(stream, dtype, hidden), matrix(shapes.q(), hidden), matrix(shapes.kv(), hidden),
                         matrix(shapes.kv(), hidden), norm(stream, dtype, shapes.head),
                         norm(stream, dtype, shapes.head), matrix(hidden, shapes.q()), norm(stream, dtype, hidden),
                         matrix(2 * shapes.inner, hidden), matrix(hidden, shapes.inner),
                         DeviceNumbers(stream, dtype, cached), DeviceNumbers(stream, dtype, cached)});
    }
  }

  // Makes every number of the cache infinite: whatever is read before it is written shows.
  void forget(const rlk::Stream& stream) const {
    for (const Layer& layer : layers_) {
      for (const DeviceNumbers* cache : {&layer.keys, &layer.values}) {
        rlk::ops::Fill fill;
        fill.params.value = INFINITY;
        fill.in.x = fill.out.y = cache->as({shapes_.blocks() * shapes_.block, shapes_.kv()});
        fill(stream);
      }
    }
  }

  // Puts the tokens into the cache; their last hidden states, normalised, are in a.normed.
  void run(const rlk::Stream& stream, const Tokens& tokens, const Activations& a, Served& served) const {
    const int64_t n = tokens.count, hidden = shapes_.hidden, head = shapes_.head;
    rlk::ops::Embedding embedding;
    embedding.in.ids = tokens.ids.as({n});
    embedding.in.weight = table_.as({shapes_.vocabulary, hidden});
    embedding.out.y = a.x.as({n, hidden});
    embedding(stream);
    for (const Layer& layer : layers_) {
      if (&layer == &layers_.front()) {
        rms_norm(stream, n, a.x, hidden, layer.input_norm, a.normed);
      } else {
        add_rms_norm(stream, n, a.out, a.x, hidden, layer.input_norm, a.normed, a.x);
      }
      linear(stream, n, a.normed, hidden, layer.q, shapes_.q(), a.q);
      linear(stream, n, a.normed, hidden, layer.k, shapes_.kv(), a.k);
      linear(stream, n, a.normed, hidden, layer.v, shapes_.kv(), a.v);
      rms_norm(stream, n * shapes_.q_heads, a.q, head, layer.q_norm, a.q);
      rms_norm(stream, n * shapes_.kv_heads, a.k, head, layer.k_norm, a.k);
      turn(stream, tokens.positions.as({n}), cos_sin_.as({shapes_.positions(), head}), false,
           a.q.as({n, shapes_.q_heads, head}), a.k.as({n, shapes_.kv_heads, head}));
      attend(stream, tokens, layer, a, served);
      linear(stream, n, a.attended, shapes_.q(), layer.o, hidden, a.out);
      add_rms_norm(stream, n, a.out, a.x, hidden, layer.post_norm, a.normed, a.x);
      linear(stream, n, a.normed, hidden, layer.gate_up, 2 * shapes_.inner, a.gate_up);
      rlk::ops::SiluAndMul silu_and_mul;
      silu_and_mul.in.x = a.gate_up.as({n, 2 * shapes_.inner});
      silu_and_mul.out.y = a.inner.as({n, shapes_.inner});
      silu_and_mul(stream);
      linear(stream, n, a.inner, shapes_.inner, layer.down, hidden, a.out);
    }
    add_rms_norm(stream, n, a.out, a.x, hidden, final_norm_, a.normed, a.x);
  }

  void logits(const rlk::Stream& stream, int64_t rows, const DeviceNumbers& states, const DeviceNumbers& logits) const {
    linear(stream, rows, states, shapes_.hidden, head_, shapes_.vocabulary, logits);
  }

private:
  struct Layer {
    DeviceNumbers input_norm, q, k, v, q_norm, k_norm, o, post_norm, gate_up, down, keys, values;
  };
  static double double_of(int64_t number) { return static_cast<double>(number); }

  DeviceNumbers numbers(const rlk::Stream& stream, rlk_dtype dtype, const Shape& shape, double mean, double deviation) {
    int64_t count = 1;
    for (const int64_t size : shape) count *= size;
    const Floats wide(stream, spread_numbers(count, mean, deviation, ++seed_));
    DeviceNumbers result(stream, dtype, count);
    rlk::ops::Cast cast;
    cast.in.x = wide.as(shape);
    cast.out.y = result.as(shape);
    cast(stream);
    return result;
  }
  DeviceNumbers weight(const rlk::Stream& stream, rlk_dtype dtype, int64_t out, int64_t in, double deviation) {
    return numbers(stream, dtype, {out, in}, 0, deviation);
  }
  DeviceNumbers norm(const rlk::Stream& stream, rlk_dtype dtype, int64_t size) {
    return numbers(stream, dtype, {size}, 1, 0.2);
  }

  void attend(const rlk::Stream& stream, const Tokens& tokens, const Layer& layer, const Activations& a,
              Served& served) const {
    const int64_t n = tokens.count, head = shapes_.head;
    const Shape cache = {shapes_.blocks(), shapes_.block, shapes_.kv_heads, head};
    rlk::ops::ReshapeAndCache put;
    put.in.key = a.k.as({n, shapes_.kv_heads, head});
    put.in.value = a.v.as({n, shapes_.kv_heads, head});
    put.in.key_cache = layer.keys.as(cache);
    put.in.value_cache = layer.values.as(cache);
    put.in.slot_mapping = tokens.slots.as({n});
    put(stream);
    rlk::ops::PagedAttention attention;
    attention.in.q = a.q.as({n, shapes_.q_heads, head});
    attention.in.key_cache = layer.keys.as(cache);
    attention.in.value_cache = layer.values.as(cache);
    attention.in.block_table = block_table_.as({shapes_.batch, shapes_.columns()});
    attention.in.context_lens = tokens.lengths.as({shapes_.batch});
    if (tokens.starts != nullptr) attention.in.cu_seqlens_q = tokens.starts->as({shapes_.batch + 1});
    attention.out.out = a.attended.as({n, shapes_.q_heads, head});
    attention(stream, served.options());
  }

  uint64_t seed_ = 0;
  const Shapes shapes_;
  const DeviceNumbers table_, final_norm_, head_;
  const Floats cos_sin_;
  const Integers block_table_;
  std::vector<Layer> layers_;
};

// Texts of different lengths, in one pass from their beginnings on.
class Prefill {
public:
  Prefill(const rlk::Stream& stream, rlk_dtype dtype, const Shapes& shapes, const std::vector<Text>& texts)
      : count_(count_of(texts)),
        ids_(stream, count_),
        positions_(stream, count_),
        slots_(stream, count_),
        lengths_(stream, shapes.batch),
        starts_(stream, shapes.batch + 1),
        activations_(stream, dtype, shapes, count_) {
    std::vector<int64_t> ids, positions, slots, lengths, starts = {0};
    for (const Text& text : texts) {
      const auto length = static_cast<int64_t>(text.size()), b = static_cast<int64_t>(lengths.size());
      ids.insert(ids.end(), text.begin(), text.end());
      for (int64_t i = 0; i < length; ++i) positions.push_back(i), slots.push_back(shapes.slot(b, i));
      lengths.push_back(length), starts.push_back(starts.back() + length);
    }
    ids_.set(ids), positions_.set(positions), slots_.set(slots), lengths_.set(lengths), starts_.set(starts);
  }
  const DeviceNumbers& run(const rlk::Stream& stream, const Decoder& decoder) const {
    Served served;
    decoder.run(stream, {count_, ids_, positions_, slots_, lengths_, &starts_}, activations_, served);
    return activations_.normed;
  }
  int64_t count() const { return count_; }

private:
  static int64_t count_of(const std::vector<Text>& texts) {
    int64_t count = 0;
    for (const Text& text : texts) count += static_cast<int64_t>(text.size());
    return count;
  }
  const int64_t count_;
  const Integers ids_, positions_, slots_, lengths_, starts_;
  const Activations activations_;
};

// How the sequences draw: each in its own way, the fourth of four greedily.
class Sampler {
public:
  Sampler(const rlk::Stream& stream, int64_t rows)
      : rows_(rows),
        names_(stream, rows),
        seeds_(stream, rows),
        top_ks_(stream, rows),
        temperatures_(stream, rows),
        top_ps_(stream, rows) {
    std::vector<int64_t> names, seeds, top_ks;
    std::vector<float> temperatures, top_ps;
    for (int64_t b = 0; b < rows; ++b) {
      names.push_back(b), seeds.push_back(1000 + b), top_ks.push_back(b % 3 == 0 ? 0 : 20 * (b % 3));
      temperatures.push_back(b % 4 == 3 ? 0.0f : 1.0f - 0.1f * static_cast<float>(b % 4));
      top_ps.push_back(b % 2 == 0 ? 0.9f : 1.0f);
    }
    names_.set(names), seeds_.set(seeds), top_ks_.set(top_ks), temperatures_.set(temperatures), top_ps_.set(top_ps);
  }
  // The step of a row is the position of the token that is drawn.
  void draw(const rlk::Stream& stream, const rlk::Tensor& logits, const Integers& steps, const Integers& ids,
            Served& served) const {
    rlk::ops::Sample call;
    call.in.logits = logits;
    call.in.row_ids = names_.as({rows_});
    call.in.temperatures = temperatures_.as({rows_});
    call.in.top_ks = top_ks_.as({rows_});
    call.in.top_ps = top_ps_.as({rows_});
    call.in.seeds = seeds_.as({rows_});
    call.in.steps = steps.as({rows_});
    call.out.ids = ids.as({rows_});
    call(stream, served.options());
  }

private:
  const int64_t rows_;
  const Integers names_, seeds_, top_ks_;
  const Floats temperatures_, top_ps_;
};

}  // namespace qwen3

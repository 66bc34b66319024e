// One layer of Qwen3, each step by an operator of its own: prefill of two prompts in one packed batch, its gradients,
// and then decoding over a paged cache in both of its layouts. All of it is compared with fp64 (qwen3_reference.hpp).
//
//   qwen3_layer [--backend NAME] [--bound ERROR]
//
// prints the largest error of every result, relative to the result's largest number, and fails beyond the bound.
#include <rlk/ops/add_rms_norm_backward.hpp>
#include <rlk/ops/attention.hpp>
#include <rlk/ops/attention_backward.hpp>
#include <rlk/ops/linear_backward.hpp>
#include <rlk/ops/paged_attention.hpp>
#include <rlk/ops/reshape_and_cache.hpp>
#include <rlk/ops/rms_norm_backward.hpp>
#include <rlk/ops/swiglu.hpp>
#include <rlk/ops/swiglu_backward.hpp>
#include <rlk/rlk.hpp>

#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "device_array.hpp"
#include "qwen3_model.hpp"
#include "qwen3_operators.hpp"
#include "qwen3_reference.hpp"

namespace {

// fp32 has 6e-8; a gradient goes through some twenty operators, whose sums have up to 200 terms.
constexpr double kBound = 2e-6;

using namespace qwen3;

// ---- gradients, as the layer uses them -----------------------------------------------------------------------------

void linear_backward(const rlk::Stream& stream, int64_t tokens, const Floats& grad_y, const Floats& x, int64_t in,
                     const Floats& weight, int64_t out, const Floats& grad_x, const Floats& grad_weight) {
  rlk::ops::LinearBackward call;
  call.in.grad_y = grad_y.as({tokens, out});
  call.in.x = x.as({tokens, in});
  call.in.weight = weight.as({out, in});
  call.out.grad_x = grad_x.as({tokens, in});
  call.out.grad_weight = grad_weight.as({out, in});
  call(stream);
}

void rms_norm_backward(const rlk::Stream& stream, int64_t rows, const Floats& grad_y, const Floats& x, int64_t size,
                       const Floats& weight, const Floats& grad_x, const Floats& grad_weight) {
  rlk::ops::RmsNormBackward call;
  call.in.grad_y = grad_y.as({rows, size});
  call.in.x = x.as({rows, size});
  call.in.weight = weight.as({size});
  call.out.grad_x = grad_x.as({rows, size});
  call.out.grad_weight = grad_weight.as({size});
  call(stream);
}

// ---- the layer ----------------------------------------------------------------------------------------------------

// What a forward pass over so many tokens computes, and its backward reads.
struct Pass {
  Pass(const rlk::Stream& s, int64_t n)
      : tokens(n),
        normed(s, n * kHidden),
        q(s, n * kQ),
        k(s, n * kKv),
        v(s, n * kKv),
        q_turned(s, n * kQ),
        k_turned(s, n * kKv),
        attended(s, n * kQ),
        lse(s, n * kQHeads),
        projected(s, n * kHidden),
        sum(s, n * kHidden),
        post(s, n * kHidden),
        gate(s, n * kInner),
        up(s, n * kInner),
        inner(s, n * kInner),
        out(s, n * kHidden) {}
  int64_t tokens;
  Floats normed, q, k, v, q_turned, k_turned, attended, lse, projected, sum, post, gate, up, inner, out;
};

void before_attention(const rlk::Stream& stream, const DeviceWeights& w, const Floats& cos_sin,
                      const Integers& positions, const Floats& x, const Pass& pass) {
  const int64_t n = pass.tokens;
  rms_norm(stream, n, x, kHidden, w.input_norm, pass.normed);
  linear(stream, n, pass.normed, kHidden, w.q, kQ, pass.q);
  linear(stream, n, pass.normed, kHidden, w.k, kKv, pass.k);
  linear(stream, n, pass.normed, kHidden, w.v, kKv, pass.v);
  rms_norm(stream, n * kQHeads, pass.q, kHead, w.q_norm, pass.q_turned);
  rms_norm(stream, n * kKvHeads, pass.k, kHead, w.k_norm, pass.k_turned);
  turn(stream, positions.as({n}), cos_sin.as({kPositions, kHead}), false, pass.q_turned.as({n, kQHeads, kHead}),
       pass.k_turned.as({n, kKvHeads, kHead}));
}

void after_attention(const rlk::Stream& stream, const DeviceWeights& w, const Floats& x, const Pass& pass) {
  const int64_t n = pass.tokens;
  linear(stream, n, pass.attended, kQ, w.o, kHidden, pass.projected);
  add_rms_norm(stream, n, pass.projected, x, kHidden, w.post_norm, pass.post, pass.sum);
  linear(stream, n, pass.post, kHidden, w.gate, kInner, pass.gate);
  linear(stream, n, pass.post, kHidden, w.up, kInner, pass.up);
  rlk::ops::Swiglu swiglu;
  swiglu.in.input = pass.up.as({n, kInner});
  swiglu.in.gate = pass.gate.as({n, kInner});
  swiglu.out.y = pass.inner.as({n, kInner});
  swiglu(stream);
  linear(stream, n, pass.inner, kInner, w.down, kHidden, pass.out);
  add(stream, {n, kHidden}, pass.out, pass.sum);
}

// Attention of packed prompts, in which each token sees its own prompt up to itself.
template <class Call>
void describe_prompts(const Pass& pass, const Integers& cu_seqlens, Call& call) {
  const int64_t n = pass.tokens;
  call.params.layout = RLK_ATTENTION_LAYOUT_PACKED;
  call.params.causal = RLK_ATTENTION_CAUSAL_ON;
  call.in.q = pass.q_turned.as({n, kQHeads, kHead});
  call.in.k = pass.k_turned.as({n, kKvHeads, kHead});
  call.in.v = pass.v.as({n, kKvHeads, kHead});
  call.in.cu_seqlens_q = call.in.cu_seqlens_k = cu_seqlens.as({kSequences + 1});
}

void prefill(const rlk::Stream& stream, const DeviceWeights& w, const Floats& cos_sin, const Integers& positions,
             const Integers& cu_seqlens, const Floats& x, const Pass& pass) {
  before_attention(stream, w, cos_sin, positions, x, pass);
  rlk::ops::Attention attention;
  describe_prompts(pass, cu_seqlens, attention);
  attention.out.out = pass.attended.as({pass.tokens, kQHeads, kHead});
  attention.out.lse = pass.lse.as({pass.tokens, kQHeads});
  attention(stream);
  after_attention(stream, w, x, pass);
}

// Gradients of the weights and of x from that of the layer's output.
void backward(const rlk::Stream& stream, const DeviceWeights& w, const Floats& cos_sin, const Integers& positions,
              const Integers& cu_seqlens, const Floats& x, const Pass& pass, const Floats& grad_out,
              const DeviceWeights& grads, const Floats& grad_x) {
  const int64_t n = pass.tokens;
  const auto floats = [&](int64_t size) { return Floats(stream, n * size); };
  const Floats inner = floats(kInner), up = floats(kInner), gate = floats(kInner);
  linear_backward(stream, n, grad_out, pass.inner, kInner, w.down, kHidden, inner, grads.down);
  rlk::ops::SwigluBackward swiglu;
  swiglu.in.grad_y = inner.as({n, kInner});
  swiglu.in.input = pass.up.as({n, kInner});
  swiglu.in.gate = pass.gate.as({n, kInner});
  swiglu.out.grad_input = up.as({n, kInner});
  swiglu.out.grad_gate = gate.as({n, kInner});
  swiglu(stream);
  const Floats post = floats(kHidden), part = floats(kHidden), sum = floats(kHidden);
  linear_backward(stream, n, up, pass.post, kHidden, w.up, kInner, post, grads.up);
  linear_backward(stream, n, gate, pass.post, kHidden, w.gate, kInner, part, grads.gate);
  add(stream, {n, kHidden}, post, part);
  rlk::ops::AddRmsNormBackward norm;  // the residual stream goes on behind the sum: grad_sum is grad_out
  norm.in.grad_y = post.as({n, kHidden});
  norm.in.grad_sum = grad_out.as({n, kHidden});
  norm.in.sum = pass.sum.as({n, kHidden});
  norm.in.weight = w.post_norm.as({kHidden});
  norm.out.grad_x = sum.as({n, kHidden});
  norm.out.grad_weight = grads.post_norm.as({kHidden});
  norm(stream);

  const Floats attended = floats(kQ), q = floats(kQ), k = floats(kKv), v = floats(kKv);
  linear_backward(stream, n, sum, pass.attended, kQ, w.o, kHidden, attended, grads.o);
  rlk::ops::AttentionBackward attention;
  describe_prompts(pass, cu_seqlens, attention);
  attention.in.out = pass.attended.as({n, kQHeads, kHead});
  attention.in.lse = pass.lse.as({n, kQHeads});
  attention.in.grad_out = attended.as({n, kQHeads, kHead});
  attention.out.grad_q = q.as({n, kQHeads, kHead});
  attention.out.grad_k = k.as({n, kKvHeads, kHead});
  attention.out.grad_v = v.as({n, kKvHeads, kHead});
  attention(stream);

  turn(stream, positions.as({n}), cos_sin.as({kPositions, kHead}), true, q.as({n, kQHeads, kHead}),
       k.as({n, kKvHeads, kHead}));
  const Floats q_raw = floats(kQ), k_raw = floats(kKv);
  rms_norm_backward(stream, n * kQHeads, q, pass.q, kHead, w.q_norm, q_raw, grads.q_norm);
  rms_norm_backward(stream, n * kKvHeads, k, pass.k, kHead, w.k_norm, k_raw, grads.k_norm);
  const Floats normed = floats(kHidden);
  linear_backward(stream, n, q_raw, pass.normed, kHidden, w.q, kQ, normed, grads.q);
  linear_backward(stream, n, k_raw, pass.normed, kHidden, w.k, kKv, part, grads.k);
  add(stream, {n, kHidden}, normed, part);
  linear_backward(stream, n, v, pass.normed, kHidden, w.v, kKv, part, grads.v);
  add(stream, {n, kHidden}, normed, part);
  rms_norm_backward(stream, n, normed, x, kHidden, w.input_norm, grad_x, grads.input_norm);
  add(stream, {n, kHidden}, grad_x, sum);
}

// ---- the cache ----------------------------------------------------------------------------------------------------

// The cache: blocks of 8 tokens, of which a sequence has 3 at most.
constexpr int64_t kBlocks = 7, kBlockSize = 8, kColumns = 3, kNeighbours = 8;

class Cache {
public:
  Cache(const rlk::Stream& stream, int64_t layout)
      : stream_(stream),
        layout_(layout),
        keys_(stream, std::vector<float>(kBlocks * kBlockSize * kKv, NAN)),  // nothing is read that was not written
        values_(stream, std::vector<float>(kBlocks * kBlockSize * kKv, NAN)),
        table_(stream, {5, 1, 6, /**/ 0, 4, 2}) {}

  static int64_t slot(int64_t sequence, int64_t position) {
    constexpr int64_t kTable[kSequences][kColumns] = {{5, 1, 6}, {0, 4, 2}};
    return kTable[sequence][position / kBlockSize] * kBlockSize + position % kBlockSize;
  }

  void put(const Pass& pass, const Integers& slots) const {
    rlk::ops::ReshapeAndCache call;
    call.params.layout = layout_;
    call.in.key = pass.k_turned.as({pass.tokens, kKvHeads, kHead});
    call.in.value = pass.v.as({pass.tokens, kKvHeads, kHead});
    call.in.key_cache = keys();
    call.in.value_cache = values();
    call.in.slot_mapping = slots.as({pass.tokens});
    call(stream_);
  }

  // One new token of each sequence, whose keys are in the cache already.
  void attend(const Pass& pass, const Integers& context_lens) const {
    rlk::ops::PagedAttention call;
    call.params.layout = layout_;
    call.in.q = pass.q_turned.as({kSequences, kQHeads, kHead});
    call.in.key_cache = keys();
    call.in.value_cache = values();
    call.in.block_table = table_.as({kSequences, kColumns});
    call.in.context_lens = context_lens.as({kSequences});
    call.out.out = pass.attended.as({kSequences, kQHeads, kHead});
    call(stream_);
  }

private:
  bool is_token_major() const { return layout_ == RLK_PAGED_ATTENTION_LAYOUT_TOKEN_MAJOR; }
  rlk::Tensor keys() const {
    if (is_token_major()) return keys_.as({kBlocks, kBlockSize, kKvHeads, kHead});
    return keys_.as({kBlocks, kKvHeads, kHead / kNeighbours, kBlockSize, kNeighbours});
  }
  rlk::Tensor values() const {
    if (is_token_major()) return values_.as({kBlocks, kBlockSize, kKvHeads, kHead});
    return values_.as({kBlocks, kKvHeads, kHead, kBlockSize});
  }
  const rlk::Stream& stream_;
  const int64_t layout_;
  const Floats keys_, values_;
  const Integers table_;
};

// Tokens [sequence, step, hidden] behind the prompts, one of each sequence at a time; their outputs likewise.
std::vector<float> decode(const rlk::Stream& stream, const DeviceWeights& w, const Floats& cos_sin, const Pass& prompts,
                          const Integers& prompt_slots, int64_t layout, const std::vector<float>& tokens) {
  const Cache cache(stream, layout);
  cache.put(prompts, prompt_slots);
  std::vector<float> outputs(tokens.size());
  for (int64_t step = 0; step < kSteps; ++step) {
    std::vector<float> now;
    std::vector<int64_t> positions, slots, lengths;
    const auto row = [&](int64_t b) { return static_cast<std::ptrdiff_t>((b * kSteps + step) * kHidden); };
    for (int64_t b = 0; b < kSequences; ++b) {
      now.insert(now.end(), tokens.begin() + row(b), tokens.begin() + row(b) + kHidden);
      positions.push_back(kPrompts[b] + step);
      slots.push_back(Cache::slot(b, positions.back()));
      lengths.push_back(positions.back() + 1);
    }
    const Floats x(stream, now);
    const Integers at(stream, positions), slot_mapping(stream, slots), context_lens(stream, lengths);
    const Pass pass(stream, kSequences);
    before_attention(stream, w, cos_sin, at, x, pass);
    cache.put(pass, slot_mapping);
    cache.attend(pass, context_lens);
    after_attention(stream, w, x, pass);
    const std::vector<float> out = pass.out.host();
    for (int64_t b = 0; b < kSequences; ++b) {
      const auto from = out.begin() + static_cast<std::ptrdiff_t>(b * kHidden);
      std::copy(from, from + kHidden, outputs.begin() + row(b));
    }
  }
  return outputs;
}

// ---- the comparison -----------------------------------------------------------------------------------------------

struct Expected {
  std::vector<double> prompts, decoded, grad_x;
  PerWeight<std::vector<double>> grads;
};

Expected reference_of(const HostWeights& w, const std::vector<float>& cos_sin, const std::vector<float>& x,
                      const std::vector<float>& tokens, const std::vector<float>& grad_out) {
  using reference::Number;
  using reference::Row;
  const auto variables = [](const float* numbers, size_t count) {
    Row row;
    for (size_t i = 0; i < count; ++i) row.push_back(Number::variable(static_cast<double>(numbers[i])));
    return row;
  };
  const auto weight = [&](const std::vector<float>& numbers) { return variables(numbers.data(), numbers.size()); };
  const PerWeight<Row> v = {weight(w.input_norm), weight(w.q),      weight(w.k),   weight(w.v),
                            weight(w.q_norm),     weight(w.k_norm), weight(w.o),   weight(w.post_norm),
                            weight(w.gate),       weight(w.up),     weight(w.down)};
  const reference::Weights weights = {v.input_norm, v.q,         v.k,    v.v,  v.q_norm, v.k_norm,
                                      v.o,          v.post_norm, v.gate, v.up, v.down};
  const reference::Sizes sizes = {kHidden, kQHeads, kKvHeads, kHead, kInner};
  Expected expected;
  std::vector<Row> inputs;  // of the prompts
  Number loss;              // the sum of grad_out times the outputs of the prompts
  for (int64_t b = 0, first = 0; b < kSequences; first += kPrompts[b++]) {
    std::vector<Row> sequence;
    for (int64_t t = 0; t < kPrompts[b] + kSteps; ++t) {
      const bool is_prompt = t < kPrompts[b];
      const float* from =
          is_prompt ? x.data() + (first + t) * kHidden : tokens.data() + (b * kSteps + t - kPrompts[b]) * kHidden;
      sequence.push_back(variables(from, kHidden));
      if (is_prompt) inputs.push_back(sequence.back());
    }
    const std::vector<Row> outputs = reference::layer(sizes, weights, sequence, cos_sin);
    for (int64_t t = 0; t < kPrompts[b] + kSteps; ++t) {
      for (int64_t i = 0; i < kHidden; ++i) {
        const Number out = outputs[static_cast<size_t>(t)][static_cast<size_t>(i)];
        if (t >= kPrompts[b]) {
          expected.decoded.push_back(out.value);
          continue;
        }
        expected.prompts.push_back(out.value);
        const float factor = grad_out[static_cast<size_t>((first + t) * kHidden + i)];
        loss = loss + out * Number(static_cast<double>(factor));
      }
    }
  }
  const std::vector<double> gradients = reference::gradients();
  const auto of = [&](const Row& row) {
    std::vector<double> list;
    for (const Number& number : row) list.push_back(gradients[static_cast<size_t>(number.id)]);
    return list;
  };
  for (const Row& row : inputs) {
    const std::vector<double> list = of(row);
    expected.grad_x.insert(expected.grad_x.end(), list.begin(), list.end());
  }
  expected.grads = {of(v.input_norm), of(v.q),         of(v.k),    of(v.v),  of(v.q_norm), of(v.k_norm),
                    of(v.o),          of(v.post_norm), of(v.gate), of(v.up), of(v.down)};
  return expected;
}

// Prints the largest error, relative to the largest number; false beyond the bound. Not a number agrees with nothing.
bool compare(const char* name, const std::vector<float>& got, const std::vector<double>& expected, double bound) {
  double largest = 0, error = 0;
  bool is_finite = got.size() == expected.size() && !got.empty();
  for (size_t i = 0; is_finite && i < got.size(); ++i) {
    is_finite = std::isfinite(got[i]);
    largest = std::max(largest, std::fabs(expected[i]));
    error = std::max(error, std::fabs(static_cast<double>(got[i]) - expected[i]));
  }
  const bool is_good = is_finite && error <= bound * largest;
  std::printf("%-28s %10.3g %10.2e%s\n", name, largest, is_finite ? error / largest : NAN,
              is_good ? "" : "  beyond the bound");
  return is_good;
}

bool run(const rlk::Stream& stream, double bound) {
  const HostWeights host = random_weights();
  const DeviceWeights weights = on_device(stream, host), grads = like_weights(stream);
  const std::vector<float> cos_sin = cosines_and_sines(kPositions, kHead, kTheta),
                           x = random_numbers(kPromptTokens * kHidden, 0, 1, 20),
                           tokens = random_numbers(kSequences * kSteps * kHidden, 0, 1, 21),
                           grad_out = random_numbers(kPromptTokens * kHidden, 0, 1, 22);
  std::vector<int64_t> positions, slots;
  for (int64_t b = 0; b < kSequences; ++b) {
    for (int64_t t = 0; t < kPrompts[b]; ++t) positions.push_back(t), slots.push_back(Cache::slot(b, t));
  }
  const Floats angles(stream, cos_sin), prompts(stream, x), grad(stream, grad_out);
  const Floats grad_x(stream, kPromptTokens * kHidden);
  const Integers at(stream, positions), slot_mapping(stream, slots);
  const Integers cu_seqlens(stream, {0, kPrompts[0], kPrompts[0] + kPrompts[1]});

  const Pass pass(stream, kPromptTokens);
  prefill(stream, weights, angles, at, cu_seqlens, prompts, pass);
  backward(stream, weights, angles, at, cu_seqlens, prompts, pass, grad, grads, grad_x);
  const Expected expected = reference_of(host, cos_sin, x, tokens, grad_out);

  std::printf("%-28s %10s %10s\n", "", "largest", "error");
  bool is_good = compare("prefill", pass.out.host(), expected.prompts, bound);
  for (const int64_t layout : {RLK_PAGED_ATTENTION_LAYOUT_TOKEN_MAJOR, RLK_PAGED_ATTENTION_LAYOUT_HEAD_MAJOR}) {
    const bool is_first = layout == RLK_PAGED_ATTENTION_LAYOUT_TOKEN_MAJOR;
    const std::vector<float> out = decode(stream, weights, angles, pass, slot_mapping, layout, tokens);
    is_good &= compare(is_first ? "decoding, token major" : "decoding, head major", out, expected.decoded, bound);
  }
  is_good &= compare("gradient of x", grad_x.host(), expected.grad_x, bound);
  std::vector<const std::vector<double>*> of_weights;
  expected.grads.each([&](const char*, const std::vector<double>& list) { of_weights.push_back(&list); });
  size_t i = 0;
  grads.each([&](const char* name, const Floats& got) {
    is_good &= compare(("gradient of " + std::string(name)).c_str(), got.host(), *of_weights[i++], bound);
  });
  std::printf("%s the bound of %.0e\n", is_good ? "all are within" : "not all are within", bound);
  return is_good;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string backend = "cpu";
    double bound = kBound;
    for (int i = 1; i < argc; i += 2) {
      const std::string name = argv[i];
      if (i + 1 == argc || (name != "--backend" && name != "--bound")) {
        throw std::invalid_argument("'" + name +
                                    "' was not understood; usage: qwen3_layer [--backend NAME] [--bound ERROR]");
      }
      if (name == "--backend") backend = argv[i + 1];
      if (name == "--bound") bound = std::stod(argv[i + 1]);
    }
    const rlk::Runtime runtime;
    const rlk::Stream stream = runtime.stream(backend.c_str());
    if (run(stream, bound)) return 0;
    std::fprintf(stderr, "qwen3_layer: results differ from fp64 by more than the bound; run `rlk-plugins doctor`\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "qwen3_layer: %s\n", error.what());
  }
  return 1;
}

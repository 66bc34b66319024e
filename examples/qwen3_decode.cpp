// Decoding with a model of Qwen3's shape: prompts go into a paged cache in one pass, and then each step feeds the
// tokens that `sample` drew back into the model. A step reads and writes nothing of the host: the ids, positions,
// lengths and slots of the next one are computed on the device. So it is captured once, as a graph, and replayed.
//
//   qwen3_decode [--backend NAME] [--reference NAME] [--dtype f32|bf16] [--bound ERROR] [--layers N] [--hidden N] ...
//
// fails unless
// - the replayed steps draw the ids of the same steps called one by one;
// - `sample` draws these ids on the CPU, too, from the same logits: it promises the class `portable`, integers of the
//   same bits on every backend. From logits that the CPU computed it need not: their last bits may move a draw;
// - one prefill of each whole text, on the reference's backend, gives the logits of every step within the bound.
#include <rlk/ops/cat.hpp>
#include <rlk/ops/copy.hpp>
#include <rlk/ops/gather.hpp>
#include <rlk/ops/sample.hpp>

#include <chrono>
#include <cstdio>
#include <map>
#include <sstream>

#include "qwen3_checks.hpp"
#include "qwen3_decoder.hpp"

namespace {

using namespace qwen3;

constexpr const char* kOperators =
    "add_rms_norm,cast,cat,copy,embedding,fill,gather,linear,paged_attention,reshape_and_cache,rms_norm,"
    "rotary_embedding,sample,silu_and_mul";

// Of the largest logit. 28 layers of Qwen3-0.6B's sizes have 3e-6 and 0.02 on an H200.
constexpr double kBoundF32 = 1e-5, kBoundBf16 = 0.05;

// Of different lengths, as far as there is room.
std::vector<Text> prompts_of(const Shapes& shapes) {
  std::vector<Text> prompts;
  for (int64_t b = 0; b < shapes.batch; ++b) {
    Text text;
    for (int64_t i = 0; i < std::max<int64_t>(shapes.prompt - b % 4, 2); ++i) {
      text.push_back((b * 7919 + i * i * 31 + i * 104729) % shapes.vocabulary);
    }
    prompts.push_back(text);
  }
  return prompts;
}

class Loop {
public:
  Loop(const rlk::Stream& stream, rlk_dtype dtype, const Shapes& shapes, const std::vector<Text>& prompts)
      : stream_(stream),
        shapes_(shapes),
        decoder_(stream, dtype, shapes),
        sampler_(stream, shapes.batch),
        prompts_(stream, dtype, shapes, without_last(prompts)),
        activations_(stream, dtype, shapes, shapes.batch),
        logits_(stream, dtype, shapes.batch * shapes.vocabulary),
        successors_(stream, shapes.positions()),
        slots_(stream, shapes.batch * shapes.positions()),
        ids_(stream, shapes.batch),
        positions_(stream, shapes.batch),
        lengths_(stream, shapes.batch),
        slot_(stream, shapes.batch),
        drawn_(stream, shapes.batch * shapes.steps),
        shifted_(stream, shapes.batch * shapes.steps) {
    std::vector<int64_t> successors, slots;
    for (int64_t i = 0; i < shapes.positions(); ++i) successors.push_back(i + 1);
    for (int64_t b = 0; b < shapes.batch; ++b) {
      for (int64_t i = 0; i < shapes.positions(); ++i) slots.push_back(shapes.slot(b, i));
      first_ids_.push_back(prompts[static_cast<size_t>(b)].back());
      first_positions_.push_back(static_cast<int64_t>(prompts[static_cast<size_t>(b)].size()) - 1);
    }
    successors_.set(successors), slots_.set(slots);
  }

  // Empties the cache and puts the prompts into it, but for their last tokens: those are what the first step reads.
  void start() const {
    decoder_.forget(stream_);
    prompts_.run(stream_, decoder_);
    ids_.set(first_ids_), positions_.set(first_positions_);
    drawn_.set(std::vector<int64_t>(static_cast<size_t>(shapes_.batch * shapes_.steps), -1));
    stream_.synchronize();
  }

  void step() {
    const int64_t n = shapes_.batch, steps = shapes_.steps, positions = shapes_.positions();
    look_up(successors_.as({n, positions}, {0, 1}), lengths_);  // the position and all before it
    look_up(slots_.as({n, positions}), slot_);
    decoder_.run(stream_, {n, ids_, positions_, slot_, lengths_, nullptr}, activations_, attention);
    decoder_.logits(stream_, n, activations_.normed, logits_);
    sampler_.draw(stream_, logits_.as({n, shapes_.vocabulary}), lengths_, ids_, sample);
    rlk::ops::Cat append;  // to all but the oldest of what was drawn
    append.in.a = drawn_.as({n, steps - 1}, {steps, 1}, 1);
    append.in.b = ids_.as({n, 1});
    append.out.y = shifted_.as({n, steps});
    append(stream_);
    copy(shifted_, drawn_, n * steps);
    copy(lengths_, positions_, n);  // of the next step
  }

  std::vector<int64_t> drawn() const { return drawn_.host(); }
  std::vector<float> logits() const { return as_floats(stream_, logits_, shapes_.batch, shapes_.vocabulary); }
  Served attention, sample;

private:
  static std::vector<Text> without_last(std::vector<Text> texts) {
    for (Text& text : texts) text.pop_back();
    return texts;
  }
  // The number of each sequence at its position.
  void look_up(const rlk::Tensor& table, const Integers& result) const {
    rlk::ops::Gather call;
    call.in.x = table;
    call.in.index = positions_.as({shapes_.batch, 1});
    call.out.y = result.as({shapes_.batch, 1});
    call(stream_);
  }
  void copy(const Integers& from, const Integers& to, int64_t count) const {
    rlk::ops::Copy call;
    call.in.x = from.as({count});
    call.out.y = to.as({count});
    call(stream_);
  }

  const rlk::Stream& stream_;
  const Shapes shapes_;
  const Decoder decoder_;
  const Sampler sampler_;
  const Prefill prompts_;
  const Activations activations_;
  const DeviceNumbers logits_;
  const Integers successors_, slots_, ids_, positions_, lengths_, slot_, drawn_, shifted_;
  std::vector<int64_t> first_ids_, first_positions_;
};

// Milliseconds of each step.
template <class Step>
double time_of(const rlk::Stream& stream, int64_t steps, const Step& step) {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < steps; ++i) step();
  stream.synchronize();
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
  return passed.count() / static_cast<double>(steps);
}

bool run(const Settings& settings) {
  const Shapes& shapes = settings.shapes;
  const rlk::Runtime runtime;
  for (const std::string& backend : {settings.backend, settings.reference}) {
    // Operators are verified when they are first wanted: from here on every run has the same implementations.
    if (backend != "cpu") runtime.require((backend + ":" + kOperators).c_str());
  }
  const rlk::Stream stream = runtime.stream(settings.backend.c_str());
  const std::vector<Text> prompts = prompts_of(shapes);
  Loop loop(stream, settings.type(), shapes, prompts);
  std::vector<std::vector<float>> logits;
  loop.start();
  for (int64_t i = 0; i < shapes.steps; ++i) loop.step(), logits.push_back(loop.logits());
  const std::vector<int64_t> drawn = loop.drawn();
  for (size_t b = 0; b < std::min<size_t>(prompts.size(), 4); ++b) {
    std::printf("sequence %zu:", b);
    for (size_t i = 0; i < std::min<size_t>(static_cast<size_t>(shapes.steps), 16); ++i) {
      std::printf(" %lld", static_cast<long long>(drawn[b * static_cast<size_t>(shapes.steps) + i]));
    }
    std::printf("\n");
  }
  loop.start();
  const double eager = time_of(stream, shapes.steps, [&] { loop.step(); });
  bool is_good = are_equal("ids of two runs of the steps", loop.drawn(), drawn, shapes.steps);
  std::printf("%s: %lld sequences, %.3f ms a step by its calls", settings.backend.c_str(),
              static_cast<long long>(shapes.batch), eager);
  if (settings.backend == "cpu") {
    std::printf("; the CPU has no graphs to replay\n");
  } else {
    const rlk::Graph graph = rlk::capture(stream, [&](const rlk::Stream&) { loop.step(); });
    double replayed = 0;
    for (int i = 0; i < 2; ++i) {  // the first launch of a graph also loads it
      loop.start();
      replayed = time_of(stream, shapes.steps, [&] { graph.launch(stream); });
    }
    std::printf(", %.3f ms replayed\n", replayed);
    is_good &= are_equal("ids of the replayed graph and of the steps", loop.drawn(), drawn, shapes.steps);
  }
  std::printf("paged_attention by %s, sample by %s\n", loop.attention.text().c_str(), loop.sample.text().c_str());
  is_good &= draws_agree(runtime, shapes, prompts, logits, drawn);
  return logits_agree(runtime, settings, prompts, logits, drawn) && is_good;
}

Settings parse(const std::vector<std::string>& words) {
  Settings settings;
  Shapes& s = settings.shapes;
  const std::map<std::string, int64_t*> sizes = {
      {"--layers", &s.layers},         {"--hidden", &s.hidden}, {"--q-heads", &s.q_heads},
      {"--kv-heads", &s.kv_heads},     {"--head", &s.head},     {"--inner", &s.inner},
      {"--vocabulary", &s.vocabulary}, {"--batch", &s.batch},   {"--prompt", &s.prompt},
      {"--steps", &s.steps},           {"--block", &s.block}};
  const std::map<std::string, std::string*> names = {
      {"--backend", &settings.backend}, {"--reference", &settings.reference}, {"--dtype", &settings.dtype}};
  for (size_t i = 0; i < words.size(); i += 2) {
    const auto size = sizes.find(words[i]);
    const auto name = names.find(words[i]);
    std::istringstream value(i + 1 < words.size() ? words[i + 1] : "");
    bool good = true;
    if (size != sizes.end()) {
      good = value >> *size->second && *size->second > 0;
    } else if (name != names.end()) {
      good = !!(value >> *name->second);
    } else {
      good = words[i] == "--bound" && value >> settings.bound && settings.bound > 0;
    }
    good = good && value.peek() == std::istringstream::traits_type::eof();
    if (good && (settings.dtype == "f32" || settings.dtype == "bf16")) continue;
    throw std::invalid_argument("'" + words[i] + "' was not understood; usage: qwen3_decode [--backend NAME] " +
                                "[--reference NAME] [--dtype f32|bf16] [--bound ERROR] [--layers N] [--hidden N] " +
                                "[--q-heads N] [--kv-heads N] [--head N] [--inner N] [--vocabulary N] [--batch N] " +
                                "[--prompt N] [--steps N] [--block N]");
  }
  if (settings.bound == 0) settings.bound = settings.dtype == "f32" ? kBoundF32 : kBoundBf16;
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (run(parse({argv + 1, argv + argc}))) return 0;
    std::fprintf(stderr, "qwen3_decode: results differ; run `rlk-plugins doctor`\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "qwen3_decode: %s\n", error.what());
  }
  return 1;
}

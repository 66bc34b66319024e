// The tile, its repetitions, and the windows that are looked at.
#include "core/conformance/large.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "core/conformance/compare.hpp"
#include "core/conformance/elementwise.hpp"
#include "core/conformance/sample.hpp"
#include "core/declaration/error.hpp"
#include "core/declaration/numerics.hpp"
#include "core/declaration/text.hpp"

namespace rlk::core::conformance {

// Which tensors of the tile are rows, and how many there are.
struct LargeRows {
  int64_t count = 0;
  int64_t elements = 0;  // of the tensor with the longest rows, per row
  std::vector<bool> inputs, outputs;
};

namespace {

constexpr int64_t kTileElements = int64_t{1} << 16;
constexpr int64_t kTargets[] = {int64_t{1} << 22, int64_t{1} << 25, int64_t{1} << 31, int64_t{1} << 32};
constexpr int64_t kBeyondIndices = int64_t{1} << 31;
constexpr uint8_t kPoison = 0xff;
constexpr int kRandomWindows = 8;

// True when the tensor has rows: the first axis, and no other, is cut.
std::optional<bool> has_rows(const Kept& kept) {
  for (size_t axis = 1; axis < kept.size(); ++axis) {
    if (kept[axis]) return std::nullopt;
  }
  return !kept.empty() && kept[0].has_value();
}

std::optional<LargeRows> rows_of(const ConcreteCall& call) {
  std::string ignored;
  const bool elementwise = is_elementwise(*call.decl);
  // Of an elementwise call a part that is so small has one index of each axis: those that are not cut are repeated.
  std::optional<Sample> part = elementwise ? some_elements(call, 1, 1) : sample_of(call, 1, {}, &ignored);
  if (!part) return std::nullopt;
  LargeRows rows;
  const auto add = [&](const std::vector<Argument>& arguments, std::vector<Kept>& kept, std::vector<bool>& list) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (elementwise && !kept[i].empty()) {
        const bool is_whole = arguments[i].shape.size() == call.outputs[0].shape.size();
        kept[i].resize(1);
        if (!is_whole) kept[i][0].reset();
      }
      const std::optional<bool> own = has_rows(kept[i]);
      if (!own || (arguments[i].present && bits_of(arguments[i].dtype) < 8)) return false;
      list.push_back(arguments[i].present && *own);
      if (!list.back()) continue;
      rows.count = arguments[i].shape[0];
      rows.elements = std::max(rows.elements, arguments[i].count() / std::max<int64_t>(rows.count, 1));
    }
    return true;
  };
  if (!add(call.inputs, part->inputs, rows.inputs) || !add(call.outputs, part->outputs, rows.outputs))
    return std::nullopt;
  const bool any = std::find(rows.outputs.begin(), rows.outputs.end(), true) != rows.outputs.end();
  return any && rows.count > 1 ? std::optional(rows) : std::nullopt;
}

// The case with so many rows.
Case with_rows(Case c, int64_t rows) {
  if (is_elementwise(*c.decl)) {
    c.first_given = rows;
  } else {
    c.size_given[0] = rows;
  }
  return c;
}

uint64_t bytes_needed(const ConcreteCall& call) {
  uint64_t bytes = 0;
  for (const Argument& input : call.inputs) bytes += input.present ? static_cast<uint64_t>(input.byte_count()) : 0;
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const bool own = call.outputs[i].present && call.output_alias[i] < 0;
    bytes += own ? static_cast<uint64_t>(call.outputs[i].byte_count()) : 0;
  }
  return bytes;
}

}  // namespace

// One call, and its memory.
class Large {
public:
  Large(Harness& harness, const Example& tile, const LargeRows& rows, const ConcreteCall& call)
      : harness_(harness), tile_(tile), rows_(rows), call_(call) {}
  ~Large() {
    // Work that is still in flight keeps its memory.
    if (harness_.broken_ && harness_.broken_->code == "TIMEOUT") return;
    for (void* block : blocks_)
      harness_.releases_->call("deallocate", harness_.target_.owner->device->deallocate, harness_.target_.owner_device,
                               RLK_MEMORY_DEVICE, block);
  }
  Large(const Large&) = delete;
  Large& operator=(const Large&) = delete;

  std::optional<Failure> run(const rlk_implementation& implementation, const Claim& claim, Quality& quality) {
    OwnedPlan plan;
    if (auto failure = harness_.make_plan(implementation, call_, 0, claim, plan)) return failure;
    if (auto failure = place()) return failure;
    rlk_run run{};
    const Descriptors tensors(call_, inputs_, outputs_);
    std::vector<const void*> host_inputs(call_.inputs.size());
    for (size_t i = 0; i < host_inputs.size(); ++i) {
      if ((plan.info().host_inputs >> i & 1) == 0 || !call_.inputs[i].present) continue;
      host_inputs[i] = host_copy(i);
    }
    run.struct_size = sizeof(run);
    run.n_inputs = static_cast<uint32_t>(call_.inputs.size());
    run.n_outputs = static_cast<uint32_t>(call_.outputs.size());
    run.inputs = tensors.inputs().data();
    run.outputs = tensors.outputs().data();
    run.host_inputs = host_inputs.data();
    run.symbols = call_.symbols.data();
    run.n_symbols = static_cast<uint32_t>(call_.decl->symbols.size());
    run.tag = harness_.next_tag_++;
    run.data_error_record = harness_.record_;
    if (auto failure = harness_.prepare(plan, call_, {}, run, run.workspace_bytes)) return failure;
    if (run.workspace_bytes > 0) {
      if (auto failure = allocate(run.workspace_bytes, run.workspace)) return failure;
    }
    plan.give_persistent(run);
    if (auto failure = harness_.enqueue(plan, run)) return failure;
    Outcome landed;
    if (auto failure = harness_.wait(false, landed)) return failure;
    const bool accurate =
        (claim.support.numerics & RLK_NUMERICS_ACCURATE) != 0 || !may_round(*call_.decl, call_.dtypes[0]);
    return look(landed, accurate, quality);
  }
  // The device had no memory, which says nothing of the implementation.
  bool out_of_memory() const { return out_of_memory_; }

private:
  std::optional<Failure> allocate(uint64_t bytes, void*& out) {
    rlk_error error{};
    error.struct_size = sizeof(error);
    const rlk_status status = call_plugin(harness_.target_.owner->device->allocate, harness_.target_.owner_device,
                                          RLK_MEMORY_DEVICE, std::max<uint64_t>(bytes, 1), &out, &error);
    if (status == RLK_OK) {
      blocks_.push_back(out);
      return std::nullopt;
    }
    out_of_memory_ = true;
    return Failure{"NO_MEMORY", fmt::format("allocating {} bytes: {}", bytes, text_of(error.text))};
  }

  std::optional<Failure> place() {
    uint64_t largest = 1;
    for (const Argument& input : tile_.call.inputs) largest = std::max<uint64_t>(largest, input.bytes.size());
    for (const Argument& output : tile_.call.outputs)
      largest = std::max(largest, static_cast<uint64_t>(output.byte_count()));
    if (auto failure = harness_.reserve(largest)) return failure;
    inputs_.assign(call_.inputs.size(), nullptr);
    outputs_.assign(call_.outputs.size(), nullptr);
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!call_.inputs[i].present || call_.inputs[i].count() == 0) continue;
      const auto bytes = static_cast<uint64_t>(call_.inputs[i].byte_count());
      if (auto failure = allocate(bytes, inputs_[i])) return failure;
      if (auto failure = repeat(tile_.call.inputs[i].bytes, inputs_[i], bytes)) return failure;
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!call_.outputs[i].present || call_.outputs[i].count() == 0) continue;
      if (const int32_t over = call_.output_alias[i]; over >= 0) {
        outputs_[i] = inputs_[static_cast<size_t>(over)];
        continue;
      }
      const auto bytes = static_cast<uint64_t>(call_.outputs[i].byte_count());
      if (auto failure = allocate(bytes, outputs_[i])) return failure;
      rlk_error error{};
      error.struct_size = sizeof(error);
      const rlk_status status = call_plugin(harness_.target_.owner->stream->fill, harness_.stream_, outputs_[i],
                                            output_poison(kPoison), bytes, &error);
      if (status != RLK_OK) return harness_.failed(status, "COPY_FAILED", "filling", error);
    }
    Outcome ignored;
    return harness_.wait(false, ignored);
  }

  // Each copy is as long as all before it.
  std::optional<Failure> repeat(const std::vector<std::byte>& tile, void* block, uint64_t bytes) {
    std::memcpy(harness_.sent(), tile.data(), tile.size());
    if (auto failure = harness_.copy(block, harness_.sent(), tile.size(), RLK_COPY_HOST_TO_DEVICE)) return failure;
    auto* const begin = static_cast<std::byte*>(block);
    for (uint64_t filled = tile.size(); filled < bytes;) {
      const uint64_t more = std::min(filled, bytes - filled);
      if (auto failure = harness_.copy(begin + filled, begin, more, RLK_COPY_DEVICE_TO_DEVICE)) return failure;
      filled += more;
    }
    Outcome ignored;
    return harness_.wait(false, ignored);  // what is sent is written to next
  }

  const void* host_copy(size_t i) {
    const std::vector<std::byte>& tile = tile_.call.inputs[i].bytes;
    std::vector<std::byte>& copy = host_copies_.emplace_back();
    while (copy.size() < static_cast<uint64_t>(call_.inputs[i].byte_count()))
      copy.insert(copy.end(), tile.begin(), tile.end());
    return copy.data();
  }

  // The first repetition, the last one, those in which something runs out, and some at random.
  std::set<int64_t> windows() const {
    const int64_t elements = rows_.count * rows_.elements;
    const int64_t count = total() / elements;
    std::set<int64_t> list = {0, count - 1};
    for (const int64_t boundary : boundaries(total())) list.insert(boundary / elements);
    uint64_t state = 1;
    for (int i = 0; i < kRandomWindows; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      list.insert(static_cast<int64_t>((state >> 16) % static_cast<uint64_t>(count)));
    }
    return list;
  }
  int64_t total() const {
    for (size_t i = 0; i < rows_.outputs.size(); ++i) {
      if (rows_.outputs[i]) return call_.outputs[i].shape[0] * rows_.elements;
    }
    return 0;
  }

  std::optional<Failure> look(const Outcome& landed, bool accurate, Quality& quality) {
    ConcreteCall judged = tile_.call;
    for (size_t i = 0; i < judged.outputs.size(); ++i) judged.outputs[i].present &= rows_.outputs[i];
    for (const int64_t window : windows()) {
      Outcome outcome;
      outcome.told = landed.told;
      outcome.tags = landed.tags;
      outcome.outputs.resize(judged.outputs.size());
      for (size_t i = 0; i < judged.outputs.size(); ++i) {
        if (!judged.outputs[i].present) continue;
        const auto bytes = static_cast<uint64_t>(judged.outputs[i].byte_count());
        const auto* const from = static_cast<std::byte*>(outputs_[i]) + static_cast<uint64_t>(window) * bytes;
        if (auto failure = harness_.copy(harness_.fetched(), from, bytes, RLK_COPY_DEVICE_TO_HOST)) return failure;
        Outcome ignored;
        if (auto failure = harness_.wait(false, ignored)) return failure;
        outcome.outputs[i].assign(harness_.fetched(), harness_.fetched() + bytes);
      }
      Quality own;
      std::optional<Failure> failure = check(judged, *tile_.answer, outcome, kPoison, own);
      if (!failure && accurate && !own.inaccurate.empty())
        failure = Failure{"NOT_ACCURATE", own.inaccurate + " by the class accurate, which it claims"};
      quality.merge(own);
      if (!failure) continue;
      failure->text += fmt::format(" (the first index counts from {}, in a call of {} rows)", window * rows_.count,
                                   total() / rows_.elements);
      return failure;
    }
    return std::nullopt;
  }

  Harness& harness_;
  const Example& tile_;
  const LargeRows& rows_;
  const ConcreteCall& call_;
  std::vector<void*> inputs_, outputs_, blocks_;
  std::vector<std::vector<std::byte>> host_copies_;
  bool out_of_memory_ = false;
};

uint64_t Harness::free_memory() const {
  uint64_t available = 0, total = 0;
  if (call_plugin(target_.owner->device->memory_info, target_.owner_device, &available, &total, nullptr) != RLK_OK)
    return 0;
  // Memory that the host's programs need too is not taken whole.
  return (target_.owner_flags & RLK_DEVICE_UNIFIED_MEMORY) != 0 ? available / 2 : available / 10 * 9;
}

std::optional<LargeCaseRun> try_large(Harness& harness, Examples& examples, const rlk_implementation& implementation,
                                      const OpDecl& decl, int dtype_choice, int form, const LargeOptions& options) {
  Case base;
  base.decl = &decl;
  base.form = form;
  base.dtype_choice[0] = dtype_choice;
  ConcreteCall call;
  if (!resolve(base, call)) return std::nullopt;
  const std::optional<LargeRows> few = rows_of(call);
  if (!few) return std::nullopt;
  // An odd number of rows, so that an index that has lost its upper bits names another one.
  const Case tile_case = with_rows(base, std::max<int64_t>(kTileElements / few->elements, 2) | 1);
  ConcreteCall tile_call;
  if (!resolve(tile_case, tile_call)) return std::nullopt;
  const std::optional<LargeRows> rows = rows_of(tile_call);
  if (!rows) return std::nullopt;

  LargeCaseRun result;
  std::shared_ptr<const Example> tile;
  double seconds_per_element = 0;
  int64_t tried = 0;
  for (const int64_t target : kTargets) {
    if (target > options.most_elements) break;
    const int64_t elements = rows->count * rows->elements;
    const Case c = with_rows(base, rows->count * ((target / elements + 2) | 1));
    ConcreteCall large;
    if (!resolve(c, large)) break;
    const std::string words = describe(c, large);
    const std::string title = fmt::format("{} {} {} large", decl.name, implementation.name, words);
    if (options.is_asked_for && !options.is_asked_for(title)) continue;
    const Claim claim = harness.query(implementation, large, 0);
    if (claim.kind != Claim::Kind::accepted) break;  // it says where it ends
    const auto falls_short = [&](const std::string& why) {
      if (tried >= kBeyondIndices) return;
      result.note = fmt::format("tried with {} elements and not beyond 2^31: {} elements {}", tried, target, why);
    };
    const uint64_t bytes =
        bytes_needed(large) + (claim.support.workspace_bound < UINT64_MAX ? claim.support.workspace_bound : 0);
    if (const uint64_t available = harness.free_memory(); bytes > available) {
      falls_short(fmt::format("take {} bytes, and {} may be had", bytes, available));
      break;
    }
    if (const double seconds = seconds_per_element * static_cast<double>(target); seconds > options.most_seconds) {
      falls_short(fmt::format("would take some {:.0f} s", seconds));
      break;
    }
    if (options.progress) options.progress(title);
    if (tile == nullptr) tile = examples.get(tile_case, false);
    if (!tile->answer->faults.empty()) break;
    const auto begin = std::chrono::steady_clock::now();
    Large run(harness, *tile, *rows, large);
    std::optional<Failure> failure = run.run(implementation, claim, result.quality);
    if (failure && run.out_of_memory()) {
      falls_short("had no memory: " + failure->text);
      break;
    }
    result.call = large;
    result.words = words;
    result.title = title;
    result.variant = claim.variant;
    result.failure = std::move(failure);
    tried = target;
    if (result.failure || harness.broken()) break;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    seconds_per_element = took.count() / static_cast<double>(target);
  }
  return tried > 0 || !result.note.empty() ? std::optional(std::move(result)) : std::nullopt;
}

}  // namespace rlk::core::conformance

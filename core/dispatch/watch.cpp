// First uses and sampled calls, compared in the background.
#include "core/dispatch/watch.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <system_error>

#include "core/conformance/compare.hpp"
#include "core/conformance/elements.hpp"
#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/hints.hpp"
#include "core/declaration/error.hpp"
#include "core/declaration/plugin_call.hpp"
#include "core/dispatch/data_error.hpp"
#include "core/dispatch/eligible.hpp"
#include "core/dispatch/host.hpp"
#include "core/dispatch/policy.hpp"
#include "core/dispatch/telling.hpp"
#include "core/golden/bulk.hpp"

namespace rlk::core {
namespace {

// What may wait for the comparing thread: beyond it calls go uncompared, and their class is tried again later.
constexpr size_t kMaxWaiting = 32;
constexpr uint64_t kMaxBytesWaiting = uint64_t{256} << 20;
constexpr auto kPatience = std::chrono::seconds(60);
// Calls of a class that may be compared until one gives a verdict.
constexpr int kMostUndecided = 8;

// A call of the framework as the conformance engine sees calls; without values.
conformance::ConcreteCall whole_call(const Call& call) {
  conformance::ConcreteCall whole;
  whole.decl = &call.decl();
  whole.form = call.bound.form;
  whole.present = call.bound.present;
  whole.symbols = call.bound.symbols;
  whole.dtypes = call.bound.dtypes;
  whole.output_alias = call.bound.output_alias;
  const auto* params = static_cast<const std::byte*>(call.bound.params);
  whole.params.assign(params, params + call.decl().params_size);
  const auto add = [](std::span<const rlk_tensor* const> tensors, std::vector<conformance::Argument>& list) {
    for (const rlk_tensor* tensor : tensors) {
      conformance::Argument& argument = list.emplace_back();
      if (tensor == nullptr) continue;
      argument.present = dtype_from(tensor->dtype, argument.dtype);
      argument.shape.assign(tensor->shape, tensor->shape + tensor->ndim);
    }
  };
  add(call.inputs, whole.inputs);
  add(call.outputs, whole.outputs);
  return whole;
}

// The largest power of two that divides every address.
uint32_t alignment_of(const Call& call) {
  uint64_t addresses = 256;
  for (const auto tensors : {call.inputs, call.outputs}) {
    for (const rlk_tensor* tensor : tensors) {
      if (tensor != nullptr) addresses |= reinterpret_cast<uintptr_t>(tensor->data) + tensor->byte_offset;
    }
  }
  return static_cast<uint32_t>(addresses & (~addresses + 1));
}

std::string name_of_class(const Candidate& candidate, const char* dtype, const char* variant, uint32_t size_class) {
  return fmt::format("{} {}/{}/{}/{}/{}/{}", candidate.plugin->id, reinterpret_cast<uintptr_t>(candidate.plugin->api),
                     candidate.decl->name, candidate.implementation->name, dtype, variant, size_class);
}

bool is_empty(const rlk_tensor& tensor) {
  return std::find(tensor.shape, tensor.shape + tensor.ndim, 0) != tensor.shape + tensor.ndim;
}

// Where the reference has left the finite numbers nothing is judged: whether an infinity or a NaN comes of that, or a
// finite number from a wider range, is no question of accuracy. The smoke test asks what NaN and infinities do.
void judge_finite_elements_only(conformance::Answer& answer) {
  for (golden::Output& output : answer.outputs) {
    for (size_t i = 0; i < output.value.size(); ++i) {
      const bool has_bound =
          !std::isnan(output.cond[i]) && (output.rounded.empty() || std::isfinite(output.rounded[i]));
      if (std::isfinite(output.value[i]) && has_bound) continue;
      output.cond[i] = std::numeric_limits<double>::infinity();
    }
  }
}

// The sizes of numbers that tests try. With others a wrong result is no verdict: what the formula's own steps do to
// such numbers, an implementation may do otherwise.
constexpr double kLeast = 0x1p-60, kMost = 0x1p60;

// Whether the right answer and what it is the sum of are such numbers; what is not finite is not judged anyway.
bool has_ordinary_numbers(const conformance::Answer& answer) {
  const auto is_beyond = [](double number) { return std::isfinite(number) && std::fabs(number) > kMost; };
  return std::none_of(answer.outputs.begin(), answer.outputs.end(), [&](const golden::Output& output) {
    return std::any_of(output.value.begin(), output.value.end(), is_beyond) ||
           std::any_of(output.cond.begin(), output.cond.end(), is_beyond);
  });
}

// Whether every input's largest number is 0 or such a number, -inf among the scores included.
bool has_ordinary_numbers(const conformance::ConcreteCall& call) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const conformance::Argument& input = call.inputs[i];
    if (!input.present || !is_floating(input.dtype)) continue;
    std::vector<double> numbers(static_cast<size_t>(input.count()));
    golden::load_all(input.bytes.data(), conformance::golden_dtype(input.dtype), numbers);
    double largest = 0;
    for (const double number : numbers) {
      if (call.decl->inputs[i].domain.minus_inf && number == -std::numeric_limits<double>::infinity()) continue;
      if (!(std::fabs(number) <= kMost)) return false;  // NaN too
      largest = std::max(largest, std::fabs(number));
    }
    if (largest > 0 && largest < kLeast) return false;
  }
  return true;
}

}  // namespace

class WatchedCall {
public:
  WatchedCall(const Candidate& served_by, DeviceState& on)
      : held(served_by.shared_from_this()), candidate(*held), device(on) {}
  ~WatchedCall() {
    if (memory != nullptr) device.pinned.deallocate(memory, std::move(end), nullptr);
  }
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

  const std::shared_ptr<const Candidate> held;
  const Candidate& candidate;
  DeviceState& device;
  std::string variant, words;
  const char* dtype = "";
  uint32_t size_class = 0;
  bool first_use = false;
  std::string class_name;                  // of a first use
  std::weak_ptr<std::atomic<bool>> again;  // of a first use: whether its decision's next call is one too
  bool wants_accurate = false;
  conformance::Sample sample;
  std::vector<std::optional<Fetch>> inputs, outputs;
  uint64_t bytes = 0, copied = 0;
  void* memory = nullptr;  // pinned: what is copied, inputs first
  std::shared_ptr<StreamReports> reports;
  std::shared_ptr<Telling> telling;
  Mark end;

  // False when a tensor lies so that it takes too many copies.
  bool plan_fetches(const Call& call) {
    const auto plan = [&](std::span<const rlk_tensor* const> tensors, std::vector<conformance::Kept>& kept,
                          std::vector<std::optional<Fetch>>& list) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        list.emplace_back();
        if (tensors[i] == nullptr || is_empty(*tensors[i])) continue;
        const std::span shape(tensors[i]->shape, static_cast<size_t>(tensors[i]->ndim));
        if (!conformance::lies_within(kept[i], shape)) return false;
        list.back() = Fetch::make(*tensors[i], std::move(kept[i]));
        if (!list.back()) return false;
        bytes += list.back()->bytes();
      }
      return true;
    };
    return plan(call.inputs, sample.inputs, inputs) && plan(call.outputs, sample.outputs, outputs);
  }

  rlk_status copy(const Call& call, std::span<const rlk_tensor* const> tensors,
                  const std::vector<std::optional<Fetch>>& fetches) {
    rlk_plugin_stream* stream = call.stream.handle();
    const auto enqueue = [&](char* to, const char* from, uint64_t count) {
      return call_plugin(device.api.stream->copy, stream, to, from, count, RLK_COPY_DEVICE_TO_HOST, nullptr);
    };
    for (size_t i = 0; i < fetches.size(); ++i) {
      if (!fetches[i]) continue;
      const rlk_status status = fetches[i]->enqueue(*tensors[i], static_cast<char*>(memory) + copied, enqueue);
      if (status != RLK_OK) return status;
      copied += fetches[i]->bytes();
    }
    return RLK_OK;
  }

  // The values of the part, out of what was copied.
  std::vector<std::vector<std::byte>> unpack() {
    std::vector<std::vector<std::byte>> results;
    const char* at = static_cast<const char*>(memory);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i]) sample.call.inputs[i].bytes = inputs[i]->pick(at);
      if (inputs[i]) at += inputs[i]->bytes();
    }
    for (const std::optional<Fetch>& output : outputs) {
      results.push_back(output ? output->pick(at) : std::vector<std::byte>());
      if (output) at += output->bytes();
    }
    return results;
  }
};

void WatchedCallDeleter::operator()(WatchedCall* call) const {
  delete call;
}

Watcher::Watcher(Registry& registry, const Policy& policy)
    : registry_(registry), first_uses_(policy.watches_first_uses()), rate_(policy.watch_rate()), process_(getpid()) {}

Watcher::~Watcher() {
  if (process_ != getpid()) {
    static_cast<void>(sync_.release());
    return;
  }
  {
    const std::lock_guard lock(sync_->mutex);
    stopping_ = true;
  }
  sync_->changed.notify_all();
  if (sync_->thread.joinable()) sync_->thread.join();
}

bool Watcher::draws() {
  if (rate_ <= 0) return false;
  static thread_local uint64_t state = reinterpret_cast<uintptr_t>(&state) | 1;
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return static_cast<double>(state >> 11) * 0x1p-53 < rate_;
}

// Whether nobody has verified, compared or begun to compare the class before.
bool Watcher::claim_class(const Candidate& candidate, const Call& call, const char* variant, uint32_t size_class) {
  const char* dtype = first_dtype(call.bound);
  for (const UnitResult* unit : candidate.units) {
    if (unit->dtype != dtype || unit->variant != variant) continue;
    const auto& known = unit->size_classes;
    if (std::find(known.begin(), known.end(), size_class) != known.end()) return false;
  }
  const std::lock_guard lock(sync_->mutex);
  return known_.insert(name_of_class(candidate, dtype, variant, size_class)).second;
}

// A later call of the class may tell: numbers of one call must not keep all others from being compared. [locked]
void Watcher::leave_undecided(const std::string& class_name, const std::shared_ptr<std::atomic<bool>>& again) {
  ++statistics_.passed_over;
  if (class_name.empty() || ++undecided_[class_name] >= kMostUndecided) return;
  known_.erase(class_name);
  if (again != nullptr) again->store(true, std::memory_order_relaxed);
}
void Watcher::leave_undecided(const WatchedCall& watched) {
  leave_undecided(watched.class_name, watched.again.lock());
}

WatchedCallPtr Watcher::begin(const Call& call, const Candidate& candidate, const char* variant,
                              const std::shared_ptr<std::atomic<bool>>& fresh) {
  const bool first_use = fresh != nullptr;
  if (call.capturing || (first_use && !first_uses_) || process_ != getpid()) return nullptr;
  try {
    const conformance::ConcreteCall whole = whole_call(call);
    const std::vector<std::string> features = features_of(call.bound, call.inputs, call.outputs);
    const uint32_t size_class = conformance::size_class(whole, alignment_of(call), features);
    if (first_use && !claim_class(candidate, call, variant, size_class)) return nullptr;
    std::string class_name;
    if (first_use) class_name = name_of_class(candidate, first_dtype(call.bound), variant, size_class);
    const auto pass_over = [&]() -> WatchedCallPtr {
      const std::lock_guard lock(sync_->mutex);
      leave_undecided(class_name, fresh);
      return nullptr;
    };
    std::string why_not;
    const uint64_t seed = call.stream.clock()->issued.load(std::memory_order_relaxed);
    std::optional<conformance::Sample> sample = conformance::sample_of(whole, seed, {}, &why_not);
    if (!sample) {
      log_line(RLK_LOG_DEBUG, "watch", fmt::format("{} is not compared: {}", call.decl().name, why_not));
      // Too large, as the class's next call would be: it is not asked again.
      const std::lock_guard lock(sync_->mutex);
      ++statistics_.passed_over;
      return nullptr;
    }
    DeviceState& device = call.stream.device();
    WatchedCallPtr watched(new WatchedCall(candidate, device));
    watched->sample = std::move(*sample);
    if (!watched->plan_fetches(call)) return pass_over();
    {
      const std::lock_guard lock(sync_->mutex);
      if (waiting_.size() >= kMaxWaiting || bytes_waiting_ + watched->bytes > kMaxBytesWaiting) {
        ++statistics_.passed_over;
        if (first_use) {  // tried again as often as it takes: this says nothing of the class
          known_.erase(class_name);
          fresh->store(true, std::memory_order_relaxed);
        }
        return nullptr;
      }
    }
    watched->variant = variant;
    watched->dtype = first_dtype(call.bound);
    watched->size_class = size_class;
    watched->first_use = first_use;
    watched->class_name = class_name;  // what fails below passes the class over too
    watched->again = fresh;
    watched->wants_accurate = (call.options.numerics & RLK_NUMERICS_ACCURATE) != 0;
    watched->reports = call.stream.reports();
    for (size_t s = 0; s < call.decl().symbols.size(); ++s) {
      if (call.bound.symbols[s] < 0) continue;
      watched->words += (watched->words.empty() ? "" : ",") +
                        fmt::format("{}={}", call.decl().symbols[s].name, call.bound.symbols[s]);
    }
    if (device.pinned.allocate(*call.stream.clock(), std::max<uint64_t>(watched->bytes, 1), &watched->memory,
                               nullptr) != RLK_OK) {
      watched->memory = nullptr;
      return pass_over();
    }
    if (watched->copy(call, call.inputs, watched->inputs) != RLK_OK) {
      watched->end = call.stream.mark(/*with_event=*/true);
      return pass_over();
    }
    return watched;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void Watcher::finish(WatchedCallPtr watched, const Call& call, rlk_status status) {
  const bool copied = status == RLK_OK && watched->copy(call, call.outputs, watched->outputs) == RLK_OK;
  watched->end = call.stream.mark(/*with_event=*/true);
  if (copied) watched->telling = call.stream.note_telling(call.tag);
  const std::lock_guard lock(sync_->mutex);
  if (!copied || stopping_) {
    leave_undecided(*watched);
    return;
  }
  try {
    if (!sync_->thread.joinable()) sync_->thread = std::thread([this] { work(); });
  } catch (const std::system_error&) {  // no thread to be had: the call is done, and is not compared
    leave_undecided(*watched);
    return;
  }
  bytes_waiting_ += watched->bytes;
  waiting_.push_back(std::move(watched));
  sync_->changed.notify_all();
}

void Watcher::work() {
  std::unique_lock lock(sync_->mutex);
  for (;;) {
    sync_->changed.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (stopping_) break;
    WatchedCallPtr watched = std::move(waiting_.front());
    waiting_.pop_front();
    bytes_waiting_ -= watched->bytes;
    busy_ = true;
    lock.unlock();
    try {
      judge(*watched);
    } catch (const std::exception& e) {
      log_line(RLK_LOG_WARN, "watch", std::string("a call could not be compared: ") + e.what());
    }
    watched.reset();
    lock.lock();
    busy_ = false;
    sync_->changed.notify_all();
  }
  waiting_.clear();
}

void Watcher::judge(WatchedCall& watched) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  rlk_status passed = RLK_NOT_READY;
  while ((passed = watched.end.ask()) == RLK_NOT_READY && std::chrono::steady_clock::now() < deadline) {
    {
      const std::lock_guard lock(sync_->mutex);
      if (stopping_) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const auto without_verdict = [&] {
    const std::lock_guard lock(sync_->mutex);
    leave_undecided(watched);
  };
  if (passed != RLK_OK) return without_verdict();  // the stream failed or hangs, and its owner is told so
  conformance::Outcome outcome;
  outcome.outputs = watched.unpack();
  conformance::Answer answer = conformance::golden_answer(watched.sample.call);
  // Ids out of their range and the like are told by the stream; what such a row must hold is no question of accuracy.
  if (!answer.faults.empty()) {
    without_verdict();
    return judge_silence(watched, answer.faults[0]);
  }
  for (size_t i = 0; i < outcome.outputs.size(); ++i)
    watched.sample.call.outputs[i].present &= watched.sample.judged[i];
  judge_finite_elements_only(answer);
  conformance::Quality quality;
  std::optional<conformance::Failure> failure =
      conformance::check(watched.sample.call, answer, outcome, /*poison=*/0, quality);
  if (!failure && watched.wants_accurate && !quality.inaccurate.empty()) {
    failure = conformance::Failure{"NOT_ACCURATE", quality.inaccurate};
  }
  if (failure) failure->text += conformance::hint_for(watched.sample.call, outcome, /*poison=*/0);
  const Candidate& candidate = watched.candidate;
  if (!failure) {
    {
      const std::lock_guard lock(sync_->mutex);
      ++statistics_.compared;
    }
    if (watched.first_use) {
      registry_.note_compared({candidate.plugin->api, candidate.plugin->id, candidate.decl->name,
                               candidate.implementation->name, watched.dtype, watched.variant, watched.size_class});
    }
    return;
  }
  if (!has_ordinary_numbers(watched.sample.call) || !has_ordinary_numbers(answer)) {
    without_verdict();
    log_line(RLK_LOG_WARN, "watch",
             fmt::format(
                 "{} by {}/{} ({}, {}) differs from the reference in {}; the call or its right answer has numbers "
                 "that are infinite, NaN, or beyond 2^60 in size, or an input below 2^-60, and so this is no verdict",
                 candidate.decl->name, candidate.plugin->id, candidate.implementation->name, watched.dtype,
                 watched.words, failure->text));
    return;
  }
  {
    const std::lock_guard lock(sync_->mutex);
    ++statistics_.wrong;
  }
  const std::string who = fmt::format("{} by {}/{} ({}, {})", candidate.decl->name, candidate.plugin->id,
                                      candidate.implementation->name, watched.dtype, watched.words);
  const std::string text = "some rows of an earlier call were compared with the reference: " + failure->text +
                           " (indices count the rows that were compared)";
  registry_.quarantine(*candidate.plugin, candidate.decl->name, candidate.implementation->name, watched.dtype,
                       failure->code, text);
  watched.reports->add_wrong_result(
      fmt::format("{} was wrong and is switched off: {}. What was computed by it since is in doubt", who, text));
}

// Who leaves a data error out has computed with what is not there. The stream may be asked later, or never.
void Watcher::judge_silence(const WatchedCall& watched, const conformance::Fault& fault) {
  // Whether any score of a row is finite may be a question of the numbers that they are made of.
  if (fault.kind == RLK_DATA_NO_FINITE_LOGIT && !has_ordinary_numbers(watched.sample.call)) return;
  rlk_data_error error{};
  error.struct_size = sizeof(error);
  error.kind = fault.kind;
  error.tag = watched.telling->tag();
  error.row = fault.row;
  error.value = fault.value;
  const auto condemn = [this, held = watched.held, dtype = watched.dtype, words = watched.words,
                        reports = watched.reports, what = describe(error, watched.device.entry.name())] {
    {
      const std::lock_guard lock(sync_->mutex);
      ++statistics_.wrong;
    }
    const std::string who = fmt::format("{} by {}/{} ({}, {})", held->decl->name, held->plugin->id,
                                        held->implementation->name, dtype, words);
    const std::string text = fmt::format(
        "the inputs of an earlier call have a data error, and the stream told of none: {} (rows are counted among "
        "those "
        "that were compared)",
        what);
    registry_.quarantine(*held->plugin, held->decl->name, held->implementation->name, dtype, "DATA_ERROR_MISSING",
                         text);
    reports->add_wrong_result(
        fmt::format("{} is switched off: {}. What was computed by it since is in doubt", who, text));
  };
  if (watched.telling->ask(condemn) == Telling::Answer::silent) condemn();
}

void Watcher::settle() {
  std::unique_lock lock(sync_->mutex);
  sync_->changed.wait(lock, [&] { return waiting_.empty() && !busy_; });
}

WatchStatistics Watcher::statistics() const {
  const std::lock_guard lock(sync_->mutex);
  return statistics_;
}

}  // namespace rlk::core

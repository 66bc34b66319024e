// First uses and sampled calls, compared in the background.
#include "core/dispatch/trust/shadow_check.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "core/conformance/compare.hpp"
#include "core/conformance/elements.hpp"
#include "core/conformance/golden_bridge.hpp"
#include "core/conformance/hints.hpp"
#include "core/conformance/layouts.hpp"
#include "core/declaration/error.hpp"
#include "core/declaration/plugin_call.hpp"
#include "core/dispatch/call/data_error.hpp"
#include "core/dispatch/call/eligible.hpp"
#include "core/dispatch/call/policy.hpp"
#include "core/dispatch/log.hpp"
#include "core/dispatch/trust/process_end.hpp"
#include "core/dispatch/trust/shadow_call.hpp"
#include "core/dispatch/trust/telling.hpp"
#include "core/golden/bulk.hpp"

namespace rlk::core {
namespace {

// What may wait for the comparing thread: beyond it calls go uncompared, and their class is tried again later.
constexpr size_t kMaxWaiting = 32;
constexpr uint64_t kMaxBytesWaiting = ShadowCall::kMostBytes;
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

// "N=5,V=37", or of a call without symbols the shape of its first output: "5x37".
std::string sizes_of(const Call& call) {
  std::string text;
  const OpDecl& decl = call.decl();
  for (size_t s = 0; s < decl.symbols.size(); ++s) {
    if (call.bound.symbols[s] < 0) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", decl.symbols[s].name, call.bound.symbols[s]);
  }
  const rlk_tensor* const output = call.outputs.empty() ? nullptr : call.outputs[0];
  for (int32_t i = 0; decl.symbols.empty() && output != nullptr && i < output->ndim; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : "x", output->shape[i]);
  }
  return text;
}

CallClass class_of(const Call& call, const Candidate& candidate, const char* variant,
                   const conformance::ConcreteCall& whole) {
  std::vector<std::string> features = features_of(call.bound, call.inputs, call.outputs);
  for (std::string& word : conformance::layout_words(call.inputs, call.outputs)) features.push_back(std::move(word));
  CallClass of;
  of.unit = {candidate.plugin->api,
             candidate.plugin->id,
             candidate.decl->name,
             candidate.implementation->name,
             first_dtype(call.bound),
             variant,
             conformance::size_class(whole, alignment_of(call), features)};
  of.name = fmt::format("{} {}/{}/{}/{}/{}/{}", of.unit.plugin, reinterpret_cast<uintptr_t>(of.unit.api), of.unit.op,
                        of.unit.implementation, of.unit.dtype, of.unit.variant, of.unit.size_class);
  of.sizes = sizes_of(call);
  return of;
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

void ShadowCallDeleter::operator()(ShadowCall* call) const {
  delete call;
}

ShadowCheck::ShadowCheck(Registry& registry, const Policy& policy)
    : registry_(registry),
      first_uses_(policy.shadow_checks_first_uses()),
      rate_(policy.shadow_check_rate()),
      process_(getpid()) {}

ShadowCheck::~ShadowCheck() {
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

bool ShadowCheck::draws() {
  if (rate_ <= 0) return false;
  static thread_local uint64_t state = reinterpret_cast<uintptr_t>(&state) | 1;
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return static_cast<double>(state >> 11) * 0x1p-53 < rate_;
}

// Whether tests had the class.
bool ShadowCheck::is_proved(const CallClass& of, const Candidate& candidate) const {
  return std::any_of(candidate.units.begin(), candidate.units.end(), [&](const UnitResult* unit) {
    const auto& known = unit->size_classes;
    return unit->dtype == of.unit.dtype && unit->variant == of.unit.variant &&
           std::find(known.begin(), known.end(), of.unit.size_class) != known.end();
  });
}

// Whether the class was never verified, compared or begun to be compared before.
bool ShadowCheck::claim_class(const CallClass& of, const Candidate& candidate) {
  if (is_proved(of, candidate)) return false;
  const std::lock_guard lock(sync_->mutex);
  return known_.insert(of.name).second;
}

// A later call of the class may decide: numbers of one call must not keep all others from being compared.
void ShadowCheck::pass_over(const CallClass& of, WhyNot why, const std::string& reason, Again again,
                            const Freshness& fresh) {
  std::optional<UncomparedClass> to_tell;
  {
    const std::lock_guard lock(sync_->mutex);
    ++statistics_.passed_over;
    const bool is_last = again == Again::no || (again == Again::some_times && ++undecided_[of.name] >= kMostUndecided);
    if (!is_last && fresh != nullptr) {
      known_.erase(of.name);
      fresh->store(true, std::memory_order_relaxed);
    }
    // A capture may be the only call that there ever is.
    const bool is_final = is_last || why == WhyNot::captured;
    if (!decided_.contains(of.name)) to_tell = uncompared_.note(of, why, reason, is_final);
  }
  if (!to_tell) return;
  log_line(rate_ >= 1 ? RLK_LOG_WARN : RLK_LOG_INFO, "shadow check", text_of(*to_tell));
  registry_.note_uncompared(*to_tell);
}
void ShadowCheck::pass_over(const ShadowCall& shadow, WhyNot why, const std::string& reason) {
  pass_over(shadow.of, why, reason, Again::some_times, shadow.again.lock());
}

void ShadowCheck::pass_staged(const Call& call, const Candidate& candidate, const char* variant) {
  if (!first_uses_ || process_ != getpid()) return;
  try {
    const CallClass of = class_of(call, candidate, variant, whole_call(call));
    if (is_proved(of, candidate)) return;
    pass_over(of, WhyNot::staged, "the CPU serves the device's stream, where nothing is copied for a comparison",
              Again::no, nullptr);
  } catch (const std::bad_alloc&) {  // the call goes on, and so does its next one
  }
}

ShadowCallPtr ShadowCheck::begin(const Call& call, const Candidate& candidate, const char* variant,
                                 const Freshness& fresh) {
  const bool first_use = fresh != nullptr;
  if ((first_use && !first_uses_) || process_ != getpid() || end_has_begun()) return nullptr;
  std::string claimed;  // the class, until a call of it is on its way to be compared
  try {
    const conformance::ConcreteCall whole = whole_call(call);
    const CallClass of = class_of(call, candidate, variant, whole);
    std::string to_claim = of.name;
    if (first_use && !claim_class(of, candidate)) return nullptr;
    if (first_use) claimed = std::move(to_claim);
    try {
      return begin(call, candidate, of, whole, fresh);
    } catch (const std::bad_alloc&) {
      pass_over(of, WhyNot::no_memory, "there was no memory for it", Again::some_times, fresh);
    }
  } catch (const std::bad_alloc&) {  // not even to report it: the class's next call is tried
    if (first_use) fresh->store(true, std::memory_order_relaxed);
    if (claimed.empty()) return nullptr;
    const std::lock_guard lock(sync_->mutex);
    known_.erase(claimed);
  }
  return nullptr;
}

ShadowCallPtr ShadowCheck::begin(const Call& call, const Candidate& candidate, const CallClass& of,
                                 const conformance::ConcreteCall& whole, const Freshness& fresh) {
  const auto pass = [&](WhyNot why, const std::string& reason, Again again) -> ShadowCallPtr {
    if (fresh != nullptr || !is_proved(of, candidate)) pass_over(of, why, reason, again, fresh);
    return nullptr;
  };
  if (call.capturing) return pass(WhyNot::captured, "it is captured into a graph", Again::always);
  DeviceState& device = call.stream.device();
  ShadowCallPtr shadow(new ShadowCall(candidate, device));
  const uint64_t seed = call.stream.clock()->issued.load(std::memory_order_relaxed);
  // What is too large for one call is so for the class's next one: it is not asked again.
  if (const auto why_not = shadow->choose_part(call, whole, seed))
    return pass(why_not->first, why_not->second, Again::no);
  if (!has_room(*shadow)) return pass(WhyNot::no_room, "too many calls wait to be compared", Again::always);
  shadow->of = of;
  shadow->first_use = fresh != nullptr;
  shadow->again = fresh;
  shadow->wants_accurate = (call.options.numerics & RLK_NUMERICS_ACCURATE) != 0;
  shadow->reports = call.stream.reports();
  if (device.pinned.allocate(*call.stream.clock(), std::max<uint64_t>(shadow->bytes, 1), &shadow->memory, nullptr) !=
      RLK_OK) {
    shadow->memory = nullptr;
    return pass(WhyNot::no_memory, fmt::format("the device had no {} bytes of pinned memory", shadow->bytes),
                Again::some_times);
  }
  if (shadow->copy_inputs(call) != RLK_OK) {
    shadow->end_copies(call.stream);
    return pass(WhyNot::failed, "the device did not copy its inputs", Again::some_times);
  }
  return shadow;
}

bool ShadowCheck::has_room(const ShadowCall& shadow) {
  const std::lock_guard lock(sync_->mutex);
  return waiting_.size() < kMaxWaiting && bytes_waiting_ + shadow.bytes <= kMaxBytesWaiting;
}

void ShadowCheck::finish(ShadowCallPtr shadow, const Call& call, rlk_status status) {
  try {
    hand_over(std::move(shadow), call, status);
  } catch (const std::bad_alloc&) {
    // The call itself is done, and is not compared.
  }
}

void ShadowCheck::hand_over(ShadowCallPtr shadow, const Call& call, rlk_status status) {
  const bool copied = status == RLK_OK && shadow->copy_outputs(call) == RLK_OK;
  shadow->end_copies(call.stream);
  if (copied) shadow->telling = call.stream.note_telling(call.tag);
  if (!copied) return pass_over(*shadow, WhyNot::failed, "the call failed, or the device did not copy its outputs");
  std::unique_lock lock(sync_->mutex);
  if (stopping_) return;
  try {
    if (!sync_->thread.joinable()) sync_->thread = std::thread([this] { work(); });
    waiting_.emplace_back();
  } catch (const std::system_error&) {  // no thread can be started: the call is done, and is not compared
    lock.unlock();
    return pass_over(*shadow, WhyNot::no_memory, "there was no thread to compare it");
  }
  bytes_waiting_ += shadow->bytes;
  waiting_.back() = std::move(shadow);
  lock.unlock();
  sync_->changed.notify_all();
}

void ShadowCheck::work() {
  std::unique_lock lock(sync_->mutex);
  for (;;) {
    sync_->changed.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (stopping_) break;
    ShadowCallPtr shadow = std::move(waiting_.front());
    waiting_.pop_front();
    bytes_waiting_ -= shadow->bytes;
    busy_ = true;
    lock.unlock();
    try {
      judge(*shadow);
    } catch (const std::exception& e) {
      try {
        if (!end_has_begun())
          pass_over(*shadow, WhyNot::no_memory, std::string("the reference could not be computed: ") + e.what());
      } catch (const std::bad_alloc&) {  // not even to report it
      }
    }
    shadow.reset();
    lock.lock();
    busy_ = false;
    sync_->changed.notify_all();
  }
  waiting_.clear();
}

void ShadowCheck::judge(ShadowCall& shadow) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  rlk_status passed = RLK_NOT_READY;
  while ((passed = shadow.end.ask()) == RLK_NOT_READY && std::chrono::steady_clock::now() < deadline) {
    {
      const std::lock_guard lock(sync_->mutex);
      if (stopping_) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (end_has_begun()) return;
  // The stream itself reports that to its owner.
  if (passed != RLK_OK) return pass_over(shadow, WhyNot::failed, "its stream failed, or hangs");
  conformance::Outcome outcome;
  outcome.outputs = shadow.unpack();
  conformance::Answer answer = conformance::golden_answer(shadow.sample.call);
  // The stream reports ids out of their range and the like; what such a row must hold is no question of accuracy.
  if (!answer.faults.empty()) {
    pass_over(shadow, WhyNot::data_error, "it has values outside their domain");
    return judge_silence(shadow, answer.faults[0]);
  }
  for (size_t i = 0; i < outcome.outputs.size(); ++i) shadow.sample.call.outputs[i].present &= shadow.sample.judged[i];
  judge_finite_elements_only(answer);
  conformance::Quality quality;
  std::optional<conformance::Failure> failure =
      conformance::check(shadow.sample.call, answer, outcome, /*poison=*/0, quality);
  if (!failure && shadow.wants_accurate && !quality.inaccurate.empty()) {
    failure = conformance::Failure{"NOT_ACCURATE", quality.inaccurate};
  }
  if (failure) failure->text += conformance::hint_for(shadow.sample.call, outcome, /*poison=*/0);
  const Candidate& candidate = shadow.candidate;
  if (end_has_begun()) return;  // what was compared may have died in between
  if (!failure) {
    {
      const std::lock_guard lock(sync_->mutex);
      ++statistics_.compared;
      decided_.insert(shadow.of.name);
      uncompared_.forget(shadow.of.name);
    }
    if (shadow.first_use) registry_.note_compared(shadow.of.unit);
    return;
  }
  const std::string who = fmt::format("{} by {}/{} ({}, {})", candidate.decl->name, candidate.plugin->id,
                                      candidate.implementation->name, shadow.of.unit.dtype, shadow.of.sizes);
  if (!has_ordinary_numbers(shadow.sample.call) || !has_ordinary_numbers(answer)) {
    pass_over(shadow, WhyNot::unusual_numbers,
              "it differs where numbers are infinite, NaN, beyond 2^60 in size, or below 2^-60 in an input");
    log_line(RLK_LOG_WARN, "shadow check",
             fmt::format(
                 "{} differs from the reference in {}; the call or its right answer has numbers "
                 "that are infinite, NaN, or beyond 2^60 in size, or an input below 2^-60, and so this is no verdict",
                 who, failure->text));
    return;
  }
  {
    const std::lock_guard lock(sync_->mutex);
    ++statistics_.wrong;
    decided_.insert(shadow.of.name);
    uncompared_.forget(shadow.of.name);
  }
  const std::string text = "some rows of an earlier call were compared with the reference: " + failure->text +
                           " (indices count the rows that were compared)";
  registry_.quarantine(*candidate.plugin, candidate.decl->name, candidate.implementation->name, shadow.of.unit.dtype,
                       failure->code, text);
  shadow.reports->add_wrong_result(
      fmt::format("{} was wrong and is switched off: {}. What was computed by it since is in doubt", who, text));
}

// An implementation that reports no data error has computed with what is not there. The stream may be asked later, or
// never.
void ShadowCheck::judge_silence(const ShadowCall& shadow, const conformance::Fault& fault) {
  // Whether any score of a row is finite may be a question of the numbers that they are made of.
  if (fault.kind == RLK_DATA_NO_FINITE_LOGIT && !has_ordinary_numbers(shadow.sample.call)) return;
  rlk_data_error error{};
  error.struct_size = sizeof(error);
  error.kind = fault.kind;
  error.tag = shadow.telling->tag();
  error.row = fault.row;
  error.value = fault.value;
  const auto condemn = [this, held = shadow.held, dtype = shadow.of.unit.dtype, sizes = shadow.of.sizes,
                        reports = shadow.reports, what = describe(error, shadow.device.entry.name())] {
    {
      const std::lock_guard lock(sync_->mutex);
      ++statistics_.wrong;
    }
    const std::string who = fmt::format("{} by {}/{} ({}, {})", held->decl->name, held->plugin->id,
                                        held->implementation->name, dtype, sizes);
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
  if (shadow.telling->ask(condemn) == Telling::Answer::silent) condemn();
}

void ShadowCheck::settle() {
  std::unique_lock lock(sync_->mutex);
  sync_->changed.wait(lock, [&] { return waiting_.empty() && !busy_; });
}

ShadowStatistics ShadowCheck::statistics() const {
  const std::lock_guard lock(sync_->mutex);
  ShadowStatistics statistics = statistics_;
  statistics.uncompared = uncompared_.list();
  return statistics;
}

}  // namespace rlk::core

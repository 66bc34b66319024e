// A call of a device's stream that the CPU serves.
#include "core/dispatch/call/cpu_fallback.hpp"

#include <fmt/core.h>

#include <chrono>
#include <cstring>
#include <new>
#include <string>

#include "core/declaration/error.hpp"
#include "core/declaration/overlap.hpp"
#include "core/declaration/text.hpp"
#include "core/dispatch/device/host_layout.hpp"
#include "core/dispatch/log.hpp"
#include "core/dispatch/trust/release.hpp"

namespace rlk::core {

rlk_status CpuStreams::take(std::unique_ptr<Stream>* out, rlk_error* error) {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      *out = std::move(idle_.back());
      idle_.pop_back();
      return RLK_OK;
    }
  }
  const rlk_status status = Stream::create(cpu_, counters_, 0, out, error);
  if (status == RLK_OK) made_.fetch_add(1, std::memory_order_relaxed);
  return status;
}

void CpuStreams::give(std::unique_ptr<Stream> stream) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    idle_.push_back(std::move(stream));
  } catch (const std::bad_alloc&) {  // it ends here, and is not among those that live any more
    made_.fetch_sub(1, std::memory_order_relaxed);
  }
}

namespace {

// Keeps an address's place within 256 bytes, so that the plan made for the device tensor's alignment fits the copy.
constexpr uint64_t kPlace = 256;

using Clock = std::chrono::steady_clock;

uint64_t nanoseconds_since(Clock::time_point begin) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count());
}

FallbackBytes bytes_of(const HostTensors& tensors) {
  FallbackBytes sum;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors.has(i)) continue;
    (i < tensors.inputs().size() ? sum.to_host : sum.to_device) += tensors.layout(i).bytes();
    sum.copies += tensors.layout(i).copies();
  }
  return sum;
}

std::string text_of_bytes(uint64_t bytes) {
  if (bytes < uint64_t{10} << 10) return fmt::format("{} bytes", bytes);
  if (bytes < uint64_t{10} << 20) return fmt::format("{} KiB", bytes >> 10);
  if (bytes < uint64_t{10} << 30) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} GiB", bytes >> 30);
}

// The one staged call of its kind that is timed on its stream, from the first copy to the last, and logged.
struct Announcement {
  std::string text;  // what, where, why
  std::string advice;
  FallbackBytes bytes;
  std::atomic<Clock::time_point> begin{Clock::time_point()};

  void tell() const {
    const Clock::time_point since = begin;
    const std::string time = since == Clock::time_point()
                                 ? ""
                                 : fmt::format(" in {:.3g} ms", static_cast<double>(nanoseconds_since(since)) * 1e-6);
    log_line(RLK_LOG_WARN, "dispatch",
             fmt::format("{}. This call copied {} to the host and {} back{}, and each like it does. {}", text,
                         text_of_bytes(bytes.to_host), text_of_bytes(bytes.to_device), time, advice));
  }
};

// A place in the stream that the announced call passes.
struct Milestone final : PendingWork {
  Milestone(const Call& call, std::shared_ptr<Announcement> of, bool at_end)
      : PendingWork(call.stream.clock()), announcement(std::move(of)), is_end(at_end) {}
  void work() noexcept override {
    try {
      is_end ? announcement->tell() : announcement->begin.store(Clock::now());
    } catch (const std::exception&) {
      // Without memory there is no line; the counters have it.
    }
  }
  void end() noexcept override {}

  const std::shared_ptr<Announcement> announcement;
  const bool is_end;
};

// The call as the host function runs it, with everything it points to.
struct Job final : PendingWork {
  Job(const Call& call, const Candidate& cpu_candidate, std::shared_ptr<CachedPlan> cpu_plan,
      std::shared_ptr<CpuStreams> streams, OpCounters& op_counters, FallbackCounter& fallback_counter)
      : PendingWork(call.stream.clock()),
        bound(call.bound),
        numerics(call.options.numerics),
        candidate(cpu_candidate.shared_from_this()),
        cpu_streams(std::move(streams)),
        reports(call.stream.reports()),
        stream_failures(reports->stream_failures()),
        counters(op_counters),
        fallback(fallback_counter),
        params(call.decl().params_size),
        tensors(call.bound, call.inputs, call.outputs),
        own_privates(call.privates.of(cpu_candidate.plugin->id)) {
    std::memcpy(params.data(), call.bound.params, params.size());
    bound.params = params.data();
    InsidePlan inside = InsidePlan::enter_again(*cpu_plan);
    plan = {std::move(cpu_plan), std::move(inside)};
  }
  void work() noexcept override {
    const Clock::time_point begin = Clock::now();
    compute();
    count_time(begin);
  }
  void compute() noexcept;
  void count_time(Clock::time_point begin) {
    const uint64_t spent = nanoseconds_since(begin);
    add_to(counters.staged_cost.nanoseconds, spent);
    add_to(fallback.staged_cost.nanoseconds, spent);
  }
  void end() noexcept override {
    plan = {};
    cpu_streams = nullptr;
  }

  BoundCall bound;
  uint32_t numerics;
  const std::shared_ptr<const Candidate> candidate;
  EnteredPlan plan;
  std::shared_ptr<CpuStreams> cpu_streams;
  std::shared_ptr<StreamReports> reports;
  const uint64_t stream_failures;  // when the call was made
  OpCounters& counters;
  FallbackCounter& fallback;
  uint32_t tag = 0;
  std::vector<std::byte> params;
  HostTensors tensors;
  OwnPrivateParams own_privates;
};

// A stream of the CPU's, which goes back whatever ends the work: it is counted as made.
struct Borrowed {
  explicit Borrowed(CpuStreams& from) : owner(from) {}
  ~Borrowed() {
    if (own != nullptr) owner.give(std::move(own));
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  Stream* operator->() const { return own.get(); }

  CpuStreams& owner;
  std::unique_ptr<Stream> own;
};

void Job::compute() noexcept {
  rlk_error error{};
  error.struct_size = sizeof(error);
  rlk_status status = RLK_INTERNAL;
  bool implementation_failed = false;
  try {
    Borrowed stream(*cpu_streams);
    status = cpu_streams->take(&stream.own, &error);
    if (status == RLK_OK) {
      Call call{
          *stream.own, bound, tensors.inputs(), tensors.outputs(), {numerics, {}, nullptr, nullptr}, 0, false, tag,
          {},          {}};
      const rlk_private_params privates = own_privates.view();
      if (!own_privates.empty()) {
        status = call.privates.read(*bound.decl, reinterpret_cast<const rlk_ext*>(&privates), &error);
      }
      if (status == RLK_OK) status = execute(call, *candidate, plan.plan(), counters, &implementation_failed, &error);
      rlk_data_error data_error{};
      data_error.struct_size = sizeof(data_error);
      const rlk_stream_api& api = *stream->device().api.stream;
      const rlk_status done = call_plugin(api.synchronize, stream->handle(), UINT64_MAX, &data_error, &error);
      if (done == RLK_DATA_ERROR || stream->take_own_data_error(&data_error)) {
        reports->add_data_error(data_error);
      } else if (status == RLK_OK) {
        status = done;
      }
      stream->forget_calls();
    }
  } catch (const std::bad_alloc&) {
    status = fail(&error, RLK_OUT_OF_MEMORY, "host memory is exhausted");
  } catch (const std::exception& e) {
    status = fail(&error, RLK_INTERNAL, e.what());
  }
  if (status != RLK_OK) {
    count(counters.failures);
    try {
      reports->add_failure({status < 0 ? status : RLK_INTERNAL,
                            fmt::format("{} by {}/{} (staged on the CPU): {}", bound.decl->name, candidate->plugin->id,
                                        candidate->implementation->name, text_of(error)),
                            {implementation_failed ? candidate : nullptr, bound.dtypes[0]}},
                           stream_failures);
    } catch (const std::exception&) {
      reports->add_failure({RLK_OUT_OF_MEMORY, {}, {}}, stream_failures);
    }
  }
}

void run_job(void* ticket) {
  const StandardFloatControl standard;  // the thread is the vendor's
  PendingWork::run_ticket(ticket);
}

// Ends a job that the stream never got.
class JobOwner {
public:
  explicit JobOwner(std::shared_ptr<Job> job) : job_(std::move(job)) {}
  ~JobOwner() {
    if (job_ != nullptr) job_->drop();
  }
  JobOwner(const JobOwner&) = delete;
  JobOwner& operator=(const JobOwner&) = delete;
  Job* operator->() const { return job_.get(); }
  Job& operator*() const { return *job_; }
  const std::shared_ptr<Job>& shared() const { return job_; }
  void hand_over() { job_ = nullptr; }

private:
  std::shared_ptr<Job> job_;
};

// Moves the tensors of one call.
class Transfer {
public:
  Transfer(const Call& call, Job& job)
      : call_(call), job_(job), device_(call.stream.device()), blocks_(call.inputs.size() + call.outputs.size()) {}
  ~Transfer() {
    // In the order of the stream: the copies and the host function are before the fence.
    for (void* block : blocks_) {
      if (block != nullptr) device_.pinned.deallocate(block, call_.stream.fence(true), nullptr);
    }
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Pinned memory for every tensor, and the host's descriptors over it. Nothing is enqueued.
  rlk_status prepare(rlk_error* error) {
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      if (call_.inputs[i] == nullptr) continue;
      if (const rlk_status s = place(*call_.inputs[i], i, nullptr, error); s != RLK_OK) return s;
    }
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      if (call_.outputs[i] == nullptr) continue;
      const int32_t alias = call_.bound.output_alias[i];
      const rlk_tensor* same = alias < 0 ? nullptr : &job_.tensors.tensor(static_cast<size_t>(alias));
      if (const rlk_status s = place(*call_.outputs[i], number_of(i), same, error); s != RLK_OK) return s;
    }
    return RLK_OK;
  }

  rlk_status fetch_inputs(rlk_error* error) const {
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      if (call_.inputs[i] == nullptr) continue;
      char* const host = address(job_.tensors.tensor(i));
      const char* const device = address(*call_.inputs[i]);
      const rlk_status s = job_.tensors.layout(i).for_each([&](int64_t from, int64_t to, uint64_t bytes) {
        return copy(host + to, device + from, bytes, RLK_COPY_DEVICE_TO_HOST, error);
      });
      if (s != RLK_OK) return s;
    }
    return RLK_OK;
  }

  // Every output goes back in a bounded number of copies, or nothing is enqueued at all.
  rlk_status check_outputs(rlk_error* error) const {
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      if (call_.outputs[i] == nullptr) continue;
      const uint64_t copies = job_.tensors.layout(number_of(i)).copies();
      if (copies <= kMaxCopies) continue;
      return failf(
          error, RLK_UNSUPPORTED,
          "%s: output '%s' would come back from the CPU in %llu pieces, because its elements have gaps between "
          "them; expected at most %llu pieces. Pass a contiguous output and copy it",
          call_.decl().name, call_.decl().outputs[i].name, static_cast<unsigned long long>(copies),
          static_cast<unsigned long long>(kMaxCopies));
    }
    return RLK_OK;
  }

  // Without the gaps: other data may lie there.
  rlk_status return_outputs(rlk_error* error) const {
    for (const Output& output : outputs_) {
      const rlk_status status = output.layout.for_each([&](int64_t to, int64_t from, uint64_t bytes) {
        return copy(output.device + to, output.host + from, bytes, RLK_COPY_HOST_TO_DEVICE, error);
      });
      if (status != RLK_OK) return status;
    }
    return RLK_OK;
  }

  // Keeps what return_outputs needs after the job is gone.
  void note_outputs() {
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      if (call_.outputs[i] == nullptr) continue;
      outputs_.push_back(
          {address(*call_.outputs[i]), address(job_.tensors.tensor(number_of(i))), job_.tensors.layout(number_of(i))});
    }
  }

private:
  static constexpr uint64_t kMaxCopies = 16384;

  struct Output {
    char* device;
    char* host;
    HostLayout layout;
  };

  static char* address(const rlk_tensor& t) { return reinterpret_cast<char*>(address_of(t)); }
  size_t number_of(size_t output) const { return call_.inputs.size() + output; }

  rlk_status place(const rlk_tensor& from, size_t number, const rlk_tensor* same, rlk_error* error) {
    rlk_tensor& tensor = job_.tensors.tensor(number);
    tensor.alignment = std::min<uint32_t>(from.alignment, kPlace);
    const ByteRange range = byte_range_of(tensor);
    if (same != nullptr) {
      tensor.data = same->data;
      tensor.byte_offset = same->byte_offset;
    } else if (range.low == range.high) {
      tensor.data = nullptr;
      tensor.byte_offset = 0;
    } else {
      const uint64_t place = (address_of(from) + static_cast<uint64_t>(range.low)) % kPlace;
      const rlk_status status = device_.pinned.allocate(
          *call_.stream.clock(), static_cast<uint64_t>(range.high - range.low) + place, &blocks_[number], error);
      if (status != RLK_OK) return status;
      tensor.data = blocks_[number];
      tensor.byte_offset = place - static_cast<uint64_t>(range.low);
    }
    return RLK_OK;
  }

  rlk_status copy(char* to, const char* from, uint64_t bytes, int32_t kind, rlk_error* error) const {
    return call_of(device_.api, "copy", device_.api.stream->copy, call_.stream.handle(), to, from, bytes, kind, error);
  }

  const Call& call_;
  Job& job_;
  DeviceState& device_;
  std::vector<void*> blocks_;
  std::vector<Output> outputs_;
};

// False where the device has no host functions.
bool enqueue_milestone(const Call& call, const std::shared_ptr<Announcement>& announcement, bool at_end) {
  OptionalSlot& host_functions = call.stream.device().host_functions;
  if (announcement == nullptr || !host_functions) return false;
  const rlk_plugin& api = call.stream.device().api;
  const auto milestone = std::make_shared<Milestone>(call, announcement, at_end);
  void* ticket = PendingWork::ticket_for(milestone);
  call.stream.device().pending.add(milestone);
  const rlk_status status = call_of(api, "enqueue_host_function", api.stream->enqueue_host_function,
                                    call.stream.handle(), &run_job, ticket, nullptr);
  if (status == RLK_OK) return true;
  host_functions.learn(status);
  milestone->drop();
  return false;
}

}  // namespace

FallbackBytes fallback_bytes(const BoundCall& call, std::span<const rlk_tensor* const> inputs,
                             std::span<const rlk_tensor* const> outputs) {
  return bytes_of(HostTensors(call, inputs, outputs));
}

rlk_status run_on_cpu(const Call& call, const Candidate& candidate, const std::shared_ptr<CachedPlan>& plan,
                      std::shared_ptr<CpuStreams> cpu_streams, OpCounters& counters, FallbackCounter& fallback,
                      rlk_error* error) {
  const Clock::time_point begin = Clock::now();
  Stream& stream = call.stream;
  const rlk_plugin& api = stream.device().api;
  JobOwner job(std::make_shared<Job>(call, candidate, plan, std::move(cpu_streams), counters, fallback));
  Transfer transfer(call, *job);
  if (const rlk_status s = transfer.check_outputs(error); s != RLK_OK) return s;
  if (const rlk_status s = transfer.prepare(error); s != RLK_OK) return s;
  transfer.note_outputs();
  job->tag = stream.note_staged_call(call.decl());
  stream.note_domain_ends(job->tag, call.decl(), call.bound.values());
  const FallbackBytes bytes = bytes_of(job->tensors);
  count(counters.staged);
  count(fallback.staged);
  for (StagedCost* cost : {&counters.staged_cost, &fallback.staged_cost}) {
    add_to(cost->to_host_bytes, bytes.to_host);
    add_to(cost->to_device_bytes, bytes.to_device);
  }
  std::shared_ptr<Announcement> announcement;
  int ready = FallbackCounter::ready;
  if (fallback.announcement == ready && fallback.announcement.compare_exchange_strong(ready, FallbackCounter::taken)) {
    announcement = std::make_shared<Announcement>();
    announcement->text = fallback.text;
    announcement->advice = fallback.advice;
    announcement->bytes = bytes;
  }
  const bool timed = enqueue_milestone(call, announcement, /*at_end=*/false);
  if (const rlk_status s = transfer.fetch_inputs(error); s != RLK_OK) {
    if (announcement != nullptr) fallback.announcement = FallbackCounter::ready;
    return s;
  }
  if (OptionalSlot& host_functions = stream.device().host_functions) {
    // The function may run, and the job be over, before enqueue returns.
    void* ticket = PendingWork::ticket_for(job.shared());
    stream.device().pending.add(job.shared());
    const rlk_status s = call_of(api, "enqueue_host_function", api.stream->enqueue_host_function, stream.handle(),
                                 &run_job, ticket, error);
    if (s == RLK_OK) {
      job->count_time(begin);
      job.hand_over();
      const rlk_status returned = transfer.return_outputs(error);
      if (announcement != nullptr && (!timed || !enqueue_milestone(call, announcement, /*at_end=*/true)))
        announcement->tell();
      return returned;
    }
    if (!host_functions.learn(s)) return s;
  }
  count(counters.blocking);
  if (const rlk_status s = stream.wait_quietly(error); s != RLK_OK) return s;
  job->count_time(begin);
  job->run();
  const rlk_status returned = transfer.return_outputs(error);
  if (announcement != nullptr) {
    if (!timed) announcement->begin = begin;
    announcement->tell();
  }
  return returned;
}

}  // namespace rlk::core

// A call of a device's stream that the CPU serves.
#include "core/dispatch/stage.hpp"

#include <fmt/core.h>

#include <cstring>
#include <new>

#include "core/declaration/error.hpp"
#include "core/declaration/overlap.hpp"
#include "core/declaration/text.hpp"
#include "core/dispatch/release.hpp"
#include "core/dispatch/runs.hpp"

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

// The call as the host function runs it, with everything it points to.
struct Job final : PendingWork {
  Job(const Call& call, const Candidate& cpu_candidate, std::shared_ptr<CachedPlan> cpu_plan,
      std::shared_ptr<CpuStreams> streams, OpCounters& op_counters)
      : PendingWork(call.stream.clock()),
        bound(call.bound),
        numerics(call.options.numerics),
        candidate(cpu_candidate.shared_from_this()),
        cpu_streams(std::move(streams)),
        reports(call.stream.reports()),
        stream_failures(reports->stream_failures()),
        counters(op_counters),
        params(call.decl().params_size),
        inputs(call.inputs.size()),
        outputs(call.outputs.size()),
        own_privates(call.privates.of(cpu_candidate.plugin->id)) {
    std::memcpy(params.data(), call.bound.params, params.size());
    bound.params = params.data();
    InsidePlan inside = InsidePlan::enter_again(*cpu_plan);
    plan = {std::move(cpu_plan), std::move(inside)};
  }
  void work() noexcept override;
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
  uint32_t tag = 0;
  std::vector<std::byte> params;
  std::vector<rlk_tensor> tensors;
  std::vector<int64_t> sizes;
  std::vector<const rlk_tensor*> inputs, outputs;
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

void Job::work() noexcept {
  rlk_error error{};
  error.struct_size = sizeof(error);
  rlk_status status = RLK_INTERNAL;
  bool implementation_failed = false;
  try {
    Borrowed stream(*cpu_streams);
    status = cpu_streams->take(&stream.own, &error);
    if (status == RLK_OK) {
      Call call{*stream.own, bound, inputs, outputs, {numerics, {}, nullptr, nullptr}, 0, false, tag, {}, {}};
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

// Ends a job that was never given to the stream.
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
    // In the order of the stream: the copies and the host function are behind the mark.
    for (void* block : blocks_) {
      if (block != nullptr) device_.pinned.deallocate(block, call_.stream.mark(true), nullptr);
    }
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  // Pinned memory for every tensor, and the host's descriptors over it. Nothing is enqueued.
  rlk_status prepare(rlk_error* error) {
    const size_t count = call_.inputs.size() + call_.outputs.size();
    job_.tensors.reserve(count);
    job_.sizes.reserve(count * 2 * RLK_MAX_NDIM);
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      if (call_.inputs[i] == nullptr) continue;
      if (const rlk_status s = place(*call_.inputs[i], i, nullptr, &job_.inputs[i], error); s != RLK_OK) return s;
    }
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      if (call_.outputs[i] == nullptr) continue;
      const int32_t alias = call_.bound.output_alias[i];
      const rlk_tensor* same = alias < 0 ? nullptr : job_.inputs[static_cast<size_t>(alias)];
      const rlk_status s = place(*call_.outputs[i], call_.inputs.size() + i, same, &job_.outputs[i], error);
      if (s != RLK_OK) return s;
    }
    return RLK_OK;
  }

  rlk_status fetch_inputs(rlk_error* error) const {
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      if (call_.inputs[i] == nullptr) continue;
      // The whole range with its gaps, in one copy.
      const ByteRange range = byte_range_of(*call_.inputs[i]);
      if (range.low == range.high) continue;
      const rlk_status s = copy(address(*job_.inputs[i]) + range.low, address(*call_.inputs[i]) + range.low,
                                static_cast<uint64_t>(range.high - range.low), RLK_COPY_DEVICE_TO_HOST, error);
      if (s != RLK_OK) return s;
    }
    return RLK_OK;
  }

  // Every output goes back in a bounded number of copies, or nothing is enqueued at all.
  rlk_status check_outputs(rlk_error* error) const {
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      if (call_.outputs[i] == nullptr || is_dense(*call_.outputs[i])) continue;
      const uint64_t copies = count_runs(*call_.outputs[i]);
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

  // Without the gaps: they belong to somebody else. Memory without gaps is one copy, whatever the order of its
  // elements.
  rlk_status return_outputs(rlk_error* error) const {
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      if (call_.outputs[i] == nullptr) continue;
      if (const ByteRange range = byte_range_of(*call_.outputs[i]);
          range.low < range.high && is_dense(*call_.outputs[i])) {
        const rlk_status status = copy(address(*call_.outputs[i]) + range.low, host_outputs_[i] + range.low,
                                       static_cast<uint64_t>(range.high - range.low), RLK_COPY_HOST_TO_DEVICE, error);
        if (status != RLK_OK) return status;
        continue;
      }
      const rlk_status status = for_each_run(*call_.outputs[i], [&](int64_t offset, uint64_t bytes) {
        return copy(address(*call_.outputs[i]) + offset, host_outputs_[i] + offset, bytes, RLK_COPY_HOST_TO_DEVICE,
                    error);
      });
      if (status != RLK_OK) return status;
    }
    return RLK_OK;
  }

  // Keeps what return_outputs needs after the job is gone.
  void note_outputs() {
    host_outputs_.resize(call_.outputs.size());
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      if (job_.outputs[i] != nullptr) host_outputs_[i] = address(*job_.outputs[i]);
    }
  }

private:
  static constexpr uint64_t kMaxCopies = 16384;

  // Elements of an output do not overlap: as many bytes as they span are all theirs.
  static bool is_dense(const rlk_tensor& t) {
    const ByteRange range = byte_range_of(t);
    return static_cast<uint64_t>(element_count(t)) * t.dtype.bits == static_cast<uint64_t>(range.high - range.low) * 8;
  }

  static char* address(const rlk_tensor& t) { return reinterpret_cast<char*>(address_of(t)); }

  rlk_status place(const rlk_tensor& from, size_t block, const rlk_tensor* same, const rlk_tensor** out,
                   rlk_error* error) {
    rlk_tensor& tensor = job_.tensors.emplace_back(from);
    *out = &tensor;
    tensor.struct_size = sizeof(rlk_tensor);
    tensor.alignment = std::min<uint32_t>(from.alignment, kPlace);
    const auto own = [&](const int64_t* values) {
      if (tensor.ndim > 0) job_.sizes.insert(job_.sizes.end(), values, values + tensor.ndim);
      return job_.sizes.data() + job_.sizes.size() - tensor.ndim;
    };
    tensor.shape = own(from.shape);
    tensor.strides = own(from.strides);
    const ByteRange range = byte_range_of(from);
    if (same != nullptr) {
      tensor.data = same->data;
      tensor.byte_offset = same->byte_offset;
    } else if (range.low == range.high) {
      tensor.data = nullptr;
      tensor.byte_offset = 0;
    } else {
      const uint64_t place = (address_of(from) + static_cast<uint64_t>(range.low)) % kPlace;
      const rlk_status status = device_.pinned.allocate(
          *call_.stream.clock(), static_cast<uint64_t>(range.high - range.low) + place, &blocks_[block], error);
      if (status != RLK_OK) return status;
      tensor.data = blocks_[block];
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
  std::vector<char*> host_outputs_;
};

}  // namespace

rlk_status stage(const Call& call, const Candidate& candidate, const std::shared_ptr<CachedPlan>& plan,
                 std::shared_ptr<CpuStreams> cpu_streams, OpCounters& counters, rlk_error* error) {
  Stream& stream = call.stream;
  const rlk_plugin& api = stream.device().api;
  JobOwner job(std::make_shared<Job>(call, candidate, plan, std::move(cpu_streams), counters));
  Transfer transfer(call, *job);
  if (const rlk_status s = transfer.check_outputs(error); s != RLK_OK) return s;
  if (const rlk_status s = transfer.prepare(error); s != RLK_OK) return s;
  transfer.note_outputs();
  job->tag = stream.note_staged_call(call.decl());
  count(counters.staged);
  if (const rlk_status s = transfer.fetch_inputs(error); s != RLK_OK) return s;
  if (OptionalSlot& host_functions = stream.device().host_functions) {
    // The function may run, and the job be over, before enqueue returns.
    void* ticket = PendingWork::ticket_for(job.shared());
    stream.device().pending.add(job.shared());
    const rlk_status s = call_of(api, "enqueue_host_function", api.stream->enqueue_host_function, stream.handle(),
                                 &run_job, ticket, error);
    if (s == RLK_OK) {
      job.hand_over();
      return transfer.return_outputs(error);
    }
    if (!host_functions.learn(s)) return s;
  }
  count(counters.blocking);
  if (const rlk_status s = stream.wait_quietly(error); s != RLK_OK) return s;
  job->run();
  return transfer.return_outputs(error);
}

}  // namespace rlk::core

// One call on its way: what was asked, validated, and where. Lives on the caller's stack.
#pragma once

#include <rlk/abi.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/declaration/validate.hpp"
#include "core/dispatch/device/stream.hpp"

namespace rlk::core {

// Which implementation served a call. The texts live as long as the process.
struct Choice {
  const char* backend = nullptr;
  const char* plugin = nullptr;
  const char* implementation = nullptr;
  bool staged = false;
};

struct CallOptions {
  uint32_t numerics = 0;                     // demanded classes
  std::string_view pin;                      // "" is none
  const void* const* host_inputs = nullptr;  // nullptr, or [n_inputs]
  const rlk_ext* next = nullptr;             // private parameters
  Choice* choice = nullptr;                  // nullptr, or receives which implementation served a successful call
};

struct Call {
  Stream& stream;
  BoundCall bound;
  // As many as declared, NULL where absent.
  std::span<const rlk_tensor* const> inputs;
  std::span<const rlk_tensor* const> outputs;
  CallOptions options;
  uint32_t n_host_inputs = 0;  // entries of options.host_inputs
  bool capturing = false;
  uint32_t tag = 0;  // 0: the stream gives one
  PrivateParams privates{};
  // Candidates that had no memory for this very call, with what they said.
  struct PassedOver {
    std::shared_ptr<const Candidate> candidate;
    std::string reason;
  };
  std::vector<PassedOver> passed_over{};

  const OpDecl& decl() const { return *bound.decl; }
  Dtype dtype() const { return bound.dtypes[0]; }
};

// Runs a plan of a candidate of the stream's own device: leases an instance, makes host-readable inputs readable,
// prepares, finds workspace, enqueues. The plan is entered. Nothing is enqueued unless RLK_OK is returned; an enqueue
// that failed may have enqueued a part. *implementation_failed: the status is the plugin's own answer for this call.
// [the stream's thread]
rlk_status execute(const Call& call, const Candidate& candidate, const std::shared_ptr<CachedPlan>& plan,
                   OpCounters& counters, bool* implementation_failed, rlk_error* error);

// The values of the inputs that a plan wants to read on the host.
class HostInputs {
public:
  explicit HostInputs(const Call& call) : call_(call) {}
  ~HostInputs();
  HostInputs(const HostInputs&) = delete;
  HostInputs& operator=(const HostInputs&) = delete;

  // Device memory is copied, which waits for the stream: counted, and refused while capturing.
  rlk_status read(uint64_t wanted, OpCounters& counters, rlk_error* error);
  const void* const* pointers() const { return pointers_.data(); }

private:
  rlk_status copy_from_device(uint64_t wanted, rlk_error* error);
  void gather(size_t input, const rlk_tensor& tensor, const char* first_element);

  const Call& call_;
  std::array<const void*, kMaxArguments> pointers_{};
  std::array<void*, kMaxArguments> pinned_{};  // ranges copied from the device
  std::vector<std::vector<char>> gathered_;    // of strided inputs
};

}  // namespace rlk::core

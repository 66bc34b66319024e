// Stream and record of a harness, and the way to a plan: the host's side of the ABI, with every promise checked.
#include "core/conformance/harness.hpp"

#include <fmt/core.h>
#include <rlk/abi/ext/draft/graph.h>

#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "core/conformance/device_call.hpp"
#include "core/conformance/plugin_status.hpp"
#include "core/declaration/error.hpp"
#include "core/declaration/plugin_call.hpp"
#include "core/declaration/text.hpp"

namespace rlk::core::conformance {
namespace {

// As dispatch waits. A prober of less patience calls it a time-out, which is tried again; a verdict is not.
constexpr std::chrono::seconds kLongestCompilation{600};

bool ends_everything(rlk_status status) {
  return status == RLK_TIMEOUT || status == RLK_DEVICE_LOST;
}

// What the host must decline because the implementation was built before it existed; empty when there is nothing.
std::string newer_than(const rlk_implementation& implementation, const ConcreteCall& call) {
  const OpDecl& decl = *call.decl;
  for (const ParamDecl& param : decl.params) {
    if (param.offset + sizeof(int64_t) <= implementation.params_size) continue;
    if (std::memcmp(call.params.data() + param.offset, static_cast<const std::byte*>(decl.defaults) + param.offset,
                    sizeof(int64_t)) != 0) {
      return std::string("parameter ") + param.name;
    }
  }
  for (size_t i = implementation.n_inputs; i < call.inputs.size(); ++i) {
    if (call.inputs[i].present) return std::string("input ") + decl.inputs[i].name;
  }
  for (size_t i = implementation.n_outputs; i < call.outputs.size(); ++i) {
    if (call.outputs[i].present) return std::string("output ") + decl.outputs[i].name;
  }
  return {};
}

}  // namespace

Question::Question(const ConcreteCall& of) : call(of), tensors_(of) {
  desc_.struct_size = sizeof(desc_);
  desc_.op_revision = call.decl->revision;
  desc_.op = call.decl->name;
  desc_.params = call.params.data();
  desc_.n_inputs = static_cast<uint32_t>(tensors_.inputs().size());
  desc_.n_outputs = static_cast<uint32_t>(tensors_.outputs().size());
  desc_.inputs = tensors_.inputs().data();
  desc_.outputs = tensors_.outputs().data();
  desc_.output_alias = call.output_alias.data();
  desc_.symbols = call.symbols.data();
  desc_.n_symbols = static_cast<uint32_t>(call.decl->symbols.size());
}

OwnedPlan::~OwnedPlan() {
  if (plan_ != nullptr) releases_->call("plan_destroy", implementation_->plan_destroy, plan_);
  if (persistent_ != nullptr)
    releases_->call("deallocate", memory_->deallocate, device_, int32_t{RLK_MEMORY_DEVICE}, persistent_);
}

Harness::~Harness() {
  end();
}

void Harness::end() noexcept {
  if (broken_ && broken_->code == "TIMEOUT") return;  // work is still in flight: the memory and the stream stay
  if (op_stream_ != nullptr && op_stream_ != stream_)
    releases_->call("stream destroy", target_.plugin->stream->destroy, op_stream_);
  if (stream_ != nullptr) releases_->call("stream destroy", target_.owner->stream->destroy, stream_);
  op_stream_ = stream_ = nullptr;
  release_memory();
  if (record_ != nullptr && record_ != &own_record_) release(RLK_MEMORY_PINNED, record_);
  record_ = nullptr;
}

std::optional<Failure> Harness::finish() {
  end();
  return releases_->take();
}

void Harness::release(int32_t kind, void* memory) noexcept {
  releases_->call("deallocate", target_.owner->device->deallocate, target_.owner_device, kind, memory);
}

Failure Harness::failed(rlk_status status, const char* code, const std::string& what, const rlk_error& error) {
  const std::string text = fmt::format("{} answered {}: {}", what, name_of_status(status), text_of(error.text));
  Failure failure{code_of(status, code), text};
  if (ends_everything(status)) broken_ = failure;
  return failure;
}

std::optional<Failure> Harness::start() {
  rlk_error error = no_error();
  const rlk_stream_api& streams = *target_.owner->stream;
  rlk_status status =
      call_plugin(streams.create, target_.owner_device, kind_ == HarnessStream::urgent ? -1 : 0, &stream_, &error);
  if (status != RLK_OK) return broken_ = failed(status, "NO_STREAM", "creating a stream", error);
  op_stream_ = stream_;
  if (target_.plugin != target_.owner || kind_ == HarnessStream::wrapped) {
    op_stream_ = nullptr;
    status = call_plugin(target_.plugin->stream->wrap, target_.device, call_plugin(streams.native, stream_),
                         &op_stream_, &error);
    if (status == RLK_UNSUPPORTED && kind_ == HarnessStream::wrapped) return std::nullopt;  // has_stream() tells
    if (status != RLK_OK) return broken_ = failed(status, "NO_STREAM", "wrapping the owner's stream", error);
  }
  uint64_t available = 0;
  status = call_plugin(target_.owner->device->memory_info, target_.owner_device, &available, &memory_bytes_, &error);
  if (status != RLK_OK || memory_bytes_ == 0) memory_bytes_ = UINT64_MAX;
  if (target_.owner_instance != nullptr && target_.owner->get_extension != nullptr) {
    graph_ = static_cast<const rlk_graph_api*>(
        call_plugin(target_.owner->get_extension, target_.owner_instance, RLK_EXT_GRAPH));
  }
  return make_record();
}

std::optional<Failure> Harness::make_record() {
  if ((target_.owner_flags & RLK_DEVICE_UNIFIED_MEMORY) != 0) record_ = &own_record_;
  if (record_ != nullptr || (target_.owner_flags & RLK_DEVICE_MAPPED_PINNED) == 0) return std::nullopt;
  rlk_error error = no_error();
  void* memory = nullptr;
  const rlk_status status =
      call_plugin(target_.owner->device->allocate, target_.owner_device, RLK_MEMORY_PINNED, 256, &memory, &error);
  if (status != RLK_OK) return broken_ = failed(status, "NO_MEMORY", "allocating pinned memory", error);
  record_ = new (memory) rlk_data_error_record{};
  return std::nullopt;
}

Claim Harness::query(const rlk_implementation& implementation, const Question& question, uint32_t numerics) const {
  Claim claim;
  if (const std::string newer = newer_than(implementation, question.call); !newer.empty()) {
    claim.reason_code = "OLDER_REVISION";
    claim.reason = newer + " is newer than the declaration that the implementation was built with";
    return claim;
  }
  const rlk_call_desc desc = question.demanding(numerics);
  rlk_error error = no_error();
  claim.support.struct_size = sizeof(claim.support);
  const rlk_status status =
      call_plugin(implementation.query, &implementation, target_.device, &desc, &claim.support, &error);
  claim.variant = text_of(claim.support.variant);
  claim.reason_code = text_of(claim.support.reason_code);
  claim.reason = text_of(claim.support.reason);
  if (status != RLK_OK) {
    claim.kind = Claim::Kind::failed;
    claim.reason_code = status == RLK_OUT_OF_MEMORY ? "NO_MEMORY" : "QUERY_FAILED";
    claim.reason =
        fmt::format("query answered {}: {}; expected RLK_OK with a level", name_of_status(status), text_of(error.text));
  } else if (claim.support.level < RLK_SUPPORT_NO || claim.support.level > RLK_SUPPORT_PREFERRED) {
    claim.kind = Claim::Kind::failed;
    claim.reason_code = status == RLK_OUT_OF_MEMORY ? "NO_MEMORY" : "QUERY_FAILED";
    claim.reason = fmt::format("query answered level {}; expected 0 to 3", claim.support.level);
  } else if (claim.support.level != RLK_SUPPORT_NO) {
    claim.kind = Claim::Kind::accepted;
  } else if (claim.reason_code.empty()) {
    claim.reason_code = "NO_REASON";
  }
  return claim;
}

namespace {

// Also when the plugin throws.
class Planning {
public:
  explicit Planning(const std::function<void(bool)>& told) : told_(told) {
    if (told_) told_(true);
  }
  ~Planning() {
    if (told_) told_(false);
  }
  Planning(const Planning&) = delete;
  Planning& operator=(const Planning&) = delete;

private:
  const std::function<void(bool)>& told_;
};

}  // namespace

std::optional<Failure> Harness::make_plan(const rlk_implementation& implementation, const ConcreteCall& call,
                                          uint32_t numerics, const Claim& claim, OwnedPlan& out) {
  const Question question(call);
  const rlk_call_desc desc = question.demanding(numerics);
  rlk_error error = no_error();
  out.implementation_ = &implementation;
  out.releases_ = releases_;
  out.info_ = {};
  out.info_.struct_size = sizeof(out.info_);
  const auto make = [&] {
    const Planning told(target_.planning);
    return call_plugin(implementation.plan_create, &implementation, target_.device, &desc, &out.plan_, &out.info_,
                       &error);
  };
  rlk_status status = make();
  // Compiled in the background: what is tested is the plan, so it is waited for.
  const auto deadline = std::chrono::steady_clock::now() + kLongestCompilation;
  while (status == RLK_NOT_READY && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    status = make();
  }
  if (status != RLK_OK) {
    out.plan_ = nullptr;
    if (status == RLK_NOT_READY) {
      return Failure{kNotReady, fmt::format("its plan was not ready after {} s: {}", kLongestCompilation.count(),
                                            text_of(error.text))};
    }
    return failed(status, "CONTRADICTION", "query said yes, but plan_create", error);
  }
  if (out.info_.persistent_bytes != 0) {
    if (auto failure = make_persistent(call, out)) return failure;
  }
  out.workspace_limit_ = claim.support.workspace_bound;
  if (auto failure = workspace_fits(claim.support.workspace_bound, call, "query")) return failure;
  if (auto failure = workspace_fits(out.info_.workspace_bound, call, "the plan")) return failure;
  if (const std::string variant = text_of(out.info_.variant); variant != claim.variant) {
    return Failure{"CONTRADICTION", fmt::format("query named variant \"{}\", the plan \"{}\"", claim.variant, variant)};
  }
  if ((claim.support.numerics & ~out.info_.numerics) != 0) {
    return Failure{"CONTRADICTION", fmt::format("query claimed numerics {}, the plan holds only {}",
                                                claim.support.numerics, out.info_.numerics)};
  }
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if ((out.info_.host_inputs >> i & 1) != 0 && call.inputs[i].present && !call.decl->inputs[i].host) {
      return Failure{"HOST_INPUT", std::string("the plan wants input ") + call.decl->inputs[i].name +
                                       " on the host, where its declaration does not put it"};
    }
  }
  return std::nullopt;
}

// It holds no data at first and is this plan's alone: it is filled with poison.
std::optional<Failure> Harness::make_persistent(const ConcreteCall& call, OwnedPlan& plan) {
  const uint64_t bytes = plan.info_.persistent_bytes;
  if (auto failure = workspace_fits(bytes, call, "the plan's persistent_bytes")) return failure;
  if (bytes == UINT64_MAX) return Failure{"WORKSPACE_BOUND", "the plan asks for UINT64_MAX bytes of persistent memory"};
  plan.memory_ = target_.owner->device;
  plan.device_ = target_.owner_device;
  rlk_error error = no_error();
  rlk_status status =
      call_plugin(plan.memory_->allocate, plan.device_, RLK_MEMORY_DEVICE, bytes, &plan.persistent_, &error);
  if (status != RLK_OK) return failed(status, "NO_MEMORY", "allocating the plan's persistent memory", error);
  status = call_plugin(target_.owner->stream->fill, stream_, plan.persistent_, uint8_t{0xff}, bytes, &error);
  if (status != RLK_OK) return failed(status, "COPY_FAILED", "filling the plan's persistent memory", error);
  Outcome ignored;
  return wait(false, ignored);
}

void OwnedPlan::give_persistent(rlk_run& run) const {
  run.persistent = persistent_;
  run.flags &= ~RLK_RUN_NEW_PERSISTENT;
  if (persistent_ == nullptr || !persistent_is_new_) return;
  persistent_is_new_ = false;
  run.flags |= RLK_RUN_NEW_PERSISTENT;
}

}  // namespace rlk::core::conformance

// What do the plans of all operators share? A program per sizes, rebuilt in prepare when they change, constants in
// device memory, and reading tensors as operands.
#pragma once

#include <rlk/sdk.hpp>

#include <limits>

#include "builder.hpp"

namespace rlk::ascend {

int32_t acl_dtype(sdk::Dtype dtype);
Operand operand_of(Place place, uint32_t index, const rlk_tensor& tensor);

// A reason to decline for tensors that aclnn views cannot describe; empty when all are fine.
sdk::Refusal decline_views(const rlk_call_desc& desc);
// The same for operators that the installed CANN lacks; `names` as missing() gives them.
sdk::Refusal decline_missing(const std::string& names);
// The same on other devices than Atlas A2 and A3; `call` is what has no kernel there.
sdk::Refusal decline_other_devices(const Device& device, const char* call);

// Bytes of a chunk's memory: RLK_ASCEND_WORKSPACE_MB (default 256).
int64_t workspace_limit();

// Small constants in device memory, for operators that take tensors only.
class Constants {
public:
  explicit Constants(Device& device) : device_(device) {}
  ~Constants();
  Constants(const Constants&) = delete;
  Constants& operator=(const Constants&) = delete;

  Operand add(float value) { return add(&value, sizeof(value), kAclFloat); }
  Operand add(double value) { return add(&value, sizeof(value), kAclDouble); }
  Operand add(int32_t value) { return add(&value, sizeof(value), kAclInt32); }
  Operand add(int64_t value) { return add(&value, sizeof(value), kAclInt64); }
  Operand add_bool(bool value) { return add(&value, sizeof(uint8_t), kAclBool); }

private:
  static constexpr size_t kCapacity = 4096;
  Operand add(const void* value, size_t bytes, int32_t dtype);
  Device& device_;
  std::byte* memory_ = nullptr;
  size_t used_ = 0;
};

class ProgramPlan : public sdk::Plan {
public:
  uint64_t prepare(const sdk::Run& run) final;
  void enqueue(sdk::Stream& stream, const sdk::Run& run) final;

protected:
  ProgramPlan(Device& device, uint32_t n_inputs, uint32_t n_outputs, uint32_t n_symbols);
  // Adds the steps for these sizes, strides and host values.
  virtual void build(Builder& builder, const sdk::Run& run) = 0;
  // Host values that the program depends on.
  virtual void append_key(std::vector<int64_t>&, const sdk::Run&) const {}

  // The arguments of Op by their names, as operands.
  template <class Op>
  static typename Op::template Args<Operand> operands_of(const sdk::Run& run) {
    typename Op::template Args<Operand> call;
    uint32_t i = 0;
    call.each_input(call, [&](Operand& operand) {
      const rlk_tensor* tensor = run.input(i);
      operand = tensor == nullptr ? Operand::absent() : operand_of(Place::input, i, *tensor);
      ++i;
    });
    i = 0;
    call.each_output(call, [&](Operand& operand) {
      const rlk_tensor* tensor = run.output(i);
      operand = tensor == nullptr ? Operand::absent() : operand_of(Place::output, i, *tensor);
      ++i;
    });
    return call;
  }

  Device& device_;
  Constants constants_{device_};

private:
  std::vector<int64_t> key_of(const sdk::Run& run) const;
  const uint32_t n_inputs_, n_outputs_, n_symbols_;
  std::vector<int64_t> key_;
  std::unique_ptr<Program> program_;
};

}  // namespace rlk::ascend

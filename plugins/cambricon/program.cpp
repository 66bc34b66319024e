// Descriptors from operands, workspace queries, and one method per CNNL function.
#include "descriptors.hpp"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace rlk::cambricon {
namespace {

constexpr uint64_t kScratchAlignment = 256;

int bytes_of(CnnlDtype dtype) {
  return dtype == kFloat || dtype == kInt32 ? 4 : dtype == kInt16 || dtype == kHalf ? 2 : 1;
}

}  // namespace

int64_t workspace_limit() {
  static const int64_t limit = [] {
    const char* text = std::getenv("RLK_CAMBRICON_WORKSPACE_MB");
    const long long megabytes = text != nullptr ? std::atoll(text) : 0;
    return (megabytes > 0 ? int64_t{megabytes} : 256) << 20;
  }();
  return limit;
}

int64_t count(const Dims& dims) {
  int64_t elements = 1;
  for (const int dim : dims) elements *= dim;
  return elements;
}

Operand reshaped(Operand operand, Dims dims) {
  operand.dims = std::move(dims);
  return operand;
}

Operand rows(Operand operand, int first, int number) {
  const int64_t row_elements = operand.dims[0] == 0 ? 0 : count(operand.dims) / operand.dims[0];
  operand.data = static_cast<std::byte*>(operand.data) + first * row_elements * bytes_of(operand.dtype);
  operand.dims[0] = number;
  return operand;
}

Operand operand_of(const rlk_tensor& tensor, CnnlDtype dtype) {
  Operand operand{sdk::data_of(&tensor), dtype, {}};
  for (int32_t i = 0; i < tensor.ndim; ++i) operand.dims.push_back(static_cast<int>(tensor.shape[i]));
  if (operand.dims.empty()) operand.dims = {1};
  return operand;
}

Calls::Calls(Stream& stream, const sdk::Run& run)
    : device_(stream.device()),
      stream_(&stream),
      workspace_(static_cast<std::byte*>(run.workspace())),
      workspace_bytes_(run.workspace_bytes()) {}

void* Calls::take(uint64_t bytes) {
  const uint64_t offset = used_;
  used_ += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  most_used_ = std::max(most_used_, used_);
  if (measures()) return nullptr;
  if (used_ > workspace_bytes_) {
    throw sdk::Error(RLK_INVALID_ARGUMENT, sdk::format("a workspace of %llu bytes; plan_prepare asked for more",
                                                       static_cast<unsigned long long>(workspace_bytes_)));
  }
  return workspace_ + offset;
}

Operand Calls::scratch(CnnlDtype dtype, Dims dims) {
  void* memory = take(static_cast<uint64_t>(count(dims)) * static_cast<uint64_t>(bytes_of(dtype)));
  return {memory, dtype, std::move(dims)};
}

Calls::Extra Calls::extra(const char* name, const std::function<int(CnnlHandle, size_t*)>& ask) {
  size_t bytes = 0;
  if (measures()) {
    const std::lock_guard lock(device_.query_mutex());
    check_cnnl(ask(device_.query_handle(), &bytes), name);
  } else {
    check_cnnl(ask(stream_->handle(), &bytes), name);
  }
  return {bytes == 0 ? nullptr : take(bytes), bytes};
}

void Calls::fill_with(const Operand& out, const void* value) {
  const Descriptor desc(out);
  call("cnnlFill_v3", [&](CnnlHandle h) { return runtime().cnnlFill_v3(h, kHostPointer, value, desc, out.data); });
}

void Calls::fill_bytes(const Operand& out, uint8_t value) {
  if (!measures()) stream_->fill(out.data, value, static_cast<uint64_t>(count(out.dims) * bytes_of(out.dtype)));
}

void Calls::positions(const Operand& out) {
  const Descriptor desc(reshaped(out, {static_cast<int>(count(out.dims))}));
  const float first = 0, step = 1;
  call("cnnlArange_v2",
       [&](CnnlHandle h) { return runtime().cnnlArange_v2(h, kPrecise, &first, &step, desc, out.data); });
}

void Calls::copy(const Operand& x, const Operand& out) {
  const Descriptor from(x), to(out);
  call("cnnlCopy", [&](CnnlHandle h) { return runtime().cnnlCopy(h, from, x.data, to, out.data); });
}

void Calls::copy_bytes(const Operand& x, const Operand& out) {
  const auto bytes = static_cast<uint64_t>(count(out.dims) * bytes_of(out.dtype));
  if (!measures()) stream_->copy(out.data, x.data, bytes, RLK_COPY_DEVICE_TO_DEVICE);
}

void Calls::expand(const Operand& x, const Operand& out) {
  const Descriptor from(x), to(out);
  call("cnnlExpand", [&](CnnlHandle h) { return runtime().cnnlExpand(h, from, x.data, to, out.data); });
}

void Calls::combine(int operation, const Operand& x, float x_factor, const Operand& y, float y_factor,
                    const Operand& out) {
  const Runtime& r = runtime();
  const Descriptor a(x), b(y), c(out);
  const Owned desc(r.cnnlCreateOpTensorDescriptor, r.cnnlDestroyOpTensorDescriptor, "cnnlCreateOpTensorDescriptor");
  check_cnnl(r.cnnlSetOpTensorDescriptor(desc, operation, kFloat, kPropagateNan), "cnnlSetOpTensorDescriptor");
  const Extra more = extra("cnnlGetOpTensorWorkspaceSize", [&](CnnlHandle h, size_t* bytes) {
    return r.cnnlGetOpTensorWorkspaceSize(h, a, b, c, bytes);
  });
  const float nothing = 0;
  call("cnnlOpTensor", [&](CnnlHandle h) {
    return r.cnnlOpTensor(h, desc, &x_factor, a, x.data, &y_factor, b, y.data, more.data, more.bytes, &nothing, c,
                          out.data);
  });
}

void Calls::divide(const Operand& x, const Operand& y, const Operand& out) {
  const Runtime& r = runtime();
  const Descriptor a(x), b(y), c(out);
  const Extra more = extra("cnnlGetDivWorkspaceSize",
                           [&](CnnlHandle h, size_t* bytes) { return r.cnnlGetDivWorkspaceSize(h, a, b, c, bytes); });
  call("cnnlDiv_v2", [&](CnnlHandle h) {
    return r.cnnlDiv_v2(h, kPrecise, a, x.data, b, y.data, more.data, more.bytes, c, out.data);
  });
}

void Calls::affine_by(const Operand& x, const void* factor, const void* plus, const Operand& out) {
  const Descriptor from(x), to(out);
  call("cnnlTransform_v2", [&](CnnlHandle h) {
    return runtime().cnnlTransform_v2(h, kHostPointer, factor, from, x.data, plus, to, out.data);
  });
}

void Calls::absolute(const Operand& x, const Operand& out) {
  const Descriptor from(x), to(out);
  call("cnnlAbs", [&](CnnlHandle h) { return runtime().cnnlAbs(h, from, x.data, to, out.data); });
}

void Calls::root(const Operand& x, const Operand& out) {
  const Descriptor from(x), to(out);
  call("cnnlSqrt_v2", [&](CnnlHandle h) { return runtime().cnnlSqrt_v2(h, kPrecise, from, x.data, to, out.data); });
}

void Calls::exp(const Operand& x, const Operand& out) {
  const Descriptor from(x), to(out);
  call("cnnlExp_v2", [&](CnnlHandle h) { return runtime().cnnlExp_v2(h, kPrecise, from, x.data, to, out.data); });
}

void Calls::log(const Operand& x, const Operand& out) {
  const Descriptor from(x), to(out);
  call("cnnlLog_v2",
       [&](CnnlHandle h) { return runtime().cnnlLog_v2(h, kPrecise, kNaturalLog, from, x.data, to, out.data); });
}

void Calls::reduce(int operation, const Operand& x, int axis, const Operand& out, const Operand* where) {
  const Runtime& r = runtime();
  const Descriptor from(x), to(out), index(where != nullptr ? *where : out);
  const Owned desc(r.cnnlCreateReduceDescriptor, r.cnnlDestroyReduceDescriptor, "cnnlCreateReduceDescriptor");
  check_cnnl(r.cnnlSetReduceDescriptor_v2(desc, &axis, 1, operation, kFloat, kPropagateNan,
                                          where != nullptr ? kWithIndices : kNoIndices, kIndices32, 0.0F),
             "cnnlSetReduceDescriptor_v2");
  void* const index_desc = where != nullptr ? static_cast<void*>(index) : nullptr;
  void* const positions = where != nullptr ? where->data : nullptr;
  const bool newer = r.cnnlReduce_v2 != nullptr && r.cnnlGetReduceOpWorkspaceSize_v2 != nullptr;
  const Extra more = extra("cnnlGetReduceOpWorkspaceSize", [&](CnnlHandle h, size_t* bytes) {
    return newer ? r.cnnlGetReduceOpWorkspaceSize_v2(h, from, to, index_desc, desc, bytes)
                 : r.cnnlGetReduceOpWorkspaceSize(h, from, to, desc, bytes);
  });
  const size_t position_bytes = where != nullptr ? static_cast<size_t>(count(where->dims)) * sizeof(int32_t) : 0;
  call("cnnlReduce", [&](CnnlHandle h) {
    return newer ? r.cnnlReduce_v2(h, desc, from, x.data, nullptr, nullptr, more.data, more.bytes, to, out.data,
                                   index_desc, positions)
                 : r.cnnlReduce(h, desc, more.data, more.bytes, nullptr, from, x.data, position_bytes, positions,
                                nullptr, to, out.data);
  });
}

void Calls::compare(int operation, const Operand& x, const Operand& y, const Operand& out) {
  const Runtime& r = runtime();
  const Descriptor a(x), b(y), c(out);
  const Extra more = extra("cnnlGetLogicOpWorkspaceSize", [&](CnnlHandle h, size_t* bytes) {
    return r.cnnlGetLogicOpWorkspaceSize(h, a, b, c, bytes);
  });
  call("cnnlLogicOp", [&](CnnlHandle h) {
    return r.cnnlLogicOp(h, operation, a, x.data, b, y.data, more.data, more.bytes, c, out.data);
  });
}

void Calls::select(const Operand& condition, const Operand& x, const Operand& y, const Operand& out) {
  const Runtime& r = runtime();
  const Descriptor cond(condition), a(x), b(y), c(out);
  const Extra more = extra("cnnlGetSelectV2WorkspaceSize", [&](CnnlHandle h, size_t* bytes) {
    return r.cnnlGetSelectV2WorkspaceSize(h, cond, a, b, bytes);
  });
  call("cnnlSelectV2", [&](CnnlHandle h) {
    return r.cnnlSelectV2(h, cond, condition.data, a, x.data, b, y.data, more.data, more.bytes, c, out.data);
  });
}

void Calls::gather(const Operand& x, int axis, const Operand& index, const Operand& out) {
  const Descriptor from(x), at(index), to(out);
  call("cnnlGather",
       [&](CnnlHandle h) { return runtime().cnnlGather(h, axis, from, x.data, at, index.data, to, out.data); });
}

void Calls::index_select(const Operand& x, int axis, const Operand& index, const Operand& out) {
  const Descriptor from(x), at(index), to(out);
  call("cnnlIndexSelect",
       [&](CnnlHandle h) { return runtime().cnnlIndexSelect(h, axis, from, x.data, at, index.data, to, out.data); });
}

void Calls::put_rows(const Operand& x, const Operand& index, const Operand& out) {
  const Descriptor from(x), at(index), to(out);
  call("cnnlScatterNd_v2", [&](CnnlHandle h) {
    return runtime().cnnlScatterNd_v2(h, kScatterUpdate, at, index.data, from, x.data, to, out.data, to, out.data);
  });
}

void Calls::largest_places(const Operand& x, const Operand& where) {
  const Runtime& r = runtime();
  const Operand numbers = scratch(kFloat, where.dims);
  const Descriptor from(x), to(numbers), at(where);
  const int many = where.dims.back(), axis = static_cast<int>(x.dims.size()) - 1;
  const Extra more = extra("cnnlGetTopKTensorWorkspaceSize", [&](CnnlHandle h, size_t* bytes) {
    return r.cnnlGetTopKTensorWorkspaceSize(h, from, many, axis, true, to, at, bytes);
  });
  call("cnnlTopKTensor_v3", [&](CnnlHandle h) {
    return r.cnnlTopKTensor_v3(h, from, x.data, many, axis, true, true, true, more.data, more.bytes, to, numbers.data,
                               at, where.data);
  });
}

// A graph needs nothing of the plan: CNNL's functions read descriptors and host scalars while they are called. CNNL
// states nothing of it; its twin mlu-ops is written so, and torch_mlu destroys them within a capture.
ProgramPlan::ProgramPlan(Device& device) : device_(device) {
  flags = RLK_PLAN_CAPTURABLE | RLK_PLAN_CAPTURED_APART;
  workspace_bound = std::numeric_limits<uint64_t>::max();
}

uint64_t ProgramPlan::prepare(const sdk::Run& run) {
  const CurrentDevice current(device_.ordinal());
  Calls calls(device_);
  build(calls, run, nullptr);
  return calls.used();
}

void ProgramPlan::enqueue(sdk::Stream& stream, const sdk::Run& run) {
  const CurrentDevice current(device_.ordinal());
  Stream& own = static_cast<Stream&>(stream);
  const bool capturing = run.is_capturing();
  if (capturing) own.keep_handle();
  own.enqueue_work(capturing, [&] {
    Calls calls(own, run);
    build(calls, run, &own);
  });
}

sdk::Refusal refuse_missing(std::initializer_list<Needed> functions) {
  std::string names;
  for (const Needed& one : functions) {
    if (!one.present) names += (names.empty() ? "" : ", ") + std::string(one.name);
  }
  if (names.empty()) return std::nullopt;
  return sdk::Support::no("RUNTIME_SYMBOL_MISSING",
                          "the installed CNNL " + runtime().cnnl_version + " has no " + names);
}

sdk::Refusal refuse_tensors(const rlk_call_desc& desc) {
  const auto look = [](const rlk_tensor* const* tensors, uint32_t number, const char* kind) -> sdk::Refusal {
    for (uint32_t i = 0; i < number; ++i) {
      const rlk_tensor* tensor = tensors[i];
      if (tensor == nullptr) continue;
      const std::string which = sdk::format("%s %u", kind, i);
      if (sdk::element_count(*tensor) > std::numeric_limits<int32_t>::max())
        return sdk::Support::no("SIZE", which + " has more elements than CNNL counts in 32 bits");
      if (tensor->alignment < 4 && tensor->alignment * 8 < tensor->dtype.bits)
        return sdk::Support::no("ALIGNMENT", which + " is not aligned to its elements", RLK_SUPPORT_IF_CONTIGUOUS);
      // Elements from the first to the last: CNNL's strides are of 32 bits.
      uint64_t extent = 1;
      for (int32_t d = 0; d < tensor->ndim; ++d) {
        if (tensor->shape[d] > 1 && tensor->strides[d] < 0)
          return sdk::Support::no("STRIDES", which + " runs backwards", RLK_SUPPORT_IF_CONTIGUOUS);
        if (tensor->shape[d] > 1)
          extent += static_cast<uint64_t>(tensor->shape[d] - 1) * static_cast<uint64_t>(tensor->strides[d]);
      }
      if (extent > std::numeric_limits<int32_t>::max() && sdk::element_count(*tensor) > 0)
        return sdk::Support::no("SIZE", which + " reaches further than CNNL's strides of 32 bits",
                                RLK_SUPPORT_IF_CONTIGUOUS);
    }
    return std::nullopt;
  };
  if (auto no = look(desc.inputs, desc.n_inputs, "input")) return no;
  return look(desc.outputs, desc.n_outputs, "output");
}

}  // namespace rlk::cambricon

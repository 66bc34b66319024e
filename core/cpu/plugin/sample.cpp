// sample behind the plugin ABI.
#include "core/cpu/sampling/sample.hpp"

#include "core/cpu/plugin/arguments.hpp"
#include "core/cpu/plugin/implementations.hpp"

namespace rlk::cpu {
namespace {

using Op = sdk::ops::Sample;

template <class Parameter, typename Scalar>
Parameter per_row(const rlk_tensor* tensor, Scalar scalar) {
  using T = std::remove_const_t<std::remove_pointer_t<decltype(Parameter::data)>>;
  return {sdk::data_of<const T>(tensor), stride_of(tensor, 0), scalar};
}

template <typename T>
Beside<T> beside(const rlk_tensor* tensor) {
  return {sdk::data_of<T>(tensor), stride_of(tensor, 0), stride_of(tensor, 1)};
}

class SamplePlan : public CpuPlan<Op> {
public:
  SamplePlan(const sdk::Call<Op>& call, ParallelFor parallel) : CpuPlan(call.params(), parallel) {
    numerics = numerics_of(call);
  }

  uint64_t prepare(const sdk::Run& run) override {
    const rlk_tensor& logits = *run.input(RLK_SAMPLE_IN_LOGITS);
    return static_cast<uint64_t>(sample_workspace_bytes(
        logits.shape[0], logits.shape[1], run.output(RLK_SAMPLE_OUT_LOGP) != nullptr, parallel().threads));
  }

  void enqueue(sdk::Stream&, const sdk::Run& run) override {
    SampleArgs args;
    take_inputs(run, args);
    take_outputs(run, args);
    args.joint = params().filter_order == RLK_SAMPLE_FILTER_ORDER_JOINT;
    args.top_k_keeps_ties = params().top_k_ties == RLK_SAMPLE_TOP_K_TIES_KEEP;
    args.top_p_exceeds = params().top_p_boundary == RLK_SAMPLE_TOP_P_BOUNDARY_EXCEED;
    args.top_p_keeps_ties = params().top_p_ties == RLK_SAMPLE_TOP_P_TIES_KEEP;
    args.workspace = run.workspace();
    report(run, cpu::sample(args, parallel()));
  }

private:
  void take_inputs(const sdk::Run& run, SampleArgs& args) const {
    const rlk_tensor& logits = *run.input(RLK_SAMPLE_IN_LOGITS);
    args.n = logits.shape[0];
    args.vocab = logits.shape[1];
    args.dtype = kernel_dtype(logits);
    args.logits = sdk::data_of(&logits);
    args.row_stride = logits.strides[0];
    args.col_stride = logits.strides[1];
    const auto real = [&](uint32_t input, double scalar) { return per_row<RowFloat>(run.input(input), scalar); };
    const auto integer = [&](uint32_t input, int64_t scalar) { return per_row<RowInteger>(run.input(input), scalar); };
    args.row_ids = integer(RLK_SAMPLE_IN_ROW_IDS, 0);
    args.temperature = real(RLK_SAMPLE_IN_TEMPERATURES, params().temperature);
    args.top_p = real(RLK_SAMPLE_IN_TOP_PS, params().top_p);
    args.min_p = real(RLK_SAMPLE_IN_MIN_PS, params().min_p);
    args.repetition = real(RLK_SAMPLE_IN_REPETITION_PENALTIES, params().repetition_penalty);
    args.frequency = real(RLK_SAMPLE_IN_FREQUENCY_PENALTIES, params().frequency_penalty);
    args.presence = real(RLK_SAMPLE_IN_PRESENCE_PENALTIES, params().presence_penalty);
    args.top_k = integer(RLK_SAMPLE_IN_TOP_KS, params().top_k);
    args.seed = integer(RLK_SAMPLE_IN_SEEDS, params().seed);
    args.step = integer(RLK_SAMPLE_IN_STEPS, params().step);
    args.prompt_mask = beside<const uint8_t>(run.input(RLK_SAMPLE_IN_PROMPT_MASK));
    args.output_counts = beside<const int32_t>(run.input(RLK_SAMPLE_IN_OUTPUT_COUNTS));
    args.allowed = beside<const uint8_t>(run.input(RLK_SAMPLE_IN_ALLOWED));
    const rlk_tensor* samples = run.input(RLK_SAMPLE_IN_UNIFORM_SAMPLES);
    args.in_rounds = samples != nullptr;
    args.uniform_samples = sdk::data_of<const float>(samples);
    args.rounds = samples != nullptr ? samples->shape[0] : 0;
    args.round_stride = stride_of(samples, 0);
    args.sample_stride = stride_of(samples, 1);
  }

  static void take_outputs(const sdk::Run& run, SampleArgs& args) {
    const rlk_tensor& ids = *run.output(RLK_SAMPLE_OUT_IDS);
    args.ids = sdk::data_of(&ids);
    args.ids_are_i64 = is_i64(ids);
    args.ids_stride = ids.strides[0];
    const rlk_tensor* logp = run.output(RLK_SAMPLE_OUT_LOGP);
    args.logp = sdk::data_of(logp);
    args.logp_stride = stride_of(logp, 0);
    const rlk_tensor* processed = run.output(RLK_SAMPLE_OUT_PROCESSED_LOGP);
    args.processed_logp = sdk::data_of(processed);
    args.processed_logp_stride = stride_of(processed, 0);
    const rlk_tensor* status = run.output(RLK_SAMPLE_OUT_STATUS);
    args.status = sdk::data_of<int32_t>(status);
    args.status_stride = stride_of(status, 0);
    const rlk_tensor* success = run.output(RLK_SAMPLE_OUT_SUCCESS);
    args.success = sdk::data_of<uint8_t>(success);
    args.success_stride = stride_of(success, 0);
    args.keep_mask = beside<uint8_t>(run.output(RLK_SAMPLE_OUT_KEEP_MASK));
  }
};

}  // namespace

sdk::Support CpuSample::query(CpuDevice& device, const sdk::Call<Op>& call) {
  const rlk_tensor& logits = *call.input(RLK_SAMPLE_IN_LOGITS);
  const int64_t n = logits.shape[0], vocab = logits.shape[1];
  const double elements = static_cast<double>(n) * static_cast<double>(vocab);
  const bool wants_logp = call.output(RLK_SAMPLE_OUT_LOGP) != nullptr;
  return support(call, static_cast<uint64_t>(sample_workspace_bytes(n, vocab, wants_logp, device.parallel().threads)),
                 elements * static_cast<double>(size_of(kernel_dtype(logits))), elements * 100);
}

std::unique_ptr<sdk::Plan> CpuSample::plan(CpuDevice& device, const sdk::Call<Op>& call) {
  return std::make_unique<SamplePlan>(call, device.parallel());
}

}  // namespace rlk::cpu

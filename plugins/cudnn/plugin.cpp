// Operators for the devices of another plugin: attention by cuDNN on what the cuda plugin calls "cuda".
#include "attention.hpp"

namespace rlk::cudnn {
namespace {

class Plugin final : public sdk::OperatorPlugin {
public:
  using Device = cudnn::Device;
  using Stream = sdk::BorrowedStream;
  using Event = sdk::NoEvent;
  using Implementations = std::tuple<Attention, AttentionBackward, AttentionBackwardDeterministic>;

  explicit Plugin(const sdk::Host&) {}
  sdk::Verdict probe(sdk::Evidence& evidence) override {
    const Library& bound = library();
    if (!bound.symbols.complete()) {
      evidence.contradicts("runtime_library", bound.symbols.problem());
      return sdk::Verdict::absent(
          "RUNTIME_LIBRARY_MISSING", bound.symbols.problem(),
          "install cuDNN 9 (pip install nvidia-cudnn-cu13) and the NVIDIA driver; put the folder "
          "of libcudnn.so.9 into LD_LIBRARY_PATH");
    }
    evidence.supports("runtime_library", sdk::Symbols::path_of(bound.create));
    const std::string version = version_text(bound.version());
    evidence.neutral("runtime_version", version);
    if (bound.version() < kOldestVersion) {
      return sdk::Verdict::absent(
          "RUNTIME_TOO_OLD",
          "cuDNN " + version + " is installed; attention is right from " + version_text(kOldestVersion) + " on",
          "install a newer cuDNN and put the folder of its libcudnn.so.9 into LD_LIBRARY_PATH");
    }
    return sdk::Verdict::mine("cuDNN " + version);
  }
  std::unique_ptr<sdk::Device> attach_device(const rlk_attach_info& info) override {
    if (!library().symbols.complete()) throw sdk::Error(RLK_ABSENT, library().symbols.problem());
    if (info.native == nullptr || info.native->context == nullptr) {
      throw sdk::Error(RLK_UNSUPPORTED, "the plugin of the device does not tell its context, in which cuDNN must work");
    }
    return std::make_unique<Device>(info);
  }
};

}  // namespace
}  // namespace rlk::cudnn

RLK_PLUGIN_WITH_ENVIRONMENT(rlk::cudnn::Plugin, "cudnn", "cuda", "0.1.0",
                            "cuDNN's attention for the devices of the cuda plugin",
                            "LD_LIBRARY_PATH,CUDNN_HOME,CUDA_HOME,CUDA_PATH,VIRTUAL_ENV")

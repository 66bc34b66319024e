// Where does a call's memory lie, and did the plugin write beside it? All tensors and the workspace of a call lie in
// one image of device memory, with red zones between them. The image is filled on the host with a poison byte, sent,
// and fetched after the run: outputs are read from it, and every other byte must be as it was sent. About outputs the
// zones have another byte: a copy of one element too many would move what is there already.
#pragma once

#include <optional>
#include <string>

#include "core/conformance/call.hpp"

namespace rlk::core::conformance {

// Why a unit is off: a code in capitals and what was seen.
struct Failure {
  std::string code;
  std::string text;
};

// What outputs hold before the call. Not the poison of the gaps: a NaN that was read there and carried through
// arithmetic keeps its bits, and must not be taken for an element that was not written.
constexpr uint8_t output_poison(uint8_t poison) {
  return poison ^ 1;
}

class Image {
public:
  // Lays out and fills the tensors of the call.
  Image(const ConcreteCall& call, uint8_t poison);
  // Behind them; exactly as long as given, so that a red zone begins at its end. Tensors stay where they are.
  void add_workspace(uint64_t bytes);

  uint64_t size() const { return bytes_.size(); }
  const std::byte* bytes() const { return bytes_.data(); }
  // Offsets of each argument's block and of the workspace; kNone for absent and for empty ones.
  static constexpr uint64_t kNone = UINT64_MAX;
  uint64_t input_at(size_t i) const { return inputs_[i]; }
  uint64_t output_at(size_t i) const { return outputs_[i]; }
  uint64_t workspace_at() const { return workspace_; }
  uint64_t workspace_bytes() const { return workspace_bytes_; }
  // What the workspace holds at first: the poison, until it is changed here.
  std::span<std::byte> workspace() {
    return {bytes_.data() + (workspace_bytes_ > 0 ? workspace_ : 0), workspace_bytes_};
  }

  // The outputs in a fetched image, row-major without gaps (empty where absent). A failure when anything but outputs
  // and workspace has changed. Afterwards the image holds there what was sent.
  std::optional<Failure> collect(const ConcreteCall& call, std::byte* fetched,
                                 std::vector<std::vector<std::byte>>& outputs) const;

private:
  // `content` stands behind `shift` bytes, all else is `fill`.
  uint64_t append(uint64_t bytes, const std::string& name, uint8_t fill, uint64_t shift = 0,
                  std::span<const std::byte> content = {});

  struct Region {
    uint64_t begin, end;
    std::string name;
    bool input;
  };
  Failure blame(uint64_t at, std::byte sent, std::byte fetched) const;

  std::vector<std::byte> bytes_;
  std::vector<uint64_t> inputs_, outputs_;
  uint64_t workspace_ = kNone;
  uint64_t workspace_bytes_ = 0;
  std::vector<Region> regions_;
  uint8_t poison_;
  uint8_t behind_;  // what the zone at the end begins with
};

}  // namespace rlk::core::conformance

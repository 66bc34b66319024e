// A cuDNN descriptor; destroyed after everything that refers to it.
#pragma once

#include "library.hpp"

namespace rlk::cudnn {

class Descriptor {
public:
  explicit Descriptor(int type);
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  RawDescriptor get() const noexcept { return handle_; }

  void set(int attribute, int type, int64_t count, const void* values);
  void set_int(int attribute, int type, int value) { set(attribute, type, 1, &value); }
  void set_int64(int attribute, int64_t value) { set(attribute, type::kInt64, 1, &value); }
  void set_bool(int attribute, bool value) { set(attribute, type::kBoolean, 1, &value); }
  void set(int attribute, const Descriptor& other) {
    const RawDescriptor handle = other.get();
    set(attribute, type::kDescriptor, 1, &handle);
  }
  void finalize(const char* what);

private:
  RawDescriptor handle_ = nullptr;
};

}  // namespace rlk::cudnn

// The floating-point environment of a thread: rounding mode, whether denormals are flushed, which exceptions trap. A
// library that changes it changes the results of all code that computes on that thread afterwards.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

#include <cstdint>

namespace rlk::core {

// What decides results; the flags of exceptions that occurred are left as they are. [a few nanoseconds]
class FloatControl {
public:
  static FloatControl of_thread() noexcept {
    FloatControl now;
#if defined(__x86_64__)
    now.sse_ = _mm_getcsr() & ~kSseFlags;
    __asm__ volatile("fnstcw %0" : "=m"(now.x87_));  // long double, and what fegetround answers
#elif defined(__aarch64__)
    __asm__ volatile("mrs %0, fpcr" : "=r"(now.fpcr_));
#else
    now.rounding_ = std::fegetround();
#endif
    return now;
  }
  // As a program begins: to nearest, denormals kept, nothing traps.
  static constexpr FloatControl standard() noexcept {
    return {};
  }

  void apply() const noexcept {
#if defined(__x86_64__)
    _mm_setcsr((_mm_getcsr() & kSseFlags) | sse_);
    __asm__ volatile("fldcw %0" : : "m"(x87_));
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(fpcr_));
#else
    std::fesetround(rounding_);
#endif
  }
  bool operator==(const FloatControl&) const noexcept = default;

private:
#if defined(__x86_64__)
  static constexpr uint32_t kSseFlags = 0x3f;
  uint32_t sse_ = 0x1f80;
  uint16_t x87_ = 0x037f;
#elif defined(__aarch64__)
  uint64_t fpcr_ = 0;
#else
  int rounding_ = FE_TONEAREST;
#endif
};

// Around code of a plugin, a vendor or the embedder: what it changes is undone.
class KeepFloatControl {
public:
  KeepFloatControl() noexcept : before_(FloatControl::of_thread()) {}
  ~KeepFloatControl() {
    if (FloatControl::of_thread() != before_) before_.apply();
  }
  KeepFloatControl(const KeepFloatControl&) = delete;
  KeepFloatControl& operator=(const KeepFloatControl&) = delete;

private:
  const FloatControl before_;
};

// Around rlk's code on a thread that rlk did not make, such as a vendor's that calls a host function.
class StandardFloatControl {
public:
  StandardFloatControl() noexcept { FloatControl::standard().apply(); }

private:
  KeepFloatControl keep_;  // first in, last out
};

}  // namespace rlk::core

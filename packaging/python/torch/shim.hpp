// torch's stable C ABI, each function found by name in the torch that the process has loaded: librlk_torch is built
// without torch and links nothing of it.
#pragma once

#include <cstddef>
#include <cstdint>

// torch's own names of what it does not show.
struct AtenTensorOpaque;
struct TorchLibraryOpaque;
struct StableListOpaque;
struct StringOpaque;
struct StreamOpaque;

namespace rlk::torch {

// A value as the dispatcher passes it to a kernel: a number, or an owned handle; of an optional argument the address of
// one, owned too, or 0.
using StableIValue = uint64_t;

struct Shim {
#define F(name, result, parameters) result(*name) parameters = nullptr;
#define F_OPTIONAL(name, result, parameters, since) result(*name) parameters = nullptr;
#include "shim_functions.inc"
#undef F
#undef F_OPTIONAL
};

extern const Shim& shim;  // after bind_shim

// nullptr, or the name of a function that the loaded torch does not have.
const char* bind_shim();

// A function of the loaded torch by its name, or nullptr.
void* find_in_torch(const char* name);

// Throws what a failed function of torch deserves; torch has written its reason to its own log.
void check(int32_t code, const char* function);
#define RLK_TORCH(function, ...) ::rlk::torch::check(::rlk::torch::shim.function(__VA_ARGS__), #function)

}  // namespace rlk::torch

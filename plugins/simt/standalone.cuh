// What a compiler at run time has no standard headers for; a bundle of sources begins with it (host/compiler.hpp).
// Inside the namespace, because such compilers have types of these names of their own, not always the same ones.
#pragma once

namespace rlk::simt {

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long long;
using uintptr_t = unsigned long long;
static_assert(sizeof(uintptr_t) == sizeof(void*) && sizeof(int64_t) == 8 && sizeof(int32_t) == 4);

}  // namespace rlk::simt

// Macros of kernels name these outside of it; they are of one type everywhere, so that naming them twice is no fault.
using uint8_t = unsigned char;
using uint16_t = unsigned short;

#if !defined(FLT_MAX)
#define FLT_MAX __FLT_MAX__
#endif
#if !defined(DBL_MAX)
#define DBL_MAX __DBL_MAX__
#endif
#if !defined(INFINITY)
#define INFINITY __builtin_inff()
#endif
#if !defined(NAN)
#define NAN __builtin_nanf("")
#endif
#if !defined(INT64_MAX)
#define INT64_MAX 0x7fffffffffffffffll
#endif

// Is a function of a vendor's header called as the plugin declares it? Types are compared as the calling convention
// sees them: an enumeration is a number of its size, a handle a pointer, and what a pointer to a class leads to is the
// vendor's own affair.
#pragma once

#include <cstddef>
#include <type_traits>

namespace rlk::headers {

struct Opaque;

template <std::size_t bytes, bool is_floating>
struct Number {};

template <class T, class = void>
struct Plain {
  using type = T;  // void
};
template <class T>
struct Plain<T, std::enable_if_t<std::is_arithmetic_v<T> || std::is_enum_v<T>>> {
  using type = Number<sizeof(T), std::is_floating_point_v<T>>;
};
template <class T>
struct Plain<T, std::enable_if_t<std::is_class_v<T> || std::is_union_v<T>>> {
  using type = Opaque;
};
// Levels of pointers count; const does not travel. A handle may be declared as void*.
template <class T>
struct Plain<T*> {
  using To = typename Plain<std::remove_cv_t<T>>::type;
  using type = std::conditional_t<std::is_function_v<T>, Opaque*, std::conditional_t<std::is_void_v<To>, Opaque*, To*>>;
};

template <class F>
struct Signature;
template <class R, class... A>
struct Signature<R (*)(A...)> {
  using type = typename Plain<R>::type(typename Plain<std::remove_cv_t<A>>::type...);
};

template <class Ours, class Theirs>
constexpr bool is_same_call = std::is_same_v<typename Signature<Ours>::type, typename Signature<Theirs>::type>;

// The same of arguments alone.
template <class F>
struct Arguments;
template <class R, class... A>
struct Arguments<R(A...)> {
  using type = void(typename Plain<std::remove_cv_t<A>>::type...);
};
template <class R, class... A>
struct Arguments<R (*)(A...)> : Arguments<R(A...)> {};
template <class Ours, class Theirs>
constexpr bool is_same_arguments = std::is_same_v<typename Arguments<Ours>::type, typename Arguments<Theirs>::type>;

static_assert(is_same_call<int (*)(void**, unsigned long), int (*)(struct Handle**, unsigned long long)>);
static_assert(!is_same_call<int (*)(void*, int), int (*)(void*, long)>);
static_assert(!is_same_call<int (*)(void*, int), int (*)(int, void*)>);
static_assert(!is_same_call<int (*)(void*), int (*)(void*, int)>);
static_assert(!is_same_call<int (*)(void*), int (*)(void**)>);
static_assert(!is_same_call<int (*)(float*), int (*)(int*)>);

}  // namespace rlk::headers

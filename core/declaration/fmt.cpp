// fmt's functions outside headers, compiled once and hidden inside librlk: <fmt/core.h> alone is cheap to include, and
// librlk needs no libfmt, whose version differs from one distribution to the next.
#ifndef FMT_HEADER_ONLY
#include <fmt/format-inl.h>

// The templates that <fmt/format.h> of fmt 9 declares extern.
FMT_BEGIN_NAMESPACE
namespace detail {

template thousands_sep_result<char> thousands_sep_impl<char>(locale_ref);
template thousands_sep_result<wchar_t> thousands_sep_impl<wchar_t>(locale_ref);
template char decimal_point_impl<char>(locale_ref);
template wchar_t decimal_point_impl<wchar_t>(locale_ref);

}  // namespace detail
FMT_END_NAMESPACE
#endif

// The vendor's current context (or device) of a thread, for a scope: every slot of the ABI may be called with anything
// current, and leaves it so.
#pragma once

namespace rlk::sdk {

// Runtime has
//   using Handle = ...;
//   static Handle current();                              // null: nothing is current on this thread
//   static void enter(Handle wanted);                     // throws
//   static void leave(Handle previous) noexcept;          // undoes enter; previous may be null
// Costs one look when the wanted handle is already current.
template <class Runtime>
class CurrentScope {
public:
  using Handle = typename Runtime::Handle;

  explicit CurrentScope(Handle wanted) : previous_(Runtime::current()), entered_(previous_ != wanted) {
    if (entered_) Runtime::enter(wanted);
  }
  ~CurrentScope() {
    if (entered_) Runtime::leave(previous_);
  }
  CurrentScope(const CurrentScope&) = delete;
  CurrentScope& operator=(const CurrentScope&) = delete;

private:
  const Handle previous_;
  const bool entered_;
};

}  // namespace rlk::sdk

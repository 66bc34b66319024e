// Descriptors that a process has inherited and must not keep.
#pragma once

namespace rlk::loader {

// Closes every descriptor from `first` on, however high, but `kept`. For a process that has one thread.
void close_descriptors(int first, int kept);
// The same by the list in /proc, for kernels before 5.9 and sandboxes that refuse close_range.
void close_listed_descriptors(int first, int kept);

}  // namespace rlk::loader

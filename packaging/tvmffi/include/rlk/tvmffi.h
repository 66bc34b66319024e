/* librlk_tvmffi: rlk's operators as functions of tvm-ffi, for programs that have tvm-ffi's library loaded. It brings
   none, and links against none.

   The functions are exported as tvm-ffi's modules export theirs (tvm_ffi.load_module("librlk_tvmffi.so").logp), and by
   rlk_tvmffi_register they are global ones ("rlk.logp"). Their arguments, by place:

     inputs in declared order, outputs in declared order, parameters in declared order

   Tensors are DLTensor* or tvm-ffi's tensors, on one device. Outputs are the caller's: what the function writes into.
   None is an absent input, an optional output that is not wanted, a parameter at its default; what is left out at the
   end is None. An output that is always the memory of an input (a cache that is appended to) has no place of its own. A
   parameter that is an enumeration takes its word or its number. "rlk.arguments"(name) gives the list of an operator as
   a text. The result is None.

   Work goes on the stream that tvm-ffi says is current (TVMFFIEnvGetStream); on the CPU it is done when the call
   returns. Errors are raised as tvm-ffi's, of kind TypeError, ValueError, NotImplementedError, MemoryError or
   RuntimeError, with the text of the C API. Values that break their domain (an id out of range) are a ValueError on the
   CPU. On a device the work is only enqueued: the rows concerned are NaN (of integers -1), and no function raises it; a
   stream of rlk.h tells which, by rlk_stream_synchronize. [thread-safe] */
#ifndef RLK_TVMFFI_H
#define RLK_TVMFFI_H

#include <rlk/rlk.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the operators global functions, "rlk.NAME", replacing those of a call before. RLK_NOT_FOUND when this process
   has no tvm-ffi, with a text that says what to load; a function that is called without it returns -1. */
RLK_API rlk_status rlk_tvmffi_register(rlk_error* error);

#ifdef __cplusplus
}
#endif

#endif

/* What Python asks of librlk_torch (rlk/_torch_library.py, by ctypes). Called under the GIL, except rlk_torch_error. */
#ifndef RLK_TORCH_H
#define RLK_TORCH_H

#include <rlk/rlk.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Tells what serves the memory of torch's device (number of the kind, its index), asked once for each, and again after
   rlk_torch_reloaded: the runtime and the backend's name, of at most 31 letters. Called from any thread. */
typedef rlk_status (*rlk_torch_resolve)(int32_t device_type, int32_t index, rlk_runtime** runtime, char* backend,
                                        rlk_error* error);

/* Finds torch's stable C ABI in the process. NOT_FOUND names a function that this torch does not have. */
RLK_API rlk_status rlk_torch_open(rlk_torch_resolve resolve, rlk_error* error);

/* An operator as its schema has it: the inputs (n_required of them Tensor, the others Tensor?), float[] and int[] with
   the parameters, int wanted, str? pin, str? numerics. It gives Tensor[], the wanted outputs in order, or nothing where
   every output lies in the memory of an input. Copied. */
typedef struct rlk_torch_operator {
  uint32_t struct_size;
  uint32_t n_inputs, n_required, n_outputs, n_params;
  uint32_t gives_list;
  uint64_t bytes_as_u8;      /* bit i: a bool given as input i is its byte */
  uint64_t changed;          /* bit i: input i is written */
  uint64_t required_outputs; /* bit i: what wanted is when it is 0 */
  const char* name;
  const char* param_kinds;   /* 'f' or 'i' of every parameter */
  const uint64_t* defaults;  /* [n_params], the eight bytes of each */
  const int32_t* must_alias; /* [n_outputs], the input, or -1 */
} rlk_torch_operator;

/* Registers the kernel of torch.ops.rlk.NAME for every device, and of its overload `kernel` where no input is written;
   the schemas are defined before. */
RLK_API rlk_status rlk_torch_register(const rlk_torch_operator* description, rlk_error* error);

typedef struct rlk_torch_request {
  uint64_t wanted;   /* as the schema's, never 0 */
  uint32_t numerics; /* the classes demanded */
  uint32_t n_tensors;
  uint8_t places[32]; /* where input i is among the tensors; 255: absent, as is one that is None */
} rlk_torch_request;

typedef struct rlk_torch_python {
  void *tensor_type, *parameter_type; /* torch.Tensor and torch.nn.Parameter */
  /* Read where torch's stable ABI has no tensors of Python's (before 2.14), else NULL: functions that make a handle of
     a tensor, as a capsule without a name, and a list of tensors of a list of handles, which they take over. */
  void *to_handle, *from_handles;
  void* watchers; /* a tuple of functions without arguments: something of torch is to see a call where one is true */
  void* tangents; /* the dict of torch.autograd.forward_ad */
  void* records;  /* whether gradients are recorded */
  void* refused;  /* refused(text of a failed call, as bytes), which raises */
  void* apply;    /* apply(route, True, *tensors): the outputs of a call with a gradient, as a tuple */
  void* node;     /* apply(*tensors) of the class with the two methods of rlk_torch_node */
  void* backward; /* backward(ctx, *gradients): of that class, where the library does not know how */
} rlk_torch_python;

/* A function of Python's for a registered operator that changes no input, to be called with
   - bytes: an rlk_torch_request, then the operator's parameters as rlk_call takes them;
   - the pin, str or None;
   - tensors.
   It gives the wanted outputs as a tuple, or None where the call is the dispatcher's: inputs are not what the
   memory of the two classes says alone, or are refused. It knows neither gradients nor torch's modes: the caller asks
   for both before. Under the GIL; what python names lives as long as the process and is the same for every operator.
   NULL where torch or Python lacks what this takes. PyObjects all.

   With is_planned a function for a whole call of rlk.torch, to be called with
   - what is known of a call, or None: a tuple of the tuple of its words (parameters, flags, pin, numerics), the
     rlk_torch_request with its parameters, the class of its outputs or None where it gives one alone, and a dict from
     the shapes of its inputs (int64 each: dimensions and sizes of every input, -1 for an absent one) to tuples of its
     route and None;
   - tuples of the inputs, of the parameters and of the flags, the pin, numerics.
   It gives what rlk.torch does, or None where the words are other objects than those known, there is no such route,
   something of torch is to see the call, or it is the dispatcher's.

   With an entry of torch's for the operator's overload `kernel`, not NULL, a function that takes its arguments, all of
   them by place, and gives what it does: around the dispatcher, or through the entry. */
RLK_API void* rlk_torch_callable(const char* name, const rlk_torch_python* functions, void* entry, int32_t is_planned);

/* Of a class derived from torch.autograd.Function (base: what torch derives those from): its forward, as a function, or
   the apply of what runs its backward, as a method. Calls of a callable above go through it where the first part of
   their route is not None but what the library is to know of it, a tuple:
   - bytes: an rlk_torch_request, then parameters, of the call with the outputs that its backward reads;
   - bytes, the places of what the caller gets among the outputs; or None: all;
   - bytes, what is saved: places among the tensors, followed by the outputs; 255: None;
   - bytes, the places of what has no gradient among what the caller gets;
   - a dict of the backwards known so far, or None where `backward` does them all. From bytes, for each tensor whether
   it needs a gradient, then for each output whether it has none, to a tuple: an rlk_torch_request with parameters, of
     what was saved and the gradients; bytes, pairs of a tensor's place and that of its gradient among the outputs; the
     backward's operator, as rlk_torch_operator_address gives it;
   - the pin of the backward.
   ctx.kept is the tuple of the route and None, or of the route and the dtypes of the tensors where there is no dict. */
RLK_API void* rlk_torch_node(const rlk_torch_python* functions, void* base, int32_t is_backward);

/* What stands for a registered operator, or NULL. */
RLK_API const void* rlk_torch_operator_address(const char* name);

/* Plugins were replaced: every thread makes its streams anew at its next call, and asks again what serves a device. */
RLK_API void rlk_torch_reloaded(void);

/* The calling thread's last failed call; status 0 when there is none. Forgets it. */
RLK_API void rlk_torch_error(rlk_error* out);

#ifdef __cplusplus
}
#endif

#endif

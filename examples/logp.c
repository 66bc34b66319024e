/* Log-probabilities of two rows of logits on the CPU: all that a program in C needs. */
#include <rlk/ops/logp.h>
#include <rlk/rlk.h>
#include <stdio.h>

int main(void) {
  rlk_error error = RLK_ERROR_INIT;
  rlk_runtime* runtime = NULL;
  rlk_stream* stream = NULL;
  const rlk_op* op = NULL;
  if (rlk_runtime_create(NULL, &runtime, &error) != RLK_OK ||
      rlk_stream_create(runtime, "cpu", 0, 0, &stream, &error) != RLK_OK ||
      rlk_op_find("logp", &op, &error) != RLK_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }

  float logits[2][3] = {{1, 2, 3}, {3, 2, 1}};
  int64_t ids[2] = {2, 2};
  float logp[2];
  const int64_t shape[2] = {2, 3}, strides[2] = {3, 1}, rows[1] = {2}, step[1] = {1};
  const rlk_dtype f32 = {RLK_DTYPE_FLOAT, 32, 1}, i64 = {RLK_DTYPE_INT, 64, 1};
  const rlk_tensor logits_tensor = {sizeof(rlk_tensor), 4, logits, 0, shape, strides, 2, f32};
  const rlk_tensor ids_tensor = {sizeof(rlk_tensor), 8, ids, 0, rows, step, 1, i64};
  const rlk_tensor logp_tensor = {sizeof(rlk_tensor), 4, logp, 0, rows, step, 1, f32};
  /* What is not named is NULL: absent. */
  const rlk_tensor* inputs[RLK_LOGP_N_INPUTS] = {
      [RLK_LOGP_IN_LOGITS] = &logits_tensor,
      [RLK_LOGP_IN_IDS] = &ids_tensor,
  };
  const rlk_tensor* outputs[RLK_LOGP_N_OUTPUTS] = {[RLK_LOGP_OUT_LOGP] = &logp_tensor};

  /* A wrong call is told by rlk_call, a wrong id by the stream, when it has passed the call. */
  if (rlk_call(stream, op, NULL, inputs, RLK_LOGP_N_INPUTS, outputs, RLK_LOGP_N_OUTPUTS, NULL, &error) != RLK_OK ||
      rlk_stream_synchronize(stream, UINT64_MAX, &error) != RLK_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  printf("%f %f\n", (double)logp[0], (double)logp[1]);
  rlk_stream_destroy(stream, NULL);
  return rlk_runtime_destroy(runtime, NULL) == RLK_OK ? 0 : 1;
}

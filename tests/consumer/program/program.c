/* A program in C that uses an installed rlk: log-probabilities on the CPU. Exits with 0 when they are right. */
#include <math.h>
#include <rlk/ops/logp.h>
#include <rlk/rlk.h>
#include <stdio.h>

static int failed(const char* step, const rlk_error* error) {
  fprintf(stderr, "%s: status %d: %s\n", step, (int)error->status, error->text);
  return 1;
}

int main(void) {
  float logits[2][3] = {{0.0f, 1.0f, 2.0f}, {3.0f, 3.0f, 3.0f}};
  int64_t ids[2] = {2, 0};
  float logp[2] = {0.0f, 0.0f};
  const double expected[2] = {2.0 - log(1.0 + exp(1.0) + exp(2.0)), -log(3.0)};

  const int64_t logits_shape[2] = {2, 3}, logits_strides[2] = {3, 1}, rows[1] = {2}, step[1] = {1};
  const rlk_dtype f32 = {RLK_DTYPE_FLOAT, 32, 1}, i64 = {RLK_DTYPE_INT, 64, 1};
  const rlk_tensor logits_tensor = {sizeof(rlk_tensor), 4, logits, 0, logits_shape, logits_strides, 2, f32};
  const rlk_tensor ids_tensor = {sizeof(rlk_tensor), 8, ids, 0, rows, step, 1, i64};
  const rlk_tensor logp_tensor = {sizeof(rlk_tensor), 4, logp, 0, rows, step, 1, f32};
  const rlk_tensor* inputs[RLK_LOGP_N_INPUTS] = {&logits_tensor, &ids_tensor, NULL, NULL, NULL};
  const rlk_tensor* outputs[RLK_LOGP_N_OUTPUTS] = {&logp_tensor, NULL, NULL};

  rlk_error error = RLK_ERROR_INIT;
  rlk_runtime* runtime = NULL;
  rlk_stream* stream = NULL;
  const rlk_op* op = NULL;
  if (rlk_runtime_create(NULL, &runtime, &error) != RLK_OK) return failed("rlk_runtime_create", &error);
  if (rlk_stream_create(runtime, "cpu", 0, 0, &stream, &error) != RLK_OK) return failed("rlk_stream_create", &error);
  if (rlk_op_find("logp", &op, &error) != RLK_OK) return failed("rlk_op_find", &error);
  if (rlk_call(stream, op, NULL, inputs, RLK_LOGP_N_INPUTS, outputs, RLK_LOGP_N_OUTPUTS, NULL, &error) != RLK_OK) {
    return failed("rlk_call", &error);
  }
  if (rlk_stream_synchronize(stream, UINT64_MAX, &error) != RLK_OK) return failed("rlk_stream_synchronize", &error);
  for (int n = 0; n < 2; ++n) {
    if (!(fabs((double)logp[n] - expected[n]) < 1e-6)) {
      fprintf(stderr, "logp[%d] is %.9g, expected %.9g\n", n, (double)logp[n], expected[n]);
      return 1;
    }
  }
  if (rlk_stream_destroy(stream, &error) != RLK_OK) return failed("rlk_stream_destroy", &error);
  if (rlk_runtime_destroy(runtime, &error) != RLK_OK) return failed("rlk_runtime_destroy", &error);
  printf("logp %.6f %.6f, rlk %s\n", (double)logp[0], (double)logp[1], rlk_version());
  return 0;
}

/* A library that exports nothing a plugin looks for. */
int rlk_test_empty_library(void) {
  return 0;
}

/* A libcudnn.so.9 that lacks the backend API. */
__attribute__((visibility("default"))) unsigned long cudnnGetVersion(void);
unsigned long cudnnGetVersion(void) {
  return 91900;
}

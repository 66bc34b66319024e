/* A library with one function, named by the build. */
int NAME(void);
int NAME(void) {
  return 1;
}

/* Stands in for two libraries of a vendor while missing_library is linked; at run time no file has their
   names. Compiled once for each. */
#if defined(ACME_runtime)
int acme_runtime_version(void);
int acme_runtime_version(void) {
  return 1;
}
#else
int acme_blas_version(void);
int acme_blas_version(void) {
  return 1;
}
#endif

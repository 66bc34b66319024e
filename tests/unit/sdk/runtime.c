/* A vendor's runtime with one function. */
int acme_init(void) {
  return 7;
}

/* What glibc 2.28 has not, or has under another version, for files that were compiled against a newer one
 * (packaging/cmake/RlkPortable.cmake). Only what is called stays in a file: the rest is collected by the linker. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#define HIDDEN __attribute__((visibility("hidden"), used))

/* A function that newer glibcs offer under a newer version, or from another library: a jump to the version that 2.28
 * has and that every later glibc keeps. */
#define OLDER(name, version)                    \
  __asm__(".pushsection .text.rlk_older_" #name \
          ",\"ax\",@progbits\n"                 \
          ".globl " #name "\n.hidden " #name    \
          "\n"                                  \
          ".type " #name ",@function\n" #name   \
          ":\n"                                 \
          "  jmp *rlk_older_" #name             \
          "@GOTPCREL(%rip)\n"                   \
          ".size " #name ", .-" #name           \
          "\n"                                  \
          ".symver rlk_older_" #name ", " #name "@" version "\n.popsection")

/* libm: 2.29 only stopped setting errno by wrappers. */
OLDER(exp, "GLIBC_2.2.5");
OLDER(exp2, "GLIBC_2.2.5");
OLDER(log, "GLIBC_2.2.5");
OLDER(log2, "GLIBC_2.2.5");
OLDER(pow, "GLIBC_2.2.5");
/* libdl and libpthread: part of libc since 2.34. */
OLDER(dladdr, "GLIBC_2.2.5");
OLDER(dladdr1, "GLIBC_2.3.3");
OLDER(dlclose, "GLIBC_2.2.5");
OLDER(dlerror, "GLIBC_2.2.5");
OLDER(dlopen, "GLIBC_2.2.5");
OLDER(dlsym, "GLIBC_2.2.5");
OLDER(pthread_attr_getstack, "GLIBC_2.2.5");
OLDER(pthread_cancel, "GLIBC_2.2.5");
OLDER(pthread_create, "GLIBC_2.2.5");
OLDER(pthread_detach, "GLIBC_2.2.5");
OLDER(pthread_getattr_np, "GLIBC_2.2.5");
OLDER(pthread_getspecific, "GLIBC_2.2.5");
OLDER(pthread_join, "GLIBC_2.2.5");
OLDER(pthread_key_create, "GLIBC_2.2.5");
OLDER(pthread_key_delete, "GLIBC_2.2.5");
OLDER(pthread_mutex_trylock, "GLIBC_2.2.5");
OLDER(pthread_once, "GLIBC_2.2.5");
OLDER(pthread_rwlock_rdlock, "GLIBC_2.2.5");
OLDER(pthread_rwlock_unlock, "GLIBC_2.2.5");
OLDER(pthread_rwlock_wrlock, "GLIBC_2.2.5");
OLDER(pthread_setspecific, "GLIBC_2.2.5");

/* Since 2.32. libstdc++ spares atomic instructions where it is true: never, here. */
HIDDEN char __libc_single_threaded = 0;

/* Functions since 2.33; before, macros over these. 1 is the struct that x86-64 always had. */
extern int __xstat(int version, const char* path, struct stat* out);
extern int __lxstat(int version, const char* path, struct stat* out);
extern int __fxstat(int version, int file, struct stat* out);
HIDDEN int stat(const char* path, struct stat* out) {
  return __xstat(1, path, out);
}
HIDDEN int lstat(const char* path, struct stat* out) {
  return __lxstat(1, path, out);
}
HIDDEN int fstat(int file, struct stat* out) {
  return __fxstat(1, file, out);
}

/* Since 2.30: waits by a clock that the condition was not made for. Without it the time is converted to the condition's
 * own clock, as libstdc++ does where it knows no such function; the waiting thread looks at the time again. */
HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* until) {
  typedef int (*Function)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  static Function known;
  static int looked;
  Function function = __atomic_load_n(&known, __ATOMIC_ACQUIRE);
  if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {
    *(void**)(&function) = dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
    __atomic_store_n(&known, function, __ATOMIC_RELEASE);
    __atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
  }
  if (function != NULL) return function(condition, mutex, clock, until);
  struct timespec here, there;
  clock_gettime(CLOCK_REALTIME, &here);
  clock_gettime(clock, &there);
  struct timespec converted = {until->tv_sec - there.tv_sec + here.tv_sec,
                               until->tv_nsec - there.tv_nsec + here.tv_nsec};
  const long second = 1000000000;
  for (; converted.tv_nsec >= second; converted.tv_nsec -= second) ++converted.tv_sec;
  for (; converted.tv_nsec < 0; converted.tv_nsec += second) --converted.tv_sec;
  return pthread_cond_timedwait(condition, mutex, &converted);
}

/* libstdc++'s own, which it does not show: what its std::exception_ptr asks for when an exception may not be caught. */
HIDDEN _Noreturn void _ZN10__cxxabiv111__terminateEPFvvE(void (*handler)(void)) {
  handler();
  abort();
}

/* A program's start. Before 2.34 the program itself brought the function that runs its constructors; later glibcs run
 * it where there is one. */
typedef int (*Main)(int, char**, char**);
typedef void (*Constructor)(int, char**, char**);
extern int rlk_older_start(Main, int, char**, Constructor, void (*)(void), void (*)(void), void*);
__asm__(".symver rlk_older_start, __libc_start_main@GLIBC_2.2.5");
extern Constructor __preinit_array_start[] __attribute__((weak, visibility("hidden")));
extern Constructor __preinit_array_end[] __attribute__((weak, visibility("hidden")));
extern Constructor __init_array_start[] __attribute__((weak, visibility("hidden")));
extern Constructor __init_array_end[] __attribute__((weak, visibility("hidden")));

static void construct(int count, char** words, char** environment) {
  for (Constructor* f = __preinit_array_start; f != __preinit_array_end; ++f) (*f)(count, words, environment);
  for (Constructor* f = __init_array_start; f != __init_array_end; ++f) (*f)(count, words, environment);
}

HIDDEN int __libc_start_main(Main program, int count, char** words, Constructor init, void (*fini)(void),
                             void (*linker_fini)(void), void* stack_end) {
  return rlk_older_start(program, count, words, init != NULL ? init : construct, fini, linker_fini, stack_end);
}

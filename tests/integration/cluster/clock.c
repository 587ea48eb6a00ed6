/* A wall clock that a test moves: adds the milliseconds that stand in the file HULSE_TEST_CLOCK, eight bytes in the order of the machine,
 * to what the process is told of the time of day. Time that passes is told as it is. Preloaded by clocks.rs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *moved_ms;

__attribute__((constructor)) static void find_it(void) {
  const char *path = getenv("HULSE_TEST_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *there = mmap(NULL, sizeof *moved_ms, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (there != MAP_FAILED) moved_ms = there;
}

int clock_gettime(clockid_t clock, struct timespec *told) {
  long failed = syscall(SYS_clock_gettime, clock, told);
  if (!failed && moved_ms && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    int64_t ns = told->tv_nsec + *moved_ms % 1000 * 1000000;
    told->tv_sec += *moved_ms / 1000 + (ns >= 1000000000) - (ns < 0);
    told->tv_nsec = (ns + 1000000000) % 1000000000;
  }
  return (int)failed;
}

int gettimeofday(struct timeval *restrict told, void *restrict zone) {
  struct timespec now;
  (void)zone;
  int failed = clock_gettime(CLOCK_REALTIME, &now);
  if (!failed) *told = (struct timeval){now.tv_sec, now.tv_nsec / 1000};
  return failed;
}

time_t time(time_t *told) {
  struct timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now)) return -1;
  if (told) *told = now.tv_sec;
  return now.tv_sec;
}

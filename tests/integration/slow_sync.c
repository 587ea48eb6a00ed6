/* A disk whose syncs take long: loaded before a process, waits HULSE_TEST_SYNC_MS milliseconds in each fsync and fdatasync, then does it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void wait_for_the_disk(void)
{
    const char *text = getenv("HULSE_TEST_SYNC_MS");
    long ms = text ? atol(text) : 0;
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

int fsync(int fd)
{
    wait_for_the_disk();
    return (int)syscall(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    wait_for_the_disk();
    return (int)syscall(SYS_fdatasync, fd);
}

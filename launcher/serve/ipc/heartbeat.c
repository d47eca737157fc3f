/* Shared memory for the heartbeats of a job's ranks, and its transfer to them. */
#include "launcher/serve/ipc/heartbeat.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

/* Control data for one descriptor, aligned as the kernel requires. */
typedef union descriptor_space {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
} descriptor_space;

static trm_status map(heartbeats *b)
{
    void *memory = mmap(NULL, (size_t)b->n * sizeof(heartbeat), PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
    if (memory == MAP_FAILED) {
        TRM_FAIL(TRM_ERROR_IO, "cannot map the heartbeats of %d ranks: %s", b->n, strerror(errno));
    }
    b->ranks = memory;
    return TRM_OK;
}

trm_status heartbeats_create(heartbeats *b, int32_t n)
{
    *b = (heartbeats){.fd = memfd_create("trireme-beats", MFD_CLOEXEC | MFD_ALLOW_SEALING), .n = n};
    /* Sealed, so that no rank can truncate it under this process. */
    if (b->fd < 0 || ftruncate(b->fd, (off_t)((size_t)n * sizeof(heartbeat))) != 0 ||
        fcntl(b->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        int cause = errno;
        heartbeats_close(b);
        TRM_FAIL(TRM_ERROR_IO, "cannot create shared memory for the heartbeats of %d ranks: %s", n, strerror(cause));
    }
    trm_status status = map(b);
    if (status != TRM_OK) {
        heartbeats_close(b);
    }
    return status;
}

trm_status heartbeats_open(heartbeats *b, int fd, int32_t n)
{
    struct stat about;
    *b = (heartbeats){.fd = fd, .n = n};
    trm_status status = TRM_OK;
    if (fstat(fd, &about) != 0 || about.st_size != (off_t)((size_t)n * sizeof(heartbeat))) {
        status = trm_fail(TRM_ERROR_IO, "the heartbeat memory of the front end is not for %d ranks", n);
    }
    status = status == TRM_OK ? map(b) : status;
    if (status != TRM_OK) {
        heartbeats_close(b);
    }
    return status;
}

void heartbeats_close(heartbeats *b)
{
    if (b->ranks != NULL) {
        munmap(b->ranks, (size_t)b->n * sizeof(heartbeat));
    }
    if (b->fd >= 0) {
        close(b->fd);
    }
    *b = HEARTBEATS_NONE;
}

static double seconds_of(atomic_ullong *nanoseconds)
{
    return (double)atomic_load(nanoseconds) * 1e-9;
}

heartbeat_times heartbeat_get_times(heartbeat *rank)
{
    return (heartbeat_times){.step = seconds_of(&rank->step),
                             .device = seconds_of(&rank->device),
                             .last_step = seconds_of(&rank->last_step),
                             .layer = seconds_of(&rank->layer),
                             .collective = seconds_of(&rank->collective),
                             .last_collective = seconds_of(&rank->last_collective)};
}

trm_status heartbeats_send(const heartbeats *b, int socket)
{
    char byte = 0;
    struct iovec content = {&byte, 1};
    descriptor_space space = {0};
    struct msghdr message = {
        .msg_iov = &content, .msg_iovlen = 1, .msg_control = space.bytes, .msg_controllen = sizeof(space.bytes)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &b->fd, sizeof(int));
    if (sendmsg(socket, &message, MSG_NOSIGNAL) != 1) {
        TRM_FAIL(TRM_ERROR_IO, "cannot send the heartbeat memory to a rank: %s", strerror(errno));
    }
    return TRM_OK;
}

/* signals may interrupt the wait */
static trm_status wait_for_input(int socket, double seconds)
{
    const double end = trm_clock_seconds() + seconds;
    struct pollfd entry = {.fd = socket, .events = POLLIN};
    int n;
    do {
        const double left = end - trm_clock_seconds();
        n = poll(&entry, 1, left > 0 ? (int)ceil(left * 1e3) : 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot wait for the heartbeat memory: %s", strerror(errno));
    }
    if (n == 0) {
        TRM_FAIL(TRM_ERROR_IO, "the front end has not sent the heartbeat memory within %g s", seconds);
    }
    return TRM_OK;
}

trm_status heartbeats_receive(heartbeats *b, int socket, int32_t n, double seconds)
{
    char byte;
    struct iovec content = {&byte, 1};
    descriptor_space space;
    struct msghdr message = {
        .msg_iov = &content, .msg_iovlen = 1, .msg_control = space.bytes, .msg_controllen = sizeof(space.bytes)};
    TRM_TRY(wait_for_input(socket, seconds));
    ssize_t got;
    do {
        got = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    const struct cmsghdr *header = got == 1 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header == NULL || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int))) {
        TRM_FAIL(TRM_ERROR_IO, "the front end has sent a message without heartbeat memory");
    }
    int fd;
    memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return heartbeats_open(b, fd, n);
}

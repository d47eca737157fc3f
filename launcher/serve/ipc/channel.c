/* Frames over a socket. */
#include "launcher/serve/ipc/channel.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"

#define RECEIVE_SIZE ((size_t)64 << 10)
#define MAX_UNSENT   ((size_t)512 << 20) /* a peer that stops reading has failed long before */

trm_status channel_address(const char *name, struct sockaddr_un *address, socklen_t *size)
{
    const size_t length = strlen(name);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (length >= sizeof(address->sun_path)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "socket name %s is longer than %zu bytes", name,
                 sizeof(address->sun_path) - 1);
    }
    memcpy(address->sun_path + 1, name, length); /* behind a NUL, which makes it abstract */
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    return TRM_OK;
}

void channel_init(channel *c, int fd)
{
    *c = (channel){.fd = fd};
}

void channel_fini(channel *c)
{
    if (c->fd >= 0) {
        close(c->fd);
    }
    trm_bytes_fini(&c->in);
    trm_bytes_fini(&c->out);
    trm_bytes_fini(&c->aligned);
    *c = (channel){.fd = -1};
}

/* Moves the unread bytes to the front. */
static void compact(trm_bytes *bytes, size_t *used)
{
    if (*used > 0 && (*used == bytes->size || *used > bytes->size / 2)) {
        memmove(bytes->data, bytes->data + *used, bytes->size - *used);
        bytes->size -= *used;
        *used = 0;
    }
}

trm_status channel_receive(channel *c, bool *closed)
{
    *closed = false;
    compact(&c->in, &c->in_taken);
    for (;;) {
        TRM_TRY(trm_bytes_reserve(&c->in, RECEIVE_SIZE));
        ssize_t got = recv(c->fd, c->in.data + c->in.size, RECEIVE_SIZE, MSG_DONTWAIT);
        if (got > 0) {
            c->in.size += (size_t)got;
            if ((size_t)got < RECEIVE_SIZE) {
                return TRM_OK;
            }
        } else if (got == 0 || errno == ECONNRESET) {
            *closed = true;
            return TRM_OK;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return TRM_OK;
        } else if (errno != EINTR) {
            TRM_FAIL(TRM_ERROR_IO, "cannot receive from the peer: %s", strerror(errno));
        }
    }
}

trm_status channel_next(channel *c, bool *found, ipc_frame *frame)
{
    if (c->in.data == NULL) {
        *found = false;
        return TRM_OK;
    }
    TRM_TRY(ipc_next(c->in.data + c->in_taken, c->in.size - c->in_taken, found, frame));
    if (*found) {
        c->in_taken += frame->whole;
        if ((uintptr_t)frame->payload % 8 != 0) {
            c->aligned.size = 0;
            TRM_TRY(trm_bytes_append(&c->aligned, frame->payload, frame->size));
            frame->payload = c->aligned.data;
        }
    }
    return TRM_OK;
}

trm_status channel_send(channel *c)
{
    while (c->out_sent < c->out.size) {
        ssize_t sent = send(c->fd, c->out.data + c->out_sent, c->out.size - c->out_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0) {
            c->out_sent += (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno != EINTR) {
            TRM_FAIL(TRM_ERROR_IO, "cannot send to the peer: %s", strerror(errno));
        }
    }
    compact(&c->out, &c->out_sent);
    if (c->out.size - c->out_sent > MAX_UNSENT) {
        TRM_FAIL(TRM_ERROR_IO, "the peer does not read, %zu bytes are unsent", c->out.size - c->out_sent);
    }
    return TRM_OK;
}

bool channel_has_output(const channel *c)
{
    return c->out_sent < c->out.size;
}

/*
 * A non-blocking socket that carries frames, with buffers for both directions. Used by one thread.
 */
#ifndef TRM_LAUNCHER_SERVE_IPC_CHANNEL_H
#define TRM_LAUNCHER_SERVE_IPC_CHANNEL_H

#include <sys/socket.h>
#include <sys/un.h>

#include "launcher/serve/ipc/ipc_frames.h"

typedef struct channel {
    int fd; /* -1: closed */
    trm_bytes in, out;
    size_t in_taken, out_sent;
    trm_bytes aligned; /* the current frame, if it had to be copied for alignment */
} channel;

/* Takes ownership of the descriptor. */
void channel_init(channel *c, int fd);
void channel_fini(channel *c);
/* Reads what has arrived. IO: the peer is gone (*closed), or the socket failed. */
trm_status channel_receive(channel *c, bool *closed);
/* The next complete frame, if there is one; valid until the next call of channel_next or channel_receive. */
trm_status channel_next(channel *c, bool *found, ipc_frame *frame);
/* Sends as much of `out` as the socket takes. */
trm_status channel_send(channel *c);
bool channel_has_output(const channel *c);

/* The address of a Unix socket by its name in Linux's abstract space: no file that somebody would have to remove.
 * INVALID_ARGUMENT: the name is too long. */
trm_status channel_address(const char *name, struct sockaddr_un *address, socklen_t *size);

#endif

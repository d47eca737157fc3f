/* The communicator of one rank: every exchange is a copy. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "collectives/communicator.h"

static trm_status self_exchange(trm_communicator *communicator, const trm_exchange *x, trm_stream *stream)
{
    (void)communicator;
    if (x->from == x->to) {
        return TRM_OK;
    }
    size_t size = x->count * trm_dtype_size(x->dtype);
    if (stream != NULL) {
        return trm_stream_copy(stream, x->to, x->from, size);
    }
    memmove(x->to, x->from, size);
    return TRM_OK;
}

static trm_status self_split(trm_communicator *communicator, int32_t colour, const int32_t *members, int32_t n_members,
                             trm_communicator **part)
{
    (void)colour;
    (void)members;
    *part = NULL;
    if (n_members == 0) {
        return TRM_OK;
    }
    TRM_TRY(trm_communicator_self_create(part));
    (*part)->world_ranks[0] = communicator->world_ranks[0];
    return TRM_OK;
}

static trm_status self_check(trm_communicator *communicator)
{
    (void)communicator;
    return TRM_OK;
}

static void self_abort(trm_communicator *communicator)
{
    (void)communicator;
}

static void self_destroy(trm_communicator *communicator)
{
    free(communicator);
}

static const trm_communicator_ops self_ops = {"self", self_exchange, self_split, self_check, self_abort, self_destroy};

trm_status trm_communicator_self_create(trm_communicator **communicator)
{
    trm_communicator *self = calloc(1, sizeof(*self));
    if (self == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a communicator");
    }
    self->ops = &self_ops;
    self->size = 1;
    *communicator = self;
    return TRM_OK;
}

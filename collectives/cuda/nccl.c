/*
 * The communicator over NCCL, which is loaded at run time: device memory, exchanges in stream order, capturable.
 *
 * NCCL's communicators are nonblocking here: every call that may wait for peers is polled until the deadline.
 * trm_communicator_check watches waits on the device, and abort ends them.
 */
#if __has_include(<nccl.h>)

#include <nccl.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "collectives/communicator.h"
#include "collectives/wait.h"
#include "kernels/cuda/cuda.h"

#define NCCL_FUNCTIONS(X)                                                                                              \
    X(ncclGetVersion)                                                                                                  \
    X(ncclGetUniqueId)                                                                                                 \
    X(ncclCommInitRankConfig)                                                                                          \
    X(ncclCommSplit)                                                                                                   \
    X(ncclCommFinalize)                                                                                                \
    X(ncclCommDestroy)                                                                                                 \
    X(ncclCommAbort)                                                                                                   \
    X(ncclCommGetAsyncError)                                                                                           \
    X(ncclGetErrorString)                                                                                              \
    X(ncclGetLastError)                                                                                                \
    X(ncclAllReduce)                                                                                                   \
    X(ncclAllGather)                                                                                                   \
    X(ncclBroadcast)                                                                                                   \
    X(ncclReduce)                                                                                                      \
    X(ncclReduceScatter)                                                                                               \
    X(ncclSend)                                                                                                        \
    X(ncclRecv)                                                                                                        \
    X(ncclGroupStart)                                                                                                  \
    X(ncclGroupEnd)

/* nccl.ncclSend, ... */
static struct {
#define DECLARE(name) __typeof__(&name) name;
    NCCL_FUNCTIONS(DECLARE)
#undef DECLARE
} nccl;

static struct {
    pthread_once_t once;
    trm_status status;
    void *handle;
    char why[1024];
} library = {.once = PTHREAD_ONCE_INIT};

static void load_library(void)
{
    static const char *const names[] = {"libnccl.so.2", "libnccl.so"};
    static const trm_library_symbol symbols[] = {
#define SYMBOL(name) {#name, &nccl.name, false},
        NCCL_FUNCTIONS(SYMBOL)
#undef SYMBOL
    };
    library.status =
        trm_library_open(names, 2, symbols, (int32_t)(sizeof(symbols) / sizeof(symbols[0])), &library.handle);
    if (library.status != TRM_OK) {
        snprintf(library.why, sizeof(library.why), "%s", trm_last_error());
    }
}

static trm_status use_library(void)
{
    pthread_once(&library.once, load_library);
    return library.status == TRM_OK ? TRM_OK : trm_fail(library.status, "%s", library.why);
}

int32_t trm_nccl_version(char *path, size_t size)
{
    int version = 0;
    if (use_library() != TRM_OK) {
        snprintf(path, size, "%s", library.why);
        return 0;
    }
    trm_library_path(library.handle, path, size);
    return nccl.ncclGetVersion(&version) == ncclSuccess ? (int32_t)version : 0;
}

typedef struct nccl_communicator {
    trm_communicator base;
    int ordinal;     /* CUDA device */
    ncclComm_t comm; /* NULL once aborted */
} nccl_communicator;

static trm_status nccl_failed(ncclResult_t result, const char *call, ncclComm_t comm)
{
    trm_status status = result == ncclRemoteError                                     ? TRM_ERROR_LOST_RANK
                        : result == ncclInvalidArgument || result == ncclInvalidUsage ? TRM_ERROR_INVALID_ARGUMENT
                                                                                      : TRM_ERROR_INTERNAL;
    const char *detail = nccl.ncclGetLastError(comm);
    bool more = detail != NULL && detail[0] != '\0';
    return trm_fail(status, "%s failed: %s%s%s", call, nccl.ncclGetErrorString(result), more ? ": " : "",
                    more ? detail : "");
}

#define NCCL_TRY(call, name, comm)                                                                                     \
    do {                                                                                                               \
        ncclResult_t nccl_try_result_ = (call);                                                                        \
        if (nccl_try_result_ != ncclSuccess && nccl_try_result_ != ncclInProgress) {                                   \
            return nccl_failed(nccl_try_result_, name, comm);                                                          \
        }                                                                                                              \
    } while (0)

trm_status trm_nccl_make_id(unsigned char id[TRM_NCCL_ID_SIZE])
{
    ncclUniqueId made;
    TRM_TRY(use_library());
    NCCL_TRY(nccl.ncclGetUniqueId(&made), "ncclGetUniqueId", NULL);
    memcpy(id, made.internal, TRM_NCCL_ID_SIZE);
    return TRM_OK;
}

static void abandon(nccl_communicator *c)
{
    if (c->comm != NULL) {
        (void)nccl.ncclCommAbort(c->comm);
        c->comm = NULL;
    }
}

/* Waits for the host's part of a call on `c`, not for the work on the device. */
static trm_status await(nccl_communicator *c, const char *what)
{
    double start = trm_wait_now();
    for (;;) {
        ncclResult_t state = ncclSuccess;
        NCCL_TRY(nccl.ncclCommGetAsyncError(c->comm, &state), "ncclCommGetAsyncError", c->comm);
        if (state == ncclSuccess) {
            return TRM_OK;
        }
        if (state != ncclInProgress) {
            trm_status status = nccl_failed(state, what, c->comm);
            abandon(c);
            return status;
        }
        trm_status status = c->base.watch != NULL ? c->base.watch(c->base.watch_user) : TRM_OK;
        double waited = trm_wait_now() - start;
        if (status == TRM_OK && waited > c->base.deadline_seconds) {
            status = trm_fail(TRM_ERROR_LOST_RANK, "%s: not all of %d ranks joined within %g s", what,
                              (int)c->base.size, c->base.deadline_seconds);
        }
        if (status != TRM_OK) {
            abandon(c);
            return status;
        }
        trm_wait_pause(waited, TRM_WAIT_YIELDS);
    }
}

/* NCCL's type, and elements of it per element of ours. Types it does not know move as bytes. */
static trm_status map_type(const trm_exchange *x, ncclDataType_t *type, size_t *scale)
{
    static const struct {
        bool known;
        ncclDataType_t type;
    } types[TRM_DTYPE_COUNT] = {
        [TRM_F32] = {true, ncclFloat32}, [TRM_F16] = {true, ncclFloat16}, [TRM_BF16] = {true, ncclBfloat16},
        [TRM_F64] = {true, ncclFloat64}, [TRM_I8] = {true, ncclInt8},     [TRM_U8] = {true, ncclUint8},
        [TRM_I32] = {true, ncclInt32},   [TRM_U32] = {true, ncclUint32},  [TRM_I64] = {true, ncclInt64},
        [TRM_U64] = {true, ncclUint64},  [TRM_BOOL] = {true, ncclUint8},
    };
    *type = types[x->dtype].known ? types[x->dtype].type : ncclUint8;
    *scale = types[x->dtype].known ? 1 : trm_dtype_size(x->dtype);
    if (!types[x->dtype].known && trm_collective_reduces(x->op)) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "NCCL does not reduce %s", trm_dtype_name(x->dtype));
    }
    return TRM_OK;
}

static ncclRedOp_t map_reduce(trm_reduce_op op)
{
    static const ncclRedOp_t ops[] = {
        [TRM_REDUCE_SUM] = ncclSum, [TRM_REDUCE_PROD] = ncclProd, [TRM_REDUCE_MAX] = ncclMax,
        [TRM_REDUCE_MIN] = ncclMin, [TRM_REDUCE_AVG] = ncclAvg,
    };
    return ops[op];
}

/* The messages of GATHER, SCATTER and ALL_TO_ALL; a rank's own block is copied. */
static ncclResult_t send_blocks(nccl_communicator *c, const trm_exchange *x, ncclDataType_t type, size_t count,
                                size_t block, cudaStream_t stream)
{
    const char *from = x->from;
    char *to = x->to;
    ncclResult_t result = ncclSuccess;
    for (int32_t peer = 0; peer < c->base.size && (result == ncclSuccess || result == ncclInProgress); peer++) {
        if (peer == c->base.rank) {
            continue;
        }
        bool sends = x->op == TRM_ALL_TO_ALL || (x->op == TRM_GATHER ? peer : c->base.rank) == x->root;
        bool receives = x->op == TRM_ALL_TO_ALL || (x->op == TRM_GATHER ? c->base.rank : peer) == x->root;
        if (sends) {
            const char *at = x->op == TRM_GATHER ? from : from + (size_t)peer * block;
            result = nccl.ncclSend(at, count, type, peer, c->comm, stream);
        }
        if (receives && (result == ncclSuccess || result == ncclInProgress)) {
            char *at = x->op == TRM_SCATTER ? to : to + (size_t)peer * block;
            result = nccl.ncclRecv(at, count, type, peer, c->comm, stream);
        }
    }
    return result;
}

static trm_status exchange_blocks(nccl_communicator *c, const trm_exchange *x, ncclDataType_t type, size_t count,
                                  trm_stream *stream)
{
    size_t block = x->count * trm_dtype_size(x->dtype), own = (size_t)c->base.rank * block;
    if (x->op == TRM_ALL_TO_ALL && x->from == x->to) {
        TRM_FAIL(TRM_ERROR_UNSUPPORTED, "NCCL cannot exchange in place");
    }
    const char *from = (const char *)x->from + (x->op == TRM_GATHER ? 0 : own);
    char *to = (char *)x->to + (x->op == TRM_SCATTER ? 0 : own);
    if ((x->op == TRM_ALL_TO_ALL || c->base.rank == x->root) && from != to) {
        TRM_TRY(trm_stream_copy(stream, to, from, block));
    }
    NCCL_TRY(nccl.ncclGroupStart(), "ncclGroupStart", c->comm);
    ncclResult_t result = send_blocks(c, x, type, count, block, trm_cuda_stream(stream));
    ncclResult_t ended = nccl.ncclGroupEnd(); /* in any case: the group belongs to the thread */
    NCCL_TRY(result, "ncclSend or ncclRecv", c->comm);
    NCCL_TRY(ended, "ncclGroupEnd", c->comm);
    return TRM_OK;
}

static trm_status call_nccl(nccl_communicator *c, const trm_exchange *x, trm_stream *stream)
{
    ncclDataType_t type;
    size_t scale;
    TRM_TRY(map_type(x, &type, &scale));
    size_t count = x->count * scale;
    cudaStream_t handle = trm_cuda_stream(stream);
    switch (x->op) {
    case TRM_ALL_REDUCE:
        NCCL_TRY(nccl.ncclAllReduce(x->from, x->to, count, type, map_reduce(x->reduce), c->comm, handle),
                 "ncclAllReduce", c->comm);
        break;
    case TRM_ALL_GATHER:
        NCCL_TRY(nccl.ncclAllGather(x->from, x->to, count, type, c->comm, handle), "ncclAllGather", c->comm);
        break;
    case TRM_BROADCAST:
        NCCL_TRY(nccl.ncclBroadcast(x->from, x->to, count, type, x->root, c->comm, handle), "ncclBroadcast", c->comm);
        break;
    case TRM_REDUCE:
        NCCL_TRY(nccl.ncclReduce(x->from, x->to, count, type, map_reduce(x->reduce), x->root, c->comm, handle),
                 "ncclReduce", c->comm);
        break;
    case TRM_REDUCE_SCATTER:
        NCCL_TRY(nccl.ncclReduceScatter(x->from, x->to, count, type, map_reduce(x->reduce), c->comm, handle),
                 "ncclReduceScatter", c->comm);
        break;
    case TRM_SEND:
        NCCL_TRY(nccl.ncclSend(x->from, count, type, x->root, c->comm, handle), "ncclSend", c->comm);
        break;
    case TRM_RECV:
        NCCL_TRY(nccl.ncclRecv(x->to, count, type, x->root, c->comm, handle), "ncclRecv", c->comm);
        break;
    default:
        return exchange_blocks(c, x, type, count, stream);
    }
    return TRM_OK;
}

static trm_status fail_aborted(void)
{
    return trm_fail(TRM_ERROR_LOST_RANK, "the NCCL communicator cannot be used after a failure");
}

static trm_status nccl_exchange(trm_communicator *communicator, const trm_exchange *x, trm_stream *stream)
{
    nccl_communicator *c = (nccl_communicator *)communicator;
    if (c->comm == NULL) {
        return fail_aborted();
    }
    if (stream == NULL || trm_device_backend(trm_stream_device(stream)) != TRM_BACKEND_CUDA) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the nccl communicator moves device memory, on a cuda stream");
    }
    TRM_CUDA_TRY(cudaSetDevice(c->ordinal));
    TRM_TRY(call_nccl(c, x, stream));
    return await(c, "NCCL");
}

static const trm_communicator_ops nccl_ops;

static nccl_communicator *new_communicator(int ordinal, int32_t size, double deadline_seconds)
{
    nccl_communicator *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a communicator");
        return NULL;
    }
    c->base.ops = &nccl_ops;
    c->base.size = size;
    c->base.deadline_seconds = deadline_seconds;
    c->ordinal = ordinal;
    return c;
}

static trm_status nccl_split(trm_communicator *communicator, int32_t colour, const int32_t *members, int32_t n_members,
                             trm_communicator **part)
{
    nccl_communicator *parent = (nccl_communicator *)communicator;
    if (parent->comm == NULL) {
        return fail_aborted();
    }
    nccl_communicator *c = new_communicator(parent->ordinal, n_members, communicator->deadline_seconds);
    if (c == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    c->base.watch = communicator->watch;
    c->base.watch_user = communicator->watch_user;
    for (int32_t i = 0; i < n_members; i++) {
        c->base.world_ranks[i] = communicator->world_ranks[members[i]];
        c->base.rank = members[i] == communicator->rank ? i : c->base.rank;
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t result = nccl.ncclCommSplit(parent->comm, n_members > 0 ? (int)colour : NCCL_SPLIT_NOCOLOR,
                                             (int)c->base.rank, &c->comm, &config);
    trm_status status = result == ncclSuccess || result == ncclInProgress
                            ? await(parent, "ncclCommSplit")
                            : nccl_failed(result, "ncclCommSplit", parent->comm);
    if (status == TRM_OK && c->comm != NULL) {
        status = await(c, "ncclCommSplit");
    }
    if (status != TRM_OK || n_members == 0) {
        abandon(c);
        free(c);
        *part = NULL;
        return status;
    }
    *part = &c->base;
    return TRM_OK;
}

static trm_status nccl_check(trm_communicator *communicator)
{
    nccl_communicator *c = (nccl_communicator *)communicator;
    if (c->comm == NULL) {
        return fail_aborted();
    }
    ncclResult_t state = ncclSuccess;
    NCCL_TRY(nccl.ncclCommGetAsyncError(c->comm, &state), "ncclCommGetAsyncError", c->comm);
    if (state != ncclSuccess && state != ncclInProgress) {
        return nccl_failed(state, "NCCL", c->comm);
    }
    return TRM_OK;
}

static void nccl_abort(trm_communicator *communicator)
{
    abandon((nccl_communicator *)communicator);
}

static void nccl_destroy(trm_communicator *communicator)
{
    nccl_communicator *c = (nccl_communicator *)communicator;
    if (c->comm != NULL) {
        (void)cudaSetDevice(c->ordinal);
        ncclResult_t result = nccl.ncclCommFinalize(c->comm);
        bool flushed = (result == ncclSuccess || result == ncclInProgress) && await(c, "ncclCommFinalize") == TRM_OK;
        if (flushed) {
            (void)nccl.ncclCommDestroy(c->comm);
        } else {
            abandon(c);
        }
    }
    free(c);
}

static const trm_communicator_ops nccl_ops = {"nccl", nccl_exchange, nccl_split, nccl_check, nccl_abort, nccl_destroy};

trm_status trm_communicator_nccl_create(trm_device *device, const unsigned char id[TRM_NCCL_ID_SIZE], int32_t rank,
                                        int32_t size, double deadline_seconds, trm_communicator **communicator)
{
    trm_device_info info;
    TRM_TRY(use_library());
    TRM_TRY(trm_device_get_info(device, &info));
    if (info.backend != TRM_BACKEND_CUDA || size < 1 || size > TRM_MAX_RANKS || rank < 0 || rank >= size) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "NCCL rank %d of %d on the %s backend, expected up to %d ranks on cuda",
                 (int)rank, (int)size, trm_backend_name(info.backend), TRM_MAX_RANKS);
    }
    TRM_CUDA_TRY(cudaSetDevice(info.ordinal));
    nccl_communicator *c = new_communicator(info.ordinal, size, deadline_seconds);
    if (c == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    c->base.rank = rank;
    for (int32_t r = 0; r < size; r++) {
        c->base.world_ranks[r] = r;
    }
    ncclUniqueId unique;
    memcpy(unique.internal, id, TRM_NCCL_ID_SIZE);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t result = nccl.ncclCommInitRankConfig(&c->comm, size, unique, rank, &config);
    trm_status status = result == ncclSuccess || result == ncclInProgress
                            ? await(c, "ncclCommInitRankConfig")
                            : nccl_failed(result, "ncclCommInitRankConfig", NULL);
    if (status != TRM_OK) {
        abandon(c);
        free(c);
        return status;
    }
    *communicator = &c->base;
    return TRM_OK;
}

#endif

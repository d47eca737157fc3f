/*
 * The communicator over peer memory: sums vectors and gathers small ones itself, and uses another communicator, which
 * it owns, for everything else. For ranks of one host whose GPUs have peer access. The kernels and their protocol:
 * collectives/peer.h.
 *
 * Mailboxes are shared by CUDA's IPC handles. The ranks exchange these and their capabilities in host memory, so that
 * all decide the same.
 */
#include "collectives/peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/choice.h"
#include "collectives/communicator.h"
#include "collectives/peer_lane.h"
#include "kernels/cuda/cuda.h"

/* Time within which a test finds ways that do not work. */
#define PROBE_SECONDS 5.0

typedef struct peer_communicator {
    trm_communicator base;
    trm_communicator *inner; /* owned */
    trm_communicator *host;  /* between the same ranks in the same order; owned by parts */
    bool owns_host;
    trm_device *device;
    trm_peer_link link;
    bool opened[TRM_PEER_RANKS]; /* mailboxes mapped from peers */
    bool stopped;
    trm_peer_lane *lanes; /* all that were made, one before the other */
    trm_peer_joint joint;
    trm_choice choices[TRM_CHOICE_OPS];
} peer_communicator;

/* What a rank sends about itself. */
typedef struct peer_card {
    char host[40]; /* of this start of its kernel, so that no two hosts have the same */
    cudaIpcMemHandle_t mailbox;
    char pci_bus_id[32];
    trm_peer_joint joint; /* to the peers */
    char why_not[128];    /* empty: it can */
} peer_card;

static void read_host(char *host, size_t size)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file == NULL || fgets(host, (int)size, file) == NULL) {
        host[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
}

static void refuse(peer_card *card, const char *what)
{
    if (card->why_not[0] == '\0') {
        snprintf(card->why_not, sizeof(card->why_not), "%s", what);
    }
}

static trm_status gather_cards(peer_communicator *c, const peer_card *mine, peer_card *all)
{
    trm_exchange x = {TRM_ALL_GATHER, TRM_REDUCE_NONE, TRM_U8, mine, all, sizeof(*mine), 0};
    return trm_communicator_exchange(c->host, &x, NULL);
}

/* The first reason of any rank, or NULL. */
static const char *find_reason(const peer_card *cards, int32_t n)
{
    for (int32_t r = 0; r < n; r++) {
        if (cards[r].why_not[0] != '\0') {
            return cards[r].why_not;
        }
    }
    return NULL;
}

static trm_status allocate(peer_communicator *c, cudaIpcMemHandle_t *handle)
{
    size_t bytes = trm_peer_mailbox_bytes(c->base.size);
    void *memory;
    TRM_TRY(trm_device_alloc(c->device, bytes, &c->link.mailboxes[c->base.rank]));
    TRM_CUDA_TRY(cudaMemset(c->link.mailboxes[c->base.rank], 0, bytes));
    TRM_TRY(trm_device_alloc(c->device, sizeof(trm_peer_state), &memory));
    c->link.state = memory;
    TRM_CUDA_TRY(cudaMemset(c->link.state, 0, sizeof(trm_peer_state)));
    TRM_TRY(trm_device_alloc_host(c->device, sizeof(trm_peer_report), &memory));
    c->link.report = memory;
    *c->link.report = (trm_peer_report){0, 0};
    TRM_CUDA_TRY(cudaIpcGetMemHandle(handle, c->link.mailboxes[c->base.rank]));
    TRM_CUDA_TRY(cudaDeviceSynchronize()); /* zeros, before a peer may write */
    return TRM_OK;
}

/* GPUs with native peer atomics are connected by NVLink; a GPU that this process does not see is unknown. */
static trm_peer_joint find_joint(const char *mine, const char *theirs)
{
    int first, second, has_atomics;
    if (cudaDeviceGetByPCIBusId(&first, mine) != cudaSuccess ||
        cudaDeviceGetByPCIBusId(&second, theirs) != cudaSuccess ||
        cudaDeviceGetP2PAttribute(&has_atomics, cudaDevP2PAttrNativeAtomicSupported, first, second) != cudaSuccess) {
        (void)cudaGetLastError();
        return TRM_JOINT_UNKNOWN;
    }
    return has_atomics ? TRM_JOINT_NVLINK : TRM_JOINT_PCIE;
}

static void open_mailboxes(peer_communicator *c, const peer_card *cards, peer_card *mine)
{
    mine->joint = TRM_JOINT_NVLINK;
    for (int32_t r = 0; r < c->base.size && mine->why_not[0] == '\0'; r++) {
        if (r == c->base.rank) {
            continue;
        }
        if (cards[r].host[0] == '\0' || strcmp(cards[r].host, mine->host) != 0) {
            refuse(mine, "the ranks are on several hosts");
            return;
        }
        cudaError_t error =
            cudaIpcOpenMemHandle(&c->link.mailboxes[r], cards[r].mailbox, cudaIpcMemLazyEnablePeerAccess);
        if (error != cudaSuccess) {
            (void)cudaGetLastError();
            snprintf(mine->why_not, sizeof(mine->why_not), "rank %d cannot map the memory of rank %d: %s",
                     (int)c->base.world_ranks[c->base.rank], (int)c->base.world_ranks[r], cudaGetErrorString(error));
            c->link.mailboxes[r] = NULL;
            return;
        }
        c->opened[r] = true;
        trm_peer_joint joint = find_joint(mine->pci_bus_id, cards[r].pci_bus_id);
        mine->joint = joint < mine->joint ? joint : mine->joint;
    }
}

/* One all-reduce, to test the mapped memory. */
static trm_status probe(peer_communicator *c, trm_stream *stream, float *data, bool *correct)
{
    enum { COUNT = 1024 };
    float host[COUNT], sum = 0;
    for (int i = 0; i < COUNT; i++) {
        host[i] = (float)(i + c->base.rank);
    }
    trm_peer_link link = c->link;
    link.deadline_nanoseconds = (uint64_t)(PROBE_SECONDS * 1e9);
    TRM_TRY(trm_stream_upload(stream, data, host, sizeof(host)));
    TRM_TRY(
        trm_cuda_peer_all_reduce(&link, TRM_PEER_ONE_SHOT, TRM_F32, data, data, COUNT, 0, trm_stream_native(stream)));
    TRM_TRY(trm_stream_download(stream, host, data, sizeof(host)));
    TRM_TRY(trm_stream_synchronize(stream)); /* the kernel ends by itself */
    *correct = c->link.report->lost == 0;
    for (int r = 0; r < c->base.size; r++) {
        sum += (float)r;
    }
    for (int i = 0; i < COUNT; i++) {
        *correct = *correct && host[i] == sum + (float)(i * c->base.size);
    }
    return TRM_OK;
}

static void probe_mailboxes(peer_communicator *c, peer_card *mine)
{
    trm_stream *stream = NULL;
    void *data = NULL;
    bool correct = false;
    trm_status status = trm_stream_create(c->device, &stream);
    if (status == TRM_OK) {
        status = trm_device_alloc(c->device, 4096, &data);
    }
    if (status == TRM_OK) {
        status = probe(c, stream, data, &correct);
    }
    trm_device_free(c->device, data);
    trm_stream_destroy(stream);
    if (status != TRM_OK) {
        refuse(mine, trm_last_error());
    } else if (!correct) {
        refuse(mine, "the first exchange over peer memory failed or gave a wrong result");
    }
}

/* Frees everything; with `together`, first waits until no rank maps another's mailbox. */
static void close_mailboxes(peer_communicator *c, bool together)
{
    for (int32_t r = 0; r < c->base.size && r < TRM_PEER_RANKS; r++) {
        if (c->opened[r]) {
            (void)cudaIpcCloseMemHandle(c->link.mailboxes[r]);
            (void)cudaGetLastError();
            c->opened[r] = false;
        }
    }
    if (together) {
        unsigned char mine = 0, all[TRM_MAX_RANKS];
        trm_exchange x = {TRM_ALL_GATHER, TRM_REDUCE_NONE, TRM_U8, &mine, all, 1, 0};
        (void)trm_communicator_exchange(c->host, &x, NULL);
    }
    trm_device_free(c->device, c->link.mailboxes[c->base.rank]);
    trm_device_free(c->device, c->link.state);
    trm_device_free_host(c->device, c->link.report);
}

/* Collective. Which rank could not do what is in `why`; an error is one of the host's communicator. */
static trm_status open_mailboxes_together(peer_communicator *c, bool *opened, char *why, size_t why_size)
{
    peer_card mine = {.host = ""}, cards[TRM_PEER_RANKS];
    trm_device_info info;
    const char *reason;
    *opened = false;
    read_host(mine.host, sizeof(mine.host));
    if (trm_device_get_info(c->device, &info) != TRM_OK || allocate(c, &mine.mailbox) != TRM_OK) {
        refuse(&mine, trm_last_error());
    } else {
        snprintf(mine.pci_bus_id, sizeof(mine.pci_bus_id), "%s", info.pci_bus_id);
    }
    TRM_TRY(gather_cards(c, &mine, cards));
    if ((reason = find_reason(cards, c->base.size)) == NULL) {
        open_mailboxes(c, cards, &mine);
        TRM_TRY(gather_cards(c, &mine, cards));
        reason = find_reason(cards, c->base.size);
    }
    if (reason == NULL) {
        probe_mailboxes(c, &mine);
        TRM_TRY(gather_cards(c, &mine, cards));
        reason = find_reason(cards, c->base.size);
    }
    c->joint = TRM_JOINT_NVLINK;
    for (int32_t r = 0; r < c->base.size; r++) {
        c->joint = cards[r].joint < c->joint ? cards[r].joint : c->joint;
    }
    snprintf(why, why_size, "%s", reason != NULL ? reason : "");
    *opened = reason == NULL;
    return TRM_OK;
}

static uint32_t lost_rank(const peer_communicator *c)
{
    return ((const volatile trm_peer_report *)c->link.report)->lost;
}

static trm_status fail_if_dead(const peer_communicator *c)
{
    uint32_t lost = lost_rank(c);
    if (lost > 0) {
        TRM_FAIL(TRM_ERROR_LOST_RANK, "rank %d waited %g s for rank %d in an exchange over peer memory",
                 (int)c->base.world_ranks[c->base.rank], c->base.deadline_seconds, (int)c->base.world_ranks[lost - 1]);
    }
    if (c->stopped) {
        TRM_FAIL(TRM_ERROR_LOST_RANK, "the peer memory communicator cannot be used after a failure");
    }
    return TRM_OK;
}

/* The measured choice, if possible; else by constants. */
static trm_peer_way choose_sum(const peer_communicator *c, size_t bytes)
{
    const trm_choice *measured = &c->choices[TRM_CHOICE_ALL_REDUCE];
    trm_peer_way way = trm_choice_way(measured, bytes);
    bool fits = way == TRM_PEER_NO_WAY || trm_peer_fits(c->base.size, bytes, way);
    return measured->n > 0 && fits ? way : trm_peer_choose(c->base.size, bytes);
}

static bool choose_gather(const peer_communicator *c, size_t bytes)
{
    const trm_choice *measured = &c->choices[TRM_CHOICE_GATHER];
    bool is_faster = measured->n == 0 || trm_choice_way(measured, bytes) != TRM_PEER_NO_WAY;
    return is_faster && trm_peer_gathers(c->base.size, bytes);
}

static trm_status peer_exchange(trm_communicator *communicator, const trm_exchange *x, trm_stream *stream)
{
    peer_communicator *c = (peer_communicator *)communicator;
    TRM_TRY(fail_if_dead(c));
    bool sum = x->op == TRM_ALL_REDUCE && x->reduce == TRM_REDUCE_SUM &&
               (x->dtype == TRM_F32 || x->dtype == TRM_F16 || x->dtype == TRM_BF16);
    size_t bytes = x->count * trm_dtype_size(x->dtype);
    trm_peer_way way = sum ? choose_sum(c, bytes) : TRM_PEER_NO_WAY;
    bool deals = x->op == TRM_ALL_TO_ALL && x->from != x->to;
    bool gathers = (x->op == TRM_ALL_GATHER || x->op == TRM_BROADCAST || deals) && choose_gather(c, bytes);
    if ((way == TRM_PEER_NO_WAY && !gathers) || stream == NULL || trm_stream_device(stream) != c->device) {
        return c->inner->ops->exchange(c->inner, x, stream);
    }
    if (deals && gathers) {
        return trm_cuda_peer_all_to_all(&c->link, x->from, x->to, bytes, trm_stream_native(stream));
    }
    if (gathers) {
        return trm_cuda_peer_gather(&c->link, x->op == TRM_BROADCAST ? x->root : -1, x->from, x->to, bytes,
                                    trm_stream_native(stream));
    }
    return trm_cuda_peer_all_reduce(&c->link, way, x->dtype, x->from, x->to, x->count, 0, trm_stream_native(stream));
}

static trm_status peer_split(trm_communicator *communicator, int32_t colour, const int32_t *members, int32_t n_members,
                             trm_communicator **part)
{
    peer_communicator *c = (peer_communicator *)communicator;
    trm_communicator *inner = NULL, *host = NULL;
    char why[256];
    TRM_TRY(fail_if_dead(c));
    TRM_TRY(c->inner->ops->split(c->inner, colour, members, n_members, &inner));
    *part = inner;
    if (n_members < 2) {
        return TRM_OK;
    }
    trm_status status = c->host->ops->split(c->host, colour, members, n_members, &host);
    if (status == TRM_OK) {
        status = trm_communicator_peer_create(c->device, host, inner, part, why, sizeof(why));
    }
    if (status != TRM_OK) {
        trm_communicator_destroy(inner);
        *part = NULL;
    } else if (*part != inner) {
        ((peer_communicator *)*part)->owns_host = true;
        return TRM_OK;
    }
    trm_communicator_destroy(host);
    return status;
}

static trm_status peer_check(trm_communicator *communicator)
{
    peer_communicator *c = (peer_communicator *)communicator;
    TRM_TRY(fail_if_dead(c));
    return c->inner->ops->check(c->inner);
}

static void peer_abort(trm_communicator *communicator)
{
    peer_communicator *c = (peer_communicator *)communicator;
    c->stopped = true;
    ((volatile trm_peer_report *)c->link.report)->stop = 1;
    c->inner->ops->abort(c->inner);
}

static void peer_destroy(trm_communicator *communicator)
{
    peer_communicator *c = (peer_communicator *)communicator;
    const bool together = lost_rank(c) == 0 && !c->stopped;
    trm_peer_lanes_destroy(c->lanes, together);
    close_mailboxes(c, together);
    trm_communicator_destroy(c->inner);
    if (c->owns_host) {
        trm_communicator_destroy(c->host);
    }
    free(c);
}

static const trm_communicator_ops peer_ops = {"peer", peer_exchange, peer_split, peer_check, peer_abort, peer_destroy};

trm_status trm_communicator_peer_norm(trm_communicator *communicator, const trm_peer_norm *n,
                                      const trm_norm_params *norm, trm_stream *stream, bool *done)
{
    peer_communicator *c = (peer_communicator *)communicator;
    *done = false;
    if (communicator->ops != &peer_ops || stream == NULL || trm_stream_device(stream) != c->device) {
        return TRM_OK;
    }
    TRM_TRY(fail_if_dead(c));
    int32_t threads = trm_peer_norm_choose(c->base.size, n);
    if (threads == 0) {
        return TRM_OK;
    }
    TRM_TRY(trm_cuda_peer_norm(&c->link, n, norm, threads, trm_stream_native(stream)));
    *done = true;
    return TRM_OK;
}

trm_status trm_communicator_peer_sum(trm_communicator *communicator, const trm_exchange *x, trm_stream *stream)
{
    peer_communicator *c = (peer_communicator *)communicator;
    TRM_TRY(fail_if_dead(c));
    trm_peer_way way = trm_peer_choose(c->base.size, x->count * trm_dtype_size(x->dtype));
    return trm_cuda_peer_all_reduce(&c->link, way, x->dtype, x->from, x->to, x->count, 0, trm_stream_native(stream));
}

const trm_choice *trm_communicator_peer_choice(const trm_communicator *communicator, trm_choice_op op)
{
    return &((const peer_communicator *)communicator)->choices[op];
}

void trm_communicator_set_peer_choice(trm_communicator *communicator, trm_choice_op op, const trm_choice *choice)
{
    ((peer_communicator *)communicator)->choices[op] = *choice;
}

void trm_communicator_peer_machine(const trm_communicator *communicator, trm_choice_machine *machine)
{
    char path[1024];
    *machine = (trm_choice_machine){.nccl = trm_nccl_version(path, sizeof(path)),
                                    .joint = ((const peer_communicator *)communicator)->joint,
                                    .ranks = communicator->size};
    if (cudaDriverGetVersion(&machine->driver) != cudaSuccess) {
        (void)cudaGetLastError();
        machine->driver = 0;
    }
}

trm_communicator *trm_communicator_peer_inner(trm_communicator *communicator)
{
    return ((peer_communicator *)communicator)->inner;
}

trm_status trm_communicator_take_lane(trm_communicator *communicator, size_t bytes, trm_peer_lane **lane)
{
    peer_communicator *c = (peer_communicator *)communicator;
    *lane = NULL;
    if (communicator->ops != &peer_ops) {
        return TRM_OK;
    }
    TRM_TRY(fail_if_dead(c));
    return trm_peer_lanes_take(&c->lanes, c->device, c->host, &c->link, bytes, lane);
}

const trm_peer_link *trm_communicator_peer_link(const trm_communicator *communicator)
{
    return communicator->ops == &peer_ops ? &((const peer_communicator *)communicator)->link : NULL;
}

trm_status trm_communicator_peer_create(trm_device *device, trm_communicator *host, trm_communicator *inner,
                                        trm_communicator **communicator, char *why, size_t why_size)
{
    *communicator = inner;
    if (inner->size < 2 || inner->size > TRM_PEER_RANKS) {
        snprintf(why, why_size, "a group of %d ranks, expected 2 to %d", (int)inner->size, TRM_PEER_RANKS);
        return TRM_OK;
    }
    peer_communicator *c = calloc(1, sizeof(*c));
    if (c == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a communicator");
    }
    c->base = *inner;
    c->base.ops = &peer_ops;
    c->base.parts = NULL;
    c->inner = inner;
    c->host = host;
    c->device = device;
    c->link.rank = inner->rank;
    c->link.size = inner->size;
    c->link.deadline_nanoseconds = (uint64_t)(inner->deadline_seconds * 1e9);
    bool opened;
    trm_status status = open_mailboxes_together(c, &opened, why, why_size);
    if (status != TRM_OK || !opened) {
        close_mailboxes(c, status == TRM_OK);
        free(c);
        return status;
    }
    *communicator = &c->base;
    return TRM_OK;
}

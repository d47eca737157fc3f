/* Lanes over peer memory: memory, copies, and their order. See collectives/peer_lane.h. */
#include "collectives/peer_lane.h"

#include <stdlib.h>

#include "kernels/cuda/cuda.h"
#include "kernels/norm/cuda.h"

struct trm_peer_lane {
    trm_communicator *host; /* between the same ranks, for handles */
    trm_device *device;
    const trm_peer_link *link;
    size_t bytes;                    /* of a tensor at most */
    char *mailboxes[TRM_PEER_RANKS]; /* of all ranks: summands, result, words */
    bool opened[TRM_PEER_RANKS];
    uint32_t *words[TRM_PEER_RANKS]; /* of this rank, in the mailboxes of all */
    uint32_t epoch;
    bool taken;
    struct trm_peer_lane *before; /* of the communicator, the one made before */
};

/* A mailbox: summands of this rank's rows from each rank, the gathered result, a word of each rank. */
static size_t gathered_offset(const trm_peer_lane *lane)
{
    return (size_t)lane->link->size * trm_peer_lane_part_bytes(lane->link->size, lane->bytes);
}
static size_t flags_offset(const trm_peer_lane *lane)
{
    return gathered_offset(lane) + trm_align_up(lane->bytes, 256);
}

void *trm_peer_lane_gathered(const trm_peer_lane *lane)
{
    return lane->mailboxes[lane->link->rank] + gathered_offset(lane);
}

static char *summands_of(const trm_peer_lane *lane, int32_t owner, int32_t sender)
{
    return lane->mailboxes[owner] + (size_t)sender * trm_peer_lane_part_bytes(lane->link->size, lane->bytes);
}

static uint32_t *word_of(const trm_peer_lane *lane, int32_t owner, int32_t sender)
{
    return (uint32_t *)(lane->mailboxes[owner] + flags_offset(lane)) + sender;
}

/* Rows of a rank: the last may have fewer, or none. */
typedef struct rows_of {
    int64_t first, n;
} rows_of;

static rows_of rows_owned(const trm_peer_lane *lane, int64_t rows, int32_t rank)
{
    int64_t part = (rows + lane->link->size - 1) / lane->link->size, first = part * rank;
    first = first < rows ? first : rows;
    return (rows_of){first, rows - first < part ? rows - first : part};
}

bool trm_peer_lane_takes(const trm_peer_lane *lane, const trm_peer_norm *n)
{
    uintptr_t addresses = (uintptr_t)n->from | (uintptr_t)n->residual | (uintptr_t)n->weight | (uintptr_t)n->bias |
                          (uintptr_t)n->to | (uintptr_t)n->sum;
    size_t element = trm_dtype_size(n->dtype), row = (size_t)n->width * element;
    int64_t part = (n->rows + lane->link->size - 1) / lane->link->size;
    return (n->dtype == TRM_F32 || n->dtype == TRM_F16 || n->dtype == TRM_BF16) && row % 16 == 0 && row <= 4096 * 16 &&
           addresses % 16 == 0 && (size_t)n->rows * row <= lane->bytes &&
           (size_t)part * row <= trm_peer_lane_part_bytes(lane->link->size, lane->bytes);
}

/* Once a rank's epoch is visible, so is all that it enqueued before. */
static trm_status meet(trm_peer_lane *lane, cudaStream_t stream)
{
    lane->epoch++;
    return trm_cuda_peer_meet(lane->link, lane->words, word_of(lane, lane->link->rank, 0), lane->epoch, stream);
}

static trm_status copy(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    if (bytes > 0) {
        TRM_CUDA_TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream));
    }
    return TRM_OK;
}

/* Sends every peer its rows of `from`. */
static trm_status scatter(const trm_peer_lane *lane, const trm_peer_norm *n, size_t row, cudaStream_t stream)
{
    const int32_t rank = lane->link->rank, size = lane->link->size;
    for (int32_t k = 1; k < size; k++) {
        int32_t peer = (rank + k) % size; /* each begins with another one */
        rows_of theirs = rows_owned(lane, n->rows, peer);
        TRM_TRY(copy(summands_of(lane, peer, rank), (const char *)n->from + (size_t)theirs.first * row,
                     (size_t)theirs.n * row, stream));
    }
    return TRM_OK;
}

static trm_status add_and_norm(const trm_peer_lane *lane, const trm_peer_norm *n, const trm_norm_params *norm,
                               size_t row, cudaStream_t stream)
{
    const int32_t rank = lane->link->rank;
    const rows_of own = rows_owned(lane, n->rows, rank);
    const size_t at = (size_t)own.first * row;
    trm_norm_of_parts parts = {.dtype = n->dtype,
                               .rows = own.n,
                               .width = n->width,
                               .n_parts = lane->link->size,
                               .residual = n->residual == NULL ? NULL : (const char *)n->residual + at,
                               .weight = n->weight,
                               .bias = n->bias,
                               .to = (char *)trm_peer_lane_gathered(lane) + at,
                               .sum = n->sum == NULL ? NULL : (char *)n->sum + at};
    for (int32_t r = 0; r < lane->link->size; r++) {
        parts.parts[r] = r == rank ? (const char *)n->from + at : summands_of(lane, rank, r);
    }
    return trm_cuda_norm_of_parts(&parts, norm, stream);
}

/* Sends this rank's rows of the result to every peer. */
static trm_status gather(const trm_peer_lane *lane, int64_t rows, size_t row, cudaStream_t stream)
{
    const int32_t rank = lane->link->rank, size = lane->link->size;
    const rows_of own = rows_owned(lane, rows, rank);
    const size_t at = gathered_offset(lane) + (size_t)own.first * row;
    for (int32_t k = 1; k < size; k++) {
        int32_t peer = (rank + k) % size;
        TRM_TRY(copy(lane->mailboxes[peer] + at, lane->mailboxes[rank] + at, (size_t)own.n * row, stream));
    }
    return TRM_OK;
}

/* Gathers the other rows of the sum through the summands' buffers, which every rank has read once its result arrived.
 * The last meeting keeps them until all ranks have their rows. */
static trm_status gather_sum(trm_peer_lane *lane, const trm_peer_norm *n, size_t row, cudaStream_t stream)
{
    const int32_t rank = lane->link->rank, size = lane->link->size;
    const rows_of own = rows_owned(lane, n->rows, rank);
    for (int32_t k = 1; k < size; k++) {
        TRM_TRY(copy(summands_of(lane, (rank + k) % size, rank), (const char *)n->sum + (size_t)own.first * row,
                     (size_t)own.n * row, stream));
    }
    TRM_TRY(meet(lane, stream));
    for (int32_t r = 0; r < size; r++) {
        rows_of theirs = rows_owned(lane, n->rows, r);
        if (r != rank) {
            TRM_TRY(copy((char *)n->sum + (size_t)theirs.first * row, summands_of(lane, rank, r),
                         (size_t)theirs.n * row, stream));
        }
    }
    return meet(lane, stream);
}

trm_status trm_peer_lane_norm(trm_peer_lane *lane, const trm_peer_norm *n, const trm_norm_params *norm, bool whole_sum,
                              trm_stream *stream)
{
    const size_t row = (size_t)n->width * trm_dtype_size(n->dtype);
    cudaStream_t handle = trm_cuda_stream(stream);
    if (!trm_peer_lane_takes(lane, n)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "a lane of %zu bytes was given %lld rows of %lld %s", lane->bytes,
                 (long long)n->rows, (long long)n->width, trm_dtype_name(n->dtype));
    }
    TRM_TRY(scatter(lane, n, row, handle));
    TRM_TRY(meet(lane, handle));
    TRM_TRY(add_and_norm(lane, n, norm, row, handle));
    TRM_TRY(gather(lane, n->rows, row, handle));
    TRM_TRY(meet(lane, handle));
    if (n->to != trm_peer_lane_gathered(lane)) {
        TRM_TRY(copy(n->to, trm_peer_lane_gathered(lane), (size_t)n->rows * row, handle));
    }
    return whole_sum && n->sum != NULL ? gather_sum(lane, n, row, handle) : TRM_OK;
}

/* What a rank sends about its mailbox. */
typedef struct lane_card {
    cudaIpcMemHandle_t mailbox;
    bool failed;
} lane_card;

static trm_status gather_cards(trm_communicator *host, const lane_card *mine, lane_card *all, bool *failed)
{
    trm_exchange x = {TRM_ALL_GATHER, TRM_REDUCE_NONE, TRM_U8, mine, all, sizeof(*mine), 0};
    TRM_TRY(trm_communicator_exchange(host, &x, NULL));
    for (int32_t r = 0; r < host->size; r++) {
        *failed = *failed || all[r].failed;
    }
    return TRM_OK;
}

static trm_status allocate(trm_peer_lane *lane, cudaIpcMemHandle_t *handle)
{
    void *memory;
    const size_t bytes = trm_peer_lane_bytes(lane->link->size, lane->bytes);
    TRM_TRY(trm_device_alloc(lane->device, bytes, &memory));
    lane->mailboxes[lane->link->rank] = memory;
    TRM_CUDA_TRY(cudaMemset((char *)memory + flags_offset(lane), 0, bytes - flags_offset(lane)));
    TRM_CUDA_TRY(cudaIpcGetMemHandle(handle, memory));
    TRM_CUDA_TRY(cudaStreamSynchronize(cudaStreamLegacy)); /* zeros, before a peer may write */
    return TRM_OK;
}

static bool open_mailboxes(trm_peer_lane *lane, const lane_card *cards)
{
    for (int32_t r = 0; r < lane->link->size; r++) {
        if (r != lane->link->rank) {
            void *mapped;
            if (cudaIpcOpenMemHandle(&mapped, cards[r].mailbox, cudaIpcMemLazyEnablePeerAccess) != cudaSuccess) {
                (void)cudaGetLastError();
                return false;
            }
            lane->mailboxes[r] = mapped;
            lane->opened[r] = true;
        }
        lane->words[r] = word_of(lane, r, lane->link->rank);
    }
    return true;
}

/* NULL: this rank could not make one, and takes part. */
static void lane_destroy(trm_peer_lane *lane, trm_communicator *host, bool together)
{
    for (int32_t r = 0; lane != NULL && r < lane->link->size; r++) {
        if (lane->opened[r]) {
            (void)cudaIpcCloseMemHandle(lane->mailboxes[r]);
            (void)cudaGetLastError();
        }
    }
    if (together) {
        lane_card mine = {.failed = false}, all[TRM_PEER_RANKS];
        bool failed = false;
        (void)gather_cards(host, &mine, all, &failed);
    }
    if (lane != NULL) {
        trm_device_free(lane->device, lane->mailboxes[lane->link->rank]);
    }
    free(lane);
}

static trm_status lane_create(trm_device *device, trm_communicator *host, const trm_peer_link *link, size_t bytes,
                              trm_peer_lane **lane)
{
    lane_card mine = {.failed = false}, cards[TRM_PEER_RANKS];
    bool failed = false;
    trm_peer_lane *made = calloc(1, sizeof(*made));
    if (made != NULL) {
        *made = (trm_peer_lane){.host = host, .device = device, .link = link, .bytes = bytes};
    }
    mine.failed = made == NULL || allocate(made, &mine.mailbox) != TRM_OK;
    trm_status status = gather_cards(host, &mine, cards, &failed);
    if (status == TRM_OK && !failed) {
        mine.failed = !open_mailboxes(made, cards);
        status = gather_cards(host, &mine, cards, &failed);
    }
    if (status != TRM_OK || failed) {
        lane_destroy(made, host, status == TRM_OK);
        return status;
    }
    *lane = made;
    return TRM_OK;
}

trm_status trm_peer_lanes_take(trm_peer_lane **lanes, trm_device *device, trm_communicator *host,
                               const trm_peer_link *link, size_t bytes, trm_peer_lane **lane)
{
    trm_peer_lane *found = *lanes;
    *lane = NULL;
    while (found != NULL && (found->taken || found->bytes < bytes)) {
        found = found->before;
    }
    if (found == NULL) {
        TRM_TRY(lane_create(device, host, link, bytes, &found));
        if (found == NULL) {
            return TRM_OK;
        }
        found->before = *lanes;
        *lanes = found;
    }
    found->taken = true;
    *lane = found;
    return TRM_OK;
}

void trm_peer_lane_return(trm_peer_lane *lane)
{
    if (lane != NULL) {
        lane->taken = false;
    }
}

void trm_peer_lanes_destroy(trm_peer_lane *lanes, bool together)
{
    while (lanes != NULL) {
        trm_peer_lane *before = lanes->before;
        lane_destroy(lanes, lanes->host, together);
        lanes = before;
    }
}

/*
 * Token ids in passages: of a text, an array in a .npy file, or all such files of a folder.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_TOKEN_LIST_H
#define TRM_LAUNCHER_CLI_QUANTIZE_TOKEN_LIST_H

#include <trireme/types.h>

typedef struct token_list {
    int32_t *ids;    /* [starts[n]] */
    int64_t *starts; /* [n + 1]: of the passages */
    int64_t n;
} token_list;

/* Reads at most `most` tokens as the model in `folder` has them, in passages of at most `longest`. A .npy file has ids
 * i32 or i64, [n] or [passages, n]. INVALID_ARGUMENT if there are fewer than 2 tokens, or an id is not below `vocab`.
 */
trm_status token_list_read(const char *path, const char *folder, int64_t most, int64_t longest, int64_t vocab,
                           token_list *list);
void token_list_fini(token_list *list);

#endif

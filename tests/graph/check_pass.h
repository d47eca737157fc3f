/*
 * A pass on a network: what its layers read before and after, and that both give the same numbers.
 */
#ifndef TESTS_GRAPH_CHECK_PASS_H
#define TESTS_GRAPH_CHECK_PASS_H

#include "graph/compare.h"

#include <stdio.h>

typedef trm_status (*pass_fn)(trm_network *network, int32_t *changes);

/* The lines from the first layer on. */
static inline const char *layers_of(const char *text)
{
    const char *at = text;
    while (*at != '\0') {
        const char *end = strchr(at, '\n');
        char line[1024];
        snprintf(line, sizeof(line), "%.*s", (int)(end - at), at);
        bool given = strstr(line, " = input") || strstr(line, " = state") || strstr(line, " = constant {") ||
                     strstr(line, " = weight ");
        if (!given) {
            break;
        }
        at = end + 1;
    }
    return at;
}

static inline trm_status fuse_before(trm_network *network, int32_t *changes)
{
    return trm_pass_fuse(network, TRM_PASSES_BEFORE_PARTITION, changes);
}

static inline trm_status fuse_after(trm_network *network, int32_t *changes)
{
    return trm_pass_fuse(network, TRM_PASSES_AFTER_PARTITION, changes);
}

/* Runs the pass on a copy; its layers must then read `after`, or stay as they are if that is NULL. Takes the network.
 */
static inline void check_pass(trm_network *network, pass_fn pass, const char *after)
{
    trm_network *changed = NULL;
    int32_t changes = 0;
    assert_ok(trm_network_clone(network, &changed));
    assert_ok(pass(changed, &changes));
    assert_consistent(changed);
    char *before_text = trm_network_to_text(network), *after_text = trm_network_to_text(changed);
    assert_string_equal(layers_of(after_text), after == NULL ? layers_of(before_text) : after);
    assert_true((changes == 0) == (strcmp(before_text, after_text) == 0));
    assert_same_numbers(network, changed, 5, test_seed());
    int32_t again = 0;
    assert_ok(pass(changed, &again));
    assert_int_equal(again, 0);
    assert_text(changed, after_text);
    trm_free(before_text);
    trm_free(after_text);
    trm_network_destroy(changed);
    trm_network_destroy(network);
}

#endif

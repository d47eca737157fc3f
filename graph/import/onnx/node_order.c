/*
 * Sorts nodes so that each follows those that it reads. ONNX requires that of files, but some writers (such as
 * onnxruntime's float16 converter) do not do it, and onnxruntime accepts their files.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "graph/import/onnx/model.h"

/* Of one list of nodes: which of them make what each reads. */
typedef struct node_reads {
    trm_map makers;  /* names to the nodes that make them */
    uint32_t *reads; /* [n]: nodes, for each node from starts[node] to starts[node + 1] */
    size_t *starts;
    size_t n, capacity;
} node_reads;

static trm_status add_read(node_reads *self, const char *name)
{
    uint32_t maker;
    name = trm_onnx_text(name);
    if (name[0] == '\0' || !trm_map_find(&self->makers, name, strlen(name), &maker)) {
        return TRM_OK;
    }
    if (self->n == self->capacity) {
        size_t wanted = self->capacity * 2 + 256;
        uint32_t *grown = realloc(self->reads, wanted * sizeof(*grown));
        if (grown == NULL) {
            TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %zu inputs of nodes", wanted);
        }
        self->reads = grown;
        self->capacity = wanted;
    }
    self->reads[self->n++] = maker;
    return TRM_OK;
}

/* What a node reads, and its bodies, which see the names around them. */
static trm_status add_reads(node_reads *self, const Onnx__NodeProto *node)
{
    for (size_t i = 0; i < node->n_input; i++) {
        TRM_TRY(add_read(self, node->input[i]));
    }
    for (size_t i = 0; i < node->n_attribute; i++) {
        const Onnx__GraphProto *body = node->attribute[i]->g;
        for (size_t k = 0; body != NULL && k < body->n_node; k++) {
            TRM_TRY(add_reads(self, body->node[k]));
        }
        for (size_t k = 0; body != NULL && k < body->n_output; k++) {
            TRM_TRY(add_read(self, body->output[k]->name));
        }
    }
    return TRM_OK;
}

static trm_status find_reads(node_reads *self, Onnx__NodeProto *const *nodes, size_t n, bool *sorted)
{
    bool existing;
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < nodes[i]->n_output; k++) {
            const char *name = trm_onnx_text(nodes[i]->output[k]);
            if (name[0] != '\0') { /* the build reports a name that occurs twice */
                TRM_TRY(trm_map_add(&self->makers, name, strlen(name), (uint32_t)i, &existing));
            }
        }
    }
    *sorted = true;
    for (size_t i = 0; i < n; i++) {
        self->starts[i] = self->n;
        TRM_TRY(add_reads(self, nodes[i]));
        for (size_t k = self->starts[i]; k < self->n; k++) {
            *sorted = *sorted && self->reads[k] < i;
        }
    }
    self->starts[n] = self->n;
    return TRM_OK;
}

/* Work of put_in_order for one list of n nodes, of which `open` is a stack. */
typedef struct node_walk {
    uint32_t *open;
    size_t *next; /* of each node, the read to look at; 0 before it is reached, as starts count from 1 here */
    bool *done;
    Onnx__NodeProto **order;
} node_walk;

/* Each node behind those it reads, otherwise in the order of the file. False where nodes wait for each other. */
static bool put_in_order(const node_reads *from, Onnx__NodeProto *const *nodes, size_t n, node_walk *walk)
{
    size_t placed = 0;
    for (size_t i = 0; i < n; i++) {
        size_t depth = 0;
        walk->open[depth++] = (uint32_t)i;
        while (depth > 0) {
            const uint32_t node = walk->open[depth - 1];
            if (walk->done[node]) {
                depth--;
                continue;
            }
            walk->next[node] = walk->next[node] == 0 ? from->starts[node] + 1 : walk->next[node];
            size_t at = walk->next[node] - 1;
            while (at < from->starts[node + 1] && walk->done[from->reads[at]]) {
                at++;
            }
            walk->next[node] = at + 1;
            if (at == from->starts[node + 1]) {
                walk->done[node] = true;
                walk->order[placed++] = nodes[node];
                depth--;
            } else if (walk->next[from->reads[at]] != 0) {
                return false; /* it is open below */
            } else {
                walk->open[depth++] = from->reads[at];
            }
        }
    }
    return true;
}

static trm_status sort_list(Onnx__NodeProto **nodes, size_t n)
{
    node_reads reads = {.starts = calloc(n + 1, sizeof(*reads.starts))};
    node_walk walk = {0};
    bool sorted;
    trm_status status;
    if (reads.starts == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a list of %zu nodes", n);
    }
    TRM_TRY_GOTO(status, find_reads(&reads, nodes, n, &sorted), done);
    if (sorted) {
        goto done;
    }
    walk = (node_walk){.open = malloc(n * sizeof(*walk.open)),
                       .next = calloc(n, sizeof(*walk.next)),
                       .done = calloc(n, sizeof(*walk.done)),
                       .order = malloc(n * sizeof(*walk.order))};
    if (walk.open == NULL || walk.next == NULL || walk.done == NULL || walk.order == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the order of %zu nodes", n);
        goto done;
    }
    if (put_in_order(&reads, nodes, n, &walk)) { /* of a cycle the build tells where it is */
        memcpy(nodes, walk.order, n * sizeof(*nodes));
    }
done:
    free(walk.open);
    free(walk.next);
    free(walk.done);
    free(walk.order);
    free(reads.reads);
    free(reads.starts);
    trm_map_fini(&reads.makers);
    return status;
}

static trm_status sort_nodes(Onnx__NodeProto **nodes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < nodes[i]->n_attribute; k++) {
            Onnx__GraphProto *body = nodes[i]->attribute[k]->g;
            TRM_TRY(body == NULL ? TRM_OK : sort_nodes(body->node, body->n_node));
        }
    }
    return n == 0 ? TRM_OK : sort_list(nodes, n);
}

trm_status trm_onnx_sort_nodes(trm_onnx *model)
{
    TRM_TRY(sort_nodes(model->graph->node, model->graph->n_node));
    for (size_t i = 0; i < model->proto->n_functions; i++) {
        TRM_TRY(sort_nodes(model->proto->functions[i]->node, model->proto->functions[i]->n_node));
    }
    return TRM_OK;
}

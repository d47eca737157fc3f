/* The public calls: compiling, states, masks. */
#include <trireme/grammar.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/recorder.h"
#include "launcher/text/grammar/pushdown.h"
#include "launcher/text/grammar/vocab.h"

#define LARGEST_TEXT   ((size_t)1 << 20)
#define MEMORY_LIMIT   ((size_t)64 << 20) /* size of a pushdown automaton before unused entries are dropped */
#define MAX_MASKS      1024               /* masks to keep; 16 KiB each for 128 thousand tokens */
#define VISITS_TO_LOOK 8                  /* entries in a walk from which it pays to find self loops */

struct trm_grammar_state {
    trm_grammar *grammar;
    trm_grammar_state *previous, *next; /* states of the grammar */
    uint32_t config;
    bool ended; /* an end token came */
};

struct trm_grammar {
    const trm_grammar_vocab *vocab;
    trm_grammar_automaton automaton;
    pthread_mutex_t lock; /* guards everything below */
    trm_grammar_pushdown pushdown;
    trm_grammar_state *states;
    size_t n_states, n_masks;
};

static trm_status read_tree(trm_grammar_tree *tree, trm_grammar_kind kind, const char *text, size_t size)
{
    int32_t rule;
    trm_grammar_node *node;
    switch (kind) {
    case TRM_GRAMMAR_JSON:
        trm_grammar_read_json(tree);
        break;
    case TRM_GRAMMAR_JSON_SCHEMA:
        trm_grammar_read_schema(tree, text, size);
        break;
    case TRM_GRAMMAR_REGEX:
        rule = trm_grammar_add_rule(tree, "root", 4);
        node = trm_grammar_read_regex(tree, text, size, TRM_GRAMMAR_WHOLE);
        if (tree->status == TRM_OK) {
            tree->rules[rule].node = node;
            tree->root = rule;
        }
        break;
    case TRM_GRAMMAR_EBNF:
        trm_grammar_read_ebnf(tree, text, size);
        break;
    case TRM_GRAMMAR_CHOICE:
        trm_grammar_read_enum(tree, text, size);
        break;
    default:
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "unknown kind of grammar %d", (int)kind);
    }
    return tree->status;
}

TRM_CALL(NULL, trm_grammar_compile,
         (const trm_grammar_vocab *vocab, trm_grammar_kind kind, const char *text, size_t size, trm_grammar **grammar),
         (vocab, kind, text, size, grammar))
{
    if (vocab == NULL || grammar == NULL || (text == NULL && (size > 0 || kind != TRM_GRAMMAR_JSON))) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_grammar_compile needs a vocabulary, a text and an output argument");
    }
    if (size > LARGEST_TEXT) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "the grammar has %zu bytes, expected at most %zu", size, LARGEST_TEXT);
    }
    trm_grammar *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a grammar");
    }
    trm_grammar_tree tree = {0};
    made->vocab = vocab;
    trm_status status = read_tree(&tree, kind, text, size);
    if (status == TRM_OK) {
        status = trm_grammar_build(&tree, &made->automaton);
    }
    trm_grammar_tree_fini(&tree);
    if (status == TRM_OK) {
        status = trm_grammar_pushdown_init(&made->pushdown, &made->automaton);
    }
    if (status != TRM_OK) {
        trm_grammar_automaton_fini(&made->automaton);
        free(made);
        return status;
    }
    pthread_mutex_init(&made->lock, NULL);
    *grammar = made;
    return TRM_OK;
}

void trm_grammar_destroy(trm_grammar *grammar)
{
    if (grammar != NULL) {
        trm_grammar_pushdown_fini(&grammar->pushdown);
        trm_grammar_automaton_fini(&grammar->automaton);
        pthread_mutex_destroy(&grammar->lock);
        free(grammar);
    }
}

size_t trm_grammar_bytes(trm_grammar *grammar)
{
    pthread_mutex_lock(&grammar->lock);
    size_t bytes =
        trm_grammar_pushdown_memory(&grammar->pushdown) + grammar->n_masks * (size_t)grammar->vocab->size / 8;
    pthread_mutex_unlock(&grammar->lock);
    return bytes;
}

static trm_status add_state(trm_grammar *grammar, trm_grammar_state **state)
{
    *state = calloc(1, sizeof(**state));
    if (*state == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a state of a grammar");
    }
    (*state)->grammar = grammar;
    (*state)->next = grammar->states;
    if (grammar->states != NULL) {
        grammar->states->previous = *state;
    }
    grammar->states = *state;
    grammar->n_states++;
    return TRM_OK;
}

TRM_CALL(NULL, trm_grammar_state_create, (trm_grammar *grammar, trm_grammar_state **state), (grammar, state))
{
    if (grammar == NULL || state == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_grammar_state_create needs a grammar and an output argument");
    }
    uint32_t config;
    trm_grammar_state *made = NULL;
    pthread_mutex_lock(&grammar->lock);
    trm_grammar_pushdown_begin(&grammar->pushdown);
    trm_status status = trm_grammar_pushdown_start(&grammar->pushdown, &config);
    if (status == TRM_OK) {
        status = add_state(grammar, &made);
    }
    if (status == TRM_OK) {
        made->config = config;
        *state = made;
    }
    pthread_mutex_unlock(&grammar->lock);
    return status;
}

TRM_CALL(NULL, trm_grammar_state_copy, (const trm_grammar_state *state, trm_grammar_state **copy), (state, copy))
{
    if (state == NULL || copy == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_grammar_state_copy needs a state and an output argument");
    }
    trm_grammar_state *made = NULL;
    pthread_mutex_lock(&state->grammar->lock);
    trm_status status = add_state(state->grammar, &made);
    if (status == TRM_OK) {
        made->config = state->config;
        made->ended = state->ended;
        *copy = made;
    }
    pthread_mutex_unlock(&state->grammar->lock);
    return status;
}

void trm_grammar_state_destroy(trm_grammar_state *state)
{
    if (state == NULL) {
        return;
    }
    trm_grammar *grammar = state->grammar;
    pthread_mutex_lock(&grammar->lock);
    if (state->previous != NULL) {
        state->previous->next = state->next;
    } else {
        grammar->states = state->next;
    }
    if (state->next != NULL) {
        state->next->previous = state->previous;
    }
    grammar->n_states--;
    pthread_mutex_unlock(&grammar->lock);
    free(state);
}

/* Drops entries that no state needs if there are many. */
static trm_status collect(trm_grammar *grammar)
{
    if (trm_grammar_pushdown_memory(&grammar->pushdown) < MEMORY_LIMIT) {
        return TRM_OK;
    }
    uint32_t **configs = calloc(grammar->n_states, sizeof(*configs));
    if (configs == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate %zu states of a grammar", grammar->n_states);
    }
    size_t n = 0;
    for (trm_grammar_state *state = grammar->states; state != NULL; state = state->next) {
        configs[n++] = &state->config;
    }
    trm_status status = trm_grammar_pushdown_collect(&grammar->pushdown, configs, n);
    grammar->n_masks = status == TRM_OK ? 0 : grammar->n_masks;
    free(configs);
    return status;
}

static trm_status begin(trm_grammar_state *state)
{
    trm_grammar_pushdown_begin(&state->grammar->pushdown);
    return collect(state->grammar);
}

static bool is_end_token(const trm_grammar_vocab *vocab, int32_t token)
{
    for (size_t i = 0; i < vocab->n_end_tokens; i++) {
        if (vocab->end_tokens[i] == token) {
            return true;
        }
    }
    return false;
}

static trm_status accept(trm_grammar_state *state, int32_t token, bool *accepted)
{
    const trm_grammar_vocab *vocab = state->grammar->vocab;
    trm_grammar_pushdown *pushdown = &state->grammar->pushdown;
    *accepted = false;
    TRM_TRY(begin(state));
    if (is_end_token(vocab, token)) {
        *accepted = state->ended || pushdown->configs[state->config].ends;
        state->ended |= *accepted;
        return TRM_OK;
    }
    if (token < 0 || token >= vocab->size || vocab->bytes[token] == NULL || state->ended) {
        return TRM_OK;
    }
    uint32_t config = state->config;
    for (uint8_t i = 0; i < vocab->lengths[token] && config != TRM_GRAMMAR_NOWHERE; i++) {
        TRM_TRY(trm_grammar_pushdown_step(pushdown, config, vocab->bytes[token][i], &config));
    }
    *accepted = config != TRM_GRAMMAR_NOWHERE;
    state->config = *accepted ? config : state->config;
    return TRM_OK;
}

TRM_CALL(NULL, trm_grammar_state_accept, (trm_grammar_state *state, int32_t token, bool *accepted),
         (state, token, accepted))
{
    if (state == NULL || accepted == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_grammar_state_accept needs a state and an output argument");
    }
    pthread_mutex_lock(&state->grammar->lock);
    trm_status status = accept(state, token, accepted);
    pthread_mutex_unlock(&state->grammar->lock);
    return status;
}

static void set_bits(const trm_grammar_trie *trie, uint32_t first, uint32_t end, uint32_t *bits)
{
    for (uint32_t i = first; i < end; i++) {
        uint32_t id = (uint32_t)trie->order[i];
        bits[id / 32] |= (uint32_t)1 << id % 32;
    }
}

/* Walks nodes [first, end) of a tree of tokens along with the configurations that their bytes reach; `first` continues
 * `config`. If all bytes of a subtree lead a configuration back to itself, or all are plain and the configuration is
 * free, its tokens are allowed without visiting each. */
static trm_status walk(trm_grammar *grammar, const trm_grammar_trie *trie, uint32_t first, uint32_t end,
                       uint32_t config, uint32_t *bits)
{
    trm_grammar_pushdown *pushdown = &grammar->pushdown;
    const bool plain = trie == &grammar->vocab->plain;
    uint32_t path[TRM_GRAMMAR_LONGEST_TOKEN + 1];
    path[0] = config;
    for (uint32_t i = first; i < end;) {
        const trm_grammar_trie_node *node = &trie->nodes[i];
        uint32_t next;
        TRM_TRY(trm_grammar_pushdown_step(pushdown, path[node->depth - 1], node->byte, &next));
        if (next == TRM_GRAMMAR_NOWHERE) {
            i = node->skip;
            continue;
        }
        trm_grammar_config *c = &pushdown->configs[next];
        if (!c->self_known && c->visits++ >= VISITS_TO_LOOK) {
            TRM_TRY(trm_grammar_pushdown_find_self(pushdown, next));
            c = &pushdown->configs[next];
        }
        if ((c->self_known && (node->groups & ~c->self_groups) == 0) ||
            (plain && trm_grammar_pushdown_is_free(pushdown, next))) {
            set_bits(trie, node->token, trie->nodes[node->skip].token, bits);
            i = node->skip;
            continue;
        }
        set_bits(trie, node->token, node->token + node->n_here, bits);
        path[node->depth] = next;
        i++;
    }
    return TRM_OK;
}

static void clear_bits(const trm_grammar_trie *trie, uint32_t first, uint32_t end, uint32_t *bits)
{
    for (uint32_t i = first; i < end; i++) {
        uint32_t id = (uint32_t)trie->order[i];
        bits[id / 32] &= ~((uint32_t)1 << id % 32);
    }
}

static void set_plain(const trm_grammar_vocab *vocab, uint32_t *bits)
{
    for (size_t i = 0; i < ((size_t)vocab->size + 31) / 32; i++) {
        bits[i] |= vocab->is_plain[i];
    }
}

/* Finds the first bytes behind which all plain tokens are allowed; *count says of how many tokens. */
static trm_status find_free_bytes(trm_grammar *grammar, uint32_t config, bool *is_free, uint32_t *count)
{
    trm_grammar_pushdown *pushdown = &grammar->pushdown;
    const trm_grammar_trie *trie = &grammar->vocab->plain;
    uint32_t found = TRM_GRAMMAR_NOWHERE, next, same;
    *count = 0;
    for (uint32_t i = 0; i < trie->n_nodes; i = trie->nodes[i].skip) {
        const uint8_t byte = trie->nodes[i].byte;
        TRM_TRY(trm_grammar_pushdown_step(pushdown, config, byte, &next));
        is_free[byte] = next != TRM_GRAMMAR_NOWHERE && trm_grammar_pushdown_is_free(pushdown, next);
        found = is_free[byte] ? next : found;
    }
    for (uint32_t i = 0; i < trie->n_nodes && found != TRM_GRAMMAR_NOWHERE; i = trie->nodes[i].skip) {
        const trm_grammar_trie_node *node = &trie->nodes[i];
        if (!is_free[node->byte]) { /* the first byte of a character, after which it is as behind a free one */
            TRM_TRY(trm_grammar_pushdown_step(pushdown, config, node->byte, &next));
            TRM_TRY(trm_grammar_pushdown_step(pushdown, found, node->byte, &same));
            is_free[node->byte] = next == same && next != TRM_GRAMMAR_NOWHERE;
        }
        *count += is_free[node->byte] ? trie->nodes[node->skip].token - node->token : 0;
    }
    return TRM_OK;
}

/* Allows tokens by their bytes. */
static trm_status allow_tokens(trm_grammar *grammar, uint32_t config, uint32_t *bits)
{
    const trm_grammar_trie *plain = &grammar->vocab->plain, *other = &grammar->vocab->other;
    bool is_free[256] = {false};
    uint32_t count;
    if (trm_grammar_pushdown_is_free(&grammar->pushdown, config)) {
        set_plain(grammar->vocab, bits);
        return walk(grammar, other, 0, other->n_nodes, config, bits);
    }
    TRM_TRY(find_free_bytes(grammar, config, is_free, &count));
    const bool most = count > plain->n_order / 2; /* then it is quicker to clear the others */
    if (most) {
        set_plain(grammar->vocab, bits);
    }
    for (uint32_t i = 0; i < plain->n_nodes; i = plain->nodes[i].skip) {
        const trm_grammar_trie_node *node = &plain->nodes[i];
        const uint32_t end = plain->nodes[node->skip].token;
        if (is_free[node->byte]) {
            set_bits(plain, node->token, most ? node->token : end, bits);
        } else {
            clear_bits(plain, node->token, most ? end : node->token, bits);
            TRM_TRY(walk(grammar, plain, i, node->skip, config, bits));
        }
    }
    return walk(grammar, other, 0, other->n_nodes, config, bits);
}

static void drop_masks(trm_grammar *grammar)
{
    for (size_t i = 0; i < grammar->pushdown.n_configs; i++) {
        free(grammar->pushdown.configs[i].mask);
        grammar->pushdown.configs[i].mask = NULL;
    }
    grammar->n_masks = 0;
}

static trm_status find_mask(trm_grammar *grammar, uint32_t config, size_t words);

/* Derives the mask of a configuration from that of the equivalent one, which allows the same short tokens. */
static trm_status derive_mask(trm_grammar *grammar, uint32_t config, uint32_t alike, uint32_t *mask, size_t words)
{
    const uint32_t *is_longer = grammar->vocab->is_longer;
    if (grammar->pushdown.configs[alike].mask == NULL) {
        TRM_TRY(find_mask(grammar, alike, words));
    }
    for (size_t i = 0; i < words; i++) {
        mask[i] = grammar->pushdown.configs[alike].mask[i] & ~is_longer[i];
    }
    return walk(grammar, &grammar->vocab->longer, 0, grammar->vocab->longer.n_nodes, config, mask);
}

static trm_status find_mask(trm_grammar *grammar, uint32_t config, size_t words)
{
    uint32_t *mask = calloc(words, sizeof(*mask)), alike;
    if (mask == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a mask of %zu words", words);
    }
    trm_status status = trm_grammar_pushdown_find_alike(&grammar->pushdown, config, &alike);
    if (status == TRM_OK) {
        status =
            alike == config ? allow_tokens(grammar, config, mask) : derive_mask(grammar, config, alike, mask, words);
    }
    if (status != TRM_OK) {
        free(mask);
        return status;
    }
    if (grammar->n_masks == MAX_MASKS) {
        drop_masks(grammar);
    }
    grammar->pushdown.configs[config].mask = mask;
    grammar->n_masks++;
    return TRM_OK;
}

static trm_status fill_mask(trm_grammar_state *state, uint32_t *bits)
{
    trm_grammar *grammar = state->grammar;
    size_t words = ((size_t)grammar->vocab->size + 31) / 32;
    TRM_TRY(begin(state));
    if (state->ended) {
        memset(bits, 0, words * sizeof(*bits));
    } else {
        if (grammar->pushdown.configs[state->config].mask == NULL) {
            TRM_TRY(find_mask(grammar, state->config, words));
        }
        memcpy(bits, grammar->pushdown.configs[state->config].mask, words * sizeof(*bits));
    }
    if (state->ended || grammar->pushdown.configs[state->config].ends) {
        for (size_t i = 0; i < grammar->vocab->n_end_tokens; i++) {
            uint32_t id = (uint32_t)grammar->vocab->end_tokens[i];
            bits[id / 32] |= (uint32_t)1 << id % 32;
        }
    }
    return TRM_OK;
}

TRM_CALL(NULL, trm_grammar_state_mask, (trm_grammar_state *state, uint32_t *bits), (state, bits))
{
    if (state == NULL || bits == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_grammar_state_mask needs a state and an output argument");
    }
    pthread_mutex_lock(&state->grammar->lock);
    trm_status status = fill_mask(state, bits);
    pthread_mutex_unlock(&state->grammar->lock);
    return status;
}

bool trm_grammar_state_is_complete(const trm_grammar_state *state)
{
    pthread_mutex_lock(&state->grammar->lock);
    bool complete = state->ended || state->grammar->pushdown.configs[state->config].ends;
    pthread_mutex_unlock(&state->grammar->lock);
    return complete;
}

bool trm_grammar_state_is_final(const trm_grammar_state *state)
{
    pthread_mutex_lock(&state->grammar->lock);
    const trm_grammar_config *config = &state->grammar->pushdown.configs[state->config];
    bool final = state->ended || (config->ends && config->n_items == 0);
    pthread_mutex_unlock(&state->grammar->lock);
    return final;
}

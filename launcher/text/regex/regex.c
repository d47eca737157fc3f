/* Regular expressions of tokenizer files, run by PCRE2. */
#include "launcher/text/regex/regex.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"

#define LONGEST_PATTERN ((size_t)64 << 10)
#define DEEPEST_NESTING 100
#define MATCH_LIMIT     10000000u
#define HEAP_LIMIT_KIB  (64u << 10)
#define JIT_STACK_FIRST ((size_t)64 << 10)
#define JIT_STACK_LAST  ((size_t)4 << 20)

struct trm_regex {
    pcre2_code *code;
    char *pattern; /* as in the file, for errors */
    trm_regex *next;
};

/* State of a match besides the compiled code; one per thread, shared by all its regexes. */
typedef struct match_state {
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
} match_state;

static pthread_key_t state_key;
static pthread_once_t state_once = PTHREAD_ONCE_INIT;
static int state_key_error;

static void state_destroy(void *value)
{
    match_state *state = value;
    if (state != NULL) {
        pcre2_match_data_free(state->data);
        pcre2_match_context_free(state->context);
        pcre2_jit_stack_free(state->stack);
        free(state);
    }
}

static void state_key_create(void)
{
    state_key_error = pthread_key_create(&state_key, state_destroy);
}

/* Keys run no destructor on the thread that unloads the library or leaves main: without this, its state would be a
 * leak. */
__attribute__((destructor)) static void state_key_delete(void)
{
    pthread_once(&state_once, state_key_create);
    if (state_key_error == 0) {
        state_destroy(pthread_getspecific(state_key));
        pthread_setspecific(state_key, NULL);
    }
}

static match_state *thread_state(void)
{
    pthread_once(&state_once, state_key_create);
    match_state *state = state_key_error == 0 ? pthread_getspecific(state_key) : NULL;
    if (state == NULL && state_key_error == 0) {
        state = calloc(1, sizeof(*state));
        if (state != NULL) {
            state->data = pcre2_match_data_create(1, NULL);
            state->context = pcre2_match_context_create(NULL);
            state->stack = pcre2_jit_stack_create(JIT_STACK_FIRST, JIT_STACK_LAST, NULL);
            if (state->data == NULL || state->context == NULL || pthread_setspecific(state_key, state) != 0) {
                state_destroy(state);
                state = NULL;
            }
        }
        if (state != NULL) {
            pcre2_set_match_limit(state->context, MATCH_LIMIT);
            pcre2_set_heap_limit(state->context, HEAP_LIMIT_KIB);
            if (state->stack != NULL) {
                pcre2_jit_stack_assign(state->context, NULL, state->stack);
            }
        }
    }
    if (state == NULL) {
        trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the state of a regex match");
    }
    return state;
}

static pcre2_code *compile(const char *pattern, size_t size, int *error, size_t *offset)
{
    *error = 0;
    *offset = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL) {
        return NULL;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF); /* the line ends of . ^ and $ in Oniguruma */
    pcre2_set_parens_nest_limit(context, DEEPEST_NESTING);
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)pattern, size, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                      error, offset, context);
    pcre2_compile_context_free(context);
    return code;
}

static trm_status create(const char *shown, const char *pattern, size_t size, trm_regex **regex)
{
    int error;
    size_t offset;
    pcre2_code *code = compile(pattern, size, &error, &offset);
    if (code == NULL) {
        char reason[160] = "out of memory";
        if (error != 0) {
            pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof(reason));
        }
        TRM_FAIL(error == 0 ? TRM_ERROR_OUT_OF_MEMORY : TRM_ERROR_INVALID_MODEL,
                 "regex \"%.200s\" does not compile: %s", shown, reason);
    }
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* without JIT the interpreter runs it */
    trm_regex *created = calloc(1, sizeof(*created));
    if (created != NULL) {
        created->pattern = strdup(shown);
    }
    if (created == NULL || created->pattern == NULL) {
        free(created);
        pcre2_code_free(code);
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a regex");
    }
    created->code = code;
    *regex = created;
    return TRM_OK;
}

trm_status trm_regex_compile(const char *pattern, trm_regex **regex)
{
    if (strlen(pattern) > LONGEST_PATTERN) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "a regex has %zu bytes, expected at most %zu", strlen(pattern),
                 LONGEST_PATTERN);
    }
    trm_bytes translated = {0};
    trm_status status = trm_regex_translate(pattern, &translated);
    if (status == TRM_OK) {
        status = create(pattern, translated.data, translated.size, regex);
    }
    trm_bytes_fini(&translated);
    return status;
}

trm_status trm_regex_compile_own(const char *pattern, trm_regex **regex)
{
    return create(pattern, pattern, strlen(pattern), regex);
}

bool trm_regex_compiles(const char *pattern)
{
    int error;
    size_t offset;
    pcre2_code *code = compile(pattern, strlen(pattern), &error, &offset);
    pcre2_code_free(code);
    return code != NULL;
}

void trm_regex_keep(trm_regex **list, trm_regex *regex)
{
    regex->next = *list;
    *list = regex;
}

void trm_regex_destroy(trm_regex *list)
{
    while (list != NULL) {
        trm_regex *next = list->next;
        pcre2_code_free(list->code);
        free(list->pattern);
        free(list);
        list = next;
    }
}

trm_status trm_regex_find(const trm_regex *regex, const char *text, size_t size, size_t from, bool *found,
                          size_t *begin, size_t *end)
{
    match_state *state = thread_state();
    if (state == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    int result =
        pcre2_match(regex->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK, state->data, state->context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
        result = pcre2_match(regex->code, (PCRE2_SPTR)text, size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state->data,
                             state->context);
    }
    *found = result >= 0;
    if (result >= 0) {
        const size_t *ends = pcre2_get_ovector_pointer(state->data);
        *begin = ends[0];
        *end = ends[1];
        if (*begin > *end || *begin < from) {
            TRM_FAIL(TRM_ERROR_UNSUPPORTED, "regex \"%.200s\" matches backwards", regex->pattern);
        }
        return TRM_OK;
    }
    if (result == PCRE2_ERROR_NOMATCH) {
        return TRM_OK;
    }
    char reason[160] = "unknown error";
    pcre2_get_error_message(result, (PCRE2_UCHAR *)reason, sizeof(reason));
    TRM_FAIL(result == PCRE2_ERROR_NOMEMORY ? TRM_ERROR_OUT_OF_MEMORY : TRM_ERROR_INVALID_MODEL,
             "regex \"%.200s\" fails on a text of %zu bytes: %s", regex->pattern, size, reason);
}

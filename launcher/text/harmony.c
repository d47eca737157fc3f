/* Reads replies in the harmony format. */
#include "launcher/text/harmony.h"

#include <string.h>

#define LONGEST_HEADER ((size_t)512) /* bytes; a longer one is text */
#define LONGEST_WORD   ((size_t)64)  /* of a channel, role or type */

typedef enum mark { MARK_NONE, MARK_START, MARK_CHANNEL, MARK_CONSTRAIN, MARK_MESSAGE, MARK_END } mark;

static const struct {
    const char *text;
    mark mark;
} marks[] = {{"<|start|>", MARK_START},     {"<|channel|>", MARK_CHANNEL}, {"<|constrain|>", MARK_CONSTRAIN},
             {"<|message|>", MARK_MESSAGE}, {"<|end|>", MARK_END},         {"<|return|>", MARK_END},
             {"<|call|>", MARK_END}};

/* The mark at a position; *part: the text ends within what may become one. */
static mark find_mark(const char *text, size_t at, size_t size, size_t *length, bool *part)
{
    const size_t rest = size - at;
    *part = false;
    for (size_t i = 0; text[at] == '<' && i < sizeof(marks) / sizeof(marks[0]); i++) {
        *length = strlen(marks[i].text);
        if (memcmp(text + at, marks[i].text, rest < *length ? rest : *length) == 0) {
            if (rest >= *length) {
                return marks[i].mark;
            }
            *part = true;
        }
    }
    return MARK_NONE;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* A part of the text. */
typedef struct span {
    size_t begin, end;
} span;

static bool is_word(const char *text, span word, const char *expected)
{
    const size_t length = strlen(expected);
    return word.end - word.begin == length && memcmp(text + word.begin, expected, length) == 0;
}

static bool begins_with(const char *text, span word, const char *expected)
{
    const size_t length = strlen(expected);
    return word.end - word.begin >= length && memcmp(text + word.begin, expected, length) == 0;
}

/* Whether a word that goes on may begin with `expected`. */
static bool may_begin(const char *text, span word, const char *expected)
{
    const size_t length = word.end - word.begin;
    return length < strlen(expected) && memcmp(text + word.begin, expected, length) == 0;
}

/* A header while it is read. */
typedef struct header {
    bool marked;             /* it has a mark; without one the text is not a header */
    mark expects;            /* the mark whose word comes next */
    span channel, recipient; /* empty: none */
    span rest;               /* the first word that belongs to no mark */
    int32_t n_rest;          /* such words */
} header;

typedef enum header_end {
    HEADER_SHORT, /* the text ends within the header */
    HEADER_BODY,  /* a message's text begins */
    HEADER_EMPTY  /* the header ends without a message */
} header_end;

static void take_word(header *h, const char *text, span word)
{
    if (begins_with(text, word, "to=")) {
        h->recipient = (span){word.begin + strlen("to="), word.end};
    } else if (h->expects != MARK_NONE && word.end - word.begin <= LONGEST_WORD) {
        h->channel = h->expects == MARK_CHANNEL ? word : h->channel; /* otherwise a role or a type of text */
        h->expects = MARK_NONE;
    } else {
        h->rest = h->n_rest++ == 0 ? word : h->rest;
    }
}

/* Ends a header that no text follows as it should: words that are not the header's own are text. `at`: where the header
 * ends; *next: where the text or the next header begins. */
static header_end end_early(header *h, const char *text, size_t begin, size_t at, size_t *next)
{
    size_t first = begin;
    while (first < at && is_space(text[first])) {
        first++;
    }
    const bool called = h->recipient.end > h->recipient.begin;
    if (!h->marked && first < at) {
        *h = (header){.marked = false};
        *next = begin;
        return HEADER_BODY;
    }
    if (h->n_rest > (called ? 1 : 0)) { /* the one word is the type of the arguments */
        h->recipient = (span){0, 0};
        *next = h->rest.begin;
        return HEADER_BODY;
    }
    *next = at;
    return HEADER_EMPTY;
}

static size_t word_end(const char *text, size_t at, size_t end)
{
    size_t i = at + 1;
    while (i < end && !is_space(text[i]) && text[i] != '<' && text[i] != '{') {
        i++;
    }
    return i;
}

/* Reads the header that begins at `begin`. *next: where the text, or what follows the header, begins. */
static header_end read_header(header *h, const char *text, size_t begin, size_t size, bool at_end, size_t *next)
{
    const size_t limit = begin + LONGEST_HEADER, end = size < limit ? size : limit;
    size_t at = begin, length = 0;
    *h = (header){.marked = false};
    while (at < end) {
        bool part;
        const mark found = find_mark(text, at, size, &length, &part);
        if (is_space(text[at])) {
            at++;
        } else if (part && !at_end) {
            return HEADER_SHORT;
        } else if (found == MARK_MESSAGE) {
            *next = at + length;
            return HEADER_BODY;
        } else if (found == MARK_END) {
            const header_end how = end_early(h, text, begin, at, next);
            *next += how == HEADER_EMPTY ? length : 0;
            return how;
        } else if (found == MARK_START && h->marked) {
            return end_early(h, text, begin, at, next);
        } else if (found != MARK_NONE) {
            h->marked = true;
            h->expects = found;
            at += length;
        } else if (text[at] == '{' && h->marked) { /* <|message|> is missing */
            *next = at;
            return HEADER_BODY;
        } else {
            const span word = {at, word_end(text, at, end)};
            const bool cut = word.end == size && size < limit && !at_end;
            if (!h->marked && !begins_with(text, word, "to=") && !(cut && may_begin(text, word, "to="))) {
                *next = begin; /* no header */
                return HEADER_BODY;
            }
            if (cut) {
                return HEADER_SHORT;
            }
            take_word(h, text, word);
            at = word.end;
        }
    }
    if (at < limit && !at_end) {
        return HEADER_SHORT;
    }
    if (at >= limit && h->n_rest == 0) { /* text from here on */
        *next = at;
        return HEADER_BODY;
    }
    return end_early(h, text, begin, at, next);
}

/* What a message is, and the name of its function. */
static harmony_kind kind_of(const header *h, const char *text, span *name)
{
    const bool analysis = is_word(text, h->channel, "analysis");
    const bool addressed = h->recipient.end > h->recipient.begin && !is_word(text, h->recipient, "assistant");
    const bool function = begins_with(text, h->recipient, "functions.");
    *name = h->recipient;
    if (function) {
        name->begin += strlen("functions.");
        return HARMONY_CALL;
    }
    return analysis ? HARMONY_REASONING : addressed ? HARMONY_CALL : HARMONY_CONTENT; /* built-in tools are analysis */
}

/* The end of a message's text: at a mark, at what may become one, or at the text's end. */
static size_t body_end(const char *text, size_t at, size_t size, bool at_end, mark *ending, size_t *length)
{
    for (; at < size; at++) {
        const char *found = memchr(text + at, '<', size - at);
        if (found == NULL) {
            break;
        }
        bool part;
        at = (size_t)(found - text);
        *ending = find_mark(text, at, size, length, &part);
        if (*ending == MARK_START || *ending == MARK_CHANNEL || *ending == MARK_END || (part && !at_end)) {
            return at;
        }
    }
    *ending = MARK_NONE;
    return size;
}

/* Reads on in a message's text. Returns whether there is a piece of it. */
static bool read_body(harmony_reader *r, const char *text, size_t size, bool at_end, harmony_piece *piece)
{
    mark ending;
    size_t length = 0;
    piece->kind = r->kind;
    piece->begin = r->at;
    piece->end = r->at = body_end(text, r->at, size, at_end, &ending, &length);
    for (size_t i = piece->begin; i < piece->end; i++) {
        r->blank = r->blank && is_space(text[i]);
    }
    const bool ends = ending != MARK_NONE || at_end, call = r->kind == HARMONY_CALL;
    piece->begins = !r->begun;
    piece->blank = call && ends && r->blank;
    piece->call = r->n_calls - 1;
    const bool any = piece->end > piece->begin || piece->blank || (call && piece->begins);
    r->begun = r->begun || any;
    if (ends) {
        r->in_body = false;
        r->at += ending == MARK_END ? length : 0; /* other marks begin the next header */
    }
    return any;
}

bool harmony_is_written(const trm_chat_template *chat)
{
    return trm_chat_template_mentions(chat, "<|channel|>final<|message|>");
}

bool harmony_next(harmony_reader *reader, const char *text, size_t size, bool at_end, harmony_piece *piece)
{
    while (reader->in_body || reader->at < size) {
        *piece = (harmony_piece){.begin = 0};
        if (!reader->in_body) {
            header h;
            span name;
            size_t next;
            const header_end how = read_header(&h, text, reader->at, size, at_end, &next);
            if (how == HEADER_SHORT) {
                return false;
            }
            reader->at = next;
            if (how == HEADER_EMPTY) {
                continue;
            }
            reader->kind = kind_of(&h, text, &name);
            reader->in_body = reader->blank = true;
            reader->begun = false;
            if (reader->kind == HARMONY_CALL) {
                reader->n_calls++;
                piece->name = name.begin;
                piece->name_size = name.end - name.begin;
            }
        }
        if (read_body(reader, text, size, at_end, piece)) {
            return true;
        }
        if (reader->in_body) {
            return false;
        }
    }
    return false;
}

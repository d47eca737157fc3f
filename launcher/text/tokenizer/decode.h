/*
 * Decoders: from token strings back to text, as a stream. A decoder is a chain of steps; each takes tokens one by one
 * and passes tokens on. A step that fuses its tokens passes on pieces of one continuous token instead, on which later
 * steps work. Text leaves the chain as soon as no later token can change it, so decoding a list and decoding a stream
 * are the same code.
 */
#ifndef TRM_LAUNCHER_TEXT_TOKENIZER_DECODE_H
#define TRM_LAUNCHER_TEXT_TOKENIZER_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <trireme/status.h>

#include "launcher/text/strings/buffer.h"
#include "launcher/text/tokenizer/loader.h"
#include "launcher/text/tokenizer/pretokenize.h"

typedef enum trm_decode_kind {
    TRM_DECODE_JOIN, /* no decoder: spaces between tokens */
    TRM_DECODE_BYTE_LEVEL,
    TRM_DECODE_METASPACE,
    TRM_DECODE_WORDPIECE,
    TRM_DECODE_BYTE_FALLBACK,
    TRM_DECODE_FUSE,
    TRM_DECODE_STRIP,
    TRM_DECODE_REPLACE,
    TRM_DECODE_BPE,
    TRM_DECODE_CTC
} trm_decode_kind;

typedef struct trm_decode_step {
    trm_decode_kind kind;
    const char *text;           /* WordPiece: prefix; Replace: content; BPE: suffix; CTC: pad token */
    const char *delimiter;      /* CTC: between words */
    trm_pattern pattern;        /* Replace */
    int32_t character;          /* Metaspace, Strip */
    size_t start, stop;         /* Strip: maximum number of characters to cut */
    trm_prepend_scheme prepend; /* Metaspace */
    bool cleanup;               /* WordPiece, CTC */
    bool fused;                 /* its input is one continuous token */
} trm_decode_step;

typedef struct trm_decode_steps {
    trm_decode_step *items; /* never empty after loading */
    size_t count, capacity;
} trm_decode_steps;

/* Loads the member "decoder" (NULL: none), sequences flattened. UNSUPPORTED naming an unknown type. */
trm_status trm_decode_steps_load(const trm_text_loader *loader, const trm_json *json, trm_decode_steps *steps);
void trm_decode_steps_fini(trm_decode_steps *steps);

/* The state of one step. */
typedef struct trm_decode_state {
    size_t count;        /* number of tokens, or of characters cut */
    size_t mark;         /* ByteFallback: bytes of `pending` that form whole characters */
    trm_bytes pending;   /* text that is not settled yet */
    trm_bytes collected; /* the continuous token, for steps that need it whole */
    trm_bytes scratch;
    bool started, broken;
} trm_decode_state;

typedef struct trm_decode_stream {
    const trm_decode_steps *steps;
    trm_decode_state *states; /* [steps->count] */
    trm_bytes out;            /* settled text, which the user of the stream takes */
} trm_decode_stream;

trm_status trm_decode_stream_init(trm_decode_stream *stream, const trm_decode_steps *steps);
void trm_decode_stream_fini(trm_decode_stream *stream);
trm_status trm_decode_stream_push(trm_decode_stream *stream, const char *token, size_t size);
/* Flushes text held back and resets the stream. */
trm_status trm_decode_stream_finish(trm_decode_stream *stream);

#endif

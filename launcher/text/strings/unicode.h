/*
 * Properties of code points and normal forms, by utf8proc (Unicode 15), adapted to the older and newer tables of the
 * tokenizers library: ids must be those a model was trained with.
 */
#ifndef TRM_LAUNCHER_TEXT_STRINGS_UNICODE_H
#define TRM_LAUNCHER_TEXT_STRINGS_UNICODE_H

#include <stdbool.h>
#include <stdint.h>

#include <trireme/status.h>

#include "launcher/text/strings/buffer.h"

bool trm_unicode_is_space(int32_t codepoint);           /* property White_Space */
bool trm_unicode_is_numeric(int32_t codepoint);         /* categories N* */
bool trm_unicode_is_punctuation(int32_t codepoint);     /* ASCII punctuation and symbols, categories P* */
bool trm_unicode_is_mark(int32_t codepoint);            /* categories M* */
bool trm_unicode_is_mark_nonspacing(int32_t codepoint); /* category Mn */
bool trm_unicode_is_control(int32_t codepoint);         /* categories Cc, Cf, Co */
bool trm_unicode_is_cjk_ideograph(int32_t codepoint);   /* the blocks that BERT treats as CJK */

/* Two letters such as "Lu", as utf8proc has them. */
const char *trm_unicode_category(int32_t codepoint);

/* Appends the lower case of a code point; only U+0130 becomes two. */
trm_status trm_unicode_append_lower(trm_bytes *out, int32_t codepoint);

typedef enum trm_normal_form { TRM_NFC, TRM_NFD, TRM_NFKC, TRM_NFKD } trm_normal_form;
/* Appends text[size], valid UTF-8, in a normal form. */
trm_status trm_unicode_append_normal(trm_bytes *out, const char *text, size_t size, trm_normal_form form);

/* Whether a grapheme cluster may end between two code points; `state` starts at 0 and is passed along a text. */
bool trm_unicode_breaks(int32_t before, int32_t after, int32_t *state);

#endif

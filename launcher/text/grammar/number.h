/*
 * Numbers between bounds.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_NUMBER_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_NUMBER_H

#include "launcher/text/grammar/json_grammar.h"

typedef struct trm_grammar_bounds {
    double min, max; /* -INFINITY and INFINITY: unbounded */
    bool min_exclusive, max_exclusive;
} trm_grammar_bounds;

/* Decimals within the bounds with up to 15 digits before the point; matches nothing if no such number exists. */
trm_grammar_node *trm_grammar_number_range(trm_grammar_json *json, const trm_grammar_bounds *bounds);

#endif

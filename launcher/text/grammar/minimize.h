/*
 * States that no text of up to TRM_GRAMMAR_NEAR bytes distinguishes, such as those of a string of 100 and of 90 more
 * characters. Masks of short tokens are the same for them, so one mask serves all.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_MINIMIZE_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_MINIMIZE_H

#include "launcher/text/grammar/automaton.h"

#define TRM_GRAMMAR_NEAR 16 /* bytes; few tokens are longer */

/* Fills automaton->alike: for each state the first equivalent one, or itself if finding out would take too long. */
trm_status trm_grammar_find_alike(trm_grammar_automaton *automaton);

#endif

/*
 * States that nothing of TRM_GRAMMAR_NEAR bytes tells apart, such as those of a string of 100 and of 90 characters
 * more. Masks of short tokens are the same for them, so one is made for all.
 */
#ifndef TRM_LAUNCHER_TEXT_GRAMMAR_MINIMIZE_H
#define TRM_LAUNCHER_TEXT_GRAMMAR_MINIMIZE_H

#include "launcher/text/grammar/automaton.h"

#define TRM_GRAMMAR_NEAR 16 /* bytes; few tokens are longer */

/* Fills automaton->alike: for each state the first one like it, itself where that would take too long to find out. */
trm_status trm_grammar_find_alike(trm_grammar_automaton *automaton);

#endif

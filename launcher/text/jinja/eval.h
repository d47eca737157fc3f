/*
 * Renders a template: runs the syntax tree over values, with limits on steps, depth, memory and output.
 */
#ifndef TRM_LAUNCHER_TEXT_JINJA_EVAL_H
#define TRM_LAUNCHER_TEXT_JINJA_EVAL_H

#include "launcher/text/jinja/parser.h"
#include "launcher/text/jinja/value.h"

/* Prepares a rendering; its memory lives until trm_jinja_run_fini. */
void trm_jinja_run_init(trm_jinja_run *run, const char *name);
void trm_jinja_run_fini(trm_jinja_run *run);
/* Appends the output of the statements. `globals` is a MAP of variables. INVALID_ARGUMENT with the line. */
trm_status trm_jinja_render(trm_jinja_run *run, const trm_jinja_node *statements, const trm_jinja_map *globals,
                            trm_bytes *out);

#endif

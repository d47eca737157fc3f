/*
 * The language models of `trireme serve`: their names, what the front end reads of each, and the commands of their
 * jobs.
 */
#ifndef TRM_LAUNCHER_CLI_SERVE_MODELS_H
#define TRM_LAUNCHER_CLI_SERVE_MODELS_H

#include "launcher/cli/settings/settings.h"
#include "launcher/serve/http/server.h"

/* The command line of a job. */
typedef struct command_line {
    char **words; /* [n], and NULL */
    int32_t n, capacity;
} command_line;

/* Zero before serve_models_name; the owner calls serve_model_close. */
typedef struct serve_model {
    char name[SERVER_LONGEST_NAME + 1];
    const char *operand;            /* the folder, or the name in the local cache, as it was given */
    const char *adapters[MAX_LIST]; /* [n_adapters] NAME=FOLDER */
    int32_t n_adapters;
    trm_model *model;
    trm_model_info info;
    trm_tokenizer *tokenizer;
    trm_chat_template *chat; /* NULL: none */
    grammar_cache *grammars;
    trm_embedding pooling;
    command_line jobs[ROUTER_MAX_REPLICAS]; /* [n_replicas] */
    int32_t n_replicas;
} serve_model;

/* Names the models of the operands, [NAME=]MODEL, and gives each its adapters. INVALID_ARGUMENT: a name is given twice,
 * or an option is for one model only. */
trm_status serve_models_name(const settings *all, serve_model *models, int32_t n);
/* Opens a named model without its weights, and makes the commands of its jobs. */
trm_status serve_model_open(serve_model *m, const settings *all, int32_t ranks, log_writer *log);
/* LoRA adapters that have room in its jobs. */
int32_t serve_model_adapters(const serve_model *m, const settings *all);
void serve_model_close(serve_model *m);

#endif

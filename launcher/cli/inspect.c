/* `trireme inspect`: a model, its network after each stage, its memory per rank, the system, the settings. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/unit.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/job/report.h"
#include "launcher/cli/job/stalls.h"
#include "launcher/cli/onnx/job.h"

typedef struct system_output {
    report report;
    const char *group;
    int32_t item;
} system_output;

/* The value for people: "free memory 79.2 GiB" of free_memory_bytes. */
static void print_fact(const trm_system_fact *fact, bool with_name, int width)
{
    char name[64];
    size_t length = strlen(fact->name);
    const bool is_size = length > 6 && strcmp(fact->name + length - 6, "_bytes") == 0;
    snprintf(name, sizeof(name), "%.*s", (int)(is_size ? length - 6 : length), fact->name);
    for (char *c = name; *c != '\0'; c++) {
        *c = *c == '_' ? ' ' : *c;
    }
    if (with_name) {
        printf("%-*s ", width, name);
    }
    if (fact->is_number && is_size) {
        printf("%s", trm_size_text((double)fact->number).text);
    } else if (fact->is_number) {
        printf("%lld", (long long)fact->number);
    } else {
        printf("%s", fact->text != NULL ? fact->text : "none");
    }
}

/* A line for each fact of a group, and for each item of a list. */
static void print_system_fact(void *user, const trm_system_fact *fact)
{
    system_output *s = user;
    const bool is_list = fact->item >= 0, same_group = strcmp(s->group, fact->group) == 0;
    const bool same_item = is_list && same_group && s->item == fact->item;
    if (!same_item && *s->group != '\0') {
        putchar('\n');
    }
    if (!same_group) {
        printf("%s%s\n", *s->group == '\0' ? "" : "\n",
               strcmp(fact->group, "numa_nodes") == 0 ? "NUMA nodes" : fact->group);
    }
    printf("%s", same_item ? ", " : "  ");
    if (fact->name == NULL) {
        printf("none");
    } else {
        print_fact(fact, !is_list || same_item, is_list ? 0 : 24);
    }
    s->group = fact->group;
    s->item = fact->item;
}

static void report_system_fact(void *user, const trm_system_fact *fact)
{
    system_output *s = user;
    const bool same_group = strcmp(s->group, fact->group) == 0, is_list = fact->item >= 0 || fact->name == NULL;
    const bool same_item = same_group && s->item == fact->item;
    if (*s->group != '\0' && s->item >= 0 && !same_item) {
        report_close(&s->report);
    }
    if (!same_group) {
        if (*s->group != '\0') {
            report_close(&s->report);
        }
        report_open(&s->report, fact->group, is_list ? '[' : '{');
    }
    if (fact->item >= 0 && !same_item) {
        report_open(&s->report, NULL, '{');
    }
    s->group = fact->group;
    s->item = fact->item;
    if (fact->is_number) {
        report_integer(&s->report, fact->name, fact->number);
    } else if (fact->name != NULL) {
        report_text(&s->report, fact->name, fact->text);
    }
}

static int inspect_system(const settings *all)
{
    system_output s = {.group = ""};
    if (settings_flag(all, SETTING_JSON)) {
        report_begin(&s.report, stdout);
        trm_system_describe(report_system_fact, &s);
        report_end(&s.report);
    } else {
        trm_system_describe(print_system_fact, &s);
        putchar('\n');
    }
    return 0;
}

/* ---- what a decode step reads --------------------------------------------------------------------- */

static const int32_t step_tokens[] = {1, 8, 32, 128};
#define N_STEPS (sizeof(step_tokens) / sizeof(step_tokens[0]))

typedef struct step_reads {
    double experts;    /* of each layer, on average if routers choose evenly */
    double bytes;      /* of weights */
    double token_rate; /* at most, on one GPU; 0 without a GPU */
} step_reads;

static step_reads reads_of(const trm_model_experts *e, int32_t tokens, double memory_rate)
{
    step_reads r = {.bytes = (double)e->active_bytes};
    if (e->n_experts > 0) {
        const double all = (double)e->n_experts, chosen = (double)e->experts_per_token;
        r.experts = all * (1.0 - pow(1.0 - chosen / all, tokens));
        r.bytes += (double)e->expert_bytes * (r.experts - chosen) / all;
    }
    r.token_rate = memory_rate * tokens / r.bytes;
    return r;
}

static void print_experts(const trm_model_experts *e)
{
    printf("  experts         %lld of width %lld in %lld layer%s, %lld chosen per token", (long long)e->n_experts,
           (long long)e->expert_width, (long long)e->expert_layers, e->expert_layers == 1 ? "" : "s",
           (long long)e->experts_per_token);
    if (e->shared_width > 0) {
        printf(", shared ones of width %lld", (long long)e->shared_width);
    }
    printf("\n  active          %s parameters per token\n", trm_count_text(e->active_parameters).text);
}

static void print_reads(const trm_model_experts *e)
{
    const double memory_rate = trm_system_memory_rate(0);
    printf("  a decode step   %6s  %s%12s%s\n", "tokens", e->n_experts > 0 ? "  experts read  " : "", "weights read",
           memory_rate > 0 ? "  at most, tok/s" : "");
    for (size_t i = 0; i < N_STEPS; i++) {
        const step_reads r = reads_of(e, step_tokens[i], memory_rate);
        printf("                  %6d", step_tokens[i]);
        if (e->n_experts > 0) {
            printf("  %6.1f of %4lld", r.experts, (long long)e->n_experts);
        }
        printf("  %12s", trm_size_text(r.bytes).text);
        if (memory_rate > 0) {
            printf("  %14.0f", r.token_rate);
        }
        putchar('\n');
    }
    if (memory_rate > 0) {
        printf("                  one GPU, %.0f GB/s of memory at its highest clock; the cache is not counted\n",
               memory_rate * 1e-9);
    }
}

static void report_experts(report *r, const trm_model_experts *e)
{
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"n_experts", e->n_experts},         {"experts_per_token", e->experts_per_token},
                   {"expert_width", e->expert_width},   {"shared_width", e->shared_width},
                   {"expert_layers", e->expert_layers}, {"active_parameters", e->active_parameters},
                   {"active_bytes", e->active_bytes},   {"expert_bytes", e->expert_bytes}};
    for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
        report_integer(r, numbers[k].key, numbers[k].value);
    }
}

static void report_reads(report *r, const trm_model_experts *e)
{
    const double memory_rate = trm_system_memory_rate(0);
    if (memory_rate > 0) {
        report_number(r, "gpu_memory_bytes_per_second", memory_rate);
    }
    report_open(r, "decode_steps", '[');
    for (size_t i = 0; i < N_STEPS; i++) {
        const step_reads reads = reads_of(e, step_tokens[i], memory_rate);
        report_open(r, NULL, '{');
        report_integer(r, "tokens", step_tokens[i]);
        report_number(r, "experts_read", reads.experts);
        report_integer(r, "weight_bytes", (int64_t)llround(reads.bytes));
        if (memory_rate > 0) {
            report_number(r, "roof_tokens_per_second", reads.token_rate);
        }
        report_close(r);
    }
    report_close(r);
}

/* ---- a model --------------------------------------------------------------------------------------- */

static void print_model(const trm_model *model, const trm_model_experts *experts)
{
    trm_model_info i;
    trm_model_get_info(model, &i);
    printf("%s\n  architecture    %s (%s)\n  parameters      %s, %s as stored (%s)\n", i.path, i.architecture,
           i.model_type, trm_count_text(i.parameters).text, trm_size_text((double)i.weight_bytes).text,
           trm_dtype_name(i.weight_dtype));
    printf("  layers          %lld\n  hidden          %lld, MLP %lld\n", (long long)i.layers, (long long)i.hidden,
           (long long)i.intermediate);
    if (experts->n_experts > 0) {
        print_experts(experts);
    }
    printf("  heads           %lld query, %lld key-value, of %lld\n  vocabulary      %lld\n  context         %lld "
           "tokens\n",
           (long long)i.heads, (long long)i.kv_heads, (long long)i.head_dim, (long long)i.vocab,
           (long long)i.context_length);
    printf("  end tokens     ");
    for (int32_t k = 0; k < i.n_eos_tokens; k++) {
        printf(" %d", i.eos_tokens[k]);
    }
    printf("%s\n", i.n_eos_tokens == 0 ? " none" : "");
    print_reads(experts);
}

static void report_model(report *r, const trm_model *model, const trm_model_experts *experts)
{
    trm_model_info i;
    trm_model_get_info(model, &i);
    report_open(r, "model", '{');
    report_text(r, "path", i.path);
    report_text(r, "architecture", i.architecture);
    report_text(r, "model_type", i.model_type);
    report_text(r, "weight_dtype", trm_dtype_name(i.weight_dtype));
    const struct {
        const char *key;
        int64_t value;
    } numbers[] = {{"parameters", i.parameters},
                   {"weight_bytes", i.weight_bytes},
                   {"layers", i.layers},
                   {"hidden", i.hidden},
                   {"intermediate", i.intermediate},
                   {"heads", i.heads},
                   {"kv_heads", i.kv_heads},
                   {"head_dim", i.head_dim},
                   {"vocab", i.vocab},
                   {"context_length", i.context_length},
                   {"bos_token", i.bos_token}};
    for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
        report_integer(r, numbers[k].key, numbers[k].value);
    }
    report_experts(r, experts);
    report_open(r, "eos_tokens", '[');
    for (int32_t k = 0; k < i.n_eos_tokens; k++) {
        report_integer(r, NULL, i.eos_tokens[k]);
    }
    report_close(r);
    report_reads(r, experts);
    report_close(r);
}

typedef struct stage_printer {
    const char *wanted;
    char *text; /* of the requested stage */
} stage_printer;

static void keep_stage(void *user, const char *stage, const trm_network *network)
{
    stage_printer *printer = user;
    if (printer->wanted != NULL && strcmp(stage, printer->wanted) == 0 && printer->text == NULL) {
        printer->text = trm_network_to_text(network);
    }
}

/* Plans the model for one rank. The plan may be NULL on failure. */
static trm_status plan_rank(const settings *all, trm_model *model, int32_t rank, stage_printer *printer,
                            trm_plan **plan, int64_t *tokens)
{
    trm_dtype dtype;
    TRM_TRY(job_dtype(all, &dtype));
    trm_build_options options = {.size = sizeof(options), .rank = rank, .on_stage = keep_stage, .stage_user = printer};
    TRM_TRY(job_backend(all, &options.backend));
    int32_t ranks = (int32_t)settings_integer(all, SETTING_RANKS);
    if (rank >= ranks) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "rank is %d, expected less than %d (--ranks)", rank, ranks);
    }
    TRM_TRY(trm_mesh_parse(settings_text(all, SETTING_MESH), ranks, &options.mesh));
    TRM_TRY(job_check_sharing(all, &options.mesh));
    trm_generator_options limits = TRM_GENERATOR_OPTIONS_INIT;
    limits.dtype = dtype;
    TRM_TRY(job_cache_dtype(all, &limits.cache_dtype));
    limits.max_context = settings_integer(all, SETTING_CONTEXT);
    limits.max_sequences = (int32_t)settings_integer(all, SETTING_SEQUENCES);
    limits.max_step_tokens = (int32_t)settings_integer(all, SETTING_STEP_TOKENS);
    TRM_TRY(job_budget(all, &limits.weight_budget));
    limits.expert_profile = job_expert_profile(all);
    return trm_generator_plan(model, &limits, &options, plan, tokens);
}

static void print_memory(const trm_memory_plan *m, const trm_streaming_info *streaming, const stall_list *stalls,
                         int32_t rank, int64_t tokens)
{
    char text[768], rates[256];
    const trm_unit unit = trm_unit_of((double)m->total);
    printf(
        "rank %d: %.3f %s: weights %.3f, staging %.3f, cache of %lld tokens %.3f, activations %.3f, workspace %.3f\n",
        rank, (double)m->total / unit.bytes, unit.name, (double)m->weights / unit.bytes,
        (double)m->staging / unit.bytes, (long long)tokens, (double)m->state / unit.bytes,
        (double)m->activations / unit.bytes, (double)m->workspace / unit.bytes);
    describe_streaming(streaming, text, sizeof(text));
    describe_rates(streaming, 0, rates, sizeof(rates));
    if (text[0] != '\0') {
        printf("  %s, %s\n", text, rates);
    }
    describe_cpu_offload(streaming, text, sizeof(text));
    if (text[0] != '\0') {
        printf("  %s\n", text);
    }
    stall_list_print(stalls, "  waits for weights in such a step");
}

static void report_memory(report *r, const trm_memory_plan *m, const trm_streaming_info *streaming,
                          const stall_list *stalls, int32_t rank, int64_t tokens)
{
    report_open(r, NULL, '{');
    report_integer(r, "rank", rank);
    report_integer(r, "weights", (int64_t)m->weights);
    report_integer(r, "staging", (int64_t)m->staging);
    report_integer(r, "state", (int64_t)m->state);
    report_integer(r, "cache_tokens", tokens);
    report_integer(r, "activations", (int64_t)m->activations);
    report_integer(r, "workspace", (int64_t)m->workspace);
    report_integer(r, "total", (int64_t)m->total);
    report_streaming(r, streaming);
    if (streaming->on) {
        stall_list_report(stalls, r, "weight_waits");
    }
    report_close(r);
}

/* The memory plan of every rank. */
typedef struct memory_table {
    int32_t ranks; /* 0 if not requested */
    trm_memory_plan memory[TRM_MAX_RANKS];
    trm_streaming_info streaming[TRM_MAX_RANKS];
    stall_list stalls[TRM_MAX_RANKS];
    int64_t tokens; /* of the cache, on every rank */
} memory_table;

static trm_status plan_memory(const settings *all, trm_model *model, memory_table *table)
{
    for (int32_t rank = 0; rank < settings_integer(all, SETTING_RANKS); rank++) {
        stage_printer printer = {0};
        trm_plan *plan = NULL;
        TRM_TRY(plan_rank(all, model, rank, &printer, &plan, &table->tokens));
        trm_plan_streaming(plan, &table->streaming[table->ranks]);
        trm_plan_stalls(plan, stall_list_add, &table->stalls[table->ranks]);
        trm_plan_memory(plan, &table->memory[table->ranks++]);
        trm_plan_destroy(plan);
        TRM_TRY(table->stalls[rank].status);
    }
    return TRM_OK;
}

static trm_status show_model(const settings *all, const trm_model *model, const memory_table *table)
{
    trm_model_experts experts = TRM_MODEL_EXPERTS_INIT;
    TRM_TRY(trm_model_get_experts(model, &experts));
    if (!settings_flag(all, SETTING_JSON)) {
        print_model(model, &experts);
        for (int32_t rank = 0; rank < table->ranks; rank++) {
            print_memory(&table->memory[rank], &table->streaming[rank], &table->stalls[rank], rank, table->tokens);
        }
        return TRM_OK;
    }
    report r;
    report_begin(&r, stdout);
    report_model(&r, model, &experts);
    if (table->ranks > 0) {
        report_open(&r, "memory", '[');
        for (int32_t rank = 0; rank < table->ranks; rank++) {
            report_memory(&r, &table->memory[rank], &table->streaming[rank], &table->stalls[rank], rank, table->tokens);
        }
        report_close(&r);
    }
    report_end(&r);
    return TRM_OK;
}

static trm_status show_stage(const settings *all, trm_model *model, const char *stage)
{
    static const char *const stages[] = {"import", "passes", "partition", "final"};
    bool known = false;
    for (size_t i = 0; i < sizeof(stages) / sizeof(stages[0]); i++) {
        known = known || strcmp(stage, stages[i]) == 0;
    }
    if (!known) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "after is \"%s\", expected import, passes, partition or final (%s)", stage,
                 all->origins[SETTING_AFTER]);
    }
    int64_t rank = settings_integer(all, SETTING_RANK);
    stage_printer printer = {.wanted = stage};
    trm_plan *plan = NULL;
    int64_t tokens;
    TRM_TRY(plan_rank(all, model, (int32_t)rank, &printer, &plan, &tokens));
    trm_status status = TRM_OK;
    if (printer.text == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the text of a network");
    } else if (settings_flag(all, SETTING_JSON)) {
        status = report_stage(stage, rank, settings_integer(all, SETTING_RANKS), printer.text, plan);
    } else {
        fputs(printer.text, stdout);
    }
    trm_plan_destroy(plan);
    trm_free(printer.text);
    return status;
}

static trm_status inspect_model(const settings *all, const char *name)
{
    trm_model *model;
    TRM_TRY(open_model(all, name, &model));
    const char *stage = settings_text(all, SETTING_AFTER);
    trm_status status = TRM_OK;
    if (stage != NULL) {
        status = show_stage(all, model, stage);
    } else {
        memory_table table = {0};
        if (settings_flag(all, SETTING_MEMORY_PLAN)) {
            status = plan_memory(all, model, &table);
        }
        if (status == TRM_OK) {
            status = show_model(all, model, &table);
        }
        for (int32_t rank = 0; rank < TRM_MAX_RANKS; rank++) {
            stall_list_fini(&table.stalls[rank]);
        }
    }
    trm_model_close(model);
    return status;
}

/* Refuses options of a plan if none is made. A plan file is always shown whole. */
static trm_status check_planned(const settings *all)
{
    const bool has_stage = settings_text(all, SETTING_AFTER) != NULL, program = settings_flag(all, SETTING_PROGRAM);
    const bool memory = settings_flag(all, SETTING_MEMORY_PLAN);
    for (int32_t id = 0; !has_stage && !memory && !program && id < SETTING_COUNT; id++) {
        if ((settings_table[id].traits & SETTING_TRAIT_PLANNED) != 0 && settings_is_option(all, (setting_id)id)) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option %s needs a plan: add --memory-plan or --after",
                     all->origins[id]);
        }
    }
    if (!has_stage && settings_is_option(all, SETTING_RANK)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "option --rank is for --after; --memory-plan shows all ranks");
    }
    if (has_stage && settings_is_option(all, SETTING_MEMORY_PLAN)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "options --memory-plan and --after exclude each other");
    }
    if (program && (has_stage || memory)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "options --program and %s exclude each other",
                 memory ? "--memory-plan" : "--after");
    }
    return TRM_OK;
}

/* Inspecting does not ask any device for its free memory. */
static void note_auto_budget(const settings *all)
{
    const bool is_shown = settings_flag(all, SETTING_MEMORY_PLAN) || settings_text(all, SETTING_AFTER) != NULL ||
                          names_plan(all->operands[0]);
    if (is_shown && strcmp(settings_text(all, SETTING_WEIGHT_BUDGET), "auto") == 0 &&
        !settings_flag(all, SETTING_QUIET)) {
        fprintf(stderr,
                "trireme: with weight-budget auto, free memory at run time decides which weights stay on the device; "
                "this plan assumes that all fit\n");
    }
}

/* ---- the program of a decode step ---------------------------------------------------------------- */

#define PROGRAM_TOKENS 3 /* to generate: the step of the last one is shown */

static trm_status show_launches(const char *text)
{
    trm_json_document *document;
    TRM_TRY(trm_json_parse("the program", text, strlen(text), &document));
    const trm_json *program = trm_json_get(trm_json_root(document), "program");
    const char *last = "";
    for (const trm_json *launch = trm_json_first(program); launch != NULL; launch = trm_json_next(launch)) {
        const char *layer = trm_json_string(trm_json_get(launch, "layer"));
        int64_t stream = 0;
        (void)trm_json_integer(trm_json_get(launch, "stream"), &stream);
        layer = layer == NULL ? "" : layer;
        printf("%-28s", trm_json_string(trm_json_get(launch, "launch")));
        printf(" %s", strcmp(layer, last) == 0 ? "" : layer);
        printf(stream > 0 ? " (stream %d)\n" : "\n", (int)stream);
        last = layer;
    }
    printf("%zu launches\n", trm_json_count(program));
    trm_json_close(document);
    return TRM_OK;
}

static trm_status run_program(job *j)
{
    static const int32_t prompt[] = {1, 2, 3, 4};
    trm_request request = {.prompt = prompt,
                           .n_prompt = sizeof(prompt) / sizeof(prompt[0]),
                           .max_tokens = PROGRAM_TOKENS,
                           .sampling = TRM_SAMPLING_INIT,
                           .ignore_eos = true};
    TRM_TRY(trm_world_all_ok(j->world, open_model(j->all, j->all->operands[0], &j->model)));
    TRM_TRY(job_open_generator(j, settings_integer(j->all, SETTING_CONTEXT), 1));
    TRM_TRY(trm_generate(j->generator, &request, 1, NULL, NULL, NULL));
    char *text = j->is_leader ? trm_context_to_json(trm_generator_context(j->generator)) : NULL;
    trm_status status = TRM_OK;
    if (j->is_leader && text == NULL) {
        status = trm_fail(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate the text of a program");
    } else if (j->is_leader && settings_flag(j->all, SETTING_JSON)) {
        puts(text);
    } else if (j->is_leader) {
        status = show_launches(text);
    }
    trm_free(text);
    return status;
}

/* On all ranks. */
static int inspect_program(const settings *all)
{
    job j = {0};
    trm_status status = job_open_world(&j, all);
    status = status == TRM_OK ? run_program(&j) : status;
    return job_close(&j, status, false);
}

int command_inspect(const settings *all)
{
    const bool program = settings_flag(all, SETTING_PROGRAM) && !names_plan(all->operands[0]);
    if (!program && !is_first_rank()) { /* all ranks would print the same */
        return 0;
    }
    if (strcmp(all->operands[0], "config") == 0) {
        settings_print_origins(stdout, all, settings_flag(all, SETTING_JSON));
        return 0;
    }
    if (strcmp(all->operands[0], "system") == 0) {
        return inspect_system(all);
    }
    const char *name = all->operands[0];
    trm_status checked = check_operand(all);
    if (checked == TRM_OK && !names_plan(name)) {
        checked = check_planned(all);
    }
    if (checked != TRM_OK) {
        return print_failure(checked);
    }
    if (program) {
        return inspect_program(all);
    }
    note_auto_budget(all);
    trm_status status = names_plan(name)   ? plan_inspect(all, name)
                        : names_onnx(name) ? onnx_inspect(all, name)
                                           : inspect_model(all, name);
    return status == TRM_OK ? 0 : print_failure(status);
}

/* `trireme bench serve`: loads a server and reports its throughput and latency. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/unit.h"
#include "launcher/cli/commands.h"
#include "launcher/cli/job/job.h"
#include "launcher/cli/job/report.h"
#include "launcher/serve/load/load.h"

static void show_progress(void *user, int32_t done, int32_t total)
{
    (void)user;
    fprintf(stderr, "\r%d of %d%s", done, total, done == total ? "\r\033[K" : "");
    fflush(stderr);
}

static void report_summary(report *r, const char *key, const load_summary *s)
{
    report_open(r, key, '{');
    report_number(r, "mean", s->mean * 1000);
    report_number(r, "p50", s->p50 * 1000);
    report_number(r, "p90", s->p90 * 1000);
    report_number(r, "p99", s->p99 * 1000);
    report_close(r);
}

static void print_json(const load_report *done, const load_figures *f)
{
    const load_options *o = &done->options;
    report r;
    report_begin(&r, stdout);
    report_text(&r, "model", done->model);
    report_integer(&r, "requests", done->n);
    report_integer(&r, "concurrency", o->concurrency);
    report_number(&r, "rate", o->rate);
    report_text(&r, "lengths", o->spread ? "spread" : "fixed");
    report_integer(&r, "seed", (int64_t)o->seed);
    report_integer(&r, "completed", f->completed);
    report_integer(&r, "failed", f->failed);
    report_number(&r, "seconds", done->seconds);
    report_integer(&r, "prompt_tokens", f->prompt_tokens);
    report_integer(&r, "output_tokens", f->output_tokens);
    report_number(&r, "requests_per_second", f->requests_per_second);
    report_number(&r, "output_tokens_per_second", f->output_per_second);
    report_number(&r, "tokens_per_second", f->total_per_second);
    report_number(&r, "goodput_requests_per_second", f->goodput);
    report_summary(&r, "first_token_ms", &f->first);
    report_summary(&r, "per_token_ms", &f->per_token);
    report_summary(&r, "between_pieces_ms", &f->gap);
    report_summary(&r, "whole_ms", &f->whole);
    report_end(&r);
}

static void print_row(const char *name, const load_summary *s)
{
    printf("%-22s %10.2f %10.2f %10.2f %10.2f\n", name, s->mean * 1000, s->p50 * 1000, s->p90 * 1000, s->p99 * 1000);
}

static void print_figures(const load_report *done, const load_figures *f)
{
    const load_options *o = &done->options;
    printf("%s: %d requests completed, %d failed, in %.2f s\n", done->model, f->completed, f->failed, done->seconds);
    printf("%s requests/s, %s output tokens/s, %s total tokens/s\n", trm_number_text(f->requests_per_second, 2).text,
           trm_number_text(f->output_per_second, 1).text, trm_number_text(f->total_per_second, 1).text);
    if (o->goal_first > 0 || o->goal_token > 0) {
        printf("%s requests/s within the goals\n", trm_number_text(f->goodput, 2).text);
    }
    printf("%-22s %10s %10s %10s %10s\n", "ms", "mean", "p50", "p90", "p99");
    print_row("first token", &f->first);
    print_row("per later token", &f->per_token);
    print_row("between pieces", &f->gap);
    print_row("whole request", &f->whole);
}

static trm_status write_html(const char *path, const load_report *done, const load_figures *f)
{
    FILE *out = fopen(path, "w");
    if (out == NULL) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    load_write_html(out, done, f);
    if (ferror(out) != 0 || fclose(out) != 0) {
        TRM_FAIL(TRM_ERROR_IO, "cannot write %s: %s", path, strerror(errno));
    }
    return TRM_OK;
}

static trm_status run(const settings *all)
{
    load_options options = {.url = all->operands[0],
                            .model = settings_text(all, SETTING_SERVED_NAME),
                            .key = settings_text(all, SETTING_API_KEY),
                            .authorities = settings_text(all, SETTING_TLS_AUTHORITIES),
                            .requests = (int32_t)settings_integer(all, SETTING_REQUESTS),
                            .concurrency = (int32_t)settings_integer(all, SETTING_CONCURRENCY),
                            .rate = settings_number(all, SETTING_RATE),
                            .prompt_tokens = (int32_t)settings_integer(all, SETTING_PROMPT_TOKENS),
                            .output_tokens = (int32_t)settings_integer(all, SETTING_TOKENS),
                            .spread = settings_flag(all, SETTING_SPREAD),
                            .vocab = (int32_t)settings_integer(all, SETTING_IDS_BELOW),
                            .seed = (uint64_t)settings_integer(all, SETTING_SEED),
                            .goal_first = settings_number(all, SETTING_GOAL_FIRST) / 1000,
                            .goal_token = settings_number(all, SETTING_GOAL_TOKEN) / 1000};
    load_report done;
    load_figures figures;
    if (!settings_flag(all, SETTING_QUIET) && isatty(STDERR_FILENO)) {
        options.progress = show_progress;
    }
    TRM_TRY(load_run(&options, &done));
    trm_status status = load_figures_of(&done, &figures);
    if (status == TRM_OK && settings_text(all, SETTING_HTML) != NULL) {
        status = write_html(settings_text(all, SETTING_HTML), &done, &figures);
    }
    if (status == TRM_OK && settings_flag(all, SETTING_JSON)) {
        print_json(&done, &figures);
    } else if (status == TRM_OK) {
        print_figures(&done, &figures);
    }
    for (int32_t i = 0; status == TRM_OK && figures.failed > 0 && i < done.n; i++) {
        const char *error = done.results[i].error;
        if (error[0] != '\0' || !done.results[i].done) {
            status = trm_fail(TRM_ERROR_IO, "%d requests failed; request %d: %s", figures.failed, i + 1,
                              error[0] != '\0' ? error : "no text came");
        }
    }
    load_report_fini(&done);
    return status;
}

int command_bench_serve(const settings *all)
{
    trm_status status = run(all);
    return status == TRM_OK ? 0 : print_failure(status);
}

/* Decides how many draft tokens to verify. */
#include "dist/llm/scheduler/speculator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/recorder.h"

#define PRIOR       0.6f /* assumed for a draft without history */
#define WEIGHT      0.15f
#define PLAIN_FIRST 3 /* steps without drafts to time before the first with drafts */
#define LEAST_GAIN  1.03
#define GROWTH                                                                                                         \
    0.26 /* exponent of a step's time over its tokens, for sizes without times: 1.2 times the time for twice as many   \
          */
#define EXACT_SIZES   64
#define TRY_AGAIN     128 /* steps after which times that rejected drafts are measured again */
#define EARLY_SAMPLES 4   /* take the least of this many first times: a first step may initialize things */
#define SAMPLE_WEIGHT 0.15

void trm_draft_record_init(trm_draft_record *record)
{
    for (int32_t i = 0; i < TRM_DRAFT_CLASSES; i++) {
        record->right[i] = PRIOR;
    }
}

void trm_draft_record_note(trm_draft_record *record, int32_t class, int32_t n, int32_t right)
{
    for (int32_t i = 0; i < n; i++) {
        record->right[class] += WEIGHT * ((i < right ? 1.0f : 0.0f) - record->right[class]);
    }
}

TRM_CALL(NULL, trm_speculation_parse, (const char *text, trm_speculation *speculation), (text, speculation))
{
    static const struct {
        const char *name;
        trm_speculation_kind kind;
    } ways[] = {{"off", TRM_SPECULATION_OFF},
                {"lookup", TRM_SPECULATION_NGRAM},
                {"auto", TRM_SPECULATION_AUTO},
                {"mtp", TRM_SPECULATION_MTP}};
    for (size_t i = 0; text != NULL && speculation != NULL && i < sizeof(ways) / sizeof(ways[0]); i++) {
        size_t size = strlen(ways[i].name);
        if (strncmp(text, ways[i].name, size) != 0) {
            continue;
        }
        char *end = NULL;
        bool numbered = text[size] == ':' && text[size + 1] >= '0' && text[size + 1] <= '9' && i > 0;
        long tokens = numbered ? strtol(text + size + 1, &end, 10) : 0;
        if ((text[size] == '\0' || (numbered && *end == '\0' && tokens > 0)) && tokens <= TRM_MAX_DRAFT) {
            *speculation = (trm_speculation){ways[i].kind, (int32_t)tokens};
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
             "speculation is \"%s\", expected off, lookup, auto or mtp, the last three perhaps with :N, 1 to %d "
             "tokens",
             text == NULL ? "NULL" : text, TRM_MAX_DRAFT);
}

static int32_t size_of(int32_t tokens)
{
    int32_t size = tokens <= EXACT_SIZES ? tokens : EXACT_SIZES + (tokens - EXACT_SIZES + 31) / 32;
    return size < TRM_STEP_SIZES ? size : TRM_STEP_SIZES - 1;
}

/* The number of tokens that represents a size class. */
static double tokens_of(int32_t size)
{
    return size <= EXACT_SIZES ? size : EXACT_SIZES + 32 * (size - EXACT_SIZES);
}

void trm_speculator_note(trm_speculator *speculator, int32_t sequences, int32_t drafted, double seconds)
{
    trm_step_time *time =
        drafted > 0 ? &speculator->drafting[size_of(sequences + drafted)] : &speculator->plain[size_of(sequences)];
    if (time->n < EARLY_SAMPLES) {
        time->seconds = time->n == 0 || seconds < time->seconds ? seconds : time->seconds;
    } else {
        double sample = seconds < 2.0 * time->seconds ? seconds : 2.0 * time->seconds;
        time->seconds += SAMPLE_WEIGHT * (sample - time->seconds);
    }
    time->n += time->n < EARLY_SAMPLES;
    speculator->n_plain += drafted == 0 && speculator->n_plain < PLAIN_FIRST;
}

/* Seconds of a step of a size class: as timed, else interpolated between timed ones; beyond the largest it grows
 * slowly, so that larger steps are tried. 0: nothing was timed. */
static double find_seconds(const trm_step_time *times, int32_t size)
{
    int32_t below = size, above = size;
    while (below > 0 && times[below].n == 0) {
        below--;
    }
    while (above < TRM_STEP_SIZES - 1 && times[above].n == 0) {
        above++;
    }
    double x = tokens_of(size), x0 = tokens_of(below), x1 = tokens_of(above);
    if (below == above || times[above].n == 0) {
        return times[below].n == 0 ? 0.0 : times[below].seconds * pow(x / x0, GROWTH);
    }
    if (times[below].n == 0) {
        return times[above].seconds;
    }
    return times[below].seconds + (times[above].seconds - times[below].seconds) * (x - x0) / (x1 - x0);
}

/* Seconds of a step with drafts; without times, a bit more than a step without drafts. */
static double drafting_seconds(const trm_speculator *speculator, int32_t sequences, double plain, int32_t tokens)
{
    int32_t size = size_of(tokens);
    double seconds = find_seconds(speculator->drafting, size);
    bool timed = speculator->drafting[size].n > 0;
    return timed || seconds > plain ? seconds : plain * pow((double)tokens / (double)sequences, GROWTH);
}

/* Expected extra tokens of a step with at most `most` draft tokens per sequence, and the number of tokens it verifies.
 */
static double expected_gain(const trm_draft *drafts, int32_t n_drafts, int32_t most, int32_t room, int32_t *drafted)
{
    double gain = 0.0;
    *drafted = 0;
    for (int32_t i = 0; i < n_drafts; i++) {
        double likely = 1.0;
        for (int32_t k = 0; k < drafts[i].n && k < most && *drafted < room; k++, (*drafted)++) {
            likely *= (double)drafts[i].right;
            gain += likely;
        }
    }
    return gain;
}

int32_t trm_speculator_choose(trm_speculator *speculator, int32_t sequences, const trm_draft *drafts, int32_t n_drafts,
                              int32_t most, int32_t room)
{
    double plain = find_seconds(speculator->plain, size_of(sequences));
    if (speculator->n_plain < PLAIN_FIRST || plain == 0.0) {
        return 0;
    }
    int32_t best = 0;
    double best_rate = LEAST_GAIN * (double)sequences / plain;
    bool hopeful = false;
    for (int32_t k = 1; k <= most; k += k < 5 || k == 15 ? 1 : 2) {
        int32_t drafted;
        double gain = expected_gain(drafts, n_drafts, k, room, &drafted);
        double rate = ((double)sequences + gain) / drafting_seconds(speculator, sequences, plain, sequences + drafted);
        hopeful = hopeful || gain > 0.25 * (double)sequences;
        if (rate > best_rate) {
            best_rate = rate;
            best = k;
        }
    }
    speculator->declined = best == 0 && hopeful ? speculator->declined + 1 : 0;
    if (speculator->declined >= TRY_AGAIN) {
        for (int32_t i = 0; i < TRM_STEP_SIZES; i++) {
            speculator->drafting[i] = (trm_step_time){0};
        }
        speculator->declined = 0;
    }
    return best;
}

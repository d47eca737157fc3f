/* Any bytes as the lines of a timing cache, behind the name of this device: damaged ones are left out, and of the
 * others every tactic has a name and a time. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "input_file.h"
#include "kernels/tuner/tuner.h"

static trm_device *host;
static char prefix[TRM_PROBLEM_TEXT_SIZE]; /* of a line of this device */

static void ignore(void *user, trm_log_level level, const char *message)
{
    (void)user, (void)level, (void)message;
}

/* Opens the device, and takes the prefix from a file with one problem. */
static void open_host(void)
{
    static const trm_tactic tactic = {"tactic", 1.0};
    char folder[] = "/tmp/fuzz_timing_cache.XXXXXX", path[80], *text, *line;
    size_t size;
    trm_tuner *tuner;
    trm_log_set(ignore, NULL, TRM_LOG_WARNING);
    FUZZ_REQUIRE(trm_device_open(TRM_BACKEND_HOST, 0, 1, &host) == TRM_OK);
    FUZZ_REQUIRE(trm_tuner_create(host, &tuner) == TRM_OK && mkdtemp(folder) != NULL);
    FUZZ_REQUIRE(trm_tuner_record(tuner, "problem", &tactic, 1) == TRM_OK);
    snprintf(path, sizeof(path), "%s/cache", folder);
    FUZZ_REQUIRE(trm_tuner_save(tuner, path) == TRM_OK);
    FUZZ_REQUIRE(trm_file_read(path, 1 << 20, &text, &size) == TRM_OK);
    line = strchr(text, '\n');
    FUZZ_REQUIRE(line != NULL && strstr(line, "problem\t") != NULL);
    *strstr(line, "problem\t") = '\0';
    snprintf(prefix, sizeof(prefix), "%s", line + 1);
    free(text);
    (void)unlink(path);
    snprintf(path, sizeof(path), "%s/cache.lock", folder);
    (void)unlink(path);
    (void)rmdir(folder);
    trm_tuner_destroy(tuner);
}

static void check(const trm_timing *timing)
{
    FUZZ_REQUIRE(timing->n_tactics > 0 && timing->n_tactics <= TRM_MOST_TACTICS);
    for (int32_t i = 0; i < timing->n_tactics; i++) {
        FUZZ_REQUIRE(isfinite(timing->tactics[i].microseconds) && timing->tactics[i].microseconds > 0);
        FUZZ_REQUIRE(timing->tactics[i].name[0] != '\0' && strlen(timing->tactics[i].name) < TRM_TACTIC_NAME_SIZE);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    trm_tuner *tuner;
    char *text = NULL;
    size_t length = 0;
    if (host == NULL) {
        open_host();
    }
    FILE *lines = open_memstream(&text, &length);
    FUZZ_REQUIRE(lines != NULL);
    for (size_t at = 0, end; at < size; at = end) {
        const uint8_t *newline = memchr(data + at, '\n', size - at);
        end = newline != NULL ? (size_t)(newline - data) + 1 : size;
        fputs(data[at] == '#' ? "" : prefix, lines);
        fwrite(data + at, 1, end - at, lines);
    }
    FUZZ_REQUIRE(fclose(lines) == 0);
    const fuzz_file file = fuzz_file_open((const uint8_t *)text, length);
    FUZZ_REQUIRE(trm_tuner_create(host, &tuner) == TRM_OK);
    FUZZ_REQUIRE(trm_tuner_load(tuner, file.path) == TRM_OK || trm_last_error()[0] != '\0');
    for (char *line = text; line < text + length; line += strlen(line) + 1) { /* a NUL ends one, too */
        line[strcspn(line, "\n")] = '\0';
        char *tab = strchr(line, '\t');
        if (tab != NULL && strncmp(line, prefix, strlen(prefix)) == 0) {
            *tab = '\0';
            const trm_timing *timing = trm_tuner_find(tuner, line + strlen(prefix));
            *tab = '\t';
            if (timing != NULL) {
                check(timing);
            }
        }
    }
    trm_tuner_destroy(tuner);
    fuzz_file_close(&file);
    free(text);
    return 0;
}

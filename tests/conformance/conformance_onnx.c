/*
 * Runs test cases as ONNX's backend tests lay them out: folders with model.onnx and
 * test_data_set_N/{input,output}_M.pb.
 *
 *     conformance_onnx FOLDER... [--backend host|cuda] [--mesh MESH] [--only PATTERN] [--exclude FILE] [--list FILE]
 *                      [--require PERCENT] [--most-fixed N]
 *
 * Prints one line per case: ok, FAILED with what differs, unsupported with why, or excluded with the reason in FILE.
 * Cases run in a process of their own, which is started again after one that crashes or hangs, so that every case has a
 * result. The process that starts it never touches a GPU. With --mesh, under mpirun, networks are partitioned and cases
 * run in the ranks' own processes; rank 0 prints. Exit code 1 if a case failed, or fewer than PERCENT are ok: of all
 * cases, excluded ones too, but those that are excluded because they are training; or if more than N needed a tensor
 * fixed.
 */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance/onnx_case.h"

#define CASE_SECONDS 60

typedef struct exclusion {
    char *pattern, *reason;
} exclusion;

typedef struct options {
    trm_backend backend;
    const char *only, *list, *mesh; /* mesh: NULL to work in a process of its own */
    double require;
    size_t most_fixed;
    exclusion *exclusions;
    size_t n_exclusions;
} options;

typedef struct listing {
    char **paths;
    size_t n, capacity;
} listing;

/* What a worker sends for each case. */
typedef struct message {
    size_t index;
    conformance_result result;
} message;

static void *must(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return memory;
}

/* ---- cases --------------------------------------------------------------------------------------------- */

static bool is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

static void find_cases(const char *folder, int depth, listing *cases)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/model.onnx", folder);
    if (is_file(path)) {
        if (cases->n == cases->capacity) {
            cases->capacity = cases->capacity * 2 + 256;
            cases->paths = must(realloc(cases->paths, cases->capacity * sizeof(*cases->paths)));
        }
        cases->paths[cases->n++] = must(strdup(folder));
        return;
    }
    DIR *entries = depth > 0 ? opendir(folder) : NULL;
    if (entries == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        if (entry->d_name[0] != '.' && snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) > 0) {
            find_cases(path, depth - 1, cases);
        }
    }
    closedir(entries);
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* ---- exclusions ---------------------------------------------------------------------------------------- */

/* Lines of a pattern, spaces, and the reason; '#' begins a comment. */
static bool read_exclusions(const char *path, options *to)
{
    FILE *file = fopen(path, "r");
    char line[1024];
    if (file == NULL) {
        fprintf(stderr, "cannot open %s: %s\n", path, strerror(errno));
        return false;
    }
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        size_t length = strcspn(line, " \t");
        if (line[0] == '#' || length == 0) {
            continue;
        }
        const char *reason = line + length + strspn(line + length, " \t");
        to->exclusions = must(realloc(to->exclusions, (to->n_exclusions + 1) * sizeof(*to->exclusions)));
        to->exclusions[to->n_exclusions++] =
            (exclusion){must(strndup(line, length)), must(strdup(reason[0] == '\0' ? "no reason given" : reason))};
    }
    fclose(file);
    return true;
}

static const char *exclusion_of(const options *from, const char *name)
{
    for (size_t i = 0; i < from->n_exclusions; i++) {
        if (fnmatch(from->exclusions[i].pattern, name, 0) == 0) {
            return from->exclusions[i].reason;
        }
    }
    return NULL;
}

/* ---- workers ------------------------------------------------------------------------------------------- */

static void run_case(const options *with, conformance_world *world, const char *path, conformance_result *result)
{
    const char *reason = exclusion_of(with, base_name(path));
    if (reason == NULL) {
        conformance_run(world, path, result);
        return;
    }
    result->outcome = CONFORMANCE_EXCLUDED;
    snprintf(result->text, sizeof(result->text), "%s", reason);
}

static void work(const options *with, const listing *cases, size_t first, int to)
{
    conformance_world *world = NULL;
    message sent = {0};
    if (!conformance_open(with->backend, NULL, &world, &sent.result)) {
        fprintf(stderr, "%s\n", sent.result.text);
        _exit(3);
    }
    for (size_t i = first; i < cases->n; i++) {
        sent = (message){.index = i};
        run_case(with, world, cases->paths[i], &sent.result);
        if (write(to, &sent, sizeof(sent)) != (ssize_t)sizeof(sent)) {
            _exit(3);
        }
    }
    conformance_close(world);
    _exit(0);
}

/* All cases as a rank of a world; returns the rank. */
static int32_t work_here(const options *with, const listing *cases, conformance_result *results)
{
    conformance_world *world = NULL;
    if (!conformance_open(with->backend, with->mesh, &world, &results[0])) {
        fprintf(stderr, "%s\n", results[0].text);
        exit(2);
    }
    for (size_t i = 0; i < cases->n; i++) {
        run_case(with, world, cases->paths[i], &results[i]);
    }
    int32_t rank = conformance_rank(world);
    conformance_close(world);
    return rank;
}

/* One message; false at the end, or when none comes in time. */
static bool receive(int from, message *to, bool *late)
{
    size_t have = 0;
    while (have < sizeof(*to)) {
        struct pollfd wait = {.fd = from, .events = POLLIN};
        int ready = poll(&wait, 1, CASE_SECONDS * 1000);
        if (ready < 0 && errno == EINTR) {
            continue;
        }
        *late = ready == 0;
        ssize_t got = ready <= 0 ? 0 : read(from, (char *)to + have, sizeof(*to) - have);
        if (got <= 0) {
            return false;
        }
        have += (size_t)got;
    }
    return true;
}

/* Runs cases from `first` until the worker ends; returns the first one without a result. */
static size_t run_worker(const options *with, const listing *cases, size_t first, conformance_result *results)
{
    int ends[2];
    if (pipe(ends) != 0) {
        perror("pipe");
        exit(2);
    }
    fflush(NULL);
    pid_t worker = fork();
    if (worker < 0) {
        perror("fork");
        exit(2);
    }
    if (worker == 0) {
        close(ends[0]);
        work(with, cases, first, ends[1]);
    }
    close(ends[1]);
    message got;
    bool late = false;
    size_t next = first;
    while (receive(ends[0], &got, &late)) {
        results[got.index] = got.result;
        next = got.index + 1;
    }
    close(ends[0]);
    if (late) {
        kill(worker, SIGKILL);
    }
    int status = 0;
    waitpid(worker, &status, 0);
    if (next < cases->n) {
        conformance_result *result = &results[next];
        result->outcome = CONFORMANCE_FAILED;
        if (late) {
            snprintf(result->text, sizeof(result->text), "no result after %d seconds", CASE_SECONDS);
        } else if (WIFSIGNALED(status)) {
            snprintf(result->text, sizeof(result->text), "crashed: %s", strsignal(WTERMSIG(status)));
        } else if (WEXITSTATUS(status) == 3 && next == first) {
            exit(2); /* it said why */
        } else {
            snprintf(result->text, sizeof(result->text), "the process ended with exit code %d", WEXITSTATUS(status));
        }
        next++;
    }
    return next;
}

/* ---- report -------------------------------------------------------------------------------------------- */

static int report(const options *with, const listing *cases, const conformance_result *results)
{
    static const char *const words[] = {"ok", "FAILED", "unsupported", "excluded"};
    size_t counts[4] = {0}, fixed = 0, training = 0;
    FILE *list = with->list == NULL ? NULL : fopen(with->list, "w");
    if (with->list != NULL && list == NULL) {
        fprintf(stderr, "cannot write %s: %s\n", with->list, strerror(errno));
        return 2;
    }
    for (size_t i = 0; i < cases->n; i++) {
        const char *name = base_name(cases->paths[i]);
        const conformance_result *result = &results[i];
        counts[result->outcome]++;
        fixed += result->outcome == CONFORMANCE_OK && result->text[0] != '\0';
        training += result->outcome == CONFORMANCE_EXCLUDED && strncmp(result->text, "training", 8) == 0;
        printf("%-11s %s%s%s\n", words[result->outcome], name, result->text[0] == '\0' ? "" : ": ", result->text);
        if (list != NULL) {
            fprintf(list, "%s\t%s\t%s\t%s\n", words[result->outcome], name, cases->paths[i], result->text);
        }
    }
    if (list != NULL) {
        fclose(list);
    }
    size_t inference = cases->n - training;
    double percent = inference == 0 ? 100 : 100.0 * (double)counts[CONFORMANCE_OK] / (double)inference;
    printf("%zu cases on %s: %zu ok (%zu of them with a tensor fixed when the network was built), %zu failed, %zu "
           "unsupported, %zu excluded; %.2f %% of %zu inference cases are ok\n",
           cases->n, trm_backend_name(with->backend), counts[CONFORMANCE_OK], fixed, counts[CONFORMANCE_FAILED],
           counts[CONFORMANCE_UNSUPPORTED], counts[CONFORMANCE_EXCLUDED], percent, inference);
    return counts[CONFORMANCE_FAILED] == 0 && percent >= with->require && fixed <= with->most_fixed ? 0 : 1;
}

static int usage(void)
{
    fprintf(stderr, "usage: conformance_onnx FOLDER... [--backend host|cuda] [--mesh MESH] [--only PATTERN] "
                    "[--exclude FILE] [--list FILE] [--require PERCENT] [--most-fixed N]\n");
    return 2;
}

int main(int argc, char **argv)
{
    options with = {.backend = TRM_BACKEND_HOST, .most_fixed = SIZE_MAX};
    listing cases = {0};
    const char *folders[64];
    int n_folders = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strncmp(argv[i], "--", 2) != 0) {
            if (n_folders == 64) {
                return usage();
            }
            folders[n_folders++] = argv[i];
            continue;
        }
        if (value == NULL) {
            return usage();
        }
        i++;
        if (strcmp(argv[i - 1], "--backend") == 0) {
            with.backend = strcmp(value, "cuda") == 0 ? TRM_BACKEND_CUDA : TRM_BACKEND_HOST;
        } else if (strcmp(argv[i - 1], "--mesh") == 0) {
            with.mesh = value;
        } else if (strcmp(argv[i - 1], "--only") == 0) {
            with.only = value;
        } else if (strcmp(argv[i - 1], "--list") == 0) {
            with.list = value;
        } else if (strcmp(argv[i - 1], "--require") == 0) {
            with.require = atof(value);
        } else if (strcmp(argv[i - 1], "--most-fixed") == 0) {
            with.most_fixed = strtoul(value, NULL, 10);
        } else if (strcmp(argv[i - 1], "--exclude") != 0 || !read_exclusions(value, &with)) {
            return usage();
        }
    }
    for (int i = 0; i < n_folders; i++) {
        find_cases(folders[i], 2, &cases);
    }
    size_t kept = 0;
    for (size_t i = 0; i < cases.n; i++) {
        if (with.only == NULL || fnmatch(with.only, base_name(cases.paths[i]), 0) == 0) {
            cases.paths[kept++] = cases.paths[i];
        } else {
            free(cases.paths[i]);
        }
    }
    cases.n = kept;
    if (cases.n == 0) {
        fprintf(stderr, "no cases\n");
        return usage();
    }
    qsort(cases.paths, cases.n, sizeof(*cases.paths), compare_paths);
    conformance_result *results = must(calloc(cases.n, sizeof(*results)));
    int32_t rank = 0;
    if (with.mesh != NULL) {
        rank = work_here(&with, &cases, results);
    }
    for (size_t next = with.mesh == NULL ? 0 : cases.n; next < cases.n;) {
        next = run_worker(&with, &cases, next, results);
    }
    int code = rank == 0 ? report(&with, &cases, results) : 0;
    free(results);
    for (size_t i = 0; i < cases.n; i++) {
        free(cases.paths[i]);
    }
    free(cases.paths);
    for (size_t i = 0; i < with.n_exclusions; i++) {
        free(with.exclusions[i].pattern);
        free(with.exclusions[i].reason);
    }
    free(with.exclusions);
    return code;
}

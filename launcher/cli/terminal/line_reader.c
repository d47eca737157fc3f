/* Lines from stdin. */
#include "launcher/cli/terminal/line_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "base/error.h"
#include "launcher/cli/terminal/edit_library.h"

#define HISTORY_LINES 1000

static volatile sig_atomic_t interrupted;
static bool continues; /* the next line belongs to the one before */

bool line_reader_was_interrupted(void)
{
    return interrupted != 0;
}

void line_reader_forget_interrupt(void)
{
    interrupted = 0;
}

static void take_interrupt(int number)
{
    if (interrupted) { /* nobody has asked: the program is busy with something that cannot be ended */
        signal(number, SIG_DFL);
        raise(number);
    }
    interrupted = 1;
}

static char *prompt_of(void *editor)
{
    static char first[] = "> ", next[] = ". ";
    (void)editor;
    return continues ? next : first;
}

/* Waits until there is something to read. Returns false if SIGINT has come, or comes: it is blocked but while this
 * waits, so that none is lost between a look and the wait. */
static bool wait_for_input(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    int ready = 0;
    while (ready == 0 && !interrupted) {
        pthread_sigmask(SIG_BLOCK, &interrupt, &before);
        ready = interrupted ? 0 : ppoll(&input, 1, NULL, &before);
        ready = ready < 0 && errno == EINTR ? 0 : ready; /* by another signal, such as one for a new size */
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return !interrupted;
}

/* ---- libedit --------------------------------------------------------------------------------------------- */

/* Reads a byte. Returns 0 at the end, -1 if it fails or is interrupted. */
static int read_byte(unsigned char *byte)
{
    return wait_for_input() ? (int)read(STDIN_FILENO, byte, 1) : -1;
}

/* Reads a character of UTF-8 for libedit. What is none becomes U+FFFD. */
static int read_character(void *editor, wchar_t *character)
{
    unsigned char byte;
    (void)editor;
    const int got = read_byte(&byte);
    if (got <= 0) {
        return got;
    }
    const int more = byte < 0x80 ? 0 : byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc0 ? 1 : -1;
    uint32_t code = more < 0 ? 0xfffd : more == 0 ? byte : byte & (0x3fu >> more);
    for (int i = 0; i < more; i++) {
        if (read_byte(&byte) <= 0) {
            return -1;
        }
        code = code << 6 | (byte & 0x3f);
    }
    const bool valid = code <= 0x10ffff && (code < 0xd800 || code > 0xdfff);
    *character = (wchar_t)(valid ? code : 0xfffd);
    return 1;
}

/* Makes the folders of a path; the last part is a file. */
static void make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* the file tells */
        *slash = '/';
    }
}

/* $XDG_STATE_HOME/trireme/history, as the XDG base directories have it, to be freed; NULL: it cannot be kept. The file
 * is made for its owner only. */
static char *find_history(void)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    const bool given = state != NULL && state[0] == '/';
    char *path = NULL;
    if (!given && (home == NULL || home[0] != '/')) {
        return NULL;
    }
    if (asprintf(&path, "%s%s/trireme/history", given ? state : home, given ? "" : "/.local/state") < 0) {
        return NULL;
    }
    make_folders(path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    struct stat file;
    const bool kept = fd >= 0 && fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && fchmod(fd, 0600) == 0;
    if (fd >= 0) {
        close(fd);
    }
    if (!kept) {
        free(path);
        path = NULL;
    }
    return path;
}

static void open_history(line_reader *r)
{
    history_event event;
    r->history = r->edits->history_init();
    if (r->history == NULL) {
        return;
    }
    (void)r->edits->history(r->history, &event, HISTORY_SIZE, HISTORY_LINES);
    (void)r->edits->history(r->history, &event, HISTORY_UNIQUE, 1);
    r->history_file = find_history();
    if (r->history_file != NULL) {
        (void)r->edits->history(r->history, &event, HISTORY_LOAD, r->history_file); /* an empty one cannot be loaded */
    }
    (void)r->edits->el_set(r->editor, EDIT_HISTORY, r->edits->history, r->history);
}

/* Without libedit lines come as the terminal gives them. */
static void open_editor(line_reader *r)
{
    const char *kind = getenv("TERM");
    if (kind == NULL || strcmp(kind, "dumb") == 0 || edit_library_open(&r->edits) != TRM_OK) {
        return;
    }
    (void)setlocale(LC_CTYPE, "C.UTF-8"); /* in which libedit returns what it read */
    r->editor = r->edits->el_init("trireme", stdin, stderr, stderr);
    if (r->editor == NULL) {
        r->edits = NULL;
        return;
    }
    (void)r->edits->el_set(r->editor, EDIT_PROMPT, prompt_of);
    (void)r->edits->el_set(r->editor, EDIT_EDITOR, "emacs");
    (void)r->edits->el_set(r->editor, EDIT_BIND, "^R", "em-inc-search-prev", NULL);
    (void)r->edits->el_set(r->editor, EDIT_SIGNAL,
                           1); /* a program that is stopped or ended leaves the terminal as it was */
    (void)r->edits->el_set(r->editor, EDIT_READ, read_character);
    open_history(r);
    (void)r->edits->el_source(r->editor, NULL); /* the user's ~/.editrc */
}

static void keep_line(line_reader *r, const char *line)
{
    history_event event;
    if (r->history != NULL && line[strspn(line, " \t\r\n")] != '\0') {
        (void)r->edits->history(r->history, &event, HISTORY_ENTER, line);
        if (r->history_file != NULL) {
            (void)r->edits->history(r->history, &event, HISTORY_SAVE, r->history_file);
        }
    }
}

static const char *read_edited(line_reader *r, size_t *size)
{
    int count = 0;
    r->edits->el_resize(r->editor);
    const char *line = r->edits->el_gets(r->editor, &count);
    if (line == NULL || count <= 0) {
        return NULL;
    }
    keep_line(r, line);
    *size = strlen(line);
    return line;
}

/* ---- any lines ------------------------------------------------------------------------------------------- */

static const char *read_plain(line_reader *r, size_t *size)
{
    if (r->terminal) {
        fputs(prompt_of(NULL), stderr);
    }
    if (r->terminal && !wait_for_input()) {
        return NULL;
    }
    const ssize_t got = getline(&r->line, &r->capacity, stdin); /* a terminal gives one line at a time */
    if (got < 0) {
        return NULL;
    }
    *size = (size_t)got;
    return r->line;
}

void line_reader_init(line_reader *r, bool catches)
{
    *r = (line_reader){.terminal = isatty(STDIN_FILENO) && isatty(STDERR_FILENO)};
    if (r->terminal && catches) {
        struct sigaction action = {.sa_handler = take_interrupt}; /* reads are interrupted, not restarted */
        sigemptyset(&action.sa_mask);
        (void)sigaction(SIGINT, &action, NULL);
    }
    if (r->terminal) {
        open_editor(r);
    }
}

/* Length of a line without its end. */
static size_t trim(const char *line, size_t size)
{
    while (size > 0 && (line[size - 1] == '\n' || line[size - 1] == '\r')) {
        size--;
    }
    return size;
}

line_outcome line_reader_next(line_reader *r, const char **text, size_t *size)
{
    r->text.size = 0;
    continues = false;
    interrupted = 0;
    for (;;) {
        size_t got = 0;
        const char *line = r->edits != NULL ? read_edited(r, &got) : read_plain(r, &got);
        if (line == NULL && interrupted) {
            interrupted = 0;
            fputc('\n', stderr);
            return LINE_INTERRUPTED;
        }
        if (line == NULL) {
            if (r->terminal) {
                fputc('\n', stderr);
            }
            return LINE_END;
        }
        got = trim(line, got);
        continues = r->terminal && got > 0 && line[got - 1] == '\\';
        if (trm_bytes_append(&r->text, line, continues ? got - 1 : got) != TRM_OK ||
            trm_bytes_append(&r->text, continues ? "\n" : "", 1) != TRM_OK) {
            return LINE_END;
        }
        if (!continues) {
            *text = r->text.data;
            *size = r->text.size - 1;
            return LINE_READ;
        }
    }
}

void line_reader_fini(line_reader *r)
{
    if (r->edits != NULL) {
        r->edits->el_end(r->editor);
        if (r->history != NULL) {
            r->edits->history_end(r->history);
        }
    }
    free(r->history_file);
    free(r->line);
    trm_bytes_fini(&r->text);
    *r = (line_reader){0};
}

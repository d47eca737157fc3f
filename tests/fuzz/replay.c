/* Runs a fuzz target over every file of the folders given: its corpus as a test, with any compiler. */
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "fuzz.h"

static int replay_folder(const char *folder)
{
    DIR *listing = opendir(folder);
    if (listing == NULL) {
        perror(folder);
        return -1;
    }
    int count = 0;
    for (struct dirent *entry = readdir(listing); entry != NULL; entry = readdir(listing)) {
        char path[4096];
        char *text;
        size_t size;
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (trm_file_read(path, 1 << 24, &text, &size) != TRM_OK) {
            fprintf(stderr, "%s\n", trm_last_error());
            count = -1;
            break;
        }
        printf("%s\n", path);
        fflush(stdout); /* the last line names the input that crashed */
        /* A copy without the NUL behind it, so that the address sanitizer sees a read past the end. */
        uint8_t *exact = malloc(size == 0 ? 1 : size);
        if (exact != NULL) {
            memcpy(exact, text, size);
            LLVMFuzzerTestOneInput(exact, size);
        }
        free(exact);
        free(text);
        count++;
    }
    closedir(listing);
    return count;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int count = replay_folder(argv[i]);
        if (count <= 0) {
            fprintf(stderr, "%s: %s\n", argv[i], count == 0 ? "no inputs" : "failed");
            return 1;
        }
        printf("%s: %d inputs\n", argv[i], count);
    }
    return argc > 1 ? 0 : 2;
}

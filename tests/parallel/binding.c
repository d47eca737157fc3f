/* Opens a world and prints the processors that the rank may run on, as the system writes them. */
#include <stdio.h>
#include <string.h>

#include "dist/parallel/world.h"

int main(void)
{
    static const char name[] = "Cpus_allowed_list:\t";
    trm_world_options options = TRM_WORLD_OPTIONS_INIT;
    options.backend = TRM_BACKEND_HOST;
    trm_world *world;
    if (trm_world_open(&options, &world) != TRM_OK) {
        fprintf(stderr, "error: %s\n", trm_last_error());
        return 1;
    }
    char line[1024];
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
        if (strncmp(line, name, sizeof(name) - 1) == 0) {
            fputs(line + sizeof(name) - 1, stdout);
        }
    }
    if (status != NULL) {
        fclose(status);
    }
    trm_world_close(world);
    return 0;
}

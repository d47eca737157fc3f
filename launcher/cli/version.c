/* `trireme --version`: what this program was built from, and for. */
#include <stdio.h>

#include <trireme/version.h>

#include "launcher/cli/commands.h"

void print_version(void)
{
    printf("trireme %s%s%s, %s\n", trm_version(), build_commit[0] != '\0' ? ", commit " : "", build_commit, build_cuda);
}

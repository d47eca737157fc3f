/* The table of settings, made from the rows of settings.def. */
#include "launcher/cli/settings/settings.h"

#include <trireme/engine.h>

#include "launcher/serve/network/served_network.h"
#include "launcher/serve/replicas/router.h"

/* The words that the rows use. */
#define RUN          COMMAND_RUN
#define BENCH        COMMAND_BENCH
#define INSPECT      COMMAND_INSPECT
#define COMPLETION   COMMAND_COMPLETION
#define BUILD        COMMAND_BUILD
#define SERVE        COMMAND_SERVE
#define SERVE_WORKER COMMAND_SERVE_WORKER
#define BENCH_SERVE  COMMAND_BENCH_SERVE
#define COMPARE      COMMAND_COMPARE
#define REFIT        COMMAND_REFIT
#define QUANTIZE     COMMAND_QUANTIZE
#define EVERY        COMMAND_ALL
#define OFFLINE      (RUN | BENCH | INSPECT | BUILD | COMPARE)
#define GENERATING   (RUN | BENCH | SERVE | SERVE_WORKER)
#define JOB          (GENERATING | COMPARE) /* commands that open a world */
#define PER_RANK     SETTING_TRAIT_PER_RANK
#define PLANNED      SETTING_TRAIT_PLANNED
#define STREAMING    SETTING_TRAIT_STREAMING
#define LARGE        1e15

const setting settings_table[SETTING_COUNT] = {
#define SETTING(id, name, letter, type, commands, min, max, default_value, argument, group, operand, traits, help,     \
                manual)                                                                                                \
    [SETTING_##id] = {name,     letter, SETTING_TYPE_##type,       commands, min,  max,   default_value,               \
                      argument, group,  SETTING_OPERAND_##operand, traits,   help, manual},
#include "launcher/cli/settings/settings.def"
#undef SETTING
};

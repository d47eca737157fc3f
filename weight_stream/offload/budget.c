/* Options of weight streaming: parses and checks budgets, compression, sharing and CPU offload. */
#include "weight_stream/offload/streaming.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/c_locale.h"
#include "base/error.h"
#include "base/recorder.h"

static trm_status fail_budget(const char *text)
{
    return trm_fail(TRM_ERROR_INVALID_ARGUMENT,
                    "weight budget is \"%s\", expected off, auto, 0%% to 100%%, or bytes such as 8G (B, K, M, G)",
                    text);
}

TRM_CALL(NULL, trm_weight_budget_parse, (const char *text, trm_weight_budget *budget), (text, budget))
{
    if (text == NULL || budget == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot parse a weight budget: text or budget is NULL");
    }
    trm_weight_budget read = {0};
    if (strcmp(text, "auto") == 0) {
        read.kind = TRM_WEIGHT_BUDGET_AUTO;
    } else if (strcmp(text, "off") != 0) {
        char *end;
        errno = 0;
        double number = isdigit((unsigned char)text[0]) ? trm_c_strtod(text, &end) : -1;
        if (number < 0 || errno != 0 || strpbrk(text, "xXpP") != NULL) {
            return fail_budget(text);
        }
        static const char units[] = "BKMG";
        const char *unit = *end == '\0' ? units : strchr(units, toupper((unsigned char)*end));
        if (strcmp(end, "%") == 0 && number <= 100) {
            read.kind = TRM_WEIGHT_BUDGET_PERCENT;
            read.percent = number;
        } else if (unit != NULL && (*end == '\0' || end[1] == '\0')) {
            double bytes = ldexp(number, 10 * (int)(unit - units));
            if (bytes > 0x1p62) {
                return fail_budget(text);
            }
            read.kind = TRM_WEIGHT_BUDGET_BYTES;
            read.bytes = (size_t)bytes;
        } else {
            return fail_budget(text);
        }
    }
    *budget = read;
    return TRM_OK;
}

TRM_CALL(NULL, trm_weight_compression_parse, (const char *text, trm_weight_compression *compression),
         (text, compression))
{
    static const char *const names[] = {"auto", "off", "lossless"};
    if (text == NULL || compression == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot parse a weight compression: text or compression is NULL");
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *compression = (trm_weight_compression)i;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight compression is \"%s\", expected auto, off or lossless", text);
}

TRM_CALL(NULL, trm_weight_sharing_parse, (const char *text, trm_weight_sharing *sharing), (text, sharing))
{
    static const char *const names[] = {"auto", "off", "on"};
    if (text == NULL || sharing == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot parse weight sharing: text or result is NULL");
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(text, names[i]) == 0) {
            *sharing = (trm_weight_sharing)i;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight sharing is \"%s\", expected auto, off or on", text);
}

TRM_CALL(NULL, trm_host_compute_parse, (const char *text, trm_weight_budget *budget), (text, budget))
{
    if (text == NULL || budget == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot parse host compute: text or budget is NULL");
    }
    char *end = NULL;
    const double percent =
        isdigit((unsigned char)text[0]) && strpbrk(text, "xXpP") == NULL ? trm_c_strtod(text, &end) : -1;
    if (strcmp(text, "off") == 0 || strcmp(text, "auto") == 0) {
        budget->host_compute = text[0] == 'o' ? TRM_HOST_COMPUTE_OFF : TRM_HOST_COMPUTE_AUTO;
        budget->host_percent = 0;
        return TRM_OK;
    }
    if (percent < 0 || percent > 100 || (strcmp(end, "") != 0 && strcmp(end, "%") != 0)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "host compute is \"%s\", expected off, auto, or 0%% to 100%%", text);
    }
    budget->host_compute = TRM_HOST_COMPUTE_PERCENT;
    budget->host_percent = percent;
    return TRM_OK;
}

bool trm_wants_share(const trm_weight_budget *budget)
{
    return budget->host_compute == TRM_HOST_COMPUTE_PERCENT && budget->host_percent > 0;
}

trm_status trm_weight_budget_check(const trm_weight_budget *budget)
{
    if (budget->kind < TRM_WEIGHT_BUDGET_OFF || budget->kind > TRM_WEIGHT_BUDGET_BYTES) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight budget has kind %d", (int)budget->kind);
    }
    if ((unsigned)budget->compression > TRM_WEIGHT_COMPRESSION_LOSSLESS) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight compression has kind %d", (int)budget->compression);
    }
    if ((unsigned)budget->sharing > TRM_WEIGHT_SHARING_ON) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight sharing has kind %d", (int)budget->sharing);
    }
    if ((unsigned)budget->host_compute > TRM_HOST_COMPUTE_PERCENT) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "host compute has kind %d", (int)budget->host_compute);
    }
    if (budget->host_compute == TRM_HOST_COMPUTE_PERCENT &&
        !(budget->host_percent >= 0 && budget->host_percent <= 100)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "host compute is %g%%, expected 0 to 100", budget->host_percent);
    }
    if (budget->kind == TRM_WEIGHT_BUDGET_PERCENT && !(budget->percent >= 0 && budget->percent <= 100)) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "weight budget is %g%%, expected 0 to 100", budget->percent);
    }
    return TRM_OK;
}

#include "base/unit.h"

#include <math.h>
#include <stdbool.h>

#include "base/c_locale.h"

trm_unit trm_unit_of(double bytes)
{
    static const trm_unit units[] = {{0x1p30, "GiB"}, {0x1p20, "MiB"}, {0x1p10, "KiB"}};
    int i = 0;
    while (i < 2 && bytes < units[i].bytes / 8) {
        i++;
    }
    return units[i];
}

trm_unit_text trm_size_text(double bytes)
{
    trm_unit_text made;
    const trm_unit unit = trm_unit_of(bytes);
    if (bytes > 0 && bytes < 0x1p10 / 8) {
        trm_c_snprintf(made.text, sizeof(made.text), "%.0f B", bytes);
        return made;
    }
    trm_c_snprintf(made.text, sizeof(made.text), "%.2f %s", bytes / unit.bytes, unit.name);
    return made;
}

trm_unit_text trm_count_text(int64_t count)
{
    trm_unit_text made;
    if (count < 100000) {
        trm_c_snprintf(made.text, sizeof(made.text), "%lld", (long long)count);
    } else {
        const bool is_large = count >= 1000000000;
        trm_c_snprintf(made.text, sizeof(made.text), "%.3f %s", (double)count / (is_large ? 1e9 : 1e6),
                       is_large ? "billion" : "million");
    }
    return made;
}

trm_unit_text trm_number_text(double number, int decimals)
{
    trm_unit_text made;
    if (number > 0 && number < 1e-6) {
        trm_c_snprintf(made.text, sizeof(made.text), "%.1e", number);
        return made;
    }
    const int needed = number > 0 && number < 10 ? 1 - (int)floor(log10(number)) : 0;
    trm_c_snprintf(made.text, sizeof(made.text), "%.*f", needed > decimals ? needed : decimals, number);
    return made;
}

#include "base/unit.h"

#include <math.h>

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
    trm_c_snprintf(made.text, sizeof(made.text), "%.2f %s", bytes / unit.bytes, unit.name);
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

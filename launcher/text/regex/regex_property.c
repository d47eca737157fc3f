/* Character sets by their Oniguruma names. */
#include "launcher/text/regex/regex_property.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "launcher/text/regex/regex.h"

#define LONGEST_NAME ((size_t)48)

typedef struct named_set {
    const char *name; /* lower case, without spaces, hyphens and underscores */
    const char *items;
} named_set;

/* Names that PCRE2 does not have, or that mean something else there. */
static const named_set named_sets[] = {
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"alpha", "\\p{Alphabetic}"},
    {"ascii", "\\x{0}-\\x{7f}"},
    {"blank", "\\x{9}\\p{Zs}"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"lower", "\\p{Lowercase}"},
    {"punct", "\\p{P}"},
    {"space", TRM_REGEX_SPACE},
    {"upper", "\\p{Uppercase}"},
    {"word", TRM_REGEX_WORD},
    {"xdigit", "0-9A-Fa-f"},
    {"any", "\\x{0}-\\x{10ffff}"},
    {"other", "\\p{C}"},
    {"control", "\\p{Cc}"},
    {"format", "\\p{Cf}"},
    {"unassigned", "\\p{Cn}"},
    {"privateuse", "\\p{Co}"},
    {"surrogate", "\\p{Cs}"},
    {"letter", "\\p{L}"},
    {"lowercaseletter", "\\p{Ll}"},
    {"modifierletter", "\\p{Lm}"},
    {"otherletter", "\\p{Lo}"},
    {"titlecaseletter", "\\p{Lt}"},
    {"uppercaseletter", "\\p{Lu}"},
    {"mark", "\\p{M}"},
    {"combiningmark", "\\p{M}"},
    {"spacingmark", "\\p{Mc}"},
    {"enclosingmark", "\\p{Me}"},
    {"nonspacingmark", "\\p{Mn}"},
    {"number", "\\p{N}"},
    {"decimalnumber", "\\p{Nd}"},
    {"letternumber", "\\p{Nl}"},
    {"othernumber", "\\p{No}"},
    {"punctuation", "\\p{P}"},
    {"connectorpunctuation", "\\p{Pc}"},
    {"dashpunctuation", "\\p{Pd}"},
    {"closepunctuation", "\\p{Pe}"},
    {"finalpunctuation", "\\p{Pf}"},
    {"initialpunctuation", "\\p{Pi}"},
    {"otherpunctuation", "\\p{Po}"},
    {"openpunctuation", "\\p{Ps}"},
    {"symbol", "\\p{S}"},
    {"currencysymbol", "\\p{Sc}"},
    {"modifiersymbol", "\\p{Sk}"},
    {"mathsymbol", "\\p{Sm}"},
    {"othersymbol", "\\p{So}"},
    {"separator", "\\p{Z}"},
    {"lineseparator", "\\p{Zl}"},
    {"paragraphseparator", "\\p{Zp}"},
    {"spaceseparator", "\\p{Zs}"},
};

static const char *const categories[] = {
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",  "Mc", "Me", "Mn", "N",  "Nd", "Nl",
    "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs",
};

static void set_items(trm_regex_set *set, const char *items)
{
    *set = (trm_regex_set){0};
    snprintf(set->items, sizeof(set->items), "%s", items);
    const char *close = strchr(items, '}');
    set->property = strncmp(items, "\\p{", 3) == 0 && close != NULL && close[1] == '\0';
}

bool trm_regex_set_escape(char letter, trm_regex_set *set)
{
    switch (tolower((unsigned char)letter)) {
    case 's':
        set_items(set, TRM_REGEX_SPACE);
        break;
    case 'w':
        set_items(set, TRM_REGEX_WORD);
        break;
    case 'd':
        set_items(set, "\\p{Nd}");
        break;
    case 'h':
        set_items(set, "0-9A-Fa-f");
        break;
    default:
        return false;
    }
    set->negated = isupper((unsigned char)letter) != 0;
    return true;
}

trm_status trm_regex_set_property(const char *name, size_t size, trm_regex_set *set)
{
    char plain[LONGEST_NAME + 1];
    size_t length = 0;
    bool wellformed = size > 0 && size <= LONGEST_NAME;
    for (size_t i = 0; i < size && wellformed; i++) {
        unsigned char c = (unsigned char)name[i];
        wellformed = c < 0x80 && (isalnum(c) || c == ' ' || c == '_' || c == '-');
        if (isalnum(c)) {
            plain[length++] = (char)tolower(c);
        }
    }
    plain[wellformed ? length : 0] = '\0';
    for (size_t i = 0; i < sizeof(named_sets) / sizeof(named_sets[0]); i++) {
        if (strcmp(plain, named_sets[i].name) == 0) {
            set_items(set, named_sets[i].items);
            return TRM_OK;
        }
    }
    char items[LONGEST_NAME + 16];
    for (size_t i = 0; i < sizeof(categories) / sizeof(categories[0]); i++) {
        if (strcasecmp(plain, categories[i]) == 0) {
            snprintf(items, sizeof(items), "\\p{%s}", categories[i]);
            set_items(set, items);
            return TRM_OK;
        }
    }
    /* To PCRE2 a bare script name means the script's extensions, to Oniguruma the script itself. */
    static const char *const forms[] = {"\\p{sc:%s}", "\\p{%s}"};
    for (size_t i = 0; i < 2 && plain[0] != '\0'; i++) {
        snprintf(items, sizeof(items), forms[i], plain);
        if (trm_regex_compiles(items)) {
            set_items(set, items);
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_MODEL, "a regex has the unknown property \"%.*s\"", (int)(size < 80 ? size : 80), name);
}

trm_status trm_regex_set_posix(const char *name, size_t size, trm_regex_set *set)
{
    if (size == 5 && memcmp(name, "punct", 5) == 0) {
        set_items(set, "\\p{P}\\p{S}");
        return TRM_OK;
    }
    for (size_t i = 0; i < 12; i++) { /* POSIX names come first */
        if (size == strlen(named_sets[i].name) && memcmp(name, named_sets[i].name, size) == 0) {
            set_items(set, named_sets[i].items);
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_UNSUPPORTED, "a regex uses the bracket [:%.*s:], which is not supported",
             (int)(size < 40 ? size : 40), name);
}

/* Hexadecimal digits, whatever the locale. */
#ifndef TRM_BASE_HEX_H
#define TRM_BASE_HEX_H

/* 0 to 15; -1 for what is no digit. */
static inline int trm_hex_digit(int c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

#endif

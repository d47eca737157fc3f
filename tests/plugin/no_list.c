/* A library without plugins. */
extern const int trm_other;
const int trm_other = 1;

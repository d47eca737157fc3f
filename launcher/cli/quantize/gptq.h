/*
 * GPTQ (Frantar and others, 2023, arXiv:2210.17323): rounds the numbers of a row one after the other, and lets those
 * that follow make up for the error, as the inputs of the layer show that they can.
 */
#ifndef TRM_LAUNCHER_CLI_QUANTIZE_GPTQ_H
#define TRM_LAUNCHER_CLI_QUANTIZE_GPTQ_H

#include <trireme/types.h>

#include "base/pool.h"

/* sums [columns, columns] += the products of every two columns of inputs [n, columns], of which only those with a
 * second column that is not before the first are kept. The pool may be NULL here and below. */
void gptq_add_inputs(trm_pool *pool, double *sums, const float *inputs, int64_t n, int64_t columns);
/* Makes the factors that gptq_round takes of the sums, in place. The diagonal gets a hundredth of its mean more. false:
 * the sums are not those of finite inputs. */
bool gptq_factor(trm_pool *pool, double *sums, int64_t columns);
/* weight [rows, columns] -> numbers from low to high, with a scale for each `group` columns of a row: scales [rows,
 * columns / group]. false: no memory. */
bool gptq_round(trm_pool *pool, const double *factors, const float *weight, const float *scales, int64_t rows,
                int64_t columns, int64_t group, int32_t low, int32_t high, int8_t *numbers);

#endif

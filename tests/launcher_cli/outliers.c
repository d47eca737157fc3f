/* outliers MODEL FOLDER: the model with a few channels of the inputs of its layers a hundred times larger, and the
 * columns of weights that read them as much smaller. It computes the same. */
#include <stdio.h>
#include <string.h>

#include <trireme/trireme.h>

#define MOST  256 /* factors */
#define EVERY 61  /* the distance of large channels */

enum { WIDTH = 256, LAYERS = 8 };

static float large[WIDTH], small[WIDTH];
static char names[MOST][64];
static trm_weight_factors factors[MOST];
static int32_t count;

static void add(int layer, const char *part, int32_t axis, const float *of)
{
    snprintf(names[count], sizeof(names[count]), "model.layers.%d.%s.weight", layer, part);
    factors[count] = (trm_weight_factors){names[count], axis, WIDTH, of, 0.0f};
    count++;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        return 2;
    }
    for (int i = 0; i < WIDTH; i++) {
        large[i] = i % EVERY == 7 ? 128.0f : 1.0f;
        small[i] = 1.0f / large[i];
    }
    for (int i = 0; i < LAYERS; i++) {
        add(i, "input_layernorm", 0, large);
        add(i, "self_attn.q_proj", 1, small);
        add(i, "self_attn.k_proj", 1, small);
        add(i, "self_attn.v_proj", 1, small);
        add(i, "post_attention_layernorm", 0, large);
        add(i, "mlp.gate_proj", 1, small);
        add(i, "mlp.up_proj", 1, small);
    }
    if (trm_model_rescale(argv[1], argv[2], factors, count, NULL, NULL) != TRM_OK) {
        fprintf(stderr, "%s\n", trm_last_error());
        return 1;
    }
    return 0;
}

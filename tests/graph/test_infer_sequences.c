/* The shape and type rules of layers that work on sequences: attention and recurrent states (test_infer.c). */
#include "support/support.h"

#include <math.h>

#include "support/rule_case.h"

/* clang-format off */
#define ATTENTION(...) {.kind = TRM_LAYER_ATTENTION, .attention = {__VA_ARGS__}}
#define LATENT_ATTENTION(...) {.kind = TRM_LAYER_LATENT_ATTENTION, .latent_attention = {__VA_ARGS__}}
#define SHORT_CONVOLUTION(...) {.kind = TRM_LAYER_SHORT_CONVOLUTION, .short_convolution = {__VA_ARGS__}}
#define GATED_DELTA(...) {.kind = TRM_LAYER_GATED_DELTA, .gated_delta = {__VA_ARGS__}}
#define SELECTIVE_SCAN(...) {.kind = TRM_LAYER_SELECTIVE_SCAN, .selective_scan = {__VA_ARGS__}}
#define QKV_ATTENTION(q, k, ...) {.kind = TRM_LAYER_QKV_ATTENTION, .qkv_attention = {.query_heads = q, .kv_heads = k, .rope = {.rotary_dim = 4, .magnitude = 1}, __VA_ARGS__}}
#define ATTENTION_JOIN(n) {.kind = TRM_LAYER_ATTENTION_JOIN, .attention_join = {.n_ranks = n}}
/* clang-format on */

static void latent_attention_has_one_latent_for_all_heads(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {LATENT_ATTENTION(0),
         {"bf16[?,8,20]", "bf16[?,32]", "bf16[?,1,4]", "bf16[8,28,32]", "i32[?]", "i32[?]", "i32[?,?]",
          "bf16[?,16,36]"},
         "bf16[?,8,12]"},
        {LATENT_ATTENTION(.scale = 0.5f),
         {"f32[5,8,20]", "f32[?,32]", "f32[5,1,4]", "f32[8,28,32]", "i32[3]", "i32[2]", "i32[2,9]", "f32[4,16,36]"},
         "f32[5,8,12]"},
        {LATENT_ATTENTION(0), {"f32[5,8,20]", "f32[5,32]"}, "!found 2 inputs, expected 8"},
        {LATENT_ATTENTION(0),
         {"f32[5,8,20]", "f32[5,32]", "f32[5,2,4]", "f32[8,28,32]", "i32[3]", "i32[2]", "i32[2,9]", "f32[4,16,36]"},
         "!rope_key has dims [5, 2, 4], expected [5, 1, ?]"},
        {LATENT_ATTENTION(0),
         {"f32[5,8,20]", "f32[5,32]", "f32[5,1,4]", "f32[4,28,32]", "i32[3]", "i32[2]", "i32[2,9]", "f32[4,16,36]"},
         "!q has dims [5, 8, 20], expected [?, 4, ?]"},
        {LATENT_ATTENTION(0),
         {"f32[5,8,20]", "f32[5,32]", "f32[5,1,4]", "f32[8,28,31]", "i32[3]", "i32[2]", "i32[2,9]", "f32[4,16,36]"},
         "!weight has dims [8, 28, 31], expected [8, ?, 32]"},
        {LATENT_ATTENTION(0),
         {"f32[5,8,20]", "f32[5,32]", "f32[5,1,4]", "f32[8,16,32]", "i32[3]", "i32[2]", "i32[2,9]", "f32[4,16,36]"},
         "!queries of 20 elements, rope keys of 4, 16 rows of the weight a head"},
        {LATENT_ATTENTION(0),
         {"f32[5,8,20]", "f32[5,32]", "f32[5,1,4]", "f32[8,28,32]", "i32[3]", "i32[3]", "i32[2,9]", "f32[4,16,36]"},
         "!sequence_lengths has dims [3], expected [2]"},
        {LATENT_ATTENTION(0),
         {"f32[5,8,20]", "f32[5,32]", "f32[5,1,4]", "f32[8,28,32]", "i32[3]", "i32[2]", "i32[2,9]", "f32[4,16,32]"},
         "!cache has dims [4, 16, 32], expected [?, ?, 36]"},
        {LATENT_ATTENTION(0),
         {"f32[5,8,20]", "f32[5,32]", "f32[5,1,4]", "f32[8,28,32]", "i32[3]", "i32[2]", "i32[2,9]", "f16[4,16,36]"},
         "!cache has type f16, expected f32"},
    };
    RUN_CASES(cases);
}

static void short_convolution_keeps_channels(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {SHORT_CONVOLUTION(TRM_ACTIVATION_SILU),
         {"bf16[?,24]", "bf16[24,4]", "i32[?]", "i32[?]", "i32[?,2]", "bf16[?,?,24]"},
         "bf16[?,24]"},
        {SHORT_CONVOLUTION(0), {"f32[5,?]", "f32[24,4]", "i32[3]", "i32[2]", "i32[2,2]", "f32[9,3,24]"}, "f32[5,24]"},
        {SHORT_CONVOLUTION(0),
         {"f32[5,24]", "f32[24,4]", "i32[3]", "i32[2]", "i32[2,2]", "f32[9,3,24]", "f32[24]"},
         "f32[5,24]"},
        {SHORT_CONVOLUTION(0),
         {"f32[5,24]", "f32[24,4]", "i32[3]", "i32[2]", "i32[2,2]", "f32[9,3,24]", "f32[20]"},
         "!bias has dims [20], expected [24]"},
        {SHORT_CONVOLUTION(0), {"f32[5,24]", "f32[24,4]"}, "!found 2 inputs, expected 6 to 7"},
        {SHORT_CONVOLUTION(0),
         {"f32[5,24]", "f32[23,4]", "i32[3]", "i32[2]", "i32[2,2]", "f32[9,3,24]"},
         "!x has dims [5, 24], expected [?, 23]"},
        {SHORT_CONVOLUTION(0),
         {"f32[5,24]", "f32[24,4]", "i32[3]", "i32[2]", "i32[2,2]", "f32[9,2,24]"},
         "!found 4 taps of the weight and 2 places in the cache"},
        {SHORT_CONVOLUTION(0),
         {"f32[5,24]", "f32[24,4]", "i32[3]", "i32[2]", "i32[3,2]", "f32[9,3,24]"},
         "!sequence_slots has dims [3, 2], expected [2, 2]"},
        {SHORT_CONVOLUTION(0),
         {"f32[5,24]", "f32[24,4]", "i32[3]", "i32[2]", "i32[2,2]", "f16[9,3,24]"},
         "!cache has type f16, expected f32"},
        {SHORT_CONVOLUTION(0),
         {"f32[5,24]", "f32[24,4]", "i32[0]", "i32[2]", "i32[2,2]", "f32[9,3,24]"},
         "!sequence_starts has no elements, expected at least 1"},
    };
    RUN_CASES(cases);
}

static void gated_delta_has_value_heads(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {GATED_DELTA(1e-6f),
         {"bf16[?,2,8]", "bf16[?,2,8]", "bf16[?,4,12]", "bf16[?,4]", "bf16[?,4]", "f32[4]", "f32[4]", "i32[?]",
          "i32[?]", "i32[?,2]", "f32[?,?,4,8,12]"},
         "bf16[?,4,12]"},
        {GATED_DELTA(0),
         {"f32[5,2,8]", "f32[5,2,8]", "f32[5,4,?]", "f32[5,4]", "f32[5,4]", "f32[4]", "f32[4]", "i32[3]", "i32[2]",
          "i32[2,2]", "f32[9,1,4,8,12]"},
         "f32[5,4,12]"},
        {GATED_DELTA(0), {"f32[5,2,8]"}, "!found 1 inputs, expected 11"},
        {GATED_DELTA(0),
         {"f32[5,3,8]", "f32[5,3,8]", "f32[5,4,12]", "f32[5,4]", "f32[5,4]", "f32[4]", "f32[4]", "i32[3]", "i32[2]",
          "i32[2,2]", "f32[9,1,4,8,12]"},
         "!found 3 key heads, 4 value heads"},
        {GATED_DELTA(0),
         {"f32[5,2,8]", "f32[5,2,8]", "f32[5,4,12]", "f32[5,4]", "f32[5,3]", "f32[4]", "f32[4]", "i32[3]", "i32[2]",
          "i32[2,2]", "f32[9,1,4,8,12]"},
         "!b has dims [5, 3], expected [5, 4]"},
        {GATED_DELTA(0),
         {"f16[5,2,8]", "f16[5,2,8]", "f16[5,4,12]", "f16[5,4]", "f16[5,4]", "f32[4]", "f32[4]", "i32[3]", "i32[2]",
          "i32[2,2]", "f16[9,1,4,8,12]"},
         "!state has type f16, expected f32"},
        {GATED_DELTA(0),
         {"f32[5,2,8]", "f32[5,2,8]", "f32[5,4,12]", "f32[5,4]", "f32[5,4]", "f32[4]", "f32[4]", "i32[3]", "i32[2]",
          "i32[2,2]", "f32[9,0,4,8,12]"},
         "!found 2 key heads, 4 value heads, 0 places"},
        {GATED_DELTA(-1.0f),
         {"f32[5,2,8]", "f32[5,2,8]", "f32[5,4,12]", "f32[5,4]", "f32[5,4]", "f32[4]", "f32[4]", "i32[3]", "i32[2]",
          "i32[2,2]", "f32[9,1,4,8,12]"},
         "!found 2 key heads, 4 value heads, 1 places of the state and eps -1"},
    };
    RUN_CASES(cases);
}

static void selective_scan_has_groups(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {SELECTIVE_SCAN(0),
         {"bf16[?,4,8]", "bf16[?,2,12]", "bf16[?,2,12]", "bf16[?,4]", "f32[4]", "f32[4]", "f32[4]", "i32[?]", "i32[?]",
          "i32[?,2]", "f32[?,?,4,8,12]"},
         "bf16[?,4,8]"},
        {SELECTIVE_SCAN(0.1f, 2.0f),
         {"f32[5,4,?]", "f32[5,1,12]", "f32[5,1,12]", "f32[5,4]", "f32[4]", "f32[4]", "f32[4]", "i32[3]", "i32[2]",
          "i32[2,2]", "f32[9,1,4,8,12]"},
         "f32[5,4,8]"},
        {SELECTIVE_SCAN(0), {"f32[5,4,8]"}, "!found 1 inputs, expected 11"},
        {SELECTIVE_SCAN(0),
         {"f32[5,4,8]", "f32[5,3,12]", "f32[5,3,12]", "f32[5,4]", "f32[4]", "f32[4]", "f32[4]", "i32[3]", "i32[2]",
          "i32[2,2]", "f32[9,1,4,8,12]"},
         "!found 3 groups, 4 heads"},
        {SELECTIVE_SCAN(0),
         {"f32[5,4,8]", "f32[5,2,12]", "f32[5,2,12]", "f32[5,3]", "f32[4]", "f32[4]", "f32[4]", "i32[3]", "i32[2]",
          "i32[2,2]", "f32[9,1,4,8,12]"},
         "!step has dims [5, 3], expected [5, 4]"},
        {SELECTIVE_SCAN(0),
         {"f16[5,4,8]", "f16[5,2,12]", "f16[5,2,12]", "f16[5,4]", "f32[4]", "f32[4]", "f32[4]", "i32[3]", "i32[2]",
          "i32[2,2]", "f16[9,1,4,8,12]"},
         "!state has type f16, expected f32"},
        {SELECTIVE_SCAN(0.5f, 0.1f),
         {"f32[5,4,8]", "f32[5,2,12]", "f32[5,2,12]", "f32[5,4]", "f32[4]", "f32[4]", "f32[4]", "i32[3]", "i32[2]",
          "i32[2,2]", "f32[9,1,4,8,12]"},
         "!found 2 groups, 4 heads, 1 places of the state and steps of 0.5 to 0.1"},
    };
    RUN_CASES(cases);
}

#define DELTA_NET(key_heads_, z_, a_, b_)                                                                              \
    {                                                                                                                  \
        .kind = TRM_LAYER_DELTA_NET, .delta_net = { key_heads_, 4, 8, 6, z_, a_, b_, 0, 0, 0, 0, 0 }                   \
    }
#define NET_STATES                                                                                                     \
    "f16[16,4]", "f16[16,4]", "f16[24,4]", "f16[9,3,16]", "f16[9,3,16]", "f16[9,3,24]", "f32[4]", "f32[4]", "i32[3]",  \
        "i32[2]", "i32[2,2]", "f32[9,1,4,8,6]"

static void delta_net_takes_a_joined_product(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {DELTA_NET(2, 56, 84, 80), {"f16[5,88]", "f16[5,88]", NET_STATES, "f16[6]"}, "f16[5,24]"},
        {DELTA_NET(2, 56, 0, 4), {"f16[5,80]", "f16[?,8]", NET_STATES, "f16[6]"}, "f16[5,24]"},
        {DELTA_NET(2, 56, 0, 4), {"f16[5,79]", "f16[?,8]", NET_STATES, "f16[6]"}, "!z from column 56 of 79"},
        {DELTA_NET(2, 56, 0, 5), {"f16[5,80]", "f16[?,8]", NET_STATES, "f16[6]"}, "!a and b from 0 and 5 of 8"},
        {DELTA_NET(2, 55, 84, 80), {"f16[5,88]", "f16[5,88]", NET_STATES, "f16[6]"}, "!z from column 55 of 88"},
        {DELTA_NET(1, 56, 84, 80),
         {"f16[5,88]", "f16[5,88]", NET_STATES, "f16[6]"},
         "!x has dims [5, 8], expected [?, 16]"},
        {DELTA_NET(2, 56, 84, 80),
         {"f16[5,88]", "f16[5,88]", NET_STATES, "f16[7]"},
         "!norm has dims [7], expected [6]"},
        {DELTA_NET(2, 56, 84, 80),
         {"f16[5,88]", "f32[5,88]", NET_STATES, "f16[6]"},
         "!gates has type f32, expected f16"},
        {DELTA_NET(2, 56, 84, 80), {"f16[5,88]", "f16[5,88]", NET_STATES}, "!found 14 inputs, expected 15"},
    };
    RUN_CASES(cases);
}

#define PADDED .form = TRM_ATTENTION_PADDED_BHND
#define CAUSAL .causal = TRM_CAUSAL_LOWER_RIGHT

static void packed_attention(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {ATTENTION(CAUSAL), {"bf16[?,8,16]", "bf16[?,2,16]", "bf16[?,2,12]", "i32[?]"}, "bf16[?,8,12]"},
        {ATTENTION(CAUSAL, .window = 4),
         {"bf16[?,8,16]", "bf16[?,2,16]", "bf16[?,2,16]", "i32[4]", "i32[3]", "i32[3,?]", "bf16[?,32,2,16]",
          "bf16[?,32,2,16]"},
         "bf16[?,8,16]"},
        {ATTENTION(CAUSAL, .window = 4, .chunked = true),
         {"bf16[?,8,16]", "bf16[?,2,16]", "bf16[?,2,12]", "i32[?]"},
         "bf16[?,8,12]"},
        {ATTENTION(CAUSAL, .chunked = true),
         {"bf16[?,8,16]", "bf16[?,2,16]", "bf16[?,2,12]", "i32[?]"},
         "!window is 0, expected the length of chunks"},
        {ATTENTION(0), {"f32[5,8,16]", "f32[5,3,16]", "f32[5,3,16]", "i32[2]"}, "!found 8 query heads and 3"},
        {ATTENTION(0),
         {"f32[5,8,16]", "f32[4,2,16]", "f32[4,2,16]", "i32[2]"},
         "!k has dims [4, 2, 16], expected [5, ?, 16]"},
        {ATTENTION(0), {"f32[5,8,16]", "f32[5,2,8]", "f32[5,2,16]", "i32[2]"}, "!k has dims [5, 2, 8]"},
        {ATTENTION(0),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,4,16]", "i32[2]"},
         "!v has dims [5, 4, 16], expected [5, 2, ?]"},
        {ATTENTION(0), {"f32[5,8,16]", "f16[5,2,16]", "f32[5,2,16]", "i32[2]"}, "!k has type f16, expected f32"},
        {ATTENTION(0),
         {"i32[5,8,16]", "i32[5,2,16]", "i32[5,2,16]", "i32[2]"},
         "!q has type i32, expected a float type"},
        {ATTENTION(0),
         {"f32[5,128]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]"},
         "!q has dims [5, 128], expected 3 dimensions"},
        {ATTENTION(0), {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]"}, "!sequence_starts is not given"},
        {ATTENTION(0), {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i64[2]"}, "!sequence_starts has type i64"},
        {ATTENTION(0), {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[0]"}, "!sequence_starts has dims [0]"},
        {ATTENTION(0), {"f32[5,8,16]", "f32[5,2,16]"}, "!found 2 inputs, expected 3 to 10"},
        {ATTENTION(CAUSAL),
         {"bf16[?,8,16]", "bf16[?,2,16]", "bf16[?,2,12]", "i32[?]", "-", "-", "-", "-", "-", "f32[8]"},
         "bf16[?,8,12]"},
        {ATTENTION(CAUSAL),
         {"bf16[5,8,16]", "bf16[5,2,16]", "bf16[5,2,16]", "i32[2]", "-", "-", "-", "-", "-", "bf16[8]"},
         "!sinks has type bf16, expected f32"},
        {ATTENTION(.form = TRM_ATTENTION_PADDED_BNHD),
         {"f32[2,5,8,16]", "f32[2,4,2,16]", "f32[2,4,2,16]", "-", "-", "-", "-", "-", "bool[5,4]", "f32[2]"},
         "!sinks has dims [2], expected [8]"},
        {ATTENTION(.window = 4),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]"},
         "!window is 4, expected 0, or more with a causal kind"},
        {ATTENTION(.softcap = -1), {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]"}, "!softcap is -1"},
        {ATTENTION(.n_ranks = 65), {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]"}, "!n_ranks is 65"},
        {ATTENTION(CAUSAL, .cache_ranks = 4, .cache_rank = 3),
         {"bf16[?,8,16]", "bf16[?,2,16]", "bf16[?,2,12]", "i32[?]", "i32[?]", "i32[?,?]", "bf16[?,16,2,16]",
          "bf16[?,16,2,12]"},
         "bf16[?,8,12] f32[?,8]"},
        {ATTENTION(CAUSAL, .cache_ranks = 4, .cache_rank = 4),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]"},
         "!the cache is that of rank 4 of 4, expected one of at most 64"},
        {ATTENTION(CAUSAL, .cache_rank = 1),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]"},
         "!the cache is that of rank 1 of 0"},
        {ATTENTION(CAUSAL, .cache_ranks = 2),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]"},
         "!cache_ranks is 2, expected 1 without a key_cache"},
        {ATTENTION(CAUSAL, .cache_ranks = 2),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]", "i32[1]", "i32[1,3]", "f32[4,16,2,16]",
          "f32[4,16,2,16]", "-", "f32[8]"},
         "!sinks is given, expected none with a share of the keys"},
        {ATTENTION_JOIN(4), {"bf16[?,8,16]", "f32[?,8]"}, "bf16[?,8,16]"},
        {ATTENTION_JOIN(4), {"f16[12,8,16]", "f32[12,8]", "f32[8]"}, "f16[3,8,16]"},
        {ATTENTION_JOIN(4), {"f32[6,8,16]", "f32[6,8]"}, "!n_ranks is 4 and there are 6 results"},
        {ATTENTION_JOIN(0), {"f32[6,8,16]", "f32[6,8]"}, "!n_ranks is 0"},
        {ATTENTION_JOIN(2), {"f32[6,8,16]", "f32[6,4]"}, "!logs has dims [6, 4]"},
        {ATTENTION_JOIN(2), {"f16[6,8,16]", "f16[6,8]"}, "!logs has type f16, expected f32"},
        {ATTENTION_JOIN(2), {"f32[6,8,16]", "f32[6,8]", "f32[4]"}, "!sinks has dims [4]"},
        {ATTENTION(.n_ranks = 2),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]"},
         "!n_ranks is 2 in the packed form, expected 1"},
        {ATTENTION(.form = TRM_ATTENTION_PADDED_BHND, .n_ranks = 3),
         {"f32[2,8,5,16]", "f32[2,2,4,16]", "f32[2,2,4,16]", "-", "-", "-", "-", "-", "bool[5,12]"},
         "f32[2,8,5,16]"},
        {ATTENTION(.form = TRM_ATTENTION_PADDED_BHND, .n_ranks = 3),
         {"f32[2,8,5,16]", "f32[2,2,4,16]", "f32[2,2,4,16]", "-", "-", "-", "-", "-", "bool[5,4]"},
         "!mask has dims [5, 4], expected dims that broadcast to [2, 8, 5, 12]"},
        {ATTENTION(.causal = (trm_causal)3), {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]"}, "!causal kind 3"},
        {ATTENTION(.form = (trm_attention_form)3), {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]"}, "!attention form 3"},
        {ATTENTION(0),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]", "i32[1]"},
         "!sequence_lengths is given, expected none without a key_cache"},
        {ATTENTION(0),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]", "-", "i32[1,4]", "f32[9,4,2,16]", "f32[9,4,2,16]"},
         "!a key_cache is given, expected sequence_lengths, block_table and value_cache with it"},
        {ATTENTION(0),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]", "i32[2]", "i32[1,4]", "f32[9,4,2,16]",
          "f32[9,4,2,16]"},
         "!sequence_lengths has dims [2], expected [1]"},
        {ATTENTION(0),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]", "i32[1]", "i32[1]", "f32[9,4,2,16]", "f32[9,4,2,16]"},
         "!block_table has dims [1], expected [1, ?]"},
        {ATTENTION(0),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]", "i32[1]", "i32[1,4]", "f32[9,4,8,16]",
          "f32[9,4,2,16]"},
         "!key_cache has dims [9, 4, 8, 16], expected [?, ?, 2, 16]"},
        {ATTENTION(0),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]", "i32[1]", "i32[1,4]", "f32[9,4,2,16]",
          "f32[8,4,2,16]"},
         "!value_cache has dims [8, 4, 2, 16], expected [9, 4, 2, 16]"},
        {ATTENTION(0),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]", "i32[1]", "i32[1,4]", "bf16[9,4,2,16]",
          "f32[9,4,2,16]"},
         "!key_cache has type bf16, expected f32"},
        {ATTENTION(0),
         {"bf16[5,8,16]", "bf16[5,2,16]", "bf16[5,2,16]", "i32[2]", "i32[1]", "i32[1,4]", "f8e4m3[9,4,2,16]",
          "f8e4m3[9,4,2,16]"},
         "bf16[5,8,16]"},
        {ATTENTION(.k_scale = 0.5f, .v_scale = 1e-9f),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]", "i32[1]", "i32[1,4]", "f8e4m3[9,4,2,16]",
          "f8e4m3[9,4,2,16]"},
         "f32[5,8,16]"},
        {ATTENTION(0),
         {"bf16[5,8,16]", "bf16[5,2,16]", "bf16[5,2,16]", "i32[2]", "i32[1]", "i32[1,4]", "f8e4m3[9,4,2,16]",
          "bf16[9,4,2,16]"},
         "!value_cache has type bf16, expected f8e4m3"},
        {ATTENTION(0),
         {"bf16[5,8,16]", "bf16[5,2,16]", "bf16[5,2,16]", "i32[2]", "i32[1]", "i32[1,4]", "f8e5m2[9,4,2,16]",
          "f8e5m2[9,4,2,16]"},
         "!key_cache has type f8e5m2, expected bf16"},
        {ATTENTION(.k_scale = -1),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]"},
         "!k_scale is -1 and v_scale 0, expected positive numbers, or 0 for 1"},
        {ATTENTION(.v_scale = NAN), {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]"}, "!and v_scale nan"},
        {ATTENTION(.v_scale = 1e-39f), {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]"}, "!k_scale is 0 and"},
        {ATTENTION(0),
         {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]", "i32[2]", "-", "-", "-", "-", "bool[5,5]"},
         "!mask is given, expected none in the packed form"},
    };
    RUN_CASES(cases);
}

static void padded_attention(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {ATTENTION(PADDED), {"f32[2,8,5,16]", "f32[2,4,?,16]", "f32[2,4,?,12]"}, "f32[2,8,5,12]"},
        {ATTENTION(PADDED),
         {"f32[2,8,5,16]", "f32[2,4,7,16]", "f32[2,4,7,16]", "-", "-", "-", "-", "-", "bool[2,1,5,7]"},
         "f32[2,8,5,16]"},
        {ATTENTION(PADDED),
         {"f32[2,8,5,16]", "f32[2,4,7,16]", "f32[2,4,7,16]", "-", "-", "-", "-", "-", "f32[7]"},
         "f32[2,8,5,16]"},
        {ATTENTION(PADDED),
         {"f32[2,8,5,16]", "f32[2,4,7,16]", "f32[2,4,7,16]", "-", "-", "-", "-", "-", "f32[5]"},
         "!mask has dims [5], expected dims that broadcast to [2, 8, 5, 7]"},
        {ATTENTION(PADDED),
         {"f32[2,8,5,16]", "f32[2,4,7,16]", "f32[2,4,7,16]", "-", "-", "-", "-", "-", "i32[7]"},
         "!mask has type i32, expected a float type"},
        {ATTENTION(PADDED),
         {"f32[2,8,5,16]", "f32[2,4,7,16]", "f32[2,4,7,16]", "i32[3]"},
         "!sequence_starts is given, expected none in the padded form"},
        {ATTENTION(PADDED), {"f32[2,8,5,16]", "f32[3,4,7,16]", "f32[3,4,7,16]"}, "!k has dims [3, 4, 7, 16]"},
        {ATTENTION(PADDED), {"f32[2,8,5,16]", "f32[2,4,7,16]", "f32[2,4,6,16]"}, "!v has dims [2, 4, 6, 16]"},
        {ATTENTION(PADDED), {"f32[5,8,16]", "f32[5,2,16]", "f32[5,2,16]"}, "!q has dims [5, 8, 16], expected 4"},
        {ATTENTION(PADDED), {"f32[2,8,5,16]", "f32[2,0,7,16]", "f32[2,0,7,16]"}, "!found 8 query heads and 0"},
    };
    RUN_CASES(cases);
}

#define CACHE "i32[4]", "i32[3]", "i32[3,?]", "bf16[9,16,2,8]", "bf16[9,16,2,8]", "i32[?]"

static void attention_takes_a_joined_product(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {QKV_ATTENTION(4, 2, .eps = 0), {"bf16[?,64]", CACHE, "f32[2]"}, "bf16[?,4,8]"},
        {QKV_ATTENTION(4, 2, .eps = 1), {"bf16[5,64]", CACHE, "f32[2]", "-", "bf16[8]", "bf16[8]"}, "bf16[5,4,8]"},
        {QKV_ATTENTION(4, 2, .head_dim = 8), {"bf16[5,96]", CACHE, "f32[2]"}, "bf16[5,4,8]"},
        {QKV_ATTENTION(4, 2, .head_dim = 8), {"bf16[5,63]", CACHE, "f32[2]"}, "!qkv has 63 elements per token and"},
        {QKV_ATTENTION(4, 2, .eps = 0), {"bf16[?,63]", CACHE, "f32[2]"}, "!qkv has 63 elements per token, expected a"},
        {QKV_ATTENTION(4, 2, .eps = 0),
         {"bf16[?,128]", CACHE, "f32[2]"},
         "!key_cache has dims [9, 16, 2, 8], expected"},
        {QKV_ATTENTION(3, 2, .eps = 0), {"bf16[?,56]", CACHE, "f32[2]"}, "!found 3 query heads and 2 key-value heads"},
        {QKV_ATTENTION(4, 0, .eps = 0), {"bf16[?,64]", CACHE, "f32[2]"}, "!found 4 query heads, 0 key-value heads"},
        {QKV_ATTENTION(4, 2, .eps = 0), {"bf16[?,64]", CACHE, "f32[3]"}, "!inv_freq has dims [3]"},
        {QKV_ATTENTION(4, 2, .eps = 0), {"bf16[?,64]", CACHE}, "!found 7 inputs, expected 8"},
        {QKV_ATTENTION(4, 2, .eps = 0),
         {"bf16[?,64]", CACHE, "f32[2]", "-", "bf16[8]"},
         "!one of q_norm and k_norm is given"},
        {QKV_ATTENTION(4, 2, .eps = 0),
         {"bf16[?,64]", CACHE, "f32[2]", "-", "bf16[8]", "bf16[9]"},
         "!k_norm has dims [9]"},
        {QKV_ATTENTION(4, 2, .eps = 0), {"bf16[5,64]", CACHE, "f32[2]", "-", "-", "-", "f32[4]"}, "bf16[5,4,8]"},
        {QKV_ATTENTION(4, 2, .eps = 0),
         {"bf16[5,64]", CACHE, "f32[2]", "-", "-", "-", "f32[2]"},
         "!sinks has dims [2], expected [4]"},
        {QKV_ATTENTION(4, 2, .attention = {.n_ranks = 2}), {"bf16[?,64]", CACHE, "f32[2]"}, "!n_ranks 2, expected"},
        {{.kind = TRM_LAYER_QKV_ATTENTION,
          .qkv_attention = {.query_heads = 4, .kv_heads = 2, .rope = {.scaling = TRM_ROPE_LONG, .rotary_dim = 4}}},
         {"bf16[?,64]", CACHE, "f32[2,2]"},
         "!lengths is not given"},
    };
    RUN_CASES(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(latent_attention_has_one_latent_for_all_heads),
        cmocka_unit_test(short_convolution_keeps_channels),
        cmocka_unit_test(gated_delta_has_value_heads),
        cmocka_unit_test(selective_scan_has_groups),
        cmocka_unit_test(delta_net_takes_a_joined_product),
        cmocka_unit_test(packed_attention),
        cmocka_unit_test(padded_attention),
        cmocka_unit_test(attention_takes_a_joined_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

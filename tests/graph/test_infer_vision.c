/* Shape and type rules of the kinds over images, on good and bad inputs, with known and unknown dims. */
#include "support/support.h"

#include "support/rule_case.h"

/* clang-format off */
#define CONVOLUTION(...) {.kind = TRM_LAYER_CONVOLUTION, .convolution = {__VA_ARGS__}}
#define DECONVOLUTION(...) {.kind = TRM_LAYER_DECONVOLUTION, .convolution = {__VA_ARGS__}}
#define DEFORMABLE(...) {.kind = TRM_LAYER_DEFORMABLE_CONVOLUTION, .deformable_convolution = {__VA_ARGS__}}
#define POOL(...) {.kind = TRM_LAYER_POOL, .pool = {__VA_ARGS__}}
#define COL2IM(...) {.kind = TRM_LAYER_COL2IM, .col2im = {__VA_ARGS__}}
#define RESIZE(...) {.kind = TRM_LAYER_RESIZE, .resize = {__VA_ARGS__}}
#define GRID_SAMPLE(...) {.kind = TRM_LAYER_GRID_SAMPLE, .grid_sample = {__VA_ARGS__}}
#define ROI_POOL(...) {.kind = TRM_LAYER_ROI_POOL, .roi_pool = {__VA_ARGS__}}
#define GROUP_NORM(...) {.kind = TRM_LAYER_GROUP_NORM, .group_norm = {__VA_ARGS__}}
#define LRN(size_) {.kind = TRM_LAYER_LRN, .lrn = {.size = size_}}
#define SUPPRESSION {.kind = TRM_LAYER_NON_MAX_SUPPRESSION}
#define RECURRENT(...) {.kind = TRM_LAYER_RECURRENT, .recurrent = {__VA_ARGS__}}
#define ONES {1, 1, 1}
#define PLAIN .groups = 1, .stride = ONES, .dilation = ONES
/* clang-format on */

static void convolution_rules(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {CONVOLUTION(PLAIN), {"f32[2,3,8,9]", "f32[5,3,3,2]", "f32[5]"}, "f32[2,5,6,8]"},
        {CONVOLUTION(PLAIN, .before = ONES, .after = ONES), {"f16[?,3,?,9]", "f16[5,3,3,3]"}, "f16[?,5,?,9]"},
        {CONVOLUTION(.groups = 4, .stride = {2}, .dilation = {3}), {"f64[1,8,20]", "f64[4,2,4]"}, "f64[1,4,6]"},
        {CONVOLUTION(.groups = 1, .stride = {2, 2}, .dilation = {1, 1}, .auto_pad = TRM_AUTO_PAD_SAME_UPPER),
         {"f32[1,1,5,6]", "f32[1,1,3,3]"},
         "f32[1,1,3,3]"},
        {CONVOLUTION(PLAIN), {"f32[2,3,8,8,8]", "f32[?,3,?,1,1]"}, "f32[2,?,?,8,8]"},
        {CONVOLUTION(PLAIN), {"f32[1,3,8]", "f32[2,3,1]", "-", "f32[1,2,8]"}, "f32[1,2,8]"},
        {CONVOLUTION(PLAIN), {"f32[1,3,8]", "f32[2,3,1]", "-", "f32[1,2,7]"}, "!residual has dims [1, 2, 7]"},
        {CONVOLUTION(PLAIN), {"f32[1,3]", "f32[2,3]"}, "!expected a batch, channels and 1 to 3 spatial dims"},
        {CONVOLUTION(PLAIN), {"i32[1,3,8]", "i32[2,3,1]"}, "!x has type i32, expected a float type"},
        {CONVOLUTION(PLAIN), {"f32[1,3,8]", "f16[2,3,1]"}, "!weight has type f16, expected f32"},
        {CONVOLUTION(PLAIN), {"f32[1,3,8]", "f32[2,3,1,1]"}, "!weight has dims [2, 3, 1, 1], expected 3"},
        {CONVOLUTION(PLAIN), {"f32[1,3,8]", "f32[2,4,1]"}, "!3 channels in 1 groups do not fit"},
        {CONVOLUTION(.groups = 2, .stride = ONES, .dilation = ONES),
         {"f32[1,4,8]", "f32[3,2,1]"},
         "!3 output channels in 2 groups"},
        {CONVOLUTION(.stride = ONES, .dilation = ONES), {"f32[1,4,8]", "f32[3,2,1]"}, "!found 0 groups"},
        {CONVOLUTION(PLAIN), {"f32[1,3,8]", "f32[2,3,9]"}, "!covers 9, but the padded input has only 8"},
        {CONVOLUTION(PLAIN), {"f32[1,3,8]", "f32[2,3,1]", "f32[3]"}, "!bias has dims [3], expected [2]"},
        {CONVOLUTION(.groups = 1, .dilation = ONES), {"f32[1,3,8]", "f32[2,3,1]"}, "!stride 0"},
        {CONVOLUTION(PLAIN, .before = {-1}), {"f32[1,3,8]", "f32[2,3,1]"}, "!padding -1 before"},
        {CONVOLUTION(PLAIN, .activation = (trm_activation)99), {"f32[1,3,8]", "f32[2,3,1]"}, "!found activation 99"},
    };
    RUN_CASES(cases);
}

static void deconvolution_rules(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {DECONVOLUTION(PLAIN), {"f32[1,3,5,6]", "f32[3,4,3,3]", "f32[4]"}, "f32[1,4,7,8]"},
        {DECONVOLUTION(.groups = 2, .stride = {3}, .dilation = {2}, .before = {1}, .after = {2}, .output_padding = {1}),
         {"f16[1,4,5]", "f16[4,3,3]"},
         "f16[1,6,15]"},
        {DECONVOLUTION(.groups = 1, .stride = {2, 3}, .dilation = {1, 1}, .auto_pad = TRM_AUTO_PAD_SAME_LOWER),
         {"f32[1,1,3,?]", "f32[1,2,3,3]"},
         "f32[1,2,6,?]"},
        {DECONVOLUTION(PLAIN), {"f32[1,3,5,6]", "f32[3,4,3,3]", "-", "i64[2]"}, "f32[1,4,?,?]"},
        {DECONVOLUTION(PLAIN), {"f32[1,3,5]", "f32[2,4,3]"}, "!x has 3 channels, but the weight is for 2"},
        {DECONVOLUTION(PLAIN, .before = {7}), {"f32[1,3,5]", "f32[3,4,3]"}, "!has 0 positions"},
        {DECONVOLUTION(PLAIN, .output_padding = {-1}), {"f32[1,3,5]", "f32[3,4,3]"}, "!found output padding -1"},
    };
    RUN_CASES(cases);
    const rule_case given = {DECONVOLUTION(PLAIN), {"f32[1,3,5,6]", "f32[3,4,3,3]", "-", "i64[2]"}, "f32[1,4,9,10]"};
    const rule_case short_by_one = {DECONVOLUTION(PLAIN), {"f32[1,3,5]", "f32[3,4,3]", "-", "i64[2]"}, "!2 values"};
    const int64_t sizes[] = {9, 10};
    const void *values[RULE_CASE_INPUTS] = {NULL, NULL, NULL, sizes};
    rule_case_run_with(&given, values);
    rule_case_run_with(&short_by_one, values);
}

static void deformable_convolution_rules(void **state)
{
    (void)state;
#define TWO .groups = 1, .offset_groups = 2, .stride = {1, 1}, .dilation = { 1, 1 }
    static const rule_case cases[] = {
        {DEFORMABLE(TWO), {"f32[1,4,5,6]", "f32[3,4,2,2]", "f32[1,16,4,5]"}, "f32[1,3,4,5]"},
        {DEFORMABLE(TWO), {"f32[1,4,?,6]", "f32[3,4,2,2]", "f32[1,16,4,5]", "f32[3]", "f32[1,8,4,5]"}, "f32[1,3,?,5]"},
        {DEFORMABLE(TWO), {"f32[1,4,5,6]", "f32[3,4,2,2]", "f32[1,8,4,5]"}, "!offset has dims [1, 8, 4, 5]"},
        {DEFORMABLE(TWO),
         {"f32[1,4,5,6]", "f32[3,4,2,2]", "f32[1,16,4,5]", "-", "f32[1,16,4,5]"},
         "!mask has dims [1, 16, 4, 5], expected [1, 8, 4, 5]"},
        {DEFORMABLE(TWO), {"f32[1,3,5,6]", "f32[3,3,2,2]", "f32[1,16,4,5]"}, "!3 channels in 2 groups"},
        {DEFORMABLE(TWO), {"f32[1,4,5]", "f32[3,4,2]", "f32[1,16,4]"}, "!x has dims [1, 4, 5], expected 4"},
    };
    RUN_CASES(cases);
}

static void pool_rules(void **state)
{
    (void)state;
#define BY_TWO .kernel = {3, 3}, .stride = {2, 2}, .dilation = { 1, 1 }
    static const rule_case cases[] = {
        {POOL(BY_TWO), {"u8[1,2,8,9]"}, "u8[1,2,3,4]"},
        {POOL(BY_TWO, .ceil = true), {"f32[1,2,8,?]"}, "f32[1,2,4,?]"},
        {POOL(BY_TWO, .ceil = true, .before = ONES, .after = ONES), {"f32[1,2,8,6]"}, "f32[1,2,5,4]"},
        {POOL(BY_TWO, .indices = true), {"f16[1,2,8,9]"}, "f16[1,2,3,4] i64[1,2,3,4]"},
        {POOL(BY_TWO, .auto_pad = TRM_AUTO_PAD_SAME_LOWER), {"f32[1,2,8,9]"}, "f32[1,2,4,5]"},
        {POOL(BY_TWO, .op = TRM_POOL_AVERAGE), {"i32[1,2,8,9]"}, "!expected a float type"},
        {POOL(BY_TWO, .op = TRM_POOL_AVERAGE, .indices = true), {"f32[1,2,8,9]"}, "!only the largest"},
        {POOL(BY_TWO, .op = TRM_POOL_LP), {"f32[1,2,8,9]"}, "!found p 0"},
        {POOL(BY_TWO), {"bool[1,2,8,9]"}, "!x has type bool"},
        {POOL(BY_TWO), {"f32[1,2,8,2]"}, "!covers 3, but the padded input has only 2"},
        {POOL(BY_TWO), {"f32[1,2,8,8,8]"}, "!has kernel 0"},
    };
    RUN_CASES(cases);
}

static void col2im_rules(void **state)
{
    (void)state;
#define IMAGE .image = {2, {5, 6}}, .kernel = {2, 3}, .stride = {1, 1}, .dilation = { 1, 1 }
    static const rule_case cases[] = {
        {COL2IM(IMAGE), {"f32[2,12,16]"}, "f32[2,2,5,6]"},
        {COL2IM(IMAGE), {"f32[2,?,?]"}, "f32[2,?,5,6]"},
        {COL2IM(IMAGE), {"f32[2,13,16]"}, "!expected a multiple of 6 rows and 16 columns"},
        {COL2IM(IMAGE), {"f32[2,12,15]"}, "!expected a multiple of 6 rows and 16 columns"},
        {COL2IM(.image = {1, {0}}, .kernel = ONES, .stride = ONES, .dilation = ONES),
         {"f32[2,12,15]"},
         "!found image size 0"},
        {COL2IM(IMAGE), {"f32[2,12]"}, "!expected 3 dimensions"},
    };
    RUN_CASES(cases);
}

static void resize_rules(void **state)
{
    (void)state;
#define LAST .axes = 1u << 2
    static const rule_case cases[] = {
        {RESIZE(LAST), {"f32[1,2,5]", "-", "f32[1]"}, "f32[1,2,?]"},
        {RESIZE(LAST, .mode = TRM_RESIZE_LINEAR), {"i8[1,2,5]", "-", "-", "i64[1]"}, "i8[1,2,?]"},
        {RESIZE(LAST), {"f32[1,2,5]"}, "!found neither scales and sizes"},
        {RESIZE(LAST), {"f32[1,2,5]", "-", "f32[1]", "i64[1]"}, "!found both scales and sizes"},
        {RESIZE(LAST), {"f32[1,2,5]", "-", "f32[3]"}, "!scales has dims [3], expected [1]"},
        {RESIZE(LAST), {"f32[1,2,5]", "f32[1]", "f32[1]"}, "!roi has dims [1], expected [2]"},
        {RESIZE(LAST), {"f32[1,2]", "-", "f32[1]"}, "!found axes 0x4"},
        {RESIZE(LAST, .mode = TRM_RESIZE_CUBIC), {"bool[1,2,5]", "-", "f32[1]"}, "!x has type bool"},
        {RESIZE(LAST, .mode = (trm_resize_mode)3), {"f32[1,2,5]", "-", "f32[1]"}, "!found resize mode 3"},
    };
    RUN_CASES(cases);
    const float scales[] = {1.5f}, none[] = {-1.0f};
    const int64_t sizes[] = {9, 12};
    const void *by_scales[RULE_CASE_INPUTS] = {NULL, NULL, scales}, *by_none[RULE_CASE_INPUTS] = {NULL, NULL, none};
    const void *by_sizes[RULE_CASE_INPUTS] = {NULL, NULL, NULL, sizes};
    const rule_case scaled = {RESIZE(LAST), {"f32[1,2,5]", "-", "f32[1]"}, "f32[1,2,7]"};
    const rule_case unknown = {RESIZE(LAST), {"f32[1,2,?]", "-", "f32[1]"}, "f32[1,2,?]"};
    const rule_case bad = {RESIZE(LAST), {"f32[1,2,5]", "-", "f32[1]"}, "!scales out of range"};
    const rule_case empty = {RESIZE(LAST), {"f32[1,2,0]", "-", "f32[1]"}, "f32[1,2,0]"};
    const rule_case filled = {RESIZE(LAST), {"f32[1,2,0]", "-", "-", "i64[1]"}, "!cannot resize"};
    const rule_case empty_kept = {
        RESIZE(.axes = 3, .aspect = TRM_RESIZE_NOT_LARGER), {"f32[0,6]", "-", "-", "i64[2]"}, "f32[0,6]"};
    const rule_case sized = {RESIZE(.axes = 3), {"f32[?,4]", "-", "-", "i64[2]"}, "f32[9,12]"};
    const rule_case kept = {
        RESIZE(.axes = 3, .aspect = TRM_RESIZE_NOT_LARGER), {"f32[3,6]", "-", "-", "i64[2]"}, "f32[6,12]"};
    const float exact[] = {15.0f / 7.0f}; /* less than 15 / 7: the product is rounded to f32 before it is cut */
    const void *by_exact[RULE_CASE_INPUTS] = {NULL, NULL, exact};
    const rule_case rounded = {RESIZE(LAST), {"f32[1,2,7]", "-", "f32[1]"}, "f32[1,2,15]"};
    rule_case_run_with(&scaled, by_scales);
    rule_case_run_with(&rounded, by_exact);
    rule_case_run_with(&unknown, by_scales);
    rule_case_run_with(&bad, by_none);
    rule_case_run_with(&empty, by_scales);
    rule_case_run_with(&filled, by_sizes);
    rule_case_run_with(&empty_kept, by_sizes);
    rule_case_run_with(&sized, by_sizes);
    rule_case_run_with(&kept, by_sizes);
}

static void sampling_rules(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {GRID_SAMPLE(.mode = TRM_RESIZE_LINEAR), {"f16[2,3,5,6]", "f32[2,7,8,2]"}, "f16[2,3,7,8]"},
        {GRID_SAMPLE(.mode = TRM_RESIZE_LINEAR), {"f32[?,3,5,6,4]", "f32[2,7,8,?,3]"}, "f32[2,3,7,8,?]"},
        {GRID_SAMPLE(.mode = TRM_RESIZE_LINEAR), {"f32[2,3,5,6]", "f32[2,7,8,3]"}, "!grid has dims [2, 7, 8, 3]"},
        {GRID_SAMPLE(.mode = TRM_RESIZE_LINEAR), {"f32[2,3,5,6]", "f32[2,7,2]"}, "!expected 4 dimensions"},
        {ROI_POOL(.height = 2, .width = 3), {"f32[1,4,8,8]", "f32[5,4]", "i64[5]"}, "f32[5,4,2,3]"},
        {ROI_POOL(.op = TRM_ROI_POOL_MAX, .height = 2, .width = 3), {"f32[1,4,8,8]", "f32[?,5]"}, "f32[?,4,2,3]"},
        {ROI_POOL(.height = 2, .width = 3), {"f32[1,4,8,8]", "f32[5,5]", "i64[5]"}, "!rois has dims [5, 5]"},
        {ROI_POOL(.height = 0, .width = 3), {"f32[1,4,8,8]", "f32[5,4]", "i64[5]"}, "!found an output of 0 x 3"},
        {SUPPRESSION, {"f32[2,9,4]", "f32[2,3,9]", "i64[]", "f32[1]"}, "i64[?,3] i64[]"},
        {SUPPRESSION, {"f32[2,9,4]", "f32[2,3,8]"}, "!scores has dims [2, 3, 8]"},
        {SUPPRESSION, {"f32[2,9,4]", "f32[2,3,9]", "i64[]", "f32[2]"}, "!a threshold has dims [2]"},
    };
    RUN_CASES(cases);
}

static void channel_rules(void **state)
{
    (void)state;
    static const rule_case cases[] = {
        {GROUP_NORM(.groups = 2), {"f32[2,4,?]", "f32[4]", "f32[4]"}, "f32[2,4,?]"},
        {GROUP_NORM(.groups = 0), {"bf16[2,4]"}, "bf16[2,4]"},
        {GROUP_NORM(.groups = 3), {"f32[2,4,5]"}, "!4 channels cannot be divided into 3 groups"},
        {GROUP_NORM(.groups = 2), {"f32[2,4,5]", "f32[2]"}, "!scale has dims [2], expected [4]"},
        {GROUP_NORM(.groups = 2), {"f32[4]"}, "!expected a batch and channels"},
        {LRN(3), {"f32[2,4,5,6]"}, "f32[2,4,5,6]"},
        {LRN(0), {"f32[2,4,5,6]"}, "!found 0 neighbouring channels"},
    };
    RUN_CASES(cases);
}

static void recurrent_rules(void **state)
{
    (void)state;
#define LSTM .cell = TRM_RECURRENT_LSTM, .hidden = 5
    static const rule_case cases[] = {
        {RECURRENT(.hidden = 5), {"f32[?,2,3]", "f32[1,5,3]", "f32[1,5,5]"}, "f32[?,1,2,5] f32[1,2,5]"},
        {RECURRENT(LSTM, .direction = TRM_RECURRENT_BIDIRECTIONAL),
         {"f16[7,?,3]", "f16[2,20,3]", "f16[2,20,5]", "f16[2,40]", "i32[?]", "-", "f16[2,?,5]", "f16[2,15]"},
         "f16[7,2,?,5] f16[2,?,5] f16[2,?,5]"},
        {RECURRENT(.cell = TRM_RECURRENT_GRU, .hidden = 5),
         {"f32[7,2,3]", "f32[1,20,3]", "f32[1,15,5]"},
         "!w has dims [1, 20, 3], expected [1, 15, 3]"},
        {RECURRENT(LSTM), {"f32[7,2,3]", "f32[1,20,3]", "f32[1,20,5]", "-", "i64[2]"}, "!lengths has type i64"},
        {RECURRENT(.hidden = 0), {"f32[7,2,3]", "f32[1,5,3]", "f32[1,5,5]"}, "!found a hidden size of 0"},
        {RECURRENT(.hidden = 5, .clip = -1.0f), {"f32[7,2,3]", "f32[1,5,3]", "f32[1,5,5]"}, "!found clip -1"},
    };
    RUN_CASES(cases);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolution_rules),
        cmocka_unit_test(deconvolution_rules),
        cmocka_unit_test(deformable_convolution_rules),
        cmocka_unit_test(pool_rules),
        cmocka_unit_test(col2im_rules),
        cmocka_unit_test(resize_rules),
        cmocka_unit_test(sampling_rules),
        cmocka_unit_test(channel_rules),
        cmocka_unit_test(recurrent_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
